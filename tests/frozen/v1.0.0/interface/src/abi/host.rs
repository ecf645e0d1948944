//! What a host does for an engine: services for the engine's life, and services for one call.
//!
//! Decision: two traits, because rights differ. [`EngineHost`] may be kept and used from any thread; what it offers
//! changes nothing in a session. [`CallContext`] is borrowed for one call and revoked when the call ends; what it offers
//! writes. Hosts implement the safe traits; the guards here keep a host's panic from crossing the boundary.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use abi_stable::sabi_types::RRef;
use abi_stable::std_types::{RArc, ROption, RResult, RSlice, RSliceMut, RStr, RString};
use abi_stable::type_level::downcasting::TD_Opaque;
use abi_stable::{StableAbi, sabi_trait};

use super::error::{EngineError, ErrorCode};
use super::guard::payload_text;
use super::params::CompactParams;
use super::results::CompactResult;

/// How much a log line matters. Open.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(pub u32);

impl LogLevel {
    /// Nothing. Only as an answer of [`HostServices::max_log_level`].
    pub const OFF: LogLevel = LogLevel(0);
    /// Something failed.
    pub const ERROR: LogLevel = LogLevel(1);
    /// Something is not as it should be.
    pub const WARN: LogLevel = LogLevel(2);
    /// Something happened.
    pub const INFO: LogLevel = LogLevel(3);
    /// For the engine's author.
    pub const DEBUG: LogLevel = LogLevel(4);
    /// For the engine's author, in bulk.
    pub const TRACE: LogLevel = LogLevel(5);
}

/// Services for an engine's life, as a host implements them.
pub trait HostServices: Send + Sync + 'static {
    /// Writes a line to the host's log.
    fn log(&self, level: LogLevel, message: &str);
    /// Tokens of `text` in the encoding the host counts with.
    fn count_tokens(&self, text: &str) -> u64;
    /// The most detailed level the host wants in its log. Cheap; asked before a line is made.
    fn max_log_level(&self) -> LogLevel {
        LogLevel::INFO
    }
}

