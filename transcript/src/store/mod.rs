//! The store a live session is kept in: one file of JSON lines (OpenClaw's format, version 3) that only ever grows.
//!
//! Decision: the file is the session, and what was written stays as it was written. An entry is one line and one write
//! at the end of the file, so whatever ends the process costs at most the line it was writing; damage, of this or any
//! other origin, is read around and said, never mended in place. A rewrite and a move to another branch are appended,
//! too. In memory there is an index of places, and bodies are read when they are asked for.
//!
//! Decision: one writer. A lock keeps others out; against those that ignore it, the file is looked at before each write,
//! and what they appended becomes part of the session or is said to stand beside it.
//!
//! Invariant: the branch and the context of an open store are those that the importer reads from its file.

mod brief;
mod calls;
mod head;
mod index;
mod listing;
mod lock;
mod new_entry;
mod open;
mod platform;
mod process;
mod read;
mod repair;
mod rewrite;
mod scan;
mod survey;
mod tail;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use uuid::Uuid;

pub use self::calls::unanswered_calls;
use self::head::Head;
use self::index::{Index, Kind, NewPlace};
pub use self::listing::{SessionSummary, find, list, one_line, summary};
pub use self::lock::{LockOwner, SessionLock};
pub use self::new_entry::{Appended, NewEntry, Rewrite, SessionHeader, StoredContext};
pub use self::open::OpenReport;
pub use self::repair::{RepairOptions, RepairReport, repair};
use self::scan::Scan;
pub use self::survey::{Findings, HeaderState};
use self::tail::OnDisk;
use crate::branch::Up;
use crate::import::openclaw::{self, References};
use crate::{TranscriptError, content};

/// The one writer of a session file.
#[derive(Debug)]
pub struct SessionStore {
    path: PathBuf,
    file: File,
    /// What tells the file from one that takes its place.
    identity: Option<(u64, u64)>,
    scan: Scan,
    index: Index,
    /// Places of the active branch's entries, from the root to the leaf.
    branch: Vec<u32>,
    foreign: u64,
    /// Whether bytes of a write that failed are in the file.
    has_left_over: bool,
    /// Whether the file's name is as durable as its content.
    is_name_synced: bool,
    /// Last, so that it is let go of when the file is closed.
    _lock: SessionLock,
}

/// A line to be written.
struct NewLine {
    id: String,
    kind: Kind,
    continues: bool,
    parent: Up,
    text: String,
}

