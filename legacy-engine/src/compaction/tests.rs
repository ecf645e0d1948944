//! Cuts and what is cut off.

use std::sync::Arc;

use context_engine_interface::ViewChunks;
use context_engine_transcript::Message;
use proptest::prelude::*;

use super::*;
use crate::notation::parse;
use crate::pipeline::{self, PipelineOptions};

fn by_four(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

fn run(transcript: &str) -> Vec<Arc<Message>> {
    pipeline::run(parse(transcript), &PipelineOptions::default()).0
}

fn cut(messages: &[Arc<Message>], keep: u64) -> Option<CutPoint> {
    let chunks = ViewChunks::build(messages);
    cut_point(chunks.index().messages(), keep, &by_four)
}

fn compact_with(messages: &[Arc<Message>], budget: u64, keep: u64, previous: Option<&str>) -> CompactionOutcome {
    let chunks = ViewChunks::build(messages);
    let options = CompactionOptions { usable_budget: budget, keep_recent: Some(keep), previous_summary: previous };
    compact(chunks.index().messages(), &options, &by_four)
}

fn compacted(outcome: CompactionOutcome) -> (String, String) {
    match outcome {
        CompactionOutcome::Compacted { summary, first_kept_entry_id, tokens_before, tokens_after, .. } => {
            assert!(tokens_after < tokens_before, "{tokens_after} of {tokens_before}");
            (summary, first_kept_entry_id)
        }
        CompactionOutcome::NothingToDo { reason, .. } => panic!("nothing was done: {reason}"),
    }
}

const A1: &str = r#"U "one, please"
    A <c1:read>
    R c1:read "out "*1000
    A "done"
    U "two, please"
    A "ok""#;

#[test]
fn a1_the_kept_tail_never_starts_with_a_result() {
    let messages = run(A1);
    let total: u64 = 1_100;
    let starts: std::collections::BTreeSet<usize> =
        (0..=total).filter_map(|keep| cut(&messages, keep)).map(|cut| cut.first_kept).collect();
    assert_eq!(starts.into_iter().collect::<Vec<_>>(), [1, 4]);
}

#[test]
fn a6_the_same_id_in_two_turns_is_cut_between_them() {
    let messages = run(r#"U "one, please"
        A <call_0:read {"path":"a.rs"}>
        R call_0:read "AAA "*100
        U "two, please, go on"
        A <call_0:exec>
        R call_0:exec "BBB "*100"#);
    let (summary, first) = compacted(compact_with(&messages, 2_000, 140, None));
    assert_eq!(first, "e4");
    assert!(summary.contains("## Files read\n- a.rs"), "{summary}");
}

#[test]
fn a8_keep_nothing_still_keeps_a_prompt_that_can_be_sent() {
    let calls: String =
        (0..10).map(|n| format!("A <c{n}:read {{\"path\":\"f{n}.rs\"}}>\nR c{n}:read \"out \"*50\n")).collect();
    let messages = run(&format!("U \"one, please\"\n{calls}A \"partial\""));
    let (summary, first) = compacted(compact_with(&messages, 4_000, 0, None));
    assert_eq!(first, "e20");
    assert!(summary.contains("## Pending user asks\n- one, please"), "{summary}");
    let (prompt, _) = pipeline::render(&messages[19..]);
    assert_eq!(prompt.last().map(|m| m.text()), Some(pipeline::CONTINUE.to_owned()));
}

#[test]
fn c4_a_huge_result_is_cut_off_rather_than_kept() {
    let messages = run("U \"one, please\"\nA <c1:read>\nR c1:read \"out \"*100000\nA \"done\"");
    let cut = cut(&messages, 2_000).expect("a cut");
    assert_eq!((cut.first_kept, cut.splits_turn), (3, true));
}

#[test]
fn c6_nothing_said_is_no_summary() {
    let messages = run("Uh \"heartbeat?\"\nA [t/S1] <c1:x>\nR c1:x \"1\"\nU \"now?\"\nA \"yes\"");
    let outcome = compact_with(&messages[..0], 4_000, 0, None);
    assert!(matches!(outcome, CompactionOutcome::NothingToDo { tokens: 0, .. }));
    let summary_only = run("K \"all that was\"\nU \"now?\"");
    let outcome = compact_with(&summary_only, 4_000, 1, Some("earlier"));
    let CompactionOutcome::NothingToDo { reason, .. } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("nothing to compact"), "{reason}");
}

#[test]
fn c10_a_compaction_that_gains_nothing_says_so() {
    let messages = run("U \"hi\"\nA \"ho\"\nU \"and now?\"\nA \"fine\"");
    let outcome = compact_with(&messages, 4_000, 5, None);
    assert!(matches!(outcome, CompactionOutcome::NothingToDo { .. }), "{outcome:?}");
    let again: CompactResult = outcome.into();
    assert!(again.ok && !again.compacted);
}

#[test]
fn c12_rules_the_person_set_survive_three_compactions() {
    let mut summary: Option<String> = None;
    for n in 0..3 {
        let first = if n == 0 { "Never push to main, whatever happens." } else { "Go on, please, with the next file." };
        let reads: String = (0..8).map(|c| format!("A <c{c}:read>\nR c{c}:read \"out \"*200\n")).collect();
        let messages = run(&format!("U \"{first}\"\n{reads}A \"ok\"\nU \"next\"\nA \"ok\""));
        summary = Some(compacted(compact_with(&messages, 20_000, 20, summary.as_deref())).0);
    }
    let summary = summary.expect("a summary");
    assert!(summary.contains("- Never push to main, whatever happens."), "{summary}");
}

#[test]
fn c14_the_one_question_of_a_long_tool_loop_stays_to_the_letter() {
    let calls: String = (0..40).map(|n| format!("A <c{n}:read>\nR c{n}:read \"out \"*1000\n")).collect();
    let question = "Find every caller of `acquire` in src/net and tell me which of them may hold the lock twice.";
    let messages = run(&format!("U \"{question}\"\n{calls}"));
    let (summary, _) = compacted(compact_with(&messages, 20_000, keep_recent(20_000), None));
    assert!(summary.contains(&format!("## Pending user asks\n- {question}")), "{summary}");
}

#[test]
fn an_earlier_summary_at_the_start_is_merged() {
    let messages = run(&format!("K \"## Decisions\\n- We use port 8443\"\n{A1}"));
    let (summary, _) = compacted(compact_with(&messages, 20_000, 20, None));
    assert!(summary.contains("- We use port 8443"), "{summary}");
}

#[test]
fn half_the_budget_is_kept_at_most() {
    assert_eq!((keep_recent(200_000), keep_recent(16_000), keep_recent(0)), (20_000, 8_000, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a1_pairs_are_whole_on_both_sides_of_any_cut(history in pipeline::properties::history(), keep in 0..200_u64) {
        let messages = run(&history);
        if let Some(cut) = cut(&messages, keep) {
            prop_assert!(cut.first_kept > 0 && cut.first_kept < messages.len());
            pipeline::properties::pairs_are_whole(&messages[..cut.first_kept])?;
            pipeline::properties::pairs_are_whole(&messages[cut.first_kept..])?;
        }
        match compact_with(&messages, 2 * keep + 400, keep, None) {
            CompactionOutcome::Compacted { summary, tokens_before, tokens_after, .. } => {
                prop_assert!(!summary.trim().is_empty() && tokens_after < tokens_before);
            }
            CompactionOutcome::NothingToDo { reason, .. } => prop_assert!(!reason.is_empty()),
        }
    }
}
