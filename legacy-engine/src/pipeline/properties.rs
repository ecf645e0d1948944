//! What holds for every history, however broken. Histories are made as notation, so a failure can be read and kept.

use std::collections::HashSet;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use proptest::prelude::*;

use super::*;
use crate::notation::{parse, print};

/// One line of a history; texts carry the line's number so that each can be found again.
fn line() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec!["c0", "c1", "c2", "c3", ""]);
    let tool = prop::sample::select(vec!["read", "exec", "bad/name", ""]);
    let call = (id.clone(), tool.clone()).prop_map(|(id, tool)| format!("<{id}:{tool}>"));
    let calls = prop::collection::vec(call, 1..4).prop_map(|calls| calls.join(" "));
    let mark = prop::sample::select(vec!["", "", "", "", "!", "~"]);
    let result_mark = prop::sample::select(vec!["", "", "", "!", "+"]);
    prop_oneof![
        3 => Just("U \"u#\"".to_owned()),
        1 => Just("U \"again\"".to_owned()),
        1 => prop::sample::select(vec!["U \" \"", "Uh \"h#\"", "U- \"x\"", "K \"k#\"", "C \"c#\"", "B \"b\" \"b#\"", "O img", "U \"p#\" img"])
            .prop_map(str::to_owned),
        2 => mark.clone().prop_map(|mark| format!("A{mark} \"a#\"")),
        1 => prop::sample::select(vec!["A \"HEARTBEAT_OK\"", "A! ", "A [t]", "A [t/S] \"a#\" @m1", "A [t/S] @m2"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            r#"U [t] {"type":"audio","n":"o#"}"#,
            r#"U {"type":"image_url","image_url":"https://host.example/#.png"}"#,
            r#"A "a#" {"type":"toolCall","id":"c1","name":"read","arguments":null} {"type":"odd","n":"o#"}"#,
            r#"R c1:read {"type":"toolCall","id":"z","name":"f","arguments":{}} [t/S]"#,
            r#"R c2:read [t]"#,
            r#"C {"type":"toolCall","id":"z","name":"f","arguments":{}}"#,
            r#"C [t/S]"#,
        ])
        .prop_map(str::to_owned),
        4 => (mark, calls).prop_map(|(mark, calls)| format!("A{mark} \"a#\" [t/S] {calls} @m1")),
        5 => (result_mark, id, tool, prop::bool::weighted(0.9)).prop_map(|(mark, id, tool, speaks)| {
            let id = if id.is_empty() { "''" } else { id };
            let text = if speaks { "\"r#\"" } else { "" };
            format!("R{mark} {id}:{} {text}", tool.replace('/', "_"))
        }),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = String> {
    prop::collection::vec(line(), 0..40).prop_map(|lines| {
        let numbered = lines.iter().enumerate().map(|(n, line)| line.replace('#', &n.to_string()));
        numbered.collect::<Vec<_>>().join("\n")
    })
}

fn options() -> impl Strategy<Value = PipelineOptions> {
    let model = prop::option::of(prop::sample::select(vec!["m1".to_owned(), "m2".to_owned()]));
    let limit = prop::option::weighted(0.3, 0..6_usize);
    (model, limit).prop_map(|(model, history_limit)| PipelineOptions { model, history_limit, ..Default::default() })
}

pub(crate) fn pairs_are_whole(messages: &[Arc<Message>]) -> Result<(), TestCaseError> {
    let mut used = HashSet::new();
    let mut waiting: Vec<&str> = Vec::new();
    for message in messages {
        if message.role == Role::TOOL_RESULT {
            prop_assert!(!waiting.is_empty(), "a result without a call: {}", message.json);
            prop_assert_eq!(waiting.remove(0), message.tool_call_id.as_str());
            continue;
        }
        prop_assert!(waiting.is_empty(), "calls without results: {:?}", waiting);
        for call in message.tool_calls() {
            prop_assert!(!call.id.is_empty() && used.insert(call.id.clone()), "id {:?} again", call.id);
            prop_assert!(!call.name.is_empty());
            waiting.push(&call.id);
        }
    }
    prop_assert!(waiting.is_empty(), "calls without results: {:?}", waiting);
    Ok(())
}

fn texts(messages: &[Arc<Message>], of: impl Fn(&Message) -> bool) -> Vec<String> {
    let texts = messages.iter().filter(|m| of(m)).flat_map(|m| m.blocks.iter());
    texts.filter(|b| b.kind == BlockKind::TEXT && !b.text.trim().is_empty()).map(|b| b.text.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pairs_are_whole_and_ids_unique(history in history(), options in options()) {
        let (out, _) = run(parse(&history), &options);
        pairs_are_whole(&out)?;
        pairs_are_whole(&render(&out).0)?;
    }

    #[test]
    fn run_twice_is_run_once(history in history(), options in options()) {
        let (once, _) = run(parse(&history), &options);
        let (twice, report) = run(once.clone(), &options);
        prop_assert_eq!(print(&twice), print(&once));
        prop_assert_eq!(report, PipelineReport::default());
        prop_assert!(once.iter().zip(&twice).all(|(a, b)| Arc::ptr_eq(a, b)));
    }

    #[test]
    fn no_real_text_is_lost_or_moved(history in history()) {
        let given = parse(&history);
        let (out, _) = run(given.clone(), &PipelineOptions::default());
        let user = |m: &Message| m.role == Role::USER && !m.flags.contains(MessageFlags::EXCLUDED);
        let mut said = texts(&given, |m| user(m) && !m.flags.contains(MessageFlags::HEARTBEAT));
        let mut sent = texts(&out, user);
        sent.retain(|text| !text.starts_with(['h', '{']) && text != IMAGE_REMOVED);
        // Repeats may have become neighbours, and then count once.
        said.dedup();
        sent.dedup();
        prop_assert_eq!(said, sent);
        let dead = |m: &Message| {
            let failed = m.flags.contains(MessageFlags::ERRORED) || m.flags.contains(MessageFlags::ABORTED);
            failed && m.tool_calls().next().is_some()
        };
        let said = texts(&given, |m| m.role == Role::ASSISTANT && !dead(m));
        let sent = texts(&out, |m| m.role == Role::ASSISTANT);
        let real = |texts: Vec<String>| {
            texts.into_iter().filter(|t| t != "HEARTBEAT_OK" && !t.starts_with('{')).collect::<Vec<_>>()
        };
        prop_assert_eq!(real(said), real(sent));
    }

    #[test]
    fn a_prompt_alternates_and_ends_where_a_model_may_speak(history in history()) {
        let (view, _) = run(parse(&history), &PipelineOptions::default());
        let (out, _) = render(&view);
        prop_assert_eq!(out.is_empty(), view.is_empty());
        prop_assert!(out.first().is_none_or(|m| m.role == Role::USER));
        prop_assert!(out.last().is_none_or(|m| m.role != Role::ASSISTANT));
        for (message, block) in out.iter().flat_map(|m| m.blocks.iter().map(move |b| (m, b))) {
            let speech = [BlockKind::TEXT, BlockKind::IMAGE].contains(&block.kind);
            let thought = [BlockKind::THINKING, BlockKind::TOOL_CALL].contains(&block.kind);
            prop_assert!(speech || (thought && message.role == Role::ASSISTANT), "{}", message.json);
            prop_assert!(block.kind != BlockKind::TOOL_CALL || block.text.starts_with('{'), "{}", message.json);
        }
        for pair in out.windows(2) {
            let calls = pair[0].tool_calls().next().is_some();
            prop_assert!(pair[0].role != pair[1].role || pair[0].role == Role::TOOL_RESULT || calls);
        }
        let (again, _) = render(&out);
        prop_assert_eq!(print(&again), print(&out));
    }
}
