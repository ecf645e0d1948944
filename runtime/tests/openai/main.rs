//! The client of OpenAI's chat completions against a real server: what servers were seen to send, as data.
//!
//! The server is a listener of the standard library and not a crate: the cases are about bytes on the wire (a chunk that is
//! cut in the middle of a character, a connection that breaks in the middle of a chunk), which no HTTP server lets through.
#![cfg(feature = "openai")]

mod calls;
mod failures;
mod requests;
mod server;
mod streams;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use context_engine_runtime::model::openai::{OpenAiConfig, OpenAiModel};
use context_engine_runtime::model::{Model, ModelError, ModelErrorKind, ModelEvent, ModelReply, ModelRequest};
use context_engine_transcript::Message;
use serde_json::{Value, json};

use crate::server::Server;

/// For a server of the tests: everything as it is, but soon.
fn config(server: &Server) -> OpenAiConfig {
    OpenAiConfig {
        backoff: Duration::from_millis(2),
        timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        ..OpenAiConfig::new(server.url(), "asked")
    }
}

fn message(json: Value) -> Arc<Message> {
    let Value::Object(map) = json else { panic!("not an object: {json}") };
    Arc::new(Message::from_map("m", map).expect("a message"))
}

fn question() -> ModelRequest {
    let messages = vec![message(json!({ "role": "user", "content": "question" }))];
    ModelRequest { messages, ..ModelRequest::default() }
}

/// Asks, and tells what came of it: the events, then the reply or the error.
async fn ask(config: OpenAiConfig, request: &ModelRequest) -> String {
    let model = OpenAiModel::new(config).expect("a client");
    let mut events = Vec::new();
    let mut seen = |event: ModelEvent<'_>| {
        events.push(match event {
            ModelEvent::Text(text) => format!("+{text:?}"),
            ModelEvent::Thinking(text) => format!("~{text:?}"),
            ModelEvent::ToolCall { id, name } => format!("!{id} {name}"),
            ModelEvent::Retry { attempt, reason, .. } => format!("retry {attempt} ({reason})"),
            other => format!("{other:?}"),
        });
    };
    let outcome = model.respond(request, &mut seen).await;
    events.push(match outcome {
        Ok(reply) => told(&reply),
        Err(error) => told_error(&error),
    });
    events.join("\n")
}

fn told(reply: &ModelReply) -> String {
    let mut out = format!("{}: {}", reply.stop.name(), blocks(&reply.content));
    if let Some(usage) = reply.usage {
        _ = write!(out, " | {}+{} read {} written {}", usage.input, usage.output, usage.cache_read, usage.cache_write);
    }
    if let Some(model) = &reply.response_model {
        _ = write!(out, " | by {model}");
    }
    out
}

fn told_error(error: &ModelError) -> String {
    let kind = match error.kind {
        ModelErrorKind::Overflow { observed: Some(tokens) } => format!("Overflow {tokens}"),
        ModelErrorKind::Overflow { observed: None } => "Overflow".to_owned(),
        ModelErrorKind::RateLimited { retry_after: Some(after) } => format!("RateLimited {}s", after.as_secs_f64()),
        ModelErrorKind::RateLimited { retry_after: None } => "RateLimited".to_owned(),
        kind => format!("{kind:?}"),
    };
    format!("{kind}: {} | {}", error.text, blocks(&error.partial))
}

/// Blocks in short: `"text"`, `~"thinking"`, `id name {arguments}`.
fn blocks(content: &[Value]) -> String {
    let block = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"].to_string(),
        Some("thinking") => format!("~{}", block["thinking"]),
        Some("toolCall") => {
            let text = |name: &str| block[name].as_str().unwrap_or("?").to_owned();
            format!("{} {} {}", text("id"), text("name"), block["arguments"])
        }
        _ => format!("odd {block}"),
    };
    format!("[{}]", content.iter().map(block).collect::<Vec<_>>().join(", "))
}
