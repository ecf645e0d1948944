//! The lines Gemini CLI writes while it works: replies in pieces, calls and their results.

use serde_json::{Map, Value};

use crate::RecordedSession;
use crate::import::draft::{At, Draft, Up};
use crate::import::shape::{self, member, take_text};

pub(super) fn recognises(json: &Value) -> bool {
    let has = |key: &str| json.get(key).is_some();
    match json.get("type").and_then(Value::as_str) {
        Some("init") => has("session_id"),
        Some("tool_use") => has("tool_id"),
        Some("tool_result") => has("tool_id"),
        _ => false,
    }
}

pub(super) struct Stream {
    draft: Draft,
    reply: u64,
    model: Option<String>,
    /// The piece of text that is being put together, and where its first part stood.
    text: Option<(At, String)>,
}

impl Stream {
    pub(super) fn new(name_id: &str) -> Stream {
        Stream { draft: Draft::new(name_id.to_owned()), reply: 0, model: None, text: None }
    }

    pub(super) fn record(&mut self, position: u64, mut map: Map<String, Value>) {
        let kind = member(&map, "type").unwrap_or_default().to_owned();
        let role = member(&map, "role").unwrap_or_default().to_owned();
        let at = At { position, id: None, up: Up::Previous, timestamp: shape::timestamp(map.get("timestamp")) };
        match (kind.as_str(), role.as_str()) {
            ("message", "assistant") => {
                let piece = take_text(&mut map, "content").unwrap_or_default();
                match &mut self.text {
                    Some((_, text)) => {
                        text.push_str(&piece);
                        self.draft.builder.session.counts.skip("joined");
                    }
                    None => self.text = Some((at, piece)),
                }
            }
            ("message", _) => {
                self.end();
                self.reply += 1;
                let content = shape::blocks(map.shift_remove("content"));
                self.draft.say(at, shape::user(content), Map::new(), false);
            }
            ("tool_use", _) => {
                self.end();
                let id = take_text(&mut map, "tool_id").unwrap_or_default();
                let name = take_text(&mut map, "tool_name").unwrap_or_default();
                let call = shape::call(&id, &name, map.shift_remove("parameters"));
                self.reply(at, call);
            }
            ("tool_result", _) => {
                self.end();
                self.reply += 1;
                let id = take_text(&mut map, "tool_id").unwrap_or_default();
                let failed = member(&map, "status") == Some("error");
                let output = map.shift_remove("output").filter(|output| !output.is_null());
                let output = output.or_else(|| map.get("error")?.get("message").cloned());
                let content = shape::blocks(output);
                self.draft.result(at, shape::result(&id, "", content, failed), map);
            }
            ("init", _) => {
                self.model = member(&map, "model").map(str::to_owned);
                if let Some(id) = member(&map, "session_id") {
                    self.draft.builder.session.id = id.to_owned();
                }
                self.draft.builder.session.meta = map;
                self.draft.drop("init", None, Up::Previous);
            }
            _ => {
                self.end();
                self.draft.other(at, if kind.is_empty() { "no message" } else { &kind }, map);
            }
        }
    }

    fn end(&mut self) {
        if let Some((at, text)) = self.text.take() {
            self.reply(at, shape::text(text));
        }
    }

    fn reply(&mut self, at: At, block: Value) {
        let mut message = shape::assistant(vec![block]);
        message.insert("provider".to_owned(), "google".into());
        message.extend(self.model.as_ref().map(|model| ("model".to_owned(), model.as_str().into())));
        self.draft.reply(at, Some(&self.reply.to_string()), message, Map::new());
    }

    pub(super) fn finish(mut self) -> RecordedSession {
        self.end();
        self.draft.finish()
    }
}
