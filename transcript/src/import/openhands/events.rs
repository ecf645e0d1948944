//! Events of OpenHands' SDK: a `kind` says what each is.

use serde_json::{Map, Value};

use super::Run;
use crate::import::draft::At;
use crate::import::shape::{self, member, take_text};

pub(super) fn recognises(json: &Value) -> bool {
    let kind = json.get("kind").and_then(Value::as_str).unwrap_or_default();
    let named = ["Event", "Observation", "Condensation", "CondensationRequest"].iter().any(|end| kind.ends_with(end));
    named && json.get("source").is_some()
}

impl Run {
    pub(super) fn sdk_event(&mut self, at: At, mut map: Map<String, Value>) {
        let kind = member(&map, "kind").unwrap_or_default().to_owned();
        match kind.as_str() {
            "SystemPromptEvent" => {
                let parts = ["system_prompt", "dynamic_context"].map(|key| match map.get(key) {
                    Some(Value::String(text)) => Some(text.clone()),
                    Some(Value::Object(part)) => member(part, "text").map(str::to_owned),
                    _ => None,
                });
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                let text = Some(parts.join("\n\n")).filter(|text| !text.is_empty());
                self.system(at, text, map);
            }
            "MessageEvent" => self.message(at, map),
            "ActionEvent" => self.action(at, map),
            "ObservationEvent" => {
                let Some(observation) = map.shift_remove("observation") else {
                    return self.draft.other(at, &kind, map);
                };
                let failed = ["is_error", "error"].iter().any(|key| observation.get(key) == Some(&Value::Bool(true)));
                self.result(at, observed(observation), failed, map);
            }
            "AgentErrorEvent" | "UserRejectObservation" => {
                let text = ["error", "rejection_reason"].iter().find_map(|key| take_text(&mut map, key));
                self.result(at, vec![shape::text(text.unwrap_or_default())], true, map);
            }
            "Condensation" => {
                let forgotten = map.get("forgotten_event_ids").and_then(Value::as_array).into_iter().flatten();
                let last = forgotten.filter_map(Value::as_str).next_back().map(str::to_owned);
                let summary = member(&map, "summary").map(str::to_owned);
                self.condensed(at, summary.as_deref(), last, map, "Condensation");
            }
            // Most of a file's records, and each repeats the last.
            "ConversationStateUpdateEvent" => self.draft.drop(&kind, at.id, at.up),
            _ => self.draft.other(at, &kind, map),
        }
    }

    fn message(&mut self, at: At, mut map: Map<String, Value>) {
        let Some(Value::Object(mut said)) = map.shift_remove("llm_message") else {
            return self.draft.other(at, "no message", map);
        };
        let mut blocks = thoughts(&mut said);
        blocks.extend(content(said.shift_remove("content")));
        blocks.extend(content(map.shift_remove("extended_content")));
        match member(&said, "role") {
            Some("assistant") => {
                if let Some(Value::Array(calls)) = said.shift_remove("tool_calls") {
                    blocks.extend(calls.into_iter().filter_map(call));
                }
                let key = member(&map, "llm_response_id").map(str::to_owned);
                self.draft.reply(at, key.as_deref(), shape::assistant(blocks), map);
            }
            Some("system") => {
                let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
                self.system(at, Some(texts.join("\n")), map);
            }
            _ => self.draft.say(at, shape::user(blocks), map, false),
        }
    }

    fn action(&mut self, at: At, mut map: Map<String, Value>) {
        let mut blocks = thoughts(&mut map);
        blocks.extend(content(map.shift_remove("thought")));
        let name = take_text(&mut map, "tool_name");
        let id = take_text(&mut map, "tool_call_id");
        let made = match map.shift_remove("tool_call") {
            Some(made @ Value::Object(_)) => call(made),
            // Without the call as the model made it, the action says the same.
            _ => id.map(|id| shape::call(&id, name.as_deref().unwrap_or_default(), map.get("action").cloned())),
        };
        blocks.extend(made);
        // The action repeats the call's arguments.
        map.shift_remove("action");
        let key = member(&map, "llm_response_id").map(str::to_owned);
        self.draft.reply(at, key.as_deref(), shape::assistant(blocks), map);
    }

    fn result(&mut self, at: At, content: Vec<Value>, failed: bool, mut map: Map<String, Value>) {
        let id = take_text(&mut map, "tool_call_id").unwrap_or_default();
        let name = take_text(&mut map, "tool_name").unwrap_or_default();
        self.draft.result(at, shape::result(&id, &name, content, failed), map);
    }
}

/// Thinking, signed where the provider signs it.
fn thoughts(map: &mut Map<String, Value>) -> Vec<Value> {
    let blocks = match map.shift_remove("thinking_blocks") {
        Some(Value::Array(blocks)) => blocks,
        _ => Vec::new(),
    };
    let mut blocks: Vec<Value> = blocks
        .into_iter()
        .filter_map(|block| match block {
            Value::Object(map) => Some(shape::thinking_part(map)),
            _ => None,
        })
        .collect();
    let reasoning = take_text(map, "reasoning_content").filter(|text| !text.is_empty());
    if blocks.is_empty() {
        blocks.extend(reasoning.map(|text| shape::thinking(text, None)));
    }
    blocks
}

fn content(content: Option<Value>) -> Vec<Value> {
    let images = |map: &Map<String, Value>| {
        let urls = map.get("image_urls").and_then(Value::as_array).into_iter().flatten();
        urls.filter_map(Value::as_str).map(shape::image_at).collect::<Vec<_>>()
    };
    shape::blocks(content)
        .into_iter()
        .flat_map(|block| match block {
            Value::Object(map) if map.contains_key("image_urls") => images(&map),
            Value::Object(mut map) => {
                map.shift_remove("cache_prompt");
                vec![Value::Object(map)]
            }
            other => vec![other],
        })
        .collect()
}

/// A tool call in either of the two shapes it is written in.
fn call(call: Value) -> Option<Value> {
    let Value::Object(mut map) = call else { return None };
    let id = take_text(&mut map, "id")?;
    let mut inner = match map.shift_remove("function") {
        Some(Value::Object(function)) => function,
        _ => map,
    };
    let name = take_text(&mut inner, "name").unwrap_or_default();
    Some(shape::call(&id, &name, inner.shift_remove("arguments")))
}

/// What an observation told the model.
fn observed(observation: Value) -> Vec<Value> {
    let Value::Object(mut map) = observation else { return shape::blocks(Some(observation)) };
    let found = ["content", "output", "message", "text"].iter().find_map(|key| map.shift_remove(*key));
    match found {
        Some(found) if !found.is_null() => content(Some(found)),
        _ => {
            map.shift_remove("kind");
            vec![shape::text(Value::Object(map).to_string())]
        }
    }
}
