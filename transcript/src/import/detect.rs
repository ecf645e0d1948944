//! Tells a transcript's format from its content.
//!
//! Decision: never from the file's name. Sessions are stored under `.json`, `.jsonl`, `.txt` and names of their own, and
//! a wrong name must not make a good file unreadable. The first line that fits a format decides; a damaged first line
//! does not.

use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::lines::{self, Accept};
use super::{openai, openclaw};
use crate::TranscriptError;

/// What an error says was looked for.
pub(super) const FORMATS: &str = "an OpenClaw or pi session (JSON lines of type `session` and `message`) or OpenAI chat messages (JSON or JSON lines)";

/// Lines looked at before giving up: a session may begin with many entries that are no messages.
const LINES: usize = 1_000;

/// What the content is.
pub(super) enum Shape {
    /// Entries of a session, one per line.
    OpenClawLines,
    /// Chat messages or dialogues, one per line.
    ChatLines,
    /// One JSON document of chat messages.
    ChatDocument(Value),
}

pub(super) fn shape(name: &str, bytes: &[u8]) -> Result<Shape, TranscriptError> {
    let content = bytes.trim_ascii();
    let Some(first) = content.first() else { return Err(TranscriptError::Empty { name: name.to_owned() }) };
    let unknown = |found| Err(TranscriptError::UnknownFormat { name: name.to_owned(), expected: FORMATS, found });
    let first_line = content.split(|&b| b == b'\n').next().unwrap_or_default();
    let is_one_line = first_line.len() == content.len();
    let first_is_whole = serde_json::from_slice::<IgnoredAny>(first_line.trim_ascii()).is_ok();
    let mut broken = None;
    if matches!(first, b'{' | b'[') && (is_one_line || !first_is_whole) {
        match document(content) {
            Ok(json) if openai::recognises_document(&json) => return Ok(Shape::ChatDocument(json)),
            // One line may be a session of one entry; a document of many lines is no lines of JSON.
            Ok(json) if !is_one_line => return unknown(members(&json)),
            Ok(_) => {}
            Err(error) => broken = Some(error),
        }
    }
    match (by_lines(content), broken) {
        (Some(shape), _) => Ok(shape),
        (None, Some(error)) => Err(TranscriptError::Json {
            name: name.to_owned(),
            expected: FORMATS,
            found: describe(&error),
            line: error.line(),
            column: error.column(),
        }),
        (None, None) => unknown(match serde_json::from_slice(first_line.trim_ascii()) {
            Ok(json) => members(&json),
            Err(_) => start(content),
        }),
    }
}

fn document(content: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(content).or_else(|error| {
        let mended = std::str::from_utf8(content).ok().and_then(lines::without_half_surrogates);
        mended.map_or(Err(error), |text| serde_json::from_str(&text))
    })
}

fn by_lines(content: &[u8]) -> Option<Shape> {
    let mut shape = None;
    let mut looked_at = 0;
    // Messages inside a broken line prove nothing: every format has some, and so has a broken document.
    let accept = Accept { line: |_| true, part: openclaw::recognises };
    lines::read(content, &accept, |record| {
        if openclaw::recognises(&record.json) {
            shape = Some(Shape::OpenClawLines);
        } else if openai::recognises_line(&record.json) {
            shape = Some(Shape::ChatLines);
        }
        looked_at += 1;
        if shape.is_some() || looked_at >= LINES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    shape
}

/// The parser's words without the position, which stands beside them.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// Characters of an unknown file that an error shows: enough to know it by, short enough for one line.
const SHOWN: usize = 60;

/// What an unknown JSON document is: its members, escaped.
fn members(json: &Value) -> String {
    let (what, json) = match json {
        Value::Array(items) => ("a JSON list of ", items.first().unwrap_or(&Value::Null)),
        json => ("", json),
    };
    let Value::Object(map) = json else { return format!("{what}JSON, but no object") };
    let short = |key: &String| key.chars().take(SHOWN).collect::<String>().escape_debug().to_string();
    let keys: Vec<String> = map.keys().take(8).map(short).collect();
    let more = if map.len() > keys.len() { ", …" } else { "" };
    format!("{what}a JSON object with the members {}{more}", keys.join(", "))
}

/// How an unknown file that is no JSON begins, escaped.
fn start(content: &[u8]) -> String {
    let more = if content.len() > SHOWN { "…" } else { "" };
    let start = content.get(..SHOWN).unwrap_or(content);
    match String::from_utf8_lossy(start) {
        text if text.contains(|c: char| c.is_control() && !c.is_whitespace()) => {
            format!("bytes that begin with `{}`{more}", start.escape_ascii())
        }
        text => format!("text that begins with `{}`{more}", text.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use crate::load_bytes;

    fn error(content: &[u8]) -> String {
        load_bytes("x.jsonl", content).expect_err("no transcript").to_string()
    }

    #[test]
    fn an_unknown_file_is_described() {
        for (content, found) in [
            ("{\"type\":\"user\",\"uuid\":\"u\"}\n", "found a JSON object with the members type, uuid;"),
            (
                "{\n \"history\": [\n{\"role\":\"user\",\"content\":\"a\"}\n]}",
                "found a JSON object with the members history;",
            ),
            ("[{\"from\":\"human\"}]", "found a JSON list of a JSON object with the members from;"),
            ("col\tumn\n", "found text that begins with `col\\tumn`;"),
            ("\0\0\0", "found bytes that begin with `\\x00\\x00\\x00`;"),
            ("[1]", "found a JSON list of JSON, but no object;"),
        ] {
            let error = error(content.as_bytes());
            assert!(error.starts_with("x.jsonl: detecting the format: expected an OpenClaw"), "{error}");
            assert!(error.contains(found), "{error}");
        }
        assert!(error(b"\xff\xfe{\0").contains(r"found bytes that begin with `\xff\xfe{\x00`"), "UTF-16");
    }

    #[test]
    fn an_empty_file_and_a_cut_document_say_so() {
        assert!(error(b" \r\n ").starts_with("x.jsonl: expected a transcript, found an empty file;"));
        let cut = error(b"[{\"role\":\"user\",\n\"content\":\"a\"},\n{\"role\":\"us");
        assert!(
            cut.contains("found EOF while parsing a string at line 3, column 11; the file is damaged or cut off"),
            "{cut}"
        );
    }
}
