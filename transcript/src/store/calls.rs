//! Tool calls nobody answered: what a process leaves that is killed between a call and its result.
//!
//! Decision: they are counted and never written. A prompt pipeline gives each a result that says so, in memory and each
//! time; a result in the file would be a claim about what the tool did (public report A4).

use std::collections::HashMap;
use std::sync::Arc;

use context_engine_interface::{MessageFlags, Role};

use crate::Message;

/// How many calls of a conversation have no result, those of replies that failed or were interrupted apart.
///
/// Results claim calls of the last reply with calls; one that comes later goes to the only open call with its id
/// (contract, 4.4).
pub fn unanswered_calls(messages: &[Arc<Message>]) -> u64 {
    let mut open = Open::default();
    let mut reply = Reply::default();
    let mut strays: Vec<&str> = Vec::new();
    for message in messages {
        if message.role == Role::ASSISTANT && message.tool_calls().next().is_some() {
            open.take_in(std::mem::replace(&mut reply, Reply::of(message)));
        } else if message.role == Role::TOOL_RESULT && !reply.is_answered_by(&message.tool_call_id) {
            strays.push(&message.tool_call_id);
        }
    }
    open.take_in(reply);
    for id in strays {
        open.place(id);
    }
    open.count
}

/// A reply with calls, and those of them that are open.
#[derive(Default)]
struct Reply<'a> {
    dead: bool,
    /// Open calls by id; 0 for an id whose calls are answered.
    calls: HashMap<&'a str, u64>,
}

impl<'a> Reply<'a> {
    fn of(message: &'a Message) -> Reply<'a> {
        let dead = message.flags.contains(MessageFlags::ERRORED) || message.flags.contains(MessageFlags::ABORTED);
        let mut calls = HashMap::new();
        for call in message.tool_calls() {
            *calls.entry(call.id.trim()).or_default() += 1;
        }
        Reply { dead, calls }
    }

    /// Whether a result belongs here: to an open call, or as one too many to an answered one.
    fn is_answered_by(&mut self, id: &str) -> bool {
        // Where either side has no id, they find each other by their places.
        let blank = id.trim().is_empty();
        let any_open = || self.calls.iter().find(|(_, open)| **open > 0).map(|(id, _)| *id);
        let claimed = if blank { any_open() } else { Some(id.trim()) };
        let known = claimed.filter(|id| self.calls.contains_key(id));
        let known = known.or_else(|| Some("").filter(|none| self.calls.get(none).is_some_and(|open| *open > 0)));
        match known.and_then(|id| self.calls.get_mut(id)) {
            Some(open) => {
                *open = open.saturating_sub(1);
                true
            }
            None => false,
        }
    }
}

/// The open calls of all replies.
#[derive(Default)]
struct Open<'a> {
    count: u64,
    by_id: HashMap<&'a str, Vec<bool>>,
}

impl<'a> Open<'a> {
    fn take_in(&mut self, reply: Reply<'a>) {
        for (id, open) in reply.calls {
            self.count += if reply.dead { 0 } else { open };
            self.by_id.entry(id).or_default().extend((0..open).map(|_| reply.dead));
        }
    }

    /// Gives a late result to the only open call with its id.
    fn place(&mut self, id: &str) {
        let id = id.trim();
        if let Some([dead]) = self.by_id.get(id).map(Vec::as_slice)
            && !id.is_empty()
        {
            self.count -= u64::from(!dead);
            self.by_id.remove(id);
        }
    }
}
