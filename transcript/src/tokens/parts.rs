//! What each part of a message costs.
//!
//! Decision: a picture costs the same whatever its size; it came into its one shape at the door ([`crate::content`]).
//! What this version does not understand costs what the text costs that it is sent as ([`retold`]), so that it is never
//! free and never cheaper than it is.

use context_engine_interface::{BlockKind, BlockView, MessageFlags, Role};

use super::{
    BLOCK_OVERHEAD, CALL_OVERHEAD, EMPTY_RESULT, IMAGE_TOKENS, MESSAGE_OVERHEAD, RETOLD_OVERHEAD, TokenCounter,
};
use crate::Message;
use crate::content::retold;

pub(super) fn message(counter: &TokenCounter, message: &Message) -> u64 {
    if message.flags.contains(MessageFlags::EXCLUDED) {
        return 0;
    }
    let mut tokens = MESSAGE_OVERHEAD;
    if message.role == Role::TOOL_RESULT {
        tokens += CALL_OVERHEAD + counter.text(&message.tool_call_id);
        tokens += if message.blocks.is_empty() { EMPTY_RESULT } else { 0 };
    }
    let members = unindexed_text(message.role);
    if !members.is_empty() {
        tokens += RETOLD_OVERHEAD;
        let map = message.to_map().unwrap_or_default();
        let texts = members.iter().filter_map(|member| map.get(*member)?.as_str());
        tokens += texts.map(|text| counter.text(text)).sum::<u64>();
    }
    let count = |text: &str| counter.text(text);
    let blocks = message.blocks.iter().map(|b| BLOCK_OVERHEAD + block(message.role, &message.block_view(b), &count));
    tokens + blocks.sum::<u64>()
}

/// Members with text of the roles that have no content blocks.
fn unindexed_text(role: Role) -> &'static [&'static str] {
    match role {
        Role::BASH_EXECUTION => &["command", "output"],
        Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => &["summary"],
        _ => &[],
    }
}

/// What a block costs in a message of this role, without the block's frame. `count` gives the tokens of a text.
///
/// The one place that decides it: a count that was made when a message came in and a fit that is made before a model call
/// must agree.
pub fn block(role: Role, block: &BlockView<'_>, count: &dyn Fn(&str) -> u64) -> u64 {
    if let Some(text) = retold(role, block.kind, block.raw.as_str()) {
        return count(&text);
    }
    match block.kind {
        BlockKind::IMAGE => IMAGE_TOKENS,
        BlockKind::TOOL_CALL => call(block.id.as_str(), block.name.as_str(), block.text.as_str(), count),
        _ => count(block.text.as_str()),
    }
}

/// What a tool call costs, without its block's frame.
pub fn call(id: &str, name: &str, arguments: &str, count: &dyn Fn(&str) -> u64) -> u64 {
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    CALL_OVERHEAD + count(id) + count(name) + count(arguments)
}
