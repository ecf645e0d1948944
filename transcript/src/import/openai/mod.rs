//! OpenAI chat messages: a list of messages, an object around one, a list of dialogues, or any of these by line.
//!
//! Decision: whatever stands around the messages (task, reward, model, …) is kept as the session's `meta`, and messages
//! that already have OpenClaw's shape pass through, so that a list cut out of a session file can be read as well.

mod convert;

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use self::convert::{Calls, convert, is_system, text_of};
use super::build::{self, Parent, SessionBuilder};
use super::lines::{self, Accept, Damage};
use super::unique::UniqueNames;
use crate::entry::Timestamp;
use crate::{Entry, EntryPayload, RecordedSession};

/// Members that hold a dialogue's messages, in the data sets and logs that are about.
const LISTS: [&str; 7] = ["messages", "history", "traj", "conversations", "conversation", "dialogue", "chat"];
/// Members that name a dialogue.
const IDS: [&str; 6] = ["id", "session_id", "sessionId", "conversation_id", "dialogue_id", "instance_id"];
/// Roles of chat messages, and of OpenClaw's.
const ROLES: [&str; 11] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
    "toolResult",
    "bashExecution",
    "custom",
    "branchSummary",
    "compactionSummary",
];
/// Elements of a list that are looked at to know what it holds.
pub(super) const LOOKED_AT: usize = 8;

/// Whether a line shows that the file holds chat messages.
pub(super) fn recognises_line(json: &Value) -> bool {
    is_message(json) || dialogue_list(json).is_some()
}

/// Whether a whole document is chat messages.
pub(super) fn recognises_document(json: &Value) -> bool {
    let empty_dialogue = json.get("messages").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let dialogues = |items: &Vec<Value>| items.iter().take(LOOKED_AT).any(|d| dialogue_list(d).is_some());
    recognises_line(json) || empty_dialogue || json.as_array().is_some_and(dialogues)
}

fn has_role(json: &Value) -> bool {
    json.get("role").is_some_and(Value::is_string)
}

pub(super) fn is_message(json: &Value) -> bool {
    let role = json.get("role").and_then(Value::as_str);
    let says = ["content", "tool_calls", "function_call", "command", "summary"];
    role.is_some_and(|role| ROLES.contains(&role)) && says.iter().any(|key| json.get(key).is_some())
}

fn is_role(role: &Value) -> bool {
    role.as_str().is_some_and(|role| ROLES.contains(&role))
}

/// The list of messages in a dialogue: the value itself, or a member of it.
fn dialogue_list(json: &Value) -> Option<&Vec<Value>> {
    let messages = |list: &&Vec<Value>| list.iter().take(LOOKED_AT).any(is_message);
    match json {
        Value::Array(list) => Some(list).filter(messages),
        Value::Object(map) => LISTS.iter().filter_map(|key| map.get(*key)?.as_array()).find(messages),
        _ => None,
    }
}

/// The sessions of a document, and how many of its elements are no dialogue.
pub(super) fn import_document(name_id: &str, json: Value) -> (Vec<RecordedSession>, u64) {
    let mut sessions = Sessions::new(name_id);
    match json {
        Value::Array(items) if !items.iter().take(LOOKED_AT).any(is_message) => {
            items.into_iter().for_each(|dialogue| sessions.dialogue(dialogue));
        }
        message if is_message(&message) => sessions.loose(message),
        dialogue => sessions.dialogue(dialogue),
    }
    sessions.finish()
}

/// The sessions of a file of lines: one for each dialogue, and one of all messages that stand by themselves.
pub(super) fn import_lines(name_id: &str, bytes: &[u8]) -> (Vec<RecordedSession>, Damage) {
    let mut sessions = Sessions::new(name_id);
    // Among chat messages, whoever has a role has said something, if only nothing: hosts have roles of their own.
    let accept = Accept { line: |json| has_role(json) || dialogue_list(json).is_some(), part: recognises_line };
    let mut damage = lines::read(bytes, &accept, |record| {
        if is_message(&record.json) || dialogue_list(&record.json).is_none() {
            sessions.loose(record.json);
        } else {
            sessions.dialogue(record.json);
        }
        ControlFlow::Continue(())
    });
    let (sessions, lost) = sessions.finish();
    damage.lost += lost;
    (sessions, damage)
}

/// The sessions of a file while it is read.
pub(super) struct Sessions<'a> {
    name_id: &'a str,
    ids: UniqueNames,
    pub(super) done: Vec<RecordedSession>,
    loose: Vec<Value>,
    pub(super) lost: u64,
}