/// Services for one call, as a host implements them. Every effect is refused once the call is revoked.
///
/// A host implements what it offers; what it leaves out answers [`ErrorCode::UNAVAILABLE`].
pub trait CallServices: Sync {
    /// Whether the call should stop. Cheap; ask it in loops.
    fn is_cancelled(&self) -> bool {
        false
    }
    /// How long the engine still has; `None` without a deadline.
    fn remaining(&self) -> Option<Duration> {
        None
    }
    /// Completes with the model; request and answer as JSON (contract §1.6).
    ///
    /// # Errors
    /// `Unavailable` without a model, `Cancelled` when the call ends meanwhile, `Failed` with the provider's reason.
    fn complete(&self, request_json: &str) -> Result<String, EngineError> {
        let _ = request_json;
        Err(EngineError::unavailable("complete"))
    }
    /// Rewrites transcript entries; request and answer as JSON (contract §5.3).
    ///
    /// # Errors
    /// `Unavailable` where the transcript cannot be written, `Cancelled` after revocation.
    fn rewrite_transcript(&self, request_json: &str) -> Result<String, EngineError> {
        let _ = request_json;
        Err(EngineError::unavailable("rewrite_transcript"))
    }
    /// Has the runtime compact the session, as `legacy` would.
    ///
    /// # Errors
    /// `Unavailable` outside a session, `Failed` with the reason.
    fn delegate_compaction(&self, request_json: &str) -> Result<CompactResult, EngineError> {
        let _ = request_json;
        Err(EngineError::unavailable("delegate_compaction"))
    }
    /// A page of the transcript's entries after entry `after` (`None` = from the start), oldest first, as a JSON array.
    ///
    /// # Errors
    /// `Unavailable` outside a session, `Failed` when there is no such entry.
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

/// [`HostServices`] as it crosses the boundary.
#[sabi_trait]
pub trait RawHostServices: Send + Sync + Clone {
    /// [`HostServices::log`]
    fn log(&self, level: LogLevel, message: RStr<'_>);
    /// Tokens of each text, into the slot beside it.
    fn count_tokens(&self, texts: RSlice<'_, RStr<'_>>, counts: RSliceMut<'_, u64>);
    /// [`HostServices::max_log_level`]
    #[sabi(last_prefix_field)]
    fn max_log_level(&self) -> LogLevel;
}

/// [`CallServices`] as it crosses the boundary.
#[sabi_trait]
pub trait RawCallServices: Sync {
    /// [`CallServices::is_cancelled`]
    fn is_cancelled(&self) -> bool;
    /// [`CallServices::remaining`], in nanoseconds.
    fn remaining_ns(&self) -> ROption<u64>;
    /// [`CallServices::complete`]
    fn complete(&self, request_json: RStr<'_>) -> RResult<RString, EngineError>;
    /// [`CallServices::rewrite_transcript`]
    fn rewrite_transcript(&self, request_json: RStr<'_>) -> RResult<RString, EngineError>;
    /// [`CallServices::delegate_compaction`]
    fn delegate_compaction(&self, request_json: RStr<'_>) -> RResult<CompactResult, EngineError>;
    /// [`CallServices::read_transcript`]
    fn read_transcript(&self, after: ROption<RStr<'_>>, limit: u32) -> RResult<RString, EngineError>;
    /// [`CallServices::memory_prompt_section`]
    #[sabi(last_prefix_field)]
    fn memory_prompt_section(&self, request_json: RStr<'_>) -> RResult<ROption<RString>, EngineError>;
}

/// Services for the engine's life. Cheap to clone, usable from any thread.
#[repr(transparent)]
#[derive(StableAbi)]
pub struct EngineHost {
    services: RawHostServices_TO<'static, RArc<()>>,
}

impl Clone for EngineHost {
    fn clone(&self) -> EngineHost {
        EngineHost { services: self.services.clone() }
    }
}

impl EngineHost {
    /// Wraps a host's services.
    pub fn new(services: Arc<dyn HostServices>) -> EngineHost {
        EngineHost {
            services: RawHostServices_TO::from_ptr(RArc::new(GuardedHost(ManuallyDrop::new(services))), TD_Opaque),
        }
    }

    /// Writes a line to the host's log, under the engine's name.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.services.log(level, message.into());
    }

    /// Tokens of `text` in the encoding the host counts with.
    pub fn count_tokens(&self, text: &str) -> u64 {
        let mut counts = [0];
        self.services.count_tokens([RStr::from_str(text)][..].into(), counts[..].as_mut().into());
        counts[0]
    }

    /// The most detailed level the host wants in its log: a line above it is lost, and need not be made.
    pub fn max_log_level(&self) -> LogLevel {
        self.services.max_log_level()
    }
}

/// Services for one call. Nothing of it can be kept: the borrow is the call's.
#[repr(transparent)]
#[derive(StableAbi)]
pub struct CallContext<'a> {
    services: RawCallServices_TO<'a, RRef<'a, ()>>,
}

impl CallContext<'_> {
    /// Lends `services` for one call.
    pub fn lend<R>(services: &dyn CallServices, call: impl FnOnce(&CallContext<'_>) -> R) -> R {
        let guarded = GuardedCall(services);
        call(&CallContext { services: RawCallServices_TO::from_ptr(&guarded, TD_Opaque) })
    }

    /// Whether the call should stop. Cheap; ask it in loops.
    pub fn is_cancelled(&self) -> bool {
        self.services.is_cancelled()
    }

    /// How long the engine still has; `None` without a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.services.remaining_ns().into_option().map(Duration::from_nanos)
    }

    /// Completes with the model; request and answer as JSON (contract §1.6).
    ///
    /// # Errors
    /// `Unavailable` without a model, `Cancelled` when the call ends meanwhile, `Failed` with the provider's reason.
    pub fn complete(&self, request_json: &str) -> Result<String, EngineError> {
        self.services.complete(request_json.into()).into_result().map(RString::into_string)
    }

    /// Rewrites transcript entries; request and answer as JSON (contract §5.3).
    ///
    /// # Errors
    /// `Unavailable` where the transcript cannot be written, `Cancelled` after revocation.
    pub fn rewrite_transcript(&self, request_json: &str) -> Result<String, EngineError> {
        self.services.rewrite_transcript(request_json.into()).into_result().map(RString::into_string)
    }

    /// Has the runtime compact the session, as `legacy` would: the answer of an engine that does not own compaction.
    ///
    /// # Errors
    /// `Unavailable` outside a session, `Failed` with the reason.
    pub fn delegate_compaction(&self, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        let host_params = params.host_params();
        let request = serde_json::json!({
            "sessionId": params.session_id().as_str(),
            "agentId": params.agent_id().into_option().map(|id| id.as_str()),
            "tokenBudget": params.token_budget().into_option(),
            "force": params.force(),
            "currentTokenCount": params.current_token_count().into_option(),
            "compactionTarget": params.compaction_target().0,
            "customInstructions": params.custom_instructions().into_option().map(|text| text.as_str()),
            "hostParams": serde_json::from_str::<serde_json::Value>(host_params.json()).ok(),
        });
        self.services.delegate_compaction(request.to_string().as_str().into()).into_result()
    }

    /// A page of the transcript's entries after entry `after` (`None` = from the start), oldest first, as a JSON array.
    ///
    /// # Errors
    /// `Failed` when there is no such entry.
    pub fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        let after = ROption::from(after.map(RStr::from_str));
        self.services.read_transcript(after, limit).into_result().map(RString::into_string)
    }

    /// The memory section for the system prompt; `None` when there is none (contract §1.8).
    ///
    /// # Errors
    /// `Failed` with the reason.
    pub fn memory_prompt_section(&self, request_json: &str) -> Result<Option<String>, EngineError> {
        let section = self.services.memory_prompt_section(request_json.into()).into_result()?;
        Ok(section.into_option().map(RString::into_string))
    }
}

/// Runs a host's service; its panic becomes an error of the engine's call instead of the end of the process.
fn guard_host<R>(service: &str, run: impl FnOnce() -> Result<R, EngineError>) -> RResult<R, EngineError> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|payload| {
            let text = payload_text(payload);
            Err(EngineError::new(ErrorCode::FAILED, format!("the host's `{service}` panicked: {text}")))
        })
        .into()
}

struct GuardedHost(ManuallyDrop<Arc<dyn HostServices>>);

impl Clone for GuardedHost {
    fn clone(&self) -> GuardedHost {
        GuardedHost(ManuallyDrop::new(Arc::clone(&self.0)))
    }
}

impl Drop for GuardedHost {
    /// The last owner may be a plugin: what the host's services do when they are dropped must not unwind into it.
    fn drop(&mut self) {
        // SAFETY: `drop` runs once and nothing reads the services after it.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut self.0) }));
        let _ = dropped.map_err(payload_text);
    }
}

impl RawHostServices for GuardedHost {
    fn log(&self, level: LogLevel, message: RStr<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.log(level, message.as_str()))).map_err(payload_text);
    }

