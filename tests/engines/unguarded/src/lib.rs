//! A library that exports the root module without `export_engine!`, and so without the guard that stops panics: each of
//! its functions is written by hand, and `create` panics.
//!
//! The record is written by hand too. Nothing in a file can prove that its code was written by the macro; without a record
//! the library is refused before it runs.

use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, RootModuleResult};
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::std_types::{ROption, RResult, RStr};
use context_engine_interface::abi::engine::EngineObject;
use context_engine_interface::abi::module::{EngineModule, EngineModuleFields, Extension_NE, LibHeader};
use context_engine_interface::record::{RecordFields, encode, encoded_len, json_of};
use context_engine_interface::{EngineContext, EngineError};

const FIELDS: RecordFields = RecordFields {
    id: "unguarded",
    name: "Unguarded",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    accepted_host_params: None,
    turn_maintenance_mode: None,
    current_turn_fence: None,
    turn_advancement_idempotency: None,
    host_requirements: &[],
    extensions: &[],
    panic: "unwind",
};

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__ctxeng"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ctxeng"))]
static RECORD: [u8; encoded_len(&FIELDS)] = encode(&FIELDS);

extern "C" fn record() -> RStr<'static> {
    static FRAMED: [u8; encoded_len(&FIELDS)] = encode(&FIELDS);
    RStr::from_str(json_of(&FRAMED))
}

extern "C" fn create(_: EngineContext<'_>) -> RResult<EngineObject, EngineError> {
    panic!("boom without a guard")
}

extern "C" fn extension(_: RStr<'_>, _: u32) -> ROption<Extension_NE> {
    ROption::RNone
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
