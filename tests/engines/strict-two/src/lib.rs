//! An engine that refuses two of the host params every host sends, `prompt` and `runtimeSettings`: each costs it one
//! refusal, and its code runs once.
#![forbid(unsafe_code)]

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, export_engine, text_message,
};
use journal::{Journal, host_params};

struct StrictTwo {
    journal: Journal,
}

impl ContextEngine for StrictTwo {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(StrictTwo { journal: Journal::of(ctx) })
    }

    fn ingest(&self, _: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.journal.note("ingest", host_params(params.host_params().json()));
        Ok(IngestResult::ingested())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.journal.note("assemble", host_params(params.host_params().json()));
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, "strict-two answers"), vec![]).keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.journal.note("compact", host_params(params.host_params().json()));
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: StrictTwo,
    id: "strict-two",
    name: "Strict two",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    known_host_params: ["sessionKey"],
}
