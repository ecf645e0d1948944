//! Rebuilding a message from parts, each part's JSON byte for byte.
//!
//! Decision: content is spliced, not parsed and written again. A round trip through `serde_json::Value` changes big
//! numbers in tool arguments and anything a signature covers; a splice changes nothing it does not touch.

use std::borrow::Cow;

use context_engine_interface::MessageFlags;
use context_engine_transcript::{Block, Message};
use serde_json::{Map, Value};

/// A block on its way into another message: its index and its JSON.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    block: Cow<'a, Block>,
    json: Cow<'a, str>,
}

impl<'a> Part<'a> {
    /// The block as it stands in `message`.
    pub(crate) fn of(message: &'a Message, block: &'a Block) -> Part<'a> {
        Part { block: Cow::Borrowed(block), json: Cow::Borrowed(message.raw(block)) }
    }

    /// All blocks of `message`, as they stand.
    pub(crate) fn all(message: &'a Message) -> impl Iterator<Item = Part<'a>> {
        message.blocks.iter().map(|block| Part::of(message, block))
    }

    /// A block made from changed JSON; `None` when a message cannot hold it.
    pub(crate) fn changed(block: Map<String, Value>) -> Option<Part<'static>> {
        let mut holder = Map::new();
        holder.insert("role".into(), "user".into());
        holder.insert("content".into(), Value::Array(vec![Value::Object(block)]));
        let holder = Message::from_map("part", holder).ok()?;
        let block = holder.blocks.first()?.clone();
        let json = holder.raw(&block).to_owned();
        Some(Part { block: Cow::Owned(block), json: Cow::Owned(json) })
    }

    /// A text block.
    pub(crate) fn text(text: &str) -> Option<Part<'static>> {
        let mut block = Map::new();
        block.insert("type".into(), "text".into());
        block.insert("text".into(), text.into());
        Part::changed(block)
    }

    /// The block's JSON as a map, to change and hand to [`Part::changed`]; `None` when it is no object.
    pub(crate) fn to_map(&self) -> Option<Map<String, Value>> {
        match serde_json::from_str(&self.json) {
            Ok(Value::Object(map)) => Some(map),
            _ => None,
        }
    }

    /// Whether both stand for the same JSON.
    pub(crate) fn same(&self, other: &Part<'_>) -> bool {
        self.json == other.json
    }
}

/// A message of `fields` (its JSON without `content`) and `parts`. Facts that stand in the JSON are read from it;
/// nothing is inherited from the messages the parts come from. `None` when `fields` has no role.
pub(crate) fn build(id: &str, mut fields: Map<String, Value>, parts: &[Part<'_>]) -> Option<Message> {
    fields.remove("content");
    let mut message = Message::from_map(id, fields).ok()?;
    message.json.pop();
    message.json.reserve(parts.iter().map(|part| part.json.len() + 1).sum::<usize>() + 16);
    message.json.push_str(",\"content\":[");
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            message.json.push(',');
        }
        let start = message.json.len();
        message.json.push_str(&part.json);
        let mut block = Block::clone(&part.block);
        block.raw = start..message.json.len();
        message.blocks.push(block);
    }
    message.json.push_str("]}");
    Some(message)
}

/// The same message with other parts; id, date, fields and what the host noted about it stay, the token count does not. `None`
/// when its JSON cannot be read.
pub(crate) fn with_parts(message: &Message, parts: &[Part<'_>]) -> Option<Message> {
    with_fields(message, message.to_map()?, parts)
}

/// The same message with other fields and parts; id, date and what the host noted about it stay, the token count does not.
pub(crate) fn with_fields(message: &Message, fields: Map<String, Value>, parts: &[Part<'_>]) -> Option<Message> {
    let mut changed = build(&message.id, fields, parts)?;
    changed.flags = changed.flags.with(message.flags);
    if changed.timestamp_ms == 0 {
        // Dated by its entry, not by its JSON.
        changed.timestamp_ms = message.timestamp_ms;
    }
    Some(changed)
}

/// Facts that hold for a message made of several only when they hold for each of them.
pub(crate) fn shared_flags(messages: &[std::sync::Arc<Message>]) -> MessageFlags {
    let both = |flag: MessageFlags| messages.iter().all(|m| m.flags.contains(flag));
    [MessageFlags::HEARTBEAT, MessageFlags::SYNTHETIC]
        .into_iter()
        .filter(|flag| both(*flag))
        .fold(MessageFlags::default(), MessageFlags::with)
}
