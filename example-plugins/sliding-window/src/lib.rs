//! The engine to copy: keeps the newest whole turns that fit, and has the runtime do its compaction.
#![forbid(unsafe_code)]

use context_engine_interface::std_types::ROption;
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, export_engine,
};

/// The engine. It keeps no state: every prompt is planned from the history it is given.
struct SlidingWindow;

impl ContextEngine for SlidingWindow {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(SlidingWindow)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let messages = params.messages();
        let budget = match params.token_budget() {
            ROption::RSome(budget) => budget,
            ROption::RNone => u64::MAX,
        };
        let mut plan = Assembly::new();
        let mut start = messages.len();
        let mut used = 0;
        for turn in messages.turns_rev() {
            if used + turn.tokens > budget {
                break;
            }
            used += turn.tokens;
            start = turn.range.start;
        }
        plan.keep(start..messages.len());
        plan.estimated_tokens = used;
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: SlidingWindow,
    id: "sliding-window",
    name: "Sliding window",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
