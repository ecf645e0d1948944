//! Gemini's content: a role, and parts that are text, thoughts, bytes, calls or their answers.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

use crate::import::draft::{At, Draft, Up};
use crate::import::shape::{self, member, take_text};

/// Content as a list of parts.
pub(super) fn list(content: Option<Value>) -> Value {
    match content {
        None | Some(Value::Null) => Value::Array(Vec::new()),
        Some(list @ Value::Array(_)) => list,
        Some(one) => Value::Array(vec![one]),
    }
}

/// The text of a list of parts.
pub(super) fn text(parts: &Value) -> Option<String> {
    let texts: Vec<&str> = parts.as_array()?.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Puts contents into a draft, and gives calls without an id one that their answers get too.
#[derive(Default)]
pub(super) struct Contents {
    made: u64,
    /// Calls without an id that were not answered, by the tool's name.
    unanswered: HashMap<String, VecDeque<String>>,
}

impl Contents {
    pub(super) fn call_id(&mut self, position: u64) -> String {
        self.made += 1;
        format!("call_{position:06}_{}", self.made)
    }

    /// The blocks of a reply.
    pub(super) fn blocks(&mut self, position: u64, parts: Value) -> Vec<Value> {
        let Value::Array(parts) = parts else { return Vec::new() };
        parts.into_iter().map(|part| self.block(position, part)).collect()
    }

    fn block(&mut self, position: u64, part: Value) -> Value {
        let Value::Object(mut map) = part else { return shape::part(part) };
        if let Some(Value::Object(mut call)) = map.shift_remove("functionCall") {
            let name = take_text(&mut call, "name").unwrap_or_default();
            let id = take_text(&mut call, "id").filter(|id| !id.is_empty()).unwrap_or_else(|| {
                let id = self.call_id(position);
                self.unanswered.entry(name.clone()).or_default().push_back(id.clone());
                id
            });
            return shape::with_rest(shape::call(&id, &name, call.shift_remove("args")), map);
        }
        if map.shift_remove("thought") == Some(Value::Bool(true)) {
            let text = take_text(&mut map, "text").unwrap_or_default();
            return shape::thinking(text, take_text(&mut map, "thoughtSignature"));
        }
        if let Some(Value::Object(data)) = map.get("inlineData").or_else(|| map.get("inline_data")) {
            let mime = member(data, "mimeType").or_else(|| member(data, "mime_type")).unwrap_or_default();
            if let (true, Some(data)) = (mime.starts_with("image/"), member(data, "data")) {
                return shape::image(mime, data);
            }
        }
        match take_text(&mut map, "text") {
            Some(text) => shape::with_rest(shape::text(text), map),
            None => {
                let kind = map.keys().next().cloned().unwrap_or_default();
                shape::with_rest(serde_json::json!({ "type": kind }), map)
            }
        }
    }

    /// A content of any role: the answers in it become results, each a message.
    pub(super) fn add(&mut self, draft: &mut Draft, at: At, mut content: Map<String, Value>) {
        let role = take_text(&mut content, "role").unwrap_or_default();
        let parts = list(content.shift_remove("parts"));
        content.shift_remove("id");
        if role == "model" {
            let mut message = shape::assistant(self.blocks(at.position, parts));
            message.insert("provider".to_owned(), "google".into());
            return draft.reply(at, None, message, content);
        }
        let Value::Array(parts) = parts else { return };
        let (answers, rest): (Vec<Value>, Vec<Value>) =
            parts.into_iter().partition(|part| part.get("functionResponse").is_some());
        if answers.is_empty() && rest.is_empty() {
            return draft.other(at, "no message", content);
        }
        let mut follower = At { position: at.position, id: None, up: Up::Previous, timestamp: at.timestamp.clone() };
        let mut first = Some(at);
        let mut next = |draft: &mut Draft| match first.take() {
            Some(at) => at,
            None => {
                draft.split();
                let next = At { timestamp: follower.timestamp.clone(), up: Up::Previous, id: None, ..follower };
                std::mem::replace(&mut follower, next)
            }
        };
        let has_answers = !answers.is_empty();
        for part in answers {
            let response = part.get("functionResponse");
            let text = |key: &str| response.and_then(|r| r.get(key)).and_then(Value::as_str).unwrap_or_default();
            let (id, name) = (text("id").to_owned(), text("name").to_owned());
            let id = match id.is_empty() {
                false => id,
                true => self.unanswered.get_mut(&name).and_then(VecDeque::pop_front).unwrap_or_default(),
            };
            let at = next(draft);
            let (blocks, failed) = answer(part);
            draft.result(at, shape::result(&id, &name, blocks, failed), std::mem::take(&mut content));
        }
        if !rest.is_empty() {
            let at = next(draft);
            let blocks = self.blocks(at.position, Value::Array(rest));
            draft.say(at, shape::user(blocks), content, has_answers);
        }
    }
}

/// What a tool answered, and whether it failed: `functionResponse` parts, other parts beside them, or plain text.
pub(super) fn answer(answer: Value) -> (Vec<Value>, bool) {
    let mut failed = false;
    let mut blocks = Vec::new();
    let Value::Array(parts) = list(Some(answer)) else { return (blocks, failed) };
    for part in parts {
        let Value::Object(mut map) = part else {
            blocks.push(shape::part(part));
            continue;
        };
        let Some(Value::Object(mut response)) = map.shift_remove("functionResponse") else {
            blocks.push(Contents::default().block(0, Value::Object(map)));
            continue;
        };
        let inner = response.shift_remove("response").unwrap_or_default();
        let text = |key: &str| inner.get(key).and_then(Value::as_str);
        let error = text("error");
        failed |= error.is_some();
        match text("output").or(error).or_else(|| text("content")).or_else(|| inner.as_str()) {
            Some(text) => blocks.push(shape::text(text)),
            None if inner.is_null() => {}
            None => blocks.push(shape::text(inner.to_string())),
        }
        if let Some(Value::Array(more)) = response.shift_remove("parts") {
            blocks.extend(more.into_iter().map(|part| Contents::default().block(0, part)));
        }
    }
    (blocks, failed)
}
