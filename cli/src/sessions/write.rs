//! How a command puts a session's file in its place.
//!
//! Decision: written beside the place under a name nobody has, then renamed, so that a command that is stopped leaves no half
//! file. A session that somebody has open is not replaced, and neither is a file that was read for it, whatever `--force` says:
//! what only it held would be gone.

use std::io::{self, Write};
use std::path::Path;

use context_engine_transcript::TranscriptError;
use context_engine_transcript::store::SessionLock;
use tempfile::NamedTempFile;

use crate::error::CliError;

/// Puts `content` at `to`; over what is there, when `force` says so. `read` is what it was made from.
pub(super) fn put(to: &Path, content: &str, force: bool, read: &[&Path]) -> Result<(), CliError> {
    let fail = |source| CliError::File { path: to.to_owned(), doing: "writing the session", source };
    let there = to.symlink_metadata().is_ok();
    if there && !force {
        return Err(CliError::Exists { path: to.to_owned() });
    }
    let place = to.canonicalize().ok();
    if place.is_some() && read.iter().any(|read| read.canonicalize().ok() == place) {
        let text = "it is what the session is read from, and that is never written; choose another place";
        return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    if let Some(owner) = SessionLock::owner(to).filter(|_| there) {
        return Err(TranscriptError::Locked { path: to.to_owned(), owner: owner.to_string() }.into());
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        match force {
            true => file.persist(to).map(drop).map_err(|error| error.error),
            false => file.persist_noclobber(to).map(drop).map_err(|error| error.error),
        }
    };
    write().map_err(|error| match error.kind() {
        // Somebody else was quicker.
        io::ErrorKind::AlreadyExists => CliError::Exists { path: to.to_owned() },
        _ => fail(error),
    })
}
