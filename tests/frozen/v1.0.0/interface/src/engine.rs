//! The trait an engine implements. Start here.
//!
//! Source: OpenClaw contract, Part 1, in Rust case. Required: `create`, `ingest`, `assemble`, `compact`; `info` comes from
//! `export_engine!`. An optional member that is left out answers `Unsupported`, and the host goes on to the next in line
//! (`after_turn`, else `ingest_batch`, else `ingest`).

use crate::{
    Acknowledged, AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, BootstrapParams, BootstrapResult,
    CallContext, CommitTurnParams, CommitTurnResult, CompactParams, CompactResult, DisposeParams, EngineContext,
    EngineError, IngestBatchParams, IngestBatchResult, IngestParams, IngestResult, MaintainParams, MaintainResult,
    PrepareSubagentSpawnParams, RollbackSubagentSpawnParams, SpawnPreparation, SubagentEndedParams, ToolCallParams,
    ToolsListParams,
};

/// Decides what the model sees before each call and what becomes of older messages.
///
/// One instance per (engine, agent folder, workspace) serves many sessions. The host runs one call at a time per session
/// (background maintenance apart) and sessions in parallel, so state is kept per `session_id`, behind a lock.
///
/// Nothing borrowed from a parameter outlives the call. A panic is caught at the plugin's edge; it poisons the instance.
pub trait ContextEngine: Send + Sync + 'static {
    /// Makes an instance. Called lazily, before the first use.
    ///
    /// # Errors
    /// Whatever keeps the engine from working, such as a wrong configuration; `legacy` answers instead.
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError>
    where
        Self: Sized;

    /// Takes over a session that already has a transcript, such as by importing it.
    ///
    /// # Errors
    /// The host warns and goes on with the engine.
    fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("bootstrap"))
    }

    /// Cares for the transcript after `bootstrap`, a successful turn or a compaction.
    ///
    /// # Errors
    /// The host warns and drops the result.
    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("maintain"))
    }

    /// Takes in one new message. Called at the end of a turn when neither `after_turn` nor `ingest_batch` exists.
    ///
    /// # Errors
    /// The host warns and goes on with the next message.
    fn ingest(&self, ctx: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError>;

    /// Takes in a finished turn's new messages at once.
    ///
    /// # Errors
    /// The host warns and skips the turn's `maintain`.
    fn ingest_batch(
        &self,
        ctx: &CallContext<'_>,
        params: IngestBatchParams<'_>,
    ) -> Result<IngestBatchResult, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("ingest_batch"))
    }

    /// Plans the prompt of one model call within `token_budget`.
    ///
    /// # Errors
    /// The same call is answered by `legacy`.
    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError>;

    /// Makes the history shorter. An engine that does not own compaction answers with
    /// [`CallContext::delegate_compaction`].
    ///
    /// # Errors
    /// Reported to whoever asked; `legacy` does not redo it behind the engine's back.
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError>;

    /// Works after a turn: stores state, updates indices.
    ///
    /// # Errors
    /// The host warns and skips the turn's `maintain`; the reply is kept.
    fn after_turn(&self, ctx: &CallContext<'_>, params: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("after_turn"))
    }

    /// Stores a turn durably: the same advancement key twice is one turn.
    ///
    /// # Errors
    /// The host keeps the turn and commits it again later.
    fn commit_turn(
        &self,
        ctx: &CallContext<'_>,
        params: CommitTurnParams<'_>,
    ) -> Result<CommitTurnResult, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("commit_turn"))
    }

    /// Prepares what a child session inherits, before it starts.
    ///
    /// # Errors
    /// The spawn is refused.
    fn prepare_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: PrepareSubagentSpawnParams<'_>,
    ) -> Result<SpawnPreparation, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("prepare_subagent_spawn"))
    }

    /// Undoes a preparation whose spawn failed. Called once per token at most.
    ///
    /// # Errors
    /// Logged only.
    fn rollback_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        params: RollbackSubagentSpawnParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("rollback_subagent_spawn"))
    }

    /// Cleans up after a child session.
    ///
    /// # Errors
    /// Logged only.
    fn on_subagent_ended(
        &self,
        ctx: &CallContext<'_>,
        params: SubagentEndedParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("on_subagent_ended"))
    }

    /// Releases what the instance holds, before it is dropped: at shutdown or reload, not per session.
    ///
    /// # Errors
    /// Logged only.
    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        let _ = (ctx, params);
        Err(EngineError::unsupported("dispose"))
    }
}

/// Tools an engine offers the model, such as a search over what left the window. Extension `tools/1`.
pub trait EngineTools: ContextEngine {
    /// The tools as a JSON array of `{name, description, parameters}`.
    ///
    /// # Errors
    /// The engine's tools are left out of the turn.
    fn list_tools(&self, ctx: &CallContext<'_>, params: ToolsListParams<'_>) -> Result<String, EngineError>;

    /// Runs the tool the model called; answers a JSON array of content blocks.
    ///
    /// # Errors
    /// The model is shown the error as the tool's result.
    fn call_tool(&self, ctx: &CallContext<'_>, params: ToolCallParams<'_>) -> Result<String, EngineError>;
}
