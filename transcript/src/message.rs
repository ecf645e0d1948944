//! One message of a session: its JSON in OpenClaw's shape, and an index of it.
//!
//! Decision: the message's own JSON is the truth and travels along whole, so a field this model has no place for is
//! never lost; the typed fields beside it are an index, made once. A change makes a new message from changed JSON.
//!
//! Invariant: `blocks[i].raw` is a range of `json`, and `json` is one JSON object.

use std::ops::Range;

use context_engine_interface::{BlockFlags, BlockKind, MessageFlags, Role};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::time::parse_iso_ms;
use crate::{TranscriptError, content};

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What the block is; decides which fields below mean something.
    pub kind: BlockKind,
    /// Facts about it.
    pub flags: BlockFlags,
    /// Tool-call id; empty for other kinds.
    pub id: String,
    /// Tool name, or MIME type of an image.
    pub name: String,
    /// Text, reasoning, or a tool call's arguments as JSON; empty for images and for a call without arguments.
    pub text: String,
    /// Where the block's own JSON stands in [`Message::json`].
    pub raw: Range<usize>,
}

/// One message of a session, immutable once made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Transcript entry id, unique within the session, never empty.
    pub id: String,
    /// Who speaks.
    pub role: Role,
    /// Facts about it.
    pub flags: MessageFlags,
    /// Milliseconds since the Unix epoch; 0 when the source recorded none.
    pub timestamp_ms: i64,
    /// Cost in a prompt, as it is sent, in tokens; 0 until [`crate::tokens::TokenCounter`] has counted it.
    pub tokens: u64,
    /// For a tool result: the id of the call it answers.
    pub tool_call_id: String,
    /// For a tool result: the tool's name.
    pub tool_name: String,
    /// The parts, in order.
    pub blocks: Vec<Block>,
    /// The message as one JSON object in OpenClaw's shape.
    pub json: String,
}

impl Message {
    /// Indexes a message in OpenClaw's shape. Members of another shape are settled first, in the JSON too: see
    /// [`crate::content`].
    ///
    /// # Errors
    /// [`TranscriptError::Message`] when `message` has no `role`.
    pub fn from_map(id: impl Into<String>, mut message: Map<String, Value>) -> Result<Message, TranscriptError> {
        let id = id.into();
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(TranscriptError::Message { id, expected: "a `role` string" });
        }
        content::settle(&mut message);
        let json = Value::Object(message).to_string();
        Message::index(id, json)
    }

    /// The same message with changed JSON; `id` and flags set by the host are kept, the token count is not.
    ///
    /// # Errors
    /// As [`Message::from_map`].
    pub fn with_map(&self, message: Map<String, Value>) -> Result<Message, TranscriptError> {
        let mut changed = Message::from_map(self.id.clone(), message)?;
        changed.flags = changed.flags.with(self.flags);
        Ok(changed)
    }

    /// The message's JSON as a map, to change and hand to [`Message::with_map`]. `None` when it cannot be read, which
    /// no message of [`Message::from_map`] is; who gets it leaves the message as it is.
    pub fn to_map(&self) -> Option<Map<String, Value>> {
        match serde_json::from_str(&self.json) {
            Ok(Value::Object(map)) => Some(map),
            _ => None,
        }
    }

    /// The message's JSON as a value: an object, or its text where it cannot be read.
    pub fn to_value(&self) -> Value {
        self.to_map().map_or_else(|| Value::String(self.json.clone()), Value::Object)
    }

    /// The block's own JSON.
    #[inline]
    pub fn raw(&self, block: &Block) -> &str {
        self.json.get(block.raw.clone()).unwrap_or("")
    }

    /// The tool calls of the message, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|b| b.kind == BlockKind::TOOL_CALL)
    }

    /// All text blocks, joined by a newline.
    pub fn text(&self) -> String {
        let texts: Vec<&str> =
            self.blocks.iter().filter(|b| b.kind == BlockKind::TEXT).map(|b| b.text.as_str()).collect();
        texts.join("\n")
    }

    fn index(id: String, json: String) -> Result<Message, TranscriptError> {
        let unreadable = TranscriptError::Message { id: id.clone(), expected: "a JSON object with `content` blocks" };
        let Ok(head) = serde_json::from_str::<Head<'_>>(&json) else { return Err(unreadable) };
        let mut flags = MessageFlags::default();
        let mut set = |on: bool, flag| {
            if on {
                flags = flags.with(flag);
            }
        };
        set(head.is_error, MessageFlags::TOOL_ERROR);
        set(head.exclude_from_context, MessageFlags::EXCLUDED);
        set(head.stop_reason.as_deref() == Some("error"), MessageFlags::ERRORED);
        set(head.stop_reason.as_deref() == Some("aborted"), MessageFlags::ABORTED);
        set(head.is_heartbeat, MessageFlags::HEARTBEAT);
        let blocks = match head.content {
            Some(content) => index_blocks(content.get(), &json),
            None => Vec::new(),
        };
        Ok(Message {
            id,
            role: Role::from_name(&head.role),
            flags,
            timestamp_ms: match &head.timestamp {
                Some(Value::String(iso)) => parse_iso_ms(iso).unwrap_or(0),
                Some(Value::Number(ms)) => ms.as_f64().map_or(0, |ms| ms as i64),
                _ => 0,
            },
            tokens: 0,
            tool_call_id: head.tool_call_id.unwrap_or_default(),
            tool_name: head.tool_name.unwrap_or_default(),
            blocks,
            json,
        })
    }
}

