//! A panic in a plugin, wherever it happens, costs that plugin's answer and nothing else.
//!
//! Decision: everything here runs in one process with the plugins, as a host does. A panic that got through would end the
//! test program, so that a test is there to fail at all is half of what it checks.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use context_engine_interface::{EngineError, ErrorCode};
use context_engine_loader::{EngineHandle, TurnTaken};
use context_engine_tests::build::Build;
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{
    BUDGET, Services, answer, assemble, call, compact, history, host_params, plain_call, take_turn, three_turns,
};
use serde_json::{Value, json};

/// A host and its `panics` engine, told where to panic.
fn panics(place: &str) -> (TestHost, EngineHandle) {
    panics_with(place, "text")
}

fn panics_with(place: &str, payload: &str) -> (TestHost, EngineHandle) {
    let host = TestHost::with(&["panics"]);
    let handle = host.engine("panics", json!({ "in": place, "payload": payload }));
    (host, handle)
}

/// Waits until these members, and no others, were reached in this order. What an engine that was set aside still does is
/// done on its own threads.
#[track_caller]
fn reached(host: &TestHost, expected: &[&str]) {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let found: Vec<String> = host.journal("panics").into_iter().map(|(member, _)| member).collect();
        if found == expected || Instant::now() > patience {
            assert_eq!(found, expected);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that `text` says what panicked, where, and with which words.
#[track_caller]
fn says_where(text: &str, start: &str, end: &str) {
    let place = text.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    let place = place.unwrap_or_else(|| panic!("expected `{start}<place>{end}`, found {text:?}"));
    let parts: Vec<&str> = place.rsplitn(3, ':').collect();
    let numbers = parts.len() == 3 && parts[..2].iter().all(|number| number.parse::<u32>().is_ok());
    assert!(numbers && parts[2].ends_with("src/lib.rs"), "expected file:line:column, found {place:?}");
}

fn turn_taken(handle: &EngineHandle) -> TurnTaken {
    take_turn(handle, &plain_call(), history(&["user: three", "assistant: tres"])).value
}

/// Report H13: a panic in a plugin takes the whole host down.
#[test]
fn a_panic_in_assemble_is_answered_by_legacy_in_the_same_call() {
    let (host, handle) = panics("assemble");
    let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.served_by, "legacy");
    assert_eq!(prompt.messages.len(), 5);
    let why = prompt.why.expect("a reason");
    says_where(&why, "panics: assemble: `assemble` panicked at ", ": boom in assemble");
    let again = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!((again.served_by.as_str(), again.why), ("legacy", Some(why)));
    reached(&host, &["create", "assemble", "drop"]);
}

#[test]
fn a_payload_that_is_no_text_is_still_a_reason() {
    for payload in ["number", "bomb"] {
        let (_host, handle) = panics_with("assemble", payload);
        let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
        let why = prompt.why.expect("a reason");
        says_where(&why, "panics: assemble: `assemble` panicked at ", ": a payload that is no text");
    }
}

#[test]
fn a_panic_while_the_engine_is_created_leaves_legacy_to_answer() {
    let (_host, handle) = panics("create");
    let why = handle.why().expect("a reason").to_owned();
    let (_, reason) = why.split_once(": open: ").expect("path and step first");
    let to_do = ": boom in create; report it to the engine's author, or use another build";
    says_where(reason, "create: `create` panicked at ", to_do);
    assert!(answer(&handle).starts_with("legacy | one"));
}

#[test]
fn a_panic_in_a_member_without_an_answer_is_said_at_once_and_at_the_next_prompt() {
    let (host, handle) = panics("bootstrap");
    let answer_of = handle.bootstrap(&plain_call());
    assert_eq!(answer_of.served_by, "legacy");
    let reason = answer_of.value.expect("legacy's answer").reason.into_option();
    assert_eq!(reason.as_deref(), Some("context engine downgraded to legacy"));
    says_where(&answer_of.why.expect("a reason"), "panics: bootstrap: `bootstrap` panicked at ", ": boom in bootstrap");
    assert!(answer(&handle).starts_with("legacy"));
    reached(&host, &["create", "bootstrap", "drop"]);

    let (host, handle) = panics("maintain");
    assert_eq!(handle.maintain(&plain_call()).served_by, "legacy");
    assert!(answer(&handle).starts_with("legacy"));
    reached(&host, &["create", "maintain", "drop"]);
}

#[test]
fn a_panic_in_what_takes_a_turn_fails_the_turn_and_keeps_the_reply() {
    for (place, asked) in [
        ("after_turn", &["create", "after_turn", "drop"][..]),
        ("ingest_batch", &["create", "after_turn", "ingest_batch", "drop"]),
        // At the first of the turn's two messages.
        ("ingest", &["create", "after_turn", "ingest_batch", "ingest", "drop"]),
    ] {
        let (host, handle) = panics(place);
        assert_eq!(turn_taken(&handle), TurnTaken::Failed, "{place}");
        reached(&host, asked);
        assert!(answer(&handle).starts_with("legacy | one"), "{place}");
    }
}

#[test]
fn a_panic_in_compact_is_reported_and_not_done_again_by_legacy() {
    let (host, handle) = panics("compact");
    let error = compact(&handle, &plain_call()).expect_err("the engine's error");
    assert_eq!(error.code, ErrorCode::PANICKED);
    says_where(&error.message, "`compact` panicked at ", ": boom in compact");
    let details: Value = serde_json::from_str(&error.details_json).expect("details");
    assert_eq!(details["member"], "compact");
    assert!(details["location"].as_str().expect("a place").contains("src/lib.rs:"), "{details}");
    let next = compact(&handle, &plain_call()).expect("the next one is legacy's");
    assert!(next.reason.as_deref().unwrap_or("").contains("\"tokenBudget\":8000"), "{next:?}");
    reached(&host, &["create", "compact", "drop"]);
}

#[test]
fn a_panic_in_dispose_does_not_keep_the_engine_from_being_dropped() {
    let (host, handle) = panics("dispose");
    assert!(handle.dispose("shutdown").expect_err("the panic").message.contains("boom in dispose"));
    drop(handle);
    reached(&host, &["create", "dispose", "drop"]);
}

#[test]
fn a_panic_in_drop_ends_there() {
    for payload in ["text", "bomb"] {
        let (host, handle) = panics_with("drop", payload);
        assert!(answer(&handle).starts_with("panics | panics answers"));
        drop(handle);
        reached(&host, &["create", "assemble", "dispose", "drop"]);
        assert!(answer(&host.engine("panics", json!({}))).starts_with("panics"), "the host goes on");
    }
}

#[test]
fn a_panic_in_a_thread_of_the_engines_own_is_the_engines_affair() {
    let (_host, handle) = panics("thread");
    assert!(answer(&handle).starts_with("panics | panics answers"));
}

#[test]
fn a_panic_in_a_tool_becomes_an_error_of_the_tool() {
    use context_engine_interface::ToolCallParamsFields;
    use context_engine_interface::abi::module::Extension;
    let host = TestHost::with(&["everything"]);
    let engine = context_engine_tests::boundary::create(&host, "everything", &json!({})).expect("an engine");
    let table = context_engine_tests::boundary::module(&host, "everything").extension()("tools".into(), 1);
    let Ok(Extension::Tools1(tools)) = table.into_option().expect("tools").into_enum() else { panic!("tools/1") };
    let called: Result<_, EngineError> = context_engine_interface::CallContext::lend(&Services::default(), |ctx| {
        let fields = ToolCallParamsFields { name: "panic".into(), arguments_json: "{}".into(), ..Default::default() };
        fields.lend(|params| tools.call()(engine.object(), ctx, params)).into_result()
    });
    let error = called.expect_err("the panic");
    says_where(&error.message, "`call_tool` panicked at ", ": boom in a tool");
}

#[test]
fn a_host_service_that_panics_is_an_error_of_the_engines_call() {
    let host = TestHost::with(&["everything"]);
    let handle = host.engine("everything", json!({}));
    let broken = call(Services { panics: true }, host_params());
    let error = compact(&handle, &broken).expect_err("the host's fault");
    assert_eq!(error.message, "the host's `delegate_compaction` panicked: boom in the host");
    let completed = &host.given("everything", "compact")["completed"];
    assert_eq!(completed, "error 1: the host's `complete` panicked: boom in the host");
    assert!(answer(&handle).starts_with("everything"), "the engine did nothing wrong");
}

#[test]
fn an_engine_that_aborts_on_panic_does_not_compile() {
    let build = Build::engines("test-plugins").cargo("rustc").arg("--package=alpha").arg("--").arg("-Cpanic=abort");
    let output = build.output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it was built");
    assert!(said.contains("an engine must be built with panic = \"unwind\""), "{said}");
}
