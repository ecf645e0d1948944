//! What both strict engines do; they differ in the host params they know, which stand in what they export.

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, text_message,
};
use journal::{Journal, host_params};

pub(crate) struct Strict {
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
        plan.insert(text_message(Role::USER, concat!(env!("CARGO_PKG_NAME"), " answers")), vec![])
            .keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.journal.note("compact", host_params(params.host_params().json()));
        ctx.delegate_compaction(params)
    }
}
