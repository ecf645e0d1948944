//! What a turn does when the history is too much, or the model says so: contract §2.4 and the public reports about it.

mod support;

use context_engine_interface::{AfterTurnResult, Assembly, CompactResult, MaintainResult};
use context_engine_runtime::model::{ModelErrorKind, ScriptedModel, Step, request_tokens};
use context_engine_runtime::turn::SystemPrompt;
use context_engine_runtime::{RuntimeError, TurnEnd, TurnEvent};
use context_engine_transcript::TokenCounter;
use serde_json::json;

use support::{Echo, Host, Script, plans};

const WINDOW: u64 = 4_000;

/// So many words, about as many tokens.
fn words(n: usize) -> String {
    "word ".repeat(n)
}

/// An engine that keeps everything and leaves compaction to the host.
fn keeps_all() -> Script {
    Script {
        maintain: Some(Box::new(|_, ()| Ok(MaintainResult::default()))),
        after_turn: Some(Box::new(|_, ()| Ok(AfterTurnResult::default()))),
        ..Script::default()
    }
}

/// What the largest request cost.
fn largest(host: &Host) -> u64 {
    let counter = TokenCounter::for_model(None);
    host.model.requests().iter().map(|request| request_tokens(request, &counter)).max().unwrap_or(0)
}

/// Ten turns of about 300 tokens each.
fn talk(host: &mut Host, turns: usize) {
    for turn in 0..turns {
        let report = host.ask(format!("question {turn} {}", words(150)).as_str());
        assert!(report.is_answered(), "turn {turn}: {:?}", report.end);
    }
}

fn answers() -> ScriptedModel {
    ScriptedModel::from_fn(|_| Step::text(format!("answer {}", words(150)))).window(WINDOW)
}

#[test]
fn a_history_that_outgrows_the_window_is_compacted_before_the_model_sees_it() {
    for engine in ["legacy", "probe"] {
        let mut host = Host::with(keeps_all(), answers(), |options| options.engine = engine.into());
        talk(&mut host, 20);
        assert!(largest(&host) <= WINDOW * 3 / 4, "{engine}: {}", largest(&host));
        let compacted = host.events.iter().filter(|event| **event == TurnEvent::Compacted).count();
        assert!((1..10).contains(&compacted), "{engine}: {compacted}");
        assert!(host.transcript().starts_with("compactionSummary"), "{}", host.transcript());
    }
}

/// Report C12: system prompt and rules were part of what was compacted away.
#[test]
fn c12_rules_are_in_every_prompt_word_for_word_and_read_anew() {
    let rules = tempfile::tempdir().expect("a folder");
    let file = rules.path().join("AGENTS.md");
    std::fs::write(&file, "Never touch the lockfile.").expect("written");
    let system = SystemPrompt { text: Some("never push".into()), files: vec![file.clone()] };
    let mut host = Host::with(keeps_all(), answers(), |options| {
        options.system = system;
        options.keep_recent = Some(1);
    });
    talk(&mut host, 15);
    std::fs::write(&file, "Never touch the build.").expect("written");
    talk(&mut host, 15);
    let systems: Vec<String> = host.model.requests().into_iter().filter_map(|request| request.system).collect();
    assert_eq!(systems.len(), 30);
    assert!(systems.iter().all(|system| system.starts_with("never push\n\n## ")));
    assert!(systems[..15].iter().all(|system| system.ends_with("Never touch the lockfile.")));
    assert!(systems[15..].iter().all(|system| system.ends_with("Never touch the build.")));
    assert!(host.events.contains(&TurnEvent::Compacted));
}

