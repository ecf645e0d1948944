//! One entry of a session: its place in the tree, when it was written, and what it carries.
//!
//! Decision: what a model can be sent is a [`Message`], shared by `Arc` so that a branch, a history and a prompt hold
//! the same one. Everything else keeps its JSON as it stood in the file, so that nothing a host or another tool put
//! there is lost, whether this crate knows its kind or not.

use std::sync::Arc;

use crate::time::parse_iso_ms;
use crate::{Message, branch};

/// When an entry was written, as its source recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Timestamp {
    /// The source recorded none.
    #[default]
    Unknown,
    /// ISO 8601 text, kept as written.
    Iso(String),
    /// Milliseconds since the Unix epoch.
    Millis(i64),
}

impl Timestamp {
    /// Milliseconds since the Unix epoch; 0 when there is none or the text is no date.
    pub fn ms(&self) -> i64 {
        match self {
            Timestamp::Unknown => 0,
            Timestamp::Iso(text) => parse_iso_ms(text).unwrap_or(0),
            Timestamp::Millis(ms) => *ms,
        }
    }
}

/// One record of a session file that is not its header.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Unique within the session, never empty; made up (`m000001`, by position) where the source has none.
    pub id: String,
    /// The entry this one follows; `None` for a root. May name an entry that was lost:
    /// [`crate::RecordedSession::active_branch`] bridges that.
    pub parent_id: Option<String>,
    /// When it was written.
    pub timestamp: Timestamp,
    /// What it carries.
    pub payload: EntryPayload,
    /// The entry's own JSON: whole for every kind but `message`, where it holds the members beside the message and is
    /// empty when there are none.
    pub raw: String,
}

/// What an entry carries. Kinds are those of OpenClaw's transcript (contract, 5.1).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EntryPayload {
    /// `message`: said by a person, a model or a tool.
    Message(Arc<Message>),
    /// `custom_message`: put into the conversation by an extension; role `custom`.
    CustomMessage(Arc<Message>),
    /// `branch_summary` with text: what happened on a branch that was left; role `branchSummary`.
    BranchSummary(Arc<Message>),
    /// `compaction`: a summary that stands for what came before `first_kept_entry_id`.
    Compaction {
        /// The summary's text.
        summary: String,
        /// First entry that stays beside the summary; `None` when the source named none. May name a lost entry.
        first_kept_entry_id: Option<String>,
        /// Size of the context before it, in tokens of whoever wrote it.
        tokens_before: Option<u64>,
        /// The summary as a message of role `compactionSummary`, under the entry's id.
        message: Arc<Message>,
    },
    /// `reset`: the conversation was started anew in the same file.
    Reset {
        /// First entry that stays in context, when a prelude was kept.
        first_kept_entry_id: Option<String>,
    },
    /// `leaf`: the session's tip was moved.
    Leaf {
        /// The new tip; `None` for before the first entry.
        target_id: Option<String>,
    },
    /// Anything that never reaches a model: `custom`, `label`, `model_change`, kinds this version does not know, …
    Other {
        /// The entry's `type`.
        kind: String,
    },
}

impl Entry {
    /// The entry's `type` in OpenClaw's transcript format.
    pub fn kind(&self) -> &str {
        match &self.payload {
            EntryPayload::Message(_) => "message",
            EntryPayload::CustomMessage(_) => "custom_message",
            EntryPayload::BranchSummary(_) => "branch_summary",
            EntryPayload::Compaction { .. } => "compaction",
            EntryPayload::Reset { .. } => "reset",
            EntryPayload::Leaf { .. } => "leaf",
            EntryPayload::Other { kind } => kind,
        }
    }

    /// The message that stands in the conversation at this place, or `None`. A compaction's summary does not: it
    /// replaces what stands elsewhere, see [`Entry::summary`].
    pub fn message(&self) -> Option<&Arc<Message>> {
        match &self.payload {
            EntryPayload::Message(m) | EntryPayload::CustomMessage(m) | EntryPayload::BranchSummary(m) => Some(m),
            _ => None,
        }
    }

    /// For a compaction: its summary as a message of role `compactionSummary`.
    pub fn summary(&self) -> Option<&Arc<Message>> {
        match &self.payload {
            EntryPayload::Compaction { message, .. } => Some(message),
            _ => None,
        }
    }

    /// Whether more of the rewrite that wrote this entry again was to come: see [`branch::REWRITE_CONTINUES`].
    pub(crate) fn rewrite_continues(&self) -> bool {
        // Almost no entry bears the word at all.
        self.raw.contains(branch::REWRITE_CONTINUES)
            && serde_json::from_str(&self.raw).is_ok_and(|map| branch::continues(&map))
    }

    pub(crate) fn message_mut(&mut self) -> Option<&mut Arc<Message>> {
        match &mut self.payload {
            EntryPayload::Message(m)
            | EntryPayload::CustomMessage(m)
            | EntryPayload::BranchSummary(m)
            | EntryPayload::Compaction { message: m, .. } => Some(m),
            _ => None,
        }
    }
}
