//! What each member is given. Hot data is typed and borrowed; the host params, which grow, are one JSON object.
//!
//! Decision: these are prefix structs. An engine gets the short-named reference (`AssembleParams<'_>`), a host fills the
//! struct (`AssembleParamsFields`, ending in `..Default::default()`, because later versions have more fields) and lends
//! it for one call. A field appended in a later version is read as `None` by
//! `missing_field(option)` where the other side has never heard of it.
//!
//! Source of the shapes: OpenClaw contract §1.2.

use abi_stable::StableAbi;
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{ROption, RSlice, RStr};

use super::host::EngineHost;
use super::messages::Messages;
use super::views::MessageView;

/// The optional, growing part of a call, as one JSON object: `sessionKey`, `prompt`, `runtimeSettings`,
/// `sessionTarget`, `runtimeContext`, … (contract §1.3). [`HostParams::read`] gives the keys types.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct HostParams<'a> {
    json: RStr<'a>,
}

impl<'a> HostParams<'a> {
    /// No host params.
    pub const NONE: HostParams<'static> = HostParams { json: RStr::from_str("") };

    /// Host params from a JSON object; an empty string is none.
    pub fn from_json(json: &'a str) -> HostParams<'a> {
        HostParams { json: RStr::from_str(json) }
    }

    /// The JSON object as it crossed; empty for none.
    pub fn json(&self) -> &'a str {
        self.json.as_str()
    }
}

impl Default for HostParams<'_> {
    fn default() -> Self {
        HostParams::NONE
    }
}

/// What an engine is created with.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineContext)))]
#[sabi(missing_field(option))]
pub struct EngineContextFields<'a> {
    /// The engine's own configuration (`plugins.entries.<id>.config`) as JSON; empty for none.
    pub config_json: RStr<'a>,
    /// A folder of the engine's own, which exists. Empty when the host gives none.
    pub state_dir: RStr<'a>,
    /// The agent's folder.
    pub agent_dir: ROption<RStr<'a>>,
    /// The workspace the agent works in.
    pub workspace_dir: ROption<RStr<'a>>,
    /// Services for the engine's life; clone it to keep it.
    #[sabi(last_prefix_field)]
    pub host: &'a EngineHost,
}

/// Parameters of `bootstrap`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = BootstrapParams)))]
#[sabi(missing_field(option))]
pub struct BootstrapParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// Where its transcript is kept; a locator, not always a path.
    pub session_file: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `maintain`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = MaintainParams)))]
#[sabi(missing_field(option))]
pub struct MaintainParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// Where its transcript is kept; a locator, not always a path.
    pub session_file: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `ingest`.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = IngestParams)))]
#[sabi(missing_field(option))]
pub struct IngestParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// The new message.
    pub message: &'a MessageView<'a>,
    /// Whether it belongs to a heartbeat turn.
    pub is_heartbeat: bool,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `ingest_batch`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = IngestBatchParams)))]
#[sabi(missing_field(option))]
pub struct IngestBatchParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// The turn's new messages.
    pub messages: Messages<'a>,
    /// Whether they belong to a heartbeat turn.
    pub is_heartbeat: bool,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `after_turn`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = AfterTurnParams)))]
#[sabi(missing_field(option))]
pub struct AfterTurnParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// Where its transcript is kept; a locator, not always a path.
    pub session_file: RStr<'a>,
    /// The whole history after the turn.
    pub messages: Messages<'a>,
    /// How many of them were there before the turn's prompt.
    pub pre_prompt_message_count: u64,
    /// The summary, when the host compacted during the turn.
    pub auto_compaction_summary: ROption<RStr<'a>>,
    /// Whether it was a heartbeat turn.
    pub is_heartbeat: bool,
    /// The budget of the turn's prompts, in tokens.
    pub token_budget: ROption<u64>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `commit_turn`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = CommitTurnParams)))]
#[sabi(missing_field(option))]
pub struct CommitTurnParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// The key of this advancement; the same key twice is one turn.
    pub advancement_key: RStr<'a>,
    /// Anchor of the admitted user entry, as JSON (contract §1.2 note c).
    pub admission_json: RStr<'a>,
    /// Anchor of the terminal entry, as JSON.
    pub terminal_json: RStr<'a>,
    /// The turn's messages, from the admitted user entry to the terminal entry.
    pub messages: Messages<'a>,
    /// Whether it was a heartbeat turn.
    pub is_heartbeat: bool,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `assemble`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = AssembleParams)))]
#[sabi(missing_field(option))]
pub struct AssembleParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// The history: the pipeline's view of the raw messages.
    pub messages: Messages<'a>,
    /// What messages and system prompt addition may cost together, in tokens; none = no limit known.
    pub token_budget: ROption<u64>,
    /// Names of the tools the model may call.
    pub available_tools: RSlice<'a, RStr<'a>>,
    /// How citations are asked for.
    pub citations_mode: ROption<RStr<'a>>,
    /// The model the prompt is for.
    pub model: ROption<RStr<'a>>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// How far `compact` should go. Open.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CompactionTarget(pub u32);

