//! Things a reply can rely on: identifiers, found by their shape.
//!
//! Decision: shape alone, one line at a time, without a list of what exists. So the rules can be written down, and anybody
//! can find the same things again (docs/compare.md has them in words). What is missed is missed for every engine alike.

use std::ops::Range;

/// Shortest thing, in characters.
const MIN_CHARS: usize = 3;
/// Longest thing, in bytes.
const MAX_BYTES: usize = 200;
/// Longest quoted string that is one thing, in characters.
const MAX_QUOTED: usize = 80;
/// A number without a unit is a thing from this many digits on.
const MIN_DIGITS: usize = 5;

/// What follows a number with one space between and belongs to it.
#[rustfmt::skip]
const UNITS: &[&str] = &[
    "ns", "us", "µs", "ms", "s", "sec", "min", "h", "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "Hz", "MHz", "GHz",
    "mm", "cm", "m", "km", "g", "kg", "t", "kn", "°C", "°F", "%", "€", "$", "£", "EUR", "USD", "GBP", "V", "W", "kW", "kWh",
];

/// What a name ends in when it names a file.
#[rustfmt::skip]
const EXTENSIONS: &[&str] = &[
    "ts", "tsx", "js", "jsx", "mjs", "cjs", "json", "jsonl", "json5", "rs", "py", "ipynb", "go", "java", "kt", "swift", "c", "h", "cc",
    "cpp", "hpp", "cs", "rb", "php", "lua", "pl", "ex", "exs", "sh", "bash", "zsh", "ps1", "sql", "proto", "vue", "svelte", "html",
    "css", "scss", "md", "mdx", "txt", "rst", "pdf", "doc", "docx", "xls", "xlsx", "csv", "tsv", "xml", "yaml", "yml", "toml", "ini",
    "cfg", "conf", "env", "lock", "log", "png", "jpg", "jpeg", "gif", "svg", "webp", "mp3", "mp4", "zip", "tar", "gz", "so", "dll",
    "dylib", "exe", "wasm", "db", "sqlite", "pem", "traj", "cron",
];

/// What a thing looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Path,
    Url,
    Hash,
    Number,
    Symbol,
    Quoted,
}

impl Kind {
    /// As reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Path => "path",
            Kind::Url => "url",
            Kind::Hash => "hash",
            Kind::Number => "number",
            Kind::Symbol => "symbol",
            Kind::Quoted => "quoted",
        }
    }
}

/// A thing in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// Where it stands, in bytes.
    pub(crate) range: Range<usize>,
}

/// The things of one line, by shape first and the quoted ones behind them.
pub(crate) fn find(line: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for chunk in pieces(line, 0..line.len(), is_hard_separator) {
        match url(line, chunk.clone()) {
            Some(url) => {
                for piece in pieces(line, chunk.start..url.start, is_soft_separator) {
                    found.extend(thing(line, piece));
                }
                found.push(Found { kind: Kind::Url, range: url });
            }
            None => {
                for piece in pieces(line, chunk, is_soft_separator) {
                    found.extend(thing(line, piece));
                }
            }
        }
    }
    quoted(line, &mut found);
    found
}

/// The runs of `within` between separators. `is_separator` is given the characters before and behind, too.
fn pieces(
    line: &str,
    within: Range<usize>,
    is_separator: fn(Option<char>, char, Option<char>) -> bool,
) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = within.start;
    let mut before = None;
    let mut chars = line[within.clone()].char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let at = within.start + at;
        if is_separator(before, c, chars.peek().map(|(_, c)| *c)) {
            if at > start {
                runs.push(start..at);
            }
            start = at + c.len_utf8();
        }
        before = Some(c);
    }
    if within.end > start {
        runs.push(start..within.end);
    }
    runs
}

fn is_hard_separator(_: Option<char>, c: char, _: Option<char>) -> bool {
    c.is_whitespace() || is_cjk(c) || "\"'`()[]{}<>|\\“”„‘’«»—→".contains(c)
}

/// A comma between digits is part of a number, and a pair of colons part of a name.
fn is_soft_separator(before: Option<char>, c: char, next: Option<char>) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    match c {
        ',' => !(digit(before) && digit(next)),
        ':' => before != Some(':') && next != Some(':'),
        _ => matches!(c, ';' | '='),
    }
}

