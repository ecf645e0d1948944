//! Who writes: files that were written to and not closed since.
//!
//! Decision: a file that is overwritten in place, without being cut off first (`rsync --inplace`, `dd conv=notrunc`), is of
//! the right length all the time and half another build, so nothing in it says that it is not whole. Its writer does: the
//! system tells of every write, and of the end. A writer that has not written for two seconds is not waited for.
//!
//! Only Linux tells of the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use notify::Event;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};

/// How long a writer may be silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// The files, and when they were written to.
#[derive(Debug, Default)]
pub(super) struct Writers(BTreeMap<PathBuf, Instant>);

impl Writers {
    pub(super) fn heed(&mut self, event: &Event, now: Instant) {
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) if cfg!(any(target_os = "linux", target_os = "android")) => {
                self.0.extend(event.paths.iter().map(|path| (path.clone(), now)));
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_)) => self.0.retain(|path, _| !event.paths.contains(path)),
            _ => {}
        }
    }

    /// The files that are being written, links resolved.
    pub(super) fn at_work(&mut self, now: Instant) -> BTreeSet<PathBuf> {
        self.0.retain(|_, written| now.saturating_duration_since(*written) < PATIENCE);
        self.0.keys().filter_map(|path| fs::canonicalize(path).ok()).collect()
    }
}
