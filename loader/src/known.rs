//! What earlier scans learned of libraries that have not changed since, so that a scan does not copy and hash them again.
//!
//! Decision: in memory, by path and by everything a file system says about a file. A file that changed less than two
//! seconds before it was read is not remembered: it could change again within the same tick of the file system's clock.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::inspect::Inspection;
use crate::stage::{Staged, still_there};

/// Coarser than the clock of any file system in use (FAT: 2 s).
const SETTLED: Duration = Duration::from_secs(2);

/// What a file system says about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    /// Seconds and nanoseconds of the last change of the file or its inode, device, inode.
    #[cfg(unix)]
    inode: (i64, i64, u64, u64),
}

impl Stamp {
    /// The stamp of the file at `path`; `None` when it cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let meta = fs::metadata(path).ok()?;
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Some(Stamp {
            len: meta.len(),
            modified: meta.modified().ok(),
            #[cfg(unix)]
            inode: (meta.ctime(), meta.ctime_nsec(), meta.dev(), meta.ino()),
        })
    }

    /// Whether the file has been left alone for so long that another change would show in its stamp.
    fn settled(&self, now: SystemTime) -> bool {
        let long_ago = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age > SETTLED);
        #[cfg(unix)]
        let changed = u64::try_from(self.inode.0).ok().map(|secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        #[cfg(not(unix))]
        let changed = self.modified;
        self.modified.is_some_and(long_ago) && changed.is_some_and(long_ago)
    }
}

/// Libraries that were staged and inspected, by path.
#[derive(Debug, Default)]
pub(crate) struct Known {
    libraries: Mutex<HashMap<PathBuf, (Stamp, Staged, Inspection)>>,
}

impl Known {
    /// What is known of a library with this stamp, if its private copy is still there.
    pub(crate) fn get(&self, library: &Path, stamp: &Stamp) -> Option<(Staged, Inspection)> {
        let (_, staged, inspection) = self.lock().get(library).filter(|(then, ..)| then == stamp)?.clone();
        still_there(&staged, inspection.bytes).then_some((staged, inspection))
    }

    /// Remembers a library that was read between two looks at its stamp, the second one `now`.
    pub(crate) fn remember(
        &self,
        library: &Path,
        (before, after): (Option<Stamp>, Option<Stamp>),
        now: SystemTime,
        (staged, inspection): (&Staged, &Inspection),
    ) {
        let unchanged = before.filter(|before| after.as_ref() == Some(before) && before.settled(now));
        let Some(stamp) = unchanged else { return };
        self.lock().insert(library.to_owned(), (stamp, staged.clone(), inspection.clone()));
    }

    /// Forgets all but these libraries.
    pub(crate) fn retain(&self, libraries: &HashSet<PathBuf>) {
        self.lock().retain(|library, _| libraries.contains(library));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, (Stamp, Staged, Inspection)>> {
        self.libraries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context_engine_interface::record::{EngineInfo, Record};

    fn inspection(bytes: u64) -> Inspection {
        let engine: EngineInfo =
            serde_json::from_str(r#"{"id": "a", "name": "A", "version": "1"}"#).expect("an engine");
        let text = || "x".to_owned();
        let record = Record {
            schema_version: 1,
            interface_version: text(),
            engine,
            extensions: vec![],
            panic: text(),
            target: text(),
            compiler: text(),
        };
        Inspection { record, bytes, needs: vec![], glibc: None }
    }

    #[test]
    fn only_what_was_left_alone_is_remembered_and_only_while_its_copy_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("a.so");
        fs::write(&library, "library").expect("written");
        let staged = crate::stage::stage(&library, &folder.path().join("stages")).expect("staged");
        let known = Known::default();
        let stamp = || Stamp::of(&library);
        let remember = |before, age| {
            let now = SystemTime::now() + Duration::from_secs(age);
            known.remember(&library, (before, stamp()), now, (&staged, &inspection(7)));
        };
        let remembered = || known.get(&library, &stamp().expect("there")).is_some();
        remember(stamp(), 0);
        assert!(!remembered(), "it was written just now");
        remember(None, 60);
        assert!(!remembered(), "it could not be looked at before");
        remember(stamp(), 60);
        assert!(remembered());
        fs::write(&staged.path, "cut").expect("written");
        assert!(!remembered(), "its copy is damaged");
        fs::write(&staged.path, "library").expect("written");
        assert!(remembered());
        let replaced = folder.path().join("b.so");
        fs::write(&replaced, "LIBRARY").expect("written");
        let modified = fs::metadata(&library).and_then(|meta| meta.modified()).expect("a time");
        fs::File::options().append(true).open(&replaced).and_then(|file| file.set_modified(modified)).expect("set");
        fs::rename(&replaced, &library).expect("renamed");
        assert!(!remembered(), "another file of the same length and time is another file");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let known = Known::default();
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("a.so");
        fs::write(&library, "library").expect("written");
        let staged = crate::stage::stage(&library, &folder.path().join("stages")).expect("staged");
        let (stamp, later) = (Stamp::of(&library), SystemTime::now() + Duration::from_secs(60));
        known.remember(&library, (stamp.clone(), stamp), later, (&staged, &inspection(7)));
        known.retain(&HashSet::from([library.clone()]));
        assert_eq!(known.lock().len(), 1);
        known.retain(&HashSet::new());
        assert_eq!(known.lock().len(), 0);
    }
}
