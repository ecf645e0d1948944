//! One chat message into OpenClaw's shape.
//!
//! Members that have no place there stay beside the others, under their own names.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// The tool calls of a dialogue so far, for what results leave out.
#[derive(Default)]
pub(super) struct Calls {
    names: HashMap<String, String>,
    /// Made-up id of the last call of the time before calls had ids.
    function_call: Option<String>,
}

/// Where arguments that are no JSON object are kept.
const RAW_ARGUMENTS: &str = "_raw";

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
            if let Some(Value::Array(tool_calls)) = message.get_mut("tool_calls").map(Value::take) {
                message.shift_remove("tool_calls");
                blocks.extend(tool_calls.into_iter().map(|call| tool_call(call, calls)));
            }
            if let Some(Value::Object(function)) = message.get_mut("function_call").map(Value::take) {
                message.shift_remove("function_call");
                let id = format!("call_{position:06}");
                calls.function_call = Some(id.clone());
                blocks.push(tool_call(json!({ "id": id, "function": function }), calls));
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

fn blocks(content: Option<Value>) -> Vec<Value> {
    match content {
        Some(Value::Array(parts)) => parts.into_iter().map(part).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![part(other)],
    }
}

fn part(part: Value) -> Value {
    match part {
        Value::String(text) => json!({ "type": "text", "text": text }),
        Value::Object(mut map) => match map.get("type").and_then(Value::as_str) {
            Some("input_text" | "output_text") => {
                map.insert("type".to_owned(), "text".into());
                Value::Object(map)
            }
            Some("image_url" | "input_image") => image(map),
            _ => Value::Object(map),
        },
        other => other,
    }
}

/// `image_url` as an image block: with `data` and `mimeType` for a `data:` URL, with `url` for a link.
fn image(mut map: Map<String, Value>) -> Value {
    let (url, rest) = match map.shift_remove("image_url") {
        Some(Value::String(url)) => (url, Map::new()),
        Some(Value::Object(mut inner)) => match inner.shift_remove("url") {
            Some(Value::String(url)) => (url, inner),
            _ => (String::new(), inner),
        },
        _ => (String::new(), Map::new()),
    };
    let mut made = Map::from_iter([("type".to_owned(), "image".into())]);
    match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
        Some((mime, data)) => {
            made.insert("data".to_owned(), data.into());
            made.insert("mimeType".to_owned(), mime.into());
        }
        None => {
            made.insert("url".to_owned(), url.into());
        }
    }
    for (key, value) in rest.into_iter().chain(map) {
        made.entry(key).or_insert(value);
    }
    Value::Object(made)
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

fn arguments_object(arguments: Option<Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => json!({}),
        Some(Value::Object(map)) => Value::Object(map),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(map)) => Value::Object(map),
            _ => json!({ RAW_ARGUMENTS: text }),
        },
        Some(other) => json!({ RAW_ARGUMENTS: other }),
    }
}
