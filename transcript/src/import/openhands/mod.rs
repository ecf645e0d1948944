//! OpenHands: the events of its SDK (one JSON per line, or a list), and the older list of actions and observations.
//!
//! Decision: an event is not a message. Actions of one model response are one reply, observations are results, a
//! condensation is a compaction, and what tells the state of the run is counted.

mod actions;
mod events;

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::draft::{At, Draft, Up};
use super::lines::{self, Accept, Damage};
use super::shape::{self, member};
use crate::RecordedSession;

/// Members that hold a run's events.
const LISTS: [&str; 3] = ["history", "events", "trajectory"];
const LOOKED_AT: usize = 16;

/// Whether a line is an event of either kind, or a whole run.
pub(super) fn recognises_line(json: &Value) -> bool {
    is_event(json) || list(json).is_some()
}

fn is_event(json: &Value) -> bool {
    events::recognises(json) || actions::recognises(json)
}

fn list(json: &Value) -> Option<&'static str> {
    let holds = |list: &Vec<Value>| list.iter().take(LOOKED_AT).any(is_event);
    LISTS.into_iter().find(|key| json.get(*key).and_then(Value::as_array).is_some_and(holds))
}

pub(super) fn recognises_document(json: &Value) -> bool {
    let holds = |list: &Vec<Value>| list.iter().take(LOOKED_AT).any(is_event);
    json.as_array().is_some_and(holds) || list(json).is_some()
}

pub(super) fn import_document(name_id: &str, mut json: Value) -> (RecordedSession, u64) {
    let key = list(&json);
    let items = match key {
        Some(key) => json.get_mut(key).map(Value::take),
        None => Some(json.take()),
    };
    let mut run = Run::new(name_id);
    if let (Value::Object(mut map), Some(key)) = (json, key) {
        map.shift_remove(key);
        let id = ["instance_id", "id", "conversation_id"].iter().find_map(|key| member(&map, key));
        if let Some(id) = id {
            run.draft.builder.session.id = id.to_owned();
        }
        run.draft.builder.session.meta = map;
    }
    let mut lost = 0;
    if let Some(Value::Array(items)) = items {
        for (position, item) in (1..).zip(items) {
            match item {
                Value::Object(map) => run.event(position, map),
                _ => lost += 1,
            }
        }
    }
    (run.finish(), lost)
}

/// One session of all events, and one for each line that is a whole run.
pub(super) fn import_lines(name_id: &str, bytes: &[u8]) -> (Vec<RecordedSession>, Damage) {
    let mut run: Option<Run> = None;
    let mut sessions = Vec::new();
    let mut lost = 0;
    let mut damage = lines::read(bytes, &Accept { line: Value::is_object, part: is_event }, |record| {
        if list(&record.json).is_some() {
            let (session, lost_of_run) = import_document(&format!("{name_id}-{}", sessions.len() + 1), record.json);
            sessions.push(session);
            lost += lost_of_run;
        } else if let Value::Object(map) = record.json {
            run.get_or_insert_with(|| Run::new(name_id)).event(record.position, map);
        }
        ControlFlow::Continue(())
    });
    damage.lost += lost;
    if run.is_some() || sessions.is_empty() {
        sessions.push(run.unwrap_or_else(|| Run::new(name_id)).finish());
    }
    (sessions, damage)
}

struct Run {
    draft: Draft,
    /// Said to the model before anything else.
    system: Option<String>,
}

impl Run {
    fn new(name_id: &str) -> Run {
        Run { draft: Draft::new(name_id.to_owned()), system: None }
    }

    fn event(&mut self, position: u64, map: Map<String, Value>) {
        let id = match map.get("id") {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        };
        // Later versions of the SDK record a tree.
        let up = match member(&map, "parent_id") {
            Some("__root__") => Up::Root,
            Some(parent) => Up::SourceOrPrevious(parent.to_owned()),
            None => Up::Previous,
        };
        let at = At { position, id, up, timestamp: shape::timestamp(map.get("timestamp")) };
        if map.contains_key("kind") { self.sdk_event(at, map) } else { self.older_event(at, map) }
    }

    /// The system prompt; a later one that differs is kept and not sent.
    fn system(&mut self, at: At, text: Option<String>, record: Map<String, Value>) {
        match text {
            Some(text) if self.system.is_none() => {
                self.system = Some(text);
                self.draft.builder.session.counts.skip("system");
            }
            text if text == self.system => self.draft.builder.session.counts.skip("system"),
            _ => self.draft.other(at, "system", record),
        }
    }

    /// Older messages became a summary; what follows the last of those that are gone stays.
    fn condensed(
        &mut self,
        at: At,
        summary: Option<&str>,
        forgotten: Option<String>,
        record: Map<String, Value>,
        kind: &str,
    ) {
        match summary.filter(|summary| !summary.trim().is_empty()).map(str::to_owned) {
            Some(summary) => {
                let first_kept = forgotten.and_then(|id| self.draft.id_behind(&id));
                self.draft.summary(at, summary, None, first_kept, record);
            }
            None => self.draft.other(at, kind, record),
        }
    }

    fn finish(mut self) -> RecordedSession {
        self.draft.builder.session.system = self.system;
        self.draft.finish()
    }
}

#[cfg(test)]
mod tests;
