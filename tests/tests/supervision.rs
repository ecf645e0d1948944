//! Who answers when an engine fails, whose fault it is, and what becomes of the engine.
#![forbid(unsafe_code)]

use std::sync::Arc;

use context_engine_interface::EngineError;
use context_engine_loader::{
    AssembleError, CompactRequest, Creation, HostProfile, Loader, LoaderOptions, OnFailure, Permit, Problem,
    SessionServices, TurnTaken,
};
use context_engine_tests::faulty::{Faulty, a_turn, served_by};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{BUDGET, assemble, assemble_in, history, plain_call, three_turns};
use serde_json::json;

/// Report G5: after a fault in mid-turn the handle still reported the plugin, so nobody compacted.
#[test]
fn after_a_fault_the_handle_is_legacy_in_all_it_reports() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert!(faulty.handle.info().owns_compaction);
    let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    let why = "faulty: assemble: assemble errs on purpose";
    assert_eq!((prompt.served_by.as_str(), prompt.why.as_deref()), ("legacy", Some(why)));
    let info = faulty.handle.info();
    assert_eq!((info.id.as_str(), info.owns_compaction), ("legacy", false));
    assert_eq!(faulty.handle.why().as_deref(), Some(why));
    let compacted = faulty.handle.compact(&plain_call(), CompactRequest::default()).expect("legacy's");
    assert_eq!((compacted.served_by.as_str(), compacted.why.as_deref()), ("legacy", Some(why)));
    assert_eq!(a_turn(&faulty.handle).served_by, "legacy");
    assert_eq!(faulty.handle.bootstrap(&plain_call()).served_by, "legacy");
    assert_eq!(faulty.reached("after_turn") + faulty.reached("bootstrap") + faulty.reached("compact"), 0);
}

#[test]
fn a_lifted_quarantine_gives_a_fresh_instance() {
    for fault in ["error", "panic", "hang", "overlap"] {
        let faulty = Faulty::new(json!({ "assemble": fault }));
        assert_eq!(served_by(&faulty.handle), "legacy", "{fault}");
        faulty.set(json!({}));
        assert_eq!(served_by(&faulty.handle), "legacy", "{fault}: set aside until somebody lifts it");
        faulty.lift_the_quarantine();
        assert_eq!(served_by(&faulty.handle), "faulty", "{fault}");
        assert_eq!(faulty.reached("create"), 2, "{fault}");
    }
}

