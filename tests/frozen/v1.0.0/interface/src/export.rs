//! `export_engine!`: makes a crate a plugin.

/// Makes the crate a plugin that ships one engine.
///
/// Writes the record into a section of its own and exports the root module. The crate must be a `cdylib` and may
/// `#![forbid(unsafe_code)]`. A crate built with `panic = "abort"` does not compile: a panic could not be contained.
///
/// The lines in brackets are optional; those that are given stand in this order:
///
/// ```text
/// export_engine! {
///     engine: SlidingWindow,                        // implements ContextEngine
///     id: "sliding-window",                         // what a slot names
///     name: "Sliding window",
///     version: env!("CARGO_PKG_VERSION"),
///     owns_compaction: false,
///     [accepted_host_params: ["sessionKey"],]       // the host sends no others
///     [known_host_params: ["sessionKey", "prompt"],]// any other is refused before the engine's code runs
///     [turn_maintenance_mode: "background",]
///     [current_turn_fence: "before-current-turn-entry-v1",]
///     [turn_advancement_idempotency: "atomic-idempotent-v1",]
///     [host_requirements: [("agent-run", &["assemble-before-prompt"], Some("use the embedded host"))],]
///     [tools: true,]                                // the engine also implements EngineTools
/// }
/// ```
#[macro_export]
macro_rules! export_engine {
    (
        engine: $engine:ty,
        id: $id:expr,
        name: $name:expr,
        version: $version:expr,
        owns_compaction: $owns_compaction:expr
        $(, accepted_host_params: [$($accepted:expr),* $(,)?])?
        $(, known_host_params: [$($known:expr),* $(,)?])?
        $(, turn_maintenance_mode: $maintenance:expr)?
        $(, current_turn_fence: $fence:expr)?
        $(, turn_advancement_idempotency: $idempotency:expr)?
        $(, host_requirements: [$($requirement:expr),* $(,)?])?
        $(, tools: $tools:tt)?
        $(,)?
    ) => {
        const _: () = {
            #[cfg(panic = "abort")]
            compile_error!(
                "an engine must be built with panic = \"unwind\": with \"abort\" a panic ends the host's process"
            );

            struct __ContextEngineExport;

            const __FIELDS: $crate::record::RecordFields = $crate::record::RecordFields {
                id: $id,
                name: $name,
                version: $version,
                owns_compaction: $owns_compaction,
                accepted_host_params: $crate::__option!([$(&[$($accepted),*])?]),
                turn_maintenance_mode: $crate::__option!([$($maintenance)?]),
                current_turn_fence: $crate::__option!([$($fence)?]),
                turn_advancement_idempotency: $crate::__option!([$($idempotency)?]),
                host_requirements: &[$($($requirement),*)?],
                extensions: $crate::__tools!(names $($tools)?),
                panic: if cfg!(panic = "unwind") { "unwind" } else { "abort" },
            };

            #[used]
            #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__ctxeng"))]
            #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ctxeng"))]
            static __RECORD: [u8; $crate::record::encoded_len(&__FIELDS)] = $crate::record::encode(&__FIELDS);

            const __FRAMED: [u8; $crate::record::encoded_len(&__FIELDS)] = $crate::record::encode(&__FIELDS);

            impl $crate::abi::module::Export for __ContextEngineExport {
                type Engine = $engine;
                const RECORD: &'static str = $crate::record::json_of(&__FRAMED);
                const MODULE_PATH: &'static str = module_path!();
                const KNOWN_HOST_PARAMS: Option<&'static [&'static str]> =
                    $crate::__option!([$(&[$($known),*])?]);
                const TOOLS: Option<$crate::abi::module::ToolsV1> = $crate::__tools!(table $engine $(, $tools)?);
            }

            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "abi_stable fixes the symbol's name")]
            pub static _1as_0lib_1header_0root_bmodule_bloader: $crate::abi::module::LibHeader =
                $crate::abi::module::header::<__ContextEngineExport>();
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __option {
    ([]) => {
        None
    };
    ([$value:expr]) => {
        Some($value)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tools {
    (names true) => {
        &["tools/1"]
    };
    (names $(false)?) => {
        &[]
    };
    (table $engine:ty, true) => {
        Some($crate::abi::module::tools_v1::<$engine>())
    };
    (table $engine:ty $(, false)?) => {
        None
    };
}
