//! Session transcripts: messages and their blocks, importers for what agents leave on disk, a writer of OpenClaw's
//! session files, the store a live session is kept in, token counts.
//!
//! Decision: every recorded format is turned into OpenClaw's entries and message shape once, at the door; what is behind
//! it knows one model. What the model has no place for is kept in the message's own JSON, and counted.
#![forbid(unsafe_code)]

mod branch;
pub mod content;
mod counts;
mod entry;
mod error;
pub mod import;
pub mod message;
mod pictures;
mod session;
pub mod store;
mod time;
pub mod tokens;
mod views;
mod writer;

pub use counts::{Counts, Tally};
pub use entry::{Entry, EntryPayload, Timestamp};
pub use error::TranscriptError;
pub use import::{Format, ImportOptions, ImportWarning, Imported, load, load_bytes, load_bytes_with, load_with};
pub use message::{Block, Message};
pub use session::{History, HistoryOptions, RecordedSession};
pub use tokens::{Encoding, TokenCounter};
