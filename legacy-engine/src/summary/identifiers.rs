//! Strings that must be kept to the letter: paths, URLs, hashes, ids, amounts, quoted names.
//!
//! Decision: found by shape, in one pass, and ranked by who said them, how often and how lately. Tool output is not
//! read: an identifier that mattered was used in a call or named in a text. Source: contract §7.6 (`strict`), §7.7.

use std::collections::HashMap;

use super::text::is_cjk;

/// What a dotted name ends in when it names a file or a host; `list.push` is code.
#[rustfmt::skip]
const EXTENSIONS: &[&str] = &[
    "ts", "tsx", "js", "jsx", "mjs", "cjs", "json", "jsonl", "json5", "rs", "py", "ipynb", "go", "java", "kt", "swift", "c", "h", "cc",
    "cpp", "hpp", "cs", "rb", "php", "lua", "pl", "r", "ex", "exs", "sh", "bash", "zsh", "ps1", "sql", "proto", "vue", "svelte", "html",
    "css", "scss", "md", "mdx", "txt", "rst", "pdf", "doc", "docx", "xls", "xlsx", "csv", "tsv", "xml", "yaml", "yml", "toml", "ini",
    "cfg", "conf", "env", "lock", "log", "png", "jpg", "jpeg", "gif", "svg", "webp", "mp3", "mp4", "zip", "tar", "gz", "so", "dll",
    "dylib", "exe", "wasm", "db", "sqlite", "pem", "traj", "com", "org", "net", "io", "dev", "app", "edu", "gov", "de", "cn", "br", "jp", "uk", "fr",
];

/// Longest identifier that is kept.
const MAX_CHARS: usize = 200;
/// Longest name in backticks or quotes.
const MAX_NAME: usize = 48;

/// Weight of what a person wrote.
pub(super) const USER: u32 = 3;
/// Weight of what an agent wrote or passed to a tool.
pub(super) const AGENT: u32 = 1;

/// Identifiers seen so far.
#[derive(Debug, Default)]
pub(super) struct Identifiers {
    seen: HashMap<String, Seen>,
    clock: u64,
}

#[derive(Debug)]
struct Seen {
    weight: u32,
    last: u64,
}

impl Identifiers {
    /// Notes every identifier of the text. `weight` says how much its speaker's choice of words counts.
    pub(super) fn read(&mut self, text: &str, weight: u32) {
        for token in tokens(text) {
            let token = bare(token);
            if token.len() < 3 || token.len() > MAX_CHARS {
                continue;
            }
            // Amounts matter when a person names them; agents print them by the table.
            match class(token) {
                0 => {}
                1 if weight < USER => {}
                class => self.note(token, class * weight),
            }
        }
        for name in names(text) {
            self.note(name, 2 * weight);
        }
    }

    /// Notes one identifier.
    pub(super) fn note(&mut self, identifier: &str, weight: u32) {
        self.clock += 1;
        match self.seen.get_mut(identifier) {
            Some(seen) => {
                seen.weight = (seen.weight + weight).min(60);
                seen.last = self.clock;
            }
            None => {
                self.seen.insert(identifier.to_owned(), Seen { weight, last: self.clock });
            }
        }
    }

    /// The `most` weightiest, in the order in which they were last used.
    pub(super) fn best(&self, most: usize) -> Vec<&str> {
        let mut all: Vec<(&str, &Seen)> = self.seen.iter().map(|(id, seen)| (id.as_str(), seen)).collect();
        // Half of the weight is how lately it was used: old topics give way to new ones.
        let rank = |seen: &Seen| u64::from(seen.weight) * 1_000 + 30_000 * seen.last / self.clock.max(1);
        all.sort_unstable_by_key(|(_, seen)| (std::cmp::Reverse(rank(seen)), std::cmp::Reverse(seen.last)));
        all.truncate(most);
        all.sort_unstable_by_key(|(_, seen)| seen.last);
        all.into_iter().map(|(id, _)| id).collect()
    }
}

/// The runs between separators. A comma between digits is part of a number; a run that CJK text may continue, such as
/// the start of a path with a Chinese folder in it, is left out rather than cut.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    let mut before: Option<char> = None;
    let mut chars = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while start < text.len() {
            let (end, separator) = loop {
                let Some((at, c)) = chars.next() else { break (text.len(), None) };
                let mut digits = || {
                    let last = text[start..at].ends_with(|c: char| c.is_ascii_digit());
                    last && chars.peek().is_some_and(|(_, next)| next.is_ascii_digit())
                };
                if is_separator(c) && !(c == ',' && digits()) {
                    break (at, Some(c));
                }
            };
            let token = &text[start..end];
            let opened = before.is_some_and(is_cjk) && token.starts_with('/') && !token[1..].contains('/');
            let goes_on = separator.is_some_and(is_cjk_letter) && token.ends_with(['/', '-', '_', '.']);
            start = end + separator.map_or(0, char::len_utf8);
            before = separator;
            if !token.is_empty() && !opened && !goes_on {
                return Some(token);
            }
        }
        None
    })
}

