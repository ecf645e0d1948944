//! Grounding recall: of the things a recorded reply relies on that a plain window would no longer hold, how many did the
//! engine put into the prompt, and with what was said about them? docs/compare.md has the definition in words.
//!
//! | file | what it decides |
//! |---|---|
//! | `things` | what a thing is |
//! | `text` | what is read of a message |
//! | `index` | where things were said, and which of them are cases |
//! | `context` | whether what was said about a thing came along |

mod context;
mod index;
mod text;
pub(crate) mod things;

use std::collections::HashMap;
use std::sync::Arc;

use context_engine_interface::Role;
use context_engine_transcript::Message;

pub(crate) use index::SessionIndex;
use index::{Holds, Source, Thing};

use crate::Prompt;

/// How many forms of one message are remembered: engines send a message whole, then shortened, then not at all.
const FORMS: usize = 4;

/// Where a plain newest-first window starts: the newest messages that fit together, and no more.
///
/// The newest message, or the newest call with its results, is in it even if it does not fit: every engine has to send it, and
/// the host cuts it for every engine alike. What it says is not from further back.
#[derive(Debug)]
pub(crate) struct Window {
    room: u64,
    start: usize,
    end: usize,
    tokens: u64,
}

impl Window {
    /// A window that holds `room` tokens of messages.
    pub(crate) fn new(room: u64) -> Window {
        Window { room, start: 0, end: 0, tokens: 0 }
    }

    /// The first message of the window over `messages[..end]`. `end` never goes back.
    pub(crate) fn start(&mut self, messages: &[Arc<Message>], end: usize) -> usize {
        self.tokens += messages.get(self.end..end).into_iter().flatten().map(|message| message.tokens).sum::<u64>();
        self.end = end;
        let newest = messages[..end].iter().rposition(|message| message.role != Role::TOOL_RESULT).unwrap_or(0);
        while self.tokens > self.room && self.start < newest {
            self.tokens -= messages[self.start].tokens;
            self.start += 1;
        }
        self.start
    }
}

/// A message as it was sent, and what it holds.
type Form = (Arc<Message>, Arc<Holds>);

/// Judges the prompts of one replay.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    index: &'a SessionIndex,
    /// What messages of earlier prompts hold, by id: a message is mostly sent again and again.
    seen: HashMap<String, Vec<Form>>,
    system: Option<(String, Arc<Holds>)>,
}

/// What one prompt was judged to hold.
#[derive(Debug, Default)]
pub(crate) struct Judged<'a> {
    pub(crate) cases: usize,
    /// What is missing, and where it was said last before the window.
    pub(crate) misses: Vec<(&'a Thing, &'a Source)>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(index: &'a SessionIndex) -> Judge<'a> {
        Judge { index, seen: HashMap::new(), system: None }
    }

    /// Judges the prompt for message `reply`, beyond a window that starts at message `window`. A prompt that is not
    /// `its_own`, because another engine made it, holds nothing of what this one was asked for.
    pub(crate) fn judge(&mut self, prompt: &Prompt, its_own: bool, reply: usize, window: usize) -> Judged<'a> {
        let index = self.index;
        let mut judged = Judged::default();
        let cases: Vec<(u32, &Thing)> = index.cases(reply, window).collect();
        if cases.is_empty() {
            return judged;
        }
        let mut holds: Vec<Arc<Holds>> = Vec::new();
        if its_own {
            holds.extend(prompt.assembled.messages.iter().map(|message| self.read(message)));
            holds.extend(prompt.system.as_deref().map(|system| self.read_system(system)));
        }
        judged.cases = cases.len();
        for (id, thing) in cases {
            let sources = thing.sources_before(window);
            let carried = holds.iter().rev().any(|holds| holds.carries(id, sources));
            if let (false, Some(source)) = (carried, sources.last()) {
                judged.misses.push((thing, source));
            }
        }
        judged
    }

    fn read(&mut self, message: &Arc<Message>) -> Arc<Holds> {
        let is_same = |other: &Arc<Message>| Arc::ptr_eq(other, message) || other.json == message.json;
        if let Some(forms) = self.seen.get_mut(message.id.as_str()) {
            if let Some((_, holds)) = forms.iter().find(|(other, _)| is_same(other)) {
                return Arc::clone(holds);
            }
            let holds = Arc::new(self.index.scan(message));
            forms.truncate(FORMS - 1);
            forms.insert(0, (Arc::clone(message), Arc::clone(&holds)));
            return holds;
        }
        let holds = Arc::new(self.index.scan(message));
        self.seen.insert(message.id.clone(), vec![(Arc::clone(message), Arc::clone(&holds))]);
        holds
    }

    fn read_system(&mut self, system: &str) -> Arc<Holds> {
        if let Some((_, holds)) = self.system.as_ref().filter(|(known, _)| known == system) {
            return Arc::clone(holds);
        }
        let holds = Arc::new(self.index.scan_text(system));
        self.system = Some((system.to_owned(), Arc::clone(&holds)));
        holds
    }
}
