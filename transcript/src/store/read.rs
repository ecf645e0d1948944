//! What is read from a session file: single entries, pages of them, and the context of the next call (contract, 5.2).

use std::io;

use serde_json::{Map, Value};

use super::index::Kind;
use super::{Here, SessionStore, StoredContext, platform};
use crate::import::build;
use crate::import::openclaw::{self, References};
use crate::{Entry, EntryPayload, TranscriptError};

/// What is read at a time where entries stand side by side.
const WINDOW: usize = 64 * 1024;

impl SessionStore {
    /// An entry of any branch; `None` when no entry has this id.
    ///
    /// # Errors
    /// [`TranscriptError::Read`], [`TranscriptError::EntryGone`].
    pub fn entry(&self, id: &str) -> Result<Option<Entry>, TranscriptError> {
        self.index.find(id).map(|place| Bodies::one(self).entry(place)).transpose()
    }

    /// Up to `limit` entries of the active branch as they stand in the file, oldest first: those behind entry `after`, or
    /// from the first on; none from entry `before` on.
    ///
    /// # Errors
    /// [`TranscriptError::EntryNotFound`] for an id that is not on the active branch, and those of
    /// [`SessionStore::entry`].
    pub fn page(&self, after: Option<&str>, limit: usize, before: Option<&str>) -> Result<Vec<Value>, TranscriptError> {
        let first = after.map_or(Ok(0), |id| self.on_branch(id).map(|at| at + 1))?;
        let end = before.map_or(Ok(self.branch.len()), |id| self.on_branch(id))?;
        let last = first.saturating_add(limit).min(end);
        let mut bodies = Bodies::of(self);
        let page = self.branch.get(first..last).unwrap_or_default().iter().map(|&place| {
            let mut map = bodies.map(place as usize)?;
            // One that was recorded under a taken id, or none, is asked for by the id it has here.
            let id = self.index.id(place as usize);
            if map.get("id").is_none_or(|recorded| recorded != id) {
                map.insert("id".to_owned(), id.into());
            }
            Ok(Value::Object(map))
        });
        page.collect()
    }

    /// The context for the next call: the summary of the active branch's last compaction, what it kept, and what came
    /// after (contract, 5.2). Entries no model sees are not in it, and nothing of another branch is.
    ///
    /// # Errors
    /// [`TranscriptError::Read`], [`TranscriptError::EntryGone`].
    pub fn context(&self) -> Result<StoredContext, TranscriptError> {
        let mut bodies = Bodies::of(self);
        let mut context = StoredContext::default();
        let kind = |at: usize| self.branch.get(at).map(|&place| self.index.kind(place as usize));
        let boundary = (0..self.branch.len()).rev().find(|&at| kind(at) == Some(Kind::Boundary));
        let mut first = 0;
        if let Some(at) = boundary {
            let entry = bodies.entry(self.branch.get(at).map_or(0, |&place| place as usize))?;
            context.summary = entry.summary().cloned();
            first = match &entry.payload {
                EntryPayload::Compaction { first_kept_entry_id: Some(id), .. }
                | EntryPayload::Reset { first_kept_entry_id: Some(id) } => {
                    self.on_branch(id).ok().filter(|kept| *kept < at).unwrap_or(at)
                }
                _ => at,
            };
        }
        for &place in self.branch.get(first..).unwrap_or_default() {
            let kind = self.index.kind(place as usize);
            if matches!(kind, Kind::Said | Kind::ModelChange) {
                let entry = bodies.entry(place as usize)?;
                context.model = model(&entry).or(context.model);
                context.messages.extend(entry.message().cloned());
            }
        }
        let mut before = self.branch.get(..first).unwrap_or_default().iter().rev();
        while context.model.is_none()
            && let Some(&place) = before.next()
        {
            if matches!(self.index.kind(place as usize), Kind::Said | Kind::ModelChange) {
                context.model = model(&bodies.entry(place as usize)?);
            }
        }
        context.model = context.model.or_else(|| {
            let id = self.header()?.get("modelId")?.as_str().filter(|id| !id.is_empty())?;
            Some((None, id.to_owned()))
        });
        Ok(context)
    }

