//! A session's transcript and the conversation made from it, changed together.
//!
//! Invariant: what is in the conversation is in the transcript. An entry is written first and remembered after; one that
//! could not be written was never said. A session without a transcript (a replay's) lives in memory alone.

use std::sync::Arc;

use context_engine_legacy::pipeline::PipelineOptions;
use context_engine_loader::PreparedHistory;
use context_engine_transcript::store::{NewEntry, Rewrite, SessionStore};
use context_engine_transcript::{Message, TokenCounter, TranscriptError};
use serde_json::{Map, Value};

use super::conversation::Conversation;
use super::history::SettledHistory;

/// What a process knows of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub(crate) conversation: Conversation,
    settled: SettledHistory,
    store: Option<SessionStore>,
    /// Lines of other programs the conversation was made with.
    foreign: u64,
}

impl SessionState {
    /// The session of this transcript.
    pub(crate) fn of(store: SessionStore, counter: &TokenCounter) -> Result<SessionState, TranscriptError> {
        let mut state = SessionState { foreign: store.foreign(), store: Some(store), ..SessionState::default() };
        state.reload(counter)?;
        Ok(state)
    }

    /// Makes the conversation from the transcript again.
    fn reload(&mut self, counter: &TokenCounter) -> Result<(), TranscriptError> {
        let Some(store) = &self.store else { return Ok(()) };
        let context = store.context()?;
        self.foreign = store.foreign();
        self.conversation.restore(context.summary, context.messages, counter);
        Ok(())
    }

    /// The transcript, to write what is no message.
    pub(crate) fn store_mut(&mut self) -> Option<&mut SessionStore> {
        self.store.as_mut()
    }

    /// Takes in a message that is in a transcript already, or in none.
    pub(crate) fn remember(&mut self, message: Arc<Message>, counter: &TokenCounter) {
        self.conversation.append(message, counter);
    }

    /// Writes messages, all or none of them, and remembers them.
    pub(crate) fn append(
        &mut self,
        messages: Vec<Map<String, Value>>,
        counter: &TokenCounter,
    ) -> Result<Vec<Arc<Message>>, TranscriptError> {
        let Some(store) = &mut self.store else { return Ok(Vec::new()) };
        let appended = store.append_all(messages.into_iter().map(NewEntry::Message).collect())?;
        let messages: Vec<Arc<Message>> = appended
            .into_iter()
            .filter_map(|entry| entry.message)
            .map(|mut message| {
                let tokens = counter.message(&message);
                Arc::make_mut(&mut message).tokens = tokens;
                message
            })
            .collect();
        if store.foreign() == self.foreign {
            messages.iter().for_each(|message| self.conversation.append(Arc::clone(message), counter));
        } else {
            // Another program wrote into the file, and what it said is part of the conversation now.
            self.reload(counter)?;
        }
        Ok(messages)
    }

    /// The history as engines get it.
    pub(crate) fn prepared(&mut self, options: &PipelineOptions, counter: &TokenCounter) -> PreparedHistory {
        self.settled.prepare(&self.conversation, options, counter)
    }

    /// Writes a compaction: `summary` stands for everything before the entry `first_kept`.
    pub(crate) fn compact(&mut self, compaction: &Compaction<'_>, counter: &TokenCounter) -> Result<(), String> {
        let Compaction { summary, first_kept, tokens_before, tokens_after } = *compaction;
        if !self.conversation.has(first_kept) {
            return Err(format!("there is no entry \"{first_kept}\""));
        }
        let message = match &mut self.store {
            None => self.conversation.summary_message(summary, tokens_before)?,
            Some(store) => {
                let entry = NewEntry::Compaction {
                    summary: summary.to_owned(),
                    first_kept_entry_id: Some(first_kept.to_owned()),
                    tokens_before,
                    tokens_after: Some(tokens_after),
                    details: None,
                };
                let written = store.append(entry).map_err(|error| error.to_string())?;
                written.message.ok_or("the summary is no message")?
            }
        };
        self.conversation.compacted(message, first_kept, counter)?;
        if self.store.is_some() {
            self.conversation.forget_summarised();
        }
        Ok(())
    }

    /// Puts other messages in the place of these entries, as contract §5.3 says. `None` without a transcript.
    pub(crate) fn rewrite(
        &mut self,
        replacements: &[(String, Map<String, Value>)],
        counter: &TokenCounter,
    ) -> Option<Result<Rewrite, TranscriptError>> {
        let store = self.store.as_mut()?;
        Some(store.rewrite(replacements).and_then(|rewrite| {
            if rewrite.changed {
                self.reload(counter)?;
            }
            Ok(rewrite)
        }))
    }

    /// A page of entries after entry `after`, ending before entry `before`.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize, before: Option<&str>) -> Result<Vec<Value>, String> {
        match &self.store {
            None => self.conversation.page(after, limit),
            Some(store) => store.page(after, limit, before).map_err(|error| error.to_string()),
        }
    }
}

/// What is written for a compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compaction<'a> {
    pub(crate) summary: &'a str,
    /// First entry that stays beside the summary.
    pub(crate) first_kept: &'a str,
    pub(crate) tokens_before: u64,
    pub(crate) tokens_after: u64,
}
