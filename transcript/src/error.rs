//! The crate's one error type.

/// Why a transcript could not be used.
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
}
