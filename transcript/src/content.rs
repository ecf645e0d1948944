//! What a message's members may look like: the shapes that come in are settled here, once, before a message is made.
//!
//! Decision: at the door and not where a message is used, so that everything behind it (index, counts, engines, prompts)
//! sees one shape. Nothing is thrown away but `null`: what has another shape is kept as text.

use serde_json::{Map, Value};

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

/// Brings a message's members into the shape the model of a message has: `content` is a list of objects (or `null`), and
/// no member is nested deeper than [`MAX_DEPTH`].
pub(crate) fn settle(message: &mut Map<String, Value>) {
    for (key, value) in message.iter_mut() {
        if key != "content" {
            flatten(value);
        }
    }
    if let Some(content) = message.get_mut("content") {
        *content = match content.take() {
            Value::String(text) => Value::Array(vec![text_block(text)]),
            Value::Array(blocks) => Value::Array(blocks.into_iter().map(block).collect()),
            Value::Null => Value::Null,
            one => Value::Array(vec![block(one)]),
        };
    }
}

fn block(block: Value) -> Value {
    let Value::Object(mut map) = block else { return block };
    for (key, value) in map.iter_mut() {
        if !is_shallow(value) && key == "arguments" {
            *value = Value::Object(Map::from_iter([(RAW_ARGUMENTS.to_owned(), Value::String(value.to_string()))]));
        }
        flatten(value);
    }
    Value::Object(map)
}

/// What is nested too deep becomes the text of its JSON.
fn flatten(value: &mut Value) {
    if !is_shallow(value) {
        *value = Value::String(value.to_string());
    }
}

fn text_block(text: String) -> Value {
    serde_json::json!({ "type": "text", "text": text })
}
