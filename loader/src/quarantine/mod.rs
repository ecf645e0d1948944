//! Which engines are set aside, why, and for whom; and who is to blame when a process died.
//!
//! Decision: the file is the quarantine. There is one file per key (library and configuration) in `state/quarantine`, and
//! an engine is set aside while its file says so. A person who removes it, by `context-engine quarantine clear` or by
//! hand, frees the engine in hosts that run, too: they look before each call, at the cost of one system call. Only what
//! could not be written is held in memory.
//!
//! | what happened | in force |
//! |---|---|
//! | error, panic, timeout, wrong answer, over budget, not created | for this process; afterwards it is history |
//! | the same in three different processes in a row | for every process |
//! | a crash with proof, a failed probe | for every process |
//! | a death without proof, the third in a row | for every process |
//!
//! "In a row" ends when a process uses the engine to the end without a fault ([`Quarantine::served`]), or is found to have
//! completed such calls before it was killed.
//!
//! Crash marks are in `marks`, the rules by which they convict in [`Quarantine::settle_marks`].

mod folder;
mod key;
pub(crate) mod marks;
mod record;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

pub use folder::Unreadable;
pub use key::{QuarantineKey, Subject};
pub use marks::FOLDER as MARKS_FOLDER;
pub use record::{Fault, Incident, ProcessStamp, Record, Scope};
pub use settle::{Finding, Verdict};

use folder::{Folder, file_stem};

/// A folder that changed so recently may change again within the same tick of the file system's clock.
const FRESH: Duration = Duration::from_secs(2);

/// The engines that are set aside. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quarantine {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// `None` when the host has no place to keep things.
    folder: Option<Folder>,
    /// Records that could not be written.
    unwritten: Mutex<BTreeMap<QuarantineKey, Record>>,
    /// What the files said when they were last read.
    seen: Mutex<BTreeMap<QuarantineKey, Seen>>,
    warned: AtomicBool,
}

#[derive(Debug)]
struct Seen {
    changed: Option<SystemTime>,
    settled: bool,
    record: Option<Arc<Record>>,
}

impl Quarantine {
    /// The quarantine in `state_dir`. Touches nothing yet. What cannot be written is held in memory, and that is said
    /// once; an empty path means that the host wants it in memory.
    pub fn open(state_dir: &Path) -> Quarantine {
        let folder = (!state_dir.as_os_str().is_empty()).then(|| Folder::new(state_dir.join("quarantine")));
        let kept = Kept { folder, unwritten: Mutex::default(), seen: Mutex::default(), warned: AtomicBool::new(false) };
        Quarantine { kept: Arc::new(kept) }
    }

    /// A quarantine that begins with what is known now and writes nothing: what happens in a trial stays in it.
    #[must_use]
    pub fn on_trial(&self) -> Quarantine {
        let known = self.list().into_iter().map(|record| (record.key, record)).collect();
        let (unwritten, seen) = (Mutex::new(known), Mutex::default());
        Quarantine { kept: Arc::new(Kept { folder: None, unwritten, seen, warned: AtomicBool::new(false) }) }
    }

    /// Sets the engine aside, or counts one more fault of one that is. In one process the first failure is the one that
    /// is shown. Returns the record as this process has to see it.
    pub fn add(&self, subject: &Subject, operation: &str, fault: Fault, reason: &str) -> Arc<Record> {
        let process = ProcessStamp::current();
        let record = self.record(subject, Incident::now(operation, fault, reason, process));
        Arc::new(record.in_force_for(process).unwrap_or(record))
    }

    /// The record that is in force for this process now.
    pub fn holds(&self, key: &QuarantineKey) -> Option<Arc<Record>> {
        if let Some(record) = lock(&self.kept.unwritten).get(key) {
            return record.in_force_for(ProcessStamp::current()).map(Arc::new);
        }
        let folder = self.kept.folder.as_ref()?;
        // Before the files are read: a later change has another time.
        let changed = folder.changed();
        let mut seen = lock(&self.kept.seen);
        if let Some(seen) = seen.get(key)
            && seen.settled
            && seen.changed == changed
        {
            return seen.record.clone();
        }
        let Ok(found) = folder.find(key) else {
            // Out of file descriptors, say: what was known still holds.
            return seen.get(key).and_then(|seen| seen.record.clone());
        };
        let record = found.and_then(|record| record.in_force_for(ProcessStamp::current())).map(Arc::new);
        let settled = changed.is_none_or(|at| at.elapsed().is_ok_and(|age| age > FRESH));
        seen.insert(*key, Seen { changed, settled, record: record.clone() });
        record
    }

