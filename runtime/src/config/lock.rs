//! Commands that change the same files wait for each other.
//!
//! Decision: a lock on a hidden file beside what is changed. The system lets go of it when its process ends, however it does,
//! so a command that was killed stops nobody. A command that takes several takes that of a plugins directory before that of a
//! configuration.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use context_engine_loader::platform::open_regular;

/// A command that waits longer than this says for what: it looks as if it hung.
const NOTICE: Duration = Duration::from_secs(1);

/// Held while files are changed; let go when it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Locks the file at `path`, which is made, for its folder's owner, where it is missing. Waits for at most `patience`, and
/// says so in the log after a second.
///
/// # Errors
/// What the system says; that another process holds it still.
pub fn lock(path: &Path, patience: Duration) -> io::Result<Lock> {
    let mut options = File::options();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = open_regular(path, &mut options)?;
    if let Some(folder) = path.parent().and_then(|folder| folder.metadata().ok()) {
        hand_over(&file, &folder);
    }
    let (started, mut said) = (Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) if started.elapsed() < patience => {
                if !said && started.elapsed() >= NOTICE {
                    said = true;
                    let seconds = patience.as_secs();
                    tracing::warn!("waiting up to {seconds} s for another command, which holds {}", path.display());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another command is changing it and does not end; try again later"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Gives a file that root made in somebody's folder to that person, who could not open it otherwise. What cannot be given
/// away is theirs who made it.
pub(super) fn hand_over(file: &File, folder: &Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        if file.metadata().is_ok_and(|file| file.uid() != folder.uid()) {
            let _ = fchown(file, Some(folder.uid()), Some(folder.gid()));
        }
    }
    #[cfg(not(unix))]
    let _ = (file, folder);
}

/// Gives `file` owner and group of `old`, whose place it takes.
///
/// # Errors
/// That they cannot be kept, and what to do.
pub(super) fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let (new, uid, gid) = (file.metadata()?, old.uid(), old.gid());
        let (owner, group) = ((new.uid() != uid).then_some(uid), (new.gid() != gid).then_some(gid));
        if owner.is_some() || group.is_some() {
            fchown(file, owner, group).map_err(|error| {
                let kept = format!("it belongs to uid {uid} and gid {gid}, which cannot be kept: {error}");
                io::Error::new(error.kind(), format!("{kept}; run the command as its owner"))
            })?;
        }
    }
    #[cfg(not(unix))]
    let _ = (file, old);
    Ok(())
}
