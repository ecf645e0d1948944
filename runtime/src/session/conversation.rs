//! What a session's context is made from, in memory: the part of its transcript that a run works with.
//!
//! Its entries are those of a transcript; a compaction is an entry like any other, and context is built from entries as
//! contract §5.2 says: the last summary, the messages it kept, and what came after.
//!
//! Decision: each message is kept as it was said and as the pipeline's first stage leaves it, so that it is cleaned and
//! counted once, when it enters, and not before every call.

use std::sync::Arc;

use context_engine_interface::Role;
use context_engine_legacy::pipeline;
use context_engine_transcript::{Message, TokenCounter};
use serde_json::{Value, json};

#[derive(Debug)]
enum ConversationEntry {
    Message {
        recorded: Arc<Message>,
        /// As the pipeline's first stage leaves it; `None` when nothing is left of it.
        clean: Option<Arc<Message>>,
    },
    Compaction {
        summary: Arc<Message>,
        /// Index of the first entry that stays beside the summary.
        first_kept: usize,
    },
}

/// The entries of a session from its last boundary on.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    entries: Vec<ConversationEntry>,
    /// The model the next prompts are for: thinking that another one signed is left out of them.
    model: Option<Arc<str>>,
    /// Changes with everything that changes what is there already.
    generation: u64,
    compactions: usize,
    /// Messages behind the newest summary that were let go, and the last question among them.
    forgotten: usize,
    last_forgotten_question: Option<Arc<Message>>,
    /// What the summaries cost.
    summary_tokens: u64,
}

impl Conversation {
    /// The conversation of a transcript's context: the last summary and what stands behind it.
    pub(crate) fn restore(
        &mut self,
        summary: Option<Arc<Message>>,
        messages: Vec<Arc<Message>>,
        counter: &TokenCounter,
    ) {
        self.entries.clear();
        self.forgotten = 0;
        // A turn that was cut in two before goes on with its question.
        if messages.iter().any(|message| message.role == Role::USER) {
            self.last_forgotten_question = None;
        }
        self.generation += 1;
        let counts = counter.count_all(&messages);
        for (mut message, tokens) in messages.into_iter().zip(counts) {
            Arc::make_mut(&mut message).tokens = tokens;
            self.append(message, counter);
        }
        if let Some(summary) = summary {
            self.entries.push(ConversationEntry::Compaction { summary: counted(summary, counter), first_kept: 0 });
        }
    }

    /// Prompts are for `model` from now on. What is there already is cleaned and counted anew when that is another one.
    pub(crate) fn set_model(&mut self, model: Option<&str>, recount: bool, counter: &TokenCounter) {
        let other_model = self.model.as_deref() != model;
        if !other_model && !recount {
            return;
        }
        self.model = model.map(Arc::from);
        self.generation += 1;
        for entry in &mut self.entries {
            match entry {
                ConversationEntry::Message { recorded, clean } => {
                    if recount {
                        *recorded = recounted(recorded, counter);
                    }
                    *clean = cleaned(recorded, model, counter);
                }
                ConversationEntry::Compaction { summary, .. } if recount => *summary = recounted(summary, counter),
                ConversationEntry::Compaction { .. } => {}
            }
        }
    }

    /// Appends a message.
    pub(crate) fn append(&mut self, message: Arc<Message>, counter: &TokenCounter) {
        let clean = cleaned(&message, self.model.as_deref(), counter);
        self.entries.push(ConversationEntry::Message { recorded: message, clean });
    }

    /// A summary as a message, for a session that has no transcript to give it an id.
    pub(crate) fn summary_message(&self, summary: &str, tokens_before: u64) -> Result<Arc<Message>, String> {
        let message = json!({ "role": "compactionSummary", "summary": summary, "tokensBefore": tokens_before });
        let Value::Object(map) = message else { return Err("the summary is no message".into()) };
        let id = format!("compaction-{}", self.compactions + 1);
        Message::from_map(id, map).map(Arc::new).map_err(|error| error.to_string())
    }

