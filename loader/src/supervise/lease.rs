//! The services of one call, taken back when the call is over.
//!
//! Decision: a host implements [`SessionServices`], which knows nothing of deadlines. An engine is lent a [`Lease`] on
//! them. When the call returns, is cancelled or runs out of time the lease is revoked, and from then on nothing an engine's
//! forgotten thread asks for has an effect: each effect is committed through the lease's [`Permit`], under the lock that
//! revoking takes too. An effect is there whole before the revocation, or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use context_engine_interface::{CallServices, CompactResult, EngineError, ErrorCode};

use super::cancel::CancelToken;
use crate::quarantine::marks;

/// What a host offers an engine during a call, as the host implements it. What it leaves out answers `Unavailable`.
///
/// A member that changes something does its work first and commits it with [`Permit::commit`].
pub trait SessionServices: Send + Sync + 'static {
    /// Completes with the model; request and answer as JSON (contract §1.6).
    ///
    /// # Errors
    /// `Failed` with the provider's reason.
    fn complete(&self, permit: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        let _ = (permit, request_json);
        Err(EngineError::unavailable("complete"))
    }
    /// Rewrites transcript entries; request and answer as JSON (contract §5.3).
    ///
    /// # Errors
    /// `Failed` with the reason, `Cancelled` after the call.
    fn rewrite_transcript(&self, permit: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        let _ = (permit, request_json);
        Err(EngineError::unavailable("rewrite_transcript"))
    }
    /// Has the runtime compact the session, as `legacy` would.
    ///
    /// # Errors
    /// `Failed` with the reason, `Cancelled` after the call.
    fn delegate_compaction(&self, permit: Permit<'_>, request_json: &str) -> Result<CompactResult, EngineError> {
        let _ = (permit, request_json);
        Err(EngineError::unavailable("delegate_compaction"))
    }
    /// A page of the transcript's entries after entry `after` (`None` = from the start), oldest first, as a JSON array.
    ///
    /// # Errors
    /// `Failed` when there is no such entry.
    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        let _ = (after, limit);
        Err(EngineError::unavailable("read_transcript"))
    }
    /// The memory section for the system prompt; `None` when there is none (contract §1.8).
    ///
    /// # Errors
    /// `Failed` with the reason.
    fn memory_prompt_section(&self, request_json: &str) -> Result<Option<String>, EngineError> {
        let _ = request_json;
        Ok(None)
    }
}

/// Services of a call that belongs to no session, such as `dispose`: none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoServices;

impl SessionServices for NoServices {}

/// The right to change something on behalf of a call that has not ended.
#[derive(Clone, Copy)]
pub struct Permit<'a> {
    lease: &'a Lease,
}

impl Permit<'_> {
    /// Runs `effect`, unless the call has ended. Keep it short: whoever ends the call waits for it.
    ///
    /// # Errors
    /// `Cancelled`, and nothing was done.
    pub fn commit<R>(&self, effect: impl FnOnce() -> R) -> Result<R, EngineError> {
        let revoked = self.lease.lock();
        if *revoked || self.lease.is_over() { Err(too_late()) } else { Ok(effect()) }
    }

    /// Whether the call has ended: work that is only begun can be left.
    pub fn is_over(&self) -> bool {
        self.lease.is_over()
    }
}

/// A host's services, for as long as one call lasts.
pub(crate) struct Lease {
    services: Arc<dyn SessionServices>,
    cancel: CancelToken,
    /// `None` for the built-in engine: its calls have no end but their own.
    limit: Option<Duration>,
    started: OnceLock<Instant>,
    revoked: Mutex<bool>,
    /// The same, to be asked in loops.
    over: AtomicBool,
    /// What services answered that could not serve: an engine that hands it on is not at fault.
    given: Mutex<Vec<String>>,
}

impl Lease {
    pub(crate) fn new(services: Arc<dyn SessionServices>, cancel: CancelToken, limit: Option<Duration>) -> Lease {
        Lease {
            services,
            cancel,
            limit,
            started: OnceLock::new(),
            revoked: Mutex::new(false),
            over: AtomicBool::new(false),
            given: Mutex::default(),
        }
    }

    /// The engine's time begins: waiting for a free thread is not the engine's doing.
    pub(super) fn start(&self) {
        let _ = self.started.set(Instant::now());
    }

    /// Ends the call: nothing the engine asks for has an effect any more.
    pub(super) fn revoke(&self) {
        self.over.store(true, Ordering::Release);
        *self.lock() = true;
    }

    /// Whether `error` is what a service of the host's answered in this call, as it was or in other words around it.
    pub(super) fn gave(&self, error: &EngineError) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.iter().any(|text| error.message.contains(text.as_str()))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.cancel.is_cancelled() || self.time_left() == Some(Duration::ZERO)
    }

    fn time_left(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(self.started.get().map_or(limit, |started| limit.saturating_sub(started.elapsed())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a service of the host's, while the call lasts.
    fn serve<R>(
        &self,
        name: &'static str,
        service: impl FnOnce(Permit<'_>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        if self.is_over() {
            return Err(too_late());
        }
        // A fault in here is the host's, on whichever thread.
        let _not_the_engine = marks::pause();
        // A panic becomes the engine's error at the boundary, in these words.
        let panic = Remember { lease: self, name };
        let answer = service(Permit { lease: self });
        std::mem::forget(panic);
        match answer {
            Err(_) if self.is_over() => Err(too_late()),
            Err(error) => {
                self.remember(error.message.to_string());
                Err(error)
            }
            answer => answer,
        }
    }

    fn remember(&self, text: String) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // An engine may ask again and again; the first answers say what is missing. An empty one says nothing.
        if given.len() < MAX_GIVEN && !text.is_empty() {
            given.push(text);
        }
    }
}

/// How many answers of services that could not serve are kept.
const MAX_GIVEN: usize = 16;

/// Remembers, when it is dropped, that a service panicked.
struct Remember<'a> {
    lease: &'a Lease,
    name: &'static str,
}

impl Drop for Remember<'_> {
    fn drop(&mut self) {
        self.lease.remember(format!("the host's `{}` panicked", self.name));
    }
}

impl CallServices for Lease {
    fn is_cancelled(&self) -> bool {
        self.is_over()
    }

    fn remaining(&self) -> Option<Duration> {
        self.time_left()
    }

    fn complete(&self, request_json: &str) -> Result<String, EngineError> {
        self.serve("complete", |permit| self.services.complete(permit, request_json))
    }

    fn rewrite_transcript(&self, request_json: &str) -> Result<String, EngineError> {
        self.serve("rewrite_transcript", |permit| self.services.rewrite_transcript(permit, request_json))
    }

    fn delegate_compaction(&self, request_json: &str) -> Result<CompactResult, EngineError> {
        self.serve("delegate_compaction", |permit| self.services.delegate_compaction(permit, request_json))
    }

    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        self.serve("read_transcript", |_| self.services.read_transcript(after, limit))
    }

    fn memory_prompt_section(&self, request_json: &str) -> Result<Option<String>, EngineError> {
        self.serve("memory_prompt_section", |_| self.services.memory_prompt_section(request_json))
    }
}

fn too_late() -> EngineError {
    EngineError::new(ErrorCode::CANCELLED, "the call has ended; nothing was changed")
}
