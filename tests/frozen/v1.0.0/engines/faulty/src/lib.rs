//! Does wrong what its configuration says, where it says: one library for all the ways an engine can fail.
//!
//! ```json
//! {
//!   "faults": { "assemble": "panic", "after_turn": "unsupported", "ingest": "hang" },
//!   "sleep_ms": 50,          // for `sleep` and `late-write`
//!   "after": 3,              // the first three calls of each place are healthy
//!   "from_file": "/a/path"   // the same object is read from there at every call instead
//! }
//! ```
//!
//! A place is a member, `list_tools` or `call_tool`, `drop`, `thread` (a thread that `assemble` starts and joins), or `thread_end` (when the thread that
//! ran `assemble` ends). What can be done there stands in `faults`, wrong plans for `assemble` in `plans`. With `from_file` a test changes the fault between two turns without a
//! new instance; a file that is not there means no fault. Calls are counted per instance, so `after` spares a `create`
//! for good.
//!
//! Healthy, it keeps the newest turns that fit (of a turn that is too long, the newest groups), inserts nothing, and
//! answers every other member with the default.
#![deny(unsafe_code)]

mod faults;
mod plans;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use context_engine_interface::{
    Acknowledged, AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, BootstrapParams, BootstrapResult,
    CallContext, CommitStatus, CommitTurnParams, CommitTurnResult, CompactParams, CompactResult, ContextEngine,
    DisposeParams, EngineContext, EngineError, EngineTools, IngestBatchParams, IngestBatchResult, IngestParams,
    IngestResult, MaintainParams, MaintainResult, PrepareSubagentSpawnParams, RollbackSubagentSpawnParams,
    SpawnPreparation, SubagentEndedParams, ToolCallParams, ToolsListParams, export_engine,
};
use journal::Journal;
use serde_json::{Value, json};

use crate::faults::Fault;

struct Faulty {
    config: Value,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    journal: Journal,
}

impl Faulty {
    /// Notes the call of `place` and does what is to be done there, all but a wrong plan.
    fn reach(&self, place: &'static str, ctx: Option<&CallContext<'_>>) -> Result<(), EngineError> {
        self.journal.note(place, Value::Null);
        match self.fault(place)? {
            Some(fault) => fault.commit(ctx, &self.journal),
            None => Ok(()),
        }
    }

    /// The answer of one of its tools' functions, or a wrong one.
    fn answer(&self, place: &'static str, ctx: &CallContext<'_>, healthy: &str) -> Result<String, EngineError> {
        self.journal.note(place, Value::Null);
        match self.fault(place)? {
            Some(fault) if fault.what == "no-json" => Ok("[{".to_owned()),
            Some(fault) => fault.commit(Some(ctx), &self.journal).map(|()| healthy.to_owned()),
            None => Ok(healthy.to_owned()),
        }
    }

    /// What is wrong with this call of `place`.
    fn fault(&self, place: &'static str) -> Result<Option<Fault>, EngineError> {
        let calls = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let calls = calls.entry(place).or_default();
            *calls += 1;
            *calls
        };
        let config = match self.config["from_file"].as_str().map(std::fs::read_to_string) {
            None => self.config.clone(),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Some(text) => serde_json::from_str(&text.map_err(EngineError::failed)?).map_err(EngineError::failed)?,
        };
        let number = |key: &str| config[key].as_u64().unwrap_or(0);
        let what = config["faults"][place].as_str().filter(|_| calls > number("after"));
        Ok(what.map(|what| Fault { what: what.to_owned(), place, sleep_ms: number("sleep_ms") }))
    }
}

impl ContextEngine for Faulty {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let engine = Faulty { config: journal::config(ctx), calls: Mutex::default(), journal: Journal::of(ctx) };
        engine.reach("create", None)?;
        Ok(engine)
    }

    fn bootstrap(&self, ctx: &CallContext<'_>, _: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        self.reach("bootstrap", Some(ctx)).map(|()| BootstrapResult::default())
    }

    fn maintain(&self, ctx: &CallContext<'_>, _: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        self.reach("maintain", Some(ctx)).map(|()| MaintainResult::default())
    }

    fn ingest(&self, ctx: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.reach("ingest", Some(ctx)).map(|()| IngestResult::ingested())
    }

    fn ingest_batch(&self, ctx: &CallContext<'_>, _: IngestBatchParams<'_>) -> Result<IngestBatchResult, EngineError> {
        self.reach("ingest_batch", Some(ctx)).map(|()| IngestBatchResult::default())
    }

    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.journal.note("assemble", Value::Null);
        if let Some(fault) = self.fault("assemble")? {
            if let Some(plan) = plans::wrong(&fault.what, params) {
                return Ok(plan);
            }
            fault.commit(Some(ctx), &self.journal)?;
        }
        if let Some(fault) = self.fault("thread")? {
            let journal = self.journal.clone();
            // A panic there is nobody's answer; what an engine makes of it is its own affair.
            let _ = std::thread::spawn(move || fault.commit(None, &journal)).join();
        }
        if let Some(fault) = self.fault("thread_end")? {
            faults::when_this_thread_ends(fault, &self.journal);
        }
        Ok(plans::healthy(params))
    }

    fn compact(&self, ctx: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.reach("compact", Some(ctx)).map(|()| CompactResult::nothing_to_do("nothing to do", 0))
    }

    fn after_turn(&self, ctx: &CallContext<'_>, _: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        self.reach("after_turn", Some(ctx)).map(|()| AfterTurnResult::default())
    }

    fn commit_turn(&self, ctx: &CallContext<'_>, _: CommitTurnParams<'_>) -> Result<CommitTurnResult, EngineError> {
        self.reach("commit_turn", Some(ctx))?;
        Ok(CommitTurnResult { status: CommitStatus::COMMITTED, ..CommitTurnResult::default() })
    }

    fn prepare_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        _: PrepareSubagentSpawnParams<'_>,
    ) -> Result<SpawnPreparation, EngineError> {
        self.reach("prepare_subagent_spawn", Some(ctx)).map(|()| SpawnPreparation::default())
    }

    fn rollback_subagent_spawn(
        &self,
        ctx: &CallContext<'_>,
        _: RollbackSubagentSpawnParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        self.reach("rollback_subagent_spawn", Some(ctx)).map(|()| Acknowledged::default())
    }

    fn on_subagent_ended(
        &self,
        ctx: &CallContext<'_>,
        _: SubagentEndedParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        self.reach("on_subagent_ended", Some(ctx)).map(|()| Acknowledged::default())
    }

    fn dispose(&self, ctx: &CallContext<'_>, _: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        self.reach("dispose", Some(ctx)).map(|()| Acknowledged::default())
    }
}

impl EngineTools for Faulty {
    fn list_tools(&self, ctx: &CallContext<'_>, _: ToolsListParams<'_>) -> Result<String, EngineError> {
        let healthy = r#"[{"name":"look"},{"name":"look away"}]"#;
        self.answer("list_tools", ctx, healthy)
    }

    fn call_tool(&self, ctx: &CallContext<'_>, params: ToolCallParams<'_>) -> Result<String, EngineError> {
        let text = json!([params.tool_call_id().as_str(), params.name().as_str(), params.arguments_json().as_str()]);
        let healthy = json!([{ "type": "text", "text": text.to_string() }]).to_string();
        self.answer("call_tool", ctx, &healthy)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // An error has nowhere to go from here.
        let _ = self.reach("drop", None);
    }
}

export_engine! {
    engine: Faulty,
    id: "faulty",
    name: "Faulty",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: true,
    tools: true,
}
