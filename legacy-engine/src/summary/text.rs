//! Sentences out of text, and text made shorter without breaking what must stay exact.
//!
//! Decision: a cut falls between words or between CJK characters, never inside a path, a number with its unit or a short
//! quoted name: half an identifier is worse than none, because the reader will use it.

/// Longest span in quotes or backticks that counts as a name.
const NAME_CHARS: usize = 60;
/// Text longer than this is read at its start and end only: what is longer is pasted, not said.
const READ_BYTES: usize = 12_000;
/// What ends a sentence wherever it stands.
const FULL_STOPS: [char; 5] = ['。', '！', '？', '；', '…'];
/// Words whose dot ends no sentence.
const ABBREVIATIONS: [&str; 12] =
    ["e.g", "i.e", "etc", "vs", "cf", "approx", "no", "z.b", "d.h", "bzw", "p.ex", "resp"];

/// Whether the character is of a script written without spaces.
pub(super) fn is_cjk(c: char) -> bool {
    matches!(c as u32, 0x2E80..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFE30..=0xFE4F | 0xFF00..=0xFFEF | 0x20000..=0x3FFFF)
}

/// The largest char boundary at or below `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// The parts of a text worth reading: all of it, or start and end of a long one.
pub(super) fn worth_reading(text: &str) -> [&str; 2] {
    if text.len() <= READ_BYTES {
        return [text, ""];
    }
    let (head, tail) = (floor(text, READ_BYTES * 3 / 4), floor(text, text.len() - READ_BYTES / 4));
    [&text[..head], &text[tail..]]
}

/// The sentences of a text outside fenced code, without list markers, in order.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let prose = text.lines().map(str::trim).filter(move |line| {
        let fence = line.starts_with("```") || line.starts_with("~~~");
        fenced ^= fence;
        !fence && !fenced
    });
    prose.flat_map(split_line).filter(|sentence| sentence.chars().any(char::is_alphabetic))
}

/// A line without quote, heading and list markers.
pub(super) fn unmarked(line: &str) -> &str {
    let line = line.trim_start_matches(['>', '#', ' ', '\t', '•', '·']);
    let line = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    match line.as_bytes().get(digits) {
        Some(b'.' | b')') if (1..=3).contains(&digits) => line[digits + 1..].trim_start(),
        _ => line.trim_start(),
    }
}

fn split_line(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = unmarked(line);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = sentence_end(rest);
        let (sentence, next) = rest.split_at(end);
        rest = next.trim_start();
        Some(sentence.trim())
    })
}

fn sentence_end(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let stop = match c {
            _ if FULL_STOPS.contains(&c) => true,
            '!' | '?' => next.is_none_or(char::is_whitespace),
            '.' => next.is_none_or(char::is_whitespace) && !is_abbreviation(&text[..at]),
            _ => false,
        };
        if stop {
            return at + c.len_utf8();
        }
    }
    text.len()
}

fn is_abbreviation(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or("");
    let short = word.chars().count() == 1 && !word.chars().all(is_cjk);
    short || ABBREVIATIONS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The text on one line, without marks of emphasis.
pub(super) fn flat(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        // `**/*.rs` is a pattern, `**bold**` is not.
        if word.contains("**") && !word.contains('/') {
            out.push_str(&word.replace("**", ""));
        } else {
            out.push_str(word);
        }
    }
    out
}

/// The text on one line, at most `max` characters, an ellipsis where it was cut. Empty when nothing whole fits.
pub(super) fn shorten(text: &str, max: usize) -> String {
    // Only as much as could be kept is worth flattening; the rest of a megabyte is not looked at.
    let enough = floor(text, max.saturating_mul(8).saturating_add(256));
    let line = flat(&text[..enough]);
    let whole = enough == text.len() && line.chars().count() <= max;
    if whole {
        return line;
    }
    let mut cut = 0;
    let mut span: Option<(char, usize)> = None;
    let mut before: Option<char> = None;
    for (n, (at, c)) in line.char_indices().enumerate() {
        if n >= max {
            break;
        }
        let parted = before.is_some_and(|b| c == ' ' || is_cjk(b) || is_cjk(c));
        let in_name = span.is_some_and(|(_, since)| n - since < NAME_CHARS);
        if parted && !in_name && !parts_number(&line[..at], &line[at..]) {
            cut = at;
        }
        span = match span {
            Some((close, _)) if c == close => None,
            None => closing(c, before).map(|close| (close, n)),
            open => open,
        };
        before = Some(c);
    }
    let kept = line[..cut].trim_end_matches([' ', ',', ';', ':', '，', '、']);
    if kept.is_empty() { String::new() } else { format!("{kept}…") }
}

/// Whether a cut here would part a number from its unit.
fn parts_number(before: &str, after: &str) -> bool {
    let number = before.trim_end().ends_with(|c: char| c.is_ascii_digit());
    let unit =
        after.trim_start().chars().take_while(|c| c.is_alphabetic() || matches!(c, '%' | '°' | '€' | '$')).count();
    number && (1..=5).contains(&unit)
}

fn closing(c: char, before: Option<char>) -> Option<char> {
    let opens = before.is_none_or(|b| !b.is_alphanumeric());
    Some(match c {
        '`' => '`',
        '"' if opens => '"',
        '“' | '„' => '”',
        '「' => '」',
        '『' => '』',
        '«' => '»',
        '《' => '》',
        _ => return None,
    })
}

/// What makes two items the same: their letters and digits, whatever their case.
pub(super) fn key(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(160).collect()
}
