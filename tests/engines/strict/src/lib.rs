//! An engine of an older contract: it knows two host params, and everything newer is refused before its code runs.
#![forbid(unsafe_code)]

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, export_engine, text_message,
};
use journal::{Journal, host_params};

struct Strict {
    journal: Journal,
}

impl ContextEngine for Strict {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Strict { journal: Journal::of(ctx) })
    }

    fn ingest(&self, _: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.journal.note("ingest", host_params(params.host_params().json()));
        Ok(IngestResult::ingested())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.journal.note("assemble", host_params(params.host_params().json()));
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, "strict answers"), vec![]).keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.journal.note("compact", host_params(params.host_params().json()));
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: Strict,
    id: "strict",
    name: "Strict",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    known_host_params: ["sessionKey", "prompt"],
}