/// Report C14: the limit was looked at between turns only, and one long turn ran over it.
#[test]
fn c14_a_long_tool_loop_is_compacted_inside_the_turn_and_its_question_stays() {
    let mut calls = 0;
    let model = ScriptedModel::from_fn(move |_| {
        calls += 1;
        if calls <= 40 { Step::call(format!("c{calls}"), "read", json!({})) } else { Step::text("done") }
    });
    let question = "Which of these files holds the token \"PELICAN-7\"? Look at all of them.";
    let tools = vec![Echo::tool("read", &words(1_000))];
    let mut host = Host::with(keeps_all(), model.window(20_000), |options| options.tools = tools);
    let report = host.ask(question);
    assert!(report.is_answered(), "{:?}", report.end);
    assert_eq!(report.calls.len(), 41);
    assert!(report.compactions > 0 && largest(&host) <= 15_000, "{} {}", report.compactions, largest(&host));
    for (at, request) in host.model.requests().iter().enumerate() {
        let seen = request.messages.iter().any(|message| message.text().contains(question));
        assert!(seen, "call {at} lost the question: {}", host.prompt(at));
    }
}

/// Report C15: what was said while a compaction ran was lost, answered twice, or broke it off.
#[test]
fn c15_what_is_said_during_a_compaction_comes_after_it() {
    let (begun, begins) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let compact = move |ctx: &context_engine_interface::CallContext<'_>,
                        params: context_engine_interface::CompactParams<'_>| {
        begun.send(()).expect("the test listens");
        wait.lock().expect("one compaction").recv().expect("the test goes on");
        ctx.delegate_compaction(params)
    };
    let script = Script { compact: Some(Box::new(compact)), ..keeps_all() };
    let mut host = Host::with(script, answers(), |options| options.keep_recent = Some(10));
    talk(&mut host, 3);
    let (runtime, session) = (host.runtime.clone(), host.session.clone());
    let reports = host.block_on(async {
        let compaction = tokio::spawn({
            let (runtime, session) = (runtime.clone(), session.clone());
            async move { runtime.compact(&session, None).await.expect("compacted") }
        });
        tokio::task::spawn_blocking(move || begins.recv().expect("it begins")).await.expect("joined");
        let ask = |text: &'static str| {
            let (runtime, session) = (runtime.clone(), session.clone());
            tokio::spawn(async move {
                let request = context_engine_runtime::TurnRequest::text(text);
                runtime.run_turn(&session, request, &mut |_| ()).await.expect("it begins")
            })
        };
        let (x, y) = (ask("U_x"), ask("U_y"));
        tokio::task::yield_now().await;
        go.send(()).expect("the compaction waits");
        assert!(compaction.await.expect("joined").compacted);
        [x.await.expect("joined"), y.await.expect("joined")]
    });
    assert!(reports.iter().all(|report| report.is_answered()));
    let transcript = host.transcript();
    let places: Vec<usize> = ["compactionSummary", "user U_x", "user U_y"]
        .iter()
        .map(|what| {
            assert_eq!(transcript.matches(what).count(), 1, "{what} in {transcript}");
            transcript.find(what).expect("counted")
        })
        .collect();
    assert!(places.is_sorted(), "{transcript}");
}

/// Report B7: what is sent beside the messages was not counted, and compaction ran without end.
#[test]
fn b7_fixed_parts_that_leave_no_room_are_named_and_nothing_is_compacted() {
    let system = SystemPrompt { text: Some(words(3_500)), files: Vec::new() };
    let mut host = Host::with(keeps_all(), answers(), |options| options.system = system);
    let report = host.ask("hello");
    let TurnEnd::Failed(error @ RuntimeError::FixedParts { .. }) = &report.end else { panic!("{:?}", report.end) };
    assert!(error.to_string().starts_with("system prompt and rules take 350"), "{error}");
    assert_eq!((host.log.members().as_str(), host.model.requests().len()), ("", 0));
    assert!(host.transcript().starts_with("user hello"));
}

#[test]
fn a_provider_that_counts_more_is_believed_and_its_count_is_remembered() {
    // The model counts every token twice.
    let counter = TokenCounter::for_model(None);
    let model = ScriptedModel::from_fn(move |request| {
        let observed = request_tokens(request, &counter) * 2;
        if observed > 3_000 { Step::overflow(Some(observed)) } else { Step::text(words(150)) }
    });
    let model = model.named(context_engine_runtime::model::ModelInfo {
        provider: "p".into(),
        id: "m".into(),
        context_window: Some(WINDOW),
        ..Default::default()
    });
    let mut host = Host::new(keeps_all(), model);
    talk(&mut host, 20);
    let refused = host.events.iter().filter(|event| matches!(event, TurnEvent::Restarted { .. })).count();
    assert!((1..=2).contains(&refused), "{refused}");
}

