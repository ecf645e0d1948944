//! Errors as data: an open code the host acts on, a text for people, details as JSON.

use std::fmt;

use abi_stable::StableAbi;
use abi_stable::std_types::RString;

/// What the host does about an error. Open: a host treats a code it does not know as [`ErrorCode::FAILED`].
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The engine could not do it. The host answers this call with `legacy`.
    pub const FAILED: ErrorCode = ErrorCode(1);
    /// The engine refuses a host param it does not know (details: `{"key": …}`). The host calls again without it.
    ///
    /// Minted only by the code `export_engine!` writes, before the engine's own code runs; from the engine's own code it
    /// arrives as [`ErrorCode::FAILED`], because a retry after side effects would run them twice.
    pub const UNKNOWN_HOST_PARAM: ErrorCode = ErrorCode(2);
    /// The call was cancelled by its caller.
    pub const CANCELLED: ErrorCode = ErrorCode(3);
    /// The engine panicked (details: `{"location": …}`). The instance is poisoned: every later call answers this.
    pub const PANICKED: ErrorCode = ErrorCode(4);
    /// The engine has no such member. The host remembers it and goes on to the next in line.
    pub const UNSUPPORTED: ErrorCode = ErrorCode(5);
    /// The host has no such service, or not for this call. Not [`ErrorCode::UNSUPPORTED`]: an engine that hands it on
    /// must not be taken for one without the member that was called.
    pub const UNAVAILABLE: ErrorCode = ErrorCode(6);
}

/// Why a call was not answered. Frozen.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, PartialEq, Eq)]
pub struct EngineError {
    /// What the host does about it.
    pub code: ErrorCode,
    /// What happened, for people: one line.
    pub message: RString,
    /// More facts as a JSON object; empty for none.
    pub details_json: RString,
}

impl EngineError {
    /// An error with this code and text.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> EngineError {
        EngineError { code, message: RString::from(message.into()), details_json: RString::new() }
    }

    /// The engine could not do it.
    pub fn failed(message: impl fmt::Display) -> EngineError {
        EngineError::new(ErrorCode::FAILED, message.to_string())
    }

    /// The host has no `service`, or not for this call.
    pub fn unavailable(service: &str) -> EngineError {
        EngineError::new(ErrorCode::UNAVAILABLE, format!("this host does not offer `{service}` here"))
    }

    /// The engine has no `member`.
    pub fn unsupported(member: &str) -> EngineError {
        EngineError::new(ErrorCode::UNSUPPORTED, format!("`{member}` is not supported"))
    }

    /// The same error with details.
    #[must_use]
    pub fn with_details(mut self, details: &serde_json::Value) -> EngineError {
        self.details_json = RString::from(details.to_string());
        self
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EngineError {}
