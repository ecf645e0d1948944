//! One chat message into OpenClaw's shape.
//!
//! Members that have no place there stay beside the others, under their own names.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::import::shape::{arguments_object, blocks, thinking_part};

/// The tool calls of a dialogue so far, for what results leave out.
#[derive(Default)]
pub(super) struct Calls {
    names: HashMap<String, String>,
    /// Made-up id of the last call of the time before calls had ids.
    function_call: Option<String>,
}

pub(super) fn is_system(message: &Map<String, Value>) -> bool {
    matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"))
}

/// The text of a message's content, whether a string or parts.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|p| p.get("text").unwrap_or(p).as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// The message in OpenClaw's shape. A legacy `function_call` gets an id made of `position`.
pub(super) fn convert(mut message: Map<String, Value>, position: u64, calls: &mut Calls) -> Map<String, Value> {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut made = Map::new();
    match role.as_str() {
        "assistant" => {
            // Models that only call tools answer with an empty string.
            let mut blocks = blocks(message.shift_remove("content").filter(|c| c != ""));
            if let Some(Value::Array(thinking)) = message.get_mut("thinking_blocks").map(Value::take) {
                message.shift_remove("thinking_blocks");
                let objects = thinking.into_iter().filter_map(|block| match block {
                    Value::Object(map) => Some(thinking_part(map)),
                    _ => None,
                });
                blocks.splice(0..0, objects);
            }
            if message.get("tool_calls").is_some_and(|calls| calls.is_array() || calls.is_object()) {
                let tool_calls = match message.shift_remove("tool_calls") {
                    Some(Value::Array(calls)) => calls,
                    other => other.into_iter().collect(),
                };
                blocks.extend(tool_calls.into_iter().map(|call| tool_call(call, calls)));
            }
            if message.get("function_call").is_some_and(Value::is_object)
                && let Some(function) = message.shift_remove("function_call")
            {
                let id = format!("call_{position:06}");
                calls.function_call = Some(id.clone());
                blocks.push(tool_call(json!({ "id": id, "function": function }), calls));
            }
            // A refusal is what the model said, where it said nothing else.
            let refusal = message.get("refusal").and_then(Value::as_str).filter(|refusal| !refusal.is_empty());
            if blocks.is_empty() {
                blocks.extend(refusal.map(Value::from));
            }
            made.insert("role".to_owned(), "assistant".into());
            made.insert("content".to_owned(), blocks.into());
        }
        "tool" | "function" => {
            let id = match message.shift_remove("tool_call_id") {
                Some(Value::String(id)) => id,
                _ => calls.function_call.clone().unwrap_or_default(),
            };
            let name = match message.shift_remove("name") {
                Some(Value::String(name)) => name,
                _ => calls.names.get(&id).cloned().unwrap_or_default(),
            };
            made.insert("role".to_owned(), "toolResult".into());
            made.insert("toolCallId".to_owned(), id.into());
            made.insert("toolName".to_owned(), name.into());
            made.insert("content".to_owned(), blocks(message.shift_remove("content")).into());
            made.insert("isError".to_owned(), false.into());
        }
        "user" => {
            made.insert("role".to_owned(), "user".into());
            made.insert("content".to_owned(), blocks(message.shift_remove("content")).into());
        }
        // Already in OpenClaw's shape.
        _ => return message,
    }
    message.shift_remove("role");
    for (key, value) in message {
        made.entry(key).or_insert(value);
    }
    made
}

fn tool_call(call: Value, calls: &mut Calls) -> Value {
    let Value::Object(mut call) = call else { return call };
    // `custom` calls carry free text under `input`.
    let function = ["function", "custom"].iter().find_map(|key| match call.shift_remove(*key) {
        Some(Value::Object(function)) => Some(function),
        _ => None,
    });
    let Some(mut function) = function else { return Value::Object(call) };
    let text = |value: Option<Value>| match value {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (id, name) = (text(call.shift_remove("id")), text(function.shift_remove("name")));
    let arguments = function.shift_remove("arguments").or_else(|| function.shift_remove("input"));
    calls.names.insert(id.clone(), name.clone());
    let mut made = Map::new();
    made.insert("type".to_owned(), "toolCall".into());
    made.insert("id".to_owned(), id.into());
    made.insert("name".to_owned(), name.into());
    made.insert("arguments".to_owned(), arguments_object(arguments));
    for (key, value) in function.into_iter().chain(call) {
        made.entry(key).or_insert(value);
    }
    Value::Object(made)
}
