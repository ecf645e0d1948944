//! The engine as it crosses the boundary, and both ends of it.
//!
//! - [`RawEngine`]: the vtable.
//! - [`Shim`]: plugin side; makes any [`ContextEngine`] a [`RawEngine`], guarded.
//! - [`RemoteEngine`]: host side; makes a [`RawEngine`] a [`ContextEngine`] again, so a loaded engine and a linked one
//!   are the same trait object.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use abi_stable::sabi_trait;
use abi_stable::std_types::{RBox, RResult};
use abi_stable::type_level::downcasting::TD_CanDowncast;
use serde_json::value::RawValue;

use super::error::{EngineError, ErrorCode};
use super::guard::{guard, payload_text};
use super::host::CallContext;
use super::params::{
    AfterTurnParams, AssembleParams, BootstrapParams, CommitTurnParams, CompactParams, DisposeParams, EngineContext,
    HostParams, IngestBatchParams, IngestParams, MaintainParams, PrepareSubagentSpawnParams,
    RollbackSubagentSpawnParams, SubagentEndedParams,
};
use super::plan::Assembly;
use super::results::{
    Acknowledged, AfterTurnResult, BootstrapResult, CommitTurnResult, CompactResult, IngestBatchResult, IngestResult,
    MaintainResult, SpawnPreparation,
};
use crate::engine::ContextEngine;

type Answer<T> = RResult<T, EngineError>;

/// [`ContextEngine`] as it crosses the boundary. Grows at its end, by methods with a default body.
#[sabi_trait]
pub trait RawEngine: Send + Sync {
    /// [`ContextEngine::bootstrap`]
    fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Answer<BootstrapResult>;
    /// [`ContextEngine::maintain`]
    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Answer<MaintainResult>;
    /// [`ContextEngine::ingest`]
    fn ingest(&self, ctx: &CallContext<'_>, params: IngestParams<'_>) -> Answer<IngestResult>;
    /// [`ContextEngine::ingest_batch`]
    fn ingest_batch(&self, ctx: &CallContext<'_>, params: IngestBatchParams<'_>) -> Answer<IngestBatchResult>;
    /// [`ContextEngine::assemble`]
    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Answer<Assembly>;
    /// [`ContextEngine::compact`]
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Answer<CompactResult>;
    /// [`ContextEngine::after_turn`]
    fn after_turn(&self, ctx: &CallContext<'_>, params: AfterTurnParams<'_>) -> Answer<AfterTurnResult>;
    /// [`ContextEngine::commit_turn`]
    fn commit_turn(&self, ctx: &CallContext<'_>, params: CommitTurnParams<'_>) -> Answer<CommitTurnResult>;
    /// [`ContextEngine::prepare_subagent_spawn`]
    fn prepare_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: PrepareSubagentSpawnParams<'_>,
    ) -> Answer<SpawnPreparation>;
    /// [`ContextEngine::rollback_subagent_spawn`]
    fn rollback_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: RollbackSubagentSpawnParams<'_>,
    ) -> Answer<Acknowledged>;
    /// [`ContextEngine::on_subagent_ended`]
    fn on_subagent_ended(&self, ctx: &CallContext<'_>, params: SubagentEndedParams<'_>) -> Answer<Acknowledged>;
    /// [`ContextEngine::dispose`]
    #[sabi(last_prefix_field)]
    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged>;
}

/// An engine instance of a plugin.
pub type EngineObject = RawEngine_TO<'static, RBox<()>>;

/// An engine inside its guard.
pub struct Shim<E> {
    engine: ManuallyDrop<E>,
    /// The first panic, once there was one.
    poisoned: OnceLock<String>,
    known_host_params: Option<&'static [&'static str]>,
}

impl<E: ContextEngine> Shim<E> {
    /// Creates the engine under the guard.
    ///
    /// `known_host_params`: when given, any other host param is refused before the engine's code runs.
    pub(super) fn create(
        ctx: EngineContext<'_>,
        known_host_params: Option<&'static [&'static str]>,
    ) -> Answer<EngineObject> {
        let unborn = OnceLock::new();
        guard(&unborn, "create", || E::create(ctx)).map(|engine| {
            let poisoned = OnceLock::new();
            let shim = Shim { engine: ManuallyDrop::new(engine), poisoned, known_host_params };
            RawEngine_TO::from_value(shim, TD_CanDowncast)
        })
    }

    /// The engine behind `object`, if it is one of this plugin's.
    pub(super) fn of(object: &EngineObject) -> Option<&Shim<E>> {
        object.obj.downcast_as::<Shim<E>>().ok()
    }

    fn run<R>(&self, member: &str, call: impl FnOnce(&E) -> Result<R, EngineError>) -> Answer<R> {
        guard(&self.poisoned, member, || call(&self.engine))
    }

    /// Runs `member` under the guard, unless the engine refuses one of the host params.
    pub(super) fn run_with<R>(
        &self,
        member: &str,
        host_params: HostParams<'_>,
        call: impl FnOnce(&E) -> Result<R, EngineError>,
    ) -> Answer<R> {
        if let Some(refusal) = self.known_host_params.and_then(|known| refuse_unknown(known, host_params)) {
            return RResult::RErr(refusal);
        }
        self.run(member, call)
    }
}

