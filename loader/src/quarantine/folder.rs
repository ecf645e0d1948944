//! The files of the quarantine: one per key, `<engine>-<first digits of the key>.json`.
//!
//! Concurrent hosts: whoever changes a record holds a lock on `.lock`, reads the file again, and replaces it by a rename.
//! So two processes that fail at the same time keep both incidents, and a reader never sees half a file. The lock is
//! waited for only shortly, because this happens between a call and its answer: a host that was stopped while it held the
//! lock must not stop the others. Without the lock an incident may be lost, never a file.
//!
//! What is no regular file counts as nothing: it is not opened, and it is in nobody's way.
//!
//! Only history is thrown away to make room. What is in force for every process protects hosts that are not started yet:
//! were it to go, an engine that ends its process would be opened once more.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::key::QuarantineKey;
use super::record::{Record, Scope};
use crate::platform::{create_private_dir, open_regular};

/// Files kept, as long as some of them are history.
pub(super) const MOST_FILES: usize = 64;
/// Files kept in any case. More builds and configurations than that, all of them broken, are nobody's own doing.
pub(super) const MOST_IN_FORCE: usize = 4096;
/// A record is a few kilobytes, and more only while very many processes do without the engine; more is not ours and is not
/// read.
const LONGEST: u64 = 4 << 20;
/// How long the lock is waited for: a person waits for the answer. Changing a record takes a millisecond.
const PATIENCE: Duration = Duration::from_millis(100);
/// Age at which a file that was begun and never finished is left over from a process that died.
const LEFT_OVER: Duration = Duration::from_secs(3600);
const NEW: &str = ".new-";

/// A file in the quarantine folder that is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub reason: String,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Folder {
        Folder { path }
    }

    /// When a file was last added or removed. One system call; `None` when there is no folder.
    pub(super) fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|meta| meta.modified()).ok()
    }

    /// The record of `key`. A file that is none counts as nothing.
    ///
    /// # Errors
    /// When the system cannot say what there is.
    pub(super) fn find(&self, key: &QuarantineKey) -> io::Result<Option<Record>> {
        let ending = format!("-{}.json", key.short());
        for path in self.files()?.iter().filter(|path| path.to_string_lossy().ends_with(&ending)) {
            match read(path) {
                Ok(record) if record.key == *key => return Ok(Some(record)),
                Err(error) if !is_content(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Every record, and what is no record.
    pub(super) fn all(&self) -> (Vec<Record>, Vec<Unreadable>) {
        let (mut records, mut unreadable) = (vec![], vec![]);
        let files = self.files().unwrap_or_else(|error| {
            unreadable.push(Unreadable { path: self.path.clone(), reason: error.to_string() });
            vec![]
        });
        for path in files {
            match read(&path) {
                Ok(record) => records.push(record),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable.push(Unreadable { path, reason: error.to_string() }),
            }
        }
        (records, unreadable)
    }

    /// Replaces the record of `key` by what `change` makes of it; nothing is written when that is `None`.
    pub(super) fn update(
        &self,
        key: &QuarantineKey,
        change: impl FnOnce(Option<Record>) -> Option<Record>,
    ) -> io::Result<()> {
        create_private_dir(&self.path)?;
        let _lock = self.lock();
        let Some(record) = change(self.find(key)?) else { return Ok(()) };
        let text = serde_json::to_string_pretty(&record)?;
        let mut file = tempfile::Builder::new().prefix(NEW).tempfile_in(&self.path)?;
        file.write_all(text.as_bytes())?;
        if record.scope == Scope::Durable {
            // What follows a crash has to outlive the next one; the rest is not worth the wait.
            file.as_file().sync_data()?;
        }
        file.persist(self.path.join(file_name(&record))).map_err(|error| error.error)?;
        self.prune(key);
        Ok(())
    }

    /// Removes the files `chosen` picks, and with no record to look at what `unreadable` picks. Returns the records.
    pub(super) fn remove(
        &self,
        chosen: impl Fn(&Record) -> bool,
        unreadable: impl Fn(&Path) -> bool,
    ) -> io::Result<Vec<Record>> {
        let _lock = self.lock();
        let mut removed = vec![];
        for path in self.files()? {
            let record = match read(&path) {
                Ok(record) if chosen(&record) => Some(record),
                Ok(_) => continue,
                Err(_) if unreadable(&path) => None,
                Err(_) => continue,
            };
            match fs::remove_file(&path) {
                Ok(()) => removed.extend(record),
                Err(error) if error.kind() == io::ErrorKind::NotFound => removed.extend(record),
                // A directory that has such a name is not ours, and holds nobody.
                Err(_) if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Keeps the number of files bounded: the oldest history goes. What is in force goes only where there is more of it
    /// than any host can have come to by itself, and never silently.
    fn prune(&self, newest: &QuarantineKey) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let stale = |meta: &fs::Metadata| meta.modified().ok()?.elapsed().ok();
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(NEW)) {
            if entry.metadata().ok().as_ref().and_then(stale).is_some_and(|age| age > LEFT_OVER) {
                // What cannot be removed is tried again next time.
                let _ = fs::remove_file(entry.path());
            }
        }
        let Ok(files) = self.files() else { return };
        let surplus = files.len().saturating_sub(MOST_FILES);
        if surplus == 0 {
            return;
        }
        let above = files.len().saturating_sub(MOST_IN_FORCE);
        let mut records: Vec<(bool, u64, PathBuf)> = files
            .into_iter()
            .filter_map(|path| match read(&path) {
                Ok(record) if record.key == *newest => None,
                Ok(record) => Some((record.is_in_force(), record.last_at_ms, path)),
                Err(_) => Some((false, 0, path)),
            })
            .collect();
        records.sort();
        let surplus = records.into_iter().take(surplus).enumerate();
        for (number, (in_force, _, path)) in surplus.filter(|(number, (in_force, ..))| !in_force || *number < above) {
            if fs::remove_file(&path).is_ok() && in_force {
                let path = path.display();
                tracing::warn!(
                    %path, number,
                    "more than {MOST_IN_FORCE} engines are set aside: the oldest is forgotten and may be opened again; \
                     see `context-engine quarantine list`"
                );
            }
        }
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(vec![]);
            }
            entries => entries?,
        };
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        Ok(paths)
    }

    fn lock(&self) -> Option<File> {
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = open_regular(&self.path.join(".lock"), &mut options).ok()?;
        let begun = SystemTime::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(TryLockError::WouldBlock) if begun.elapsed().is_ok_and(|waited| waited < PATIENCE) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(_) => return None,
            }
        }
    }
}

/// The name of a record's file.
fn file_name(record: &Record) -> String {
    format!("{}-{}.json", file_stem(&record.engine), record.key.short())
}

/// An engine's id as part of a file name.
pub(super) fn file_stem(engine: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let stem: String = engine.chars().take(64).map(safe).collect();
    // A leading dot would hide the file, and might be one of our own.
    stem.trim_start_matches('.').to_owned()
}

fn read(path: &Path) -> io::Result<Record> {
    let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut text = Vec::new();
    let read = open_regular(path, File::options().read(true))?.take(LONGEST + 1).read_to_end(&mut text)?;
    if read as u64 > LONGEST {
        return Err(wrong("longer than any record"));
    }
    serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))
}

/// Whether the file is at fault, not the system.
fn is_content(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
}
