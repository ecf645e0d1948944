//! A session that lives in memory: what a replay writes, so that the recorded file is never touched.
//!
//! Its entries are those of a transcript; a compaction is an entry like any other, and context is built from entries as
//! contract §5.2 says: the last summary, the messages it kept, and what came after.

use std::sync::Arc;

use context_engine_legacy::pipeline;
use context_engine_transcript::{Message, TokenCounter};
use serde_json::{Value, json};

#[derive(Debug)]
enum ScratchEntry {
    Message {
        recorded: Arc<Message>,
        /// The message as the pipeline's first stage leaves it, so that it is cleaned once and not before every call;
        /// `None` when nothing is left of it.
        clean: Option<Arc<Message>>,
    },
    Compaction {
        summary: Arc<Message>,
        /// Index of the first entry that stays beside the summary.
        first_kept: usize,
    },
}

/// A session in memory.
#[derive(Debug, Default)]
pub(crate) struct ScratchSession {
    entries: Vec<ScratchEntry>,
    compactions: usize,
    /// What the summaries cost.
    summary_tokens: u64,
}

impl ScratchSession {
    /// Appends a message; `model` is the one the next prompts are for.
    pub(crate) fn append(&mut self, message: Arc<Message>, model: Option<&str>, counter: &TokenCounter) {
        let (clean, _) = pipeline::sanitize(vec![Arc::clone(&message)], model);
        let clean = clean.into_iter().next().map(|message| counted(message, counter));
        self.entries.push(ScratchEntry::Message { recorded: message, clean });
    }

    /// Writes a compaction: `summary` stands for everything before the entry with id `first_kept`.
    pub(crate) fn compact(
        &mut self,
        summary: &str,
        first_kept: &str,
        tokens_before: u64,
        counter: &TokenCounter,
    ) -> Result<(), String> {
        let is_kept = |entry: &ScratchEntry| match entry {
            ScratchEntry::Message { recorded, .. } => recorded.id == first_kept,
            ScratchEntry::Compaction { .. } => false,
        };
        let first_kept =
            self.entries.iter().rposition(is_kept).ok_or_else(|| format!("there is no entry \"{first_kept}\""))?;
        let message = json!({ "role": "compactionSummary", "summary": summary, "tokensBefore": tokens_before });
        let Value::Object(map) = message else { return Err("the summary is no message".into()) };
        let id = format!("compaction-{}", self.compactions + 1);
        let summary = Message::from_map(id, map).map_err(|error| error.to_string())?;
        let summary = counted(Arc::new(summary), counter);
        self.summary_tokens += summary.tokens;
        self.entries.push(ScratchEntry::Compaction { summary, first_kept });
        self.compactions += 1;
        Ok(())
    }

    /// The newest summary and the index of the first entry it does not stand for.
    fn last_compaction(&self) -> Option<(&Arc<Message>, usize)> {
        self.entries.iter().rev().find_map(|entry| match entry {
            ScratchEntry::Compaction { summary, first_kept } => Some((summary, *first_kept)),
            ScratchEntry::Message { .. } => None,
        })
    }

    /// How many recorded messages the newest summary stands for.
    pub(crate) fn summarised(&self) -> usize {
        let before = &self.entries[..self.last_compaction().map_or(0, |(_, first_kept)| first_kept)];
        before.iter().filter(|entry| matches!(entry, ScratchEntry::Message { .. })).count()
    }

    /// The messages of the session as a run sees them, from entry `start` on, each with the index of its entry; the
    /// newest summary first, when `start` is 0.
    pub(crate) fn context_from(&self, start: usize) -> impl Iterator<Item = (usize, Arc<Message>)> {
        let last = self.last_compaction();
        let first_kept = last.map_or(0, |(_, first_kept)| first_kept);
        let summary = last.filter(|_| start == 0).map(|(summary, at)| (at, Arc::clone(summary)));
        let kept = self.entries.iter().enumerate().skip(first_kept.max(start));
        let messages = kept.filter_map(|(at, entry)| match entry {
            ScratchEntry::Message { clean, .. } => clean.clone().map(|message| (at, message)),
            ScratchEntry::Compaction { .. } => None,
        });
        summary.into_iter().chain(messages)
    }

    /// A page of entries after entry `after`, as JSON.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<Value>, String> {
        let messages = || {
            self.entries.iter().map(|entry| match entry {
                ScratchEntry::Message { recorded, .. } => ("message", recorded),
                ScratchEntry::Compaction { summary, .. } => ("compaction", summary),
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

    /// How often the session was compacted.
    pub(crate) fn compactions(&self) -> usize {
        self.compactions
    }

    /// What all summaries that were written cost, in tokens.
    pub(crate) fn summary_tokens(&self) -> u64 {
        self.summary_tokens
    }
}

fn counted(mut message: Arc<Message>, counter: &TokenCounter) -> Arc<Message> {
    if message.tokens == 0 {
        let tokens = counter.message(&message);
        Arc::make_mut(&mut message).tokens = tokens;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> TokenCounter {
        TokenCounter::for_model(None)
    }

    fn session(ids: &[&str]) -> ScratchSession {
        let mut session = ScratchSession::default();
        for id in ids {
            let Value::Object(map) = json!({ "role": "user", "content": *id }) else { panic!("an object") };
            session.append(Arc::new(Message::from_map(*id, map).expect("a message")), None, &counter());
        }
        session
    }

    fn ids(session: &ScratchSession) -> String {
        session.context_from(0).map(|(_, m)| m.id.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn context_is_the_last_summary_what_it_kept_and_what_came_after() {
        let mut session = session(&["a", "b", "c"]);
        assert_eq!(ids(&session), "a b c");
        session.compact("s1", "c", 10, &counter()).expect("compacted");
        assert_eq!(ids(&session), "compaction-1 c");
        let Value::Object(map) = json!({ "role": "user", "content": "d" }) else { panic!("an object") };
        session.append(Arc::new(Message::from_map("d", map).expect("a message")), None, &counter());
        session.compact("s2", "d", 10, &counter()).expect("compacted");
        assert_eq!(ids(&session), "compaction-2 d");
        assert_eq!(session.page(Some("c"), 2).expect("a page").len(), 2);
        assert!(session.compact("s3", "nowhere", 1, &counter()).is_err());
    }
}
