//! Answers every extension it is asked for with the one table it has, whatever the name and the version: a host that
//! believed it would call functions of another kind.
//!
//! `export_engine!` does not let an author write this, so the root module is written by hand. All but `extension` is what
//! the macro writes: the module it makes stands behind `GENUINE`, which is not exported.

use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, RootModuleResult};
use abi_stable::nonexhaustive_enum::NonExhaustive;
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::std_types::{ROption, RResult, RStr};
use context_engine_interface::abi::engine::EngineObject;
use context_engine_interface::abi::module::{
    EngineModule, EngineModuleFields, Export, Extension, Extension_NE, LibHeader, ToolsV1, header, tools_v1,
};
use context_engine_interface::record::{RecordFields, encode, encoded_len, json_of};
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    EngineTools, IngestParams, IngestResult, ToolCallParams, ToolsListParams,
};

struct Leaky;

impl ContextEngine for Leaky {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Leaky)
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

impl EngineTools for Leaky {
    fn list_tools(&self, _: &CallContext<'_>, _: ToolsListParams<'_>) -> Result<String, EngineError> {
        Ok("[]".to_owned())
    }

    fn call_tool(&self, _: &CallContext<'_>, _: ToolCallParams<'_>) -> Result<String, EngineError> {
        Err(EngineError::failed("there is no tool"))
    }
}

const FIELDS: RecordFields = RecordFields {
    id: "leaky-extension",
    name: "Leaky extension",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    accepted_host_params: None,
    turn_maintenance_mode: None,
    current_turn_fence: None,
    turn_advancement_idempotency: None,
    host_requirements: &[],
    extensions: &["tools/1"],
    panic: "unwind",
};

const FRAMED: [u8; encoded_len(&FIELDS)] = encode(&FIELDS);

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__ctxeng"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ctxeng"))]
static RECORD: [u8; encoded_len(&FIELDS)] = FRAMED;

struct Exported;

impl Export for Exported {
    type Engine = Leaky;
    const RECORD: &'static str = json_of(&FRAMED);
    const MODULE_PATH: &'static str = module_path!();
    const KNOWN_HOST_PARAMS: Option<&'static [&'static str]> = None;
    const TOOLS: Option<ToolsV1> = Some(tools_v1::<Leaky>());
}

static GENUINE: LibHeader = header::<Exported>();

extern "C" fn record() -> RStr<'static> {
    RStr::from_str(Exported::RECORD)
}

extern "C" fn create(ctx: EngineContext<'_>) -> RResult<EngineObject, EngineError> {
    match GENUINE.init_root_module::<EngineModule>() {
        Ok(module) => module.create()(ctx),
        Err(error) => RResult::RErr(EngineError::failed(error)),
    }
}

extern "C" fn extension(_: RStr<'_>, _: u32) -> ROption<Extension_NE> {
    ROption::RSome(NonExhaustive::new(Extension::Tools1(tools_v1::<Leaky>())))
}

fn module() -> EngineModule {
    EngineModuleFields { record, create, extension }.leak_into_prefix()
}

extern "C" fn constructor() -> RootModuleResult {
    __call_root_module_loader(module)
}

// SAFETY: `constructor` returns the module type named here.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "abi_stable fixes the symbol's name")]
pub static _1as_0lib_1header_0root_bmodule_bloader: LibHeader =
    unsafe { LibHeader::from_constructor::<EngineModule>(constructor, CheckTypeLayout::Yes) };
