//! The pipeline, run on what is new.
//!
//! Decision: the pipeline is a function of the whole history, but nearly all of a long one no longer changes. Its beginning
//! is settled: run once, shared with its views, and left alone. What follows is run for each call. Where the new part
//! could reach back into the settled one, everything is run again, so the result is always that of the whole.
//!
//! What can reach back (rules of `legacy-engine/src/pipeline`):
//! - a result whose call stands in the settled part: seen as a result that found no call in the new part;
//! - a result that stood before its call: only where the settled part has results without a call;
//! - a call id that was used before: the later one is renamed;
//! - a message that merges with its predecessor: a part begins only where its first message cannot;
//! - a picture that is recent now and not later: a part that is settled has none.

use std::collections::HashSet;
use std::sync::Arc;

use context_engine_interface::Role;
use context_engine_legacy::pipeline::{self, Pictures, PipelineOptions, PipelineReport};
use context_engine_loader::PreparedHistory;
use context_engine_transcript::{Message, TokenCounter};

use super::conversation::Conversation;

/// How long the new part grows before its beginning is settled.
const SETTLE_AT: usize = 256;
/// How many messages are always left in the new part: the ones a late result may still belong to.
const KEEP_OPEN: usize = 64;

/// The settled part of a session's history.
#[derive(Debug, Default)]
pub(crate) struct SettledHistory {
    /// Which generation of the conversation it was made from: a compaction changes the beginning.
    generation: u64,
    /// Entries of the session that are in `history`.
    entries: usize,
    history: PreparedHistory,
    call_ids: HashSet<String>,
    has_orphans: bool,
}

impl SettledHistory {
    /// The history of `session` as engines get it.
    pub(crate) fn prepare(
        &mut self,
        session: &Conversation,
        options: &PipelineOptions,
        counter: &TokenCounter,
    ) -> PreparedHistory {
        if self.generation != session.generation() {
            *self = SettledHistory { generation: session.generation(), ..SettledHistory::default() };
        }
        if let Some(whole) = self.settle(session, options, counter) {
            return whole;
        }
        let (entries, new): (Vec<usize>, Vec<Arc<Message>>) = session.context_from(self.entries).unzip();
        let (new, report) = pipeline::run(new, options);
        if !entries.is_empty() && self.reached_by(&new, &report) {
            return whole(session, options, counter);
        }
        self.history.followed_by(new, counter)
    }

    /// Settles the beginning of a new part that has grown long. Gives the whole history when that cannot be done.
    fn settle(
        &mut self,
        session: &Conversation,
        options: &PipelineOptions,
        counter: &TokenCounter,
    ) -> Option<PreparedHistory> {
        let new: Vec<(usize, Arc<Message>)> = session.context_from(self.entries).collect();
        let longest = new.len().checked_sub(KEEP_OPEN).filter(|_| new.len() >= SETTLE_AT)?;
        let (entries, new): (Vec<usize>, Vec<Arc<Message>>) = new.into_iter().unzip();
        // Turns are counted in what the pipeline leaves: a heartbeat or a second question in a row is no turn of its own.
        let (sent, _) = pipeline::run(new.clone(), options);
        let first = sent.get(pipeline::first_recent(&sent)).map(|message| message.id.as_str());
        let recent = new.iter().position(|message| Some(message.id.as_str()) == first).unwrap_or(0);
        let picture = new[recent..].iter().position(|message| pipeline::has_image(message));
        let longest = picture.map_or(longest, |at| longest.min(recent + at));
        let cut = (1..=longest).rev().find(|&at| begins_part(&new[at - 1], &new[at]))?;
        let seen = PipelineOptions { pictures: Pictures::Seen, ..options.clone() };
        let (beginning, report) = pipeline::run(new[..cut].to_vec(), &seen);
        if self.reached_by(&beginning, &report) {
            return Some(whole(session, options, counter));
        }
        // Where the pipeline dropped what stood before the cut, something else stands there now.
        let last = beginning.last().map(|message| message.role);
        if !matches!(last, Some(Role::ASSISTANT | Role::TOOL_RESULT)) {
            return None;
        }
        self.has_orphans |= report.pairs.orphans > 0;
        self.call_ids.extend(call_ids(&beginning).map(str::to_owned));
        self.history = std::mem::take(&mut self.history).followed_by(beginning, counter).settle();
        self.entries = entries[cut];
        None
    }

    /// Whether what the pipeline made of a part alone may differ from what it makes of it behind the settled part.
    fn reached_by(&self, new: &[Arc<Message>], report: &PipelineReport) -> bool {
        let strays = report.pairs.orphans + report.pairs.moved > 0;
        let open = self.has_orphans && report.pairs.synthetic > 0;
        let last = self.history.len().checked_sub(1).and_then(|last| self.history.get(last));
        let joins = last.zip(new.first()).is_some_and(|(last, first)| joins(last, first));
        let reached = strays || open || joins || call_ids(new).any(|id| self.call_ids.contains(id));
        !self.history.is_empty() && reached
    }
}

