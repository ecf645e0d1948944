//! Which result answers which call, by position.
//!
//! Decision: a frame is an assistant message with tool calls and everything up to the next one; results claim calls
//! inside their frame, in order, so an id that comes again in a later turn never reaches back (public report A6).
//! Source: contract §4.4.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::Message;

use super::pair_repair::is_synthetic_result;

/// One call of a frame.
#[derive(Debug)]
pub(super) struct Slot {
    /// Index of the call in the assistant's blocks.
    pub(super) block: usize,
    /// Index of the message that answers it.
    pub(super) result: Option<usize>,
}

/// An assistant message with calls, and what follows it up to the next such message.
#[derive(Debug)]
pub(super) struct Frame {
    /// Index of the assistant message.
    pub(super) assistant: usize,
    /// Its calls, in order.
    pub(super) slots: Vec<Slot>,
    /// Whether the reply failed or was interrupted: its calls were never finished and are not sent.
    pub(super) dead: bool,
}

/// The frames of a history, and how many results found no call.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// In order of their assistants.
    pub(super) frames: Vec<Frame>,
    /// Results that answer nothing.
    pub(super) orphans: usize,
    /// Results that answer what was answered already.
    pub(super) extras: usize,
    /// Results that found their call in another frame.
    pub(super) moved: usize,
}

/// Finds the frames and lets each result claim its call.
pub(super) fn find(messages: &[Arc<Message>]) -> Frames {
    let mut found = Frames::default();
    let mut strays: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let end = messages[at + 1..].iter().position(|m| has_calls(m)).map_or(messages.len(), |n| at + 1 + n);
        if has_calls(&messages[at]) {
            found.frames.push(claim(messages, at, end, &mut strays, &mut found.extras));
        } else {
            strays.extend((at..end).filter(|i| messages[*i].role == Role::TOOL_RESULT));
        }
        at = end;
    }
    place_strays(messages, &mut found, &strays);
    found
}

pub(super) fn has_calls(message: &Message) -> bool {
    message.role == Role::ASSISTANT && message.blocks.iter().any(|b| b.kind == BlockKind::TOOL_CALL)
}

fn claim(messages: &[Arc<Message>], at: usize, end: usize, strays: &mut Vec<usize>, extras: &mut usize) -> Frame {
    let assistant = &messages[at];
    let calls = assistant.blocks.iter().enumerate().filter(|(_, b)| b.kind == BlockKind::TOOL_CALL);
    let mut slots: Vec<Slot> = calls.map(|(block, _)| Slot { block, result: None }).collect();
    let mut waiting: HashMap<&str, VecDeque<usize>> = HashMap::new();
    let mut answered: HashMap<&str, Vec<usize>> = HashMap::new();
    for (slot, Slot { block, .. }) in slots.iter().enumerate() {
        let id = assistant.blocks[*block].id.as_str();
        if !is_blank(id) {
            waiting.entry(id).or_default().push_back(slot);
        }
    }
    let mut left: Vec<usize> = Vec::new();
    for i in (at + 1..end).filter(|i| messages[*i].role == Role::TOOL_RESULT) {
        let result = &messages[i];
        let id = result.tool_call_id.as_str();
        if let Some(slot) = waiting.get_mut(id).and_then(VecDeque::pop_front) {
            slots[slot].result = Some(i);
            if is_synthetic_result(result) {
                answered.entry(id).or_default().push(slot);
            }
        } else if waiting.contains_key(id) {
            *extras += 1;
            // What was made up gives way to what really came back.
            if !is_synthetic_result(result)
                && let Some(slot) = answered.get_mut(id).and_then(Vec::pop)
            {
                slots[slot].result = Some(i);
            }
        } else {
            left.push(i);
        }
    }
    claim_blank(messages, assistant, &mut slots, left, strays);
    let dead = assistant.flags.contains(MessageFlags::ERRORED) || assistant.flags.contains(MessageFlags::ABORTED);
    Frame { assistant: at, slots, dead }
}

/// Lets results claim open calls where either side's id is blank: first those of the same tool, in order, then, by
/// position, those where a name is missing. Results of different tools never meet, whatever their places.
fn claim_blank(
    messages: &[Arc<Message>],
    assistant: &Message,
    slots: &mut [Slot],
    mut left: Vec<usize>,
    strays: &mut Vec<usize>,
) {
    for same_tool in [true, false] {
        left.retain(|&i| {
            let result = &messages[i];
            let claimed = slots.iter_mut().find(|slot| {
                let call = &assistant.blocks[slot.block];
                let (name, tool) = (call.name.trim(), result.tool_name.trim());
                let meets =
                    if same_tool { name == tool && !name.is_empty() } else { name.is_empty() || tool.is_empty() };
                slot.result.is_none() && meets && (is_blank(&call.id) || is_blank(&result.tool_call_id))
            });
            match claimed {
                Some(slot) => slot.result = Some(i),
                None => return true,
            }
            false
        });
    }
    strays.extend(left);
}

fn is_blank(id: &str) -> bool {
    id.trim().is_empty()
}

/// A result outside its frame goes to the one open call with its id, if there is exactly one.
fn place_strays(messages: &[Arc<Message>], found: &mut Frames, strays: &[usize]) {
    if strays.is_empty() {
        return;
    }
    let mut open: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for (f, frame) in found.frames.iter().enumerate() {
        let slots = frame.slots.iter().enumerate().filter(|(_, slot)| slot.result.is_none());
        for (s, slot) in slots {
            let id = messages[frame.assistant].blocks[slot.block].id.as_str();
            if !id.is_empty() {
                open.entry(id).or_default().push((f, s));
            }
        }
    }
    for stray in strays {
        let id = messages[*stray].tool_call_id.as_str();
        match open.get(id).map(Vec::as_slice) {
            Some(&[(f, s)]) => {
                open.remove(id);
                found.frames[f].slots[s].result = Some(*stray);
                found.moved += 1;
            }
            _ => found.orphans += 1,
        }
    }
}
