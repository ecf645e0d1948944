//! Runs code when it is opened, as every library may: a constructor that writes the file `CONTEXT_ENGINE_TEST_MARKER`
//! names. Whoever only looks at the library must not leave that file behind.
//!
//! `CONTEXT_ENGINE_TEST_CONSTRUCTOR` has it do something else: `exit` ends the process, `loop` never returns,
//! `marker:<path>` writes the file `<path>`.

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, export_engine,
};

extern "C" fn constructor() {
    if let Some(marker) = std::env::var_os("CONTEXT_ENGINE_TEST_MARKER") {
        let _ = std::fs::write(marker, "the constructor ran");
    }
    let Ok(what) = std::env::var("CONTEXT_ENGINE_TEST_CONSTRUCTOR") else { return };
    match what.as_str() {
        "exit" => std::process::exit(1),
        "loop" => loop {
            std::thread::sleep(std::time::Duration::from_millis(5));
        },
        what => {
            if let Some(marker) = what.strip_prefix("marker:") {
                let _ = std::fs::write(marker, "the constructor ran");
            }
        }
    }
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
#[cfg_attr(not(any(target_vendor = "apple", windows)), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

struct Constructor;

impl ContextEngine for Constructor {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Constructor)
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
    engine: Constructor,
    id: "constructor",
    name: "Constructor",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
