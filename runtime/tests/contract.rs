//! Contract, Part 12: each behaviour that a turn has here, under its number.
//!
//! | # | where |
//! |---|---|
//! | 1, 2, 13, 16, 18 to 20, 25, 31, 34 to 42, 45, 47 | here, or where the test of that number says |
//! | 3 to 8, 11, 22, 26 | do not apply: engines are files, not registrations. In their place: discovery by directory, one owner per id (`tests/tests/loading.rs`), records read without running (`tests/tests/inspect.rs`) |
//! | 9 | ruled otherwise: an id that differs from the record's is refused (`tests/tests/loading.rs`) |
//! | 10, 12, 14, 15, 21, 23, 24, 30 | loaded engines: `tests/tests/supervision.rs`, `quarantine.rs`, `answers.rs`, `members.rs` |
//! | 17, 48 | subagents are not spawned yet |
//! | 27 | `tests/tests/loading.rs` |
//! | 28 | `runtime/tests/services.rs` |
//! | 29, 32, 33 | durable turns are not committed yet: an engine without durable semantics serves eagerly, design §5 |
//! | 43, 44 | `transcript/tests/`, where the store is tested |
//! | 46 | `legacy-engine`, where the cut is decided |

mod support;

use context_engine_interface::{
    AfterTurnResult, Assembly, BootstrapResult, CompactResult, EngineError, ErrorCode, MaintainResult,
};
use context_engine_runtime::model::{ModelErrorKind, ScriptedModel, Step};
use context_engine_runtime::turn::TurnCancel;
use context_engine_runtime::{RuntimeError, TurnEnd, TurnEvent, TurnRequest};
use serde_json::json;

use support::{Echo, Host, Script, plans};

/// An engine with every member a turn calls, each of which succeeds.
fn whole() -> Script {
    Script {
        bootstrap: Some(Box::new(|_, ()| Ok(BootstrapResult { bootstrapped: true, ..Default::default() }))),
        maintain: Some(Box::new(|_, ()| Ok(MaintainResult::default()))),
        after_turn: Some(Box::new(|_, ()| Ok(AfterTurnResult::default()))),
        ..Script::default()
    }
}

fn read_call() -> Step {
    Step::call("c1", "read", json!({ "path": "a" }))
}

#[test]
fn c01_a_slot_is_trimmed() {
    let mut host = Host::with(whole(), ScriptedModel::new(["hi"]), |options| options.engine = "  probe \n".into());
    assert_eq!(host.ask("hello").served_by, "probe");
}

#[test]
fn c02_a_slot_that_is_blank_or_none_is_legacy() {
    for slot in ["", "  ", "none", "legacy"] {
        let mut host = Host::with(whole(), ScriptedModel::new(["hi"]), |options| options.engine = slot.into());
        let report = host.ask("hello");
        assert_eq!(
            (report.served_by.as_str(), report.why, host.log.members().as_str()),
            ("legacy", None, ""),
            "{slot:?}"
        );
    }
}

#[test]
fn c13_assemble_fails_and_legacy_answers_in_the_same_call() {
    let script = Script { assemble: plans(|_| Err(EngineError::failed("the index is gone"))), ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["hi"]));
    let report = host.ask("hello");
    assert!(report.is_answered());
    assert_eq!((report.served_by.as_str(), host.prompt(0).as_str()), ("legacy", "u:hello"));
    assert_eq!(report.why.as_deref(), Some("probe: assemble: the index is gone"));
    assert!(matches!(&host.events[0], TurnEvent::Fallback { why } if why.contains("the index is gone")));
}

#[test]
fn c16_compact_fails_and_its_error_is_what_a_person_gets() {
    let script = Script { compact: Some(Box::new(|_, _| Err(EngineError::failed("no room")))), ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["hi"]));
    host.ask("hello");
    let error = host.block_on(host.runtime.compact(&host.session, None)).expect_err("it failed");
    assert_eq!(error.to_string(), "compaction: no room");
    assert_eq!(host.transcript(), "user hello\nassistant hi");
}

#[test]
fn c18_a_turn_that_is_taken_back_sets_nobody_aside() {
    let cancel = TurnCancel::default();
    let taken_back = cancel.clone();
    let assemble = plans(move |_| {
        taken_back.cancel();
        Err(EngineError::new(ErrorCode::CANCELLED, "as the host wished"))
    });
    let script = Script { assemble, ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["hi"]));
    let report = host.ask(TurnRequest { cancel, ..TurnRequest::text("hello") });
    assert!(matches!(report.end, TurnEnd::Aborted), "{:?}", report.end);
    assert_eq!((report.why, host.model.requests().len()), (None, 0));
}

