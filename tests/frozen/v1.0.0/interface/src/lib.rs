//! What an engine links: the contract, the ABI and `export_engine!`.
//!
//! An engine decides what a model sees before each call and what becomes of older messages. It is a shared library:
//! implement [`ContextEngine`], call [`export_engine!`], build a `cdylib`, drop it into a plugins directory.
//!
//! Decision: one crate is linked by both sides. What the author writes is safe Rust against a trait; what crosses is in
//! [`abi`], layout-checked by `abi_stable` when the library is opened, append-only inside a major version. Hot data
//! (messages) is borrowed `#[repr(C)]` views; what grows (host params) is JSON; the answer to `assemble` is a plan over
//! the history, not copies of it.
//!
//! | start at | for |
//! |---|---|
//! | [`ContextEngine`] | the members, one by one |
//! | [`Messages`], [`MessageView`] | reading the history |
//! | [`Assembly`] | answering `assemble` |
//! | [`export_engine!`] | making the crate a plugin |
//! | [`record`] | what stands in the file for loaders to read |
//! | [`abi`] | what crosses, and the rules that keep it stable |
#![deny(unsafe_code)]

pub mod abi;
mod engine;
mod export;
#[cfg(any(feature = "log", feature = "tracing"))]
mod forward;
mod history;
mod host_params;
pub mod record;
mod shorten;
mod version;

pub use abi::chunk::{ChunkIndex, ViewChunk, ViewChunks, ViewSource};
pub use abi::engine::RemoteEngine;
pub use abi::error::{EngineError, ErrorCode};
pub use abi::host::{CallContext, CallServices, EngineHost, HostServices, LogLevel};
pub use abi::messages::{MessageChunk, Messages};
pub use abi::params::{
    AfterTurnParams, AfterTurnParamsFields, AssembleParams, AssembleParamsFields, BootstrapParams,
    BootstrapParamsFields, CommitTurnParams, CommitTurnParamsFields, CompactParams, CompactParamsFields,
    CompactionTarget, DisposeParams, DisposeParamsFields, EngineContext, EngineContextFields, HostParams,
    IngestBatchParams, IngestBatchParamsFields, IngestParams, IngestParamsFields, MaintainParams, MaintainParamsFields,
    PrepareSubagentSpawnParams, PrepareSubagentSpawnParamsFields, RollbackSubagentSpawnParams,
    RollbackSubagentSpawnParamsFields, SubagentEndedParams, SubagentEndedParamsFields, ToolCallParams,
    ToolCallParamsFields, ToolsListParams, ToolsListParamsFields,
};
pub use abi::plan::{Assembly, ContextProjection, PromptAuthority, Segment, SegmentKind, text_message};
pub use abi::results::{
    Acknowledged, AfterTurnResult, BootstrapResult, CommitStatus, CommitTurnResult, CompactResult, IngestBatchResult,
    IngestResult, MaintainResult, SpawnPreparation,
};
pub use abi::views::{BlockFlags, BlockKind, BlockView, MessageFlags, MessageView, Role};
pub use engine::{ContextEngine, EngineTools};
pub use history::{Span, opens_turn};
pub use host_params::{
    ContextEngineSelection, Diagnostics, ExecutionHost, HOST_PARAMS, HostParamValues, Limits, ModelIdentity,
    RuntimeIdentity, RuntimeSettings,
};
pub use shorten::{IMAGE_LEFT_OUT, shorten_message, shorten_text};
pub use version::{OLDEST_SCHEMA_VERSION, RECORD_FORMAT_VERSION, RUNTIME_SETTINGS_SCHEMA_VERSION, SCHEMA_VERSION};

/// FFI-safe `Option`, string and slice of `abi_stable`, as they stand in parameters and results.
pub mod std_types {
    pub use abi_stable::std_types::{RNone, ROption, RSlice, RSome, RStr, RString, RVec};
}
