//! An engine built against a changed interface. With the feature `later` it uses everything that was appended.
#![forbid(unsafe_code)]

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, export_engine, text_message,
};

struct Changed {
    #[cfg(feature = "later")]
    host: context_engine_interface::EngineHost,
}

impl ContextEngine for Changed {
    #[cfg(feature = "later")]
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Changed { host: ctx.host().clone() })
    }

    #[cfg(not(feature = "later"))]
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Changed {})
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let _ = ctx;
        let text = "changed answers".to_owned();
        #[cfg(feature = "later")]
        let text = format!("{text}: param {:?}, call {}, host {}", params.later(), ctx.later(), self.host.later());
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, &text), vec![]).keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: Changed,
    id: "changed",
    name: "Changed",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
