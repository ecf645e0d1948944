//! Leaves something in every thread it is called in, to be cleaned up when that thread ends: long after the call, perhaps
//! after the engine is gone. A host that had unmapped the library by then would jump into nothing.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, export_engine, text_message,
};

/// Threads that were in the engine and have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

struct Visit;

impl Drop for Visit {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static VISIT: Visit = const { Visit };
}

struct ThreadLocal;

impl ContextEngine for ThreadLocal {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(ThreadLocal)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    /// Says how many threads have ended, one of its own included.
    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        VISIT.with(|_| ());
        std::thread::spawn(|| VISIT.with(|_| ())).join().map_err(|_| EngineError::failed("the thread panicked"))?;
        let ended = ENDED.load(Ordering::SeqCst);
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, &format!("{ended} threads ended")), vec![]);
        plan.keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: ThreadLocal,
    id: "thread-local",
    name: "Thread local",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
