//! What is watched: plugins directories with the plugin folders in them, some files, and where either may appear.
//!
//! Decision: the system is asked about directories only. A file that is written by rename is another file afterwards, and a
//! directory that does not exist yet appears in its nearest ancestor that does. Links are watched at both ends. Nothing
//! deeper than a plugin folder is asked about: a directory that is configured may be one that compilers write into.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecursiveMode, Watcher};

use crate::manifest::MANIFEST;
use crate::platform::LIBRARY_EXTENSION;

/// Folders of one plugins directory that are watched for a manifest to come.
const MAX_FOLDERS: usize = 1_000;

/// How often directories that appear while they are asked about are followed.
const MAX_ROUNDS: usize = 4;

/// What should lead to a look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Interests {
    /// Plugins directories; a library or plugin folder stands for itself.
    pub(super) plugins: Vec<PathBuf>,
    /// Files, and folders with the files in them.
    pub(super) others: Vec<PathBuf>,
}

/// What the system was asked to tell, and which directory that was: one that was made anew has to be asked about again.
#[derive(Default)]
pub(super) struct Places {
    watched: BTreeMap<PathBuf, (RecursiveMode, Identity)>,
    /// The interests, as they were named and with links resolved.
    plugins: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// Plugin folders.
    folders: BTreeSet<PathBuf>,
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
        for path in self.plugins.iter().chain(&self.others) {
            match fs::canonicalize(path) {
                Ok(real) if real.join(MANIFEST).exists() => drop(targets.insert(real, RecursiveMode::Recursive)),
                Ok(real) if real.is_dir() => drop(targets.entry(real).or_insert(RecursiveMode::NonRecursive)),
                // Behind a link; or a library that was named itself.
                Ok(real) => above(&real, &mut targets),
                Err(_) => {}
            }
            above(path, &mut targets);
        }
        for root in self.plugins.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            for folder in folders(&root) {
                let is_plugin = folder.join(MANIFEST).exists();
                let mode = if is_plugin { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
                targets.entry(folder).or_insert(mode);
            }
        }
        targets
    }
}

/// The folders in a plugins directory that may be plugins, or become some.
fn folders(root: &Path) -> Vec<PathBuf> {
    let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| !hidden(path) && path.is_dir()).take(MAX_FOLDERS).collect()
}

