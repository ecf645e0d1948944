//! A recorded session: its entries as a tree, the branch that was active, and the history to play.
//!
//! Decision: the walk from the tip to the root never gives up. Where a parent is missing or the links run in a circle,
//! it goes on with the entry that stood before in the file, because what was said there was almost surely part of the
//! same conversation, and dropping it silently is the worse mistake.

use std::collections::HashMap;
use std::sync::Arc;

use context_engine_interface::Role;
use serde_json::{Map, Value};

use crate::branch::{self, Up};
use crate::counts::{Counts, Tally, add};
use crate::tokens::TokenCounter;
use crate::{Entry, EntryPayload, Message};

/// One conversation as it was recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedSession {
    /// Unique within its file, never empty.
    pub id: String,
    /// The system prompt, when the source recorded it.
    pub system: Option<String>,
    /// The model that answered last on the active branch, when the source names one.
    pub model: Option<String>,
    /// Working directory of the agent, as recorded.
    pub cwd: Option<String>,
    /// All entries of all branches, in file order.
    pub entries: Vec<Entry>,
    /// What the source held and what became of it.
    pub counts: Counts,
    /// What else the source says about the session: header members, or the members beside a dialogue's messages.
    pub meta: Map<String, Value>,
}

/// How [`RecordedSession::history`] treats what was compacted when the session was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryOptions {
    /// `false`: all messages, as if nothing had ever been compacted or reset. `true`: what the recorded agent would
    /// have sent: the last summary, the entries it kept, and what came after (contract, 5.2).
    pub honor_compactions: bool,
}

/// The messages of a session's active branch, and what was left out of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// In the order they were said.
    pub messages: Vec<Arc<Message>>,
    /// Entries that are not among `messages`, by kind; `off-branch` and `compacted` for messages that are not.
    pub skipped: Tally,
}

impl RecordedSession {
    /// The entries from the root to the tip, in order. The tip is the last entry, or the target of a `leaf` entry that
    /// comes last. Never fails: see the module's decision.
    pub fn active_branch(&self) -> Vec<&Entry> {
        self.branch_indices().into_iter().filter_map(|i| self.entries.get(i)).collect()
    }

    /// The conversation to play. Messages marked as excluded from context are among it, with their flag.
    pub fn history(&self, options: HistoryOptions) -> History {
        let branch = self.active_branch();
        let mut history = History::default();
        let off_branch = self.entries.len() - branch.len();
        if off_branch > 0 {
            add(&mut history.skipped, "off-branch", off_branch as u64);
        }
        let boundary = branch
            .iter()
            .rposition(|e| matches!(e.payload, EntryPayload::Compaction { .. } | EntryPayload::Reset { .. }))
            .filter(|_| options.honor_compactions);
        let kept_from = boundary.map_or(0, |at| first_kept(&branch, at));
        for (i, entry) in branch.into_iter().enumerate() {
            let before = boundary.is_some_and(|at| i < at) && i < kept_from;
            match (entry.message(), entry.summary()) {
                (Some(_), _) if before => add(&mut history.skipped, "compacted", 1),
                (Some(message), _) if options.honor_compactions || !is_summary(message) => {
                    history.messages.push(Arc::clone(message));
                }
                (Some(summary), _) => add(&mut history.skipped, &summary.role_name(), 1),
                (None, Some(summary)) if boundary == Some(i) => history.messages.insert(0, Arc::clone(summary)),
                (None, _) => add(&mut history.skipped, entry.kind(), 1),
            }
        }
        history
    }

    /// Counts the tokens of every message, on all processors. Messages shared with others are copied.
    pub fn count_tokens(&mut self, counter: &TokenCounter) {
        let tokens = {
            let messages: Vec<&Message> =
                self.entries.iter().filter_map(|e| e.message().or_else(|| e.summary())).map(Arc::as_ref).collect();
            counter.count_all(&messages)
        };
        let messages = self.entries.iter_mut().filter_map(Entry::message_mut);
        for (message, tokens) in messages.zip(tokens) {
            Arc::make_mut(message).tokens = tokens;
        }
    }

    fn branch_indices(&self) -> Vec<usize> {
        let by_id: HashMap<&str, usize> = self.entries.iter().enumerate().map(|(i, e)| (e.id.as_str(), i)).collect();
        branch::walk(self.entries.len(), self.tip(&by_id), |i| self.up(&by_id, i))
    }

    fn up(&self, by_id: &HashMap<&str, usize>, i: usize) -> Up {
        match self.entries.get(i).and_then(|entry| entry.parent_id.as_deref()) {
            None => Up::Root,
            Some(parent) => by_id.get(parent).map_or(Up::Lost, |&parent| Up::At(parent)),
        }
    }

    fn tip(&self, by_id: &HashMap<&str, usize>) -> Option<usize> {
        let tip = |at: usize| match &self.entries.get(at)?.payload {
            EntryPayload::Leaf { target_id: None } => None,
            EntryPayload::Leaf { target_id: Some(id) } => Some(by_id.get(id.as_str()).copied().unwrap_or(at)),
            _ => Some(at),
        };
        let last = branch::last_entry(
            self.entries.len(),
            |i| self.entries.get(i).is_some_and(Entry::rewrite_continues),
            |below, above| tip(above).map_or(Up::Root, Up::At) == self.up(by_id, below),
        );
        tip(last?)
    }
}

/// Where the kept part before the boundary begins: at the boundary itself when it names no entry before it.
fn first_kept(branch: &[&Entry], boundary: usize) -> usize {
    let id = match branch.get(boundary).map(|e| &e.payload) {
        Some(EntryPayload::Compaction { first_kept_entry_id, .. } | EntryPayload::Reset { first_kept_entry_id }) => {
            first_kept_entry_id.as_deref()
        }
        _ => None,
    };
    id.and_then(|id| branch.iter().take(boundary).position(|e| e.id == id)).unwrap_or(boundary)
}

fn is_summary(message: &Message) -> bool {
    matches!(message.role, Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY)
}
