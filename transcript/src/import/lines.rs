//! Records out of lines of JSON, damaged ones included.
//!
//! Decision: a damaged line costs what is damaged and no more. Power loss leaves runs of NUL, two writers leave a record
//! cut off and the next one behind it on the same line, a cut inside an emoji leaves half a surrogate pair, and Python
//! writes numbers that are none; the records before, behind and between are whole and are used. What is lost is counted by line, so that it can be said.
//!
//! Time is linear: every attempt to find a record starts behind the last one.

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde_json::Value;

/// How often, on average, each byte of a damaged line may be read in search of a record. Real damage takes two or three
/// readings; nested objects without an end, made on purpose, would take hundreds.
const EFFORT: usize = 16;

/// One whole record.
pub(super) struct Record {
    /// Records before it in the file, lost ones included.
    pub(super) position: u64,
    /// Its JSON.
    pub(super) json: Value,
}

/// What counts as a record of the format being read.
pub(crate) struct Accept {
    /// A whole line.
    pub(crate) line: fn(&Value) -> bool,
    /// JSON found inside a damaged line. Stricter: the parts of a damaged record are JSON too.
    pub(crate) part: fn(&Value) -> bool,
}

/// What was wrong with the lines; line numbers start at 1 and ascend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) lines: Vec<u64>,
    /// Whole records found on damaged lines.
    pub(crate) recovered: u64,
    /// Fragments no record could be made of.
    pub(crate) lost: u64,
    /// Lines with bytes that are no UTF-8, read with U+FFFD in place.
    pub(crate) not_utf8: Vec<u64>,
    /// Lines with half a surrogate pair, read with U+FFFD in place.
    pub(crate) half_surrogates: Vec<u64>,
    /// Lines with a number that JSON has no word for, read with `null` in place.
    pub(crate) no_numbers: Vec<u64>,
}

/// Reads every record, until `each` breaks off.
pub(super) fn read(bytes: &[u8], accept: &Accept, mut each: impl FnMut(Record) -> ControlFlow<()>) -> Damage {
    let mut damage = Damage::default();
    let mut position = 0;
    for (line, bytes) in (1..).zip(bytes.split(|&b| b == b'\n')) {
        let bytes = bytes.trim_ascii();
        if bytes.is_empty() {
            continue;
        }
        let whole = std::str::from_utf8(bytes).ok().and_then(|text| serde_json::from_str(text).ok());
        if let Some(json) = whole.filter(accept.line) {
            if each(Record { position, json }).is_break() {
                break;
            }
            position += 1;
            continue;
        }
        let mut found = mend(bytes, accept);
        damage.note(line, &found);
        for (lost_before, json) in found.records {
            position += lost_before;
            found.lost -= lost_before;
            damage.lost += lost_before;
            if each(Record { position, json }).is_break() {
                return damage;
            }
            position += 1;
        }
        position += found.lost;
        damage.lost += found.lost;
    }
    damage
}

impl Damage {
    /// Notes what was wrong with a line; what was lost on it is not added up.
    pub(crate) fn note(&mut self, line: u64, found: &Found) {
        if found.not_utf8 {
            self.not_utf8.push(line);
        }
        if found.half_surrogates {
            self.half_surrogates.push(line);
        }
        if found.no_numbers {
            self.no_numbers.push(line);
        }
        if found.damaged {
            self.lines.push(line);
            self.recovered += found.records.len() as u64;
        }
    }
}

/// What a line that is not one plain record holds.
#[derive(Default)]
pub(crate) struct Found {
    /// Fragments lost directly before the record, and the record.
    pub(crate) records: Vec<(u64, Value)>,
    /// Fragments lost on the whole line.
    pub(crate) lost: u64,
    /// `false` when the line is one record after all.
    damaged: bool,
    not_utf8: bool,
    half_surrogates: bool,
    no_numbers: bool,
}

/// Finds the records of a line that did not parse.
pub(crate) fn mend(bytes: &[u8], accept: &Accept) -> Found {
    let mut found = Found::default();
    find(bytes, accept, &mut found);
    found
}

fn find(bytes: &[u8], accept: &Accept, found: &mut Found) {
    for part in bytes.split(|&b| b == 0) {
        found.damaged |= part.len() < bytes.len();
        if part.trim_ascii().is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(part);
        found.not_utf8 |= matches!(text, Cow::Owned(_));
        let text = match without_half_surrogates(&text) {
            Some(mended) => {
                found.half_surrogates = true;
                Cow::Owned(mended)
            }
            None => text,
        };
        let whole = |text: &str| serde_json::from_str(text.trim()).ok().filter(accept.line);
        if let Some(json) = whole(&text) {
            found.push(json, 0);
        } else if let Some(json) = without_no_numbers(&text).as_deref().and_then(whole) {
            found.no_numbers = true;
            found.push(json, 0);
        } else {
            found.damaged = true;
            search(&text, accept, found);
        }
    }
}

impl Found {
    fn push(&mut self, json: Value, lost_before: u64) {
        self.lost += lost_before;
        self.records.push((lost_before, json));
    }
}

/// Every whole record in a text that is no single record.
fn search(text: &str, accept: &Accept, found: &mut Found) {
    let (mut at, mut unused, mut effort) = (0, 0, text.len().saturating_mul(EFFORT));
    let is_lost = |from: usize, to: usize| u64::from(text.get(from..to).is_some_and(|t| !t.trim().is_empty()));
    while let Some(start) = text.get(at..).and_then(|t| t.find('{')).map(|i| at + i) {
        let mut stream = serde_json::Deserializer::from_str(text.get(start..).unwrap_or("")).into_iter::<Value>();
        match stream.next() {
            Some(Ok(json)) if (accept.part)(&json) => {
                found.push(json, is_lost(unused, start));
                at = start + stream.byte_offset();
                unused = at;
            }
            Some(Err(error)) if error.column() > effort => break,
            outcome => {
                effort -= match outcome {
                    Some(Err(error)) => error.column(),
                    _ => stream.byte_offset().min(effort),
                };
                at = start + 1;
            }
        }
    }
    found.lost += is_lost(unused, text.len());
}

