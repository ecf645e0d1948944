//! The engine to copy: keeps the newest whole turns that fit, and has the runtime do its compaction.
//!
//! It keeps no state: every prompt is planned from the history it is given, newest turn first. When not even the newest
//! turn fits, the message that opened it stays, with as many of the turn's newest call/result groups as there is room for.
#![forbid(unsafe_code)]

use std::ops::Range;

use context_engine_interface::std_types::ROption;
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    EngineHost, IngestParams, IngestResult, MessageView, Messages, Role, Span, export_engine, opens_turn,
    shorten_message,
};

/// Tokens a shortened message may cost beside its text: its frame, its ids.
const FRAME: u64 = 48;

struct SlidingWindow {
    host: EngineHost,
}

impl ContextEngine for SlidingWindow {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(SlidingWindow { host: ctx.host().clone() })
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let messages = params.messages();
        let ROption::RSome(budget) = params.token_budget() else { return Ok(keep(0..messages.len())) };
        if let Some(window) = newest_fitting(messages.turns_rev(), budget) {
            return Ok(keep(window));
        }
        match messages.turns_rev().next() {
            Some(newest) => Ok(self.part_of_turn(messages, newest.range, budget)),
            None => Ok(Assembly::new()),
        }
    }

    /// Not this engine's business: the runtime summarises older history, as the built-in engine would.
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

impl SlidingWindow {
    /// The message that opened the turn, shortened if it takes more than half of the budget, and the newest groups.
    fn part_of_turn(&self, messages: Messages<'_>, turn: Range<usize>, budget: u64) -> Assembly {
        let mut plan = Assembly::new();
        let mut left = budget;
        let mut rest = turn.clone();
        if let Some(opening) = messages.get(turn.start).filter(|message| opens_turn(message)) {
            left -= self.keep_or_shorten(&mut plan, turn.start, opening, budget / 2);
            rest.start += 1;
        }
        let groups = || messages.groups_rev().take_while(|group| group.range.start >= rest.start);
        match (newest_fitting(groups(), left), groups().next()) {
            (Some(window), _) => _ = plan.keep(window),
            (None, Some(newest)) => self.shorten_group(&mut plan, messages, &newest, left),
            (None, None) => {}
        }
        plan
    }

    /// A group that is too big alone: its call as it is, its results shortened to equal shares of what is left.
    fn shorten_group(&self, plan: &mut Assembly, messages: Messages<'_>, group: &Span, mut left: u64) {
        let mut results = group.range.len() as u64;
        for index in group.range.clone() {
            let Some(message) = messages.get(index) else { continue };
            let limit = if message.role == Role::TOOL_RESULT { left / results.max(1) } else { left };
            left = left.saturating_sub(self.keep_or_shorten(plan, index, message, limit));
            results -= 1;
        }
    }

    /// Keeps the message when it costs no more than `limit`, else sends it shortened; returns what it costs at most.
    fn keep_or_shorten(&self, plan: &mut Assembly, index: usize, message: &MessageView<'_>, limit: u64) -> u64 {
        if message.tokens <= limit {
            plan.keep(index..index + 1);
            return message.tokens;
        }
        let count = |text: &str| self.host.count_tokens(text);
        let short = shorten_message(message, limit.saturating_sub(FRAME), count);
        plan.replace(index, short, vec![message.id.to_string()]);
        limit
    }
}

fn keep(range: Range<usize>) -> Assembly {
    let mut plan = Assembly::new();
    plan.keep(range);
    plan
}

/// The run of newest spans that costs at most `budget`; `None` when not even the newest does.
fn newest_fitting(spans: impl Iterator<Item = Span>, budget: u64) -> Option<Range<usize>> {
    let mut used = 0;
    let mut window: Option<Range<usize>> = None;
    for span in spans {
        used += span.tokens;
        if used > budget {
            break;
        }
        window = Some(span.range.start..window.map_or(span.range.end, |window| window.end));
    }
    window
}

export_engine! {
    engine: SlidingWindow,
    id: "sliding-window",
    name: "Sliding window",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
