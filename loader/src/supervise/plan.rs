//! From an engine's plan to messages, checked before it is believed.

use std::ops::Range;
use std::sync::Arc;

use context_engine_interface::{Assembly, MessageFlags, Segment, SegmentKind};
use context_engine_legacy::pipeline;
use context_engine_transcript::Message;
use serde_json::Value;

use super::PreparedHistory;

/// Why a plan is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("step {step} of the plan has kind {kind}, which this host does not know")]
    Kind { step: usize, kind: u32 },
    #[error(
        "step {step} of the plan takes message {start}, expected one from {next} to {last}: indices ascend and never overlap"
    )]
    Order { step: usize, start: u64, next: u64, last: u64 },
    #[error("step {step} of the plan keeps {len} messages from {start}, the history has {known}")]
    Range { step: usize, start: u64, len: u64, known: u64 },
    #[error("step {step} of the plan holds no message: {reason}")]
    Message { step: usize, reason: String },
    #[error("the plan has {steps} steps for a history of {known} messages; expected at most {limit}")]
    Steps { steps: usize, known: usize, limit: usize },
    #[error("the plan brings {bytes} bytes of its own for a budget of {budget} tokens; expected at most {limit}")]
    Size { bytes: usize, budget: u64, limit: u64 },
    #[error("the plan sends nothing of a history of {known} messages")]
    Empty { known: usize },
    #[error("the system prompt addition takes {tokens} of {budget} tokens and leaves no room for messages")]
    Addition { tokens: u64, budget: u64 },
}

/// More bytes than any text of so many tokens has, and room for a picture: what is longer can only be cut away again, and
/// counting it would take the host longer than the engine may take.
fn size_limit(budget: u64) -> u64 {
    budget.saturating_mul(128).saturating_add(4 << 20)
}

/// Refuses a plan that is out of all proportion, before any work is done on it.
pub(super) fn check_size(plan: &Assembly, known: usize, budget: u64) -> Result<(), PlanError> {
    let (steps, limit) = (plan.segments.len(), known * 2 + 10_000);
    if steps > limit {
        return Err(PlanError::Steps { steps, known, limit });
    }
    let addition = plan.system_prompt_addition.as_ref().map_or(0, |text| text.len());
    let bytes = plan.segments.iter().map(|segment| segment.message_json.len()).fold(addition, usize::saturating_add);
    let limit = size_limit(budget);
    if bytes as u64 > limit { Err(PlanError::Size { bytes, budget, limit }) } else { Ok(()) }
}

/// What a plan came to.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) kept: usize,
    pub(super) replaced: usize,
    pub(super) inserted: usize,
    /// Messages that inserted ones were made from.
    pub(super) summarised: usize,
}

/// The messages of a history of `known` that step `step` takes, when `next` is the first that no step before has taken;
/// `None` for one that takes none. The one rule of order: who applies a plan and who only probes an engine ask the same.
pub(crate) fn takes(step: usize, segment: &Segment, next: u64, known: u64) -> Result<Option<Range<u64>>, PlanError> {
    let (start, len) = (u64::from(segment.start), u64::from(segment.len));
    let end = match segment.kind {
        SegmentKind::INSERT => return Ok(None),
        SegmentKind::KEEP => start + len,
        SegmentKind::REPLACE => start + 1,
        SegmentKind(kind) => return Err(PlanError::Kind { step, kind }),
    };
    if start < next || start >= known {
        return Err(PlanError::Order { step, start, next, last: known.saturating_sub(1) });
    }
    if end > known { Err(PlanError::Range { step, start, len, known }) } else { Ok(Some(start..end)) }
}

/// The messages `plan` makes of `history`.
pub(super) fn apply(plan: &Assembly, history: &PreparedHistory) -> Result<Applied, PlanError> {
    let known = history.len() as u64;
    let mut applied = Applied::default();
    let mut next = 0;
    for (step, segment) in plan.segments.iter().enumerate() {
        let Some(taken) = takes(step, segment, next, known)? else {
            applied.inserted += 1;
            applied.summarised += segment.source_ids.len();
            let id = format!("inserted-{}", applied.inserted);
            applied.messages.push(message(step, id, segment)?);
            continue;
        };
        next = taken.end;
        let taken = history.range(taken.start as usize..taken.end as usize);
        if segment.kind == SegmentKind::REPLACE {
            let replaced = taken.map(|message| message.id.clone()).next().unwrap_or_default();
            applied.messages.push(message(step, replaced, segment)?);
            applied.replaced += 1;
            continue;
        }
        let before = applied.messages.len();
        applied.messages.extend(taken.cloned());
        applied.kept += applied.messages.len() - before;
    }
    if applied.messages.is_empty() && !history.is_empty() {
        return Err(PlanError::Empty { known: history.len() });
    }
    // It may name what it likes as its sources; no more than what is left out can stand behind a summary.
    applied.summarised = applied.summarised.min(history.len() - applied.kept);
    Ok(applied)
}

