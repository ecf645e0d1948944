//! Messages of the active branch replaced (contract, 5.3): the branch from the first of them on is written again.
//!
//! Decision: nothing is changed in place. What is written again hangs on what stood before the first replaced message; the
//! old entries stay, reachable by their ids, on a branch of their own. All of it is one write, and all but its last entry
//! say that more follows: a process that ends in the middle of it leaves the old branch active.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::index::Kind;
use super::read::Bodies;
use super::{NewLine, Rewrite, SessionStore};
use crate::TranscriptError;
use crate::branch::{REWRITE_CONTINUES, Up};

/// Members by which one entry refers to another.
const REFERENCES: [&str; 3] = ["firstKeptEntryId", "targetId", "fromId"];

/// Messages to be replaced.
struct Changes<'a> {
    /// Where on the branch the first of them is.
    first: usize,
    /// What the message at a place is replaced by.
    messages: HashMap<u32, &'a Map<String, Value>>,
    bytes_freed: u64,
}

impl SessionStore {
    /// Replaces messages of the active branch, by the ids of their entries. Every entry from the first replaced one on is
    /// written again under a new id, and what refers to one of them by the new id.
    ///
    /// Ids that name no message of the active branch, and messages that are as they were, change nothing; of two
    /// replacements of one message the last counts.
    ///
    /// # Errors
    /// [`TranscriptError::Message`] for a replacement without a role, and those of [`SessionStore::append`] and
    /// [`SessionStore::entry`].
    pub fn rewrite(&mut self, replacements: &[(String, Map<String, Value>)]) -> Result<Rewrite, TranscriptError> {
        let nothing = |reason: &str| Rewrite { reason: Some(reason.to_owned()), ..Rewrite::default() };
        let mut wanted: HashMap<&str, &Map<String, Value>> = HashMap::new();
        for (id, message) in replacements.iter().filter(|(id, _)| !id.trim().is_empty()) {
            wanted.insert(id.as_str(), message);
        }
        if wanted.is_empty() {
            return Ok(nothing("no replacements requested"));
        }
        self.catch_up()?;
        if self.branch.is_empty() {
            return Ok(nothing("empty session"));
        }
        let Some(Changes { first, messages, bytes_freed }) = self.changes(&wanted)? else {
            return Ok(nothing("no changed matching message entries"));
        };
        let (lines, new_ids) = self.again(first, &messages)?;
        self.grow("rewriting entries of the session", lines, first)?;
        Ok(Rewrite { changed: true, rewritten: messages.len(), bytes_freed, reason: None, new_ids })
    }

    fn changes<'a>(
        &self,
        wanted: &HashMap<&str, &'a Map<String, Value>>,
    ) -> Result<Option<Changes<'a>>, TranscriptError> {
        let mut bodies = Bodies::of(self);
        let (mut first, mut messages, mut bytes_freed) = (None, HashMap::new(), 0);
        for (at, &place) in self.branch.iter().enumerate() {
            if self.index.kind(place as usize) != Kind::Said {
                continue;
            }
            let id = self.index.id(place as usize);
            let Some(&message) = wanted.get(id) else { continue };
            let entry = bodies.map(place as usize)?;
            let Some(old) = entry.get("message").filter(|_| entry.get("type").is_some_and(|kind| kind == "message"))
            else {
                continue;
            };
            let (old, new) = (old.to_string(), serde_json::to_string(message).unwrap_or_default());
            if old == new {
                continue;
            }
            if !message.get("role").is_some_and(Value::is_string) {
                return Err(TranscriptError::Message { id: id.to_owned(), expected: "a `role` string" });
            }
            bytes_freed += old.len().saturating_sub(new.len()) as u64;
            messages.insert(place, message);
            first.get_or_insert(at);
        }
        Ok(first.map(|first| Changes { first, messages, bytes_freed }))
    }

    /// The lines of the branch from `first` on, and their new ids by the old ones.
    fn again(
        &self,
        first: usize,
        messages: &HashMap<u32, &Map<String, Value>>,
    ) -> Result<(Vec<NewLine>, HashMap<String, String>), TranscriptError> {
        // A move of the leaf says nothing on a branch, and would move it again.
        let is_moved = |place: &&u32| self.index.kind(**place as usize) != Kind::Leaf;
        let suffix: Vec<u32> = self.branch.iter().skip(first).filter(is_moved).copied().collect();
        let new_ids: HashMap<String, String> =
            suffix.iter().map(|&place| (self.index.id(place as usize).to_owned(), self.free_id())).collect();
        let root = first.checked_sub(1).and_then(|before| self.branch.get(before)).map(|&place| place as usize);
        let mut bodies = Bodies::of(self);
        let mut lines: Vec<NewLine> = Vec::with_capacity(suffix.len());
        for &place in &suffix {
            let mut line = bodies.map(place as usize)?;
            let id = new_ids.get(self.index.id(place as usize)).cloned().unwrap_or_default();
            let parent = lines.last().map(|line| line.id.as_str()).or_else(|| root.map(|root| self.index.id(root)));
            line.insert("id".to_owned(), id.as_str().into());
            line.insert("parentId".to_owned(), parent.map_or(Value::Null, Value::from));
            for member in REFERENCES {
                if let Some(Value::String(old)) = line.get_mut(member)
                    && let Some(named) = self.index.named(old, place as usize)
                {
                    let old_id = self.index.id(named);
                    *old = new_ids.get(old_id).map_or(old_id, String::as_str).to_owned();
                }
            }
            if let Some(message) = messages.get(&place) {
                line.insert("message".to_owned(), Value::Object((*message).clone()));
            }
            let continues = lines.len() + 1 < suffix.len();
            line.shift_remove(REWRITE_CONTINUES);
            if continues {
                line.insert(REWRITE_CONTINUES.to_owned(), true.into());
            }
            let text = self.readable("message", &mut line)?;
            let parent = match lines.len().checked_sub(1) {
                Some(before) => Up::At(self.index.len() + before),
                None => root.map_or(Up::Root, Up::At),
            };
            lines.push(NewLine { id, kind: self.index.kind(place as usize), continues, parent, text });
        }
        Ok((lines, new_ids))
    }
}
