//! Why there is no answer, and whose fault that is.

use context_engine_interface::std_types::RString;
use context_engine_interface::{EngineError, ErrorCode};

use crate::quarantine::Fault;

/// Why a member gave no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The engine has no such member.
    Unsupported(EngineError),
    /// The caller took the call back.
    Cancelled,
    /// The engine could not be asked, or lacked something of this host's: it stays.
    NotItsFault(EngineError),
    /// The engine's own fault: it is set aside.
    Its(Fault, EngineError),
}

impl Failure {
    pub(super) fn describe(&self) -> String {
        match self {
            Failure::Cancelled => "the call was cancelled".to_owned(),
            Failure::Unsupported(error) | Failure::NotItsFault(error) | Failure::Its(_, error) => error.to_string(),
        }
    }

    pub(super) fn into_error(self) -> EngineError {
        match self {
            Failure::Cancelled => EngineError::new(ErrorCode::CANCELLED, "the call was cancelled"),
            Failure::Unsupported(error) | Failure::NotItsFault(error) | Failure::Its(_, error) => error,
        }
    }
}

/// The longest text of an engine's error that is kept, in bytes: it goes into answers, logs and records.
const MAX_ERROR: usize = 2_000;

/// What an engine says of itself, within bounds.
pub(super) fn bounded(mut error: EngineError) -> EngineError {
    let cut = |text: &RString| {
        let end = text.floor_char_boundary(MAX_ERROR);
        let more = text.len() - end;
        (more > 0).then(|| RString::from(format!("{}… ({more} bytes more)", &text[..end])))
    };
    if let Some(message) = cut(&error.message) {
        error.message = message;
    }
    // Half of a JSON object is none.
    if error.details_json.len() > MAX_ERROR {
        error.details_json = RString::new();
    }
    error
}
