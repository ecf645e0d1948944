//! Compaction without a model: where to cut, and what stands for what was cut off.
//!
//! Decision: pure functions; who calls them writes. The cut falls at a turn's start or at a reply with calls, so no result
//! is ever kept without its call (public report A1), and a compaction that would gain nothing says so instead of doing it
//! (C1, C10). Source: contract §7.4.

use context_engine_interface::std_types::{ROption, RString};
use context_engine_interface::{BlockKind, CompactResult, MessageView, Messages, Role};

use crate::fit::{count_message, write_within};
use crate::summary::Digest;

/// Tokens of recent history that are kept, where the budget is large enough (contract §7.3).
pub const KEEP_RECENT_TOKENS: u64 = 20_000;
/// Longest summary that is recorded, in characters (contract §7.4).
pub const MAX_SUMMARY_CHARS: usize = 16_000;
/// Tokens by which a good cut may keep more than twice what was asked for.
const SLACK: u64 = 1_000;
/// Share of the budget a summary may take, in percent.
const SUMMARY_PERCENT: u64 = 15;

/// How far a compaction goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionOptions<'a> {
    /// What messages may cost in a prompt, in tokens.
    pub usable_budget: u64,
    /// Tokens of recent history to keep; `None` for [`keep_recent`] of the budget.
    pub keep_recent: Option<u64>,
    /// A summary of what came before `messages`, if they do not begin with it themselves.
    pub previous_summary: Option<&'a str>,
}

/// Where the history is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPoint {
    /// Index of the first message that is kept.
    pub first_kept: usize,
    /// What the kept messages cost, in tokens.
    pub tokens_kept: u64,
    /// Whether the message at the cut opens no turn: the turn's question goes into the summary.
    pub splits_turn: bool,
}

/// What became of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// History stays as it is.
    NothingToDo {
        /// Why, in the words of contract §7.8.
        reason: &'static str,
        /// What the history costs, in tokens.
        tokens: u64,
    },
    /// History before `first_kept_entry_id` is to be replaced by `summary`.
    Compacted {
        /// Never blank (public report C6).
        summary: String,
        /// Entry id of the first message that is kept.
        first_kept_entry_id: String,
        /// What the history cost, in tokens.
        tokens_before: u64,
        /// What summary and kept messages cost; always less than `tokens_before`.
        tokens_after: u64,
        /// How many messages the summary stands for.
        summarised: usize,
    },
}

impl From<CompactionOutcome> for CompactResult {
    fn from(outcome: CompactionOutcome) -> CompactResult {
        match outcome {
            CompactionOutcome::NothingToDo { reason, tokens } => CompactResult::nothing_to_do(reason, tokens),
            CompactionOutcome::Compacted { summary, first_kept_entry_id, tokens_before, tokens_after, .. } => {
                CompactResult {
                    ok: true,
                    compacted: true,
                    summary: ROption::RSome(RString::from(summary)),
                    first_kept_entry_id: ROption::RSome(RString::from(first_kept_entry_id)),
                    tokens_before,
                    tokens_after: ROption::RSome(tokens_after),
                    ..CompactResult::default()
                }
            }
        }
    }
}

/// Tokens of recent history to keep under a budget: [`KEEP_RECENT_TOKENS`], at most half of it.
pub fn keep_recent(usable_budget: u64) -> u64 {
    KEEP_RECENT_TOKENS.min(usable_budget / 2)
}

/// Where to cut so that about `keep` tokens stay; `None` when everything would.
///
/// Walks back from the end until `keep` tokens are passed. The cut is the next turn start or reply with calls from there
/// on; where there is none, the one before, if that does not keep far more than twice as much; else the next message that is no tool
/// result. The last message is always kept.
pub fn cut_point(messages: Messages<'_>, keep: u64, count: &dyn Fn(&str) -> u64) -> Option<CutPoint> {
    let costs: Vec<u64> = messages.iter().map(|view| count_message(view, count)).collect();
    cut_at(messages, &costs, keep)
}

fn cut_at(messages: Messages<'_>, costs: &[u64], keep: u64) -> Option<CutPoint> {
    let mut tokens = 0;
    let passed = (0..costs.len()).rev().find(|i| {
        tokens += costs[*i];
        tokens >= keep
    })?;
    let view = |i: usize| messages.get(i);
    let good = |i: &usize| view(*i).is_some_and(is_good_cut);
    let whole = |i: &usize| view(*i).is_some_and(|m| m.role != Role::TOOL_RESULT);
    let kept = |i: usize| costs[i..].iter().sum::<u64>();
    let after = (passed..costs.len()).find(good);
    let before = || (0..passed).rev().find(good).filter(|i| kept(*i) <= keep.saturating_mul(2).saturating_add(SLACK));
    let last_resort = || (passed..costs.len()).find(whole).or_else(|| (0..passed).rev().find(whole));
    let first_kept = after.or_else(before).or_else(last_resort).filter(|cut| *cut > 0)?;
    let splits_turn = view(first_kept).is_some_and(|m| m.role == Role::ASSISTANT);
    Some(CutPoint { first_kept, tokens_kept: kept(first_kept), splits_turn })
}

/// A turn's start, or a reply whose calls and results follow it.
fn is_good_cut(message: &MessageView<'_>) -> bool {
    match message.role {
        Role::TOOL_RESULT => false,
        Role::ASSISTANT => message.blocks.iter().any(|block| block.kind == BlockKind::TOOL_CALL),
        _ => true,
    }
}

/// Cuts the history and summarises what is cut off, with the earlier summary merged in.
///
/// `messages` is the pipeline's view of the history, pairs whole; `count` counts text as the messages' own counts were
/// made. The summary is made by extraction ([`crate::summary`]); a caller with a model may use [`cut_point`] and its own.
pub fn compact(
    messages: Messages<'_>,
    options: &CompactionOptions<'_>,
    count: &dyn Fn(&str) -> u64,
) -> CompactionOutcome {
    let costs: Vec<u64> = messages.iter().map(|view| count_message(view, count)).collect();
    let tokens: u64 = costs.iter().sum();
    let nothing = |reason| CompactionOutcome::NothingToDo { reason, tokens };
    let keep = options.keep_recent.unwrap_or_else(|| keep_recent(options.usable_budget));
    let Some(cut) = cut_at(messages, &costs, keep) else {
        return nothing("nothing to compact: all of the history is recent");
    };
    let cut_off = || messages.iter().take(cut.first_kept);
    if cut_off().all(|message| message.role == Role::COMPACTION_SUMMARY) {
        return nothing("nothing to compact: all before the recent messages is summarised already");
    }
    let digest = Digest::read(cut_off(), options.previous_summary);
    if digest.is_empty() {
        return nothing("no real conversation messages before the recent ones");
    }
    let cost_off = tokens - cut.tokens_kept;
    // A summary that is nearly as long as what it replaces loses words and gains nothing.
    let room = (options.usable_budget * SUMMARY_PERCENT / 100).min(cost_off * 3 / 4);
    let Some((summary, cost)) = write_within(&digest, room, MAX_SUMMARY_CHARS, count) else {
        return nothing("already under target: a summary would be as long as what it replaces");
    };
    let Some(first) = messages.get(cut.first_kept) else { return nothing("nothing to compact") };
    CompactionOutcome::Compacted {
        summary,
        first_kept_entry_id: first.id.to_string(),
        tokens_before: tokens,
        tokens_after: cost + cut.tokens_kept,
        summarised: cut.first_kept,
    }
}

#[cfg(test)]
mod tests;