#[test]
fn c19_a_turn_that_was_taken_back_before_it_began_asks_nobody() {
    let mut host = Host::new(whole(), ScriptedModel::new(["hi"]));
    let request = TurnRequest::text("hello");
    request.cancel.cancel();
    let report = host.ask(request);
    assert!(matches!(report.end, TurnEnd::Aborted));
    assert_eq!((host.log.members().as_str(), host.model.requests().len()), ("", 0));
    assert_eq!(host.transcript(), "user hello\nassistant ");
}

#[test]
fn c20_an_engine_that_says_cancelled_though_nobody_did_is_a_failure() {
    let assemble = plans(|_| Err(EngineError::new(ErrorCode::CANCELLED, "my own timeout")));
    let mut host = Host::new(Script { assemble, ..whole() }, ScriptedModel::new(["hi"]));
    let report = host.ask("hello");
    assert_eq!((report.served_by.as_str(), report.is_answered()), ("legacy", true));
}

#[test]
fn c31_legacy_in_the_slot_is_no_fallback() {
    let mut host = Host::with(whole(), ScriptedModel::new(["hi"]), |options| options.engine = "legacy".into());
    let report = host.ask("hello");
    assert_eq!((report.why, host.events), (None, vec![TurnEvent::Text("hi".into())]));
}

#[test]
fn c34_the_reserve_of_a_large_window_is_not_the_engines_to_spend() {
    let mut host = Host::new(whole(), ScriptedModel::new(["hi"]).window(200_000));
    host.ask("hello");
    let line = host.log.take().remove(0);
    let budget: u64 = line.split("budget=").nth(1).and_then(|s| s.split(' ').next()?.parse().ok()).expect("a budget");
    assert!(budget < 180_000, "{line}");
    let settings = host.log.params("assemble").runtime_settings.expect("settings");
    assert_eq!(settings.limits.max_output_tokens, Some(20_000));
    assert_eq!(settings.context_engine_selection.source, "configured");
    assert_eq!((settings.runtime.mode.as_str(), settings.model.resolved.as_deref()), ("normal", Some("scripted")));
}

#[test]
fn c35_engines_are_not_told_of_the_clients_tools() {
    let tools = vec![Echo::tool("read", "text"), Echo::of_client("ask_user")];
    let mut host = Host::with(whole(), ScriptedModel::new(["hi"]), |options| options.tools = tools);
    host.ask("hello");
    let line = host.log.take().remove(0);
    assert!(line.ends_with("tools=[read]"), "{line}");
    let names: Vec<String> = host.model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["read", "ask_user"]);
}

#[test]
fn c36_a_raw_run_calls_no_member() {
    let mut host = Host::new(whole(), ScriptedModel::new(["hi", "again"]));
    host.ask("hello");
    host.log.take();
    let report = host.ask(TurnRequest { raw: true, ..TurnRequest::text("just this") });
    assert!(report.is_answered());
    assert_eq!((host.log.members().as_str(), host.prompt(1).as_str()), ("", "u:just this"));
    assert_eq!(host.model.requests()[1].system, None);
}

#[test]
fn c37_after_turn_fails_and_maintain_is_skipped_and_the_reply_is_kept() {
    let script = Script { after_turn: Some(Box::new(|_, ()| Err(EngineError::failed("disk full")))), ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["hi"]));
    let report = host.ask("hello");
    assert_eq!((report.text.as_str(), host.log.members().as_str()), ("hi", "assemble after_turn"));
    assert!(report.is_answered());
}

#[test]
fn c38_a_turn_without_a_good_end_calls_nothing_behind_it() {
    let failed = Step::text("half").and_fail(ModelErrorKind::Unavailable);
    let mut host = Host::new(whole(), ScriptedModel::new([failed, Step::never(), Step::text("hi")]));
    let report = host.ask("hello");
    assert!(matches!(&report.end, TurnEnd::Failed(RuntimeError::NotAnswered(_))), "{:?}", report.end);
    assert_eq!(host.log.members(), "assemble");

    let request = TurnRequest::text("once more");
    let cancel = request.cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        cancel.cancel();
    });
    assert!(matches!(host.ask(request).end, TurnEnd::Aborted));
    assert_eq!(host.log.members(), "bootstrap maintain assemble");
    // What was said stays said, what had come in of a reply included.
    assert!(host.ask("and now?").is_answered());
    assert_eq!(host.prompt(2), "u:hello | a:half | u:once more\nand now?");
}

