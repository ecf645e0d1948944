//! A session as messages of OpenAI's chat API.
//!
//! Decision: what a model is sent of each message, in its place, and nothing is mended: a call nobody answered stands
//! without its result, as it was. Roles that no provider knows become a user's words by the rule prompts are made by.

use std::sync::Arc;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_legacy::pipeline::render;
use context_engine_transcript::content::retold;
use context_engine_transcript::{Message, RecordedSession};
use serde_json::{Map, Value, json};

/// A list of messages: the active branch, without what was kept out of the context.
pub(super) fn of(session: &RecordedSession) -> Value {
    let system = session.system.iter().map(|prompt| json!({ "role": "system", "content": prompt }));
    let history = session.history(Default::default());
    let sent = history.messages.iter().filter(|message| !message.flags.contains(MessageFlags::EXCLUDED));
    system.chain(sent.filter_map(message)).collect()
}

fn message(message: &Arc<Message>) -> Option<Value> {
    match message.role {
        Role::ASSISTANT => assistant(message),
        Role::TOOL_RESULT => Some(json!({
            "role": "tool", "tool_call_id": message.tool_call_id, "content": words(message),
        })),
        Role::USER => user(message),
        // As it stands in a prompt; whatever is added around it is not of the session.
        _ => render(std::slice::from_ref(message))
            .0
            .iter()
            .find(|told| told.id == message.id)
            .and_then(|told| user(told)),
    }
}

fn assistant(message: &Message) -> Option<Value> {
    let call = |block: &context_engine_transcript::Block| {
        let arguments = if block.text.is_empty() { "{}" } else { &block.text };
        json!({ "id": block.id, "type": "function", "function": { "name": block.name, "arguments": arguments } })
    };
    let (said, calls) = (words(message), message.tool_calls().map(call).collect::<Vec<Value>>());
    if said.is_empty() && calls.is_empty() {
        return None;
    }
    let mut map = Map::from_iter([("role".to_owned(), "assistant".into())]);
    map.insert("content".to_owned(), if said.is_empty() { Value::Null } else { said.into() });
    if !calls.is_empty() {
        map.insert("tool_calls".to_owned(), calls.into());
    }
    Some(Value::Object(map))
}

fn user(message: &Message) -> Option<Value> {
    let parts: Vec<Value> = message
        .blocks
        .iter()
        .filter_map(|block| match block.kind {
            BlockKind::IMAGE => {
                Some(json!({ "type": "image_url", "image_url": { "url": picture(message.raw(block))? } }))
            }
            BlockKind::THINKING => None,
            BlockKind::TEXT => Some(json!({ "type": "text", "text": block.text })),
            kind => retold(Role::USER, kind, message.raw(block)).map(|text| json!({ "type": "text", "text": text })),
        })
        .collect();
    let content = match &parts[..] {
        [] => return None,
        [one] if one["type"] == "text" => one["text"].clone(),
        _ => Value::Array(parts),
    };
    Some(json!({ "role": "user", "content": content }))
}

/// The text of a message in which only text can be sent.
fn words(message: &Message) -> String {
    let words = message.blocks.iter().filter_map(|block| match block.kind {
        BlockKind::TEXT => Some(block.text.clone()),
        BlockKind::IMAGE => Some(format!("[image {}]", block.name)),
        BlockKind::THINKING => None,
        kind => retold(message.role, kind, message.raw(block)).map(|text| text.into_owned()),
    });
    words.collect::<Vec<String>>().join("\n")
}

/// Where a picture is, or the picture itself as a `data:` URL.
fn picture(block: &str) -> Option<String> {
    let block: Map<String, Value> = serde_json::from_str(block).ok()?;
    let text = |key: &str| block.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let data = |data: &str| format!("data:{};base64,{data}", text("mimeType").unwrap_or("image/png"));
    text("data").map(data).or_else(|| text("url").map(str::to_owned))
}