/// A character of a script that is written without spaces: a word of its own.
pub(crate) fn is_cjk(c: char) -> bool {
    matches!(u32::from(c), 0x3000..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF00..=0xFFEF)
}

fn url(line: &str, chunk: Range<usize>) -> Option<Range<usize>> {
    let text = &line[chunk.clone()];
    let colon = text.find("://")?;
    let scheme = text[..colon].bytes().rev().take_while(u8::is_ascii_alphanumeric).count();
    let end = text.trim_end_matches(['.', ',', ';', ':', '!', '?', '*']).len();
    (scheme > 0 && end > colon + 3 && end - (colon - scheme) <= MAX_BYTES)
        .then(|| chunk.start + colon - scheme..chunk.start + end)
}

fn thing(line: &str, piece: Range<usize>) -> Option<Found> {
    let text = &line[piece.clone()];
    let text = text.trim_end_matches(['.', '!', '?', '*', '…', ':', ',']);
    let end = piece.start + text.len();
    let text = text.trim_start_matches(['*', '!', '?', '…', ':', ',', '+']);
    let start = end - text.len();
    if text.len() < 2 || text.len() > MAX_BYTES || text.bytes().all(|b| b.is_ascii_lowercase()) {
        return None;
    }
    if let Some(end) = number_with_unit_behind(line, start..end) {
        return Some(Found { kind: Kind::Number, range: start..end });
    }
    let kind = classify(text).filter(|_| text.chars().count() >= MIN_CHARS)?;
    Some(Found { kind, range: start..end })
}

/// `10.3 m`: where the unit ends.
fn number_with_unit_behind(line: &str, number: Range<usize>) -> Option<usize> {
    let is_number = line[number.clone()].bytes().all(|b| b.is_ascii_digit() || b".,".contains(&b));
    let rest = line[number.end..].strip_prefix(' ').filter(|_| is_number)?;
    let unit = rest.find(|c: char| c.is_whitespace() || ",;:.)]\"'`!?".contains(c)).map_or(rest, |end| &rest[..end]);
    UNITS.contains(&unit).then(|| number.end + 1 + unit.len())
}

fn classify(text: &str) -> Option<Kind> {
    let bytes = text.as_bytes();
    let digits = bytes.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    if text.contains('/') {
        return is_path(text, letters).then_some(Kind::Path);
    }
    if is_hash(text, digits, letters) {
        return Some(Kind::Hash);
    }
    if let Some(is_thing) = number(text, digits) {
        return is_thing.then_some(Kind::Number);
    }
    if letters == 0 {
        let is_reference = text.starts_with('#') && digits > 1 && digits + 1 == text.len();
        return is_reference.then_some(Kind::Symbol);
    }
    if is_file_name(text) {
        return Some(Kind::Path);
    }
    is_symbol(text, digits, letters).then_some(Kind::Symbol)
}

/// Rooted, or of three steps, or with a step that is no plain word: `and/or` is none.
fn is_path(text: &str, letters: usize) -> bool {
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-@+~#%*$&?".contains(c));
    let steps: Vec<&str> = text.split('/').filter(|step| !step.is_empty()).collect();
    let rooted = text.starts_with(['/', '~', '.', '$', '@']);
    let spelled = |step: &&str| step.bytes().any(|b| b.is_ascii_digit() || b"._-".contains(&b));
    plain && letters > 1 && !steps.is_empty() && (rooted || steps.len() > 2 || steps.iter().any(spelled))
}

fn is_hash(text: &str, digits: usize, letters: usize) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let uuid = text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && text.split('-').all(hex);
    uuid || ((7..=128).contains(&text.len()) && digits > 1 && letters > 1 && hex(text))
}

/// Whether a text that is a number is a thing: money, a unit glued on, or many digits. `None` for what is no number.
fn number(text: &str, digits: usize) -> Option<bool> {
    let body = text.trim_start_matches(['$', '€', '£', '~', '+', '-', '<', '>', '≈']);
    let value = body.bytes().take_while(|b| b.is_ascii_digit() || b".,_".contains(b)).count();
    let (value, unit) = body.split_at(value);
    if digits == 0 || !value.starts_with(|c: char| c.is_ascii_digit()) || value.matches('.').count() > 1 {
        return None;
    }
    if unit.is_empty() {
        return Some(text.starts_with(['$', '€', '£']) || digits >= MIN_DIGITS);
    }
    let is_unit =
        UNITS.contains(&unit) || matches!(unit, "k" | "K" | "M" | "G" | "x" | "px" | "em" | "rem" | "d" | "mo");
    if is_unit { Some(true) } else { None }
}

