//! What no interface may do to another of its major version, as edits of today's, with what is said about it.
//!
//! A field more, fewer, two swapped, another type: in what slices hold, in answers, in parameters, in the traits, in the
//! root module. All but the last without touching the version: that is how they happen. (A field more at the end of a
//! prefix struct is an addition, see [`super::appended`].)

use context_engine_tests::changed::Edit;

/// A change that is refused.
pub(crate) struct Breaking {
    pub(crate) name: &'static str,
    pub(crate) edits: &'static [Edit],
    /// What a host says about an engine built after the change.
    pub(crate) refusal: &'static str,
    /// What the snapshot of the layout says about it.
    pub(crate) layout: &'static [&'static str],
}

pub(crate) const BREAKING: [Breaking; 11] = [
    Breaking {
        name: "swapped",
        edits: &[
            ("src/abi/views.rs", "    pub tool_call_id: RStr<'a>,\n", "    pub tool_name: RStr<'a>,\n"),
            (
                "src/abi/views.rs",
                "    /// For a tool result: the tool's name. Otherwise empty.\n    pub tool_name: RStr<'a>,\n",
                "    /// For a tool result: the id of the call it answers. Otherwise empty.\n    pub tool_call_id: RStr<'a>,\n",
            ),
        ],
        refusal: "in `0: MessageView<'a>` of `message: &'a MessageView<'a>`: unexpected field, expected tool_call_id: \
         RStr<'a>, found tool_name: RStr<'a>; unexpected field, expected tool_name: RStr<'a>, found \
         tool_call_id: RStr<'a>",
        layout: &[
            "`abi::views::MessageView<'a>`: field `tool_call_id` is at 56, was at 40",
            "`abi::views::MessageView<'a>`: field `tool_name` is at 40, was at 56",
        ],
    },
    Breaking {
        name: "grown",
        edits: &[("src/abi/views.rs", "    pub reserved: [u64; 2],\n", "    pub reserved: [u64; 3],\n")],
        refusal: "in `reserved: [u64;3]` of `0: MessageView<'a>`: The cconst parameters are different, expected 2, \
         found 3; incompatible type size, expected 16, found 24",
        layout: &[
            "`abi::views::MessageView<'a>`: field `reserved` is [u64;3], was [u64;2]",
            "`abi::views::MessageView<'a>`: size 128 align 8, was 120 align 8",
        ],
    },
    Breaking {
        name: "swapped-params",
        edits: &[(
            "src/abi/params.rs",
            "pub struct BootstrapParamsFields<'a> {\n    /// The session.\n    pub session_id: RStr<'a>,\n    \
             /// Where its transcript is kept; a locator, not always a path.\n    pub session_file: RStr<'a>,\n",
            "pub struct BootstrapParamsFields<'a> {\n    /// Where its transcript is kept; a locator, not always a path.\n    \
             pub session_file: RStr<'a>,\n    /// The session.\n    pub session_id: RStr<'a>,\n",
        )],
        refusal: "in `0: BootstrapParamsFields<'a>` of `param_2: PrefixRef<'a, BootstrapParamsFields<'a>>`: unexpected \
         field, expected session_id: RStr<'a>, found session_file: RStr<'a>; unexpected field, expected \
         session_file: RStr<'a>, found session_id: RStr<'a>",
        layout: &[
            "`abi::params::BootstrapParamsFields<'a>`: field `session_id` is at 16, was at 0",
            "`abi::params::BootstrapParamsFields<'a>`: field `session_file` is at 0, was at 16",
        ],
    },
    Breaking {
        name: "fewer-params",
        edits: &[(
            "src/abi/params.rs",
            "pub struct BootstrapParamsFields<'a> {\n    /// The session.\n    pub session_id: RStr<'a>,\n    \
             /// Where its transcript is kept; a locator, not always a path.\n    pub session_file: RStr<'a>,\n",
            "pub struct BootstrapParamsFields<'a> {\n    /// The session.\n    pub session_id: RStr<'a>,\n",
        )],
        refusal: "in `0: BootstrapParamsFields<'a>` of `param_2: PrefixRef<'a, BootstrapParamsFields<'a>>`: \
         incompatible type size, expected 48, found 32; prefix-types have a different prefix, expected 3, \
         found 2; too many fields, expected 3, found 2; unexpected field, expected session_file: RStr<'a>, \
         found host_params: HostParams<'a>",
        layout: &[
            "`abi::params::BootstrapParamsFields<'a>`: field `session_file` is gone, was RStr<'a>",
            "`abi::params::BootstrapParamsFields<'a>`: field `host_params` is at 16, was at 32",
            "`abi::params::BootstrapParamsFields<'a>`: the first 2 fields are always there, were 3",
        ],
    },
    Breaking {
        name: "swapped-module",
        edits: &[
            (
                "src/abi/module.rs",
                "    /// The record's JSON, as it also stands in the file.\n    pub record: extern \"C\" fn() -> RStr<'static>,\n",
                "",
            ),
            (
                "src/abi/module.rs",
                "    pub create: extern \"C\" fn(EngineContext<'_>) -> RResult<EngineObject, EngineError>,\n",
                "    pub create: extern \"C\" fn(EngineContext<'_>) -> RResult<EngineObject, EngineError>,\n    \
                 /// The record's JSON.\n    pub record: extern \"C\" fn() -> RStr<'static>,\n",
            ),
        ],
        refusal: "in `0: EngineModuleFields`: unexpected field, expected record: AFunctionPointer, found create: \
         AFunctionPointer; unexpected field, expected create: AFunctionPointer, found record: \
         AFunctionPointer",
        layout: &[
            "`abi::module::EngineModuleFields`: field `record` is at 8, was at 0",
            "`abi::module::EngineModuleFields`: field `create` is at 0, was at 8",
        ],
    },
    Breaking {
        name: "fewer-module",
        edits: &[
            (
                "src/abi/module.rs",
                "    /// The function table of extension `id` in `version`; nothing for every id the plugin does not know.\n    \
                 #[sabi(last_prefix_field)]\n    \
                 pub extension: extern \"C\" fn(id: RStr<'_>, version: u32) -> ROption<Extension_NE>,\n",
                "",
            ),
            (
                "src/abi/module.rs",
                "    pub create: extern \"C\" fn(EngineContext<'_>) -> RResult<EngineObject, EngineError>,\n",
                "    #[sabi(last_prefix_field)]\n    \
                 pub create: extern \"C\" fn(EngineContext<'_>) -> RResult<EngineObject, EngineError>,\n",
            ),
            ("src/abi/module.rs", "            extension: extension::<X>,\n", ""),
        ],
        refusal: "in `0: EngineModuleFields`: incompatible type size, expected 24, found 16; prefix-types have a \
         different prefix, expected 3, found 2; too many fields, expected 3, found 2",
        layout: &[
            "`abi::module::EngineModuleFields`: field `extension` is gone, was fn(RStr<'a>, u32) -> \
             ROption<NonExhaustive>",
            "`abi::module::EngineModuleFields`: the first 2 fields are always there, were 3",
            "`abi::module::Extension` is gone",
            "`abi::module::ToolsV1Fields` is gone",
            "`abi::params::ToolCallParamsFields<'a>` is gone",
            "`abi::params::ToolsListParamsFields<'a>` is gone",
        ],
    },
    Breaking {
        name: "other-type",
        edits: &[("src/abi/results.rs", "    pub rewritten_entries: u64,\n", "    pub rewritten_entries: u32,\n")],
        refusal: "in `rewritten_entries: u32` of `field_0: MaintainResult`: mismatched type, expected u64, found u32",
        layout: &["`abi::results::MaintainResult`: field `rewritten_entries` is u32, was u64"],
    },
    Breaking {
        name: "fewer-answer",
        edits: &[("src/abi/results.rs", "    /// Bytes the change freed.\n    pub bytes_freed: u64,\n", "")],
        refusal: "in `field_0: MaintainResult` of `__returns: RResult`: incompatible type size, expected 96, found 88; \
         too many fields, expected 5, found 4; unexpected field, expected bytes_freed: u64, found \
         rewritten_entries: u64; unexpected field, expected rewritten_entries: u64, found reason: ROption; \
         unexpected field, expected reason: ROption, found extra_json: RString",
        layout: &[
            "`abi::results::MaintainResult`: field `bytes_freed` is gone, was u64",
            "`abi::results::MaintainResult`: field `rewritten_entries` is at 8, was at 16",
            "`abi::results::MaintainResult`: field `reason` is at 16, was at 24",
            "`abi::results::MaintainResult`: field `extra_json` is at 56, was at 64",
            "`abi::results::MaintainResult`: size 88 align 8, was 96 align 8",
            "`RResult<MaintainResult, EngineError>`: size 96 align 8, was 104 align 8",
        ],
    },
    Breaking {
        name: "other-enum",
        edits: &[(
            "src/abi/module.rs",
            "    /// `tools/1`\n    Tools1(ToolsV1),\n",
            "    /// Before it.\n    Earlier(u64),\n    /// `tools/1`\n    Tools1(ToolsV1),\n",
        )],
        refusal: "in `field_0: u64` of `_phantom_ty_param_0: Extension`: mismatched type, expected PrefixRef<'a, \
         ToolsV1Fields>, found u64",
        layout: &["`abi::module::Extension`: field `Tools1` is at 1, was at 0"],
    },
    Breaking {
        name: "swapped-members",
        edits: &[
            (
                "src/abi/engine.rs",
                "    /// [`ContextEngine::bootstrap`]\n    \
                 fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Answer<BootstrapResult>;\n",
                "",
            ),
            (
                "src/abi/engine.rs",
                "    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Answer<MaintainResult>;\n",
                "    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Answer<MaintainResult>;\n    /// [`ContextEngine::bootstrap`]\n    \
                 fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Answer<BootstrapResult>;\n",
            ),
        ],
        refusal: "in `0: methods of RawEngine` of `vtable: PrefixRef<'a, VTable>`: unexpected field, expected \
         bootstrap: AFunctionPointer, found maintain: AFunctionPointer; unexpected field, expected maintain: \
         AFunctionPointer, found bootstrap: AFunctionPointer",
        layout: &[
            "`abi::engine::RawEngine_trait::VTable`: field `bootstrap` is at 16, was at 8",
            "`abi::engine::RawEngine_trait::VTable`: field `maintain` is at 8, was at 16",
        ],
    },
    Breaking {
        name: "other-major",
        edits: &[("Cargo.toml", "version = \"1.0.0\"", "version = \"2.0.0\"")],
        refusal: "interface 2.0.0, expected 1.x",
        layout: &[],
    },
];

