//! The deterministic last resort: a prompt that fits, whatever the history, without a model and without writing.
//!
//! Decision: the newest turn comes first and is never left out: its user message, cut with a visible mark if it must be,
//! then its newest whole call/result groups. Older whole turns follow while they fit; of the first that does not, what
//! fits; an extractive summary stands for the rest. Source: design of the legacy engine, public reports C4, A13, C14.
//!
//! Invariants of the plan: never empty, never over the budget, no call without its results and the reverse, thinking whole
//! or absent.

mod cost;
mod cut;
mod shrink;
#[cfg(test)]
mod tests;

use std::ops::Range;

use context_engine_interface::{Assembly, MessageView, Messages, Role, text_message};

use crate::pipeline::summary_text;
use crate::summary::Digest;
use cost::Count;

pub(crate) use cost::message as count_message;

/// The least budget that is honoured, in tokens: under this not even a cut user message can be sent.
pub const MIN_BUDGET: u64 = 32;
/// Share of the budget a summary may take, in percent.
const SUMMARY_PERCENT: u64 = 15;
/// Most tokens a summary takes: what is found by extraction in more is not worth the recent turns it costs.
const MOST_SUMMARY: u64 = 6_000;
/// Fewest tokens worth a summary.
const LEAST_SUMMARY: u64 = 64;
/// Fewest tokens worth a part of an older turn or group, at most; a quarter of a small budget.
const LEAST_PART: u64 = 256;

/// Plans a prompt of at most `budget` tokens over the pipeline's view of a history.
///
/// `messages` must have whole pairs, as [`crate::pipeline::run`] leaves them. `budget` is what messages may cost; less than
/// [`MIN_BUDGET`] is taken as that. `count` counts text as the messages' own token counts were made; a message without a
/// count is counted with it. The plan's `estimated_tokens` is its cost, which covers what rendering may add.
///
/// Everything is kept when it fits. Linear in the history; texts are counted no further than could fit.
pub fn fit(messages: Messages<'_>, budget: u64, count: &dyn Fn(&str) -> u64) -> Assembly {
    let costs: Vec<u64> = messages.iter().map(|view| cost::message(view, count)).collect();
    let fillers = cost::fillers(messages, count);
    let total = costs.iter().sum::<u64>() + fillers;
    let mut plan = Assembly::new();
    if total <= budget {
        plan.keep(0..messages.len());
        plan.estimated_tokens = total;
        return plan;
    }
    let budget = budget.max(MIN_BUDGET).saturating_sub(fillers).max(MIN_BUDGET / 4);
    let fitting = Fitting { messages, costs: &costs, count, least_part: LEAST_PART.min(budget / 4) };
    let share = (budget * SUMMARY_PERCENT / 100).min(MOST_SUMMARY);
    let reserve = if share >= LEAST_SUMMARY { share } else { 0 };
    let mut chosen = fitting.choose(budget, reserve);
    if chosen.messages() == messages.len() {
        // Nothing is left to summarise: what was held back for it goes to the texts that were cut.
        chosen = fitting.choose(budget, 0);
    }
    chosen.pieces.reverse();
    let rest = budget.saturating_sub(chosen.used);
    if let Some((json, sources, tokens)) = fitting.summarise(&chosen, share.min(rest)) {
        plan.insert(json, sources);
        chosen.used += tokens;
    }
    for piece in chosen.pieces {
        match piece {
            Piece::Keep(range) => plan.keep(range),
            Piece::Replace(index, json) => {
                let id = messages.get(index).map(|m| m.id.to_string());
                plan.replace(index, json, id.into_iter().collect())
            }
        };
    }
    if plan.segments.is_empty() {
        // A newest turn without a user message, whose only group cannot be made small enough.
        if let Some(bare) = messages.last().and_then(|last| bare(last, budget, count)) {
            chosen.used = bare.tokens;
            plan.insert(bare.json, messages.last().map(|last| last.id.to_string()).into_iter().collect());
        }
    }
    plan.estimated_tokens = chosen.used + fillers;
    plan
}

/// A step of the plan, before a summary is put in front.
#[derive(Debug)]
enum Piece {
    Keep(Range<usize>),
    Replace(usize, String),
}

/// What goes in, newest first, and what it costs.
#[derive(Debug, Default)]
struct Chosen {
    pieces: Vec<Piece>,
    used: u64,
}