impl CompactionTarget {
    /// Until the history fits the budget. The default.
    pub const BUDGET: CompactionTarget = CompactionTarget(0);
    /// Down to the engine's own threshold.
    pub const THRESHOLD: CompactionTarget = CompactionTarget(1);
}

/// Parameters of `compact`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = CompactParams)))]
#[sabi(missing_field(option))]
pub struct CompactParamsFields<'a> {
    /// The session.
    pub session_id: RStr<'a>,
    /// The agent it belongs to.
    pub agent_id: ROption<RStr<'a>>,
    /// What the history may cost, in tokens.
    pub token_budget: ROption<u64>,
    /// Compact even below the threshold.
    pub force: bool,
    /// What the prompt costs now, in tokens, when known.
    pub current_token_count: ROption<u64>,
    /// How far to go.
    pub compaction_target: CompactionTarget,
    /// What the summary should attend to, in the person's words.
    pub custom_instructions: ROption<RStr<'a>>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `prepare_subagent_spawn`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = PrepareSubagentSpawnParams)))]
#[sabi(missing_field(option))]
pub struct PrepareSubagentSpawnParamsFields<'a> {
    /// Key of the session that spawns.
    pub parent_session_key: RStr<'a>,
    /// Key of the session to come.
    pub child_session_key: RStr<'a>,
    /// `isolated` or `fork`.
    pub context_mode: ROption<RStr<'a>>,
    /// Id of the session that spawns.
    pub parent_session_id: ROption<RStr<'a>>,
    /// Locator of its transcript.
    pub parent_session_file: ROption<RStr<'a>>,
    /// Id of the session to come.
    pub child_session_id: ROption<RStr<'a>>,
    /// Locator of its transcript.
    pub child_session_file: ROption<RStr<'a>>,
    /// How long the child may live, in milliseconds.
    pub ttl_ms: ROption<u64>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `on_subagent_ended`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = SubagentEndedParams)))]
#[sabi(missing_field(option))]
pub struct SubagentEndedParamsFields<'a> {
    /// Key of the child session.
    pub child_session_key: RStr<'a>,
    /// `deleted`, `completed`, `swept` or `released`.
    pub reason: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `rollback_subagent_spawn`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = RollbackSubagentSpawnParams)))]
#[sabi(missing_field(option))]
pub struct RollbackSubagentSpawnParamsFields<'a> {
    /// What `prepare_subagent_spawn` answered.
    pub token: u64,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `dispose`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = DisposeParams)))]
#[sabi(missing_field(option))]
pub struct DisposeParamsFields<'a> {
    /// Why the instance goes: `shutdown`, `reload`, `released`.
    pub reason: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `tools/1`'s `list`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = ToolsListParams)))]
#[sabi(missing_field(option))]
pub struct ToolsListParamsFields<'a> {
    /// The session whose model is offered the tools.
    pub session_id: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Parameters of `tools/1`'s `call`.
#[repr(C)]
#[derive(StableAbi, Default)]
#[sabi(kind(Prefix(prefix_ref = ToolCallParams)))]
#[sabi(missing_field(option))]
pub struct ToolCallParamsFields<'a> {
    /// The session whose model calls.
    pub session_id: RStr<'a>,
    /// Id of the call, as the model gave it.
    pub tool_call_id: RStr<'a>,
    /// Name of the tool.
    pub name: RStr<'a>,
    /// Its arguments as JSON.
    pub arguments_json: RStr<'a>,
    /// The growing part.
    #[sabi(last_prefix_field)]
    pub host_params: HostParams<'a>,
}

/// Gives each params struct `lend`: the one place where a reference to it is made.
macro_rules! lend {
    ($($fields:ident => $params:ident),+ $(,)?) => {$(
        impl<'a> $fields<'a> {
            /// Lends the params for one call.
            ///
            /// The closure cannot keep the reference: its lifetime is the call's.
            pub fn lend<R>(self, call: impl for<'p> FnOnce($params<'p>) -> R) -> R {
                let fields = WithMetadata::new(self);
                // SAFETY: `fields` outlives the call, and the closure is generic over the lifetime it is given, so the
                // reference cannot leave it.
                call($params(unsafe { fields.as_prefix() }))
            }
        }
    )+};
}

lend! {
    EngineContextFields => EngineContext,
    BootstrapParamsFields => BootstrapParams,
    MaintainParamsFields => MaintainParams,
    IngestParamsFields => IngestParams,
    IngestBatchParamsFields => IngestBatchParams,
    AfterTurnParamsFields => AfterTurnParams,
    CommitTurnParamsFields => CommitTurnParams,
    AssembleParamsFields => AssembleParams,
    CompactParamsFields => CompactParams,
    PrepareSubagentSpawnParamsFields => PrepareSubagentSpawnParams,
    SubagentEndedParamsFields => SubagentEndedParams,
    RollbackSubagentSpawnParamsFields => RollbackSubagentSpawnParams,
    DisposeParamsFields => DisposeParams,
    ToolsListParamsFields => ToolsListParams,
    ToolCallParamsFields => ToolCallParams,
}
