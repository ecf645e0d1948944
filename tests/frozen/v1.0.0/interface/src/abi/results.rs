//! What each member answers. Every struct here is frozen; what a later version adds travels in `extra_json`.
//!
//! Source of the shapes: OpenClaw contract §1.2.

use abi_stable::StableAbi;
use abi_stable::std_types::{ROption, RString};

/// Answer of `bootstrap`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct BootstrapResult {
    /// Whether the engine took the session over.
    pub bootstrapped: bool,
    /// How many messages it imported, when it counted.
    pub imported_messages: ROption<u64>,
    /// Why not, or a remark.
    pub reason: ROption<RString>,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Answer of `maintain`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct MaintainResult {
    /// Whether the transcript changed.
    pub changed: bool,
    /// Bytes the change freed.
    pub bytes_freed: u64,
    /// Entries that were rewritten.
    pub rewritten_entries: u64,
    /// A remark.
    pub reason: ROption<RString>,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Answer of `ingest`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct IngestResult {
    /// `false` when the message was already known, or the engine keeps none.
    pub ingested: bool,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

impl IngestResult {
    /// The message was taken in.
    pub fn ingested() -> IngestResult {
        IngestResult { ingested: true, ..IngestResult::default() }
    }

    /// The message was known already, or the engine keeps none.
    pub fn skipped() -> IngestResult {
        IngestResult::default()
    }
}

/// Answer of `ingest_batch`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct IngestBatchResult {
    /// How many of the messages were new to the engine.
    pub ingested_count: u64,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Answer of `after_turn`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct AfterTurnResult {
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Answer of members that are only told something: `rollback_subagent_spawn`, `on_subagent_ended`, `dispose`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct Acknowledged {
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// What `commit_turn` did. Open.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitStatus(pub u32);

impl CommitStatus {
    /// The turn is stored.
    pub const COMMITTED: CommitStatus = CommitStatus(1);
    /// The advancement key was stored before; nothing changed.
    pub const DUPLICATE: CommitStatus = CommitStatus(2);
}

/// Answer of `commit_turn`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct CommitTurnResult {
    /// What happened; anything but the named values is an error to the host.
    pub status: CommitStatus,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Answer of `compact`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct CompactResult {
    /// Whether the engine did what it was asked, which may have been nothing.
    pub ok: bool,
    /// Whether history got shorter.
    pub compacted: bool,
    /// Why, when `compacted` is false.
    pub reason: ROption<RString>,
    /// The summary that now stands for the older messages.
    pub summary: ROption<RString>,
    /// Id of the first entry kept as it is.
    pub first_kept_entry_id: ROption<RString>,
    /// Tokens of the history before.
    pub tokens_before: u64,
    /// Tokens of the history after, when known.
    pub tokens_after: ROption<u64>,
    /// The session that goes on from here, when it is another one.
    pub session_id: ROption<RString>,
    /// `{agentId?, sessionId?, sessionKey?, storePath?, threadId?}` of that session as JSON; empty for none.
    pub session_target_json: RString,
    /// What the engine wants recorded with the compaction, as JSON; empty for none.
    pub details_json: RString,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

impl CompactResult {
    /// Nothing had to be done.
    pub fn nothing_to_do(reason: impl Into<String>, tokens: u64) -> CompactResult {
        CompactResult {
            ok: true,
            reason: ROption::RSome(RString::from(reason.into())),
            tokens_before: tokens,
            tokens_after: ROption::RSome(tokens),
            ..CompactResult::default()
        }
    }
}

/// Answer of `prepare_subagent_spawn`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Default)]
pub struct SpawnPreparation {
    /// What `rollback_subagent_spawn` is given when the spawn fails later; nothing when there is nothing to undo.
    pub rollback_token: ROption<u64>,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}