/// The members of a message that the index is made from; everything else stays in the JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    role: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    tool_call_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tool_name: Option<String>,
    #[serde(default, deserialize_with = "truthy")]
    is_error: bool,
    #[serde(default, deserialize_with = "truthy")]
    is_heartbeat: bool,
    #[serde(default, deserialize_with = "truthy")]
    exclude_from_context: bool,
    #[serde(default, deserialize_with = "lenient")]
    stop_reason: Option<String>,
    #[serde(default)]
    timestamp: Option<Value>,
}

/// A string, or nothing for any other JSON: a wrong type in a recorded field must not cost the message.
fn lenient<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

/// `true`, or false for any other JSON.
fn truthy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(from)? == Value::Bool(true))
}

fn index_blocks(content: &str, json: &str) -> Vec<Block> {
    let Ok(raws) = serde_json::from_str::<Vec<&RawValue>>(content) else { return Vec::new() };
    raws.into_iter().map(|raw| index_block(raw.get(), json)).collect()
}

fn index_block(raw: &str, json: &str) -> Block {
    // `raw` borrows from `json`: RawValue hands out the input's own bytes.
    let start = raw.as_ptr() as usize - json.as_ptr() as usize;
    let mut block = Block {
        kind: BlockKind::OTHER,
        flags: BlockFlags::default(),
        id: String::new(),
        name: String::new(),
        text: String::new(),
        raw: start..start + raw.len(),
    };
    // A list would pass for the members in their order.
    let object = Some(raw).filter(|raw| raw.starts_with('{'));
    let Some(part) = object.and_then(|raw| serde_json::from_str::<Part<'_>>(raw).ok()) else { return block };
    match text(part.kind).as_str() {
        "text" => {
            block.kind = BlockKind::TEXT;
            block.text = text(part.text);
        }
        "thinking" => {
            block.kind = BlockKind::THINKING;
            block.text = text(part.thinking);
            if !text(part.thinking_signature).is_empty() {
                block.flags = BlockFlags::SIGNED;
            }
        }
        "toolCall" => {
            block.kind = BlockKind::TOOL_CALL;
            block.id = text(part.id);
            block.name = text(part.name);
            block.text = part.arguments.map_or("", RawValue::get).to_owned();
        }
        // One that shows nothing cannot be sent as a picture.
        "image" if holds_text(part.data) || holds_text(part.url) => {
            block.kind = BlockKind::IMAGE;
            block.name = text(part.mime_type);
        }
        _ => {}
    }
    block
}

/// The members of a block that the index is made from. Raw, so that a picture's data is passed over, not copied.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking_signature: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    mime_type: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

/// What is there, `null` included: a call with `null` for arguments cannot be sent, one with `{}` can.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// A string, or an empty one for any other JSON.
fn text(member: Option<&RawValue>) -> String {
    member.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Whether the member is a string with something in it, without reading it.
fn holds_text(member: Option<&RawValue>) -> bool {
    member.is_some_and(|raw| raw.get().starts_with('"') && raw.get().len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> Message {
        let Ok(Value::Object(map)) = serde_json::from_str(json) else { panic!("not an object: {json}") };
        Message::from_map("e1", map).expect("a message")
    }

    #[test]
    fn blocks_point_at_their_own_json() {
        let m = message(
            r#"{"role":"assistant","content":[{"type":"text","text":"a\"b","x":1},
                {"type":"toolCall","id":"c1","name":"read","arguments":{"path":"p"}}],"odd":{"kept":true}}"#,
        );
        assert_eq!(m.raw(&m.blocks[0]), r#"{"type":"text","text":"a\"b","x":1}"#);
        assert_eq!(m.blocks[0].text, "a\"b");
        assert_eq!((m.blocks[1].id.as_str(), m.blocks[1].text.as_str()), ("c1", r#"{"path":"p"}"#));
        assert!(m.json.contains(r#""odd":{"kept":true}"#));
    }

    #[test]
    fn a_content_string_becomes_a_block() {
        let m = message(r#"{"role":"user","content":"hi"}"#);
        assert_eq!(m.json, r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#);
        assert_eq!(m.text(), "hi");
    }

    #[test]
    fn a_wrong_type_in_a_field_does_not_cost_the_message() {
        let m = message(r#"{"role":"toolResult","toolCallId":7,"isError":"yes","timestamp":"now","content":null}"#);
        assert_eq!(m.role, Role::TOOL_RESULT);
        assert_eq!((m.tool_call_id.as_str(), m.timestamp_ms), ("", 0));
        let m = message(
            r#"{"role":"user","content":[7,"a",["text",0,0,0,0,0,0,0],{"type":"text","text":null},{"text":"a"}]}"#,
        );
        assert_eq!(m.text(), "7\na\n[\"text\",0,0,0,0,0,0,0]\n\na");
    }

    #[test]
    fn what_is_nested_too_deep_made_the_message_unreadable() {
        for depth in [64, 65, 118] {
            let nested = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            let m = message(&format!(
                r#"{{"role":"assistant","content":[{{"type":"toolCall","id":"c","name":"f","arguments":{nested}}}],"details":{nested}}}"#
            ));
            let map = m.to_map().expect("a message that can be read again");
            let text = serde_json::to_string(&nested).expect("a string");
            if depth <= 64 {
                assert_eq!((m.blocks[0].text.as_str(), map["details"].is_object()), (nested.as_str(), true));
            } else {
                assert_eq!(
                    (m.blocks[0].text.as_str(), &map["details"]),
                    (&*format!(r#"{{"_raw":{text}}}"#), &nested.into())
                );
            }
        }
    }

    #[test]
    fn a_message_that_cannot_be_read_is_no_empty_one() {
        let mut m = message(r#"{"role":"user","content":"a"}"#);
        m.json.pop();
        assert_eq!((m.to_map(), m.to_value()), (None, Value::String(m.json.clone())));
    }

    #[test]
    fn content_that_is_one_block_and_a_date_that_is_text_are_indexed() {
        let m = message(r#"{"role":"user","content":{"type":"text","text":"a"},"timestamp":"2026-01-05T08:00:00Z"}"#);
        assert_eq!((m.text().as_str(), m.timestamp_ms), ("a", 1_767_600_000_000));
    }
}
