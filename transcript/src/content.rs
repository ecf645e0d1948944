//! What a message may hold: the shapes that come in are settled here, once, before a message is made, and what a block
//! is sent as when a model cannot be sent the block itself.
//!
//! Decision: shapes are settled at the door and not where a message is used, so that everything behind it (index, counts,
//! engines, prompts) sees one. Nothing is thrown away but `null`: what has another shape is kept as text.
//!
//! Decision: a model is sent text, pictures, and, as an assistant's, thinking and tool calls. Any other block, and a tool
//! call in a message that is no assistant's, is sent as the text of its JSON ([`retold`]); counts, fits and prompts ask
//! the same function, so what is counted is what is sent. Encoded data in it is left out: no model reads base64.

use std::borrow::Cow;

use context_engine_interface::{BlockKind, Role};
use serde_json::{Map, Value, json};

use crate::pictures;

/// How deep a member of a message or of a block may be nested. A parser gives up at 128 levels, and a message stands
/// inside a prompt, a transcript entry or an answer of an engine when it is read again; nothing an agent records comes
/// near this.
pub const MAX_DEPTH: usize = 64;

/// The name under which tool arguments that are no object, or nested too deep, are kept as text.
pub const RAW_ARGUMENTS: &str = "_raw";

/// Whether the value is nested at most [`MAX_DEPTH`] deep.
pub fn is_shallow(value: &Value) -> bool {
    within(value, MAX_DEPTH)
}

fn within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| within(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| within(item, depth - 1)),
        _ => true,
    }
}

/// Brings a message's members into the shape the model of a message has: `content` is a list of objects (or `null`),
/// pictures are image blocks, and no member is nested deeper than [`MAX_DEPTH`].
pub(crate) fn settle(message: &mut Map<String, Value>) {
    for (key, value) in message.iter_mut() {
        if key != "content" {
            flatten(value);
        }
    }
    if let Some(content) = message.get_mut("content") {
        *content = match content.take() {
            Value::Null => Value::Null,
            Value::Array(blocks) => blocks.into_iter().filter_map(block).collect(),
            one => block(one).into_iter().collect(),
        };
    }
}

/// How many parts of the content hold nothing at all, and are left out by [`settle`].
pub(crate) fn empty_parts(message: &Map<String, Value>) -> usize {
    let parts = message.get("content").and_then(Value::as_array);
    parts.map_or(0, |parts| parts.iter().filter(|part| part.is_null()).count())
}

fn block(part: Value) -> Option<Value> {
    let map = match part {
        Value::Null => return None,
        Value::String(text) => return Some(text_block(text)),
        Value::Object(map) => map,
        bare => return Some(text_block(bare.to_string())),
    };
    let mut map = pictures::settle(map);
    match map.get("type").and_then(Value::as_str) {
        Some("text") => settle_text(&mut map),
        Some("input_text" | "output_text") => {
            map.insert("type".to_owned(), "text".into());
            settle_text(&mut map);
        }
        None if map.get("text").is_some_and(Value::is_string) => _ = map.insert("type".to_owned(), "text".into()),
        _ => {}
    }
    for (key, value) in map.iter_mut() {
        if key == "arguments" && !is_shallow(value) {
            *value = json!({ RAW_ARGUMENTS: value.to_string() });
        }
        flatten(value);
    }
    Some(Value::Object(map))
}

/// Some hosts put an object around the text (`value`, with annotations beside it), or a number in its place.
fn settle_text(block: &mut Map<String, Value>) {
    let Some(text) = block.get_mut("text") else { return };
    match text {
        Value::String(_) | Value::Null => {}
        other => {
            let value = other.get_mut("value").filter(|value| value.is_string()).map(Value::take);
            *other = value.unwrap_or_else(|| Value::String(other.to_string()));
        }
    }
}

/// What is nested too deep becomes the text of its JSON.
fn flatten(value: &mut Value) {
    if !is_shallow(value) {
        *value = Value::String(value.to_string());
    }
}

fn text_block(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

/// A string of at least this many base64 characters is taken for encoded data where its name says so.
const NAMED_DATA: usize = 64;
/// And whatever its name, where it is at least this long, of small and capital letters and digits, and unbroken.
const UNBROKEN_DATA: usize = 512;
/// Names of members that hold encoded data.
const DATA_NAMES: [&str; 7] = ["data", "bytes", "base64", "b64_json", "file_data", "fileData", "blob"];
/// What stands before the comma of a `data:` URL is shorter than this.
const LONGEST_TYPE: usize = 256;

/// The text that a block is sent as; `None` for one that is sent as the block it is.
pub fn retold(role: Role, kind: BlockKind, raw: &str) -> Option<Cow<'_, str>> {
    match kind {
        BlockKind::TEXT | BlockKind::IMAGE | BlockKind::THINKING => None,
        BlockKind::TOOL_CALL if role == Role::ASSISTANT => None,
        _ => Some(without_data(raw)),
    }
}