/// Contract §2.4: three tries, then words a person can act on; nothing is sent twice.
#[test]
fn a_provider_that_takes_nothing_is_asked_a_bounded_number_of_times() {
    let model = ScriptedModel::from_fn(|_| Step::overflow(None)).window(WINDOW);
    let mut host = Host::new(keeps_all(), model);
    let report = host.ask(words(1_000).as_str());
    let TurnEnd::Failed(RuntimeError::Overflow { text }) = &report.end else { panic!("{:?}", report.end) };
    assert!(text.starts_with("Context overflow: prompt too large for the model."), "{text}");
    let counter = TokenCounter::for_model(None);
    let sizes: Vec<u64> = host.model.requests().iter().map(|request| request_tokens(request, &counter)).collect();
    assert!((2..=4).contains(&sizes.len()) && sizes.windows(2).all(|pair| pair[1] < pair[0]), "{sizes:?}");
    // The session goes on.
    assert!(host.transcript().ends_with("assistant "), "{}", host.transcript());
}

#[test]
fn tools_that_ran_are_mentioned_when_the_turn_gives_up() {
    let mut calls = 0;
    let model = ScriptedModel::from_fn(move |_| {
        calls += 1;
        if calls == 1 { Step::call("c1", "send", json!({})) } else { Step::overflow(None) }
    });
    let tools = vec![Echo::tool("send", "sent")];
    let mut host = Host::with(keeps_all(), model.window(WINDOW), |options| options.tools = tools);
    let report = host.ask("go");
    let TurnEnd::Failed(error) = &report.end else { panic!("{:?}", report.end) };
    assert!(error.to_string().ends_with("verify their effects before retrying."), "{error}");
}

/// Contract §2.4: a request that is too large in bytes is no overflow, and neither is a rate limit.
#[test]
fn what_compaction_cannot_help_is_said_at_once() {
    let kinds = [
        ModelErrorKind::RequestTooLarge,
        ModelErrorKind::RateLimited { retry_after: None },
        ModelErrorKind::Unauthorized,
        ModelErrorKind::Refused,
        ModelErrorKind::Timeout,
    ];
    for kind in kinds {
        let mut host = Host::new(keeps_all(), ScriptedModel::new([Step::fail(kind)]).window(WINDOW));
        let report = host.ask("hello");
        assert!(
            matches!(&report.end, TurnEnd::Failed(RuntimeError::NotAnswered(error)) if error.kind == kind),
            "{kind:?}"
        );
        assert_eq!((host.log.members().as_str(), host.model.requests().len()), ("assemble", 1), "{kind:?}");
    }
}

/// Contract §2.4: a timeout of a large prompt is tried again behind a compaction, twice at most, without `maintain`.
#[test]
fn a_timeout_of_a_large_prompt_is_answered_by_a_smaller_one() {
    let mut asked = 0;
    let model = ScriptedModel::from_fn(move |_| {
        asked += 1;
        if asked == 8 { Step::timeout() } else { Step::text(words(150)) }
    });
    let mut host = Host::with(keeps_all(), model.window(WINDOW), |options| options.keep_recent = Some(500));
    talk(&mut host, 7);
    host.log.take();
    let report = host.ask(words(150).as_str());
    assert!(report.is_answered(), "{:?}", report.end);
    assert_eq!(host.log.members(), "assemble compact assemble after_turn maintain");
    assert_eq!(host.log.params("compact").runtime_context.expect("a context")["trigger"], "timeout_recovery");
}

