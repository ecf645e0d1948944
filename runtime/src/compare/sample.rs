//! One prompt of each engine to look into: the one where the engines differ most.
//!
//! Decision: prompts are not kept while cells are played, because all of them are gigabytes. The one that is wanted is known
//! afterwards, and made again: an engine gives the same prompt for the same history.

use std::collections::HashMap;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_legacy::pipeline::{BOOTSTRAP, CONTINUE, summary_text};
use context_engine_loader::EngineHandle;
use context_engine_transcript::{Block, Message};

use super::cell::Played;
use super::report::{Cell, PromptPart};
use crate::replay::{Replay, ReplayOptions};
use crate::{CallReport, Prompt, RuntimeError};

/// How much of a part's text is shown, in characters.
const SHOWN: usize = 200;

/// A call of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) session: usize,
    pub(crate) budget: u64,
    pub(crate) turn: usize,
    pub(crate) call: usize,
}

/// The call where the largest prompt of an engine is furthest from the smallest; with one engine, the largest prompt.
pub(crate) fn where_engines_differ_most(cells: &[Cell], engines: usize) -> Option<Place> {
    let mut sent: HashMap<(usize, u64, usize, usize), Vec<u64>> = HashMap::new();
    let mut order = Vec::new();
    for cell in cells {
        for point in &cell.calls {
            let key = (cell.session, cell.budget, point.turn, point.call);
            let of_engines = sent.entry(key).or_insert_with(|| {
                order.push(key);
                Vec::new()
            });
            of_engines.push(point.sent_tokens);
        }
    }
    let apart = |key: &(usize, u64, usize, usize)| {
        let of_engines = sent.get(key).filter(|sent| sent.len() == engines)?;
        let (most, least) = (of_engines.iter().max()?, of_engines.iter().min()?);
        Some(if engines > 1 { most - least } else { *most })
    };
    // The first of equals: which one is shown must not depend on anything else.
    let widest = order.iter().filter_map(|key| Some((apart(key)?, key)));
    let (_, (session, budget, turn, call)) = widest.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    Some(Place { session: *session, budget: *budget, turn: *turn, call: *call })
}

/// The prompt of that call, as blocks; `None` when the engine does not get so far again.
pub(crate) fn prompt_at(
    played: &Played<'_>,
    (engine, asked_for): (&EngineHandle, &str),
    options: ReplayOptions,
    place: Place,
) -> Option<Vec<PromptPart>> {
    /// Ends the replay: what follows is not wanted.
    enum Stop {
        Found(Vec<PromptPart>),
        Failed,
    }
    impl From<RuntimeError> for Stop {
        fn from(_: RuntimeError) -> Stop {
            Stop::Failed
        }
    }
    let replay = Replay::new(played.session, played.counter, options).ok()?;
    let run = replay.run(engine, asked_for, |report: &CallReport, prompt: &Prompt| {
        let found = (report.turn, report.call) == (place.turn, place.call);
        if found { Err(Stop::Found(parts(played, prompt))) } else { Ok(()) }
    });
    match run {
        Err(Stop::Found(parts)) => Some(parts),
        _ => None,
    }
}

fn parts(played: &Played<'_>, prompt: &Prompt) -> Vec<PromptPart> {
    let turns: HashMap<&str, usize> =
        played.messages.iter().zip(&played.turns).map(|(message, turn)| (message.id.as_str(), *turn)).collect();
    let messages = &prompt.assembled.messages;
    let of_messages: u64 = messages.iter().map(|message| message.tokens).sum();
    let system = prompt.system.as_deref().map(|text| PromptPart {
        kind: "system".to_owned(),
        turn: None,
        tokens: prompt.tokens.saturating_sub(of_messages),
        text: text.chars().take(SHOWN).collect(),
    });
    let of_message = |message: &Message| -> Vec<PromptPart> {
        let costs: Vec<u64> = message.blocks.iter().map(|block| cost(played, message, block)).collect();
        // The message's frame goes with its first block.
        let frame = message.tokens.saturating_sub(costs.iter().sum());
        let part = |(at, (block, cost)): (usize, (&Block, u64))| {
            let kind = kind(message, block);
            let is_own = !matches!(kind, "summary" | "other");
            PromptPart {
                kind: kind.to_owned(),
                turn: turns.get(message.id.as_str()).copied().filter(|_| is_own),
                tokens: cost + if at == 0 { frame } else { 0 },
                text: shown(block),
            }
        };
        message.blocks.iter().zip(costs).enumerate().map(part).collect()
    };
    system.into_iter().chain(messages.iter().flat_map(|message| of_message(message))).collect()
}

fn cost(played: &Played<'_>, message: &Message, block: &Block) -> u64 {
    let count = |text: &str| played.counter.text(text);
    context_engine_transcript::tokens::block_cost(message.role, &message.block_view(block), &count)
}

fn kind(message: &Message, block: &Block) -> &'static str {
    let lead = summary_text("");
    let lead = lead.split('\n').next().unwrap_or(&lead);
    match (block.kind, message.role) {
        (BlockKind::TOOL_CALL, _) => "tool call",
        (_, Role::TOOL_RESULT) => "tool result",
        (BlockKind::TEXT, _) if block.text.starts_with(lead) => "summary",
        (BlockKind::TEXT, _) if block.text == CONTINUE || block.text == BOOTSTRAP => "other",
        // What an engine wrote itself stands for something else.
        (BlockKind::TEXT, _) if message.flags.contains(MessageFlags::SYNTHETIC) => "summary",
        (BlockKind::TEXT, Role::USER) => "user",
        (BlockKind::TEXT, Role::ASSISTANT) => "assistant",
        _ => "other",
    }
}

fn shown(block: &Block) -> String {
    let text = match block.kind {
        BlockKind::TOOL_CALL => format!("{} {}", block.name, block.text),
        BlockKind::IMAGE => format!("[picture, {}]", block.name),
        _ => block.text.clone(),
    };
    text.chars().take(SHOWN).collect()
}
