//! An engine as it was written before `runtimeSettings` existed: how an older engine keeps working.
//!
//! `known_host_params` is the whole point of it. The engine lists the host params its author knew; anything newer is
//! refused before its code runs. A newer host then calls again without that key, once, and remembers it for as long as
//! the engine is loaded: nobody has to rebuild an engine because hosts learned to send more. An engine that can live with
//! keys it does not know leaves `known_host_params` out, as `sliding-window` does; one that needs a few of them only
//! says so with `accepted_host_params` and is never sent the others.
//!
//! What it does is simple: it keeps the newest turns that fit, and of a turn that is too long its newest groups.
#![forbid(unsafe_code)]

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Span, export_engine,
};

struct StrictV0;

impl ContextEngine for StrictV0 {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(StrictV0)
    }

    /// Keeps nothing of its own: each prompt is planned from the history it is given.
    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let messages = params.messages();
        let budget = params.token_budget().unwrap_or(u64::MAX);
        let start = oldest_that_fits(messages.turns_rev(), budget)
            .or_else(|| oldest_that_fits(messages.groups_rev(), budget))
            .unwrap_or(messages.len());
        let mut plan = Assembly::new();
        // Empty when not even the newest group fits: the host then answers with `legacy`, which shortens it.
        plan.keep(start..messages.len());
        Ok(plan)
    }

    /// Not this engine's business: the runtime summarises older history, as the built-in engine would.
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

/// Where the run of newest spans starts that costs at most `budget`; `None` when not even the newest does.
fn oldest_that_fits(spans: impl Iterator<Item = Span>, budget: u64) -> Option<usize> {
    let mut left = budget;
    let fitting = spans.map_while(|span| {
        left = left.checked_sub(span.tokens)?;
        Some(span.range.start)
    });
    fitting.last()
}

export_engine! {
    engine: StrictV0,
    id: "strict-v0",
    name: "Strict v0",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    known_host_params: ["sessionKey", "prompt", "sessionTarget", "runtimeContext", "abortSignal"],
}
