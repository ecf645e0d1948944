//! Codex rollouts: the items of OpenAI's Responses API as they came, one per line, between records of the session.
//!
//! Decision: the items of one reply (reasoning, text, calls) become one message, as they were one reply; a call's output
//! or a person's message ends it. `event_msg` records repeat the items for the screen and are only counted. Older
//! rollouts hold bare items behind a bare header, the oldest are one document with `items`: the items are the same.

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::draft::{At, Draft, Up};
use super::lines::{self, Accept, Damage};
use super::shape::{self, member, take_text};
use crate::RecordedSession;

const RECORDS: [&str; 5] = ["session_meta", "response_item", "event_msg", "turn_context", "compacted"];

fn is_wrapped(json: &Value) -> bool {
    let kind = json.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| RECORDS.contains(&kind)) && json.get("payload").is_some_and(Value::is_object)
}

fn is_header(json: &Value) -> bool {
    json.as_object().is_some_and(is_bare_header)
}

fn is_bare_header(map: &Map<String, Value>) -> bool {
    let has = |key: &str| map.contains_key(key);
    has("id") && has("timestamp") && (has("instructions") || has("git")) && !has("role") && !has("type")
}

/// Items no other format has; a message only with parts of the Responses API.
fn is_item(json: &Value) -> bool {
    let Some(kind) = json.get("type").and_then(Value::as_str) else { return false };
    match kind {
        "message" => {
            let parts = json.get("content").and_then(Value::as_array).into_iter().flatten();
            let mut kinds = parts.filter_map(|part| part.get("type").and_then(Value::as_str));
            json.get("role").is_some() && kinds.any(|kind| matches!(kind, "input_text" | "output_text"))
        }
        "reasoning" => json.get("summary").is_some_and(Value::is_array),
        kind => {
            (kind.ends_with("_call") || kind.ends_with("_call_output"))
                && ["call_id", "action"].iter().any(|key| json.get(key).is_some())
        }
    }
}

/// Whether a line shows that the file is of this format.
pub(super) fn recognises_line(json: &Value) -> bool {
    is_wrapped(json) || is_header(json) || is_item(json)
}

/// JSON inside a damaged line that is surely a record.
pub(super) fn is_part(json: &Value) -> bool {
    is_wrapped(json)
}

/// The oldest rollouts: `session` and `items`.
pub(super) fn recognises_document(json: &Value) -> bool {
    json.get("session").is_some_and(Value::is_object)
        && json.get("items").and_then(Value::as_array).is_some_and(|items| items.iter().take(8).any(is_item))
}

pub(super) fn import_document(name_id: &str, mut json: Value) -> (RecordedSession, u64) {
    let mut rollout = Rollout::new(name_id);
    if let Some(Value::Object(header)) = json.get_mut("session").map(Value::take) {
        rollout.header(header);
    }
    let mut lost = 0;
    if let Some(Value::Array(items)) = json.get_mut("items").map(Value::take) {
        for (position, item) in (1..).zip(items) {
            match item {
                Value::Object(item) => rollout.item(position, None, item),
                _ => lost += 1,
            }
        }
    }
    (rollout.draft.finish(), lost)
}

pub(super) fn import(name_id: &str, bytes: &[u8]) -> (RecordedSession, Damage) {
    let mut rollout = Rollout::new(name_id);
    let is_record = |json: &Value| {
        json.get("type").is_some_and(Value::is_string) || json.get("record_type").is_some() || is_header(json)
    };
    let accept = Accept { line: is_record, part: is_part };
    let damage = lines::read(bytes, &accept, |record| {
        if let Value::Object(map) = record.json {
            rollout.record(record.position, map);
        }
        ControlFlow::Continue(())
    });
    (rollout.draft.finish(), damage)
}

struct Rollout {
    draft: Draft,
    /// Number of the reply that is being put together.
    reply: u64,
    headers: u64,
    /// Said by the developer before the conversation began.
    system: Vec<String>,
    begun: bool,
    model: Option<String>,
    provider: Option<String>,
}