impl<'a> Sessions<'a> {
    pub(super) fn new(name_id: &'a str) -> Sessions<'a> {
        Sessions { name_id, ids: UniqueNames::default(), done: Vec::new(), loose: Vec::new(), lost: 0 }
    }

    fn loose(&mut self, message: Value) {
        self.loose.push(message);
    }

    fn dialogue(&mut self, json: Value) {
        let (messages, meta) = match json {
            Value::Array(messages) => (messages, Map::new()),
            Value::Object(mut map) => {
                let has_messages = |key: &&&str| map.get(**key).and_then(dialogue_list).is_some();
                let key = LISTS.iter().find(has_messages).or_else(|| LISTS.iter().find(|key| map.contains_key(**key)));
                match key.and_then(|key| map.shift_remove(*key)) {
                    Some(Value::Array(messages)) => (messages, map),
                    _ => return self.lost += 1,
                }
            }
            _ => return self.lost += 1,
        };
        self.session(messages, meta);
    }

    /// Adds a dialogue: its messages, and what stands beside them.
    pub(super) fn session(&mut self, messages: Vec<Value>, meta: Map<String, Value>) {
        let wanted = id_of(&meta).unwrap_or_else(|| match self.done.len() {
            0 => self.name_id.to_owned(),
            n => format!("{}-{}", self.name_id, n + 1),
        });
        let id = self.ids.claim(&wanted);
        self.done.push(session(id, messages, meta));
    }

    pub(super) fn finish(mut self) -> (Vec<RecordedSession>, u64) {
        if !self.loose.is_empty() || self.done.is_empty() {
            let messages = std::mem::take(&mut self.loose);
            self.session(messages, Map::new());
        }
        (self.done, self.lost)
    }
}

/// A dialogue's own id, or one made of its task and trial.
fn id_of(meta: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| match meta.get(key)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    IDS.iter().find_map(|key| text(key)).or_else(|| {
        let task = text("task_id")?;
        Some(match text("trial") {
            Some(trial) => format!("task-{task}-trial-{trial}"),
            None => format!("task-{task}"),
        })
    })
}

fn session(id: String, messages: Vec<Value>, meta: Map<String, Value>) -> RecordedSession {
    let mut dialogue = Dialogue { builder: SessionBuilder::new(id), system: Vec::new(), begun: false };
    let mut calls = Calls::default();
    for (position, message) in (1..).zip(messages) {
        match message {
            Value::Object(map) if is_system(&map) => dialogue.system(position, map),
            // Roles that only the agent's own loop knows are no part of what was said to a model.
            Value::Object(map) if map.get("role").is_some_and(|role| !is_role(role)) => {
                let kind = map.get("role").and_then(Value::as_str).unwrap_or("no message").to_owned();
                let kind = EntryPayload::Other { kind };
                dialogue.push(position, None, |_, _| Some(kind), Value::Object(map).to_string());
            }
            Value::Object(map) if map.get("role").is_some_and(Value::is_string) => {
                let id = map.get("id").and_then(Value::as_str).map(str::to_owned);
                let map = convert(map, position, &mut calls);
                dialogue.builder.empty_parts(&map);
                let payload = |id: &str, at: &Timestamp| build::message(id, at, map).map(EntryPayload::Message);
                dialogue.push(position, id, payload, String::new());
            }
            other => {
                let kind = EntryPayload::Other { kind: "no message".to_owned() };
                dialogue.push(position, None, |_, _| Some(kind), other.to_string());
            }
        }
    }
    let mut session = dialogue.builder.finish();
    session.system = Some(dialogue.system.join("\n\n")).filter(|s| !s.is_empty());
    session.model = session.model.or_else(|| Some(meta.get("model")?.as_str()?.to_owned()));
    session.meta = meta;
    session
}

struct Dialogue {
    builder: SessionBuilder,
    /// System messages before the first of another role: all of them are sent.
    system: Vec<String>,
    begun: bool,
}

impl Dialogue {
    fn push(
        &mut self,
        position: u64,
        id: Option<String>,
        payload: impl FnOnce(&str, &Timestamp) -> Option<EntryPayload>,
        raw: String,
    ) {
        self.begun = true;
        let parent_id = self.builder.parent_id(Parent::Previous);
        let id = self.builder.entry_id(id, position);
        let timestamp = Timestamp::Unknown;
        let payload = payload(&id, &timestamp).unwrap_or(EntryPayload::Other { kind: "no message".to_owned() });
        self.builder.push(position, Entry { id, parent_id, timestamp, payload, raw });
    }

    /// The system prompt before the dialogue, what repeats it later, or what differs later: that is kept, not sent.
    fn system(&mut self, position: u64, map: Map<String, Value>) {
        let text = map.get("content").map(text_of).unwrap_or_default();
        if self.system.contains(&text) {
            self.builder.session.counts.skip("system");
        } else if self.begun {
            let kind = EntryPayload::Other { kind: "system".to_owned() };
            self.push(position, None, |_, _| Some(kind), Value::Object(map).to_string());
        } else {
            self.builder.session.counts.skip("system");
            self.system.push(text);
        }
    }
}

#[cfg(test)]
mod tests;