/// The JSON with a mark in the place of encoded data.
fn without_data(json: &str) -> Cow<'_, str> {
    if json.len() < NAMED_DATA {
        return Cow::Borrowed(json);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(json) else { return Cow::Borrowed(json) };
    if leave_out_data("", &mut value) { Cow::Owned(value.to_string()) } else { Cow::Borrowed(json) }
}

/// Whether there was any. Recursion is bounded: the parser that made the value refuses more than 128 levels.
fn leave_out_data(name: &str, value: &mut Value) -> bool {
    match value {
        Value::String(text) if is_data(name, text) => {
            *text = format!("[{} characters of data left out]", text.len());
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, item| leave_out_data(name, item) | any),
        Value::Object(map) => map.iter_mut().fold(false, |any, (name, item)| leave_out_data(name, item) | any),
        _ => false,
    }
}

/// A `data:` URL, or base64 by its name or by its length.
fn is_data(name: &str, text: &str) -> bool {
    if text.len() < NAMED_DATA {
        return false;
    }
    let is_type = |head: &str| head.contains('/') || head.ends_with(";base64");
    let is_url = text
        .strip_prefix("data:")
        .and_then(|url| url.split_once(','))
        .is_some_and(|(head, _)| head.len() < LONGEST_TYPE && is_type(head) && !head.contains(char::is_whitespace));
    let encoded = |broken: bool| {
        let line_end = |c: u8| broken && matches!(c, b'\r' | b'\n');
        text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'-' | b'_' | b'=') || line_end(c))
    };
    // A list of hashes or a row of letters is as long and is text.
    let mixed = || {
        let has = |of: fn(&u8) -> bool| text.as_bytes().iter().any(of);
        has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit)
    };
    is_url
        || (DATA_NAMES.contains(&name) && encoded(true))
        || (text.len() >= UNBROKEN_DATA && encoded(false) && mixed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content a message ends up with, and how many parts of it were empty.
    fn settled(content: &str) -> (String, usize) {
        let content: Value = serde_json::from_str(content).expect("JSON");
        let mut message = Map::from_iter([("role".to_owned(), "user".into()), ("content".to_owned(), content)]);
        let empty = empty_parts(&message);
        settle(&mut message);
        (message["content"].to_string(), empty)
    }

    #[test]
    fn parts_that_are_no_objects_were_sent_as_they_are() {
        for (given, expected, empty) in [
            (r#""hi""#, r#"[{"type":"text","text":"hi"}]"#, 0),
            ("7", r#"[{"type":"text","text":"7"}]"#, 0),
            ("null", "null", 0),
            (r#"["hello",7]"#, r#"[{"type":"text","text":"hello"},{"type":"text","text":"7"}]"#, 0),
            (r#"[null,true,[1,"a"]]"#, r#"[{"type":"text","text":"true"},{"type":"text","text":"[1,\"a\"]"}]"#, 1),
            (r#"{"type":"text","text":"a"}"#, r#"[{"type":"text","text":"a"}]"#, 0),
            (r#"[{"text":"a"}]"#, r#"[{"text":"a","type":"text"}]"#, 0),
            (r#"[{"type":"output_text","text":"a"}]"#, r#"[{"type":"text","text":"a"}]"#, 0),
            (r#"[{"type":"text","text":7}]"#, r#"[{"type":"text","text":"7"}]"#, 0),
            (r#"[{"type":"text","text":{"value":"a","annotations":[]}}]"#, r#"[{"type":"text","text":"a"}]"#, 0),
        ] {
            assert_eq!(settled(given), (expected.to_owned(), empty), "{given}");
        }
    }

    #[test]
    fn encoded_data_was_sent_as_text() {
        let base64 = "iVBORw0KGgoAAAAN".repeat(40);
        let hashes = format!("{}\\n", "3f1c99a0".repeat(5)).repeat(30);
        let words = "x".repeat(2_000);
        for (block, left_out) in [
            (format!(r#"{{"type":"media","uri":"data:video/mp4;base64,{base64}"}}"#), true),
            (format!(r#"{{"type":"input_audio","input_audio":{{"data":"{base64}","format":"wav"}}}}"#), true),
            (format!(r#"{{"type":"tool_result","content":"{base64}"}}"#), true),
            (format!(r#"{{"type":"tool_result","content":"{hashes}"}}"#), false),
            (format!(r#"{{"type":"tool_result","content":"{words}"}}"#), false),
            (
                r#"{"type":"audio","data":"AAAA","note":"data: one, two; and some more words to make it a long note"}"#
                    .into(),
                false,
            ),
        ] {
            let text = retold(Role::USER, BlockKind::OTHER, &block).expect("a text");
            assert_eq!(text.contains("characters of data left out]"), left_out, "{text}");
            assert!(if left_out { text.len() < 150 } else { text == block }, "{text}");
        }
    }
}
