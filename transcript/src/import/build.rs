//! Puts a session together from records: ids, parents, counts.
//!
//! Invariant: in a finished session ids are unique and never empty, and a message's id is its entry's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::unique::UniqueNames;
use crate::entry::Timestamp;
use crate::{Entry, EntryPayload, Message, RecordedSession, content};

/// A session being read.
pub(super) struct SessionBuilder {
    pub(super) session: RecordedSession,
    ids: UniqueNames,
    /// What a recorded id that was taken already stands for now.
    renamed: HashMap<String, String>,
    /// File position and index of each entry, ascending.
    positions: Vec<(u64, usize)>,
}

/// Where an entry hangs.
pub(super) enum Parent {
    /// The source says it starts a branch.
    Root,
    /// The source names it.
    Recorded(String),
    /// The source says nothing: the entry before.
    Previous,
}

impl SessionBuilder {
    pub(super) fn new(id: String) -> SessionBuilder {
        let session = RecordedSession { id, ..RecordedSession::default() };
        SessionBuilder { session, ids: UniqueNames::default(), renamed: HashMap::new(), positions: Vec::new() }
    }

    /// A free id: the recorded one, that with a suffix, or one made from the position.
    pub(super) fn entry_id(&mut self, recorded: Option<String>, position: u64) -> String {
        let recorded = recorded.filter(|id| !id.trim().is_empty());
        let wanted = recorded.clone().unwrap_or_else(|| format!("m{position:06}"));
        let id = self.ids.claim(&wanted);
        if id == wanted {
            return id;
        }
        if let Some(recorded) = recorded {
            self.session.counts.mend("duplicate id");
            self.renamed.insert(recorded, id.clone());
        }
        id
    }

    /// The id an entry has now, for one a later entry refers to.
    pub(super) fn current_id(&self, recorded: String) -> String {
        self.renamed.get(&recorded).cloned().unwrap_or(recorded)
    }

    /// The id of the parent. Must be asked before [`SessionBuilder::entry_id`]: an entry may bear its parent's id.
    pub(super) fn parent_id(&self, parent: Parent) -> Option<String> {
        match parent {
            Parent::Root => None,
            Parent::Recorded(id) => Some(self.current_id(id)),
            Parent::Previous => self.session.entries.last().map(|e| e.id.clone()),
        }
    }

    pub(super) fn id_at(&self, position: u64) -> Option<String> {
        let i = self.positions.binary_search_by_key(&position, |(p, _)| *p).ok()?;
        let (_, index) = self.positions.get(i)?;
        self.session.entries.get(*index).map(|e| e.id.clone())
    }

    /// Counts the parts of a message that hold nothing and are left out when it is made.
    pub(super) fn empty_parts(&mut self, message: &Map<String, Value>) {
        for _ in 0..content::empty_parts(message) {
            self.session.counts.mend("empty part");
        }
    }

    pub(super) fn push(&mut self, position: u64, entry: Entry) {
        match entry.message() {
            Some(message) => self.session.counts.message(message),
            None => self.session.counts.skip(entry.kind()),
        }
        self.positions.push((position, self.session.entries.len()));
        self.session.entries.push(entry);
    }

    pub(super) fn finish(mut self) -> RecordedSession {
        let known: HashSet<&str> = self.session.entries.iter().map(|e| e.id.as_str()).collect();
        let lost = |e: &&Entry| e.parent_id.as_deref().is_some_and(|p| !known.contains(p));
        let lost_parents = self.session.entries.iter().filter(lost).count();
        for _ in 0..lost_parents {
            self.session.counts.mend("lost parent");
        }
        self.session.model = last_model(&self.session).or(self.session.model);
        self.session
    }
}

/// A message under its entry's id, dated by its entry when it has no date of its own.
pub(super) fn message(id: &str, timestamp: &Timestamp, map: Map<String, Value>) -> Option<Arc<Message>> {
    let mut message = Message::from_map(id, map).ok()?;
    if message.timestamp_ms == 0 {
        message.timestamp_ms = timestamp.ms();
    }
    Some(Arc::new(message))
}

/// The model that answered last on the active branch, or was chosen after that.
fn last_model(session: &RecordedSession) -> Option<String> {
    session.active_branch().into_iter().rev().find_map(|entry| match &entry.payload {
        EntryPayload::Other { kind } if kind == "model_change" => member(&entry.raw, "modelId"),
        // OpenClaw records what it delivered or injected itself as replies of a provider of its own name.
        EntryPayload::Message(m) if member(&m.json, "provider").as_deref() != Some("openclaw") => {
            member(&m.json, "model")
        }
        _ => None,
    })
}

/// A string member of a JSON object, without making values of the others.
pub(crate) fn member(json: &str, key: &str) -> Option<String> {
    let members: HashMap<&str, &serde_json::value::RawValue> = serde_json::from_str(json).ok()?;
    let text: String = serde_json::from_str(members.get(key)?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}
