//! What can be done wrong at any place.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use context_engine_interface::{CallContext, CompactParamsFields, EngineError, ErrorCode};
use journal::Journal;
use serde_json::json;

/// How often a fault that waits looks up.
const PAUSE: Duration = Duration::from_millis(5);

/// One fault at one place.
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) place: &'static str,
    pub(crate) sleep_ms: u64,
}

/// A fault that waits for its thread to end.
struct AtTheEnd(Fault, Journal);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        // An error has nowhere to go from here.
        let _ = self.0.commit(None, &self.1);
    }
}

thread_local! {
    static AT_THE_END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// Has the destructor of a thread-local commit `fault`.
pub(crate) fn when_this_thread_ends(fault: Fault, journal: &Journal) {
    AT_THE_END.set(Some(AtTheEnd(fault, journal.clone())));
}

/// A payload whose own `Drop` panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic while a panic is cleaned up");
    }
}

/// A value that cannot be shown.
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("boom in a value")
    }
}

impl Fault {
    /// Does it. Returns when the call is to go on as if nothing had happened.
    pub(crate) fn commit(&self, ctx: Option<&CallContext<'_>>, journal: &Journal) -> Result<(), EngineError> {
        let place = self.place;
        let error = || EngineError::failed(format!("{place} errs on purpose"));
        let services = || ctx.ok_or_else(|| EngineError::failed(format!("{place} has no services")));
        match self.what.as_str() {
            "error" => return Err(error()),
            "unsupported" => return Err(EngineError::unsupported(place)),
            "panic" => panic!("boom in {place}"),
            "panic-number" => std::panic::panic_any(7_u64),
            "panic-bomb" => std::panic::panic_any(Bomb),
            "hang" => loop {
                std::thread::sleep(PAUSE);
            },
            "hang-polite" => {
                let ctx = services()?;
                while !ctx.is_cancelled() {
                    std::thread::sleep(PAUSE);
                }
                return Err(EngineError::new(ErrorCode::CANCELLED, format!("{place} was cancelled")));
            }
            "sleep" => std::thread::sleep(Duration::from_millis(self.sleep_ms)),
            "exit" => std::process::exit(1),
            "abort" => std::process::abort(),
            // As the system does it when the memory is used up.
            "be-killed" => {
                let own = std::process::id().to_string();
                let _ = std::process::Command::new("kill").args(["-9", &own]).status();
            }
            "segfault" => segfault(),
            "overflow" => _ = overflow(0),
            "spin" => loop {
                std::hint::spin_loop();
            },
            "late-write" => {
                let ctx = services()?;
                let left = ctx.remaining().unwrap_or_default();
                std::thread::sleep(left + Duration::from_millis(self.sleep_ms));
                let fields = CompactParamsFields { session_id: "late".into(), ..CompactParamsFields::default() };
                let written = match fields.lend(|params| ctx.delegate_compaction(params)) {
                    Ok(result) => json!({ "ok": result.ok }),
                    Err(error) => json!({ "error": error.code.0, "message": error.message.as_str() }),
                };
                journal.note("late write", written);
            }
            "side-effect-then-error" => {
                journal.note("side effect", place.into());
                return Err(error());
            }
            "unavailable" => return services()?.complete(r#"{"prompt":"a word"}"#).map(drop),
            "print" => print(place),
            "trace" => trace(place),
            other => return Err(EngineError::failed(format!("no fault is called {other:?}"))),
        }
        Ok(())
    }
}

/// More than a pipe or a buffer holds, on both streams, with an end that is no end of a line.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "that is the fault")]
fn print(place: &str) {
    for number in 0..2_000 {
        println!("{{\"faulty\": \"prints line {number} in {place}\"}}");
        eprintln!("faulty complains, line {number} in {place}");
    }
    print!("{{\"faulty\": ");
    let _ = std::io::Write::flush(&mut std::io::stdout());
}

/// Says something through each of the two facades, in every way that could go wrong.
fn trace(place: &str) {
    let _span = tracing::error_span!("a span", content = "of a span").entered();
    tracing::warn!(place, count = 3, "traced by faulty");
    tracing::warn!(target: "another_crate::inner", "traced by\nanother crate");
    tracing::warn!(count = 3);
    tracing::warn!(value = %Unspeakable, "traced with a bad value");
    tracing::trace!("traced in bulk");
    log::warn!("logged by faulty in {place}");
    log::warn!(target: "another_crate", "logged by another crate");
    log::warn!("logged with {Unspeakable}");
    log::trace!("logged in bulk");
}

#[allow(unsafe_code, reason = "only unsafe code can do what this fault is")]
fn segfault() {
    // SAFETY: none. The first page is never mapped; the write ends the process, as it is meant to. Not the null pointer
    // itself, which a debug build would turn into a panic.
    unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) }
}

/// Calls itself until the stack ends. The frame is used after the call, so that no optimiser makes a loop of it.
#[allow(unconditional_recursion, reason = "that is the fault")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow(depth + 1).wrapping_add(std::hint::black_box(frame)[0])
}