#[test]
fn c39_an_answer_that_is_no_plan_is_not_believed() {
    let assemble = plans(|_| {
        let mut plan = Assembly::new();
        plan.keep(0..7);
        Ok(plan)
    });
    let mut host = Host::new(Script { assemble, ..whole() }, ScriptedModel::new(["hi"]));
    let report = host.ask("hello");
    assert_eq!((report.served_by.as_str(), host.prompt(0).as_str()), ("legacy", "u:hello"));
    assert!(report.why.expect("a reason").starts_with("probe: assemble: "));
}

/// An owning engine is asked before each call, and given what was said meanwhile; the provider's refusal in the middle
/// of the loop is recovered from with the messages as they were said.
#[test]
fn c40_an_owning_engine_and_an_overflow_in_the_tool_loop() {
    let script = Script {
        owns_compaction: true,
        compact: Some(Box::new(|_, _| Ok(CompactResult { ok: true, compacted: true, ..Default::default() }))),
        assemble: plans(|params| {
            let all = params.messages().len();
            let mut plan = Assembly::new();
            plan.keep(0..all);
            Ok(plan)
        }),
        ..whole()
    };
    let steps = [read_call(), Step::overflow(Some(90_000)), Step::text("done")];
    let model = ScriptedModel::new(steps).window(100_000);
    let mut host = Host::with(script, model, |options| options.tools = vec![Echo::tool("read", "the text")]);
    let report = host.ask("go");
    assert!(report.is_answered(), "{:?}", report.end);
    let lines = host.log.take();
    let members: Vec<&str> = lines.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(members.join(" "), "assemble after_turn assemble compact maintain assemble after_turn maintain");
    assert_eq!(lines[1], "after_turn 0 + u:go | a:read | t:the text");
    assert!(lines[5].starts_with("assemble u:go | a:read | t:the text budget="), "{}", lines[5]);
    assert_eq!(lines[6], "after_turn 3 + a:done");
    assert_eq!(host.transcript(), "user go\nassistant <c1> \ntoolResult the text\nassistant done");
}

#[test]
fn c41_a_member_that_fails_in_the_loop_is_offered_the_same_messages_again() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let script = Script {
        owns_compaction: true,
        after_turn: Some(Box::new(move |_, ()| {
            let fails = first.swap(false, std::sync::atomic::Ordering::Relaxed);
            if fails { Err(EngineError::failed("locked")) } else { Ok(AfterTurnResult::default()) }
        })),
        ..whole()
    };
    let model = ScriptedModel::new([read_call(), Step::text("done")]);
    let mut host = Host::with(script, model, |options| options.tools = vec![Echo::tool("read", "the text")]);
    assert!(host.ask("go").is_answered());
    let lines: Vec<String> = host.log.take().into_iter().filter(|line| line.starts_with("after_turn")).collect();
    assert_eq!(
        lines,
        ["after_turn 0 + u:go | a:read | t:the text", "after_turn 0 + u:go | a:read | t:the text | a:done"]
    );
    assert_eq!(host.prompt(1), "u:go | a:read | t:the text");
}

#[test]
fn c42_maintenance_in_the_background_is_done_behind_the_reply() {
    let script = Script { background: true, ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["hi"]));
    assert!(host.ask("hello").is_answered());
    assert_eq!(host.log.members(), "assemble after_turn maintain");
    let context = host.log.params("maintain").runtime_context.expect("a context");
    assert_eq!(context["allowDeferredCompactionExecution"], true);
}

#[test]
fn c47_a_compactor_that_fails_leaves_the_history_as_it_is() {
    struct Fails;
    impl context_engine_runtime::session::Compactor for Fails {
        fn compact(
            &self,
            _: &context_engine_runtime::session::CompactionInput<'_>,
        ) -> Result<context_engine_legacy::compaction::CompactionOutcome, String> {
            Err("All summarization attempts failed for 2 messages. Last error: refused".into())
        }
    }
    let change = |options: &mut context_engine_runtime::RuntimeOptions| options.compactor = std::sync::Arc::new(Fails);
    let mut host = Host::with(whole(), ScriptedModel::new(["hi"]), change);
    host.ask("hello");
    let error = host.block_on(host.runtime.compact(&host.session, None)).expect_err("it failed");
    assert!(error.to_string().contains("All summarization attempts failed"), "{error}");
    assert_eq!(host.transcript(), "user hello\nassistant hi");
}

