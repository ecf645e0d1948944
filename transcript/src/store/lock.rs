//! The lock that makes a session file have one writer at a time.
//!
//! Decision: an operating system's lock on a file beside the session file, so that it is free the moment its owner dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::TranscriptError;

/// One session file, held by this process until the value is dropped.
#[derive(Debug)]
pub struct SessionLock {
    file: File,
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started on another thread may hold the file for a moment.
        let _ = self.file.unlock();
    }
}

impl SessionLock {
    /// Takes the lock of `session_file`, without waiting for it.
    ///
    /// # Errors
    /// [`TranscriptError::Locked`] when another has it, [`TranscriptError::Write`] when it cannot be taken.
    pub fn acquire(session_file: &Path) -> Result<SessionLock, TranscriptError> {
        let mut name = session_file.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let doing = "locking the session";
        let left = "nothing was changed: check the permissions of its folder";
        let failed = |source| TranscriptError::Write { path: path.clone(), doing, left, source };
        let mut options = OpenOptions::new();
        super::platform::private(&mut options);
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(SessionLock { file }),
            Err(TryLockError::WouldBlock) => {
                Err(TranscriptError::Locked { path: session_file.to_owned(), owner: "another program".to_owned() })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}
