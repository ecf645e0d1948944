//! OpenClaw's session files, and those of its ancestor pi: one JSON entry per line, version 1 to 3.
//!
//! Version 1 has no ids and is linear, and a compaction names the entry it kept by its place in the file; version 2
//! added `id` and `parentId`; version 3 renamed role `hookMessage` to `custom` (contract, 5.1).

use std::ops::ControlFlow;

use context_engine_interface::Role;
use serde_json::{Map, Value};

use super::build::{self, Parent, SessionBuilder};
use super::lines::{self, Accept, Damage};
use crate::entry::Timestamp;
use crate::writer::SYSTEM;
use crate::{Entry, EntryPayload, RecordedSession};

/// Kinds this format is known to have; a damaged record's parts are not taken for entries.
pub(crate) const KINDS: [&str; 12] = [
    "session",
    "message",
    "compaction",
    "branch_summary",
    "custom",
    "custom_message",
    "thinking_level_change",
    "model_change",
    "label",
    "session_info",
    "reset",
    "leaf",
];

/// Whether a line shows that the file is of this format.
pub(super) fn recognises(json: &Value) -> bool {
    match json.get("type").and_then(Value::as_str) {
        Some("session") => ["id", "version", "cwd"].iter().any(|key| json.get(key).is_some()),
        Some("message") => json.get("message").and_then(|m| m.get("role")).is_some_and(Value::is_string),
        Some("compaction") => json.get("summary").is_some_and(Value::is_string),
        _ => false,
    }
}

/// Whether an object is an entry, of a kind known here or by its place in the tree.
pub(crate) fn is_entry(json: &Map<String, Value>) -> bool {
    let kind = json.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| KINDS.contains(&kind)) || (kind.is_some() && json.contains_key("parentId"))
}

/// What counts as an entry or a header.
pub(crate) const ACCEPT: Accept = Accept {
    line: |json| json.get("type").is_some_and(Value::is_string),
    part: |json| json.as_object().is_some_and(is_entry),
};

/// What an entry needs to know about others to be made from its JSON.
pub(crate) trait References {
    /// The id an entry has now, for one that another entry refers to.
    fn current_id(&self, recorded: String) -> String;
    /// The id of the entry at a place in the file, as version 1 counts them.
    fn id_at(&self, position: u64) -> Option<String>;
}

impl References for SessionBuilder {
    fn current_id(&self, recorded: String) -> String {
        SessionBuilder::current_id(self, recorded)
    }

    fn id_at(&self, position: u64) -> Option<String> {
        SessionBuilder::id_at(self, position)
    }
}

/// The entry that an object of the file is, under the id and parent found for it.
pub(crate) fn entry(
    id: String,
    parent_id: Option<String>,
    map: Map<String, Value>,
    references: &impl References,
) -> Entry {
    let timestamp = match map.get("timestamp") {
        Some(Value::String(text)) => Timestamp::Iso(text.clone()),
        Some(Value::Number(ms)) => Timestamp::Millis(ms.as_f64().unwrap_or(0.0) as i64),
        _ => Timestamp::Unknown,
    };
    let (payload, raw) = payload(references, &id, &timestamp, map);
    Entry { id, parent_id, timestamp, payload, raw }
}

/// All sessions of the file: a second header with another id starts another. Also the format's version.
pub(super) fn import(name_id: &str, bytes: &[u8]) -> (u32, Vec<RecordedSession>, Damage) {
    let mut reader = Reader::new(name_id);
    let damage = lines::read(bytes, &ACCEPT, |record| {
        if let Value::Object(map) = record.json {
            reader.record(record.position, map);
        }
        ControlFlow::Continue(())
    });
    let (version, sessions) = reader.finish();
    (version, sessions, damage)
}

/// Makes sessions of records, which are given to it in the order of the file.
pub(crate) struct Reader<'a> {
    name_id: &'a str,
    version: Option<u32>,
    has_ids: bool,
    header: bool,
    done: Vec<RecordedSession>,
    builder: Option<SessionBuilder>,
}

