//! Histories and budgets in, prompts out.

use std::sync::Arc;

use context_engine_interface::{BlockFlags, BlockKind, SegmentKind, ViewChunks};
use context_engine_transcript::{Encoding, Message, TokenCounter};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::notation::{normal, parse, print};
use crate::pipeline::{self, PipelineOptions, properties};

fn by_four(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

fn plan(messages: &[Arc<Message>], budget: u64, count: Count<'_>) -> Assembly {
    let chunks = ViewChunks::build(messages);
    fit(chunks.index().messages(), budget, count)
}

/// The messages a host makes of a plan.
fn apply(messages: &[Arc<Message>], plan: &Assembly) -> Vec<Arc<Message>> {
    let mut out = Vec::new();
    let mut next = 0;
    for segment in &plan.segments {
        let (start, len) = (segment.start as usize, segment.len as usize);
        if segment.kind != SegmentKind::INSERT {
            assert!(start >= next && start + len <= messages.len(), "indices ascend: {plan:?}");
            next = start + len;
        }
        if segment.kind == SegmentKind::KEEP {
            out.extend_from_slice(&messages[start..start + len]);
            continue;
        }
        assert!(!segment.source_ids.is_empty());
        let Ok(Value::Object(map)) = serde_json::from_str(&segment.message_json) else { panic!("no object") };
        let id = if segment.kind == SegmentKind::REPLACE { messages[start].id.as_str() } else { "made" };
        out.push(Arc::new(Message::from_map(id, map).expect("a message")));
    }
    out
}

/// What the rendered prompt costs, counted afresh.
fn cost_of(messages: &[Arc<Message>], count: Count<'_>) -> u64 {
    let fresh: Vec<Arc<Message>> = pipeline::render(messages).0;
    let fresh: Vec<Arc<Message>> = fresh
        .iter()
        .map(|m| {
            let mut m = Message::clone(m);
            m.tokens = 0;
            Arc::new(m)
        })
        .collect();
    let chunks = ViewChunks::build(&fresh);
    chunks.index().messages().iter().map(|view| cost::message(view, count)).sum()
}

fn fitted(transcript: &str, budget: u64) -> Vec<Arc<Message>> {
    let messages = pipeline::run(parse(transcript), &PipelineOptions::default()).0;
    let plan = plan(&messages, budget, &by_four);
    let out = apply(&messages, &plan);
    assert!(plan.estimated_tokens <= budget, "{} of {budget}", plan.estimated_tokens);
    assert!(cost_of(&out, &by_four) <= budget, "{} of {budget}", cost_of(&out, &by_four));
    out
}

/// The prompt without its first message, which must be the summary.
fn behind_summary(messages: &[Arc<Message>]) -> &[Arc<Message>] {
    assert!(messages[0].text().starts_with("The conversation history before this point"), "{}", print(messages));
    &messages[1..]
}

#[test]
fn older_turns_stay_whole_while_they_fit_and_the_rest_is_summarised() {
    let turns: String = (0..50).map(|n| format!("U \"ask {n} about src/f{n}.rs\"\nA \"answer {n} \"*20\n")).collect();
    let out = fitted(&turns, 1_000);
    let kept = behind_summary(&out);
    assert_eq!((kept.len() % 2, kept[0].id.as_str()), (0, format!("e{}", 101 - kept.len()).as_str()));
    assert!(kept.len() >= 14, "{}", kept.len());
    assert!(out[0].text().contains("src/f36.rs"), "{}", out[0].text());
}

#[test]
fn c4_a_result_larger_than_the_window_is_cut_and_its_pair_stays() {
    let out = fitted(
        r#"U "one"
           A <c1:read>
           R c1:read "start of it; " "x"*480000 "; end of it"
           U "two, whole""#,
        16_000,
    );
    let [one, call, result, two] = out.as_slice() else { panic!("{}", print(&out)) };
    assert_eq!(print(&[one.clone(), call.clone(), two.clone()]), normal("U \"one\"\nA <c1:read>\nU \"two, whole\""));
    assert_eq!((result.blocks[0].text.as_str(), result.blocks[2].text.as_str()), ("start of it; ", "; end of it"));
    assert!(result.blocks[1].text.contains("of 480000 characters left out; the whole text is in transcript entry e3"));
    assert!(cost_of(&out, &by_four) > 14_000, "the room is used");
}

#[test]
fn c4_the_newest_group_is_cut_when_it_alone_is_too_large() {
    let out = fitted("U \"one\"\nA <c0:ls>\nR c0:ls \"a \"*900\nA <c1:read>\nR c1:read \"b \"*90000", 2_000);
    assert!(print(&out).contains("U \"one\"\nA <c1:read>\nR c1:read \"b b"), "{}", print(&out));
}

#[test]
fn a10_signed_thinking_is_whole_or_absent() {
    let signed = ["thinking"; 8].join("-");
    let history = format!("U \"one\"\nA [unsigned] [{signed}/S1] \"text\" <c1:read>\nR c1:read \"out \"*2000");
    for budget in (MIN_BUDGET..3_000).step_by(7) {
        for message in fitted(&history, budget) {
            for block in message.blocks.iter().filter(|b| b.kind == BlockKind::THINKING) {
                assert!(block.flags.contains(BlockFlags::SIGNED));
                assert_eq!(block.text, signed);
            }
        }
    }
}

#[test]
fn a13_three_results_or_none() {
    let history = r#"U "one"
        A <c1:a> <c2:b> <c3:c>
        R c1:a "1 "*500
        R c3:c "3 "*500
        R c2:b "2 "*10
        U "two""#;
    for budget in MIN_BUDGET..900 {
        let out = fitted(history, budget);
        let results = out.iter().filter(|m| m.role == Role::TOOL_RESULT).map(|m| m.tool_call_id.as_str());
        let results: Vec<&str> = results.collect();
        assert!(results.is_empty() || results == ["c1", "c2", "c3"], "{budget}: {results:?}");
    }
    let out = fitted(history, 400);
    let print = print(&out);
    assert!(
        print.contains(&format!("R c2:b {:?}", "2 ".repeat(10))) && print.contains("characters left out"),
        "{print}"
    );
}

#[test]
fn the_user_message_is_cut_with_a_mark_when_it_must_be() {
    let out = fitted("U \"please \"*4000\nA <c1:read>\nR c1:read \"out\"", 500);
    let text = out[0].text();
    assert!(text.starts_with("please please") && text.ends_with("please ") && text.contains("characters left out"));
    assert_eq!(out.len(), 3);
}

#[test]
fn pictures_become_a_line_when_there_is_no_room_for_them() {
    let out = fitted("U \"look\" img\nA <c1:shot>\nR c1:shot \"seen\" img", 1_000);
    assert!(print(&out).contains("[image/png left out: it did not fit]"), "{}", print(&out));
}

#[test]
fn a_picture_in_another_carrier_kept_the_newest_message_from_fitting() {
    let picture = r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}"#;
    for budget in [200, 300, 1_000, 3_000, 5_000, 8_000] {
        for history in [
            format!("U {picture} \"word \"*20000"),
            format!("U \"q\"\nA <c1:read>\nR c1:read \"word \"*20000 {picture}"),
        ] {
            let out = fitted(&history, budget);
            assert!(print(&out).contains("left out"), "{budget}: {}", print(&out));
            assert!(cost_of(&out, &by_four) > budget / 2, "{budget}: the room is used");
        }
        fitted(&format!("U \"q\"\nA \"word \"*20000 {picture}\nU \"next\""), budget);
    }
}

