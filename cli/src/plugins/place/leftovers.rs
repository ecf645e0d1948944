//! What commands that were broken off have left in the plugins directory.
//!
//! Decision: hidden folders, by name of what was done to what is in them. What was being made or had been removed is not
//! needed by anybody; it goes after an hour, because who unpacks an archive holds no lock. What was moved aside for a moment
//! may be the only copy there is: it gets its name back at once, if that is free.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Holds what is being made.
pub(super) const INSTALLING: &str = ".installing-";

/// Holds what was removed.
pub(super) const REMOVED: &str = ".removed-";

/// Holds, under its own name, what makes room for another.
pub(super) const ASIDE: &str = ".aside-";

/// A file, with the id of the engine behind it: what was installed under that id has yet to be pinned.
const PINNING: &str = ".pinning-";

/// A command may take this long.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The folders there are. Those of a command that still runs are among them.
pub(crate) fn leftovers(plugins: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        [INSTALLING, REMOVED, ASIDE].iter().flat_map(|prefix| named(plugins, prefix)).collect();
    found.sort();
    found
}

/// Where a command says that it will pin the engine `id`, from before its file is in place until it is pinned.
pub(in super::super) fn pinning(plugins: &Path, id: &str) -> PathBuf {
    plugins.join(format!("{PINNING}{id}"))
}

/// The engines whose pinning was not done: the file of each, and the id. Of a command that still runs, too.
pub(crate) fn unpinned(plugins: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(plugins).into_iter().flatten().flatten();
    let id = |name: &std::ffi::OsStr| Some(name.to_str()?.strip_prefix(PINNING)?.to_owned());
    let mut found: Vec<_> = entries.filter_map(|entry| Some((entry.path(), id(&entry.file_name())?))).collect();
    found.sort();
    found
}

fn named(plugins: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(plugins).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

/// Puts back what was moved aside, and removes what is old. Only with the lock: nobody moves anything then.
///
/// What cannot be done is left to the next command; the doctor shows it.
pub(super) fn clear(plugins: &Path) {
    for aside in named(plugins, ASIDE) {
        for entry in fs::read_dir(&aside).into_iter().flatten().flatten() {
            let place = plugins.join(entry.file_name());
            let replaced = fs::symlink_metadata(&place).is_ok();
            let _ = match (replaced, entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                (false, _) => fs::rename(entry.path(), place),
                (true, true) => fs::remove_dir_all(entry.path()),
                (true, false) => fs::remove_file(entry.path()),
            };
        }
        // Not with what could not be put back.
        let _ = fs::remove_dir(aside);
    }
    let is_old = |path: &PathBuf| {
        let made = fs::symlink_metadata(path).and_then(|meta| meta.modified());
        made.ok().and_then(|made| SystemTime::now().duration_since(made).ok()).is_some_and(|age| age >= LIFETIME)
    };
    for old in [INSTALLING, REMOVED].iter().flat_map(|prefix| named(plugins, prefix)).filter(is_old) {
        let _ = fs::remove_dir_all(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_old_goes_and_what_was_moved_aside_comes_back() {
        let plugins = tempfile::tempdir().expect("a folder");
        for name in
            [".installing-old", ".installing-new", ".removed-old", ".removed-new", ".aside-1/x.so", ".aside-2/y"]
        {
            fs::create_dir_all(plugins.path().join(name)).expect("folders");
        }
        for name in ["y", ".own", ".installing-file"] {
            fs::write(plugins.path().join(name), name).expect("written");
        }
        for name in [".installing-old", ".removed-old"] {
            fs::write(plugins.path().join(name).join("x.so"), "bytes").expect("written");
            let folder = fs::File::open(plugins.path().join(name)).expect("opened");
            folder.set_modified(SystemTime::now() - LIFETIME).expect("made old");
        }
        assert_eq!(leftovers(plugins.path()).len(), 6);
        clear(plugins.path());
        let left = [".installing-file", ".installing-new", ".own", ".removed-new", "x.so", "y"];
        assert_eq!(names(plugins.path()), left);
        assert_eq!(fs::read_to_string(plugins.path().join("y")).expect("the one that is in use"), "y");
    }
}