impl Rollout {
    fn new(name_id: &str) -> Rollout {
        Rollout {
            draft: Draft::new(name_id.to_owned()),
            reply: 0,
            headers: 0,
            system: Vec::new(),
            begun: false,
            model: None,
            provider: None,
        }
    }

    fn record(&mut self, position: u64, mut map: Map<String, Value>) {
        let kind = member(&map, "type").unwrap_or_default().to_owned();
        let payload = match map.get_mut("payload").map(Value::take) {
            Some(Value::Object(payload)) if RECORDS.contains(&kind.as_str()) => payload,
            Some(payload) => {
                map.insert("payload".to_owned(), payload);
                return self.other(position, &kind, map);
            }
            None if is_bare_header(&map) => return self.header(map),
            None if kind.is_empty() => return self.draft.drop("state", None, Up::Previous),
            None => return self.item(position, None, map),
        };
        let timestamp = map.get("timestamp").cloned();
        match kind.as_str() {
            "session_meta" => self.header(payload),
            "turn_context" => {
                self.model = member(&payload, "model").map(str::to_owned).or(self.model.take());
                let session = &mut self.draft.builder.session;
                session.cwd = session.cwd.take().or_else(|| member(&payload, "cwd").map(str::to_owned));
                self.draft.drop("turn_context", None, Up::Previous);
            }
            "event_msg" => self.event(&payload),
            "compacted" => self.compacted(position, timestamp, payload),
            _ => self.item(position, timestamp, payload),
        }
    }

