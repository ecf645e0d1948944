//! The store a live session is kept in: one file of JSON lines that only ever grows, one writer.

mod brief;
mod calls;
mod listing;
mod lock;
mod new_entry;
#[allow(dead_code, reason = "the bodies that use it follow")]
mod platform;
mod process;
mod repair;
mod survey;

use std::path::Path;

use serde_json::{Map, Value};

pub use self::calls::unanswered_calls;
pub use self::listing::{SessionSummary, find, list, one_line, summary};
pub use self::lock::{LockOwner, SessionLock};
pub use self::new_entry::{Appended, NewEntry, Rewrite, SessionHeader, StoredContext};
pub use self::repair::{RepairOptions, RepairReport, repair};
pub use self::survey::{Findings, HeaderState};
use crate::{Entry, ImportWarning, TranscriptError};

/// What was found when a session was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Numbers of the lines that are no plain record, from 1, ascending.
    pub damaged_lines: Vec<u64>,
    /// Whole records found on them.
    pub recovered: u64,
    /// Fragments no record could be made of.
    pub lost: u64,
    /// What a person should know, each kind at most once; the damaged lines among it.
    pub warnings: Vec<ImportWarning>,
}

/// The one writer of a session file.
#[derive(Debug)]
pub struct SessionStore {
    _lock: SessionLock,
}

#[allow(missing_docs, clippy::missing_errors_doc, unused_variables)]
impl SessionStore {
    pub fn create(path: &Path, header: SessionHeader) -> Result<SessionStore, TranscriptError> {
        unimplemented!()
    }
    pub fn open(path: &Path) -> Result<(SessionStore, OpenReport), TranscriptError> {
        unimplemented!()
    }
    pub fn id(&self) -> &str {
        unimplemented!()
    }
    pub fn path(&self) -> &Path {
        unimplemented!()
    }
    pub fn header(&self) -> Option<&Map<String, Value>> {
        unimplemented!()
    }
    pub fn leaf(&self) -> Option<&str> {
        unimplemented!()
    }
    pub fn entries(&self) -> usize {
        unimplemented!()
    }
    pub fn append(&mut self, entry: NewEntry) -> Result<Appended, TranscriptError> {
        unimplemented!()
    }
    pub fn append_all(&mut self, entries: Vec<NewEntry>) -> Result<Vec<Appended>, TranscriptError> {
        unimplemented!()
    }
    pub fn branch(&mut self, to: Option<&str>) -> Result<(), TranscriptError> {
        unimplemented!()
    }
    pub fn rewrite(&mut self, replacements: &[(String, Map<String, Value>)]) -> Result<Rewrite, TranscriptError> {
        unimplemented!()
    }
    pub fn context(&self) -> Result<StoredContext, TranscriptError> {
        unimplemented!()
    }
    pub fn page(&self, after: Option<&str>, limit: usize, before: Option<&str>) -> Result<Vec<Value>, TranscriptError> {
        unimplemented!()
    }
    pub fn entry(&self, id: &str) -> Result<Option<Entry>, TranscriptError> {
        unimplemented!()
    }
    pub fn branch_ids(&self) -> Vec<&str> {
        unimplemented!()
    }
    pub fn sync(&mut self) -> Result<(), TranscriptError> {
        unimplemented!()
    }
    pub fn foreign(&self) -> u64 {
        unimplemented!()
    }
}
