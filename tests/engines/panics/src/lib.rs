//! Panics where its configuration says: `{"in": "assemble", "payload": "text"}`.
//!
//! `in`: a member, `drop`, or `thread` (a thread that `assemble` starts). `payload`: `text`, `number` (no text at all) or
//! `bomb` (a payload whose own `Drop` panics).
#![forbid(unsafe_code)]

use context_engine_interface::{
    Acknowledged, AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, BootstrapParams, BootstrapResult,
    CallContext, CompactParams, CompactResult, ContextEngine, DisposeParams, EngineContext, EngineError,
    IngestBatchParams, IngestBatchResult, IngestParams, IngestResult, MaintainParams, MaintainResult, Role,
    export_engine, text_message,
};
use journal::Journal;

struct Panics {
    place: String,
    payload: String,
    journal: Journal,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic while a panic is cleaned up");
    }
}

impl Panics {
    fn reach(&self, place: &str) {
        self.journal.note(place, serde_json::Value::Null);
        if self.place != place {
            return;
        }
        match self.payload.as_str() {
            "number" => std::panic::panic_any(7_u64),
            "bomb" => std::panic::panic_any(Bomb),
            _ => panic!("boom in {place}"),
        }
    }
}

impl ContextEngine for Panics {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let config = journal::config(ctx);
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let engine = Panics { place: text("in"), payload: text("payload"), journal: Journal::of(ctx) };
        engine.reach("create");
        Ok(engine)
    }

    fn bootstrap(&self, _: &CallContext<'_>, _: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        self.reach("bootstrap");
        Ok(BootstrapResult::default())
    }

    fn maintain(&self, _: &CallContext<'_>, _: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        self.reach("maintain");
        Ok(MaintainResult::default())
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        self.reach("ingest");
        Ok(IngestResult::ingested())
    }

    fn ingest_batch(&self, _: &CallContext<'_>, _: IngestBatchParams<'_>) -> Result<IngestBatchResult, EngineError> {
        self.reach("ingest_batch");
        // Asked for only to reach the member after it.
        if self.place == "ingest" { Err(EngineError::unsupported("ingest_batch")) } else { Ok(Default::default()) }
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.reach("assemble");
        if self.place == "thread" {
            let joined = std::thread::spawn(|| panic!("boom in a thread")).join();
            assert!(joined.is_err());
        }
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, "panics answers"), vec![]).keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        self.reach("compact");
        Ok(CompactResult::nothing_to_do("nothing to do", 0))
    }

    fn after_turn(&self, _: &CallContext<'_>, _: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        self.reach("after_turn");
        match self.place.as_str() {
            // Asked for only to reach the members after it.
            "ingest_batch" | "ingest" => Err(EngineError::unsupported("after_turn")),
            _ => Ok(AfterTurnResult::default()),
        }
    }

    fn dispose(&self, _: &CallContext<'_>, _: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        self.reach("dispose");
        Ok(Acknowledged::default())
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        self.reach("drop");
    }
}

export_engine! {
    engine: Panics,
    id: "panics",
    name: "Panics",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: true,
}
