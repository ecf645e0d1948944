//! A prompt in OpenClaw's shape as a request of OpenAI's.
//!
//! | there | here |
//! |---|---|
//! | system prompt | a `system` message |
//! | a user's text and pictures | `content`: a text, or parts where there are pictures |
//! | a reply's text and calls | `content` and `tool_calls`; arguments to the letter |
//! | a reply's thinking | left out: the protocol has no place for it |
//! | a tool's result | a `tool` message of text |
//! | pictures in a result | in the user message behind the results: a `tool` message holds text alone |
//! | any other block | its text, as it is counted |
//!
//! Decision: several texts of one message become one, with a line break between them. Not every server takes parts.

use std::borrow::Cow;
use std::mem;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_legacy::pipeline::NO_OUTPUT;
use context_engine_transcript::content::retold;
use context_engine_transcript::{Block, Message};
use serde_json::{Map, Value, json};

use super::OpenAiConfig;
use crate::config::MaxTokensField;
use crate::model::{ModelRequest, ToolSpec};

/// Stands before pictures of tool results.
const PICTURES: &str = "[pictures of the tool results above]";
/// The text of a result that is nothing but pictures.
const SEE_BELOW: &str = "(the picture follows)";
/// Stands for a picture that cannot be sent.
const NO_PICTURE: &str = "[picture left out: it cannot be sent from here]";

/// The body of a request.
pub(super) fn body(config: &OpenAiConfig, limit: MaxTokensField, request: &ModelRequest) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".into(), config.model.as_str().into());
    body.insert("messages".into(), messages(request).into());
    body.insert("stream".into(), true.into());
    if config.compat.supports_usage_in_streaming != Some(false) {
        body.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    // Some servers refuse an empty list.
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    let most = [request.max_output_tokens, config.max_output_tokens].into_iter().flatten().min();
    if let Some(most) = most {
        let name = match limit {
            MaxTokensField::MaxTokens => "max_tokens",
            MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
        };
        body.insert(name.into(), most.into());
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    Value::Object(body).to_string().into_bytes()
}

/// The name a tool is sent under: letters, digits, `_` and `-` (contract §4.1). Histories may hold `.` and `:`, too.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.chars().all(fine) { Cow::Borrowed(name) } else { Cow::Owned(name.replace(|c| !fine(c), "_")) }
}

fn tool(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, parameters } = tool;
    let function = json!({ "name": wire_name(name), "description": description, "parameters": parameters });
    json!({ "type": "function", "function": function })
}

fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut out = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = request.system.as_deref().filter(|system| !system.is_empty()) {
        out.push(json!({ "role": "system", "content": system }));
    }
    // Pictures of the results since the last other message.
    let mut pictures: Vec<Part<'_>> = Vec::new();
    for message in request.messages.iter().filter(|message| !message.flags.contains(MessageFlags::EXCLUDED)) {
        let mut parts = parts(message);
        match message.role {
            Role::TOOL_RESULT => {
                let shown: Vec<_> = parts.extract_if(.., |part| matches!(part, Part::Picture(_))).collect();
                let empty = if shown.is_empty() { NO_OUTPUT } else { SEE_BELOW };
                pictures.extend(shown);
                let text = text(&parts).filter(|text| !text.is_empty()).unwrap_or(empty.into());
                out.push(json!({ "role": "tool", "tool_call_id": message.tool_call_id, "content": text }));
                continue;
            }
            Role::ASSISTANT => {
                flush(&mut pictures, &mut out);
                out.push(reply(message, &parts));
            }
            _ => {
                if !pictures.is_empty() {
                    parts.splice(0..0, labelled(&mut pictures));
                }
                out.push(json!({ "role": "user", "content": content(&parts) }));
            }
        }
    }
    flush(&mut pictures, &mut out);
    out
}

fn flush(pictures: &mut Vec<Part<'_>>, out: &mut Vec<Value>) {
    if !pictures.is_empty() {
        out.push(json!({ "role": "user", "content": content(&labelled(pictures)) }));
    }
}

