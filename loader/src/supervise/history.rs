//! The history of a session, counted and ready to be lent to an engine.
//!
//! Decision: a long beginning that no longer changes is shared between the histories of successive calls, views
//! included, so that a call costs what is new in it and not what was ever said.

use std::ops::Range;
use std::sync::Arc;

use context_engine_interface::ViewChunks;
use context_engine_transcript::{Message, TokenCounter};

/// What the pipeline made of a session's messages, with the views an engine borrows.
#[derive(Debug, Clone, Default)]
pub struct PreparedHistory {
    settled: Arc<Vec<Arc<Message>>>,
    newest: Vec<Arc<Message>>,
    views: ViewChunks,
    tokens: u64,
}

impl PreparedHistory {
    /// A history of these messages, oldest first. Counts those that have no count yet.
    pub fn new(messages: Vec<Arc<Message>>, counter: &TokenCounter) -> PreparedHistory {
        PreparedHistory::default().followed_by(messages, counter)
    }

    /// This history and `newest` behind it. The views of what is there already are shared.
    #[must_use]
    pub fn followed_by(&self, mut newest: Vec<Arc<Message>>, counter: &TokenCounter) -> PreparedHistory {
        for message in newest.iter_mut().filter(|message| message.tokens == 0) {
            let tokens = counter.message(message);
            Arc::make_mut(message).tokens = tokens;
        }
        let mut views = self.views.clone();
        views.append(&newest);
        let tokens = self.tokens + newest.iter().map(|message| message.tokens).sum::<u64>();
        PreparedHistory {
            settled: Arc::clone(&self.settled),
            newest: [&self.newest[..], &newest].concat(),
            views,
            tokens,
        }
    }

    /// The same history, to be followed by many: what is in it now is shared by all of them.
    #[must_use]
    pub fn settle(mut self) -> PreparedHistory {
        Arc::make_mut(&mut self.settled).append(&mut self.newest);
        self
    }

    /// The messages from `from` on, as a history of their own.
    #[must_use]
    pub fn tail(&self, from: usize) -> PreparedHistory {
        let newest: Vec<Arc<Message>> = self.range(from..self.len()).cloned().collect();
        let tokens = newest.iter().map(|message| message.tokens).sum();
        PreparedHistory { settled: Arc::default(), views: ViewChunks::build(&newest), newest, tokens }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.settled.len() + self.newest.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message at `index`, counted from the oldest.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.settled.get(index).or_else(|| self.newest.get(index.checked_sub(self.settled.len())?))
    }

    /// The messages of `range`, as far as there are such.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = &Arc<Message>> {
        range.map_while(|index| self.get(index))
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

/// What `messages` cost together, in tokens. One that was not counted is, and keeps its count: whoever gets the prompt may
/// ask each message what it costs.
pub(super) fn count(messages: &mut [Arc<Message>], counter: &TokenCounter) -> u64 {
    for message in messages.iter_mut().filter(|message| message.tokens == 0) {
        let tokens = counter.message(message);
        Arc::make_mut(message).tokens = tokens;
    }
    messages.iter().map(|message| message.tokens).sum()
}
