//! What can be appended to a session, and the JSON it becomes.
//!
//! Decision: one constructor of lines for all kinds, so that `type`, `id`, `parentId` and `timestamp` come first in each
//! and no content can stand in for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::Message;
use crate::time::format_iso;

/// What a session's first line says. Its `type`, `version` and `timestamp` are the store's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionHeader {
    /// The session's id; a UUID of version 7 is made when there is none.
    pub id: Option<String>,
    /// Working directory of the agent.
    pub cwd: Option<String>,
    /// The session this one was forked from: its id or file.
    pub parent_session: Option<String>,
    /// Further members. One with the name of a member above is left out.
    pub extra: Map<String, Value>,
}

/// An entry to be appended. Kinds and members are those of OpenClaw's transcript (contract, 5.1).
#[derive(Debug, Clone, PartialEq)]
pub enum NewEntry {
    /// Said by a person, a model or a tool: the message as JSON, with a `role`. Written as it is given.
    Message(Map<String, Value>),
    /// Put into the conversation by an extension.
    CustomMessage {
        /// The extension's name for it.
        custom_type: String,
        /// A string or blocks.
        content: Value,
        /// Whether a person is shown it.
        display: bool,
        /// What the extension keeps with it; not sent to a model.
        details: Option<Value>,
    },
    /// A summary that stands for what came before `first_kept_entry_id`.
    Compaction {
        /// The summary's text.
        summary: String,
        /// First entry that stays beside the summary; `None` when none before it does.
        first_kept_entry_id: Option<String>,
        /// Size of the context before, in tokens.
        tokens_before: u64,
        /// Size of the context after, in tokens.
        tokens_after: Option<u64>,
        /// What the maker of the summary keeps with it.
        details: Option<Value>,
    },
    /// The conversation starts anew in the same file.
    Reset {
        /// `new`, `reset`, `idle`, `daily` or `cron-stale`.
        reason: String,
        /// First entry that stays in context, when a prelude is kept.
        first_kept_entry_id: Option<String>,
    },
    /// A person's name for an entry.
    Label {
        /// The entry.
        target_id: String,
        /// The name; `None` takes it away.
        label: Option<String>,
    },
    /// What an extension keeps; never in context.
    Custom {
        /// The extension's name for it.
        custom_type: String,
        /// Its data.
        data: Option<Value>,
    },
    /// Another model answers from here on.
    ModelChange {
        /// Its provider, when known.
        provider: Option<String>,
        /// Its id at the provider.
        model_id: String,
    },
    /// The model is asked to think more or less from here on.
    ThinkingLevelChange {
        /// `off`, `low`, …
        thinking_level: String,
    },
    /// The session's name.
    SessionInfo {
        /// The name; `None` takes it away.
        name: Option<String>,
    },
    /// What happened on a branch that was left.
    BranchSummary {
        /// The entry the branch was left at.
        from_id: String,
        /// The summary's text; with an empty one, the entry is not in context.
        summary: String,
        /// What the maker of the summary keeps with it.
        details: Option<Value>,
    },
}

/// An entry that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Appended {
    /// The entry's id.
    pub id: String,
    /// The message under its entry's id, as it is when it is read again; for a compaction its summary. `None` for kinds
    /// no model sees.
    pub message: Option<Arc<Message>>,
}

/// What [`super::SessionStore::rewrite`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Whether anything was written.
    pub changed: bool,
    /// Messages that were replaced.
    pub rewritten: usize,
    /// By how many bytes the replaced messages' JSON was longer than their replacements', each at least 0.
    pub bytes_freed: u64,
    /// Why nothing was written, in the contract's words (5.3).
    pub reason: Option<String>,
    /// The new id of every entry that was written again, by its old one.
    pub new_ids: HashMap<String, String>,
}

/// The context a session gives a model (contract, 5.2).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredContext {
    /// The last compaction's summary, which stands for all that is left out before `messages`.
    pub summary: Option<Arc<Message>>,
    /// The messages of the active branch that are in context, in order. Those marked as excluded from context are among
    /// them, with their flag.
    pub messages: Vec<Arc<Message>>,
    /// Provider, where one is named, and id of the model that was chosen or answered last on the active branch; else
    /// the header's.
    pub model: Option<(Option<String>, String)>,
}

