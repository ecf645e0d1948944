//! Gemini CLI: saved chats (one document, or lines that are played back), saved histories, and its stream output.
//!
//! Decision: a saved chat keeps a call's result inside the reply that made the call; here it becomes a message of its
//! own behind that. Lines of a chat are a log: a record of an id known already replaces the earlier one, and `$rewindTo`
//! leaves a branch. What the screen told the person (`info`, `error`, …) was never sent to a model and is counted.

mod parts;
mod stream;

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use self::parts::Contents;
use super::draft::{At, Draft, Up};
use super::lines::{self, Accept, Damage};
use super::shape::{self, member, take_text};
use crate::RecordedSession;

/// Elements of a list that are looked at to know what it holds.
const LOOKED_AT: usize = 16;

fn is_chat_record(json: &Value) -> bool {
    let kind = json.get("type").and_then(Value::as_str);
    let said = ["content", "text", "toolCalls", "thoughts"].iter().any(|key| json.get(key).is_some());
    matches!(kind, Some("user" | "gemini" | "info" | "error" | "warning")) && said && json.get("message").is_none()
}

fn is_content(json: &Value) -> bool {
    let role = json.get("role").and_then(Value::as_str);
    matches!(role, Some("user" | "model" | "function")) && json.get("parts").is_some_and(Value::is_array)
}

fn is_chat_header(json: &Value) -> bool {
    json.get("sessionId").is_some() && ["projectHash", "startTime"].iter().any(|key| json.get(key).is_some())
}

/// The list of a document, and its member's name.
fn list(json: &Value) -> Option<(&'static str, &Vec<Value>)> {
    let holds = |list: &&Vec<Value>| list.iter().take(LOOKED_AT).any(|item| is_chat_record(item) || is_content(item));
    // `history` beside `clientHistory` is what the screen showed.
    let keys = ["messages", "clientHistory", "history", "contents"];
    keys.iter().find_map(|key| Some((*key, json.get(key)?.as_array().filter(holds)?)))
}

pub(super) fn recognises_document(json: &Value) -> bool {
    let contents = |items: &Vec<Value>| items.iter().take(LOOKED_AT).any(is_content);
    let empty = json.get("messages").and_then(Value::as_array).is_some_and(Vec::is_empty);
    list(json).is_some() || json.as_array().is_some_and(contents) || (empty && json.get("projectHash").is_some())
}

pub(super) fn recognises_line(json: &Value) -> bool {
    let is_mark = ["$set", "$rewindTo"].iter().any(|key| json.get(key).is_some());
    let is_record = is_chat_record(json) && json.get("id").is_some();
    is_mark || is_record || is_content(json) || (is_chat_header(json) && !has_type(json)) || stream::recognises(json)
}

fn has_type(json: &Value) -> bool {
    json.get("type").is_some()
}

pub(super) fn import_document(name_id: &str, mut json: Value) -> (RecordedSession, u64) {
    let key = list(&json).map(|(key, _)| key);
    let items = match (key, &mut json) {
        (Some(key), Value::Object(map)) => map.shift_remove(key),
        _ => Some(json.take()),
    };
    let mut chat = Chat::new(name_id);
    if let Value::Object(header) = json {
        chat.header(header);
    }
    if let Some(Value::Array(items)) = items {
        for (position, item) in (1..).zip(items) {
            chat.record(position, item);
        }
    }
    chat.finish()
}

pub(super) fn import_lines(name_id: &str, bytes: &[u8]) -> (RecordedSession, Damage) {
    let mut chat = Chat::new(name_id);
    let mut stream = None;
    let accept = Accept { line: |json| json.is_object(), part: |_| false };
    let mut damage = lines::read(bytes, &accept, |record| {
        if stream::recognises(&record.json) || stream.is_some() {
            let stream = stream.get_or_insert_with(|| stream::Stream::new(name_id));
            if let Value::Object(map) = record.json {
                stream.record(record.position, map);
            }
        } else {
            chat.record(record.position, record.json);
        }
        ControlFlow::Continue(())
    });
    match stream {
        Some(stream) => (stream.finish(), damage),
        None => {
            let (session, lost) = chat.finish();
            damage.lost += lost;
            (session, damage)
        }
    }
}

/// A saved chat: its records, of which later ones may replace earlier ones.
struct Chat {
    draft: Draft,
    records: Vec<Record>,
    by_id: HashMap<String, usize>,
    /// The record the next one follows.
    tip: Option<usize>,
    lost: u64,
}

struct Record {
    position: u64,
    parent: Option<usize>,
    json: Map<String, Value>,
}

impl Chat {
    fn new(name_id: &str) -> Chat {
        let draft = Draft::new(name_id.to_owned());
        Chat { draft, records: Vec::new(), by_id: HashMap::new(), tip: None, lost: 0 }
    }

    fn header(&mut self, header: Map<String, Value>) {
        let session = &mut self.draft.builder.session;
        if let Some(id) = member(&header, "sessionId") {
            session.id = id.to_owned();
        }
        let instruction = header.get("systemInstruction");
        let text = instruction.and_then(|i| i.as_str().map(str::to_owned).or_else(|| parts::text(i.get("parts")?)));
        session.system = text.or(session.system.take());
        for (key, value) in header {
            session.meta.insert(key, value);
        }
    }

