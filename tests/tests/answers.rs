//! Answers no host may believe as they are: wrong plans, errors, and a refusal of what the host sends.
//!
//! Decision: what can be mended is mended and said (a pair, a prompt that is too long); what cannot is answered by
//! `legacy` in the same call, from the history alone. A call is repeated only when nothing of the engine has run.
#![forbid(unsafe_code)]

use context_engine_interface::ErrorCode;
use context_engine_loader::Assembled;
use context_engine_tests::build::{example, library_name, workspace};
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::prompts::check_prompt;
use context_engine_tests::session::{BUDGET, Services, answer, assemble, call, compact, plain_call, three_turns};
use serde_json::{Map, Value, json};

/// The prompt the host makes of the plan called `plan`.
fn liar(plan: &str) -> Assembled {
    let host = TestHost::with(&["liar"]);
    let handle = host.engine("liar", json!({ "plan": plan }));
    let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    assert!(prompt.tokens <= BUDGET, "{plan}: {} tokens", prompt.tokens);
    assert_eq!(check(&prompt), Vec::<String>::new(), "{plan}");
    prompt
}

/// What a provider would say to the prompt.
fn check(prompt: &Assembled) -> Vec<String> {
    let messages: Vec<Value> = prompt.messages.iter().map(|message| message.to_value()).collect();
    check_prompt(&json!({ "system": prompt.system_prompt_addition, "messages": messages }), BUDGET)
}

#[test]
fn a_plan_that_is_wrong_is_answered_by_legacy_with_the_reason() {
    let ascend = "indices ascend and never overlap";
    for (plan, reason) in [
        ("overlap", format!("step 1 of the plan takes message 1, expected one from 2 to 4: {ascend}")),
        ("backwards", format!("step 1 of the plan takes message 0, expected one from 2 to 4: {ascend}")),
        ("past the end", format!("step 0 of the plan takes message 5, expected one from 0 to 4: {ascend}")),
        ("too long", "step 0 of the plan keeps 6 messages from 0, the history has 5".into()),
        ("length wraps", "step 0 of the plan keeps 4294967295 messages from 1, the history has 5".into()),
        ("replaces twice", format!("step 1 of the plan takes message 0, expected one from 1 to 4: {ascend}")),
        ("no json", "step 1 of the plan holds no message: EOF while parsing a value at line 1 column 8".into()),
        ("no object", "step 1 of the plan holds no message: its JSON is no object".into()),
        ("no role", "step 1 of the plan holds no message: message \"inserted-1\": expected a `role` string; repair or remove that entry".into()),
        ("empty", "the plan sends nothing of a history of 5 messages".into()),
        ("keeps nothing", "the plan sends nothing of a history of 5 messages".into()),
        ("unknown step", "step 1 of the plan has kind 99, which this host does not know".into()),
    ] {
        let prompt = liar(plan);
        assert_eq!(prompt.served_by, "legacy", "{plan}");
        assert_eq!(prompt.why, Some(format!("liar: assemble: {reason}")), "{plan}");
        let texts: Vec<String> = prompt.messages.iter().map(|message| message.text()).collect();
        assert_eq!(texts, ["one", "uno", "two", "dos", "three"], "{plan}");
    }
}

#[test]
fn a_pair_the_plan_breaks_is_mended_and_counted() {
    for plan in ["orphan result", "orphan call"] {
        let prompt = liar(plan);
        assert_eq!((prompt.served_by.as_str(), prompt.why), ("liar", None), "{plan}");
        assert_eq!(prompt.repaired, 1, "{plan}");
    }
}

#[test]
fn a_prompt_over_budget_is_fitted_and_said_to_be() {
    let prompt = liar("over budget");
    assert_eq!(prompt.served_by, "liar");
    assert!(prompt.fitted);
    assert!(prompt.messages.last().expect("messages").text().ends_with("three"), "the newest message must stay");
    assert!(!liar("assistant last").fitted);
}

#[test]
fn a_system_prompt_addition_over_budget_does_not_push_the_messages_out() {
    let prompt = liar("addition over budget");
    assert_eq!(prompt.served_by, "legacy");
    let why = prompt.why.expect("a reason");
    let addition = "the system prompt addition takes 100001 of 8000 tokens and leaves no room for messages";
    assert_eq!(why, format!("liar: assemble: {addition}"));

    // Room, but not for the newest message: legacy has all of it.
    let prompt = liar("addition of 7990 words");
    assert_eq!((prompt.served_by.as_str(), prompt.messages.len()), ("legacy", 5));
    assert!(prompt.why.expect("a reason").contains("cannot hold the newest message"));
}

#[test]
fn a_prompt_that_would_end_in_an_assistant_message_gets_something_to_answer() {
    let prompt = liar("assistant last");
    assert_eq!(prompt.served_by, "liar");
}

#[test]
fn an_error_is_answered_by_legacy_and_asked_for_once() {
    let codes = [
        ErrorCode::FAILED,
        ErrorCode::UNKNOWN_HOST_PARAM,
        ErrorCode::CANCELLED,
        ErrorCode::PANICKED,
        ErrorCode::UNSUPPORTED,
        ErrorCode(0),
        ErrorCode(4_000_000_000),
    ];
    for code in codes {
        let host = TestHost::with(&["errs"]);
        let handle = host.engine("errs", json!({ "code": code.0 }));
        let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
        assert_eq!(prompt.served_by, "legacy", "{code:?}");
        assert_eq!(prompt.why.as_deref(), Some("errs: assemble: assemble errs on purpose"), "{code:?}");
        assert_eq!(host.journal("errs").len(), 1, "{code:?}: only a refusal before the engine ran is tried again");
    }
}

