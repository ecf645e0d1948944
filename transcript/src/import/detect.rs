//! Tells a transcript's format from its content.
//!
//! Decision: never from the file's name. Sessions are stored under `.json`, `.jsonl`, `.txt` and names of their own, and
//! a wrong name must not make a good file unreadable. The first line that fits a format decides; a damaged first line
//! does not.

use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::lines::{self, Accept};
use super::{claude, codex, cut, gemini, openai, openclaw, openhands, sharegpt, swe};
use crate::{Format, TranscriptError};

/// What an error says was looked for.
pub(super) const FORMATS: &str = "one of these sessions: OpenClaw or pi (JSON lines of type `session` and `message`), \
     Claude Code (lines of type `user` and `assistant` with a `message`), Codex (`session_meta`, `response_item`), \
     Gemini CLI (`messages` of type `user` and `gemini`, or `parts`), SWE-agent (`history`, `trajectory`), \
     mini-swe-agent (`messages`, `info`), OpenHands (events with `kind`, or `action` and `observation`), OpenAI chat \
     messages (`role`, `content`), ShareGPT (`conversations`), ChatML text (`<|im_start|>`)";

/// Lines looked at before giving up: a session may begin with many entries that are no messages.
const LINES: usize = 1_000;

/// A family of formats, one importer each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    OpenClaw,
    Claude,
    Codex,
    Gemini,
    OpenHands,
    Swe,
    ShareGpt,
    Chat,
}

/// What the content is.
pub(super) enum Shape {
    /// Records, one per line.
    Lines(Family),
    /// One JSON document, and the line it is cut in when it is.
    Document(Family, Value, Option<usize>),
    /// Text with ChatML's marks.
    ChatMl(String),
}

type Recognises = fn(&Value) -> bool;

/// Asked in this order, for what several could read: a chat message may be an item of another format.
const BY_LINE: [(Family, Recognises); 8] = [
    (Family::OpenClaw, openclaw::recognises),
    (Family::Claude, claude::recognises),
    (Family::Codex, codex::recognises_line),
    (Family::OpenHands, openhands::recognises_line),
    (Family::Gemini, gemini::recognises_line),
    (Family::Swe, swe::recognises),
    (Family::ShareGpt, sharegpt::recognises_line),
    (Family::Chat, openai::recognises_line),
];
const BY_DOCUMENT: [(Family, Recognises); 6] = [
    (Family::OpenHands, openhands::recognises_document),
    (Family::Gemini, gemini::recognises_document),
    (Family::Codex, codex::recognises_document),
    (Family::Swe, swe::recognises),
    (Family::ShareGpt, sharegpt::recognises_document),
    (Family::Chat, openai::recognises_document),
];

fn family(asked: &[(Family, Recognises)], json: &Value) -> Option<Family> {
    asked.iter().find(|(_, recognises)| recognises(json)).map(|(family, _)| *family)
}

