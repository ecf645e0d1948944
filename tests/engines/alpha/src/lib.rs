//! One of two engines that are the same but for their name: whoever mixes two plugins up gets the other one's answer.
//!
//! Both export `helper`, as plugins that link the same C library do. The call goes through the exported symbol, so the
//! other plugin's would be taken if the host opened libraries into one name space.

use context_engine_interface::std_types::RStr;
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, export_engine, text_message,
};

const NAME: &str = "alpha";

/// The name of the library it stands in.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn helper() -> RStr<'static> {
    RStr::from_str(NAME)
}

struct Alpha;

impl ContextEngine for Alpha {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Alpha)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::ingested())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        // Hidden from the optimiser: a direct call would not show whose symbol is found.
        let helper = std::hint::black_box(helper as extern "C" fn() -> RStr<'static>)();
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, &format!("{NAME} with the helper of {helper}")), vec![]);
        plan.keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

export_engine! {
    engine: Alpha,
    id: "alpha",
    name: "Alpha",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