    /// A resumed or forked session repeats the header of the one it came from: the first is its own.
    fn header(&mut self, payload: Map<String, Value>) {
        self.headers += 1;
        self.draft.builder.session.counts.skip("session_meta");
        if self.headers > 1 {
            return;
        }
        let session = &mut self.draft.builder.session;
        if let Some(id) = member(&payload, "id") {
            session.id = id.to_owned();
        }
        session.cwd = member(&payload, "cwd").map(str::to_owned);
        let instructions = match payload.get("base_instructions") {
            Some(Value::Object(base)) => member(base, "text"),
            Some(Value::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let instructions = instructions.or_else(|| member(&payload, "instructions"));
        self.system.extend(instructions.map(str::to_owned));
        session.system = instructions.map(str::to_owned);
        self.provider = member(&payload, "model_provider").map(str::to_owned);
        session.meta = payload;
    }

    /// Only what a reply cost is told nowhere else.
    fn event(&mut self, payload: &Map<String, Value>) {
        let last = payload.get("info").and_then(|info| info.get("last_token_usage"));
        let names = ["input_tokens", "output_tokens", "cached_input_tokens", ""];
        if member(payload, "type") == Some("token_count")
            && let Some(usage) = last.and_then(|usage| shape::usage(usage, names, true))
        {
            self.draft.add_to_reply(&self.key(), shape::object([("usage", usage)]));
        }
        self.draft.drop("event_msg", None, Up::Previous);
    }

    fn compacted(&mut self, position: u64, timestamp: Option<Value>, payload: Map<String, Value>) {
        self.reply += 1;
        let at = at(position, timestamp.as_ref());
        match member(&payload, "message").map(str::to_owned) {
            Some(summary) => self.draft.summary(at, summary, None, None, payload),
            // The summary is encrypted, or only the history that was kept is told.
            None => self.draft.other(at, "compacted", payload),
        }
    }

    fn other(&mut self, position: u64, kind: &str, map: Map<String, Value>) {
        let at = at(position, map.get("timestamp"));
        self.draft.other(at, kind, map);
    }

    fn key(&self) -> String {
        self.reply.to_string()
    }

    fn item(&mut self, position: u64, timestamp: Option<Value>, mut item: Map<String, Value>) {
        let kind = member(&item, "type").unwrap_or_default().to_owned();
        let timestamp = timestamp.or_else(|| item.get("timestamp").cloned());
        let at = at(position, timestamp.as_ref());
        let call_id = member(&item, "call_id").or_else(|| member(&item, "id")).unwrap_or_default().to_owned();
        let blocks = match kind.as_str() {
            "message" => return self.message(at, item),
            "reasoning" => vec![reasoning(item)],
            // What is run by the provider has no result here.
            "web_search_call" | "image_generation_call" | "code_interpreter_call" | "file_search_call" => {
                vec![Value::Object(item)]
            }
            "ghost_snapshot" => return self.draft.drop(&kind, None, Up::Previous),
            _ if kind.ends_with("_output") && item.contains_key("call_id") => return self.output(at, &call_id, item),
            _ if kind.ends_with("_call") => {
                let name = take_text(&mut item, "name");
                let name = name.unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
                let arguments = ["arguments", "action", "input"].iter().find_map(|key| item.shift_remove(*key));
                // A tool that takes free text.
                let arguments = match arguments {
                    Some(Value::String(text)) if kind == "custom_tool_call" => {
                        Some(serde_json::json!({ "input": text }))
                    }
                    other => other,
                };
                for key in ["type", "call_id", "id"] {
                    item.shift_remove(key);
                }
                vec![shape::with_rest(shape::call(&call_id, &name, arguments), item)]
            }
            _ => return self.draft.other(at, if kind.is_empty() { "no message" } else { &kind }, item),
        };
        self.say(at, blocks);
    }

    /// Adds to the reply.
    fn say(&mut self, at: At, blocks: Vec<Value>) {
        self.begun = true;
        let mut message = shape::assistant(blocks);
        message.insert("api".to_owned(), "openai-responses".into());
        message.insert("provider".to_owned(), self.provider.as_deref().unwrap_or("openai").into());
        message.extend(self.model.as_ref().map(|model| ("model".to_owned(), model.as_str().into())));
        self.draft.reply(at, Some(&self.key()), message, Map::new());
    }

    fn message(&mut self, at: At, mut item: Map<String, Value>) {
        let role = take_text(&mut item, "role").unwrap_or_default();
        let content = shape::blocks(item.shift_remove("content"));
        match role.as_str() {
            "assistant" => self.say(at, content),
            "developer" | "system" => {
                let texts: Vec<&str> = content.iter().filter_map(|block| block.get("text")?.as_str()).collect();
                let text = texts.join("\n");
                if self.begun && !self.system.contains(&text) {
                    self.reply += 1;
                    item.insert("role".to_owned(), role.into());
                    item.insert("content".to_owned(), content.into());
                    return self.draft.other(at, "system", item);
                }
                self.draft.builder.session.counts.skip("system");
                if !self.system.contains(&text) {
                    self.system.push(text);
                    self.draft.builder.session.system = Some(self.system.join("\n\n"));
                }
            }
            _ => {
                self.begun = true;
                self.reply += 1;
                item.shift_remove("type");
                self.draft.say(at, shape::user(content), item, false);
            }
        }
    }

    fn output(&mut self, at: At, call_id: &str, mut item: Map<String, Value>) {
        self.reply += 1;
        let output = ["output", "tools", "result"].iter().find_map(|key| item.shift_remove(*key));
        let (content, failed) = match output {
            Some(Value::Object(mut output)) => {
                let failed = output.get("success") == Some(&Value::Bool(false));
                let content = ["content_items", "content", "output"].iter().find_map(|key| {
                    output.shift_remove(*key).filter(|content| content.is_string() || content.is_array())
                });
                (content.unwrap_or_else(|| Value::Object(output).to_string().into()), failed)
            }
            other => (other.unwrap_or_default(), false),
        };
        for key in ["type", "call_id"] {
            item.shift_remove(key);
        }
        self.draft.result(at, shape::result(call_id, "", shape::blocks(Some(content)), failed), item);
    }
}

fn at(position: u64, timestamp: Option<&Value>) -> At {
    At { position, id: None, up: Up::Previous, timestamp: shape::timestamp(timestamp) }
}

/// Reasoning as a thinking block; signed, when it came encrypted, with the item itself, which is what goes back.
fn reasoning(item: Map<String, Value>) -> Value {
    let texts = |key: &str| {
        let parts = item.get(key).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(|part| part.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n\n")
    };
    let text = [texts("content"), texts("summary")].into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let is_signed = member(&item, "encrypted_content").is_some();
    shape::thinking(text, is_signed.then(|| Value::Object(item).to_string()))
}

#[cfg(test)]
mod tests;