    fn count_tokens(&self, texts: RSlice<'_, RStr<'_>>, mut counts: RSliceMut<'_, u64>) {
        for (text, count) in texts.iter().zip(counts.iter_mut()) {
            let counted = catch_unwind(AssertUnwindSafe(|| self.0.count_tokens(text.as_str()))).map_err(payload_text);
            // No text has more tokens than bytes: one that cannot be counted must not pass as free.
            *count = counted.unwrap_or(text.len() as u64);
        }
    }

    fn max_log_level(&self) -> LogLevel {
        let level = catch_unwind(AssertUnwindSafe(|| self.0.max_log_level())).map_err(payload_text);
        level.unwrap_or(LogLevel::INFO)
    }
}

struct GuardedCall<'a>(&'a dyn CallServices);

impl RawCallServices for GuardedCall<'_> {
    fn is_cancelled(&self) -> bool {
        // A host that cannot say whether the call goes on has lost it.
        catch_unwind(AssertUnwindSafe(|| self.0.is_cancelled())).map_err(payload_text).unwrap_or(true)
    }

    fn remaining_ns(&self) -> ROption<u64> {
        let left =
            catch_unwind(AssertUnwindSafe(|| self.0.remaining())).map_err(payload_text).unwrap_or(Some(Duration::ZERO));
        left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)).into()
    }

    fn complete(&self, request_json: RStr<'_>) -> RResult<RString, EngineError> {
        guard_host("complete", || self.0.complete(request_json.as_str()).map(RString::from))
    }

    fn rewrite_transcript(&self, request_json: RStr<'_>) -> RResult<RString, EngineError> {
        guard_host("rewrite_transcript", || self.0.rewrite_transcript(request_json.as_str()).map(RString::from))
    }

    fn delegate_compaction(&self, request_json: RStr<'_>) -> RResult<CompactResult, EngineError> {
        guard_host("delegate_compaction", || self.0.delegate_compaction(request_json.as_str()))
    }

    fn read_transcript(&self, after: ROption<RStr<'_>>, limit: u32) -> RResult<RString, EngineError> {
        let after = after.into_option();
        guard_host("read_transcript", || {
            self.0.read_transcript(after.as_ref().map(|id| id.as_str()), limit).map(RString::from)
        })
    }

    fn memory_prompt_section(&self, request_json: RStr<'_>) -> RResult<ROption<RString>, EngineError> {
        guard_host("memory_prompt_section", || {
            Ok(self.0.memory_prompt_section(request_json.as_str())?.map(RString::from).into())
        })
    }
}
