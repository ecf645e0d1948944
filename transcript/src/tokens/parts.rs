//! What each part of a message costs.
//!
//! Decision: a picture costs the same in every carrier, and base64 is never counted as text: a screenshot would
//! otherwise weigh as much as the whole window. What this version does not understand is counted by its JSON, so that
//! it is never free.

use context_engine_interface::{BlockKind, MessageFlags, Role};
use serde_json::{Map, Value};

use super::{
    BLOCK_OVERHEAD, CALL_OVERHEAD, EMPTY_RESULT, IMAGE_TOKENS, MESSAGE_OVERHEAD, RETOLD_OVERHEAD, TokenCounter,
};
use crate::{Block, Message};

/// A string of at least this many characters, all of the base64 alphabet, is taken for encoded data.
const BASE64_MIN: usize = 512;

/// What stands before the comma of a `data:` URL is shorter than this.
const LONGEST_TYPE: usize = 256;

pub(super) fn message(counter: &TokenCounter, message: &Message) -> u64 {
    if message.flags.contains(MessageFlags::EXCLUDED) {
        return 0;
    }
    let mut tokens = MESSAGE_OVERHEAD;
    if message.role == Role::TOOL_RESULT {
        tokens += CALL_OVERHEAD + counter.text(&message.tool_call_id);
        tokens += if message.blocks.is_empty() { EMPTY_RESULT } else { 0 };
    }
    let members = unindexed_text(message.role);
    if !members.is_empty() {
        tokens += RETOLD_OVERHEAD;
        let map = message.to_map().unwrap_or_default();
        let texts = members.iter().filter_map(|member| map.get(*member)?.as_str());
        tokens += texts.map(|text| counter.text(text)).sum::<u64>();
    }
    tokens + message.blocks.iter().map(|b| BLOCK_OVERHEAD + block(counter, message, b)).sum::<u64>()
}

/// Members with text of the roles that have no content blocks.
fn unindexed_text(role: Role) -> &'static [&'static str] {
    match role {
        Role::BASH_EXECUTION => &["command", "output"],
        Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => &["summary"],
        _ => &[],
    }
}

fn block(counter: &TokenCounter, message: &Message, block: &Block) -> u64 {
    match block.kind {
        BlockKind::TEXT | BlockKind::THINKING => counter.text(&block.text),
        BlockKind::TOOL_CALL => {
            let arguments = if block.text.is_empty() { "{}" } else { &block.text };
            CALL_OVERHEAD + counter.text(&block.id) + counter.text(&block.name) + counter.text(arguments)
        }
        BlockKind::IMAGE => IMAGE_TOKENS,
        _ => unknown(counter, message.raw(block)),
    }
}

/// A block of unknown type: its JSON as text, with pictures and encoded data taken out and counted flat.
fn unknown(counter: &TokenCounter, raw: &str) -> u64 {
    let Ok(mut value) = serde_json::from_str::<Value>(raw) else { return counter.text(raw) };
    if is_image(&value) {
        return IMAGE_TOKENS;
    }
    let mut taken_out = 0;
    take_out_data(&mut value, &mut taken_out);
    taken_out * IMAGE_TOKENS + counter.text(&value.to_string())
}

/// Recursion is bounded: the parser that made the value refuses more than 128 levels.
fn take_out_data(value: &mut Value, taken_out: &mut u64) {
    match value {
        Value::String(text) if is_data(text) => {
            *taken_out += 1;
            *value = Value::Null;
        }
        Value::Array(items) => items.iter_mut().for_each(|v| take_out_data(v, taken_out)),
        Value::Object(_) if is_image(value) => {
            *taken_out += 1;
            *value = Value::Null;
        }
        Value::Object(map) => map.values_mut().for_each(|v| take_out_data(v, taken_out)),
        _ => {}
    }
}

/// A picture in any provider's shape: `image`, `image_url`, `input_image`, or a base64 `source`.
fn is_image(value: &Value) -> bool {
    let Value::Object(map) = value else { return false };
    let text = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = text(map, "type").unwrap_or_default();
    match map.get("source") {
        _ if matches!(kind.as_str(), "image" | "image_url" | "input_image") => true,
        Some(Value::Object(source)) => {
            text(source, "type").as_deref() == Some("base64")
                && text(source, "media_type").is_none_or(|m| m.starts_with("image/"))
        }
        _ => {
            kind == "base64"
                && map.contains_key("data")
                && text(map, "media_type").is_none_or(|m| m.starts_with("image/"))
        }
    }
}

/// A `data:` URL, or a long string of nothing but base64.
fn is_data(text: &str) -> bool {
    let encoded = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n');
    let is_type = |head: &str| head.contains('/') || head.ends_with(";base64");
    let data_url = text
        .strip_prefix("data:")
        .and_then(|url| url.split_once(','))
        .is_some_and(|(head, _)| head.len() < LONGEST_TYPE && is_type(head) && !head.contains(char::is_whitespace));
    data_url || (text.len() >= BASE64_MIN && text.bytes().all(encoded))
}