fn is_cjk_letter(c: char) -> bool {
    is_cjk(c) && c.is_alphanumeric()
}

fn is_separator(c: char) -> bool {
    c.is_whitespace()
        || is_cjk(c)
        || matches!(
            c,
            '"' | '\''
                | '`'
                | '('
                | ')'
                | '{'
                | '}'
                | '['
                | ']'
                | '<'
                | '>'
                | ','
                | ';'
                | '|'
                | '\\'
                | '“'
                | '”'
                | '„'
                | '«'
                | '»'
                | '—'
                | '→'
        )
}

/// The token without emphasis and the sentence's punctuation. A dot in front stays: it belongs to `./a` and `.env`.
fn bare(token: &str) -> &str {
    let token = token.strip_prefix("**").map_or(token, |inner| inner.trim_end_matches(['*', ':', '.']));
    token.trim_start_matches([':', '!', '?', '…']).trim_end_matches(['.', ':', '!', '?', '…'])
}

/// How surely the token is an identifier; 0 when it is a word.
fn class(token: &str) -> u32 {
    let bytes = token.as_bytes();
    if bytes.iter().all(u8::is_ascii_lowercase) {
        return 0;
    }
    let digits = bytes.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = bytes.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let has = |c: char| token.contains(c);
    if !token.is_ascii() {
        return if has('/') && has('.') { 3 } else { 0 };
    }
    if has_scheme(token) || is_uuid(token) {
        return 5;
    }
    if has('/') {
        return path_class(token);
    }
    if is_hash(token, digits, letters) || (has('@') && has('.') && letters > 3) {
        return 4;
    }
    if token.starts_with('#') && digits > 0 && digits + 1 == token.len() {
        return 3;
    }
    if is_amount(token, digits) {
        return 1;
    }
    if is_file_name(token) {
        return 3;
    }
    let joined = has('_') || has('-') || has(':');
    let coded = digits > 0 && letters > 0 && token.len() >= 5;
    let shouted = has('_') && letters > 3 && !bytes.iter().any(u8::is_ascii_lowercase);
    let upper = coded && !bytes.iter().any(u8::is_ascii_lowercase);
    match () {
        () if shouted || upper => 3,
        () if coded && (joined || digits >= 2) && !has('=') => 3,
        () => 0,
    }
}

fn has_scheme(token: &str) -> bool {
    token.split_once("://").is_some_and(|(scheme, rest)| {
        !rest.is_empty() && !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
    })
}

fn is_uuid(token: &str) -> bool {
    let lengths = token.split('-').map(str::len);
    token.len() == 36 && lengths.eq([8, 4, 4, 4, 12]) && token.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

fn is_hash(token: &str, digits: usize, letters: usize) -> bool {
    (7..=64).contains(&token.len()) && digits > 1 && letters > 1 && token.bytes().all(|b| b.is_ascii_hexdigit())
}

fn path_class(token: &str) -> u32 {
    let rooted = token.starts_with(['/', '~', '.', '@']);
    let steps = token.split('/').filter(|step| !step.is_empty()).count();
    let dotted = token.rsplit('/').next().is_some_and(|last| last.contains('.') && is_file_name(last));
    let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-~@+:#%=*".contains(&b));
    match () {
        () if !plain || steps == 0 || !token.bytes().any(|b| b.is_ascii_alphabetic()) => 0,
        () if dotted || steps > 2 || (rooted && steps > 1) => 4,
        () if rooted && token.len() > 3 => 2,
        () => 0,
    }
}

fn is_file_name(token: &str) -> bool {
    let Some((stem, extension)) = token.rsplit_once('.') else { return false };
    let named = |b: u8| b.is_ascii_alphanumeric() || b"._-@+".contains(&b);
    !stem.is_empty() && stem.bytes().all(named) && EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Money, percentages and numbers with a unit glued on: `$121`, `15%`, `200k`, `16GB`.
fn is_amount(token: &str, digits: usize) -> bool {
    let body = token.trim_start_matches(['$', '€', '£', '~', '+', '-']);
    let number = body.bytes().take_while(|b| b.is_ascii_digit() || b".,".contains(b)).count();
    let unit = &body[number..];
    let ordinal = matches!(unit, "st" | "nd" | "rd" | "th");
    let money = body.len() < token.len() && !token.starts_with(['-', '~', '+']) && unit.is_empty();
    digits > 0
        && number > 0
        && !ordinal
        && (money || ((1..=3).contains(&unit.len()) && unit.bytes().all(|b| b.is_ascii_alphabetic() || b == b'%')))
}

/// Short spans in backticks that are spelled like code: a plain word there is only emphasis.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let short = span.len() > 2 && span.len() <= MAX_NAME && !span.contains(char::is_whitespace);
        let hump = || span.as_bytes().windows(2).any(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
        let signs = || span.contains(['_', '(', '-', ':', '/', '.']);
        short
            && span.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '-')
            && (hump() || signs())
            && class(span) == 0
    })
}
