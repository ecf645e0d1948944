//! Step 2, stage: a private copy under the content's digest, which is the only file ever opened.
//!
//! Decision: the dropped file is never handed to `dlopen`. Overwriting a mapped library kills the process, a half-copied
//! one can too, and the same path opened again returns the old code. A copy named by its content has none of this: it
//! is complete, nobody else writes it, and a new build has a new name.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::error::{LoaderError, Problem, Step};
use crate::platform::{LIBRARY_EXTENSION, create_private_dir, is_private, open_regular};

/// SHA-256 of a plugin's library: names the build, whatever the file is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest as it is shown: enough of its hex digits to tell builds apart.
pub fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// A library that is ready to be inspected and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The private copy.
    pub path: PathBuf,
    /// What is in it.
    pub digest: Digest,
}

/// Copies `library` into `stages`, or finds the copy that is there.
///
/// # Errors
/// [`Problem::Io`]; [`Problem::Unstable`] when the file's length changes meanwhile.
pub fn stage(library: &Path, stages: &Path) -> Result<Staged, LoaderError> {
    let io = |doing| {
        move |error: io::Error| LoaderError::new(library, Step::Stage, Problem::Io { doing, reason: error.to_string() })
    };
    let copying =
        |doing| move |error: io::Error| if is_full(&error) { full(library, stages, &error) } else { io(doing)(error) };
    create_private_dir(stages).and_then(|()| is_private(stages)).map_err(|error| {
        let problem = Problem::State { directory: stages.to_owned(), reason: error.to_string() };
        LoaderError::new(library, Step::Stage, problem)
    })?;
    // A pipe that has taken its place since it was found would never open.
    let real = fs::canonicalize(library).map_err(io("opening the library"))?;
    let mut source = open_regular(&real, File::options().read(true)).map_err(io("opening the library"))?;
    let state = |meta: &fs::Metadata| (meta.len(), meta.modified().ok());
    let before = state(&source.metadata().map_err(io("looking at the library"))?);
    let mut copy =
        tempfile::Builder::new().prefix(".staging-").tempfile_in(stages).map_err(copying("making the private copy"))?;
    let (digest, copied) = copy_and_digest(&mut source, &mut copy).map_err(copying("copying the library"))?;
    let after = state(&fs::metadata(library).map_err(io("looking at the library"))?);
    if before.0 != copied || before != after {
        let problem = Problem::Unstable { before: before.0, after: after.0.max(copied) };
        return Err(LoaderError::new(library, Step::Stage, problem));
    }
    let path = stages.join(format!("{digest}.{LIBRARY_EXTENSION}"));
    if holds(&path, digest) {
        touch(&path).map_err(io("keeping the private copy"))?;
    } else {
        copy.persist(&path).map_err(|error| {
            // Something that cannot be replaced, such as a directory, is for a person to remove.
            let named = io::Error::other(format!("{}: {}", path.display(), error.error));
            io("keeping the private copy")(named)
        })?;
    }
    Ok(Staged { path, digest })
}

/// Whether it is the disk, and not the library.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | ReadOnlyFilesystem)
}

fn full(library: &Path, stages: &Path, error: &io::Error) -> LoaderError {
    let problem = Problem::Full { directory: stages.to_owned(), reason: error.to_string() };
    LoaderError::new(library, Step::Stage, problem)
}

/// Makes a copy young again: another host may collect what looks unused between now and the opening.
fn touch(copy: &Path) -> io::Result<()> {
    open_regular(copy, File::options().append(true))?.set_modified(SystemTime::now())
}

/// Whether the copy is still there, as long as it was. Its content is not read again: nobody else enters the directory.
pub(crate) fn still_there(staged: &Staged, bytes: u64) -> bool {
    let found = fs::symlink_metadata(&staged.path);
    found.is_ok_and(|copy| copy.is_file() && copy.len() == bytes) && touch(&staged.path).is_ok()
}

/// Removes copies of builds that are not in `keep` and that were made or looked at more than `older_than` ago. Returns how
/// many.
///
/// Nothing breaks when a copy that a host has mapped is removed, because the mapping keeps its pages; but who looks at a
/// crash wants to have it.
pub fn collect(stages: &Path, keep: &BTreeSet<String>, older_than: Duration) -> usize {
    let Ok(entries) = fs::read_dir(stages) else { return 0 };
    let kept: Vec<String> = keep.iter().map(|digest| format!("{digest}.{LIBRARY_EXTENSION}")).collect();
    let stale = |path: &Path| {
        let age = fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
        age.and_then(|made| SystemTime::now().duration_since(made).ok()).is_some_and(|age| age >= older_than)
    };
    entries
        .flatten()
        .filter(|entry| !kept.iter().any(|name| entry.file_name() == name.as_str()))
        .filter(|entry| stale(&entry.path()) && fs::remove_file(entry.path()).is_ok())
        .count()
}

fn holds(path: &Path, digest: Digest) -> bool {
    open_regular(path, File::options().read(true))
        .and_then(|mut file| copy_and_digest(&mut file, &mut io::sink()))
        .is_ok_and(|(found, _)| found == digest)
}

fn copy_and_digest(from: &mut impl Read, to: &mut impl Write) -> io::Result<(Digest, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    let mut copied = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        copied += read as u64;
    }
    to.flush()?;
    Ok((Digest(hash.finalize().into()), copied))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_the_librarys_fault() {
        let error = io::Error::from(io::ErrorKind::StorageFull);
        assert!(is_full(&error) && !is_full(&io::Error::from(io::ErrorKind::NotFound)));
        let said = full(Path::new("/p/x.so"), Path::new("/h/state/stages"), &error).to_string();
        assert!(said.contains("cannot be copied into /h/state/stages") && said.contains("make room there"), "{said}");
    }

    #[test]
    fn what_is_no_file_in_the_place_of_a_copy_is_replaced_and_stops_nobody() {
        let root = tempfile::tempdir().expect("a folder");
        let (library, stages) = (root.path().join("x.so"), root.path().join("stages"));
        fs::write(&library, "a build").expect("written");
        let staged = stage(&library, &stages).expect("staged");
        fs::remove_file(&staged.path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&staged.path).status().expect("mkfifo can be run");
        assert!(made.success() && !still_there(&staged, 7));
        assert_eq!(stage(&library, &stages).expect("staged"), staged);
        assert_eq!(fs::read(&staged.path).expect("a file"), b"a build");
        fs::remove_file(&staged.path).expect("removed");
        std::os::unix::fs::symlink(&library, &staged.path).expect("linked");
        assert!(!still_there(&staged, 7), "a link is not ours");
        assert_eq!(stage(&library, &stages).expect("staged"), staged);
        assert!(fs::symlink_metadata(&staged.path).expect("there").is_file());
    }
}
