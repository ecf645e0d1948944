//! A reply, put together from the pieces of a stream or read as a whole.
//!
//! Decision: pieces are read as plain JSON, member by member, and a member of another type counts as absent: servers add,
//! rename and leave out. What makes no sense at all is an error and not an empty reply.
//!
//! Invariant: what went to the host as events is in [`Reply::partial`], in the same order.

use std::collections::HashSet;

use serde_json::{Value, json};
use sse_stream::Sse;

use super::calls::{Call, Piece, new_id};
use super::failure::Failure;
use super::request::wire_name;
use super::usage;
use crate::model::{ModelErrorKind, ModelEvent, ModelReply, StopReason, ToolSpec, Usage};

/// Where events go.
type Events<'e> = &'e mut (dyn FnMut(ModelEvent<'_>) + Send);

/// Members that bring reasoning; a server that fills several says the same in each.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// A reply that is coming in.
pub(super) struct Reply<'a> {
    /// The model that was asked.
    asked: &'a str,
    tools: &'a [ToolSpec],
    blocks: Vec<Block>,
    refusal: String,
    finish: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    /// Whether the host has got anything of it.
    seen: bool,
    /// Whether the server said that it is over.
    over: bool,
}

enum Block {
    Text(String),
    Thinking(String),
    Call(Call),
}

impl<'a> Reply<'a> {
    pub(super) fn new(asked: &'a str, tools: &'a [ToolSpec]) -> Reply<'a> {
        Reply {
            asked,
            tools,
            blocks: Vec::new(),
            refusal: String::new(),
            finish: None,
            usage: None,
            model: None,
            seen: false,
            over: false,
        }
    }

    /// Forgets what nobody has seen.
    pub(super) fn clear(&mut self) {
        *self = Reply::new(self.asked, self.tools);
    }

    pub(super) fn was_seen(&self) -> bool {
        self.seen
    }

    /// What has come in. A call is in it when it is whole.
    pub(super) fn partial(&self) -> Vec<Value> {
        let whole = |block: &&Block| !matches!(block, Block::Call(call) if !call.is_whole());
        self.content(self.blocks.iter().filter(whole))
    }

    /// Takes up one event of a stream; whether it was the last one.
    pub(super) fn event(&mut self, event: &Sse, events: Events<'_>) -> Result<bool, Failure> {
        let data = event.data.as_deref().unwrap_or_default().trim();
        let name = event.event.as_deref().unwrap_or_default();
        if data.is_empty() {
            return Ok(false);
        }
        if data == "[DONE]" {
            self.over = true;
            return Ok(true);
        }
        if name == "error" {
            return Err(Failure::of_event(data));
        }
        match serde_json::from_str(data) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => self.piece(&value, data, events)?,
            // A sign of life under a name of its own.
            _ if !name.is_empty() && name != "message" => {}
            _ => {
                let text = format!("a piece of the stream cannot be read: {}", &start(data));
                return Err(Failure::last(ModelErrorKind::Failed, text));
            }
        }
        Ok(false)
    }

    /// Takes up an answer that is no stream.
    pub(super) fn whole(&mut self, body: &[u8], events: Events<'_>) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(body);
        let value = serde_json::from_str::<Value>(&text).map_err(|error| {
            Failure::last(ModelErrorKind::Failed, format!("the answer cannot be read: {error}: {}", start(&text)))
        })?;
        self.piece(&value, &text, events)?;
        if first_choice(&value).is_none() {
            let text = format!("the answer holds no reply: {}", start(&text));
            return Err(Failure::last(ModelErrorKind::Failed, text));
        }
        self.over = true;
        self.end()
    }

    /// At the end of an answer: whether it is one.
    ///
    /// A stream that says neither why it ended nor that it did was cut, by a proxy perhaps: half a reply is not passed off
    /// as a whole one.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        if !self.over && self.finish.is_none() {
            return Err(Failure::passing(ModelErrorKind::Interrupted, "the stream ended before the reply did"));
        }
        let finish = self.finish.as_deref().unwrap_or_default();
        let says = |what: &str| format!("the reply ended with {finish:?}{what}");
        match finish {
            "content_filter" | "safety" | "sensitive" | "prohibited_content" => {
                Err(Failure::last(ModelErrorKind::Refused, says(": the provider filters it")))
            }
            "error" | "network_error" => Err(Failure::passing(ModelErrorKind::Interrupted, says(""))),
            "model_context_window_exceeded" if self.blocks.is_empty() => {
                let observed = self.usage.map(|usage| usage.prompt()).filter(|tokens| *tokens > 0);
                Err(Failure::last(ModelErrorKind::Overflow { observed }, says("")))
            }
            _ if !self.refusal.is_empty() && self.blocks.is_empty() => {
                Err(Failure::last(ModelErrorKind::Refused, self.refusal.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The reply. Its calls are told to the host now that they are whole.
    pub(super) fn finish(&mut self, events: Events<'_>) -> ModelReply {
        let content = self.content(self.blocks.iter());
        let mut calls = false;
        for block in content.iter().filter(|block| block["type"] == "toolCall") {
            calls = true;
            let text = |name: &str| block[name].as_str().unwrap_or_default();
            events(ModelEvent::ToolCall { id: text("id"), name: text("name") });
        }
        let stop = match self.finish.as_deref() {
            Some("length" | "max_tokens" | "max_output_tokens" | "model_context_window_exceeded") => StopReason::Length,
            // Servers that end a call with "stop" or with nothing.
            _ if calls => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        ModelReply { content, stop, usage: self.usage, response_model: self.model.take() }
    }

    /// One piece of a stream, or a whole answer; `text` is the same as text.
    fn piece(&mut self, value: &Value, text: &str, events: Events<'_>) -> Result<(), Failure> {
        let is_error = value.get("object").is_some_and(|object| object == "error") || value.is_array();
        if is_error || value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Failure::of_event(text));
        }
        if let Some(model) = value.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            self.model = Some(model.to_owned()).filter(|model| model != self.asked);
        }
        let choice = first_choice(value);
        let usages = [value.get("usage"), choice.and_then(|choice| choice.get("usage"))];
        if let Some(usage) = usages.into_iter().flatten().find_map(usage::read) {
            self.usage = Some(usage);
        }
        let Some(choice) = choice else { return Ok(()) };
        let said = ["delta", "message"].iter().find_map(|name| choice.get(*name).filter(|said| said.is_object()));
        if let Some(said) = said {
            self.say(said, events);
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_lowercase());
        }
        Ok(())
    }

    /// `delta` or `message`.
    fn say(&mut self, said: &Value, events: Events<'_>) {
        let reasoning = REASONING.iter().filter_map(|name| said.get(*name)?.as_str());
        if let Some(text) = reasoning.into_iter().find(|text| !text.is_empty()) {
            self.add(text, true, events);
        }
        match said.get("content") {
            Some(Value::String(text)) => self.add(text, false, events),
            // Mistral's reasoning models.
            Some(Value::Array(parts)) => {
                for part in parts {
                    let is_thinking = part.get("type").is_some_and(|kind| kind == "thinking");
                    let text = if is_thinking { part.get("thinking") } else { part.get("text") };
                    match text {
                        Some(Value::String(text)) => self.add(text, is_thinking, events),
                        Some(Value::Array(inner)) => {
                            let texts = inner.iter().filter_map(|part| part.get("text")?.as_str());
                            texts.for_each(|text| self.add(text, is_thinking, events));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        self.refusal.push_str(said.get("refusal").and_then(Value::as_str).unwrap_or_default());
        let calls = said.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        let old = said.get("function_call").filter(|call| call.is_object());
        for piece in calls.chain(old).map(Piece::of).filter(|piece| !piece.is_empty()) {
            self.call(piece);
        }
    }

    fn add(&mut self, text: &str, is_thinking: bool, events: Events<'_>) {
        if text.is_empty() {
            return;
        }
        match self.blocks.last_mut() {
            Some(Block::Text(before)) if !is_thinking => before.push_str(text),
            Some(Block::Thinking(before)) if is_thinking => before.push_str(text),
            _ if is_thinking => self.blocks.push(Block::Thinking(text.to_owned())),
            _ => self.blocks.push(Block::Text(text.to_owned())),
        }
        self.seen = true;
        events(if is_thinking { ModelEvent::Thinking(text) } else { ModelEvent::Text(text) });
    }

    fn call(&mut self, piece: Piece<'_>) {
        let calls = self.blocks.iter_mut().rev().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        });
        match calls.enumerate().find(|(at, call)| piece.continues(call, *at == 0)) {
            Some((_, call)) => call.add(piece),
            None => {
                let mut call = Call::default();
                call.add(piece);
                self.blocks.push(Block::Call(call));
            }
        }
    }

    fn content<'b>(&self, blocks: impl Iterator<Item = &'b Block>) -> Vec<Value> {
        let mut ids = HashSet::new();
        let block = |block: &Block| match block {
            Block::Text(text) => json!({ "type": "text", "text": text }),
            Block::Thinking(text) => json!({ "type": "thinking", "thinking": text }),
            Block::Call(call) => {
                let name = self.tools.iter().map(|tool| tool.name.as_str()).find(|name| wire_name(name) == call.name);
                let id = Some(call.id.clone()).filter(|id| !id.trim().is_empty() && ids.insert(id.clone()));
                call.block(&id.unwrap_or_else(new_id), name.unwrap_or(&call.name))
            }
        };
        blocks.map(block).collect()
    }
}

/// The first of several replies.
fn first_choice(value: &Value) -> Option<&Value> {
    let choices = value.get("choices")?.as_array()?;
    choices.iter().find(|choice| choice.get("index").is_none_or(|index| index == 0 || index.is_null()))
}

/// The first words of something that cannot be read.
fn start(text: &str) -> String {
    text.chars().take(200).collect()
}