fn message(step: usize, id: String, segment: &Segment) -> Result<Arc<Message>, PlanError> {
    let refuse = |reason: String| PlanError::Message { step, reason };
    let map = match serde_json::from_str(&segment.message_json) {
        Ok(Value::Object(map)) => map,
        Ok(_) => return Err(refuse("its JSON is no object".into())),
        Err(error) => return Err(refuse(error.to_string())),
    };
    let message = Message::from_map(id, map).map_err(|error| refuse(error.to_string()))?;
    // What an engine writes is no better than what was recorded: it goes through the same first stage.
    let (clean, _) = pipeline::sanitize(vec![Arc::new(message)], None);
    let Some(message) = clean.into_iter().next() else { return Err(refuse("nothing of it can be sent".into())) };
    let mut message = Arc::unwrap_or_clone(message);
    if segment.kind == SegmentKind::INSERT {
        message.flags = message.flags.with(MessageFlags::SYNTHETIC);
    }
    Ok(Arc::new(message))
}

#[cfg(test)]
mod tests {
    use context_engine_transcript::TokenCounter;

    use super::*;

    fn history(n: usize) -> PreparedHistory {
        let message = |i| {
            let map = serde_json::json!({"role": "user", "content": format!("m{i}")});
            let Value::Object(map) = map else { panic!("an object") };
            Arc::new(Message::from_map(format!("e{i}"), map).expect("a message"))
        };
        PreparedHistory::new((0..n).map(message).collect(), &TokenCounter::for_model(None))
    }

    #[track_caller]
    fn check(plan: &Assembly, expected: &str) {
        let outcome = match apply(plan, &history(4)) {
            Ok(applied) => applied.messages.iter().map(|m| m.text()).collect::<Vec<_>>().join(" "),
            Err(error) => format!("refused: {error}"),
        };
        assert_eq!(outcome, expected);
    }

    fn keep(ranges: &[(u32, u32)]) -> Assembly {
        let mut plan = Assembly::new();
        for &(start, len) in ranges {
            plan.segments.push(Segment {
                kind: SegmentKind::KEEP,
                start,
                len,
                message_json: Default::default(),
                source_ids: Default::default(),
                extra_json: Default::default(),
            });
        }
        plan
    }

    #[test]
    fn keeps_replaces_and_inserts_in_the_order_of_the_plan() {
        let mut plan = Assembly::new();
        plan.insert(r#"{"role":"user","content":"sum"}"#, vec!["e0".into()]);
        plan.replace(1, r#"{"role":"user","content":"short"}"#, vec!["e1".into()]).keep(2..3).keep(3..4);
        check(&plan, "sum short m2 m3");
    }

    #[test]
    fn a_plan_out_of_all_proportion_is_refused_before_it_is_read() {
        let mut plan = Assembly::new();
        plan.insert("x".repeat(5 << 20), vec![]);
        assert_eq!(
            check_size(&plan, 4, 1_000).expect_err("refused").to_string(),
            "the plan brings 5242880 bytes of its own for a budget of 1000 tokens; expected at most 4322304"
        );
        assert_eq!(check_size(&plan, 4, 100_000), Ok(()));
        let steps = keep(&[(0, 0); 10_009]);
        assert_eq!(
            check_size(&steps, 4, 1_000).expect_err("refused").to_string(),
            "the plan has 10009 steps for a history of 4 messages; expected at most 10008"
        );
    }

    #[test]
    fn no_more_can_be_summarised_than_is_left_out() {
        let mut plan = Assembly::new();
        plan.insert(r#"{"role":"user","content":"sum"}"#, vec!["made up".into(); 100]).keep(3..4);
        assert_eq!(apply(&plan, &history(4)).expect("applied").summarised, 3);
    }

    #[test]
    fn a_plan_that_lies_is_refused_whole() {
        check(
            &keep(&[(0, 2), (1, 1)]),
            "refused: step 1 of the plan takes message 1, expected one from 2 to 3: indices ascend and never overlap",
        );
        check(
            &keep(&[(4, 1)]),
            "refused: step 0 of the plan takes message 4, expected one from 0 to 3: indices ascend and never overlap",
        );
        check(&keep(&[(3, 2)]), "refused: step 0 of the plan keeps 2 messages from 3, the history has 4");
        check(
            &keep(&[(1, u32::MAX)]),
            "refused: step 0 of the plan keeps 4294967295 messages from 1, the history has 4",
        );
        check(&Assembly::new(), "refused: the plan sends nothing of a history of 4 messages");
        let mut plan = Assembly::new();
        plan.insert("{\"role\":", vec![]);
        check(&plan, "refused: step 0 of the plan holds no message: EOF while parsing a value at line 1 column 8");
        let mut plan = keep(&[(0, 1)]);
        plan.segments[0].kind = SegmentKind(9);
        check(&plan, "refused: step 0 of the plan has kind 9, which this host does not know");
    }
}