    /// This process used the engine to the end without a fault: what counts "in a row" starts again.
    pub fn served(&self, key: &QuarantineKey) {
        let process = ProcessStamp::current();
        let counts = |record: &Record| record.counts_in_a_row() && !record.failed_in(process);
        self.change(key, counts, Record::end_row);
    }

    /// Everything that is known, in force or history, newest first.
    pub fn list(&self) -> Vec<Record> {
        let mut records = self.kept.folder.as_ref().map(|folder| folder.all().0).unwrap_or_default();
        let unwritten = lock(&self.kept.unwritten);
        records.retain(|record| !unwritten.contains_key(&record.key));
        records.extend(unwritten.values().cloned());
        records.sort_by_key(|record| std::cmp::Reverse(record.last_at_ms));
        records
    }

    /// Files in the quarantine folder that are no records. They count as nothing.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.kept.folder.as_ref().map(|folder| folder.all().1).unwrap_or_default()
    }

    /// Forgets what is known about one engine, in all its builds and configurations, or about all. Files that are no
    /// records go with it. Returns what was forgotten.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn clear(&self, engine: Option<&str>) -> io::Result<Vec<Record>> {
        let chosen = |record: &Record| engine.is_none_or(|engine| record.engine == engine);
        let named = |path: &Path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let stem = name.rsplit_once('-').map(|(stem, _)| stem);
            engine.is_none_or(|engine| stem == Some(file_stem(engine).as_str()))
        };
        let mut removed = match &self.kept.folder {
            Some(folder) => folder.remove(chosen, named)?,
            None => vec![],
        };
        let mut unwritten = lock(&self.kept.unwritten);
        removed.retain(|record| !unwritten.contains_key(&record.key));
        removed.extend(unwritten.extract_if(.., |_, record| chosen(record)).map(|(_, record)| record));
        Ok(removed)
    }

    fn record(&self, subject: &Subject, incident: Incident) -> Record {
        // Not locked over the writing: other engines are looked up meanwhile.
        let held = lock(&self.kept.unwritten).get(&subject.key).cloned();
        let mut after = None;
        let mut written = Ok(());
        if let Some(folder) = &self.kept.folder {
            written = folder.update(&subject.key, |found| {
                after = Some(Record::after(held.clone().or(found), subject, incident.clone()));
                after.clone()
            });
        }
        let record = after.unwrap_or_else(|| Record::after(held, subject, incident));
        match (&self.kept.folder, written) {
            (Some(_), Ok(())) => {
                lock(&self.kept.unwritten).remove(&subject.key);
            }
            (_, outcome) => {
                lock(&self.kept.unwritten).insert(subject.key, record.clone());
                if let Err(error) = outcome {
                    self.kept.warn(&error);
                }
            }
        }
        // It was replaced just now, and by this process: nothing to find out by the folder's time.
        lock(&self.kept.seen).remove(&subject.key);
        record
    }

    /// Changes a record that is there, when it is one to change.
    fn change(&self, key: &QuarantineKey, wanted: impl Fn(&Record) -> bool, change: impl Fn(&mut Record)) {
        if let Some(record) = lock(&self.kept.unwritten).get_mut(key).filter(|record| wanted(record)) {
            change(record);
        }
        let Some(folder) = &self.kept.folder else { return };
        // Most of the time there is nothing, and nothing to lock.
        if !folder.find(key).is_ok_and(|record| record.as_ref().is_some_and(&wanted)) {
            return;
        }
        let written = folder.update(key, |record| {
            let mut record = record.filter(&wanted)?;
            change(&mut record);
            Some(record)
        });
        if let Err(error) = written {
            self.kept.warn(&error);
        }
    }
}

impl Kept {
    fn warn(&self, error: &io::Error) {
        let folder = self.folder.as_ref();
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?folder,
                %error,
                "the quarantine cannot be written and is kept in memory only; make the state folder writable"
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