impl Chosen {
    fn messages(&self) -> usize {
        let covers = |piece: &Piece| match piece {
            Piece::Keep(range) => range.len(),
            Piece::Replace(..) => 1,
        };
        self.pieces.iter().map(covers).sum()
    }
}

struct Fitting<'a> {
    messages: Messages<'a>,
    costs: &'a [u64],
    count: Count<'a>,
    /// Fewest tokens worth a part of an older turn or group.
    least_part: u64,
}

impl Fitting<'_> {
    fn cost(&self, range: Range<usize>) -> u64 {
        self.costs[range].iter().sum()
    }

    fn view(&self, index: usize) -> Option<&MessageView<'_>> {
        self.messages.get(index)
    }

    fn choose(&self, budget: u64, reserve: u64) -> Chosen {
        let mut chosen = Chosen::default();
        let mut end = self.messages.len();
        while end > 0 {
            let start = self.turn_start(end);
            let newest = end == self.messages.len();
            let cost = self.cost(start..end);
            // The newest turn may take the summary's room rather than lose a part; older ones may not.
            let room = if newest && cost <= budget { budget } else { budget - reserve };
            let room = room.saturating_sub(chosen.used);
            if cost > room {
                if newest || room >= self.least_part {
                    self.part_of_turn(start..end, room, newest, &mut chosen);
                }
                break;
            }
            chosen.pieces.push(Piece::Keep(start..end));
            chosen.used += cost;
            end = start;
        }
        chosen
    }

    /// The index of the user message that opens the turn before `end`; 0 when there is none.
    fn turn_start(&self, end: usize) -> usize {
        (0..end).rev().find(|i| self.view(*i).is_some_and(|m| m.role == Role::USER)).unwrap_or(0)
    }

    /// The start of the group before `end`: an assistant message with its results, or any other single message.
    fn group_start(&self, turn: usize, end: usize) -> usize {
        let result = |i: &usize| self.view(*i).is_some_and(|m| m.role == Role::TOOL_RESULT);
        (turn..end).rev().find(|i| !result(i)).unwrap_or(turn)
    }

    /// A turn's user message and its newest groups, as far as they fit.
    fn part_of_turn(&self, turn: Range<usize>, room: u64, newest: bool, chosen: &mut Chosen) {
        let asked = self.view(turn.start).filter(|m| m.role == Role::USER);
        let body = turn.start + usize::from(asked.is_some());
        let ask = asked.and_then(|view| self.ask(view, turn.clone(), room));
        if asked.is_some() && ask.is_none() && !newest {
            return;
        }
        let (ask_piece, ask_cost) = ask.unzip();
        let mut left = room - ask_cost.unwrap_or(0);
        let mut start = turn.end;
        while start > body {
            let group = self.group_start(body, start);
            let cost = self.cost(group..start);
            if cost > left {
                break;
            }
            left -= cost;
            start = group;
        }
        if start < turn.end {
            chosen.used += self.cost(start..turn.end);
            chosen.pieces.push(Piece::Keep(start..turn.end));
        }
        if start > body && (start == turn.end || left >= self.least_part) {
            self.shrink_group(self.group_start(body, start)..start, left, chosen);
        }
        chosen.used += ask_cost.unwrap_or(0);
        chosen.pieces.extend(ask_piece);
    }

    /// The turn's user message: whole when it leaves half the room to what follows, else cut.
    fn ask(&self, view: &MessageView<'_>, turn: Range<usize>, room: u64) -> Option<(Piece, u64)> {
        let cost = self.costs[turn.start];
        let last = self.group_start(turn.start + 1, turn.end).max(turn.start + 1);
        let follows = self.cost(last.min(turn.end)..turn.end);
        let most = room.saturating_sub(follows).max(room / 2);
        if cost <= most {
            return Some((Piece::Keep(turn.start..turn.start + 1), cost));
        }
        let shrunk = shrink::text(view, most, self.count).or_else(|| bare(view, most, self.count))?;
        Some((Piece::Replace(turn.start, shrunk.json), shrunk.tokens))
    }

    /// A group that does not fit whole: its results' texts are cut, each to an equal share; all stay or none.
    fn shrink_group(&self, group: Range<usize>, room: u64, chosen: &mut Chosen) {
        let Some(first) = self.view(group.start) else { return };
        let results = group.start + 1..group.end;
        let least: u64 = results.clone().filter_map(|i| self.view(i)).map(|m| shrink::least(m, self.count)).sum();
        let Some(most) = room.checked_sub(least) else { return };
        let whole = self.costs[group.start];
        let mut pieces: Vec<Piece> = Vec::with_capacity(group.len());
        let used = if whole <= most && !results.is_empty() {
            pieces.push(Piece::Keep(group.start..group.start + 1));
            whole
        } else {
            let shrunk = match first.role {
                Role::ASSISTANT => shrink::assistant(first, most, self.count),
                Role::BASH_EXECUTION => shrink::command(first, most, self.count),
                // A summary is better summarised again, with what followed it.
                Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => None,
                _ => shrink::text(first, most, self.count),
            };
            let Some(shrunk) = shrunk else { return };
            pieces.push(Piece::Replace(group.start, shrunk.json));
            shrunk.tokens
        };
        let mut by_cost: Vec<usize> = results.clone().collect();
        by_cost.sort_by_key(|i| self.costs[*i]);
        let wants: Vec<u64> = by_cost.iter().map(|i| self.costs[*i]).collect();
        let mut shares: Vec<(usize, u64)> = by_cost.into_iter().zip(shrink::shares(room - used, &wants)).collect();
        shares.sort_unstable();
        let mut total = used;
        for (index, share) in shares {
            if self.costs[index] <= share {
                pieces.push(Piece::Keep(index..index + 1));
                total += self.costs[index];
                continue;
            }
            let Some(shrunk) = self.view(index).and_then(|m| shrink::text(m, share, self.count)) else { return };
            total += shrunk.tokens;
            pieces.push(Piece::Replace(index, shrunk.json));
        }
        chosen.used += total;
        pieces.reverse();
        chosen.pieces.append(&mut pieces);
    }

    /// A summary of everything that is not chosen, in at most `room` tokens: its JSON, its sources and its cost.
    fn summarise(&self, chosen: &Chosen, room: u64) -> Option<(String, Vec<String>, u64)> {
        if room < LEAST_SUMMARY {
            return None;
        }
        let mut kept = vec![false; self.messages.len()];
        for piece in &chosen.pieces {
            match piece {
                Piece::Keep(range) => kept[range.clone()].fill(true),
                Piece::Replace(index, _) => kept[*index] = true,
            }
        }
        let rest = || self.messages.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(view, _)| view);
        let digest = Digest::read(rest(), None);
        let (summary, tokens) = write_within(&digest, room, usize::MAX, self.count)?;
        let sources = rest().map(|view| view.id.to_string()).collect();
        Some((text_message(Role::USER, &summary_text(&summary)), sources, tokens))
    }
}

