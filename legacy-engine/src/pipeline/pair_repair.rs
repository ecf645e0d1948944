//! Every call has one result, right behind it.
//!
//! Decision: providers refuse a whole request over one broken pair, and a session that once got one stays broken, so
//! pairs are made whole in the view and never in the file. Source: contract §4.4, with its policy for prompts (`drop`).
//!
//! Invariant: repairing what was repaired changes nothing.

use std::borrow::Cow;
use std::sync::Arc;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::{Block, Message};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call_ids::{CallIds, clean_name, is_valid_name};
use super::frames::{self, Frame};
use super::parts::{self, Part};

/// Text of a result that was made up for a call without one.
pub const SYNTHETIC_RESULT: &str = "[context-engine] missing tool result in session history; inserted synthetic error \
                                    result for transcript repair.";
/// How the same text ends in transcripts that another host repaired on disk.
const REPAIR_NOTICE: &str = "inserted synthetic error result for transcript repair.";

/// At most what a call id costs that is put in the place of another, in tokens. A message that only changes its names is
/// not counted again: its text may be a megabyte, and it would be for every prompt.
const ID_TOKENS: u64 = 24;

/// What [`pair_repair`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PairReport {
    /// Results made up for calls without one.
    pub synthetic: usize,
    /// Results left out because they answer no call.
    pub orphans: usize,
    /// Results left out because the call has its result.
    pub extras: usize,
    /// Results put behind their call from another place.
    pub moved: usize,
    /// Failed or interrupted replies left out with their calls.
    pub dead_replies: usize,
    /// Results that went with them.
    pub dead_results: usize,
    /// Unanswered calls left out because their name cannot be sent.
    pub unnamed_calls: usize,
    /// Calls that were given another name.
    pub renamed: usize,
    /// Calls that were given another id.
    pub new_ids: usize,
}

/// Whether the message is a result that was made up for a call without one, by this or another host.
pub(super) fn is_synthetic_result(message: &Message) -> bool {
    message.role == Role::TOOL_RESULT
        && (message.flags.contains(MessageFlags::SYNTHETIC)
            || (message.flags.contains(MessageFlags::TOOL_ERROR)
                && message.blocks.len() == 1
                && message.blocks[0].text.ends_with(REPAIR_NOTICE)))
}

/// Makes pairs whole (contract §4.4).
///
/// - Results stand directly behind their assistant message, in the order of its calls; what stood between follows.
/// - A call without a result gets one that says so ([`SYNTHETIC_RESULT`], flagged as synthetic).
/// - A second result is left out; a real one replaces a made-up one. A result without a call is left out, or moved when
///   exactly one open call of the history has its id.
/// - A reply that failed or was interrupted goes with its calls and their results; one without calls stays.
/// - Call ids are unique in what comes out. An answered call with a name that cannot be sent gets the nearest one that
///   can (its result's, where that is in order), because its result is worth more than its name; an unanswered one goes.
pub fn pair_repair(messages: Vec<Arc<Message>>) -> (Vec<Arc<Message>>, PairReport) {
    let found = frames::find(&messages);
    let mut repair = Repair {
        messages: &messages,
        ids: CallIds::default(),
        out: Vec::with_capacity(messages.len()),
        report: PairReport { orphans: found.orphans, extras: found.extras, moved: found.moved, ..Default::default() },
    };
    let first = found.frames.first().map_or(messages.len(), |frame| frame.assistant);
    repair.others(0, first);
    for (n, frame) in found.frames.iter().enumerate() {
        let end = found.frames.get(n + 1).map_or(messages.len(), |next| next.assistant);
        if frame.dead {
            repair.report.dead_replies += 1;
            repair.report.dead_results += frame.slots.iter().filter(|slot| slot.result.is_some()).count();
        } else {
            repair.frame(frame);
        }
        repair.others(frame.assistant + 1, end);
    }
    (repair.out, repair.report)
}

struct Repair<'a> {
    messages: &'a [Arc<Message>],
    ids: CallIds<'a>,
    out: Vec<Arc<Message>>,
    report: PairReport,
}

/// A call as it goes out.
struct Call<'a> {
    block: &'a Block,
    at: usize,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    result: Option<&'a Arc<Message>>,
}

impl<'a> Repair<'a> {
    fn others(&mut self, start: usize, end: usize) {
        let others = self.messages[start..end].iter().filter(|m| m.role != Role::TOOL_RESULT);
        self.out.extend(others.cloned());
    }

