//! What a history may not hold, message by message: blank text, thinking nobody may send, half-written tool calls.
//!
//! Decision: this stage looks at one message at a time and never at pairs, so it can drop a block but never a call that
//! may have an answer; `pair_repair` decides about those. It reads the index only, and parses the few it must change.

use std::sync::Arc;

use context_engine_interface::{BlockFlags, BlockKind, MessageFlags, Role};
use context_engine_transcript::{Block, Message};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts::{self, Part};
use super::sent::{self, is_misplaced_thinking, mend_call, needs_arguments};

/// An assistant's answer that means "say nothing" (contract §4.1.2).
const SILENT_REPLY: &str = "NO_REPLY";

/// What [`sanitize`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SanitizeReport {
    /// Messages left out because they are marked as never sent.
    pub excluded: usize,
    /// Messages left out because nothing was left in them.
    pub emptied: usize,
    /// Blank text blocks left out.
    pub blank_texts: usize,
    /// Thinking blocks without a signature, left out.
    pub unsigned_thinking: usize,
    /// Thinking blocks signed by another model, left out.
    pub foreign_thinking: usize,
    /// Tool calls whose arguments were missing or no object.
    pub mended_arguments: usize,
    /// Thinking blocks in messages that are no assistant's, left out.
    pub misplaced_thinking: usize,
    /// Blocks of kinds that no model is sent, or not in such a message, that became text.
    pub retold_blocks: usize,
    /// Messages from which private fields (`details`, `partialJson`) were taken.
    pub stripped: usize,
}

/// Cleans each message by itself (contract §4.1, steps 2, 4, 5 and 8).
///
/// - Messages marked as excluded go, and so does a message of which nothing is left: blank user text, an empty reply of
///   a failed or interrupted turn, a reply of thinking only, a reply of `NO_REPLY` only, a blank summary.
/// - Thinking stays whole when it is signed, and by `model` when one is given (`id` or `provider/id`; a reply that does
///   not say which model wrote it is taken to be that one); all other thinking goes.
/// - Blocks of a kind that a model is not sent become text, and so do tool calls in a message that is no assistant's;
///   thinking there goes (the table in `sent.rs`).
/// - Tool calls without arguments get `{}`; arguments that are no object are kept under `input`.
/// - A message whose role has no name here travels on when it holds text: it was put there for the model to read.
///
/// An interrupted reply with text and no calls is kept. Tool results are always kept: they belong to a call.
pub fn sanitize(messages: Vec<Arc<Message>>, model: Option<&str>) -> (Vec<Arc<Message>>, SanitizeReport) {
    let mut report = SanitizeReport::default();
    let kept = messages.into_iter().filter_map(|message| clean(message, model, &mut report)).collect();
    (kept, report)
}