fn is_file_name(text: &str) -> bool {
    let Some((stem, extension)) = text.rsplit_once('.') else { return false };
    let named = |c: char| c.is_alphanumeric() || "._-@+*".contains(c);
    stem.chars().all(named) && !stem.is_empty() && EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Spelled as nobody spells a word: joined by `_`, `.`, `::` or `->`, with a hump or a digit in it, an option, an address.
fn is_symbol(text: &str, digits: usize, letters: usize) -> bool {
    let named = |c: char| c.is_alphanumeric() || "_.:-$@#>~".contains(c);
    if !text.chars().all(named) || letters < 2 && digits < 2 {
        return false;
    }
    let bytes = text.as_bytes();
    let hump = bytes.windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let joined = |by: &str| {
        let mut steps = text.split(by);
        text.contains(by) && steps.all(|step| step.chars().filter(|c| c.is_alphanumeric()).count() > 1)
    };
    let under = text.trim_matches('_').contains('_') || text.starts_with("__");
    let coded = digits > 0 && letters > 0 && !ordinal(text);
    let option = text.starts_with("--") && letters > 2;
    let address = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    hump || under || joined(".") || joined("::") || joined("->") || coded || option || address
}

fn ordinal(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && matches!(rest, "st" | "nd" | "rd" | "th" | "s")
}

/// Adds the strings that stand between quotation marks in the line.
fn quoted(line: &str, found: &mut Vec<Found>) {
    let mut from = 0;
    while let Some((at, open)) = line[from..].char_indices().find(|(_, c)| "\"'`“«".contains(*c)) {
        let (at, start) = (from + at, from + at + open.len_utf8());
        let close = match open {
            '“' => '”',
            '«' => '»',
            same => same,
        };
        let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        // An apostrophe opens nothing.
        if open == '\'' && in_word(line[..at].chars().next_back()) {
            from = start;
            continue;
        }
        let Some(len) = line[start..].find(close) else {
            from = start;
            continue;
        };
        let range = start..start + len;
        let end = range.end + close.len_utf8();
        if open == '\'' && in_word(line[end..].chars().next()) {
            from = start;
            continue;
        }
        if is_quotable(&line[range.clone()], open) && !found.iter().any(|other| other.range == range) {
            found.push(Found { kind: Kind::Quoted, range });
        }
        from = end;
    }
}

/// In backticks any name; in quotation marks what is more than one word in small letters.
fn is_quotable(text: &str, open: char) -> bool {
    let chars = text.chars().count();
    let plain = || text.chars().all(char::is_lowercase);
    (MIN_CHARS..=MAX_QUOTED).contains(&chars)
        && text.trim() == text
        && text.chars().filter(|c| c.is_alphabetic()).count() > 1
        && (open == '`' || !plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The things of a line, each with its kind.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let found: Vec<String> =
            find(line).into_iter().map(|found| format!("{} {}", found.kind.name(), &line[found.range])).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn identifiers_are_told_by_their_shape() {
        check("see src/main.rs:12 and ./run or ~/x/notes.", &["path src/main.rs", "path ./run", "path ~/x/notes"]);
        check("at https://example.org/a?b=1&c=2, then", &["url https://example.org/a?b=1&c=2"]);
        check("commit 3f9c2ab of sha256:00ff00ff00ff", &["hash 3f9c2ab", "symbol sha256", "hash 00ff00ff00ff"]);
        check(
            "draught 10.3 m, 15%, $121 and 250ms, id 4812345",
            &["number 10.3 m", "number 15%", "number $121", "number 250ms", "number 4812345"],
        );
        check(
            "call fooBar or max_len in std::fs::read --json PC-20418",
            &["symbol fooBar", "symbol max_len", "symbol std::fs::read", "symbol --json", "symbol PC-20418"],
        );
        check("the “Kaiser Quay” and \"a b\" and `berth`", &["quoted Kaiser Quay", "quoted a b", "quoted berth"]);
    }

    #[test]
    fn words_and_small_numbers_are_none() {
        for line in ["it's and/or that's 12 of 400 items", "The 3rd time, in 2026.", "\"yes\" 'no'", "a-b well-known"] {
            check(line, &[]);
        }
    }
}
