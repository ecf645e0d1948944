//! Borrowed views of messages: how history reaches an engine without being copied or serialised.
//!
//! Decision: flat `#[repr(C)]` structs with open `u32` kinds instead of enums, because an element of a slice can never
//! grow and a closed enum can never gain a variant. What is not spelled out as a field stands in `json` / `raw`.

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr};

/// Who speaks. Open: unknown values travel through unchanged.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Role(pub u32);

impl Role {
    /// A role this version has no name for; the message's JSON says which.
    pub const OTHER: Role = Role(0);
    /// `user`
    pub const USER: Role = Role(1);
    /// `assistant`
    pub const ASSISTANT: Role = Role(2);
    /// `toolResult`
    pub const TOOL_RESULT: Role = Role(3);
    /// `compactionSummary`: stands for the messages a compaction replaced.
    pub const COMPACTION_SUMMARY: Role = Role(4);
    /// `branchSummary`: what happened on a branch that was left.
    pub const BRANCH_SUMMARY: Role = Role(5);
    /// `bashExecution`: a command the person ran beside the agent.
    pub const BASH_EXECUTION: Role = Role(6);
    /// `custom`: a message of another extension, meant for the model.
    pub const CUSTOM: Role = Role(7);

    /// The role's name in OpenClaw's transcript format, or `None` for a role without one.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Role::USER => Some("user"),
            Role::ASSISTANT => Some("assistant"),
            Role::TOOL_RESULT => Some("toolResult"),
            Role::COMPACTION_SUMMARY => Some("compactionSummary"),
            Role::BRANCH_SUMMARY => Some("branchSummary"),
            Role::BASH_EXECUTION => Some("bashExecution"),
            Role::CUSTOM => Some("custom"),
            _ => None,
        }
    }

    /// The role with this name in OpenClaw's transcript format; [`Role::OTHER`] for an unknown name.
    pub fn from_name(name: &str) -> Role {
        match name {
            "user" => Role::USER,
            "assistant" => Role::ASSISTANT,
            "toolResult" => Role::TOOL_RESULT,
            "compactionSummary" => Role::COMPACTION_SUMMARY,
            "branchSummary" => Role::BRANCH_SUMMARY,
            "bashExecution" => Role::BASH_EXECUTION,
            "custom" => Role::CUSTOM,
            _ => Role::OTHER,
        }
    }
}

/// What a block is. Open: unknown values travel through unchanged.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKind(pub u32);

impl BlockKind {
    /// A block this version has no name for; [`BlockView::raw`] holds its JSON.
    pub const OTHER: BlockKind = BlockKind(0);
    /// Plain text, in [`BlockView::text`].
    pub const TEXT: BlockKind = BlockKind(1);
    /// A tool call: [`BlockView::id`], [`BlockView::name`], arguments as JSON in [`BlockView::text`].
    pub const TOOL_CALL: BlockKind = BlockKind(2);
    /// A picture: MIME type in [`BlockView::name`], data only in [`BlockView::raw`].
    pub const IMAGE: BlockKind = BlockKind(3);
    /// The model's reasoning, in [`BlockView::text`]. With [`BlockFlags::SIGNED`] it is kept whole or left out.
    pub const THINKING: BlockKind = BlockKind(4);
}

/// Facts about a block, as bits.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockFlags(pub u32);

impl BlockFlags {
    /// The block carries a provider's signature over its content: any edit makes the provider refuse the request.
    pub const SIGNED: BlockFlags = BlockFlags(1);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: BlockFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Facts about a message, as bits.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MessageFlags(pub u32);

impl MessageFlags {
    /// A tool result that reports a failure (`isError`).
    pub const TOOL_ERROR: MessageFlags = MessageFlags(1);
    /// Part of a heartbeat turn.
    pub const HEARTBEAT: MessageFlags = MessageFlags(1 << 1);
    /// Made by the host, not recorded: a filler, a repaired tool result.
    pub const SYNTHETIC: MessageFlags = MessageFlags(1 << 2);
    /// An assistant reply that ended with stop reason `error`.
    pub const ERRORED: MessageFlags = MessageFlags(1 << 3);
    /// An assistant reply that was interrupted (stop reason `aborted`).
    pub const ABORTED: MessageFlags = MessageFlags(1 << 4);
    /// Recorded, but never sent to a model (`excludeFromContext`).
    pub const EXCLUDED: MessageFlags = MessageFlags(1 << 5);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: MessageFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    #[must_use]
    pub const fn with(self, other: MessageFlags) -> MessageFlags {
        MessageFlags(self.0 | other.0)
    }
}

/// One part of a message. Frozen: never gains a field.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct BlockView<'a> {
    /// What the block is; decides which fields below mean something.
    pub kind: BlockKind,
    /// Facts about it.
    pub flags: BlockFlags,
    /// Tool-call id; empty for other kinds.
    pub id: RStr<'a>,
    /// Tool name, or MIME type of an image; empty for other kinds.
    pub name: RStr<'a>,
    /// Text, reasoning, or a tool call's arguments as JSON; empty for images.
    pub text: RStr<'a>,
    /// The block's own JSON, with every field it was recorded with.
    pub raw: RStr<'a>,
    /// Zero in this schema; read as zero by older engines.
    pub reserved: u64,
}

/// One message of the history. Frozen: never gains a field.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct MessageView<'a> {
    /// Transcript entry id: stable across calls and restarts, unique within the session, never empty.
    pub id: RStr<'a>,
    /// Who speaks.
    pub role: Role,
    /// Facts about it.
    pub flags: MessageFlags,
    /// Milliseconds since the Unix epoch; 0 when the source recorded none.
    pub timestamp_ms: i64,
    /// What the message costs in a prompt, in tokens of the session's model.
    pub tokens: u64,
    /// For a tool result: the id of the call it answers. Otherwise empty.
    pub tool_call_id: RStr<'a>,
    /// For a tool result: the tool's name. Otherwise empty.
    pub tool_name: RStr<'a>,
    /// The message's parts, in order.
    pub blocks: RSlice<'a, BlockView<'a>>,
    /// Canonical JSON of the message after the pipeline, in OpenClaw's shape.
    pub json: RStr<'a>,
    /// Zero in this schema; read as zero by older engines.
    pub reserved: [u64; 2],
}
