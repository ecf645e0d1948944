//! Answers every call with the error its configuration names: `{"code": 2}`. The details always ask for another call
//! without `runtimeSettings`, which only the code in front of the engine may do.
#![forbid(unsafe_code)]

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    ErrorCode, IngestParams, IngestResult, export_engine,
};
use journal::Journal;
use serde_json::{Value, json};

struct Errs {
    code: u32,
    journal: Journal,
}

impl Errs {
    fn error<T>(&self, member: &str) -> Result<T, EngineError> {
        self.journal.note(member, Value::Null);
        let details = json!({ "key": "runtimeSettings" });
        Err(EngineError::new(ErrorCode(self.code), format!("{member} errs on purpose")).with_details(&details))
    }
}

impl ContextEngine for Errs {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let config = journal::config(ctx);
        let engine = Errs { code: config["code"].as_u64().unwrap_or(1) as u32, journal: Journal::of(ctx) };
        if config["in"] == "create" { engine.error("create") } else { Ok(engine) }
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.error("ingest")
    }

    fn assemble(&self, _: &CallContext<'_>, _: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.error("assemble")
    }

    fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.error("compact")
    }
}

export_engine! {
    engine: Errs,
    id: "errs",
    name: "Errs",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
