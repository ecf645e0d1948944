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
use crate::model::ModelInfo;

/// What a process knows of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub(crate) conversation: Conversation,
    settled: SettledHistory,
    store: Option<SessionStore>,
    /// Lines of other programs the conversation was made with.
    foreign: u64,
    /// What was said in the turn under way, in order, under the ids its entries have now.
    turn: Vec<Arc<Message>>,
    /// The model the transcript names.
    named_model: Option<String>,
    /// Grows with every message that is written, and with everything that changes older ones.
    steps: u64,
}

impl SessionState {
    /// The session of this transcript.
    pub(crate) fn of(store: SessionStore, counter: &TokenCounter) -> Result<SessionState, TranscriptError> {
        let mut state = SessionState { foreign: store.foreign(), store: Some(store), ..SessionState::default() };
        state.reload(counter)?;
        Ok(state)
    }

    /// A turn begins: what is written from here on is said in it.
    pub(crate) fn begin_turn(&mut self) {
        self.turn.clear();
    }

    /// What was said in the turn, from message `from` on.
    pub(crate) fn said(&self, from: usize) -> Vec<Arc<Message>> {
        self.turn.get(from..).unwrap_or_default().to_vec()
    }

    /// How many messages were written, and how often older ones were changed.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// The entry before which reading ends until the turn is answered.
    pub(crate) fn fence(&self) -> Option<&str> {
        self.turn.first().map(|message| message.id.as_str())
    }

    /// Whether anything was said before the turn, behind a boundary or not.
    pub(crate) fn has_history(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.leaf().is_some()) || self.conversation.recorded().next().is_some()
    }

    /// Makes the conversation from the transcript again.
    fn reload(&mut self, counter: &TokenCounter) -> Result<(), TranscriptError> {
        let Some(store) = &self.store else { return Ok(()) };
        let context = store.context()?;
        self.foreign = store.foreign();
        self.steps += 1;
        self.named_model = context.model.map(|(provider, id)| match provider {
            Some(provider) => format!("{provider}/{id}"),
            None => id,
        });
        self.conversation.restore(context.summary, context.messages, counter);
        Ok(())
    }

    /// Prompts are for this model from now on. The transcript says so when it names another one.
    pub(crate) fn use_model(
        &mut self,
        model: &ModelInfo,
        name: &str,
        recount: bool,
        counter: &TokenCounter,
    ) -> Result<(), TranscriptError> {
        let other = self.named_model.as_ref().is_some_and(|named| named != name && *named != model.id);
        if let Some(store) = self.store.as_mut().filter(|_| other) {
            store
                .append(NewEntry::ModelChange { provider: Some(model.provider.clone()), model_id: model.id.clone() })?;
        }
        self.named_model = Some(name.to_owned());
        self.conversation.set_model(Some(name), recount, counter);
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
        self.turn.extend(messages.iter().cloned());
        self.steps += messages.len() as u64;
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
                self.rename_turn(&rewrite);
            }
            Ok(rewrite)
        }))
    }

    /// What was said in the turn has other ids now.
    fn rename_turn(&mut self, rewrite: &Rewrite) {
        for said in &mut self.turn {
            let Some(id) = rewrite.new_ids.get(&said.id) else { continue };
            if let Some(now) = self.conversation.recorded().rev().find(|message| message.id == *id) {
                *said = Arc::clone(now);
            } else {
                Arc::make_mut(said).id.clone_from(id);
            }
        }
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
