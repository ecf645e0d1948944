//! Panics stop here: the code around every entry into an engine.
//!
//! Decision: the guard has to sit inside the plugin. Each library has its own copy of std, so a host's `catch_unwind`
//! aborts the process on a foreign panic, and abi_stable's own guard ends it with `exit(1)`. The panic hook is replaced
//! for the same reason: the default one walks the plugin's debug info at the first panic of every loaded copy (over
//! 100 ms and 36 MB with `RUST_BACKTRACE=1`) and prints over the host's output.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Once, OnceLock};

use abi_stable::std_types::RResult;

use super::error::{EngineError, ErrorCode};
use super::host::{EngineHost, LogLevel};

thread_local! {
    /// Where this thread's newest panic happened, between the hook and the guard.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Where the hook writes panics of threads an engine started itself.
static HOOK_HOST: OnceLock<EngineHost> = OnceLock::new();

/// Installs the plugin's panic hook. Called by the code `export_engine!` writes, so only ever in a plugin's own std.
pub(super) fn install_hook(host: &EngineHost) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let _ = HOOK_HOST.set(host.clone());
        std::panic::set_hook(Box::new(on_panic));
    });
}

fn on_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
    if let Some(host) = HOOK_HOST.get() {
        let text = info.payload_as_str().unwrap_or("a payload that is no text");
        host.log(LogLevel::ERROR, &format!("panicked at {location}: {text}"));
    }
    // A thread that is being torn down has no slot any more; its panic is in the log.
    let _ = LOCATION.try_with(|slot| slot.replace(Some(location)));
}

/// The text of a panic's payload. Drops the payload, whose own `Drop` may panic too.
pub(crate) fn payload_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is no text".to_owned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text
}

/// Runs engine code of `member`; a panic poisons the instance and becomes [`ErrorCode::PANICKED`].
pub(super) fn guard<R>(
    poisoned: &OnceLock<String>,
    member: &str,
    run: impl FnOnce() -> Result<R, EngineError>,
) -> RResult<R, EngineError> {
    if let Some(first) = poisoned.get() {
        let text = format!("`{member}` was not called: the engine is poisoned since {first}");
        return RResult::RErr(EngineError::new(ErrorCode::PANICKED, text));
    }
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(answer)) => RResult::ROk(answer),
        Ok(Err(error)) => RResult::RErr(demote(error)),
        Err(payload) => {
            let location =
                LOCATION.try_with(RefCell::take).ok().flatten().unwrap_or_else(|| "unknown place".to_owned());
            let text = format!("`{member}` panicked at {location}: {}", payload_text(payload));
            let _ = poisoned.set(text.clone());
            let details = serde_json::json!({ "member": member, "location": location });
            RResult::RErr(EngineError::new(ErrorCode::PANICKED, text).with_details(&details))
        }
    }
}

/// Codes that only this side of the boundary may mint arrive as `Failed` from an engine's own code.
fn demote(mut error: EngineError) -> EngineError {
    if matches!(error.code, ErrorCode::UNKNOWN_HOST_PARAM | ErrorCode::PANICKED) {
        error.code = ErrorCode::FAILED;
    }
    error
}