/// The text with `\ufffd` for every escape that is half a surrogate pair; `None` when it has none.
///
/// serde_json refuses such a text, and JavaScript writes it whenever a string is cut inside an emoji.
pub(super) fn without_half_surrogates(text: &str) -> Option<String> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(i) = text.get(at..).and_then(|t| t.find('\\')) {
        let escape = at + i;
        at = escape + 2;
        let Some(unit) = code_unit(text, escape) else { continue };
        at = escape + 6;
        if !(0xd800..0xe000).contains(&unit) {
            continue;
        }
        let pair = unit < 0xdc00 && code_unit(text, at).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if pair {
            at += 6;
            continue;
        }
        mended.push_str(text.get(copied..escape)?);
        mended.push_str("\\ufffd");
        copied = at;
    }
    if copied == 0 {
        return None;
    }
    mended.push_str(text.get(copied..)?);
    Some(mended)
}

/// The text with `null` for every `NaN`, `Infinity` and `-Infinity` outside strings; `None` when it has none.
///
/// Python writes these, and JSON has no word for them. Only for what may be whole: in a text that begins inside a string,
/// the strings are what is between them.
pub(super) fn without_no_numbers(text: &str) -> Option<String> {
    let mut mended = String::new();
    let (mut copied, mut at, mut quoted) = (0, 0, false);
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b'N' | b'I' | b'-' if !quoted => {
                let rest = text.get(at..)?;
                if let Some(word) = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| rest.starts_with(word)) {
                    mended.push_str(text.get(copied..at)?);
                    mended.push_str("null");
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return None;
    }
    mended.push_str(text.get(copied..)?);
    Some(mended)
}

/// The value of a `\uXXXX` escape at `at`.
fn code_unit(text: &str, at: usize) -> Option<u32> {
    let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
    hex.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_id(json: &Value) -> bool {
        json.get("id").is_some()
    }

    /// `position:id` of each record, then the damage.
    fn read_ids(text: &[u8]) -> (String, Damage) {
        let mut ids = Vec::new();
        let damage = read(text, &Accept { line: has_id, part: has_id }, |r| {
            ids.push(format!("{}:{}", r.position, r.json["id"].as_str().unwrap_or("?")));
            ControlFlow::Continue(())
        });
        (ids.join(" "), damage)
    }

    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_character() {
        let mended = |text| without_half_surrogates(text);
        assert_eq!(mended(r#"a \ud83d b"#).as_deref(), Some(r#"a \ufffd b"#));
        assert_eq!(mended(r#"\ud83d\ud83d\udd25 \udd25"#).as_deref(), Some(r#"\ufffd\ud83d\udd25 \ufffd"#));
        assert_eq!(mended(r#"\ud83d\udd25 \\ud83d \u00e9 \u12"#), None);
    }

    #[test]
    fn a_number_json_has_no_word_for_cost_the_record() {
        let mended = |text| without_no_numbers(text);
        assert_eq!(mended(r#"[NaN,-Infinity, Infinity,-1]"#).as_deref(), Some("[null,null, null,-1]"));
        assert_eq!(mended(r#"["NaN \" Infinity","\\",NaN]"#).as_deref(), Some(r#"["NaN \" Infinity","\\",null]"#));
        assert_eq!(mended(r#"{"a":"NaN","b":-1}"#), None);
        let (ids, damage) = read_ids(b"{\"id\":\"NaN\",\"x\":NaN}\n{\"id\":\"b\",\"x\":1e400}\n{\"id\":\"c\"}");
        assert_eq!((ids.as_str(), damage.lines.len(), damage.no_numbers), ("0:NaN 1:b 2:c", 0, vec![1]));
    }

    #[test]
    fn crlf_blank_lines_and_a_last_line_without_newline_are_fine() {
        let (ids, damage) = read_ids(b"{\"id\":\"a\"}\r\n\r\n   \n{\"id\":\"b\"}");
        assert_eq!((ids.as_str(), damage), ("0:a 1:b", Damage::default()));
    }

    #[test]
    fn a_line_that_is_no_record_is_lost_and_holds_its_position() {
        let (ids, damage) = read_ids(b"{\"id\":\"a\"}\n{\"id\":\"x\n{\"id\":\"b\"}\nnull");
        assert_eq!(ids, "0:a 2:b");
        assert_eq!((damage.lines, damage.recovered, damage.lost), (vec![2, 4], 0, 2));
    }

    #[test]
    fn bytes_that_are_no_utf8_cost_only_themselves() {
        let (ids, damage) = read_ids(b"{\"id\":\"a\xff\"}\n{\"id\":\"b\"}");
        assert_eq!(ids, "0:a\u{fffd} 1:b");
        assert_eq!((damage.lines.len(), damage.not_utf8), (0, vec![1]));
    }

    #[test]
    fn a_line_of_objects_without_an_end_does_not_take_for_ever() {
        let text = [r#"{"a":"#.repeat(200_000), "{".repeat(200_000), r#"{"a":[{},"#.repeat(100_000)].join("\n");
        let (ids, damage) = read_ids(text.as_bytes());
        assert_eq!((ids.as_str(), damage.lost), ("", 3));
    }
}
