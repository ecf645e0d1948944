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
    /// Somebody else writes the session.
    #[error("{}: the session is in use by {owner}; close it there, or wait", path.display())]
    Locked {
        /// The session file.
        path: PathBuf,
        /// Program and process, as far as they are known.
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
}
