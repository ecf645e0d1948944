//! What is watched: plugins directories with all that is in them, some files, and where either may appear.
//!
//! Decision: the system is asked about directories only. A file that is written by rename is another file afterwards, and a
//! directory that does not exist yet appears in its nearest ancestor that does. Links are watched at both ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecursiveMode, Watcher};

/// What should lead to a look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Interests {
    /// With everything in them.
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<PathBuf>,
}

/// What the system was asked to tell, and which directory that was: one that was made anew has to be asked about again.
#[derive(Default)]
pub(super) struct Places {
    watched: BTreeMap<PathBuf, (RecursiveMode, Identity)>,
    /// The interests, as they were named and with links resolved.
    meant: Vec<PathBuf>,
}

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = ();

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(drop)
}

impl Interests {
    /// Directories to ask about, links resolved.
    fn targets(&self) -> BTreeMap<PathBuf, RecursiveMode> {
        let mut targets = BTreeMap::new();
        for directory in &self.directories {
            match fs::canonicalize(directory) {
                Ok(real) if real.is_dir() => drop(targets.insert(real, RecursiveMode::Recursive)),
                // A library that was named itself.
                Ok(real) => above(&real, &mut targets),
                Err(_) => {}
            }
            above(directory, &mut targets);
        }
        for file in &self.files {
            if let Ok(real) = fs::canonicalize(file) {
                above(&real, &mut targets);
            }
            above(file, &mut targets);
        }
        targets
    }

    fn meant(&self) -> Vec<PathBuf> {
        let named = self.directories.iter().chain(&self.files);
        // As the system will call it: by the real path of the directory it lies in.
        let in_real = |path: &PathBuf| {
            let parent = path.ancestors().skip(1).find_map(|ancestor| {
                let real = fs::canonicalize(ancestor).ok()?;
                Some(real.join(path.strip_prefix(ancestor).ok()?))
            });
            [Some(path.clone()), fs::canonicalize(path).ok(), parent]
        };
        named.flat_map(in_real).flatten().collect()
    }
}

/// The nearest directory above `path` that exists.
fn above(path: &Path, targets: &mut BTreeMap<PathBuf, RecursiveMode>) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let nearest = absolute.ancestors().skip(1).filter_map(|ancestor| fs::canonicalize(ancestor).ok());
    if let Some(nearest) = nearest.into_iter().find(|ancestor| ancestor.is_dir()) {
        targets.entry(nearest).or_insert(RecursiveMode::NonRecursive);
    }
}

impl Places {
    /// Has `watcher` tell about `interests`, and no longer about what is none of them.
    ///
    /// # Errors
    /// When the system cannot watch one of them.
    pub(super) fn set(&mut self, watcher: &mut dyn Watcher, interests: &Interests) -> Result<(), notify::Error> {
        let targets = interests.targets();
        self.meant = interests.meant();
        let known = |path: &PathBuf, mode: RecursiveMode, at: Identity, targets: &BTreeMap<PathBuf, RecursiveMode>| {
            targets.get(path) == Some(&mode) && identity(path) == Some(at)
        };
        let stale = self.watched.extract_if(.., |path, (mode, at)| !known(path, *mode, *at, &targets));
        for (path, _) in stale.collect::<Vec<_>>() {
            // The system forgets a directory that is gone by itself.
            let _ = watcher.unwatch(&path);
        }
        let mut outcome = Ok(());
        for (path, mode) in targets {
            if self.watched.contains_key(&path) {
                continue;
            }
            let Some(at) = identity(&path) else { continue };
            match watcher.watch(&path, mode) {
                Ok(()) => drop(self.watched.insert(path, (mode, at))),
                // Gone since: it is noticed in the directory above.
                Err(_) if !path.exists() => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Whether something of what is meant may have changed.
    pub(super) fn concerns(&self, event: &Event) -> bool {
        if event.need_rescan() {
            return true;
        }
        // Who only reads changes nothing; a look itself reads.
        if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
            return false;
        }
        let is_meant =
            |path: &PathBuf| self.meant.iter().any(|meant| path.starts_with(meant) || meant.starts_with(path));
        event.paths.iter().any(is_meant)
    }
}