fn clean(message: Arc<Message>, model: Option<&str>, report: &mut SanitizeReport) -> Option<Arc<Message>> {
    if message.flags.contains(MessageFlags::EXCLUDED) {
        report.excluded += 1;
        return None;
    }
    let foreign = is_foreign(&message, model);
    let mut fates: Vec<Fate> = Vec::with_capacity(message.blocks.len());
    for block in &message.blocks {
        let fate = fate(&message, block, foreign);
        match fate {
            Fate::BlankText => report.blank_texts += 1,
            Fate::Thinking if is_misplaced_thinking(message.role, block) => report.misplaced_thinking += 1,
            Fate::Thinking if foreign && block.flags.contains(BlockFlags::SIGNED) => report.foreign_thinking += 1,
            Fate::Thinking => report.unsigned_thinking += 1,
            Fate::Mend => report.mended_arguments += usize::from(needs_arguments(block)),
            Fate::Retell => report.retold_blocks += 1,
            Fate::Keep => {}
        }
        fates.push(fate);
    }
    let left = || message.blocks.iter().zip(&fates).filter(|(_, fate)| fate.stays()).map(|(block, _)| block);
    if !says_something(&message, left) {
        report.emptied += 1;
        return None;
    }
    let private = message.role == Role::TOOL_RESULT && message.json.contains("\"details\"");
    if !private && fates.iter().all(|fate| *fate == Fate::Keep) {
        return Some(message);
    }
    let Some(mut fields) = message.to_map() else { return Some(message) };
    let had_private = private && fields.remove("details").is_some();
    let (mut mended, mut retold) = (false, false);
    let mut kept: Vec<Part<'_>> = Vec::with_capacity(fates.len());
    for (block, fate) in message.blocks.iter().zip(&fates) {
        let part = Part::of(&message, block);
        match fate {
            Fate::Keep => kept.push(part),
            Fate::Mend => {
                let changed = part.to_map().and_then(mend_call).and_then(Part::changed);
                mended |= changed.is_some();
                kept.push(changed.unwrap_or(part));
            }
            Fate::Retell => {
                retold = true;
                kept.extend(sent::part(message.role, &message, block));
            }
            Fate::BlankText | Fate::Thinking => {}
        }
    }
    let unchanged = !had_private && !mended && !retold && kept.len() == message.blocks.len();
    if unchanged {
        return Some(message);
    }
    report.stripped += usize::from(had_private || mended);
    let mut changed = match parts::with_fields(&message, fields, &kept) {
        Some(changed) => changed,
        None => return Some(message),
    };
    if !mended && kept.len() == message.blocks.len() {
        // Only what is never sent went away, and what is retold was counted as it is told, so the cost stands.
        changed.tokens = message.tokens;
    }
    Some(Arc::new(changed))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    BlankText,
    Thinking,
    Mend,
    Retell,
}

impl Fate {
    fn stays(self) -> bool {
        matches!(self, Fate::Keep | Fate::Mend | Fate::Retell)
    }
}

fn fate(message: &Message, block: &Block, foreign: bool) -> Fate {
    match block.kind {
        BlockKind::TEXT if block.text.trim().is_empty() => Fate::BlankText,
        BlockKind::THINKING if is_misplaced_thinking(message.role, block) => Fate::Thinking,
        BlockKind::THINKING if foreign || !block.flags.contains(BlockFlags::SIGNED) => Fate::Thinking,
        BlockKind::TEXT | BlockKind::THINKING | BlockKind::IMAGE => Fate::Keep,
        kind if kind != BlockKind::TOOL_CALL || message.role != Role::ASSISTANT => Fate::Retell,
        _ if needs_arguments(block) || has_partial(message, block) => Fate::Mend,
        _ => Fate::Keep,
    }
}

fn has_partial(message: &Message, block: &Block) -> bool {
    message.raw(block).contains("\"partialJson\"")
}

fn is_foreign(message: &Message, model: Option<&str>) -> bool {
    let signed = |b: &Block| b.kind == BlockKind::THINKING && b.flags.contains(BlockFlags::SIGNED);
    let Some(model) = model.filter(|_| message.blocks.iter().any(signed)) else { return false };
    let Ok(author) = serde_json::from_str::<Author>(&message.json) else { return false };
    let Some(Value::String(id)) = author.model else { return false };
    let with_provider = match author.provider {
        Some(Value::String(provider)) => format!("{provider}/{id}"),
        _ => String::new(),
    };
    model != id && model != with_provider
}

#[derive(Deserialize)]
struct Author {
    model: Option<Value>,
    provider: Option<Value>,
}

#[derive(Deserialize)]
struct Summary {
    summary: Option<Value>,
}

/// Whether the blocks that are left make the message worth sending.
fn says_something<'a, I: Iterator<Item = &'a Block>>(message: &Message, left: impl Fn() -> I) -> bool {
    match message.role {
        Role::TOOL_RESULT | Role::BASH_EXECUTION => true,
        Role::ASSISTANT => {
            let silent = |b: &Block| b.kind == BlockKind::TEXT && b.text.trim() == SILENT_REPLY;
            left().any(|b| b.kind != BlockKind::THINKING && !silent(b))
        }
        Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => {
            let summary = serde_json::from_str::<Summary>(&message.json).ok().and_then(|s| s.summary);
            matches!(summary, Some(Value::String(text)) if !text.trim().is_empty()) || left().next().is_some()
        }
        Role::USER | Role::CUSTOM => left().next().is_some(),
        _ => left().any(|b| b.kind == BlockKind::TEXT),
    }
}
