//! What a later interface may add, as edits of today's.

use context_engine_tests::changed::Edit;

/// One of everything that may be appended within a major version.
pub(crate) const APPENDED: &[Edit] = &[
    ("Cargo.toml", "version = \"1.0.0\"", "version = \"1.1.0\""),
    (
        "src/abi/params.rs",
        "    /// The model the prompt is for.\n    pub model: ROption<RStr<'a>>,\n    /// The growing part.\n    \
         #[sabi(last_prefix_field)]\n    pub host_params: HostParams<'a>,\n",
        "    /// The model the prompt is for.\n    pub model: ROption<RStr<'a>>,\n    /// The growing part.\n    \
         #[sabi(last_prefix_field)]\n    pub host_params: HostParams<'a>,\n    /// Appended.\n    pub later: u64,\n",
    ),
    (
        "src/abi/engine.rs",
        "    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged>;\n",
        "    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged>;\n    /// Appended.\n    \
         fn later(&self, number: u64) -> u64 {\n        number + 1000\n    }\n",
    ),
    (
        "src/abi/engine.rs",
        "impl<E: ContextEngine> RawEngine for Shim<E> {\n",
        "impl<E: ContextEngine> RawEngine for Shim<E> {\n    fn later(&self, number: u64) -> u64 {\n        number + 1\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "    fn memory_prompt_section(&self, request_json: RStr<'_>) -> RResult<ROption<RString>, EngineError>;\n",
        "    fn memory_prompt_section(&self, request_json: RStr<'_>) -> RResult<ROption<RString>, EngineError>;\n    \
         /// Appended.\n    fn later(&self) -> u64 {\n        7\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "impl RawCallServices for GuardedCall<'_> {\n",
        "impl RawCallServices for GuardedCall<'_> {\n    fn later(&self) -> u64 {\n        8\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "impl CallContext<'_> {\n",
        "impl CallContext<'_> {\n    /// Appended.\n    pub fn later(&self) -> u64 {\n        self.services.later()\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "    fn max_log_level(&self) -> LogLevel;\n",
        "    fn max_log_level(&self) -> LogLevel;\n    \
         /// Appended.\n    fn later(&self) -> u64 {\n        70\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "impl RawHostServices for GuardedHost {\n",
        "impl RawHostServices for GuardedHost {\n    fn later(&self) -> u64 {\n        80\n    }\n",
    ),
    (
        "src/abi/host.rs",
        "impl EngineHost {\n",
        "impl EngineHost {\n    /// Appended.\n    pub fn later(&self) -> u64 {\n        self.services.later()\n    }\n",
    ),
    (
        "src/abi/module.rs",
        "    pub extension: extern \"C\" fn(id: RStr<'_>, version: u32) -> ROption<Extension_NE>,\n",
        "    pub extension: extern \"C\" fn(id: RStr<'_>, version: u32) -> ROption<Extension_NE>,\n    \
         /// Appended.\n    #[sabi(missing_field(option))]\n    pub later: extern \"C\" fn() -> u64,\n",
    ),
    (
        "src/abi/module.rs",
        "            extension: extension::<X>,\n",
        "            extension: extension::<X>,\n            later: later::<X>,\n",
    ),
    (
        "src/abi/module.rs",
        "fn no_engine_of_mine() -> EngineError {",
        "extern \"C\" fn later<X: Export>() -> u64 {\n    9\n}\n\nfn no_engine_of_mine() -> EngineError {",
    ),
    ("src/abi/module.rs", "    Tools1(ToolsV1),\n", "    Tools1(ToolsV1),\n    /// Appended.\n    Later(u64),\n"),
    (
        "src/abi/module.rs",
        "        _ => ROption::RNone,\n",
        "        (\"later\", 1) => ROption::RSome(NonExhaustive::new(Extension::Later(5))),\n        _ => ROption::RNone,\n",
    ),
];
