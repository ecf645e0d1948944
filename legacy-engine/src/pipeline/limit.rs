//! A channel's history limit, counted in user turns.
//!
//! Decision: with hysteresis. Dropping one turn per new turn changes the start of every prompt and with it the
//! provider's cache; dropping a batch now and then keeps the start the same in between. Source: contract §4.3.

use std::sync::Arc;

use context_engine_interface::Role;
use context_engine_transcript::Message;
use serde::Serialize;

/// What [`limit`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LimitReport {
    /// User turns left out.
    pub turns: usize,
    /// Messages left out with them.
    pub messages: usize,
}

/// Keeps between `limit` and `ceil(1.5 * limit)` of the newest user turns; `None` or 0 keeps everything.
///
/// Messages before the first user or assistant message, such as a compaction's summary, always stay. Pairs must be whole
/// and in place already: the cut is at a user message and would part a call from a result beyond it.
pub fn limit(messages: Vec<Arc<Message>>, limit: Option<usize>) -> (Vec<Arc<Message>>, LimitReport) {
    let mut report = LimitReport::default();
    let Some(limit) = limit.filter(|limit| *limit > 0) else { return (messages, report) };
    let turns: Vec<usize> = (0..messages.len()).filter(|i| messages[*i].role == Role::USER).collect();
    let most = limit.saturating_add(limit.div_ceil(2));
    if turns.len() <= most {
        return (messages, report);
    }
    let keep = limit + (turns.len() - limit) % (most - limit + 1);
    let cut = turns[turns.len() - keep];
    let speaks = |m: &Arc<Message>| m.role == Role::USER || m.role == Role::ASSISTANT;
    let prelude = messages.iter().position(speaks).unwrap_or(0);
    report.turns = turns.len() - keep;
    report.messages = cut - prelude;
    let mut out = Vec::with_capacity(messages.len() - report.messages);
    out.extend_from_slice(&messages[..prelude]);
    out.extend_from_slice(&messages[cut..]);
    (out, report)
}
