//! The healthy plan, and wrong ones.

use context_engine_interface::std_types::{RString, RVec};
use context_engine_interface::{AssembleParams, Assembly, Role, Segment, SegmentKind, Span, text_message};

/// Keeps the newest turns that fit; of a turn that is too long, the newest groups.
pub(crate) fn healthy(params: AssembleParams<'_>) -> Assembly {
    let messages = params.messages();
    let budget = params.token_budget().unwrap_or(u64::MAX);
    let window = newest(messages.turns_rev(), budget).or_else(|| newest(messages.groups_rev(), budget));
    let mut plan = Assembly::new();
    if let Some(Span { range, tokens }) = window {
        plan.keep(range);
        plan.estimated_tokens = tokens;
    }
    plan
}

/// The newest spans that cost at most `budget`, as one; `None` when not even the newest does.
fn newest(spans: impl Iterator<Item = Span>, budget: u64) -> Option<Span> {
    let mut window: Option<Span> = None;
    for span in spans {
        let (end, used) = window.as_ref().map_or((span.range.end, 0), |window| (window.range.end, window.tokens));
        if used + span.tokens > budget {
            break;
        }
        window = Some(Span { range: span.range.start..end, tokens: used + span.tokens });
    }
    window
}

/// The wrong plan called `what`, if that is one.
pub(crate) fn wrong(what: &str, params: AssembleParams<'_>) -> Option<Assembly> {
    let all = params.messages().len();
    let mut plan = Assembly::new();
    let orphan = r#"{"role":"assistant","content":[{"type":"toolCall","id":"nobody","name":"read","arguments":{}}]}"#;
    match what {
        "overlap" => plan.segments = vec![keep(0, all), keep(0, 1)].into(),
        "past-end" => plan.segments = vec![keep(all, 1)].into(),
        "no-json" => _ = plan.keep(0..all).insert("{\"role\":", vec![]),
        "empty" => {}
        "unknown-step" => plan.segments = vec![keep(0, all), Segment { kind: SegmentKind(99), ..keep(0, 1) }].into(),
        "over-budget" => {
            let words = "and so on ".repeat(params.token_budget().unwrap_or(0) as usize);
            plan.insert(text_message(Role::USER, &words), vec![]).keep(0..all);
        }
        "lies-about-tokens" => {
            plan = healthy(params);
            plan.estimated_tokens = u64::MAX;
        }
        "orphan-call" => _ = plan.insert(orphan, vec![]).keep(0..all),
        _ => return None,
    }
    Some(plan)
}

fn keep(start: usize, len: usize) -> Segment {
    Segment {
        kind: SegmentKind::KEEP,
        start: start as u32,
        len: len as u32,
        message_json: RString::new(),
        source_ids: RVec::new(),
        extra_json: RString::new(),
    }
}