    /// Whether there is an entry `id` a summary may leave beside itself.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.position(id).is_some()
    }

    /// `summary` stands for everything before the entry with id `first_kept` from now on.
    pub(crate) fn compacted(
        &mut self,
        summary: Arc<Message>,
        first_kept: &str,
        counter: &TokenCounter,
    ) -> Result<(), String> {
        let first_kept = self.position(first_kept).ok_or_else(|| format!("there is no entry \"{first_kept}\""))?;
        let summary = counted(summary, counter);
        self.summary_tokens += summary.tokens;
        self.entries.push(ConversationEntry::Compaction { summary, first_kept });
        self.compactions += 1;
        self.generation += 1;
        Ok(())
    }

    /// Lets go of what the newest summary stands for: the transcript has it, and memory stays that of the context.
    pub(crate) fn forget_summarised(&mut self) {
        let Some((summary, first_kept)) = self.last_compaction().map(|(summary, at)| (Arc::clone(summary), at)) else {
            return;
        };
        for entry in self.entries.drain(..first_kept) {
            if let ConversationEntry::Message { recorded, clean } = entry {
                self.forgotten += 1;
                if recorded.role == Role::USER && clean.is_some() {
                    self.last_forgotten_question = Some(recorded);
                }
            }
        }
        self.entries.retain(|entry| matches!(entry, ConversationEntry::Message { .. }));
        self.entries.push(ConversationEntry::Compaction { summary, first_kept: 0 });
        self.generation += 1;
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| match entry {
            ConversationEntry::Message { recorded, .. } => recorded.id == id,
            ConversationEntry::Compaction { .. } => false,
        })
    }

    /// What the person asked last before entry `first_kept`, when no question is among what is kept: the turn that a cut
    /// there splits.
    pub(crate) fn question_cut_off(&self, first_kept: &str) -> Option<Arc<Message>> {
        let at = self.position(first_kept)?;
        let is_question = |entry: &&ConversationEntry| matches!(entry, ConversationEntry::Message { recorded, clean: Some(_) } if recorded.role == Role::USER);
        let recorded = |entry: &ConversationEntry| match entry {
            ConversationEntry::Message { recorded, .. } => Some(Arc::clone(recorded)),
            ConversationEntry::Compaction { .. } => None,
        };
        if self.entries[at..].iter().any(|entry| is_question(&entry)) {
            return None;
        }
        let behind = self.entries[..at].iter().rev().find(is_question).and_then(recorded);
        behind.or_else(|| self.last_forgotten_question.clone())
    }

    /// The newest summary.
    pub(crate) fn summary(&self) -> Option<&Arc<Message>> {
        self.last_compaction().map(|(summary, _)| summary)
    }

    /// The newest summary and the index of the first entry it does not stand for.
    fn last_compaction(&self) -> Option<(&Arc<Message>, usize)> {
        self.entries.iter().rev().find_map(|entry| match entry {
            ConversationEntry::Compaction { summary, first_kept } => Some((summary, *first_kept)),
            ConversationEntry::Message { .. } => None,
        })
    }

    /// How many messages the newest summary stands for.
    pub(crate) fn summarised(&self) -> usize {
        let before = &self.entries[..self.last_compaction().map_or(0, |(_, first_kept)| first_kept)];
        let there = before.iter().filter(|entry| matches!(entry, ConversationEntry::Message { .. })).count();
        self.forgotten + there
    }

    /// The messages of the session as a run sees them, from entry `start` on, each with the index of its entry; the
    /// newest summary first, when `start` is 0.
    pub(crate) fn context_from(&self, start: usize) -> impl Iterator<Item = (usize, Arc<Message>)> {
        let last = self.last_compaction();
        let first_kept = last.map_or(0, |(_, first_kept)| first_kept);
        let summary = last.filter(|_| start == 0).map(|(summary, at)| (at, Arc::clone(summary)));
        let kept = self.entries.iter().enumerate().skip(first_kept.max(start));
        let messages = kept.filter_map(|(at, entry)| match entry {
            ConversationEntry::Message { clean, .. } => clean.clone().map(|message| (at, message)),
            ConversationEntry::Compaction { .. } => None,
        });
        summary.into_iter().chain(messages)
    }

    /// The messages as they were said, from the last boundary on; the newest summary is not among them.
    pub(crate) fn recorded(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        let first_kept = self.last_compaction().map_or(0, |(_, first_kept)| first_kept);
        self.entries[first_kept..].iter().filter_map(|entry| match entry {
            ConversationEntry::Message { recorded, .. } => Some(recorded),
            ConversationEntry::Compaction { .. } => None,
        })
    }

    /// A page of entries after entry `after`, as JSON.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<Value>, String> {
        let messages = || {
            self.entries.iter().map(|entry| match entry {
                ConversationEntry::Message { recorded, .. } => ("message", recorded),
                ConversationEntry::Compaction { summary, .. } => ("compaction", summary),
            })
        };
        let skip = match after {
            None => 0,
            Some(id) => {
                1 + messages().position(|(_, m)| m.id == id).ok_or_else(|| format!("there is no entry \"{id}\""))?
            }
        };
        let entry = |(kind, message): (&str, &Arc<Message>)| json!({ "type": kind, "id": message.id, "message": message.to_value() });
        Ok(messages().skip(skip).take(limit).map(entry).collect())
    }

    /// Another number whenever what was there already changed: by a compaction, another model, a reload.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How often the session was compacted in this run.
    pub(crate) fn compactions(&self) -> usize {
        self.compactions
    }

    /// What all summaries that were written cost, in tokens.
    pub(crate) fn summary_tokens(&self) -> u64 {
        self.summary_tokens
    }
}

