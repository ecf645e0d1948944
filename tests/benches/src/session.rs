//! Ready messages of about 600 bytes with one text block each, and services that do nothing.

use std::sync::Arc;

use context_engine_interface::CallServices;
use context_engine_transcript::Message;
use serde_json::{Value, json};

/// What the texts are cut from: prose with quotes and line breaks, as JSON has to escape them.
const PROSE: &str = "The retry in `pool.rs` waits for a \"ready\" that never comes when the peer closes first.\n\
    I moved the check before the wait and added a test that closes the peer in between; it failed before and passes now.\n\
    What is left is the timeout: 30 s is longer than the caller's own, so nobody ever sees our error. ";

/// `n` messages, user and assistant in turn, 500 to 700 bytes of JSON each, their tokens counted by length.
///
/// # Panics
/// Never: what is indexed is made here.
pub fn messages(n: usize) -> Vec<Arc<Message>> {
    let templates: Vec<Message> = (0..8).map(template).collect();
    let message = |at: usize| {
        let mut message = templates[at % templates.len()].clone();
        message.id = format!("entry-{at:08x}");
        Arc::new(message)
    };
    (0..n).map(message).collect()
}

fn template(at: usize) -> Message {
    let text = PROSE.chars().cycle().skip(at * 37).take(430 + at * 20).collect::<String>();
    let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
    let value = json!({
        "role": role,
        "content": [{ "type": "text", "text": text }],
        "timestamp": 1_767_600_000_000_u64 + at as u64,
    });
    let mut message = from_value("template", value).expect("a message made here can be indexed");
    // The ratio of English prose; counting for real would only make the setup slower.
    message.tokens = text.len() as u64 / 4;
    message
}

fn from_value(id: &str, value: Value) -> Option<Message> {
    match value {
        Value::Object(map) => Message::from_map(id, map).ok(),
        _ => None,
    }
}

/// The messages as one JSON array of `{id, tokens, message}`, each made from the message's content.
///
/// What a boundary that serialises would send. The content is written from strings, not pasted from the recorded JSON:
/// a host that holds typed messages has to escape them.
///
/// # Panics
/// Never: a string can always be written.
pub fn to_json(messages: &[Arc<Message>]) -> String {
    #[derive(serde::Serialize)]
    struct Block<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        text: &'a str,
    }
    #[derive(serde::Serialize)]
    struct Wire<'a> {
        id: &'a str,
        role: &'a str,
        timestamp: i64,
        tokens: u64,
        content: Vec<Block<'a>>,
    }
    let wire: Vec<Wire<'_>> = messages
        .iter()
        .map(|message| Wire {
            id: &message.id,
            role: message.role.name().unwrap_or("user"),
            timestamp: message.timestamp_ms,
            tokens: message.tokens,
            content: message.blocks.iter().map(|block| Block { kind: "text", text: &block.text }).collect(),
        })
        .collect();
    serde_json::to_string(&wire).expect("strings and numbers can be written")
}

/// A message as the other side of a boundary that serialises would hold it.
#[derive(Debug, serde::Deserialize)]
pub struct Parsed {
    /// Entry id.
    pub id: String,
    /// Who speaks.
    pub role: String,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Cost in a prompt.
    pub tokens: u64,
    /// The parts.
    pub content: Vec<ParsedBlock>,
}

/// A block of a [`Parsed`] message.
#[derive(Debug, serde::Deserialize)]
pub struct ParsedBlock {
    /// What the block is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    pub text: String,
}

/// Reads what [`to_json`] wrote into owned, typed messages: what an engine would have to do before it can look at one.
///
/// # Panics
/// When `json` was not written by [`to_json`].
pub fn from_json(json: &str) -> Vec<Parsed> {
    serde_json::from_str(json).expect("written by `to_json`")
}

/// Services of a call that asks for none.
#[derive(Debug)]
pub struct Quiet;

impl CallServices for Quiet {}
