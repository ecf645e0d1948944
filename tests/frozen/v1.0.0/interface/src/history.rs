//! Walking a history by its natural units, newest first. What an engine that keeps a window needs.

use std::ops::Range;

use crate::{MessageView, Messages, Role};

/// A run of messages that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Indices into the history.
    pub range: Range<usize>,
    /// What the messages cost together, in tokens.
    pub tokens: u64,
}

/// Whether a message opens a turn: anything but an assistant message or a tool result.
pub fn opens_turn(message: &MessageView<'_>) -> bool {
    !matches!(message.role, Role::ASSISTANT | Role::TOOL_RESULT)
}

impl<'a> Messages<'a> {
    /// The turns from newest to oldest. A turn is the message a person (or the host) sent and all that answered it.
    pub fn turns_rev(&self) -> impl Iterator<Item = Span> + use<'a> {
        spans_rev(*self, opens_turn)
    }

    /// The groups from newest to oldest. A group is an assistant message with the results of its calls, or a single
    /// message of any other kind: the smallest run that may be cut off without breaking a call from its result.
    pub fn groups_rev(&self) -> impl Iterator<Item = Span> + use<'a> {
        spans_rev(*self, |message| message.role != Role::TOOL_RESULT)
    }
}

fn spans_rev<'a, F>(messages: Messages<'a>, starts: F) -> impl Iterator<Item = Span> + use<'a, F>
where
    F: Fn(&MessageView<'_>) -> bool,
{
    let mut rest = messages.iter();
    let mut end = messages.len();
    std::iter::from_fn(move || {
        let (mut start, mut tokens) = (end, 0);
        while let Some(message) = rest.next_back() {
            start -= 1;
            tokens += message.tokens;
            if starts(message) {
                break;
            }
        }
        let range = start..end;
        end = start;
        (!range.is_empty()).then_some(Span { range, tokens })
    })
}
