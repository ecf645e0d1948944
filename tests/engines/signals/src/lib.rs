//! Puts handlers of its own on two signals when it is created, as a crash reporter or an embedded runtime does. A host
//! that relies on its own handlers has to notice, or to put them back.

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, export_engine,
};

struct Signals;

#[cfg(unix)]
fn take_over() {
    extern "C" fn ignore(_: libc::c_int) {}
    for signal in [libc::SIGSEGV, libc::SIGTERM] {
        // SAFETY: the handler does nothing, which is safe in any thread at any time.
        unsafe { libc::signal(signal, ignore as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

#[cfg(not(unix))]
fn take_over() {}

impl ContextEngine for Signals {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        take_over();
        Ok(Signals)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: Signals,
    id: "signals",
    name: "Signals",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