    /// Where on the active branch the entry of an id is.
    pub(super) fn on_branch(&self, id: &str) -> Result<usize, TranscriptError> {
        let place = self.index.find(id).ok_or_else(|| self.not_found(id, ""))?;
        let is_it = |on: &u32| *on as usize == place;
        // Places ascend along a branch, except where links lead forwards.
        let near = self.branch.binary_search_by(|on| (*on as usize).cmp(&place)).ok();
        let at = near.or_else(|| self.branch.iter().position(is_it));
        at.ok_or_else(|| self.not_found(id, " on the active branch"))
    }
}

/// Provider and id of the model an entry speaks of.
fn model(entry: &Entry) -> Option<(Option<String>, String)> {
    let (json, id) = match &entry.payload {
        EntryPayload::Other { kind } if kind == "model_change" => (&entry.raw, "modelId"),
        // OpenClaw records what it delivered or injected itself as replies of a provider of its own name.
        EntryPayload::Message(m) if build::member(&m.json, "provider").as_deref() != Some("openclaw") => {
            (&m.json, "model")
        }
        _ => return None,
    };
    Some((build::member(json, "provider"), build::member(json, id)?))
}

/// Reads bodies, several of neighbours at a time.
pub(super) struct Bodies<'a> {
    store: &'a SessionStore,
    window: Vec<u8>,
    /// How much of `window` was read, and from where in the file.
    filled: usize,
    at: u64,
    /// What is read at least.
    least: usize,
}

impl<'a> Bodies<'a> {
    pub(super) fn of(store: &'a SessionStore) -> Bodies<'a> {
        Bodies { store, window: Vec::new(), filled: 0, at: 0, least: WINDOW }
    }

    /// For a single body.
    fn one(store: &'a SessionStore) -> Bodies<'a> {
        Bodies { least: 0, ..Bodies::of(store) }
    }

    /// An entry's JSON.
    pub(super) fn map(&mut self, place: usize) -> Result<Map<String, Value>, TranscriptError> {
        let index = &self.store.index;
        let gone = || TranscriptError::EntryGone { path: self.store.path.clone(), id: index.id(place).to_owned() };
        let json: Value = match index.mended(place) {
            Some(json) => serde_json::from_str(json).map_err(|_| gone())?,
            None => {
                let read = |source| TranscriptError::Read { path: self.store.path.clone(), source };
                let (at, length) = index.line(place);
                if !self.is_read(at, length) {
                    self.fill(at, length).map_err(read)?;
                }
                let start = usize::try_from(at - self.at).unwrap_or(usize::MAX);
                let line = self.window.get(start..self.filled).and_then(|from| from.get(..length)).ok_or_else(gone)?;
                let line = std::str::from_utf8(line).map_err(|_| gone())?;
                serde_json::from_str(line).map_err(|_| gone())?
            }
        };
        let Value::Object(map) = json else { return Err(gone()) };
        let recorded = map.get("id").and_then(Value::as_str).filter(|id| !id.trim().is_empty());
        // A taken id has a number behind it here.
        if recorded.is_some_and(|recorded| !index.id(place).starts_with(recorded)) {
            return Err(gone());
        }
        Ok(map)
    }

    pub(super) fn entry(&mut self, place: usize) -> Result<Entry, TranscriptError> {
        let map = self.map(place)?;
        let index = &self.store.index;
        let before = place.checked_sub(1);
        let parent = match map.get("parentId") {
            Some(Value::Null) => None,
            Some(Value::String(id)) => {
                Some(before.map_or_else(|| id.clone(), |before| Here(index, before).current_id(id.clone())))
            }
            _ => before.map(|before| index.id(before).to_owned()),
        };
        Ok(openclaw::entry(index.id(place).to_owned(), parent, map, &Here(index, place)))
    }

    fn is_read(&self, at: u64, length: usize) -> bool {
        at >= self.at && at + length as u64 <= self.at + self.filled as u64
    }

    fn fill(&mut self, at: u64, length: usize) -> io::Result<()> {
        let wanted = length.max(self.least);
        if self.window.len() < wanted {
            self.window = vec![0; wanted];
        }
        (self.at, self.filled) = (at, 0);
        while self.filled < length {
            let rest = self.window.get_mut(self.filled..).unwrap_or_default();
            match platform::read_at(&self.store.file, rest, at + self.filled as u64) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
