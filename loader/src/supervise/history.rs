//! The history of a session, counted and ready to be lent to an engine.

use std::sync::Arc;

use context_engine_interface::{Role, ViewChunks};
use context_engine_legacy::pipeline;
use context_engine_transcript::{Message, TokenCounter};

/// What the pipeline made of a session's messages, with the views an engine borrows.
#[derive(Debug, Clone, Default)]
pub struct PreparedHistory {
    messages: Vec<Arc<Message>>,
    views: ViewChunks,
    tokens: u64,
}

impl PreparedHistory {
    /// Counts the messages that have no count yet and builds the views.
    pub fn new(mut messages: Vec<Arc<Message>>, counter: &TokenCounter) -> PreparedHistory {
        for message in messages.iter_mut().filter(|message| message.tokens == 0) {
            let tokens = cost_as_sent(message, counter);
            Arc::make_mut(message).tokens = tokens;
        }
        let views = ViewChunks::build(&messages);
        let tokens = messages.iter().map(|message| message.tokens).sum();
        PreparedHistory { messages, views, tokens }
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The views of the messages.
    pub fn views(&self) -> &ViewChunks {
        &self.views
    }

    /// What the messages cost together, in tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// What a message costs in the form it is sent in: summaries and commands are sent as user messages with more words
/// around them than they are recorded with.
pub fn cost_as_sent(message: &Arc<Message>, counter: &TokenCounter) -> u64 {
    match message.role {
        Role::USER | Role::ASSISTANT | Role::TOOL_RESULT => counter.message(message),
        _ => pipeline::render(std::slice::from_ref(message)).0.iter().map(|sent| counter.message(sent)).sum(),
    }
}

/// What `messages` cost together, in tokens. A message that was counted keeps its count.
pub(super) fn count(messages: &[Arc<Message>], counter: &TokenCounter) -> u64 {
    let cost = |message: &Arc<Message>| if message.tokens > 0 { message.tokens } else { counter.message(message) };
    messages.iter().map(cost).sum()
}