impl<'a> Reader<'a> {
    /// `name_id` is the id of a session without a header.
    pub(crate) fn new(name_id: &'a str) -> Reader<'a> {
        Reader { name_id, version: None, has_ids: false, header: false, done: Vec::new(), builder: None }
    }

    /// The format's version, and all sessions.
    pub(crate) fn finish(self) -> (u32, Vec<RecordedSession>) {
        let version = self.version.unwrap_or(if self.has_ids { 3 } else { 1 });
        (version, self.done.into_iter().chain(self.builder.map(SessionBuilder::finish)).collect())
    }

    /// `position`: records before it in the file, lost ones included.
    pub(crate) fn record(&mut self, position: u64, map: Map<String, Value>) {
        if map.get("type").and_then(Value::as_str) == Some("session") {
            return self.header(map);
        }
        let builder = self.builder.get_or_insert_with(|| SessionBuilder::new(self.name_id.to_owned()));
        let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        let recorded_id = text("id").filter(|id| !id.trim().is_empty());
        let parent_id = builder.parent_id(match map.get("parentId") {
            Some(Value::Null) => Parent::Root,
            Some(Value::String(id)) => Parent::Recorded(id.clone()),
            _ => Parent::Previous,
        });
        match recorded_id {
            Some(_) => self.has_ids = true,
            None => builder.session.counts.mend("made-up id"),
        }
        let id = builder.entry_id(recorded_id, position);
        if let Some(message) = said(&map) {
            builder.empty_parts(message);
        }
        let entry = entry(id, parent_id, map, &*builder);
        builder.push(position, entry);
    }

    fn header(&mut self, map: Map<String, Value>) {
        let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
        let id = text("id").unwrap_or_else(|| self.name_id.to_owned());
        let version = map.get("version").and_then(Value::as_u64).and_then(|v| u32::try_from(v).ok()).unwrap_or(1);
        self.version.get_or_insert(version);
        if self.header && self.builder.as_ref().is_some_and(|b| b.session.id != id) {
            self.done.extend(self.builder.take().map(SessionBuilder::finish));
        }
        let first = !self.header || self.builder.is_none();
        self.header = true;
        let session = &mut self.builder.get_or_insert_with(|| SessionBuilder::new(id.clone())).session;
        session.counts.skip("session");
        if first {
            (session.id, session.cwd, session.model) = (id, text("cwd"), text("modelId"));
            session.system = text(SYSTEM);
            session.meta = map;
        }
    }
}

/// What an entry carries, and its JSON as [`Entry::raw`] wants it.
fn payload(
    references: &impl References,
    id: &str,
    timestamp: &Timestamp,
    mut map: Map<String, Value>,
) -> (EntryPayload, String) {
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind == "message" {
        // A member that is no message is put back where the others end.
        let message = map.shift_remove("message");
        return match message {
            Some(Value::Object(message)) if has_role(&message) => message_payload(id, timestamp, message, map),
            no_message => {
                map.extend(no_message.map(|no_message| ("message".to_owned(), no_message)));
                (EntryPayload::Other { kind }, Value::Object(map).to_string())
            }
        };
    }
    let raw = Value::Object(map.clone()).to_string();
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let reference = |key: &str| text(key).map(|id| references.current_id(id));
    let first_kept = reference("firstKeptEntryId")
        .or_else(|| map.get("firstKeptEntryIndex").and_then(Value::as_u64).and_then(|at| references.id_at(at)));
    let as_message = |role: &str, members: &[&str]| {
        let mut message = Map::from_iter([("role".to_owned(), Value::from(role))]);
        for member in members {
            if let Some(value) = map.get(*member) {
                message.insert((*member).to_owned(), value.clone());
            }
        }
        message.insert("timestamp".to_owned(), timestamp.ms().into());
        build::message(id, timestamp, message)
    };
    let payload = match kind.as_str() {
        "custom_message" => {
            as_message("custom", &["customType", "content", "display", "details"]).map(EntryPayload::CustomMessage)
        }
        "branch_summary" if text("summary").is_some_and(|s| !s.trim().is_empty()) => {
            as_message("branchSummary", &["summary", "fromId"]).map(EntryPayload::BranchSummary)
        }
        "compaction" => {
            as_message("compactionSummary", &["summary", "tokensBefore"]).map(|message| EntryPayload::Compaction {
                summary: text("summary").unwrap_or_default(),
                first_kept_entry_id: first_kept,
                tokens_before: map.get("tokensBefore").and_then(Value::as_u64),
                message,
            })
        }
        "reset" => Some(EntryPayload::Reset { first_kept_entry_id: first_kept }),
        "leaf" => Some(EntryPayload::Leaf { target_id: reference("targetId") }),
        _ => None,
    };
    (payload.unwrap_or(EntryPayload::Other { kind }), raw)
}

/// The message that an entry of type `message` carries.
fn said(entry: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let is_message = entry.get("type").is_some_and(|kind| kind == "message");
    entry.get("message").filter(|_| is_message)?.as_object().filter(|message| has_role(message))
}

fn has_role(message: &Map<String, Value>) -> bool {
    message.get("role").is_some_and(Value::is_string)
}

fn message_payload(
    id: &str,
    timestamp: &Timestamp,
    mut message: Map<String, Value>,
    mut beside: Map<String, Value>,
) -> (EntryPayload, String) {
    if message.get("role").and_then(Value::as_str) == Some("hookMessage") {
        message.insert("role".to_owned(), Role::CUSTOM.name().into());
    }
    beside.retain(|key, _| !matches!(key.as_str(), "type" | "id" | "parentId" | "timestamp"));
    let raw = if beside.is_empty() { String::new() } else { Value::Object(beside).to_string() };
    match build::message(id, timestamp, message) {
        Some(message) => (EntryPayload::Message(message), raw),
        None => (EntryPayload::Other { kind: "message".to_owned() }, raw),
    }
}
