//! The root module: the one symbol a plugin exports, and what hangs on it.
//!
//! Decision: it is tiny and frozen. Growth goes into [`RawEngine`](super::engine::RawEngine)'s end or into an extension,
//! asked for by name and version.

use abi_stable::StableAbi;
pub use abi_stable::library::LibHeader;
use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, RootModule, RootModuleResult};
use abi_stable::nonexhaustive_enum::NonExhaustive;
use abi_stable::prefix_type::WithMetadata;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{ROption, RResult, RStr, RString};

use super::engine::{EngineObject, Shim};
use super::error::EngineError;
use super::guard::install_hook;
use super::host::CallContext;
use super::params::{EngineContext, ToolCallParams, ToolsListParams};
use crate::engine::{ContextEngine, EngineTools};

/// What a plugin exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineModule)))]
#[sabi(missing_field(panic))]
pub struct EngineModuleFields {
    /// The record's JSON, as it also stands in the file.
    pub record: extern "C" fn() -> RStr<'static>,
    /// Creates an instance.
    pub create: extern "C" fn(EngineContext<'_>) -> RResult<EngineObject, EngineError>,
    /// The function table of extension `id` in `version`; nothing for every id the plugin does not know.
    #[sabi(last_prefix_field)]
    pub extension: extern "C" fn(id: RStr<'_>, version: u32) -> ROption<Extension_NE>,
}

impl RootModule for EngineModule {
    abi_stable::declare_root_module_statics! {EngineModule}
    const BASE_NAME: &'static str = "context_engine";
    const NAME: &'static str = "context_engine";
    const VERSION_STRINGS: VersionStrings = abi_stable::package_version_strings!();
}

/// The function tables extensions answer with. Grows by variants.
#[repr(u8)]
#[derive(StableAbi, Debug, Clone, Copy)]
#[sabi(kind(WithNonExhaustive(size = [usize; 4], align = usize, traits(Debug, Clone, Send, Sync))))]
pub enum Extension {
    /// `tools/1`
    Tools1(ToolsV1),
}

/// `tools/1`: tools the model may call and the engine runs.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = ToolsV1)))]
#[sabi(missing_field(panic))]
pub struct ToolsV1Fields {
    /// The tools as a JSON array of `{name, description, parameters}`.
    pub list: extern "C" fn(&EngineObject, &CallContext<'_>, ToolsListParams<'_>) -> RResult<RString, EngineError>,
    /// Runs a tool; the answer is a JSON array of content blocks.
    #[sabi(last_prefix_field)]
    pub call: extern "C" fn(&EngineObject, &CallContext<'_>, ToolCallParams<'_>) -> RResult<RString, EngineError>,
}

impl std::fmt::Debug for ToolsV1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ToolsV1")
    }
}

/// What `export_engine!` says about an engine, for the functions below.
pub trait Export: 'static {
    /// The engine.
    type Engine: ContextEngine;
    /// The record's JSON.
    const RECORD: &'static str;
    /// The module the engine is exported from: what it logs of its own needs no target before it.
    const MODULE_PATH: &'static str;
    /// When given, any other host param is refused before the engine's code runs.
    const KNOWN_HOST_PARAMS: Option<&'static [&'static str]>;
    /// The engine's `tools/1`, if it has tools.
    const TOOLS: Option<ToolsV1>;
}

/// The header a plugin exports as its one symbol.
pub const fn header<X: Export>() -> LibHeader {
    // SAFETY: `constructor` returns exactly the module type named here.
    unsafe { LibHeader::from_constructor::<EngineModule>(constructor::<X>, CheckTypeLayout::Yes) }
}

/// The `tools/1` table of an engine with tools.
pub const fn tools_v1<E: EngineTools>() -> ToolsV1 {
    ToolsV1(Tables::<E>::TOOLS.as_prefix())
}

extern "C" fn constructor<X: Export>() -> RootModuleResult {
    __call_root_module_loader(module::<X>)
}

fn module<X: Export>() -> EngineModule {
    EngineModule(Tables::<X>::MODULE.as_prefix())
}

/// Carries the tables of one engine: a generic function has no statics of its own.
struct Tables<X>(std::marker::PhantomData<X>);

impl<X: Export> Tables<X> {
    abi_stable::staticref! {
        const MODULE: WithMetadata<EngineModuleFields> = WithMetadata::new(EngineModuleFields {
            record: record::<X>,
            create: create::<X>,
            extension: extension::<X>,
        });
    }
}

impl<E: EngineTools> Tables<E> {
    abi_stable::staticref! {
        const TOOLS: WithMetadata<ToolsV1Fields> = WithMetadata::new(ToolsV1Fields {
            list: list_tools::<E>,
            call: call_tool::<E>,
        });
    }
}

extern "C" fn record<X: Export>() -> RStr<'static> {
    RStr::from_str(X::RECORD)
}

extern "C" fn create<X: Export>(ctx: EngineContext<'_>) -> RResult<EngineObject, EngineError> {
    install_hook(ctx.host());
    #[cfg(any(feature = "log", feature = "tracing"))]
    crate::forward::install(ctx.host(), X::MODULE_PATH);
    Shim::<X::Engine>::create(ctx, X::KNOWN_HOST_PARAMS)
}

extern "C" fn extension<X: Export>(id: RStr<'_>, version: u32) -> ROption<Extension_NE> {
    match (id.as_str(), version) {
        ("tools", 1) => X::TOOLS.map(|table| NonExhaustive::new(Extension::Tools1(table))).into(),
        _ => ROption::RNone,
    }
}

fn no_engine_of_mine() -> EngineError {
    EngineError::failed("the engine instance was not created by this plugin")
}

extern "C" fn list_tools<E: EngineTools>(
    object: &EngineObject,
    ctx: &CallContext<'_>,
    params: ToolsListParams<'_>,
) -> RResult<RString, EngineError> {
    match Shim::<E>::of(object) {
        Some(shim) => shim
            .run_with("list_tools", params.host_params(), |engine| engine.list_tools(ctx, params).map(RString::from)),
        None => RResult::RErr(no_engine_of_mine()),
    }
}

extern "C" fn call_tool<E: EngineTools>(
    object: &EngineObject,
    ctx: &CallContext<'_>,
    params: ToolCallParams<'_>,
) -> RResult<RString, EngineError> {
    match Shim::<E>::of(object) {
        Some(shim) => {
            shim.run_with("call_tool", params.host_params(), |engine| engine.call_tool(ctx, params).map(RString::from))
        }
        None => RResult::RErr(no_engine_of_mine()),
    }
}
