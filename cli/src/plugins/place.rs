//! Putting things into the plugins directory, and taking them out.
//!
//! Decision: a thing is made complete beside its place, under a hidden name that no host looks at, written through to the
//! disk, and takes its place in steps (`steps`) after each of which the old build is there or the new one. A library is
//! never written over: a host may have it mapped by another way than its private copy. One command at a time does this, from
//! its look at what is there to its last step: two builds of one id in one directory would both be refused.

mod leftovers;
mod steps;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use context_engine_loader::on_one_line;
use context_engine_loader::platform::create_private_dir;
use context_engine_runtime::config::lock::{self, Lock};
use tempfile::TempDir;

pub(super) use self::leftovers::pinning;
pub(crate) use self::leftovers::{leftovers, unpinned};
pub(super) use self::steps::{Placing, place};

/// The most files and folders a plugin has.
pub(super) const MAX_ENTRIES: usize = 1_000;

/// The most bytes they have together.
pub(super) const MAX_BYTES: u64 = 512 << 20;

/// How long another command may take: copying what is largest to a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps other commands away from the plugins directory, which is made, and clears away what broken-off ones have left.
/// Always before a lock on the configuration.
pub(super) fn lock(plugins: &Path) -> io::Result<Lock> {
    make(plugins)?;
    let lock = lock::lock(&plugins.join(".lock"), PATIENCE)?;
    leftovers::clear(plugins);
    Ok(lock)
}

/// A folder of its own for what is being made, in the plugins directory: renaming works within one file system only.
pub(super) fn workplace(plugins: &Path) -> io::Result<TempDir> {
    make(plugins)?;
    tempfile::Builder::new().prefix(leftovers::INSTALLING).tempdir_in(plugins)
}

/// Makes the plugins directory where it is missing.
fn make(plugins: &Path) -> io::Result<()> {
    create_private_dir(plugins).map_err(|error| {
        let found = match fs::symlink_metadata(plugins) {
            Ok(there) if there.is_symlink() && fs::metadata(plugins).is_err() => "a link that leads nowhere",
            Ok(_) if !plugins.is_dir() => "a file",
            _ => return error,
        };
        io::Error::new(error.kind(), format!("expected a folder, found {found}; move it away, and the folder is made"))
    })
}

/// `path` from the root on, without `.` and `..`; links stay, but for those that `..` leads out of.
pub(super) fn plain(path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        match part {
            Component::ParentDir => {
                if plain.is_symlink() {
                    plain = fs::canonicalize(&plain)?;
                }
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Ok(plain)
}

/// Writes what `from` gives into the new file `to`, through to the disk. How many bytes that were.
pub(super) fn write(from: &mut impl Read, to: &Path, executable: bool) -> io::Result<u64> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if executable { 0o700 } else { 0o600 });
    #[cfg(not(unix))]
    let _ = executable;
    let mut file = options.open(to)?;
    let written = io::copy(from, &mut file)?;
    file.flush()?;
    file.sync_all()?;
    Ok(written)
}

/// Whether its owner may run a file: an engine may come with programs of its own.
pub(super) fn is_executable(meta: &fs::Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::mode(meta) & 0o100 != 0;
    #[cfg(not(unix))]
    {
        let _ = meta;
        false
    }
}

/// Copies the folder `from` to `to`, which is made. Files and folders only; of their modes, whether their owner may run them.
pub(super) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let refuse = |path: &Path, what: String| {
        let path = on_one_line(&path.to_string_lossy());
        Err(io::Error::other(format!("{path} {what}")))
    };
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    let (mut entries, mut bytes) = (0, 0);
    while let Some((from, to)) = folders.pop() {
        create_private_dir(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            entries += 1;
            if entries > MAX_ENTRIES {
                return refuse(
                    &from,
                    format!("holds more than {MAX_ENTRIES} files and folders; install a folder with the plugin alone"),
                );
            }
            if kind.is_dir() {
                folders.push((path, to.join(entry.file_name())));
            } else if kind.is_file() {
                let file = File::open(&path)?;
                let executable = is_executable(&file.metadata()?);
                bytes += write(&mut file.take(MAX_BYTES - bytes + 1), &to.join(entry.file_name()), executable)?;
                if bytes > MAX_BYTES {
                    return refuse(
                        &from,
                        format!("holds more than {MAX_BYTES} bytes; install a folder with the plugin alone"),
                    );
                }
            } else {
                return refuse(&path, "is no file and no folder; put the file itself in its place".to_owned());
            }
        }
    }
    Ok(())
}

/// Plugins that no host finds any more, and that can still be put back.
pub(super) struct Away {
    folder: TempDir,
    /// Where each is now, and where it was.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl Away {
    /// Takes files, links or folders out of the plugins directory; all of them or none.
    pub(super) fn take(plugins: &Path, paths: &[PathBuf]) -> io::Result<Option<Away>> {
        if paths.is_empty() {
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix(leftovers::REMOVED).tempdir_in(plugins)?;
        let mut away = Away { folder, moved: vec![] };
        let take = |path: &PathBuf| {
            let hidden = away.folder.path().join(path.file_name().unwrap_or_default());
            fs::rename(path, &hidden).map(|()| away.moved.push((hidden, path.clone())))
        };
        match paths.iter().try_for_each(take).and_then(|()| sync(plugins)) {
            Ok(()) => Ok(Some(away)),
            Err(error) => away.put_back().and(Err(error)),
        }
    }

    /// As if nothing had been taken. What cannot be put back now, the next command tries to.
    pub(super) fn put_back(self) -> io::Result<()> {
        let back = self.moved.iter().try_for_each(|(hidden, path)| fs::rename(hidden, path));
        if back.is_err() {
            let folder = self.folder.keep();
            let name =
                folder.file_name().unwrap_or_default().to_string_lossy().replace(leftovers::REMOVED, leftovers::ASIDE);
            fs::rename(&folder, folder.with_file_name(name))?;
        }
        back
    }

    /// Removes them; nothing a link leads to.
    pub(super) fn delete(self) -> io::Result<()> {
        self.folder.close()
    }
}

/// The names in a folder reach the disk.
fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Where the plugin `id` is put.
pub(super) fn target(plugins: &Path, id: &str, is_folder: bool) -> PathBuf {
    let name = if is_folder { id.to_owned() } else { format!("{id}{}", std::env::consts::DLL_SUFFIX) };
    plugins.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_away_comes_back_whole_or_goes_whole() {
        let root = tempfile::tempdir().expect("a folder");
        let (one, two) = (root.path().join("one.so"), root.path().join("two"));
        fs::write(&one, "1").expect("written");
        fs::create_dir(&two).expect("a folder");
        let both = [one.clone(), two.clone()];
        let missing = [one.clone(), root.path().join("missing")];
        assert!(Away::take(root.path(), &missing).is_err() && one.exists(), "all or none");
        let taken = || Away::take(root.path(), &both).expect("taken").expect("something");
        let away = taken();
        assert!(!one.exists() && !two.exists());
        away.put_back().expect("put back");
        assert!(one.exists() && two.exists());
        // Somebody has put a folder there meanwhile: the file waits.
        let away = taken();
        fs::create_dir(&one).expect("a folder");
        away.put_back().expect_err("its place is taken");
        fs::remove_dir(&one).expect("removed");
        leftovers::clear(root.path());
        assert_eq!((fs::read_to_string(&one).expect("back"), two.exists()), ("1".to_owned(), true));
        taken().delete().expect("deleted");
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 0);
    }
}
