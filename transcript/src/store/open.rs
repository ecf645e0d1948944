//! How a session file is made, opened, and followed when another program writes to it.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::index::{Index, Kind};
use super::new_entry::{SessionHeader, VERSION};
use super::scan::Scan;
use super::tail::{self, OnDisk};
use super::{SessionLock, SessionStore, platform};
use crate::branch::Up;
use crate::import::{self, lines::Damage};
use crate::{ImportWarning, TranscriptError};

/// What was found when a session was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Numbers of the lines that are no plain record, from 1, ascending.
    pub damaged_lines: Vec<u64>,
    /// Whole records found on them.
    pub recovered: u64,
    /// Fragments no record could be made of.
    pub lost: u64,
    /// Entries that bear an id of another; they were given one of their own.
    pub duplicate_ids: u64,
    /// Entries whose parent is not in the file; they hang on the entry before.
    pub lost_parents: u64,
    /// Entries of a rewrite that was cut off. They are on no active branch; what they replace still is.
    pub cut_rewrite: u64,
    /// What a person should know, each kind at most once; the damaged lines among it.
    pub warnings: Vec<ImportWarning>,
}

/// What a torn header begins with.
const HEADER_START: &[u8] = br#"{"type":"session""#;

impl SessionStore {
    /// Makes a session: the file (mode 0600) with its header, in a folder that is made when there is none (0700).
    ///
    /// # Errors
    /// [`TranscriptError::Exists`] for a file that is there, [`TranscriptError::Locked`], [`TranscriptError::Write`].
    pub fn create(path: &Path, header: SessionHeader) -> Result<SessionStore, TranscriptError> {
        let doing = "making the session";
        let left = "nothing was made: check the folder's permissions and the room on the disk";
        let failed = |source| TranscriptError::Write { path: path.to_owned(), doing, left, source };
        let exists = || TranscriptError::Exists { path: path.to_owned() };
        if fs::symlink_metadata(path).is_ok() {
            return Err(exists());
        }
        let folder = folder_of(path);
        platform::private_folder(&folder).map_err(failed)?;
        let real = fs::canonicalize(&folder).map_err(failed)?.join(path.file_name().unwrap_or_default());
        let lock = SessionLock::acquire(&real)?;
        let mut options = OpenOptions::new();
        platform::private(&mut options);
        let made = options.read(true).append(true).create_new(true).open(path);
        let file =
            made.map_err(|error| if error.kind() == ErrorKind::AlreadyExists { exists() } else { failed(error) })?;
        let map = header.into_line();
        let mut line = Value::Object(map.clone()).to_string();
        line.push('\n');
        if let Err(error) = tail::append(&mut OnDisk(&file, path), 0, line.as_bytes()) {
            let _ = fs::remove_file(path);
            return Err(failed(error.source));
        }
        let mut scan = Scan::new(import::id_from_name(&path.to_string_lossy()));
        scan.header = Some(map);
        scan.passed(1, line.len() as u64);
        let identity = platform::identity(&file.metadata().map_err(failed)?);
        Ok(SessionStore::new(path, file, identity, scan, lock))
    }

    /// Opens a session and takes its lock. The file is not changed, damaged or not; what is damaged is said once.
    ///
    /// # Errors
    /// [`TranscriptError::Locked`], naming who has it; [`TranscriptError::Version`] for an older session, which has to be
    /// imported; [`TranscriptError::NotASession`] for other files and for those of several sessions;
    /// [`TranscriptError::NotAFile`], [`TranscriptError::Read`].
    pub fn open(path: &Path) -> Result<(SessionStore, OpenReport), TranscriptError> {
        let read = |source| TranscriptError::Read { path: path.to_owned(), source };
        import::regular_file(path)?;
        let lock = SessionLock::acquire(&fs::canonicalize(path).map_err(read)?)?;
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(read)?;
        let identity = platform::identity(&file.metadata().map_err(read)?);
        let scan = Scan::new(import::id_from_name(&path.to_string_lossy()));
        let mut store = SessionStore::new(path, file, identity, scan, lock);
        let damage = store.scan.read(&store.file, &mut store.index).map_err(read)?;
        store.index.settle();
        is_one_session(path, &store.scan, &store.index)?;
        let (tip, cut_rewrite) = store.index.tip(store.scan.leaf.as_ref());
        store.branch = store.index.branch(tip);
        let report = report(&store.scan, &store.index, damage, cut_rewrite as u64);
        for warning in &report.warnings {
            tracing::warn!(session = %path.display(), "{warning}");
        }
        if cut_rewrite > 0 {
            tracing::warn!(session = %path.display(), "{cut_rewrite} entries of a rewrite that was cut off: not in use");
        }
        Ok((store, report))
    }

    fn new(path: &Path, file: File, identity: Option<(u64, u64)>, scan: Scan, lock: SessionLock) -> SessionStore {
        SessionStore {
            path: path.to_owned(),
            file,
            identity,
            scan,
            index: Index::default(),
            branch: Vec::new(),
            foreign: 0,
            has_left_over: false,
            is_name_synced: false,
            _lock: lock,
        }
    }

