//! What was found in a source and what became of it, by kind.
//!
//! Decision: nothing is dropped without a number. A reader of a report can add up what was read and what was left out
//! and get the size of the source.
//!
//! Invariant: [`Counts::records`] is the sum of [`Counts::messages`] and [`Counts::skipped`]. A source's record that holds
//! several messages counts once for each, and [`Counts::split`] says how many of them are too many; one that only
//! continues an earlier message is among the skipped, as `joined`. So `records - split` is the source's own number.

use std::collections::BTreeMap;

use crate::Message;
use context_engine_interface::{BlockKind, Role};
use serde_json::Value;

/// Numbers by name, in the names' order.
pub type Tally = BTreeMap<String, u64>;

/// What a session's source held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of the source that belong to the session, its header included; one with several messages counts for
    /// each of them.
    pub records: u64,
    /// The subset of `records` that shares its record in the source with an earlier one.
    pub split: u64,
    /// Records that became messages in the conversation, by role (`user`, `toolResult`, …).
    pub messages: Tally,
    /// Records that did not, by kind (`session`, `compaction`, `custom`, `system`, …); `joined` for those that only
    /// continue a message of another record.
    pub skipped: Tally,
    /// Blocks of messages, by type; those this version has no name for are among them (`audio`, …).
    pub blocks: Tally,
    /// The subset of `blocks` that is kept and counted, but not understood.
    pub unknown_blocks: Tally,
    /// What had to be mended on the way in (`made-up id`, `duplicate id`, `lost parent`, …).
    pub mended: Tally,
}

impl Counts {
    /// Messages of all roles.
    pub fn total_messages(&self) -> u64 {
        self.messages.values().sum()
    }

    /// Records that are no messages.
    pub fn total_skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    pub(crate) fn skip(&mut self, kind: &str) {
        self.records += 1;
        add(&mut self.skipped, kind, 1);
    }

    pub(crate) fn mend(&mut self, what: &str) {
        add(&mut self.mended, what, 1);
    }

    pub(crate) fn message(&mut self, message: &Message) {
        self.records += 1;
        match message.role.name() {
            Some(role) => add(&mut self.messages, role, 1),
            None => add(&mut self.messages, &message.role_name(), 1),
        }
        for block in &message.blocks {
            let known = match block.kind {
                BlockKind::TEXT => "text",
                BlockKind::TOOL_CALL => "toolCall",
                BlockKind::IMAGE => "image",
                BlockKind::THINKING => "thinking",
                _ => {
                    let kind = block_type(message.raw(block));
                    add(&mut self.blocks, &kind, 1);
                    add(&mut self.unknown_blocks, &kind, 1);
                    continue;
                }
            };
            add(&mut self.blocks, known, 1);
        }
    }
}

impl Message {
    /// The role as its JSON spells it; differs from [`Role::name`] for roles this version has no name for.
    pub fn role_name(&self) -> String {
        match self.role {
            Role::OTHER => match self.to_map().and_then(|mut map| map.remove("role")) {
                Some(Value::String(role)) => role,
                _ => String::new(),
            },
            role => role.name().unwrap_or_default().to_owned(),
        }
    }
}

/// Adds without allocating for a name already there: this runs once per block.
pub(crate) fn add(tally: &mut Tally, name: &str, n: u64) {
    match tally.get_mut(name) {
        Some(count) => *count += n,
        None => {
            tally.insert(name.to_owned(), n);
        }
    }
}

fn block_type(raw: &str) -> String {
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Object(block)) => match block.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            _ => "(no type)".to_owned(),
        },
        _ => "(no object)".to_owned(),
    }
}