#[test]
fn codes_that_only_the_guard_may_mint_arrive_as_failed() {
    let arrives = |code: ErrorCode| {
        let host = TestHost::with(&["errs"]);
        let handle = host.engine("errs", json!({ "code": code.0 }));
        let compacted = compact(&handle, &plain_call());
        assert_eq!(host.journal("errs").len(), 1);
        compacted.expect_err("the engine's error").code
    };
    assert_eq!(arrives(ErrorCode::UNKNOWN_HOST_PARAM), ErrorCode::FAILED);
    assert_eq!(arrives(ErrorCode::PANICKED), ErrorCode::FAILED);
    assert_eq!(arrives(ErrorCode::CANCELLED), ErrorCode::CANCELLED);
    assert_eq!(arrives(ErrorCode(77)), ErrorCode(77));
}

#[test]
fn a_host_param_an_older_engine_refuses_is_left_out_and_its_code_runs_once() {
    let host = TestHost::with(&["strict"]);
    let handle = host.engine("strict", Value::Null);
    for _ in 0..2 {
        assert!(answer(&handle).starts_with("strict | strict answers"));
    }
    let known = json!({ "sessionKey": "agent:main:x", "prompt": "three" });
    let each = ("assemble".to_owned(), known);
    assert_eq!(host.journal("strict"), [each.clone(), each]);
}

#[test]
fn a_refused_host_param_is_left_out_of_every_other_member_too() {
    let host = TestHost::with(&["strict"]);
    let handle = host.engine("strict", Value::Null);
    compact(&handle, &plain_call()).expect("compacted");
    assert!(answer(&handle).starts_with("strict"));
    let members: Vec<String> = host.journal("strict").into_iter().map(|(member, _)| member).collect();
    assert_eq!(members, ["compact", "assemble"]);
    assert_eq!(host.given("strict", "compact"), host.given("strict", "assemble"));
}

#[test]
fn two_refused_host_params_cost_one_refusal_each_and_no_side_effect_happens_twice() {
    let host = TestHost::with(&["strict-two"]);
    let handle = host.engine("strict-two", Value::Null);
    for _ in 0..2 {
        assert!(answer(&handle).starts_with("strict-two | strict-two answers"));
    }
    compact(&handle, &plain_call()).expect("compacted");
    let known = || json!({ "sessionKey": "agent:main:x" });
    let each = ["assemble", "assemble", "compact"].map(|member| (member.to_owned(), known()));
    assert_eq!(host.journal("strict-two"), each);

    // Another process, the same build: it is known what it refuses.
    let ran = replay_demo(&host, "strict-two");
    assert_eq!(refusals(&ran), Vec::<&str>::new(), "{}", ran.err);
    let said = host.run(["doctor"]).out;
    assert!(said.contains("called without prompt, runtimeSettings, which this build refuses"), "{said}");
}

#[test]
fn an_engine_from_before_runtime_settings_serves_every_call() {
    let host = TestHost::new();
    std::fs::copy(example("strict-v0"), host.plugins().join(library_name("strict-v0"))).expect("copied");
    let ran = replay_demo(&host, "strict-v0");
    assert_eq!(refusals(&ran), ["runtimeSettings"], "{}", ran.err);
    assert_eq!(answer(&host.engine("strict-v0", Value::Null)), "strict-v0 | one | uno | two | dos | three");
}

/// Replays the demo session, saying what is done.
fn replay_demo(host: &TestHost, engine: &str) -> Ran {
    let session = workspace().join("cli/demo/session.jsonl");
    let budget = "--budget=200k";
    let ran = host.run([
        "replay".as_ref(),
        session.as_os_str(),
        "--engine".as_ref(),
        engine.as_ref(),
        budget.as_ref(),
        "-v".as_ref(),
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran
}

/// The host params that were refused, one for each refusal.
fn refusals(ran: &Ran) -> Vec<&str> {
    let lines = ran.err.lines().filter(|line| line.contains("refuses this host param"));
    lines.map(|line| line.split("key=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(line)).collect()
}

#[test]
fn a_host_param_nobody_owns_is_no_reason_to_ask_again() {
    let host = TestHost::with(&["strict"]);
    let handle = host.engine("strict", Value::Null);
    let params: Map<String, Value> = [("houseRules".to_owned(), json!(1))].into_iter().collect();
    let refused = compact(&handle, &call(Services::default(), params)).expect_err("refused");
    assert_eq!(refused.code, ErrorCode::UNKNOWN_HOST_PARAM);
    assert_eq!(refused.message, "unknown host param `houseRules`; this engine knows sessionKey, prompt");
    assert_eq!(host.journal("strict"), []);
}

#[test]
fn a_refused_host_param_is_found_out_once_for_a_whole_session() {
    let host = TestHost::with(&["strict"]);
    let ran = replay_demo(&host, "strict");
    assert_eq!(refusals(&ran), ["runtimeSettings"], "{}", ran.err);
    let calls = host.journal("strict").iter().filter(|(member, _)| member == "assemble").count();
    let calls_line = ran.out.lines().last().expect("a summary");
    assert!(calls_line.contains(&format!("{calls} calls")), "each call must run the engine once: {calls_line}");
}
