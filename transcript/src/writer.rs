//! Writes a recorded session as OpenClaw's session file, version 3.
//!
//! Decision: what a model could be sent becomes entries OpenClaw knows, with the ids and parents they have here; what it
//! has no kind for is wrapped in a `custom` entry, which no model sees. The system prompt, which OpenClaw keeps nowhere,
//! and the model stand in the header, where this crate finds them again.
//!
//! Invariant: reading what was written gives the same branch with the same messages, to the letter.

use serde_json::{Map, Value, json};

use crate::entry::Timestamp;
use crate::import::is_openclaw_entry;
use crate::time::format_iso;
use crate::{Entry, EntryPayload, RecordedSession};

/// Header member with the system prompt.
pub(crate) const SYSTEM: &str = "systemPrompt";
/// Header member with what another format told about the session.
const SOURCE: &str = "source";
/// `customType` of entries that are no OpenClaw entries.
const CUSTOM_TYPE: &str = "context-engine.imported";

/// Members of an entry that its payload or its place decide.
const OWN: [&str; 5] = ["type", "id", "parentId", "timestamp", "message"];

impl RecordedSession {
    /// The session as JSON lines in OpenClaw's format, version 3: a header, then one line for each entry.
    pub fn to_openclaw(&self) -> String {
        let mut lines = self.header().to_string();
        lines.push('\n');
        for entry in &self.entries {
            lines.push_str(&line(entry));
            lines.push('\n');
        }
        lines
    }

    fn header(&self) -> Value {
        let mut header = Map::new();
        header.insert("type".to_owned(), "session".into());
        header.insert("version".to_owned(), 3.into());
        header.insert("id".to_owned(), self.id.as_str().into());
        let is_header = self.meta.get("type").is_some_and(|kind| kind == "session");
        let recorded = self.meta.get("timestamp").filter(|_| is_header).cloned();
        let first = || self.entries.iter().find_map(|entry| timestamp(&entry.timestamp));
        header.extend(recorded.or_else(first).map(|at| ("timestamp".to_owned(), at)));
        header.extend(self.cwd.as_ref().map(|cwd| ("cwd".to_owned(), cwd.as_str().into())));
        header.extend(self.model.as_ref().map(|model| ("modelId".to_owned(), model.as_str().into())));
        header.extend(self.system.as_ref().map(|system| (SYSTEM.to_owned(), system.as_str().into())));
        if is_header {
            for (key, value) in &self.meta {
                header.entry(key.clone()).or_insert_with(|| value.clone());
            }
        } else if !self.meta.is_empty() {
            header.insert(SOURCE.to_owned(), Value::Object(self.meta.clone()));
        }
        Value::Object(header)
    }
}

impl Entry {
    /// The entry as one line of OpenClaw's session file, version 3, without the line's end.
    pub fn to_openclaw(&self) -> String {
        line(self)
    }
}

fn line(entry: &Entry) -> String {
    let mut line = Map::new();
    let raw = || match serde_json::from_str(&entry.raw) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let id = |id: &Option<String>| id.as_ref().map_or(Value::Null, |id| id.as_str().into());
    let mut place = |kind: &str| {
        line.insert("type".to_owned(), kind.into());
        line.insert("id".to_owned(), entry.id.as_str().into());
        line.insert("parentId".to_owned(), id(&entry.parent_id));
        line.extend(timestamp(&entry.timestamp).map(|at| ("timestamp".to_owned(), at)));
    };
    let rest = match &entry.payload {
        EntryPayload::Message(message) => {
            place("message");
            let mut value = message.to_value();
            // The importer dates a message by its entry only when that has a date.
            if message.timestamp_ms != 0
                && entry.timestamp.ms() == 0
                && let Value::Object(map) = &mut value
            {
                map.entry("timestamp").or_insert(message.timestamp_ms.into());
            }
            line.insert("message".to_owned(), value);
            raw()
        }
        EntryPayload::Compaction { summary, first_kept_entry_id, tokens_before, .. } => {
            place("compaction");
            line.insert("summary".to_owned(), summary.as_str().into());
            line.extend(first_kept_entry_id.as_ref().map(|id| ("firstKeptEntryId".to_owned(), id.as_str().into())));
            line.extend(tokens_before.map(|tokens| ("tokensBefore".to_owned(), tokens.into())));
            let raw = raw();
            // Of another format: its members say nothing here.
            if raw.get("summary").is_some() { raw } else { Map::from_iter([(SOURCE.to_owned(), raw.into())]) }
        }
        EntryPayload::Reset { first_kept_entry_id } => {
            place("reset");
            line.extend(first_kept_entry_id.as_ref().map(|id| ("firstKeptEntryId".to_owned(), id.as_str().into())));
            raw()
        }
        EntryPayload::Leaf { target_id } => {
            place("leaf");
            line.insert("targetId".to_owned(), id(target_id));
            raw()
        }
        EntryPayload::CustomMessage(_) | EntryPayload::BranchSummary(_) => {
            place(entry.kind());
            raw()
        }
        EntryPayload::Other { kind } => {
            let raw = raw();
            // Version 1 has no parents; what it calls a kind is one all the same.
            if is_openclaw_entry(&raw) && raw.get("type").is_some_and(|of_raw| of_raw == kind.as_str()) {
                place(kind);
                raw
            } else {
                place("custom");
                let data = json!({ "kind": kind, "record": raw });
                Map::from_iter([("customType".to_owned(), CUSTOM_TYPE.into()), ("data".to_owned(), data)])
            }
        }
    };
    for (key, value) in rest {
        // A place in the file means nothing any more: ids took its part.
        if !OWN.contains(&key.as_str()) && key != "firstKeptEntryIndex" {
            line.entry(key).or_insert(value);
        } else if key == "message" && matches!(entry.payload, EntryPayload::Other { .. }) {
            line.insert(key, value);
        }
    }
    Value::Object(line).to_string()
}

fn timestamp(at: &Timestamp) -> Option<Value> {
    match at {
        Timestamp::Unknown => None,
        Timestamp::Iso(text) => Some(text.as_str().into()),
        Timestamp::Millis(ms) => Some(format_iso(*ms).map_or_else(|| (*ms).into(), Value::from)),
    }
}
