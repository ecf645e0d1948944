//! Putting things into the plugins directory, and taking them out.
//!
//! Decision: a thing is made complete beside its place, under a hidden name that no host looks at, written through to the
//! disk, and renamed. A library is never written over: a host may have it mapped by another way than its private copy, and
//! a host that looks meanwhile must find the old build or the new one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use context_engine_loader::on_one_line;
use context_engine_loader::platform::create_private_dir;
use tempfile::TempDir;

/// The most files and folders a plugin has.
pub(super) const MAX_ENTRIES: usize = 1_000;

/// The most bytes they have together.
pub(super) const MAX_BYTES: u64 = 512 << 20;

/// A folder of its own for what is being made, in the plugins directory: renaming works within one file system only.
pub(super) fn workplace(plugins: &Path) -> io::Result<TempDir> {
    create_private_dir(plugins)?;
    tempfile::Builder::new().prefix(".installing-").tempdir_in(plugins)
}

/// Writes what `from` gives into the new file `to`, through to the disk. How many bytes that were.
pub(super) fn write(from: &mut impl Read, to: &Path) -> io::Result<u64> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(to)?;
    let written = io::copy(from, &mut file)?;
    file.flush()?;
    file.sync_all()?;
    Ok(written)
}

/// Copies the folder `from` to `to`, which is made. Files and folders only.
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
                    format!("holds more than {MAX_ENTRIES} files; install a folder with the plugin alone"),
                );
            }
            if kind.is_dir() {
                folders.push((path, to.join(entry.file_name())));
            } else if kind.is_file() {
                let mut left = File::open(&path)?.take(MAX_BYTES - bytes + 1);
                bytes += write(&mut left, &to.join(entry.file_name()))?;
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

/// Gives `made` the name `target`. What had the name before is gone then.
pub(super) fn rename(made: &Path, target: &Path) -> io::Result<()> {
    let plugins = target.parent().unwrap_or(Path::new("."));
    let plain = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    if target.symlink_metadata().is_err() || (plain(made) && plain(target)) {
        fs::rename(made, target)?;
    } else {
        let aside = tempfile::Builder::new().prefix(".removed-").tempdir_in(plugins)?;
        let old = aside.path().join("old");
        fs::rename(target, &old)?;
        if let Err(error) = fs::rename(made, target) {
            fs::rename(&old, target)?;
            return Err(error);
        }
    }
    sync(plugins)
}

/// Removes a file, a link or a folder; nothing a link leads to.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let plugins = path.parent().unwrap_or(Path::new("."));
    // Renamed first: a host that looks meanwhile must not find half a folder.
    let aside = tempfile::Builder::new().prefix(".removed-").tempdir_in(plugins)?;
    fs::rename(path, aside.path().join("old"))?;
    aside.close()?;
    sync(plugins)
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