/// Report G3: a retry must not run side effects twice.
#[test]
fn a_fault_after_side_effects_is_not_tried_again() {
    let faulty = Faulty::new(json!({ "assemble": "side-effect-then-error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert_eq!(faulty.reached("side effect"), 1);
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert_eq!(faulty.reached("side effect"), 1);
}

#[test]
fn three_prompts_over_budget_in_a_row_are_too_many() {
    let faulty = Faulty::new(json!({ "assemble": "over-budget" }));
    for _ in 0..2 {
        let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
        assert_eq!((prompt.served_by.as_str(), prompt.fitted), ("faulty", true));
    }
    faulty.set(json!({}));
    assert!(!assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt").fitted, "one within it");
    faulty.set(json!({ "assemble": "over-budget" }));
    for _ in 0..3 {
        assert_eq!(served_by(&faulty.handle), "faulty", "each is fitted and used");
    }
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert!(faulty.handle.why().expect("a reason").contains("over budget three times in a row"));
}

#[test]
fn a_newest_turn_that_fits_no_budget_is_no_fault_of_the_engines() {
    let faulty = Faulty::new(json!({ "assemble": "over-budget" }));
    let long = format!("user: {}", "many words ".repeat(400));
    for _ in 0..5 {
        let prompt = assemble(&faulty.handle, &history(&["user: a", "assistant: b", &long]), 500).expect("a prompt");
        assert_eq!((prompt.served_by.as_str(), prompt.fitted), ("faulty", true));
    }
}

#[test]
fn a_lie_about_tokens_is_not_believed() {
    let faulty = Faulty::new(json!({ "assemble": "lies-about-tokens" }));
    let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    let honest = assemble(&Faulty::new(json!({})).handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!((prompt.served_by.as_str(), prompt.tokens), ("faulty", honest.tokens));
}

/// A session whose transcript cannot be written just now.
struct Broken;

impl SessionServices for Broken {
    fn complete(&self, _: Permit<'_>, _: &str) -> Result<String, EngineError> {
        Err(EngineError::failed("the provider is overloaded"))
    }
}

#[test]
fn a_service_that_fails_sets_nobody_aside() {
    let faulty = Faulty::new(json!({ "assemble": "unavailable" }));
    let mut call = plain_call();
    call.services = Arc::new(Broken);
    let prompt = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.why.as_deref(), Some("faulty: assemble: the provider is overloaded"));
    assert_eq!(faulty.handle.why(), None);
}

#[test]
fn an_error_of_its_own_is_the_engines_also_when_a_service_failed() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    let mut call = plain_call();
    call.services = Arc::new(Broken);
    assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(faulty.handle.why().as_deref(), Some("faulty: assemble: assemble errs on purpose"));
}

#[test]
fn a_service_this_host_lacks_sets_nobody_aside() {
    let faulty = Faulty::new(json!({ "assemble": "unavailable" }));
    let mut call = plain_call();
    call.services = Arc::new(context_engine_loader::NoServices);
    let prompt = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.served_by, "legacy");
    assert_eq!(prompt.why.as_deref(), Some("faulty: assemble: this host does not offer `complete` here"));
    assert_eq!(faulty.handle.why(), None);
    faulty.set(json!({}));
    assert_eq!(served_by(&faulty.handle), "faulty");
}

/// Report G9: those who prefer no answer to one from the wrong context.
#[test]
fn under_the_strict_policy_no_other_engine_answers() {
    let strict = |options: &mut LoaderOptions| options.on_failure = OnFailure::Stop;
    let faulty = Faulty::with(json!({ "assemble": "error" }), strict);
    let stopped = assemble(&faulty.handle, &three_turns(), BUDGET).expect_err("no prompt");
    assert_eq!(stopped, AssembleError::Stopped { why: "faulty: assemble: assemble errs on purpose".into() });
    let again = assemble(&faulty.handle, &three_turns(), BUDGET).expect_err("no prompt");
    assert_eq!(again, stopped);
    let compacted = faulty.handle.compact(&plain_call(), CompactRequest::default()).expect_err("nor a compaction");
    assert!(compacted.message.contains("legacy does not compact instead"), "{compacted}");

    let missing = faulty.loader.engine("nowhere", &Creation::default()).expect_err("no handle");
    assert!(matches!(missing.problem, Problem::NotFound { .. }), "{missing}");
    let quarantined = faulty.loader.engine("faulty", &faulty.creation).expect_err("no handle");
    assert!(matches!(quarantined.problem, Problem::Quarantined { .. }), "{quarantined}");
    assert_eq!(faulty.loader.engine("legacy", &Creation::default()).expect("legacy was asked for").why(), None);
}

#[test]
fn a_host_that_cannot_do_what_the_engine_requires_does_not_run_it() {
    let host = TestHost::with(&["everything"]);
    let mut options = host.options();
    options.host = HostProfile { label: "a small host".to_owned(), capabilities: ["compact".to_owned()].into() };
    let refused = Loader::new(options).engine("everything", &Creation::default()).expect_err("not run");
    let text = "Context engine \"everything\" cannot run operation \"agent-run\" on a small host. Missing host \
                capabilities: assemble-before-prompt. Required capabilities: assemble-before-prompt. Host capabilities: \
                compact. use another host";
    assert_eq!(refused.problem, Problem::HostCapability { text: text.to_owned() });
    assert_eq!(host.journal("everything"), [], "none of its code ran");
    assert_eq!(host.engine("everything", json!({})).why(), None, "a host that can does");
}

/// Report G2: an engine that fails is set aside once, not once per session.
#[test]
fn an_engine_that_was_set_aside_is_not_opened_for_the_next_session() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    let next = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
    let why = next.why().expect("a reason");
    assert!(why.contains("quarantined since it failed during assemble: assemble errs on purpose"), "{why}");
    assert_eq!(faulty.reached("create"), 1);
    let changed = Creation { config: Some(json!({ "faults": {} })), ..faulty.creation.clone() };
    assert_eq!(faulty.loader.engine("faulty", &changed).expect("a handle").why(), None, "another configuration may do");
}

#[test]
fn an_engine_that_plans_nothing_because_the_newest_turn_is_too_long_stays() {
    let faulty = Faulty::new(json!({ "assemble": "empty" }));
    let long = history(&["user: a", "assistant: b", &format!("user: {}", "many words ".repeat(400))]);
    let prompt = assemble(&faulty.handle, &long, 500).expect("a prompt");
    assert_eq!((prompt.served_by.as_str(), faulty.handle.why()), ("legacy", None));
    assert_eq!(served_by(&faulty.handle), "legacy", "of one that fits, planning nothing is a wrong answer");
    assert!(faulty.handle.why().expect("a reason").contains("sends nothing of a history of 5 messages"));
}

#[test]
fn a_build_that_one_session_has_set_aside_leaves_the_others_after_their_turn() {
    let faulty = Faulty::new(json!({}));
    // Of another workspace, so that it has an instance of its own.
    let elsewhere = Creation { workspace_dir: Some("/elsewhere".into()), ..faulty.creation.clone() };
    let other = faulty.loader.engine("faulty", &elsewhere).expect("a handle");
    assert_eq!(served_by(&other), "faulty");
    faulty.set(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    faulty.set(json!({}));
    assert_eq!(served_by(&other), "faulty", "a turn keeps its engine");
    assert_eq!(a_turn(&other).value, TurnTaken::By("after_turn"));
    assert_eq!(served_by(&other), "legacy");
    assert!(other.why().expect("a reason").contains("faulty was set aside: assemble: assemble errs on purpose"));
}