/// What only the snapshot sees: each of these is opened, and what it does to engines or hosts people have shows later.
pub(crate) const CARELESS: (&[Edit], &[&str]) = (
    &[
        (
            "src/abi/engine.rs",
            "    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged>;\n",
            "    fn dispose(&self, ctx: &CallContext<'_>, params: DisposeParams<'_>) -> Answer<Acknowledged>;\n    \
             /// Without a default.\n    fn later(&self) -> u64;\n",
        ),
        (
            "src/abi/engine.rs",
            "impl<E: ContextEngine> RawEngine for Shim<E> {\n",
            "impl<E: ContextEngine> RawEngine for Shim<E> {\n    fn later(&self) -> u64 {\n        1\n    }\n",
        ),
        ("src/abi/views.rs", "    pub const USER: Role = Role(1);\n", "    pub const USER: Role = Role(2);\n"),
        (
            "src/abi/views.rs",
            "    pub const ASSISTANT: Role = Role(2);\n",
            "    pub const ASSISTANT: Role = Role(1);\n",
        ),
    ],
    &[
        "`abi::engine::RawEngine_trait::VTable`: field `later` is new and has no default: who reads it in an \
         older build's panics",
        "`Role::ASSISTANT` is 1, was 2",
        "`Role::USER` is 2, was 1",
    ],
);