/// Report C10: an engine said that it compacted, and before and after were the same.
#[test]
fn c10_a_compaction_without_effect_is_not_believed_and_does_not_end_the_turn() {
    let same = CompactResult {
        ok: true,
        compacted: true,
        tokens_before: 5_000,
        tokens_after: Some(5_000).into(),
        ..CompactResult::default()
    };
    let script = Script { compact: Some(Box::new(move |_, _| Ok(same.clone()))), ..keeps_all() };
    let mut host = Host::new(script, answers());
    talk(&mut host, 20);
    assert!(largest(&host) <= WINDOW * 3 / 4);
    let lines = host.log.take();
    let tries = lines.iter().filter(|line| line.starts_with("compact")).count();
    let turns = lines.iter().filter(|line| line.starts_with("after_turn")).count();
    assert!(tries <= turns, "{tries} compactions in {turns} turns");
    assert!(!host.events.contains(&TurnEvent::Compacted));
}

/// Report C11: a no-op that is allowed was taken for fatal, and the person's message was dropped.
#[test]
fn c11_an_engine_with_nothing_to_compact_keeps_nobody_from_answering() {
    let nothing = |_: &context_engine_interface::CallContext<'_>, _: context_engine_interface::CompactParams<'_>| {
        Ok(CompactResult::nothing_to_do("below threshold", 10))
    };
    let script = Script { owns_compaction: true, compact: Some(Box::new(nothing)), ..keeps_all() };
    let model = ScriptedModel::new([Step::overflow(Some(4_100)), Step::text("hi")]).window(WINDOW);
    let mut host = Host::new(script, model);
    let report = host.ask(words(1_500).as_str());
    assert!(report.is_answered(), "{:?}", report.end);
    assert_eq!(report.compactions, 0);
}

/// Report G7: the only try was spent on an engine that says "not mine".
#[test]
fn g7_an_engine_that_says_not_mine_has_the_host_compact_in_the_same_recovery() {
    let not_mine = |_: &context_engine_interface::CallContext<'_>, _: context_engine_interface::CompactParams<'_>| {
        Ok(CompactResult { reason: Some("delegate".into()).into(), ..CompactResult::default() })
    };
    let script = Script { compact: Some(Box::new(not_mine)), ..keeps_all() };
    let mut host = Host::new(script, answers());
    talk(&mut host, 20);
    assert!(host.events.contains(&TurnEvent::Compacted));
    assert!(largest(&host) <= WINDOW * 3 / 4);
}

#[test]
fn long_tool_results_are_shortened_before_anything_is_compacted() {
    let steps = [Step::call("c1", "read", json!({})), Step::text("done")];
    let text = format!("START {} END", words(6_000));
    let tools = vec![Echo::tool("read", &text)];
    let mut host = Host::with(keeps_all(), ScriptedModel::new(steps).window(8_000), |options| options.tools = tools);
    let report = host.ask("go");
    assert!(report.is_answered(), "{:?}", report.end);
    assert_eq!((report.truncated, report.compactions), (1, 0));
    let request = &host.model.requests()[1];
    let result = request.messages.last().expect("a result").text();
    assert!(result.starts_with("START") && result.ends_with("END") && result.contains("characters left out"));
}

#[test]
fn a_window_that_cannot_hold_the_newest_message_is_said() {
    let assemble = plans(|params| {
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        Ok(plan)
    });
    let model = ScriptedModel::new(["hi"]).window(16);
    let mut host = Host::new(Script { assemble, ..keeps_all() }, model);
    let report = host.ask(words(500).as_str());
    let TurnEnd::Failed(RuntimeError::Prompt(error)) = &report.end else { panic!("{:?}", report.end) };
    assert!(error.to_string().contains("cannot hold the newest message"), "{error}");
}

#[test]
fn a_turn_that_does_not_end_is_stopped() {
    let model = ScriptedModel::from_fn(|request| Step::call(format!("c{}", request.messages.len()), "read", json!({})));
    let mut host = Host::with(keeps_all(), model, |options| {
        options.tools = vec![Echo::tool("read", "more")];
        options.max_calls = 5;
    });
    let report = host.ask("go");
    assert!(matches!(report.end, TurnEnd::Failed(RuntimeError::Calls { calls: 5 })), "{:?}", report.end);
}