impl SessionStore {
    /// The session's id: the header's, or what the file's name says where the header is lost.
    pub fn id(&self) -> &str {
        self.scan.id()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header's members; `None` where it is lost.
    pub fn header(&self) -> Option<&Map<String, Value>> {
        self.scan.header.as_ref()
    }

    /// The id of the active branch's last entry; `None` before the first.
    pub fn leaf(&self) -> Option<&str> {
        self.branch.last().map(|&place| self.index.id(place as usize))
    }

    /// How many entries the file has, on all branches and of all kinds; the header is none.
    pub fn entries(&self) -> usize {
        self.index.len()
    }

    /// The ids of the active branch, from the root to the leaf.
    pub fn branch_ids(&self) -> Vec<&str> {
        self.branch.iter().map(|&place| self.index.id(place as usize)).collect()
    }

    /// How often lines of another program were found in the file since it was opened.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Appends an entry below the leaf, and makes it the leaf. It is in the file when this returns, and survives the
    /// death of the process, though not the machine's: see [`SessionStore::sync`].
    ///
    /// # Errors
    /// [`TranscriptError::Message`] for a message without a role, [`TranscriptError::Entry`] for one that could not be
    /// read again, [`TranscriptError::EntryNotFound`] for a label's target, [`TranscriptError::Write`] when the disk is
    /// full, [`TranscriptError::Changed`] when another program shortened or replaced the file. Nothing is written then, and
    /// the store can be used on.
    pub fn append(&mut self, entry: NewEntry) -> Result<Appended, TranscriptError> {
        let mut appended = self.append_all(vec![entry])?;
        appended.pop().ok_or_else(|| self.entry_error("entry", "an entry"))
    }

    /// Appends entries, each below the one before, in one write: all of them, or on an error none. A process that is
    /// killed in the middle of the write leaves the first of them, each whole.
    ///
    /// # Errors
    /// As [`SessionStore::append`].
    pub fn append_all(&mut self, entries: Vec<NewEntry>) -> Result<Vec<Appended>, TranscriptError> {
        self.catch_up()?;
        let mut lines: Vec<NewLine> = Vec::with_capacity(entries.len());
        let mut appended = Vec::with_capacity(entries.len());
        let mut up = self.branch.last().map_or(Up::Root, |&leaf| Up::At(leaf as usize));
        for entry in entries {
            let parent = lines.last().map(|line| line.id.as_str()).or_else(|| self.leaf());
            let (line, made) = self.prepare(entry, parent.map(str::to_owned), up)?;
            up = Up::At(self.index.len() + lines.len());
            lines.push(line);
            appended.push(made);
        }
        let kept = self.branch.len();
        self.grow("appending to the session", lines, kept)?;
        Ok(appended)
    }

    /// Moves the leaf to an entry of any branch, or before the first with `None`: the next entry is appended below it.
    /// Nothing is taken away; the move is an entry of type `leaf`.
    ///
    /// # Errors
    /// [`TranscriptError::EntryNotFound`], and those of [`SessionStore::append`].
    pub fn branch(&mut self, to: Option<&str>) -> Result<(), TranscriptError> {
        self.catch_up()?;
        let tip = match to {
            // As the entry will mean it.
            Some(id) => Some(self.index.named(id, usize::MAX).ok_or_else(|| self.not_found(id, ""))?),
            None => None,
        };
        if tip == self.branch.last().map(|&leaf| leaf as usize) {
            return Ok(());
        }
        let id = self.free_id();
        let target = Map::from_iter([("targetId".to_owned(), to.map_or(Value::Null, Value::from))]);
        let line = new_entry::line("leaf", &id, self.leaf(), target);
        let parent = self.branch.last().map_or(Up::Root, |&leaf| Up::At(leaf as usize));
        let text = Value::Object(line).to_string();
        self.write(
            "moving the session's leaf",
            vec![NewLine { id, kind: Kind::Leaf, continues: false, parent, text }],
        )?;
        self.branch = self.index.branch(tip);
        Ok(())
    }

    /// Makes what was written survive the machine, too: waits until the disk has it.
    ///
    /// # Errors
    /// [`TranscriptError::Write`].
    pub fn sync(&mut self) -> Result<(), TranscriptError> {
        let left = "what was written may be lost if the machine fails: check the disk";
        let doing = "waiting until the disk has the session";
        let failed = |source| TranscriptError::Write { path: self.path.clone(), doing, left, source };
        self.file.sync_data().map_err(failed)?;
        if !self.is_name_synced {
            platform::sync_folder(&open::folder_of(&self.path)).map_err(failed)?;
            self.is_name_synced = true;
        }
        Ok(())
    }

    /// The line of a new entry, and what its maker is told.
    fn prepare(&self, entry: NewEntry, parent: Option<String>, up: Up) -> Result<(NewLine, Appended), TranscriptError> {
        if let NewEntry::Label { target_id, .. } = &entry
            && self.index.find(target_id).is_none()
        {
            return Err(self.not_found(target_id, ""));
        }
        let id = self.free_id();
        if let NewEntry::Message(message) = &entry
            && !message.get("role").is_some_and(Value::is_string)
        {
            return Err(TranscriptError::Message { id, expected: "a `role` string" });
        }
        let (kind, members) = entry.into_members();
        let mut line = new_entry::line(kind, &id, parent.as_deref(), members);
        let text = self.readable(kind, &mut line)?;
        let entry = openclaw::entry(id.clone(), parent, line, &Here(&self.index, usize::MAX));
        let message = entry.message().or_else(|| entry.summary()).cloned();
        let line = NewLine { id: id.clone(), kind: Kind::of(kind), continues: false, parent: up, text };
        Ok((line, Appended { id, message }))
    }

    /// The line's JSON. Every line is read before it is written: one that cannot be would be lost when the session is
    /// opened again. A message that is nested too deep is written in the shape it is read in.
    fn readable(&self, kind: &'static str, line: &mut Map<String, Value>) -> Result<String, TranscriptError> {
        let as_text = |line: &Map<String, Value>| serde_json::to_string(line).unwrap_or_default();
        let mut text = as_text(line);
        if Head::read(&text).is_none() {
            if let Some(Value::Object(message)) = line.get_mut("message") {
                content::settle(message);
            }
            text = as_text(line);
        }
        match Head::read(&text) {
            Some(_) if u32::try_from(text.len()).is_ok() => Ok(text),
            Some(_) => Err(self.entry_error(kind, "less than 4 GiB of JSON")),
            None => Err(self.entry_error(kind, "members that are nested at most 120 deep")),
        }
    }

    /// Writes lines that go on with the first `kept` entries of the branch.
    fn grow(&mut self, doing: &'static str, lines: Vec<NewLine>, kept: usize) -> Result<(), TranscriptError> {
        let Some(last) = lines.last().map(|line| line.id.clone()) else { return Ok(()) };
        let first = self.index.len();
        if self.write(doing, lines)? {
            self.branch.truncate(kept);
            self.branch.extend((first..self.index.len()).filter_map(|place| u32::try_from(place).ok()));
        } else {
            self.branch = self.index.branch(self.index.find(&last));
        }
        Ok(())
    }

    /// Writes lines at the end of the file, and adds them to the index; `false` when another program's came in between.
    fn write(&mut self, doing: &'static str, lines: Vec<NewLine>) -> Result<bool, TranscriptError> {
        let mut bytes = Vec::with_capacity(1 + lines.iter().map(|line| line.text.len() + 1).sum::<usize>());
        if !self.scan.ends_clean {
            bytes.push(b'\n');
        }
        let begin = self.scan.length + bytes.len() as u64;
        for line in &lines {
            bytes.extend_from_slice(line.text.as_bytes());
            bytes.push(b'\n');
        }
        let mut disk = OnDisk(&self.file, &self.path);
        if let Err(failed) = tail::append(&mut disk, self.scan.length, &bytes) {
            self.has_left_over |= !failed.undone;
            let left = if failed.undone {
                "nothing was written: make room and try again"
            } else {
                "part of it may be in the file, where it harms nothing: make room and try again"
            };
            return Err(TranscriptError::Write { path: self.path.clone(), doing, left, source: failed.source });
        }
        let end = self.scan.length + bytes.len() as u64;
        if self.file.metadata().is_ok_and(|now| now.len() != end) {
            // Another program wrote between the last look at the file and now, before the lines or behind them.
            let ours: Vec<String> = lines.into_iter().map(|line| line.id).collect();
            self.follow(&ours)?;
            return Ok(false);
        }
        let first_position = self.scan.position();
        self.scan.passed(lines.len() as u64, bytes.len() as u64);
        let mut at = begin;
        for (position, line) in (first_position..).zip(lines) {
            let length = u32::try_from(line.text.len()).unwrap_or(u32::MAX);
            let (kind, continues) = (line.kind, line.continues);
            let (id, mended) = (Some(line.id.as_str()), None);
            self.index.push(NewPlace { id, kind, continues, at, length, position, mended }, line.parent);
            at += u64::from(length) + 1;
        }
        Ok(true)
    }

    /// An id that no entry has.
    fn free_id(&self) -> String {
        loop {
            let id = Uuid::new_v4().to_string();
            if self.index.find(&id).is_none() {
                return id;
            }
        }
    }

    fn not_found(&self, id: &str, place: &'static str) -> TranscriptError {
        TranscriptError::EntryNotFound { path: self.path.clone(), id: id.to_owned(), place }
    }

    fn entry_error(&self, kind: &'static str, expected: &'static str) -> TranscriptError {
        TranscriptError::Entry { path: self.path.clone(), kind, expected }
    }
}

/// What ids mean where the entry at a place says them.
struct Here<'a>(&'a Index, usize);

impl References for Here<'_> {
    fn current_id(&self, recorded: String) -> String {
        self.0.named(&recorded, self.1).map_or(recorded, |place| self.0.id(place).to_owned())
    }

    // Only version 1 counts places.
    fn id_at(&self, _: u64) -> Option<String> {
        None
    }
}