/// The refusal of the first host param that is not in `known`, if there is one.
fn refuse_unknown(known: &[&str], host_params: HostParams<'_>) -> Option<EngineError> {
    let json = host_params.json();
    if json.is_empty() {
        return None;
    }
    let keys: std::collections::BTreeMap<String, &RawValue> = match serde_json::from_str(json) {
        Ok(keys) => keys,
        Err(error) => return Some(EngineError::failed(format!("host params are no JSON object: {error}"))),
    };
    let key = keys.keys().find(|key| !known.contains(&key.as_str()))?;
    let text = format!("unknown host param `{key}`; this engine knows {}", known.join(", "));
    Some(EngineError::new(ErrorCode::UNKNOWN_HOST_PARAM, text).with_details(&serde_json::json!({ "key": key })))
}

impl<E> Drop for Shim<E> {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once and nothing reads `engine` after it.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut self.engine) }));
        let _ = dropped.map_err(payload_text);
    }
}

impl<E: ContextEngine> RawEngine for Shim<E> {
    fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Answer<BootstrapResult> {
        self.run_with("bootstrap", params.host_params(), |engine| engine.bootstrap(ctx, params))
    }
    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Answer<MaintainResult> {
        self.run_with("maintain", params.host_params(), |engine| engine.maintain(ctx, params))
    }
    fn ingest(&self, ctx: &CallContext<'_>, params: IngestParams<'_>) -> Answer<IngestResult> {
        self.run_with("ingest", params.host_params(), |engine| engine.ingest(ctx, params))
    }
    fn ingest_batch(&self, ctx: &CallContext<'_>, params: IngestBatchParams<'_>) -> Answer<IngestBatchResult> {
        self.run_with("ingest_batch", params.host_params(), |engine| engine.ingest_batch(ctx, params))
    }
    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Answer<Assembly> {
        self.run_with("assemble", params.host_params(), |engine| engine.assemble(ctx, params))
    }
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Answer<CompactResult> {
        self.run_with("compact", params.host_params(), |engine| engine.compact(ctx, params))
    }
    fn after_turn(&self, ctx: &CallContext<'_>, params: AfterTurnParams<'_>) -> Answer<AfterTurnResult> {
        self.run_with("after_turn", params.host_params(), |engine| engine.after_turn(ctx, params))
    }
    fn commit_turn(&self, ctx: &CallContext<'_>, params: CommitTurnParams<'_>) -> Answer<CommitTurnResult> {
        self.run_with("commit_turn", params.host_params(), |engine| engine.commit_turn(ctx, params))
    }
    fn prepare_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: PrepareSubagentSpawnParams<'_>,
    ) -> Answer<SpawnPreparation> {
        self.run_with("prepare_subagent_spawn", params.host_params(), |engine| {
            engine.prepare_subagent_spawn(ctx, params)
        })
    }
    fn rollback_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: RollbackSubagentSpawnParams<'_>,
    ) -> Answer<Acknowledged> {
        self.run_with("rollback_subagent_spawn", params.host_params(), |engine| {
            engine.rollback_subagent_spawn(ctx, params)
        })
    }
    fn on_subagent_ended(&self, ctx: &CallContext<'_>, params: SubagentEndedParams<'_>) -> Answer<Acknowledged> {
        self.run_with("on_subagent_ended", params.host_params(), |engine| engine.on_subagent_ended(ctx, params))
    }
    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged> {
        self.run_with("dispose", params.host_params(), |engine| engine.dispose(ctx, params))
    }
}

/// A plugin's engine as the host calls it.
///
/// Each call is one indirect jump; parameters and views pass through as they are.
pub struct RemoteEngine {
    object: EngineObject,
}

impl RemoteEngine {
    /// Wraps an instance a plugin created.
    pub fn new(object: EngineObject) -> RemoteEngine {
        RemoteEngine { object }
    }

    /// The instance, for the functions of an extension.
    pub fn object(&self) -> &EngineObject {
        &self.object
    }
}

impl ContextEngine for RemoteEngine {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Err(EngineError::failed("a loaded engine is created by its plugin's root module"))
    }
    fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        self.object.bootstrap(ctx, params).into_result()
    }
    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        self.object.maintain(ctx, params).into_result()
    }
    fn ingest(&self, ctx: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.object.ingest(ctx, params).into_result()
    }
    fn ingest_batch(
        &self,
        ctx: &CallContext<'_>,
        params: IngestBatchParams<'_>,
    ) -> Result<IngestBatchResult, EngineError> {
        self.object.ingest_batch(ctx, params).into_result()
    }
    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.object.assemble(ctx, params).into_result()
    }
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.object.compact(ctx, params).into_result()
    }
    fn after_turn(&self, ctx: &CallContext<'_>, params: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        self.object.after_turn(ctx, params).into_result()
    }
    fn commit_turn(
        &self,
        ctx: &CallContext<'_>,
        params: CommitTurnParams<'_>,
    ) -> Result<CommitTurnResult, EngineError> {
        self.object.commit_turn(ctx, params).into_result()
    }
    fn prepare_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: PrepareSubagentSpawnParams<'_>,
    ) -> Result<SpawnPreparation, EngineError> {
        self.object.prepare_subagent_spawn(ctx, params).into_result()
    }
    fn rollback_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: RollbackSubagentSpawnParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        self.object.rollback_subagent_spawn(ctx, params).into_result()
    }
    fn on_subagent_ended(
        &self,
        ctx: &CallContext<'_>,
        params: SubagentEndedParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        self.object.on_subagent_ended(ctx, params).into_result()
    }
    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        self.object.dispose(ctx, params).into_result()
    }
}