/// The digest as a summary of at most `chars` characters, and what it costs as a user message ([`summary_text`]): at most
/// `room` tokens. `None` when nothing worth having fits.
pub(crate) fn write_within(digest: &Digest, room: u64, chars: usize, count: Count<'_>) -> Option<(String, u64)> {
    let mut chars = usize::try_from(room.saturating_mul(4)).unwrap_or(usize::MAX).min(chars);
    while chars > 40 {
        let summary = digest.write(chars);
        if summary.is_empty() {
            return None;
        }
        let tokens = cost::text(&summary_text(&summary), count);
        if tokens <= room {
            return Some((summary, tokens));
        }
        let scaled = (chars as u64).saturating_mul(room) / tokens.max(1);
        chars = usize::try_from(scaled).unwrap_or(chars).min(chars - chars.div_ceil(20));
    }
    None
}

/// The last form of a user message: one text, whatever it held.
fn bare(view: &MessageView<'_>, max: u64, count: Count<'_>) -> Option<shrink::Shrunk> {
    let texts = view.blocks.iter().map(|b| b.text.as_str()).filter(|text| !text.trim().is_empty());
    let all = texts.collect::<Vec<_>>().join("\n");
    let all = if all.is_empty() { "[content left out: it did not fit]" } else { all.as_str() };
    let room = max.checked_sub(cost::text("", count))?;
    let cut = cut::cut_to_tokens(all, room, view.id.as_str(), count);
    let cut = if cut.is_empty() { "…" } else { cut.as_str() };
    Some(shrink::Shrunk { json: text_message(Role::USER, cut), tokens: cost::text(cut, count) })
}