impl NewEntry {
    /// The entry's `type`, and its members beside those that place it.
    pub(super) fn into_members(self) -> (&'static str, Map<String, Value>) {
        let mut members = Map::new();
        let mut put = |key: &str, value: Option<Value>| members.extend(value.map(|value| (key.to_owned(), value)));
        let text = |text: Option<String>| text.map(Value::from);
        let kind = match self {
            NewEntry::Message(message) => {
                put("message", Some(message.into()));
                "message"
            }
            NewEntry::CustomMessage { custom_type, content, display, details } => {
                put("customType", Some(custom_type.into()));
                put("content", Some(content));
                put("display", Some(display.into()));
                put("details", details);
                "custom_message"
            }
            NewEntry::Compaction { summary, first_kept_entry_id, tokens_before, tokens_after, details } => {
                put("summary", Some(summary.into()));
                put("firstKeptEntryId", text(first_kept_entry_id));
                put("tokensBefore", Some(tokens_before.into()));
                put("tokensAfter", tokens_after.map(Value::from));
                put("details", details);
                "compaction"
            }
            NewEntry::Reset { reason, first_kept_entry_id } => {
                put("reason", Some(reason.into()));
                put("firstKeptEntryId", text(first_kept_entry_id));
                "reset"
            }
            NewEntry::Label { target_id, label } => {
                put("targetId", Some(target_id.into()));
                put("label", text(label));
                "label"
            }
            NewEntry::Custom { custom_type, data } => {
                put("customType", Some(custom_type.into()));
                put("data", data);
                "custom"
            }
            NewEntry::ModelChange { provider, model_id } => {
                put("provider", text(provider));
                put("modelId", Some(model_id.into()));
                "model_change"
            }
            NewEntry::ThinkingLevelChange { thinking_level } => {
                put("thinkingLevel", Some(thinking_level.into()));
                "thinking_level_change"
            }
            NewEntry::SessionInfo { name } => {
                put("name", text(name));
                "session_info"
            }
            NewEntry::BranchSummary { from_id, summary, details } => {
                put("fromId", Some(from_id.into()));
                put("summary", Some(summary.into()));
                put("details", details);
                "branch_summary"
            }
        };
        (kind, members)
    }
}

impl SessionHeader {
    /// The session's first line.
    pub(super) fn into_line(self) -> Map<String, Value> {
        let id = self.id.filter(|id| !id.trim().is_empty());
        let mut line = Map::from_iter([
            ("type".to_owned(), "session".into()),
            ("version".to_owned(), VERSION.into()),
            ("id".to_owned(), id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()).into()),
            ("timestamp".to_owned(), now()),
        ]);
        line.extend(self.cwd.map(|cwd| ("cwd".to_owned(), cwd.into())));
        line.extend(self.parent_session.map(|parent| ("parentSession".to_owned(), parent.into())));
        for (key, value) in self.extra {
            if !matches!(key.as_str(), "cwd" | "parentSession") {
                line.entry(key).or_insert(value);
            }
        }
        line
    }
}

/// The version of the session format that the store reads and writes.
pub(super) const VERSION: u64 = 3;

/// An entry's line: what places it, then its members, none of which can stand in for that.
pub(super) fn line(kind: &str, id: &str, parent: Option<&str>, members: Map<String, Value>) -> Map<String, Value> {
    let mut line = Map::from_iter([
        ("type".to_owned(), kind.into()),
        ("id".to_owned(), id.into()),
        ("parentId".to_owned(), parent.map_or(Value::Null, Value::from)),
        ("timestamp".to_owned(), now()),
    ]);
    for (key, value) in members {
        line.entry(key).or_insert(value);
    }
    line
}

/// The time as entries have it: ISO 8601 with milliseconds.
fn now() -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).ok().and_then(format_iso).map_or(Value::Null, Value::from)
}