#[test]
fn an_unknown_block_is_cut_like_the_text_it_is_sent_as() {
    let words = "word ".repeat(20_000);
    let out = fitted(&format!(r#"U {{"type":"tool_result","content":"{words}"}}"#), 1_000);
    assert!(out[0].text().starts_with(r#"{"type":"tool_result","content":"word word"#), "{}", out[0].text());
    assert!(cost_of(&out, &by_four) > 800, "the room is used");
}

#[test]
fn a_command_with_a_long_output_is_cut_like_a_result() {
    let out = fitted("U \"one\"\nA \"a\"\nB \"find .\" \"file \"*20000", 1_000);
    assert!(print(&out).contains("B \"find .\" \"file file"), "{}", print(&out));
    assert!(cost_of(&out, &by_four) > 800, "the room is used");
}

#[test]
fn long_arguments_of_the_newest_call_are_cut_before_the_call_is_given_up() {
    let history = format!(
        "U \"write it\"\nA <c1:write {{\"path\":\"src/a.rs\",\"content\":\"{}\"}}>\nR c1:write \"ok\"",
        "x".repeat(90_000)
    );
    let out = fitted(&history, 600);
    let call = out[1].tool_calls().next().expect("the call");
    let arguments: Value = serde_json::from_str(&call.text).expect("JSON");
    assert_eq!(arguments["path"], "src/a.rs");
    assert!(arguments["content"].as_str().expect("text").contains("of 90000 characters left out"));
}

#[test]
fn c14_the_question_of_a_long_tool_loop_stays_in_front_of_its_newest_calls() {
    let calls: String =
        (0..40).map(|n| format!("A <c{n}:read {{\"path\":\"f{n}.rs\"}}>\nR c{n}:read \"out \"*1000\n")).collect();
    let out = fitted(&format!("U \"the one question\"\n{calls}"), 8_000);
    let kept = behind_summary(&out);
    assert_eq!(kept[0].text(), "the one question");
    assert_eq!(kept[1].role, Role::ASSISTANT);
    assert!(kept.len() >= 11 && out[0].text().contains("f20.rs"), "{}", out[0].text());
}

#[test]
fn an_earlier_compaction_is_carried_into_the_summary() {
    let turns: String = (0..30).map(|n| format!("U \"ask {n}\"\nA \"answer {n} \"*40\n")).collect();
    let out = fitted(&format!("K \"## Constraints/Rules\\n- Never push to main\"\n{turns}"), 1_200);
    assert!(out[0].text().contains("- Never push to main"), "{}", out[0].text());
}

#[test]
fn counted_by_a_real_tokeniser_the_prompt_is_within_the_budget() {
    let counter = TokenCounter::new(Encoding::O200kBase);
    let turns: String = (0..30)
        .map(|n| format!("U \"第{n}个问题：请检查 src/f{n}.rs 的登录流程\"\nA <c{n}:read>\nR c{n}:read \"結果 {n} ok; \"*60\nA \"完成 {n}。\"\n"))
        .collect();
    let messages: Vec<Arc<Message>> =
        parse(&turns).iter().map(|m| Arc::new(counter.counted(Message::clone(m)))).collect();
    for budget in [60, 200, 1_000, 4_000] {
        let plan = plan(&messages, budget, &|text| counter.text(text));
        let prompt = pipeline::render(&apply(&messages, &plan)).0;
        let tokens: u64 = prompt.iter().map(|m| counter.message(m)).sum();
        assert!(tokens <= budget && tokens <= plan.estimated_tokens, "{tokens} of {budget}");
        assert!(tokens * 10 >= budget * 6, "{tokens} of {budget}: the room is used");
    }
}

#[test]
fn under_the_least_budget_there_is_still_a_message() {
    for budget in 0..40 {
        let messages =
            parse("A <c1:read {\"path\":\"very/long/path/to/a/file/that/does/not/fit.rs\"}>\nR c1:read \"out \"*50");
        let plan = plan(&messages, budget, &by_four);
        assert!(!plan.segments.is_empty() && plan.estimated_tokens <= budget.max(MIN_BUDGET));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_empty_never_over_pairs_whole(history in properties::history(), budget in 0..700_u64, bytes: bool) {
        // A byte is far less than a token: with such a counter the least budget holds nothing.
        let budget = if bytes { budget + 120 } else { budget };
        let by_byte = |text: &str| text.len() as u64;
        let count: Count<'_> = if bytes { &by_byte } else { &by_four };
        let messages = pipeline::run(parse(&history), &PipelineOptions::default()).0;
        let plan = plan(&messages, budget, count);
        let out = apply(&messages, &plan);
        prop_assert_eq!(out.is_empty(), messages.is_empty());
        prop_assert!(plan.estimated_tokens <= budget.max(MIN_BUDGET));
        prop_assert!(cost_of(&out, count) <= budget.max(MIN_BUDGET), "{} of {budget}\n{}", cost_of(&out, count), print(&out));
        properties::pairs_are_whole(&out)?;
        let newest = messages.iter().rfind(|m| m.role == Role::USER);
        if let Some(newest) = newest {
            prop_assert!(out.iter().any(|m| m.id == newest.id), "the newest question is there");
        }
    }
}