fn cleaned(message: &Arc<Message>, model: Option<&str>, counter: &TokenCounter) -> Option<Arc<Message>> {
    let (clean, _) = pipeline::sanitize(vec![Arc::clone(message)], model);
    clean.into_iter().next().map(|message| counted(message, counter))
}

fn counted(mut message: Arc<Message>, counter: &TokenCounter) -> Arc<Message> {
    if message.tokens == 0 {
        let tokens = counter.message(&message);
        Arc::make_mut(&mut message).tokens = tokens;
    }
    message
}

fn recounted(message: &Arc<Message>, counter: &TokenCounter) -> Arc<Message> {
    let mut message = Arc::clone(message);
    let tokens = counter.message(&message);
    Arc::make_mut(&mut message).tokens = tokens;
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> TokenCounter {
        TokenCounter::for_model(None)
    }

    fn session(ids: &[&str]) -> Conversation {
        let mut session = Conversation::default();
        for id in ids {
            let Value::Object(map) = json!({ "role": "user", "content": *id }) else { panic!("an object") };
            session.append(Arc::new(Message::from_map(*id, map).expect("a message")), &counter());
        }
        session
    }

    fn compact(session: &mut Conversation, summary: &str, first_kept: &str) -> Result<(), String> {
        let summary = session.summary_message(summary, 10)?;
        session.compacted(summary, first_kept, &counter())
    }

    fn ids(session: &Conversation) -> String {
        session.context_from(0).map(|(_, m)| m.id.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn context_is_the_last_summary_what_it_kept_and_what_came_after() {
        let mut session = session(&["a", "b", "c"]);
        assert_eq!(ids(&session), "a b c");
        compact(&mut session, "s1", "c").expect("compacted");
        assert_eq!(ids(&session), "compaction-1 c");
        let Value::Object(map) = json!({ "role": "user", "content": "d" }) else { panic!("an object") };
        session.append(Arc::new(Message::from_map("d", map).expect("a message")), &counter());
        compact(&mut session, "s2", "d").expect("compacted");
        assert_eq!(ids(&session), "compaction-2 d");
        assert_eq!(session.page(Some("c"), 2).expect("a page").len(), 2);
        assert!(compact(&mut session, "s3", "nowhere").is_err());
    }
}
