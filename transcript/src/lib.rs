//! Session transcripts: messages and their blocks, importers for what agents leave on disk, token counts.
//!
//! Decision: every recorded format is turned into OpenClaw's entries and message shape once, at the door; what is behind
//! it knows one model. What the model has no place for is kept in the message's own JSON, and counted.
#![forbid(unsafe_code)]

mod error;
pub mod message;
mod views;

pub use error::TranscriptError;
pub use message::{Block, Message};