    fn frame(&mut self, frame: &Frame) {
        let assistant = &self.messages[frame.assistant];
        let mut calls: Vec<Call<'a>> = Vec::with_capacity(frame.slots.len());
        for slot in &frame.slots {
            let block = &assistant.blocks[slot.block];
            let result = slot.result.map(|i| &self.messages[i]);
            let Some(name) = call_name(block, result) else {
                self.report.unnamed_calls += 1;
                continue;
            };
            let id = self.ids.claim(&block.id, &assistant.id, slot.block);
            self.report.renamed += usize::from(name != block.name);
            self.report.new_ids += usize::from(id != block.id);
            calls.push(Call { block, at: slot.block, id, name, result });
        }
        let Some(assistant) = with_calls(assistant, &calls, frame.slots.len()) else { return };
        self.out.push(assistant.clone());
        for call in &calls {
            let result = match call.result {
                Some(result) => answer(result, call),
                None => {
                    self.report.synthetic += 1;
                    synthetic(&assistant, call).map(Arc::new)
                }
            };
            self.out.extend(result);
        }
    }
}

/// The name the call is sent under; `None` when it has no usable one and nobody answered it.
fn call_name<'a>(block: &'a Block, result: Option<&'a Arc<Message>>) -> Option<Cow<'a, str>> {
    let name = block.name.trim();
    if is_valid_name(name) {
        return Some(Cow::Borrowed(name));
    }
    let tool = result?.tool_name.trim();
    Some(if is_valid_name(tool) { Cow::Borrowed(tool) } else { Cow::Owned(clean_name(name)) })
}

/// The assistant message with its calls as they go out; `None` when nothing is left of it.
fn with_calls(assistant: &Arc<Message>, calls: &[Call<'_>], before: usize) -> Option<Arc<Message>> {
    let same = |call: &Call<'_>| call.id == call.block.id && call.name == call.block.name;
    if calls.len() == before && calls.iter().all(same) {
        return Some(assistant.clone());
    }
    let mut kept: Vec<Part<'_>> = Vec::with_capacity(assistant.blocks.len());
    let all = calls;
    let mut calls = calls.iter().peekable();
    for (at, block) in assistant.blocks.iter().enumerate() {
        let part = Part::of(assistant, block);
        if block.kind != BlockKind::TOOL_CALL {
            kept.push(part);
            continue;
        }
        let Some(call) = calls.next_if(|call| call.at == at) else { continue };
        if same(call) {
            kept.push(part);
            continue;
        }
        let renamed = part.to_map().and_then(|mut map| {
            map.insert("id".into(), call.id.as_ref().into());
            map.insert("name".into(), call.name.as_ref().into());
            Part::changed(map)
        });
        kept.push(renamed.unwrap_or(part));
    }
    let Some(mut changed) = parts::with_parts(assistant, &kept) else { return Some(assistant.clone()) };
    if assistant.tokens > 0 {
        let more = |call: &Call<'_>| if same(call) { 0 } else { ID_TOKENS + call.name.len() as u64 };
        changed.tokens = assistant.tokens + all.iter().map(more).sum::<u64>();
    }
    changed.blocks.iter().any(|b| b.kind != BlockKind::THINKING).then(|| Arc::new(changed))
}

/// The result under the id and name of its call.
fn answer(result: &Arc<Message>, call: &Call<'_>) -> Option<Arc<Message>> {
    let renamed = call.name != call.block.name || result.tool_name.trim().is_empty();
    if result.tool_call_id == call.id && (!renamed || result.tool_name == call.name) {
        return Some(result.clone());
    }
    let Some(mut fields) = result.to_map() else { return Some(result.clone()) };
    fields.insert("toolCallId".into(), call.id.as_ref().into());
    if renamed {
        fields.insert("toolName".into(), call.name.as_ref().into());
    }
    let kept: Vec<Part<'_>> = Part::all(result).collect();
    let mut changed = parts::with_fields(result, fields, &kept)?;
    if result.tokens > 0 {
        // A tool's name is no part of what a result costs.
        changed.tokens = result.tokens + if result.tool_call_id == call.id { 0 } else { ID_TOKENS };
    }
    Some(Arc::new(changed))
}

fn synthetic(assistant: &Message, call: &Call<'_>) -> Option<Message> {
    let mut fields = Map::new();
    fields.insert("role".into(), "toolResult".into());
    fields.insert("toolCallId".into(), call.id.as_ref().into());
    fields.insert("toolName".into(), call.name.as_ref().into());
    fields.insert("content".into(), json!([{ "type": "text", "text": SYNTHETIC_RESULT }]));
    fields.insert("isError".into(), Value::Bool(true));
    if assistant.timestamp_ms != 0 {
        // The assistant's own time: a clock would change the prompt on every call.
        fields.insert("timestamp".into(), assistant.timestamp_ms.into());
    }
    let mut message = Message::from_map(format!("{}#{}", assistant.id, call.at), fields).ok()?;
    message.flags = message.flags.with(MessageFlags::SYNTHETIC);
    Some(message)
}
