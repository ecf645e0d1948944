//! What messages cost, with nothing but a way to count text.
//!
//! Decision: the same sum as [`context_engine_transcript::tokens`], block by block by the same function: a fit and the host
//! that checks it must agree.

use context_engine_interface::{MessageView, Messages, Role};
use context_engine_transcript::tokens::{BLOCK_OVERHEAD, CALL_OVERHEAD, MESSAGE_OVERHEAD, block_cost};

use crate::pipeline::{BOOTSTRAP, CONTINUE, NO_OUTPUT, summary_text};

/// About what stands around a command and its output.
const COMMAND_FRAME: &str = "Ran ``\n```\n\n```\n\nCommand exited with code 255\n\n[output truncated]";

/// A way to count the tokens of a text.
pub(crate) type Count<'a> = &'a dyn Fn(&str) -> u64;

/// What the message costs in a prompt: its own count, or a count of its parts where it has none. For a role that is sent
/// in another form, with the words around it.
pub(crate) fn message(view: &MessageView<'_>, count: Count<'_>) -> u64 {
    if view.tokens > 0 {
        return view.tokens;
    }
    let wrapper = if is_mute(view) { BLOCK_OVERHEAD + count(NO_OUTPUT) } else { wrapper(view.role, count) };
    if view.blocks.is_empty() && wrapper > 0 && !is_mute(view) {
        return MESSAGE_OVERHEAD + wrapper + count(view.json.as_str());
    }
    let blocks = view.blocks.iter().map(|block| BLOCK_OVERHEAD + block_cost(view.role, block, count));
    frame(view, count) + wrapper + blocks.sum::<u64>()
}

/// A result without content: rendering gives it some.
fn is_mute(view: &MessageView<'_>) -> bool {
    view.role == Role::TOOL_RESULT && view.blocks.is_empty()
}

/// What rendering adds to a summary or a command.
fn wrapper(role: Role, count: Count<'_>) -> u64 {
    match role {
        Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => BLOCK_OVERHEAD + count(&summary_text("")),
        Role::BASH_EXECUTION => BLOCK_OVERHEAD + count(COMMAND_FRAME),
        _ => 0,
    }
}

/// What the message costs before its blocks.
pub(crate) fn frame(view: &MessageView<'_>, count: Count<'_>) -> u64 {
    match view.role {
        Role::TOOL_RESULT => MESSAGE_OVERHEAD + CALL_OVERHEAD + count(view.tool_call_id.as_str()),
        _ => MESSAGE_OVERHEAD,
    }
}

/// What a person's command costs, without its output.
pub(crate) fn command(command: &str, count: Count<'_>) -> u64 {
    MESSAGE_OVERHEAD + wrapper(Role::BASH_EXECUTION, count) + count(command)
}

/// What a user message of one text costs.
pub(crate) fn text(text: &str, count: Count<'_>) -> u64 {
    MESSAGE_OVERHEAD + BLOCK_OVERHEAD + count(text)
}

/// What the fillers cost that rendering may put around what is chosen of a history: before a reply that comes first,
/// behind one that comes last.
pub(crate) fn fillers(messages: Messages<'_>, count: Count<'_>) -> u64 {
    let opens = messages.iter().find(|m| matches!(m.role, Role::USER | Role::ASSISTANT));
    let before = if opens.is_some_and(|m| m.role == Role::ASSISTANT) { text(BOOTSTRAP, count) } else { 0 };
    let ends = messages.last().is_some_and(|m| m.role == Role::ASSISTANT);
    before + if ends { text(CONTINUE, count) } else { 0 }
}
