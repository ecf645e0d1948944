//! The crate's one error type.

use std::path::PathBuf;

/// Why a transcript could not be used. Each message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// A message that cannot be indexed.
    #[error("message {id:?}: expected {expected}; repair or remove that entry")]
    Message {
        /// Entry id of the message.
        id: String,
        /// What its JSON should have been.
        expected: &'static str,
    },
    /// The file cannot be read.
    #[error("{}: cannot read the transcript: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path is a folder, a pipe or a device.
    #[error("{}: expected a regular file, found {found}; name one transcript file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Nothing but blanks, or nothing at all.
    #[error("{name}: expected a transcript, found an empty file; nothing was recorded, or it was cut to nothing")]
    Empty {
        /// The file.
        name: String,
    },
    /// The content is of no format this version reads.
    #[error("{name}: detecting the format: expected {expected}; found {found}; convert it to one of these")]
    UnknownFormat {
        /// The file.
        name: String,
        /// The formats that were looked for.
        expected: &'static str,
        /// What stands at its beginning, escaped and shortened.
        found: String,
    },
    /// The file is a single JSON document with an error in it.
    #[error(
        "{name}: reading the JSON document: expected {expected}, found {found} at line {line}, column {column}; \
         the file is damaged or cut off: restore it or repair it there"
    )]
    Json {
        /// The file.
        name: String,
        /// What the document should hold.
        expected: &'static str,
        /// The parser's words.
        found: String,
        /// One-based line.
        line: usize,
        /// One-based column, in bytes.
        column: usize,
    },
    /// The session is open elsewhere.
    #[error("{}: the session is in use by {owner}; close it there, or wait", path.display())]
    Locked {
        /// The session file.
        path: PathBuf,
        /// Who has it.
        owner: String,
    },
    /// It cannot be made sure that nobody else writes the session.
    #[error("{}: taking the session's lock: {source}; {to_do}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the operating system said, or what stands in its place.
        source: std::io::Error,
        /// What to do.
        to_do: &'static str,
    },
    /// A name that means no session, or several.
    #[error(
        "{}: looking for the session {id:?}: expected an id, or a beginning of one that no other has, found {found}; \
         `context-engine sessions list` shows all", folder.display()
    )]
    NoSession {
        /// Where it was looked for.
        folder: PathBuf,
        /// What was asked for.
        id: String,
        /// What there is of it.
        found: String,
    },
    /// A repair whose outcome is not what was read before.
    #[error("{}: repairing the session: {found}; nothing was changed: try again, or keep the file and report it", path.display())]
    Repair {
        /// The session file.
        path: PathBuf,
        /// What was noticed.
        found: &'static str,
    },
    /// A session that is to be made is there already.
    #[error("{}: making the session: expected no file of this name, found one; open it, or choose another name", path.display())]
    Exists {
        /// The session file.
        path: PathBuf,
    },
    /// The file is of a version the store does not write. An older one is imported; a newer one is from a newer program.
    #[error(
        "{}: opening the session: expected version 3 of the session format, found version {version}; \
         an older one has to be imported first: `context-engine sessions import`", path.display()
    )]
    Version {
        /// The session file.
        path: PathBuf,
        /// The version of its header; 1 for a file whose entries have no ids.
        version: u64,
    },
    /// The file is no session file of one session.
    #[error(
        "{}: opening the session: expected the JSON lines of one session (OpenClaw's format, version 3), found {found}; \
         make one of it first: `context-engine sessions import`", path.display()
    )]
    NotASession {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// Something could not be written.
    #[error("{}: {doing}: {source}; {left}", path.display())]
    Write {
        /// The file, folder or session file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What became of it, and what to do.
        left: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Another program changed the file in a way that an append cannot follow.
    #[error(
        "{}: appending to the session: expected the file as it was left, found that {found}; nothing was written: \
         open the session again", path.display()
    )]
    Changed {
        /// The session file.
        path: PathBuf,
        /// What happened to it.
        found: &'static str,
    },
    /// An id that names no entry.
    #[error("{}: Entry {id} not found{place}; name an entry by its whole id", path.display())]
    EntryNotFound {
        /// The session file.
        path: PathBuf,
        /// The id.
        id: String,
        /// Where it was looked for: nothing for the whole file, ` on the active branch`.
        place: &'static str,
    },
    /// An entry that could not be read again if it were written.
    #[error("{}: appending an entry of type {kind}: expected {expected}; nothing was written", path.display())]
    Entry {
        /// The session file.
        path: PathBuf,
        /// The entry's type.
        kind: &'static str,
        /// What it should have been.
        expected: &'static str,
    },
    /// What stands at an entry's place is no longer the entry.
    #[error(
        "{}: reading entry {id}: expected the line that was there when the session was opened, found something else; \
         another program changed the file: open the session again", path.display()
    )]
    EntryGone {
        /// The session file.
        path: PathBuf,
        /// The entry's id.
        id: String,
    },
}
