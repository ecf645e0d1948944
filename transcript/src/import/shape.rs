//! Blocks and messages in OpenClaw's shape, made from the parts that agents and providers write.
//!
//! Decision: a part this crate has no shape for passes through as it is and is counted as an unknown block; a part that
//! only has another name for something known is renamed, and its other members stay on it.

use serde_json::{Map, Value, json};

use crate::content::{RAW_ARGUMENTS, is_shallow};
use crate::entry::Timestamp;

pub(super) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

pub(super) fn thinking(text: impl Into<String>, signature: Option<String>) -> Value {
    match signature.filter(|signature| !signature.is_empty()) {
        Some(signature) => json!({ "type": "thinking", "thinking": text.into(), "thinkingSignature": signature }),
        None => json!({ "type": "thinking", "thinking": text.into() }),
    }
}

/// A tool call; `arguments` may be an object, its JSON as text, or anything else.
pub(super) fn call(id: &str, name: &str, arguments: Option<Value>) -> Value {
    json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments_object(arguments) })
}

pub(super) fn image(mime: &str, data: &str) -> Value {
    json!({ "type": "image", "data": data, "mimeType": mime })
}

pub(super) fn user(content: Vec<Value>) -> Map<String, Value> {
    object([("role", "user".into()), ("content", content.into())])
}

pub(super) fn assistant(content: Vec<Value>) -> Map<String, Value> {
    object([("role", "assistant".into()), ("content", content.into())])
}

pub(super) fn result(call_id: &str, name: &str, content: Vec<Value>, is_error: bool) -> Map<String, Value> {
    object([
        ("role", "toolResult".into()),
        ("toolCallId", call_id.into()),
        ("toolName", name.into()),
        ("content", content.into()),
        ("isError", is_error.into()),
    ])
}

pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Content as blocks, whether a string, one part or a list of parts.
pub(super) fn blocks(content: Option<Value>) -> Vec<Value> {
    match content {
        Some(Value::Array(parts)) => parts.into_iter().map(part).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![part(other)],
    }
}

/// One part of OpenAI's or Anthropic's content.
pub(super) fn part(part: Value) -> Value {
    match part {
        Value::String(string) => text(string),
        Value::Object(mut map) => match map.get("type").and_then(Value::as_str) {
            Some("input_text" | "output_text") => {
                map.insert("type".to_owned(), "text".into());
                Value::Object(map)
            }
            Some("image_url" | "input_image") => linked_image(map),
            Some("image") if map.get("source").is_some_and(Value::is_object) => sourced_image(map),
            _ => Value::Object(map),
        },
        other => other,
    }
}

/// `image_url` as an image block: with `data` and `mimeType` for a `data:` URL, with `url` for a link.
fn linked_image(mut map: Map<String, Value>) -> Value {
    let (url, rest) = match map.shift_remove("image_url") {
        Some(Value::String(url)) => (url, Map::new()),
        Some(Value::Object(mut inner)) => match inner.shift_remove("url") {
            Some(Value::String(url)) => (url, inner),
            _ => (String::new(), inner),
        },
        _ => (String::new(), Map::new()),
    };
    let rest = rest.into_iter().chain(map);
    with_rest(image_at(&url), rest)
}

/// An image block for a URL, `data:` or other.
pub(super) fn image_at(url: &str) -> Value {
    match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
        Some((mime, data)) => image(mime, data),
        None => json!({ "type": "image", "url": url }),
    }
}

/// Anthropic's image: its bytes or its address stand in `source`.
fn sourced_image(mut map: Map<String, Value>) -> Value {
    let member = |key: &str| map.get("source").and_then(|s| s.get(key)).and_then(Value::as_str);
    let made = match (member("data"), member("media_type"), member("url")) {
        (Some(data), mime, _) => image(mime.unwrap_or("image/png"), data),
        (None, _, Some(url)) => image_at(url),
        (None, _, None) => return Value::Object(map),
    };
    map.shift_remove("source");
    with_rest(made, map)
}

/// An object with further members, those of the same name apart.
pub(super) fn with_rest(mut made: Value, rest: impl IntoIterator<Item = (String, Value)>) -> Value {
    if let Value::Object(made) = &mut made {
        for (key, value) in rest {
            made.entry(key).or_insert(value);
        }
    }
    made
}

/// Arguments as the object OpenClaw wants them to be.
pub(super) fn arguments_object(arguments: Option<Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => json!({}),
        Some(Value::Object(map)) => Value::Object(map),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            // Kept as the model wrote it when it is no object, or nested too deep to be read inside a prompt.
            Ok(object @ Value::Object(_)) if is_shallow(&object) => object,
            _ => json!({ RAW_ARGUMENTS: text }),
        },
        Some(other) => json!({ RAW_ARGUMENTS: other }),
    }
}

/// Anthropic's thinking blocks, as several agents write them down beside a message.
pub(super) fn thinking_part(mut map: Map<String, Value>) -> Value {
    match take_text(&mut map, "data") {
        // What a provider hid is only of use to it, whole; OpenClaw keeps it where a signature stands.
        Some(data) => {
            let made = thinking("[Reasoning redacted]", Some(data));
            with_rest(made, object([("redacted", true.into())]))
        }
        None => {
            let text = take_text(&mut map, "thinking").unwrap_or_default();
            let signature = take_text(&mut map, "signature");
            map.shift_remove("type");
            with_rest(thinking(text, signature), map)
        }
    }
}

/// Removes and gives a string member; one of another type stays.
pub(super) fn take_text(map: &mut Map<String, Value>, key: &str) -> Option<String> {
    match map.get_mut(key)?.take() {
        Value::String(text) => {
            map.shift_remove(key);
            Some(text)
        }
        other => {
            map.insert(key.to_owned(), other);
            None
        }
    }
}

/// A string member that is not empty.
pub(super) fn member<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

pub(super) fn timestamp(value: Option<&Value>) -> Timestamp {
    match value {
        Some(Value::String(text)) if !text.is_empty() => Timestamp::Iso(text.clone()),
        Some(Value::Number(ms)) => Timestamp::Millis(ms.as_f64().unwrap_or(0.0) as i64),
        _ => Timestamp::Unknown,
    }
}

/// Token numbers under OpenClaw's names; `names` are the source's for input, output, cache read and cache write.
/// OpenClaw's input is without what came from a cache; `input_has_cached` says that the source's is with it.
pub(super) fn usage(usage: &Value, names: [&str; 4], input_has_cached: bool) -> Option<Value> {
    let number = |key: &str| usage.get(key).and_then(Value::as_u64);
    let [input, output, read, write] = names.map(number);
    if input.is_none() && output.is_none() {
        return None;
    }
    let [mut input, output, read, write] = [input, output, read, write].map(Option::unwrap_or_default);
    if input_has_cached {
        input = input.saturating_sub(read);
    }
    let total = input.saturating_add(output).saturating_add(read).saturating_add(write);
    Some(json!({ "input": input, "output": output, "cacheRead": read, "cacheWrite": write, "totalTokens": total }))
}