fn whole(session: &Conversation, options: &PipelineOptions, counter: &TokenCounter) -> PreparedHistory {
    let messages = session.context_from(0).map(|(_, message)| message).collect();
    PreparedHistory::new(pipeline::run(messages, options).0, counter)
}

fn call_ids(messages: &[Arc<Message>]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str())
}

/// Whether a part may begin with `message`: it opens a turn or a frame, and is not merged with the one before.
fn begins_part(before: &Message, message: &Message) -> bool {
    match message.role {
        Role::USER => matches!(before.role, Role::ASSISTANT | Role::TOOL_RESULT),
        Role::ASSISTANT => before.role == Role::TOOL_RESULT && message.tool_calls().next().is_some(),
        _ => false,
    }
}

/// Whether the two would be merged if they stood next to each other.
fn joins(before: &Message, message: &Message) -> bool {
    match (before.role, message.role) {
        (Role::USER, Role::USER) => true,
        (Role::ASSISTANT, Role::ASSISTANT) => before.tool_calls().next().is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A session of `length` messages, drawn from a small generator: calls that are answered, late, never, twice; ids
    /// that come again; retries; replies in a row. An odd seed answers each call once and in its frame, as a healthy
    /// agent does.
    fn session(seed: u64, length: usize, each: &mut dyn FnMut(&Conversation)) {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let counter = TokenCounter::for_model(None);
        let mut session = Conversation::default();
        let messy = seed.is_multiple_of(2);
        let mut open: Vec<String> = Vec::new();
        for i in 0..length {
            let kind = if messy || open.is_empty() { below(12) } else { 11 };
            let message = match kind {
                2 if messy => json!({ "role": "user", "content": "beat", "isHeartbeat": true }),
                0 => json!({ "role": "user", "content": [
                    { "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" }, { "type": "text", "text": "look" },
                ] }),
                1..=2 => json!({ "role": "user", "content": format!("question {}", below(3)) }),
                3 => json!({ "role": "assistant", "content": "an answer", "stopReason": "stop" }),
                4..=6 => {
                    let calls: Vec<Value> = (0..=below(2))
                        .map(|n| {
                            let id = if messy && below(40) == 0 { "again".into() } else { format!("c{i}-{n}") };
                            open.push(id.clone());
                            json!({ "type": "toolCall", "id": id, "name": "read", "arguments": {} })
                        })
                        .collect();
                    let stop = if below(30) == 0 { "aborted" } else { "toolUse" };
                    json!({ "role": "assistant", "content": calls, "stopReason": stop })
                }
                _ if messy && (open.is_empty() || below(60) == 0) => {
                    json!({ "role": "toolResult", "toolCallId": "nobody", "toolName": "read", "content": "lost" })
                }
                _ if open.is_empty() => json!({ "role": "user", "content": "go on" }),
                _ => {
                    let at = below(open.len() as u64) as usize;
                    let id = if messy && below(10) == 0 { open[at].clone() } else { open.swap_remove(at) };
                    json!({ "role": "toolResult", "toolCallId": id, "toolName": "read", "content": "out" })
                }
            };
            let Value::Object(map) = message else { panic!("an object") };
            let message = Message::from_map(format!("e{i}"), map).expect("a message");
            session.append(Arc::new(message), &counter);
            each(&session);
        }
    }

    fn jsons(history: &PreparedHistory) -> Vec<String> {
        history.range(0..history.len()).map(|message| format!("{} {}", message.id, message.json)).collect()
    }

    #[test]
    fn what_is_settled_is_what_the_whole_pipeline_makes() {
        let (options, counter) = (PipelineOptions::default(), TokenCounter::for_model(None));
        for seed in 1..=4 {
            let mut settled = SettledHistory::default();
            let mut calls = 0;
            session(seed, 700, &mut |session| {
                calls += 1;
                if calls % 5 != 0 {
                    return;
                }
                let prepared = settled.prepare(session, &options, &counter);
                // The comparison is quadratic: every fifth of them shows as much as each.
                if calls % 25 == 0 {
                    let expected = whole(session, &options, &counter);
                    assert_eq!(jsons(&prepared), jsons(&expected), "seed {seed}, call {calls}");
                    assert_eq!(prepared.tokens(), expected.tokens(), "seed {seed}, call {calls}");
                    assert_eq!(prepared.views().len(), expected.len(), "seed {seed}, call {calls}");
                }
            });
            let healthy = seed % 2 == 1;
            assert!(!healthy || settled.history.len() > 300, "seed {seed}: only {} settled", settled.history.len());
        }
    }
}