pub(super) fn shape(name: &str, bytes: &[u8]) -> Result<Shape, TranscriptError> {
    let content = bytes.trim_ascii();
    let Some(first) = content.first() else { return Err(TranscriptError::Empty { name: name.to_owned() }) };
    let unknown = |found| Err(TranscriptError::UnknownFormat { name: name.to_owned(), expected: FORMATS, found });
    if *first == b'<' {
        let text = String::from_utf8_lossy(content);
        if sharegpt::is_chatml(&text) {
            return Ok(Shape::ChatMl(text.into_owned()));
        }
    }
    let first_line = content.split(|&b| b == b'\n').next().unwrap_or_default();
    let is_one_line = first_line.len() == content.len();
    let first_is_whole = serde_json::from_slice::<IgnoredAny>(first_line.trim_ascii()).is_ok();
    let mut broken = None;
    if matches!(first, b'{' | b'[') && (is_one_line || !first_is_whole) {
        match document(content) {
            Ok(json) => match family(&BY_DOCUMENT, &json) {
                // One line may be a session of one entry, and some formats' documents look like it.
                Some(family)
                    if !is_one_line || self::family(&BY_LINE, &json).is_none_or(|of_line| of_line == family) =>
                {
                    return Ok(Shape::Document(family, json, None));
                }
                // A document of many lines is no lines of JSON.
                None if !is_one_line => return unknown(members(&json)),
                _ => {}
            },
            Err(error) => {
                if let Some((family, json)) = whole_part(content, &error) {
                    return Ok(Shape::Document(family, json, Some(error.line())));
                }
                broken = Some(error);
            }
        }
    }
    match (by_lines(content), broken) {
        (Some(family), _) => Ok(Shape::Lines(family)),
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

/// Whether a line shows the file to be a session file of OpenClaw's, or of another format; `None` when it shows nothing.
pub(crate) fn is_of_session_file(json: &Value) -> Option<bool> {
    family(&BY_LINE, json).map(|family| family == Family::OpenClaw)
}

/// What a file is that is no session file, by its beginning.
pub(crate) fn describe_other(start: &[u8]) -> String {
    let format = match shape("", start) {
        Ok(Shape::ChatMl(_)) => Format::ChatMl,
        Ok(Shape::Lines(family) | Shape::Document(family, ..)) => match family {
            // No line showed it, so this is what is left of one.
            Family::OpenClaw => return "a session file without a whole record".to_owned(),
            Family::Claude => Format::ClaudeCode,
            Family::Codex => Format::Codex,
            Family::Gemini => Format::GeminiCli,
            Family::OpenHands => Format::OpenHands,
            Family::Swe => Format::SweAgent,
            Family::ShareGpt => Format::ShareGpt,
            Family::Chat => Format::Chat,
        },
        Err(TranscriptError::UnknownFormat { found, .. }) => return found,
        Err(TranscriptError::Empty { .. }) => return "an empty file".to_owned(),
        Err(TranscriptError::Json { found, line, .. }) => {
            return format!("a damaged JSON document ({found}, line {line})");
        }
        Err(error) => return error.to_string(),
    };
    format!("{format}; `context-engine sessions import` makes a session file of it")
}

fn document(content: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(content).or_else(|error| {
        let Ok(text) = std::str::from_utf8(content) else { return Err(error) };
        let paired = lines::without_half_surrogates(text);
        let numbers = lines::without_no_numbers(paired.as_deref().unwrap_or(text));
        numbers.or(paired).map_or(Err(error), |text| serde_json::from_str(&text))
    })
}

/// What of a document that ends too early is whole.
fn whole_part(content: &[u8], error: &serde_json::Error) -> Option<(Family, Value)> {
    // The cut may be inside a character.
    let text = String::from_utf8_lossy(content);
    if !error.is_eof() && !text.ends_with(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    let json = document(cut::closed(&text)?.as_bytes()).ok()?;
    Some((family(&BY_DOCUMENT, &json)?, json))
}

fn by_lines(content: &[u8]) -> Option<Family> {
    let mut found = None;
    let mut looked_at = 0;
    // Messages inside a broken line prove nothing: every format has some, and so has a broken document.
    let is_part = |json: &Value| openclaw::recognises(json) || claude::is_part(json) || codex::is_part(json);
    lines::read(content, &Accept { line: |_| true, part: is_part }, |record| {
        found = family(&BY_LINE, &record.json);
        looked_at += 1;
        if found.is_some() || looked_at >= LINES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
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
            ("{\n \"rows\": [\n{\"a\":\"b\"}\n]}", "found a JSON object with the members rows;"),
            ("[{\"from\":\"human\"}]", "found a JSON list of a JSON object with the members from;"),
            ("col\tumn\n", "found text that begins with `col\\tumn`;"),
            ("\0\0\0", "found bytes that begin with `\\x00\\x00\\x00`;"),
            ("[1]", "found a JSON list of JSON, but no object;"),
        ] {
            let error = error(content.as_bytes());
            assert!(
                error.starts_with("x.jsonl: detecting the format: expected one of these sessions: OpenClaw or pi"),
                "{error}"
            );
            assert!(error.contains(found), "{error}");
        }
        assert!(error(b"\xff\xfe{\0").contains(r"found bytes that begin with `\xff\xfe{\x00`"), "UTF-16");
    }

    #[test]
    fn a_document_that_is_cut_gives_its_whole_messages() {
        let text = "[{\"role\":\"user\",\n\"content\":\"a\"},\n{\"role\":\"us";
        let imported = load_bytes("x.json", text.as_bytes()).expect("one message");
        assert_eq!((imported.sessions[0].counts.total_messages(), imported.lost), (1, 1));
        assert_eq!(
            imported.warnings[0].to_string(),
            "the JSON document is cut off in line 3: whole messages before it were used, 1 lost"
        );
    }

    #[test]
    fn an_empty_file_and_a_cut_document_say_so() {
        assert!(error(b" \r\n ").starts_with("x.jsonl: expected a transcript, found an empty file;"));
        let cut = error(b"[{\"role\":\"user\",\n\"content\":\"a");
        assert!(
            cut.contains("found EOF while parsing a string at line 2, column 12; the file is damaged or cut off"),
            "{cut}"
        );
    }
}