    /// Makes sure that the file is the one that was left, and takes in what another program appended to it.
    pub(super) fn catch_up(&mut self) -> Result<(), TranscriptError> {
        let path = self.path.clone();
        let changed = |found| Err(TranscriptError::Changed { path: path.clone(), found });
        let now = match fs::metadata(&path) {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => return changed("it is gone"),
            Err(source) => return Err(TranscriptError::Read { path, source }),
        };
        if platform::identity(&now) != self.identity {
            return changed("another file has taken its place");
        }
        if now.len() < self.scan.length {
            return changed("it is shorter than it was");
        }
        if now.len() > self.scan.length {
            self.follow(&[])?;
        }
        if self.scan.second.is_some() {
            return changed("another session was written into it");
        }
        Ok(())
    }

    /// Reads what was appended. What descends from the leaf goes on with the conversation; anything else is a branch.
    /// Nothing is adopted when it was written while `ours` were: they hang on the leaf that was.
    pub(super) fn follow(&mut self, ours: &[String]) -> Result<(), TranscriptError> {
        let first = self.index.len();
        let read = |source| TranscriptError::Read { path: self.path.clone(), source };
        let damage = self.scan.read(&self.file, &mut self.index).map_err(read)?;
        let mut tip = self.branch.last().map(|&leaf| leaf as usize);
        let mut beside = Vec::new();
        // Where another program's tip is says nothing of this one's.
        for place in (first..self.index.len()).filter(|&place| self.index.kind(place) != Kind::Leaf) {
            let id = self.index.id(place);
            if ours.is_empty() && self.index.up(place) == tip.map_or(Up::Root, Up::At) {
                tip = Some(place);
            } else if !ours.iter().any(|ours| ours == id) {
                beside.push(id);
            }
        }
        if !std::mem::take(&mut self.has_left_over) {
            self.foreign += 1;
            if !beside.is_empty() || !damage.lines.is_empty() {
                tracing::warn!(
                    session = %self.path.display(),
                    "another program writes to the session: entries of its own on a branch that is not active: [{}]; \
                     damaged lines: {}; end the other program",
                    beside.join(", "),
                    damage.lines.len()
                );
            }
        }
        // An entry that was missing may have come, too.
        self.branch = self.index.branch(tip);
        Ok(())
    }
}

/// The folder a file is in, or is to be in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn is_one_session(path: &Path, scan: &Scan, index: &Index) -> Result<(), TranscriptError> {
    let no_session = |found: String| Err(TranscriptError::NotASession { path: path.to_owned(), found });
    match &scan.header {
        Some(header) => {
            let version = header.get("version").and_then(Value::as_u64).unwrap_or(1);
            if version != VERSION {
                return Err(TranscriptError::Version { path: path.to_owned(), version });
            }
        }
        None if index.len() > 0 && !scan.is_session => {
            return no_session("no header, and no entry of this format".to_owned());
        }
        None if index.len() == 0 && scan.has_text => {
            // A process may end while it writes the first line.
            let start = HEADER_START.len().min(scan.start.len());
            if scan.start.get(..start) != HEADER_START.get(..start) {
                return no_session("no line of this format".to_owned());
            }
        }
        None => {}
    }
    match &scan.second {
        Some((id, line)) => no_session(format!("the header of a second one, {id:?}, in line {line}")),
        None => Ok(()),
    }
}

fn report(scan: &Scan, index: &Index, damage: Damage, cut_rewrite: u64) -> OpenReport {
    let mut report = OpenReport {
        damaged_lines: damage.lines.clone(),
        recovered: damage.recovered,
        lost: damage.lost,
        duplicate_ids: index.duplicate_ids,
        lost_parents: index.lost_parents(),
        cut_rewrite,
        warnings: import::damage_warnings(damage),
    };
    if scan.header.is_none() {
        report.warnings.push(ImportWarning::NoHeader);
    }
    report
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::Map;

    use super::*;
    use crate::store::NewEntry;

    fn say(store: &mut SessionStore, text: &str) -> String {
        let message = Map::from_iter([("role".to_owned(), "user".into()), ("content".to_owned(), text.into())]);
        store.append(NewEntry::Message(message)).expect("room").id
    }

    #[test]
    fn what_a_failed_write_left_is_passed_over_and_is_no_other_programs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.jsonl");
        let mut store = SessionStore::create(&path, SessionHeader::default()).expect("a session");
        let first = say(&mut store, "a");
        let left =
            format!(r#"{{"type":"message","id":"l","parentId":"{first}","message":{{"role":"user","content":"b"}}}}"#);
        // Of a write of two lines that could not be taken back.
        (&store.file).write_all(format!("{left}\n{{\"type\":\"mes").as_bytes()).expect("room");
        store.has_left_over = true;
        let last = say(&mut store, "c");
        assert_eq!((store.branch_ids(), store.foreign()), (vec![first.as_str(), "l", last.as_str()], 0));
        let branch: Vec<String> = store.branch_ids().into_iter().map(str::to_owned).collect();
        drop(store);
        let (store, report) = SessionStore::open(&path).expect("a session");
        assert_eq!((store.branch_ids(), report.lost), (branch.iter().map(String::as_str).collect(), 1));
    }
}