    fn record(&mut self, position: u64, json: Value) {
        let Value::Object(mut map) = json else { return self.lost += 1 };
        if let Some(to) = take_text(&mut map, "$rewindTo") {
            // The record itself is taken back too.
            self.tip = self.by_id.get(&to).and_then(|&record| self.records.get(record)?.parent);
            return self.draft.drop("$rewindTo", None, Up::Previous);
        }
        if let Some(Value::Object(mut set)) = map.shift_remove("$set") {
            if let Some(Value::Array(messages)) = set.shift_remove("messages") {
                messages.into_iter().for_each(|message| self.replaces(position, message));
            }
            self.header(set);
            return self.draft.drop("$set", None, Up::Previous);
        }
        let as_value = Value::Object(map);
        if is_chat_header(&as_value) && !has_type(&as_value) {
            if let Value::Object(mut header) = as_value {
                if let Some(Value::Array(messages)) = header.shift_remove("messages") {
                    messages.into_iter().for_each(|message| self.replaces(position, message));
                }
                self.header(header);
            }
            return self.draft.drop("session", None, Up::Previous);
        }
        let Value::Object(map) = as_value else { return };
        let id = member(&map, "id").map(str::to_owned);
        if let Some(record) = id.as_ref().and_then(|id| self.by_id.get(id)).and_then(|&i| self.records.get_mut(i)) {
            record.json = map;
            return self.draft.drop("replaced", None, Up::Previous);
        }
        let index = self.records.len();
        self.by_id.extend(id.map(|id| (id, index)));
        self.records.push(Record { position, parent: self.tip.replace(index), json: map });
    }

    /// A message of a list that says what the history is now; those known already stay in their place.
    fn replaces(&mut self, position: u64, message: Value) {
        let known = message.get("id").and_then(Value::as_str).is_some_and(|id| self.by_id.contains_key(id));
        if !known {
            self.draft.split();
            self.record(position, message);
        }
    }

    fn finish(mut self) -> (RecordedSession, u64) {
        let mut contents = Contents::default();
        // A record's own id, or a name for the draft to find it by.
        let name = |i: usize, record: &Record| member(&record.json, "id").map_or(format!("\0{i}"), str::to_owned);
        let names: Vec<String> = self.records.iter().enumerate().map(|(i, record)| name(i, record)).collect();
        let mut previous = None;
        for (index, record) in self.records.into_iter().enumerate() {
            let up = match record.parent {
                None => Up::Root,
                Some(parent) if Some(parent) == previous => Up::Previous,
                Some(parent) => names.get(parent).map_or(Up::Previous, |name| Up::Source(name.clone())),
            };
            previous = Some(index);
            let id = member(&record.json, "id").map(str::to_owned);
            let timestamp = shape::timestamp(record.json.get("timestamp"));
            let at = At { position: record.position, id, up, timestamp };
            if record.json.contains_key("parts") {
                contents.add(&mut self.draft, at, record.json);
            } else {
                chat_record(&mut self.draft, &mut contents, at, record.json);
            }
            if let Some(name) = names.get(index) {
                self.draft.stand_for(name.clone());
            }
        }
        (self.draft.finish(), self.lost)
    }
}

fn chat_record(draft: &mut Draft, contents: &mut Contents, at: At, mut record: Map<String, Value>) {
    let kind = take_text(&mut record, "type").unwrap_or_default();
    match kind.as_str() {
        "user" => {
            record.insert("role".to_owned(), "user".into());
            let content = record.shift_remove("content").or_else(|| record.shift_remove("text"));
            record.insert("parts".to_owned(), parts::list(content));
            contents.add(draft, at, record);
        }
        "gemini" => gemini(draft, contents, at, record),
        _ => {
            record.insert("type".to_owned(), kind.as_str().into());
            draft.other(at, if kind.is_empty() { "no message" } else { &kind }, record);
        }
    }
}

fn gemini(draft: &mut Draft, contents: &mut Contents, at: At, mut record: Map<String, Value>) {
    let mut blocks = Vec::new();
    if let Some(Value::Array(thoughts)) = record.shift_remove("thoughts") {
        blocks.extend(thoughts.iter().map(|thought| {
            let text = |key: &str| thought.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            let lines: Vec<&str> = [text("subject"), text("description")].into_iter().flatten().collect();
            shape::thinking(lines.join("\n"), None)
        }));
    }
    let content = record.shift_remove("content").or_else(|| record.shift_remove("text"));
    let content = parts::list(content);
    blocks.extend(
        contents.blocks(at.position, content).into_iter().filter(|block| block.get("text") != Some(&"".into())),
    );
    let calls = match record.shift_remove("toolCalls") {
        Some(Value::Array(calls)) => calls,
        _ => Vec::new(),
    };
    let mut results = Vec::new();
    for call in calls {
        let Value::Object(mut call) = call else { continue };
        let name = take_text(&mut call, "name").unwrap_or_default();
        let id = take_text(&mut call, "id").unwrap_or_else(|| contents.call_id(at.position));
        blocks.push(shape::call(&id, &name, call.shift_remove("args")));
        let answer = call.shift_remove("result").filter(|answer| !answer.is_null());
        results.extend(answer.map(|answer| (id, name, answer, call)));
    }
    let mut message = shape::assistant(blocks);
    message.insert("provider".to_owned(), "google".into());
    message.extend(take_text(&mut record, "model").map(|model| ("model".to_owned(), model.into())));
    let usage = record.get("tokens").and_then(|t| shape::usage(t, ["input", "output", "cached", ""], true));
    message.extend(usage.map(|usage| ("usage".to_owned(), usage)));
    let (position, timestamp) = (at.position, at.timestamp.clone());
    draft.reply(at, None, message, record);
    for (id, name, answer, beside) in results {
        let (content, error) = parts::answer(answer);
        let failed = error || matches!(member(&beside, "status"), Some("error" | "cancelled"));
        let time = shape::timestamp(beside.get("timestamp"));
        let timestamp = if time.ms() == 0 { timestamp.clone() } else { time };
        draft.split();
        let at = At { position, id: None, up: Up::Previous, timestamp };
        draft.result(at, shape::result(&id, &name, content, failed), beside);
    }
}

#[cfg(test)]
mod tests;
