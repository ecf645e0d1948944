//! A panic in a plugin, wherever it happens, costs that plugin's answer and nothing else.
//!
//! Decision: everything here runs in one process with the plugins, as a host does. A panic that got through would end the
//! test program, so that a test is there to fail at all is half of what it checks.
#![forbid(unsafe_code)]

use context_engine_interface::{EngineError, ErrorCode};
use context_engine_loader::{EngineHandle, TurnTaken};
use context_engine_tests::build::Build;
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{BUDGET, Services, answer, assemble, call, history, host_params, three_turns};
use serde_json::{Value, json};

const POISONED: &str = "was not called: the engine is poisoned since";

/// A host and its `panics` engine, told where to panic.
fn panics(place: &str) -> (TestHost, EngineHandle) {
    panics_with(place, "text")
}

fn panics_with(place: &str, payload: &str) -> (TestHost, EngineHandle) {
    let host = TestHost::with(&["panics"]);
    let handle = host.engine("panics", json!({ "in": place, "payload": payload }));
    (host, handle)
}

/// Members the engine was asked for, in order.
fn reached(host: &TestHost) -> Vec<String> {
    host.journal("panics").into_iter().map(|(member, _)| member).collect()
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

fn take_turn(handle: &EngineHandle) -> TurnTaken {
    let turn = history(&["user: three", "assistant: tres"]);
    handle.take_turn(call(&Services::default(), &host_params()), &turn, three_turns, BUDGET)
}

#[test]
fn a_panic_in_assemble_is_answered_by_legacy_in_the_same_call() {
    let (host, handle) = panics("assemble");
    let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.served_by, "legacy");
    assert_eq!(prompt.messages.len(), 5);
    let why = prompt.why.expect("a reason");
    says_where(&why, "panics: assemble: `assemble` panicked at ", ": boom in assemble");
    let again = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(again.served_by, "legacy");
    assert!(again.why.expect("a reason").contains(POISONED));
    assert_eq!(reached(&host), ["create", "assemble"], "a poisoned engine is not asked again");
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
    says_where(
        reason,
        "the engine could not be created: `create` panicked at ",
        ": boom in create; look at plugins.entries.<id>.config",
    );
    assert!(answer(&handle).starts_with("legacy | one"));
}

#[test]
fn a_panic_in_a_member_without_an_answer_is_seen_at_the_next_prompt() {
    let (services, params) = (Services::default(), host_params());
    let (host, handle) = panics("bootstrap");
    assert!(handle.bootstrap(call(&services, &params)).is_none());
    assert!(answer(&handle).starts_with("legacy"));
    assert_eq!(reached(&host), ["create", "bootstrap"]);

    let (host, handle) = panics("maintain");
    assert!(handle.maintain(call(&services, &params)).is_none());
    assert!(answer(&handle).starts_with("legacy"));
    assert_eq!(reached(&host), ["create", "maintain"]);
}

#[test]
fn a_panic_in_what_takes_a_turn_fails_the_turn_and_keeps_the_reply() {
    for (place, asked) in [
        ("after_turn", &["create", "after_turn"][..]),
        ("ingest_batch", &["create", "after_turn", "ingest_batch"]),
        // The engine is poisoned at the first of the turn's two messages.
        ("ingest", &["create", "after_turn", "ingest_batch", "ingest"]),
    ] {
        let (host, handle) = panics(place);
        assert_eq!(take_turn(&handle), TurnTaken::Failed, "{place}");
        assert_eq!(reached(&host), asked, "{place}");
        assert!(answer(&handle).starts_with("legacy | one"), "{place}");
    }
}

#[test]
fn a_panic_in_compact_is_reported_and_not_done_again_by_legacy() {
    let (host, handle) = panics("compact");
    let compact = || handle.compact(call(&Services::default(), &host_params()), BUDGET, 90);
    let error = compact().expect_err("the engine's error");
    assert_eq!(error.code, ErrorCode::PANICKED);
    says_where(&error.message, "`compact` panicked at ", ": boom in compact");
    let details: Value = serde_json::from_str(&error.details_json).expect("details");
    assert_eq!(details["member"], "compact");
    assert!(details["location"].as_str().expect("a place").contains("src/lib.rs:"), "{details}");
    assert!(compact().expect_err("poisoned").message.contains(POISONED));
    assert_eq!(reached(&host), ["create", "compact"]);
}

#[test]
fn a_panic_in_dispose_does_not_keep_the_engine_from_being_dropped() {
    let (host, handle) = panics("dispose");
    handle.dispose("shutdown");
    drop(handle);
    assert_eq!(reached(&host), ["create", "dispose", "drop"]);
}

#[test]
fn a_panic_in_drop_ends_there() {
    for payload in ["text", "bomb"] {
        let (host, handle) = panics_with("drop", payload);
        assert!(answer(&handle).starts_with("panics | panics answers"));
        drop(handle);
        assert_eq!(reached(&host), ["create", "assemble", "drop"], "{payload}");
        assert!(answer(&host.engine("panics", json!({}))).starts_with("panics"), "the host goes on");
    }
}

#[test]
fn a_poisoned_engine_is_dropped_as_any_other() {
    let (host, handle) = panics("assemble");
    assert!(answer(&handle).starts_with("legacy"));
    drop(handle);
    assert_eq!(reached(&host), ["create", "assemble", "drop"]);
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
    let (services, params) = (Services { panics: true }, host_params());
    let error = handle.compact(call(&services, &params), BUDGET, 90).expect_err("the host's fault");
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