/// `paths` as the system may call them: as they were named, resolved, and by the real path of the directory they lie in.
fn by_all_names(paths: &[PathBuf]) -> Vec<PathBuf> {
    let names = |path: &PathBuf| {
        let path = &std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let in_real = path.ancestors().skip(1).find_map(|ancestor| {
            let real = fs::canonicalize(ancestor).ok()?;
            Some(real.join(path.strip_prefix(ancestor).ok()?))
        });
        [Some(path.clone()), fs::canonicalize(path).ok(), in_real]
    };
    let names: BTreeSet<PathBuf> = paths.iter().flat_map(names).flatten().collect();
    names.into_iter().collect()
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
    /// Has `watcher` tell about `interests`, and no longer about what is none of them. What changes from its return on is
    /// told: a directory that appeared before the one above it was watched is found by looking again.
    ///
    /// # Errors
    /// When the system cannot watch one of them.
    pub(super) fn set(&mut self, watcher: &mut dyn Watcher, interests: &Interests) -> Result<(), notify::Error> {
        for _ in 0..MAX_ROUNDS {
            if !self.follow(watcher, interests)? {
                break;
            }
        }
        Ok(())
    }

    /// Asks about what there is now; whether that is more than before.
    fn follow(&mut self, watcher: &mut dyn Watcher, interests: &Interests) -> Result<bool, notify::Error> {
        let targets = interests.targets();
        self.plugins = by_all_names(&interests.plugins);
        self.others = by_all_names(&interests.others);
        let recursive = targets.iter().filter(|(_, mode)| **mode == RecursiveMode::Recursive);
        self.folders = recursive.map(|(path, _)| path.clone()).collect();
        let known = |path: &PathBuf, mode: RecursiveMode, at: Identity, targets: &BTreeMap<PathBuf, RecursiveMode>| {
            targets.get(path) == Some(&mode) && identity(path) == Some(at)
        };
        let stale = self.watched.extract_if(.., |path, (mode, at)| !known(path, *mode, *at, &targets));
        for (path, _) in stale.collect::<Vec<_>>() {
            // The system forgets a directory that is gone by itself.
            let _ = watcher.unwatch(&path);
        }
        let (mut outcome, mut is_more) = (Ok(()), false);
        for (path, mode) in targets {
            if self.watched.contains_key(&path) {
                continue;
            }
            let Some(at) = identity(&path) else { continue };
            match watcher.watch(&path, mode) {
                Ok(()) => {
                    self.watched.insert(path, (mode, at));
                    is_more = true;
                }
                // Gone since: it is noticed in the directory above.
                Err(_) if !path.exists() => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| is_more)
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
        event.paths.iter().any(|path| self.is_meant(path))
    }

    fn is_meant(&self, path: &Path) -> bool {
        let is_other = |other: &PathBuf| path.starts_with(other) || other.starts_with(path);
        self.others.iter().any(is_other)
            || self.plugins.iter().any(|root| root.starts_with(path))
            || self.folders.iter().any(|folder| path.starts_with(folder))
            || self.plugins.iter().any(|root| path.strip_prefix(root).is_ok_and(|rest| may_be_plugin(path, rest)))
    }
}

/// Whether what lies at `path`, by `rest` in a plugins directory, may be one, or have been.
fn may_be_plugin(path: &Path, rest: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    match rest.components().count() {
        _ if name == MANIFEST => true,
        1 if name.as_encoded_bytes().starts_with(b".") => false,
        1 => path.extension().is_some_and(|extension| extension == LIBRARY_EXTENSION) || !path.is_file(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_a_plugin_leads_to_a_look() {
        let root = tempfile::tempdir().expect("a folder");
        let root = fs::canonicalize(root.path()).expect("a path");
        let at = |path: &str| root.join(path);
        for folder in ["plugins/whole/lib", "plugins/deps/deep", "state/quarantine"] {
            fs::create_dir_all(at(folder)).expect("folders");
        }
        for file in ["plugins/whole/plugin.json", "plugins/notes.txt", "plugins/deps/x.so"] {
            fs::write(at(file), "").expect("written");
        }
        let interests = Interests {
            plugins: vec![at("plugins"), at("later/plugins")],
            others: vec![at("config.json5"), at("state/quarantine")],
        };
        let mut places = Places::default();
        let mut system = notify::NullWatcher;
        places.set(&mut system, &interests).expect("nothing to fail");
        let watched: Vec<String> = places
            .watched
            .iter()
            .map(|(path, (mode, _))| {
                format!(
                    "{}{}",
                    path.strip_prefix(&root).unwrap_or(path).display(),
                    if *mode == RecursiveMode::Recursive { "/**" } else { "" }
                )
            })
            .collect();
        assert_eq!(watched, ["", "plugins", "plugins/deps", "plugins/whole/**", "state", "state/quarantine"]);
        for (path, expected) in [
            ("plugins/x.so", true),
            ("plugins/.x.so", false),
            ("plugins/notes.txt", false),
            ("plugins/deps", true),
            ("plugins/deps/x.so", false),
            ("plugins/deps/plugin.json", true),
            ("plugins/whole/lib/x.so", true),
            ("plugins", true),
            ("later", true),
            ("config.json5", true),
            ("config.json5.swp", false),
            ("state/quarantine/x.json", true),
            ("state/hosts", false),
        ] {
            assert_eq!(places.is_meant(&at(path)), expected, "{path}");
        }
    }

    /// A system in which a directory appears just before the one above it is watched.
    struct Appearing(PathBuf, Vec<PathBuf>);

    impl Watcher for Appearing {
        fn new<F: notify::EventHandler>(_: F, _: notify::Config) -> notify::Result<Self> {
            unreachable!("made by the test")
        }
        fn watch(&mut self, path: &Path, _: RecursiveMode) -> notify::Result<()> {
            fs::create_dir_all(&self.0).expect("a folder");
            self.1.push(path.to_owned());
            Ok(())
        }
        fn unwatch(&mut self, _: &Path) -> notify::Result<()> {
            Ok(())
        }
        fn kind() -> notify::WatcherKind {
            notify::WatcherKind::NullWatcher
        }
    }

    #[test]
    fn a_directory_that_appears_meanwhile_is_watched() {
        let root = tempfile::tempdir().expect("a folder");
        let root = fs::canonicalize(root.path()).expect("a path");
        let plugins = root.join("home/plugins");
        let mut system = Appearing(plugins.clone(), vec![]);
        let interests = Interests { plugins: vec![plugins.clone()], others: vec![] };
        Places::default().set(&mut system, &interests).expect("watched");
        assert_eq!(system.1, [root.clone(), root.join("home"), plugins]);
    }
}