/// The order of a first turn and of the next ones (contract §2.1, §2.2).
#[test]
fn an_engine_is_offered_what_it_was_not_told_and_nothing_else() {
    let mut host = Host::new(whole(), ScriptedModel::new(["one", "two", "three"]));
    for question in ["first", "second"] {
        host.ask(question);
        assert_eq!(host.log.members(), "assemble after_turn maintain");
    }
    // Another engine has never heard of the session.
    host.runtime.select_engine("legacy");
    host.ask("third");
    host.runtime.select_engine("probe");
    host.log.take();
    assert!(!host.ask("fourth").is_answered(), "the script has three steps");
    assert_eq!(host.log.members(), "bootstrap maintain assemble");
}

#[test]
fn without_after_turn_the_new_messages_are_ingested_at_once_or_one_by_one() {
    let batch = Script {
        ingest_batch: Some(Box::new(|_, texts| {
            Ok(context_engine_interface::IngestBatchResult { ingested_count: texts.len() as u64, ..Default::default() })
        })),
        ..Script::default()
    };
    let mut host = Host::new(batch, ScriptedModel::new(["hi"]));
    host.ask("hello");
    assert_eq!(host.log.take()[1..], ["after_turn 0 + u:hello | a:hi", "ingest_batch u:hello | a:hi", "maintain"]);
    let mut host = Host::new(Script::default(), ScriptedModel::new(["hi"]));
    host.ask("hello");
    let lines = host.log.take();
    assert_eq!(lines[3..], ["ingest u:hello", "ingest a:hi", "maintain"]);
}

/// `assemble` is asked once by an engine that leaves compaction to the host; what is said in the tool loop follows it.
#[test]
fn an_engine_that_does_not_own_compaction_plans_once_for_a_turn() {
    let model = ScriptedModel::new([read_call(), Step::text("done")]);
    let mut host = Host::with(whole(), model, |options| options.tools = vec![Echo::tool("read", "the text")]);
    let report = host.ask("go");
    assert_eq!(host.log.members(), "assemble after_turn maintain");
    assert_eq!(host.prompt(1), "u:go | a:read | t:the text");
    assert_eq!(report.calls.iter().map(|call| call.assembled).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn what_the_system_prompt_is_added_stands_in_front_of_it() {
    let assemble = plans(|params| {
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        plan.system_prompt_addition = Some("Remember the milk.".into()).into();
        Ok(plan)
    });
    let script = Script { assemble, ..whole() };
    let mut host =
        Host::with(script, ScriptedModel::new(["hi"]), |options| options.system.text = Some("Be kind.".into()));
    host.ask("hello");
    assert_eq!(host.model.requests()[0].system.as_deref(), Some("Remember the milk.\n\nBe kind."));
}

/// Whoever stops waiting takes the turn back, and the next turn waits until the engine has let go of the session.
#[test]
fn a_turn_nobody_waits_for_is_taken_back_and_the_next_one_comes_after_it() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let still_there = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&still_there);
    let (reached, reaches) = std::sync::mpsc::channel();
    let after_turn = move |ctx: &context_engine_interface::CallContext<'_>, ()| {
        use std::sync::atomic::Ordering::SeqCst;
        if !first.swap(false, SeqCst) {
            assert!(!seen.load(SeqCst), "two turns at once");
            return Ok(AfterTurnResult::default());
        }
        seen.store(true, SeqCst);
        reached.send(()).expect("the test listens");
        while !ctx.is_cancelled() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        seen.store(false, SeqCst);
        Err(EngineError::new(ErrorCode::CANCELLED, "as the host wished"))
    };
    let script = Script { after_turn: Some(Box::new(after_turn)), ..whole() };
    let mut host = Host::new(script, ScriptedModel::new(["one", "two"]));
    let (runtime, session) = (host.runtime.clone(), host.session.clone());
    host.block_on(async {
        let mut ignored = |_| ();
        let turn = runtime.run_turn(&session, TurnRequest::text("first"), &mut ignored);
        let reached = tokio::task::spawn_blocking(move || reaches.recv().expect("the engine is asked"));
        tokio::select! {
            _ = turn => unreachable!("the engine does not return before it is told to"),
            reached = reached => reached.expect("joined"),
        }
    });
    host.log.take();
    assert!(host.ask("second").is_answered());
    assert_eq!(host.log.members(), "bootstrap maintain assemble after_turn maintain");
    assert_eq!(host.transcript(), "user first\nassistant one\nuser second\nassistant two");
}