fn labelled<'a>(pictures: &mut Vec<Part<'a>>) -> Vec<Part<'a>> {
    let label = Part::Text(Cow::Borrowed(PICTURES));
    std::iter::once(label).chain(mem::take(pictures)).collect()
}

fn reply(message: &Message, parts: &[Part<'_>]) -> Value {
    let calls = message.tool_calls().map(|call| {
        let function = json!({ "name": wire_name(&call.name), "arguments": arguments(&call.text) });
        json!({ "id": call.id, "type": "function", "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    let said = text(parts).filter(|text| !text.is_empty());
    match (said, calls.is_empty()) {
        (said, false) => json!({ "role": "assistant", "content": said, "tool_calls": calls }),
        (said, true) => json!({ "role": "assistant", "content": said.unwrap_or(NO_OUTPUT.into()) }),
    }
}

/// A call's arguments to the letter. Recorded as a text, they are what the text says.
fn arguments(recorded: &str) -> Cow<'_, str> {
    match recorded.trim() {
        "" | "null" => Cow::Borrowed("{}"),
        text if text.starts_with('"') => serde_json::from_str(text).map_or(Cow::Borrowed(text), Cow::Owned),
        _ => Cow::Borrowed(recorded),
    }
}

/// What can be sent of a message: text and pictures.
#[derive(Debug, Clone)]
enum Part<'a> {
    Text(Cow<'a, str>),
    /// The address, a `data:` URL among them.
    Picture(String),
}

fn parts(message: &Message) -> Vec<Part<'_>> {
    message.blocks.iter().filter_map(|block| part(message, block)).collect()
}

fn part<'a>(message: &'a Message, block: &'a Block) -> Option<Part<'a>> {
    let raw = message.raw(block);
    if let Some(text) = retold(message.role, block.kind, raw) {
        return Some(Part::Text(text));
    }
    match block.kind {
        BlockKind::TEXT if !block.text.is_empty() => Some(block.text.as_str().into()),
        BlockKind::IMAGE => Some(picture(raw).map_or(NO_PICTURE.into(), Part::Picture)),
        _ => None,
    }
}

impl<'a> From<&'a str> for Part<'a> {
    fn from(text: &'a str) -> Part<'a> {
        Part::Text(Cow::Borrowed(text))
    }
}

/// The texts as one, and a mark for each picture, for which a reply has no place. `None` when there is neither.
fn text<'a>(parts: &'a [Part<'_>]) -> Option<Cow<'a, str>> {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.as_ref(),
        Part::Picture(_) => NO_PICTURE,
    });
    match parts {
        [] => None,
        [Part::Text(text)] => Some(Cow::Borrowed(text)),
        _ => Some(Cow::Owned(texts.collect::<Vec<_>>().join("\n"))),
    }
}

/// A user's `content`.
fn content(parts: &[Part<'_>]) -> Value {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        return text(parts).unwrap_or_default().into();
    }
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Picture(url) => json!({ "type": "image_url", "image_url": { "url": url } }),
    };
    parts.iter().map(part).collect()
}

/// The address of a picture; `None` for one that only this machine could read.
fn picture(block: &str) -> Option<String> {
    let block: Value = serde_json::from_str(block).ok()?;
    let member = |name: &str| block.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(data) = member("data") {
        let mime = member("mimeType").unwrap_or_else(|| mime_of(data));
        return Some(format!("data:{mime};base64,{data}"));
    }
    let url = member("url")?;
    ["https://", "http://", "data:"].iter().any(|scheme| url.starts_with(scheme)).then(|| url.to_owned())
}

/// What a picture is, by its first bytes in base64.
fn mime_of(data: &str) -> &'static str {
    match data.get(..4).unwrap_or_default() {
        "/9j/" => "image/jpeg",
        "R0lG" => "image/gif",
        "UklG" => "image/webp",
        _ => "image/png",
    }
}
