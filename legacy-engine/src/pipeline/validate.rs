//! Speakers take turns: runs of one speaker become one message.
//!
//! Decision: merging joins content blocks and never text, so each text stays byte-identical inside its own block
//! (public report A9). The message keeps the first one's id, because a cut at that id must keep all of it.
//! Source: contract §4.2.

use std::sync::Arc;

use context_engine_interface::{BlockFlags, MessageFlags, Role};
use context_engine_transcript::Message;
use context_engine_transcript::tokens::MESSAGE_OVERHEAD;
use serde::Serialize;
use serde_json::{Map, Value};

use super::frames::has_calls;
use super::parts::{self, Part};

/// What [`validate`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ValidateReport {
    /// Assistant messages that went into the one before.
    pub merged_assistants: usize,
    /// User messages that went into the one before.
    pub merged_users: usize,
    /// User messages left out because they repeat the one before: retries after failed replies.
    pub repeated_users: usize,
}

/// Merges runs of assistant messages without calls in between and runs of user messages (contract §4.2).
///
/// An assistant run keeps the first message's fields, usage, stop reason and error of the last, and the model of the last
/// one that signed its thinking. A user run keeps the
/// last message's fields; identical neighbours count once.
pub fn validate(messages: Vec<Arc<Message>>) -> (Vec<Arc<Message>>, ValidateReport) {
    let mut report = ValidateReport::default();
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
    let mut at = 0;
    while at < messages.len() {
        let end = at + run_length(&messages[at..]);
        let run = &messages[at..end];
        match run[0].role {
            _ if run.len() == 1 => out.push(run[0].clone()),
            Role::USER => out.push(merge_users(run, &mut report)),
            _ => out.push(merge_assistants(run, &mut report)),
        }
        at = end;
    }
    (out, report)
}

/// How many messages from the first on belong into one.
fn run_length(messages: &[Arc<Message>]) -> usize {
    let role = messages[0].role;
    let joins = |next: &Message, before: &Message| match role {
        Role::USER => next.role == Role::USER,
        Role::ASSISTANT => next.role == Role::ASSISTANT && !has_calls(before),
        _ => false,
    };
    1 + messages.windows(2).take_while(|pair| joins(&pair[1], &pair[0])).count()
}

fn merge_users(run: &[Arc<Message>], report: &mut ValidateReport) -> Arc<Message> {
    let mut different: Vec<&Arc<Message>> = Vec::with_capacity(run.len());
    for message in run {
        match different.last() {
            Some(last) if same_content(last, message) => report.repeated_users += 1,
            _ => different.push(message),
        }
    }
    report.merged_users += different.len() - 1;
    let [first, .., last] = different.as_slice() else { return run[0].clone() };
    let kept: Vec<Part<'_>> = different.iter().flat_map(|m| Part::all(m)).collect();
    let flags = parts::shared_flags(run);
    let mut fields = last.to_map().unwrap_or_else(|| bare(last));
    if !flags.contains(MessageFlags::HEARTBEAT) {
        fields.remove("isHeartbeat");
    }
    match parts::build(&first.id, fields, &kept) {
        Some(mut merged) => {
            merged.flags = merged.flags.with(flags);
            merged.timestamp_ms = if merged.timestamp_ms == 0 { last.timestamp_ms } else { merged.timestamp_ms };
            merged.tokens = cost_of(different.iter().map(|message| message.as_ref()));
            Arc::new(merged)
        }
        None => run[0].clone(),
    }
}

fn same_content(a: &Message, b: &Message) -> bool {
    a.blocks.len() == b.blocks.len() && Part::all(a).zip(Part::all(b)).all(|(a, b)| a.same(&b))
}

fn merge_assistants(run: &[Arc<Message>], report: &mut ValidateReport) -> Arc<Message> {
    let [first, .., last] = run else { return run[0].clone() };
    report.merged_assistants += run.len() - 1;
    let mut fields = first.to_map().unwrap_or_else(|| bare(first));
    let mut later = last.to_map().unwrap_or_default();
    for name in ["usage", "stopReason", "errorMessage"] {
        // A failed first half must not make the whole look failed: what the last one does not say, nobody says.
        fields.remove(name);
        if let Some(value) = later.remove(name) {
            fields.insert(name.into(), value);
        }
    }
    let signs = |m: &&Arc<Message>| m.blocks.iter().any(|b| b.flags.contains(BlockFlags::SIGNED));
    if let Some(signer) = run.iter().rev().find(signs) {
        // Who signed the thinking decides to which model it may be sent.
        let mut author = signer.to_map().unwrap_or_default();
        for name in ["api", "provider", "model"] {
            fields.remove(name);
            if let Some(value) = author.remove(name) {
                fields.insert(name.into(), value);
            }
        }
    }
    let kept: Vec<Part<'_>> = run.iter().flat_map(|m| Part::all(m)).collect();
    match parts::build(&first.id, fields, &kept) {
        Some(mut merged) => {
            merged.flags = merged.flags.with(parts::shared_flags(run));
            merged.timestamp_ms = if merged.timestamp_ms == 0 { first.timestamp_ms } else { merged.timestamp_ms };
            merged.tokens = cost_of(run.iter().map(Arc::as_ref));
            Arc::new(merged)
        }
        None => run[0].clone(),
    }
}

/// The fields of a message whose JSON cannot be read: its blocks are spliced and stay.
fn bare(message: &Message) -> Map<String, Value> {
    Map::from_iter([("role".to_owned(), message.role.name().unwrap_or_default().into())])
}

/// What the messages cost as one: their blocks, in one frame. 0, for not counted, when one of them is not counted.
fn cost_of<'a>(merged: impl Iterator<Item = &'a Message>) -> u64 {
    let costs: Vec<u64> = merged.map(|message| message.tokens).collect();
    if costs.contains(&0) {
        return 0;
    }
    costs.iter().sum::<u64>().saturating_sub(MESSAGE_OVERHEAD * (costs.len() as u64 - 1))
}
