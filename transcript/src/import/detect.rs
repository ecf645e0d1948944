//! Tells a transcript's format from its content.
//!
//! Decision: never from the file's name. Sessions are stored under `.json`, `.jsonl`, `.txt` and names of their own, and
//! a wrong name must not make a good file unreadable. The first line that fits a format decides; a damaged first line
//! does not.

use std::ops::ControlFlow;

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
    let first_line = content.split(|&b| b == b'\n').next().unwrap_or_default();
    let is_one_record = first_line.len() == content.len();
    let first_is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(first_line.trim_ascii()).is_ok();
    let mut broken = None;
    if matches!(first, b'{' | b'[') && (is_one_record || !first_is_whole) {
        match document(content) {
            Ok(json) if openai::recognises_document(&json) => return Ok(Shape::ChatDocument(json)),
            Ok(_) => {}
            Err(error) => broken = Some(error),
        }
    }
    if let Some(shape) = by_lines(content) {
        return Ok(shape);
    }
    Err(match broken {
        Some(error) if !first_is_whole && !error.is_data() => TranscriptError::Json {
            name: name.to_owned(),
            expected: FORMATS,
            found: describe(&error),
            line: error.line(),
            column: error.column(),
        },
        _ => TranscriptError::UnknownFormat { name: name.to_owned(), expected: FORMATS, found: seen(content) },
    })
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
    let recognised = |json: &Value| openclaw::recognises(json) || openai::recognises_line(json);
    lines::read(content, &Accept { line: |_| true, part: recognised }, |record| {
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

/// What stands at the beginning of an unknown file: the members of its first JSON object, or its first bytes, escaped.
fn seen(content: &[u8]) -> String {
    /// Enough to know a file by, short enough for one line.
    const LEN: usize = 60;
    let first_line = content.split(|&b| b == b'\n').next().unwrap_or_default();
    if let Ok(Value::Object(map)) = serde_json::from_slice(first_line.trim_ascii()) {
        let keys: Vec<String> =
            map.keys().take(8).map(|k| k.chars().take(LEN).collect::<String>().escape_debug().to_string()).collect();
        let more = if map.len() > keys.len() { ", …" } else { "" };
        return format!("a JSON object with the members {}{more}", keys.join(", "));
    }
    let start = content.get(..LEN.min(content.len())).unwrap_or_default();
    let more = if content.len() > LEN { "…" } else { "" };
    format!("text that begins with `{}`{more}", start.escape_ascii())
}
