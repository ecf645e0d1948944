//! Every member of the contract, across a real boundary: what the host sends arrives, what the engine answers returns.
//!
//! Decision: the engine writes down what it was given and the test compares all of it, so a parameter that is swapped,
//! dropped or misread on either side shows up, whichever member it belongs to. Members the supervisor does not call yet
//! are called without it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use context_engine_interface::abi::module::Extension;
use context_engine_interface::{
    CallContext, CommitStatus, CommitTurnParamsFields, ContextEngine, DisposeParamsFields, ErrorCode, HostParams,
    PrepareSubagentSpawnParamsFields, RollbackSubagentSpawnParamsFields, SubagentEndedParamsFields,
    ToolCallParamsFields, ToolsListParamsFields,
};
use context_engine_loader::{
    Answer, CompactRequest, CompactTarget, PreparedHistory, Projection, ProjectionMode, TurnTaken,
};
use context_engine_tests::boundary;
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{BUDGET, Services, assemble, compact, history, messages, plain_call, three_turns};
use context_engine_transcript::TokenCounter;
use serde_json::{Value, json};

/// What `acceptedHostParams` of the engine lets through.
fn accepted() -> Value {
    json!({ "sessionKey": "agent:main:x", "prompt": "three" })
}

fn everything() -> TestHost {
    TestHost::with(&["everything"])
}

#[test]
fn assemble_is_given_the_history_and_answers_with_more_than_messages() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
    let given = host.given("everything", "assemble");
    let messages = json!([
        ["e1", "user", ["one"], true],
        ["e2", "assistant", ["uno"], true],
        ["e3", "user", ["two"], true],
        ["e4", "assistant", ["dos"], true],
        ["e5", "user", ["three"], true],
    ]);
    assert_eq!(given["messages"], messages);
    assert_eq!(given["session"], "s1");
    assert_eq!(given["tools"], json!(["read", "exec"]));
    assert_eq!(given["model"], "gpt-4o");
    assert_eq!((&given["cancelled"], &given["seconds left"]), (&json!(false), &json!(9)));
    assert_eq!(given["memory"], "remember the milk");
    assert_eq!(given["host"], accepted());
    assert!(given["budget"].as_u64().is_some_and(|budget| budget <= BUDGET), "{given}");
    assert_eq!(prompt.system_prompt_addition.as_deref(), Some("an addition"));
    assert!(prompt.may_overflow);
    let projection =
        Projection { mode: ProjectionMode::ThreadBootstrap, epoch: Some("epoch-1".into()), fingerprint: None };
    assert_eq!(prompt.projection, Some(projection));
    // It names a message it keeps as the source of its summary: that one is not summarised.
    assert_eq!((prompt.summarised, prompt.left_out), (0, 0));
}

#[test]
fn a_prompt_the_host_had_to_fit_is_not_the_one_the_engine_projects() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let long = format!("user: {}", "many words ".repeat(400));
    let prompt = assemble(&handle, &history(&[&long, "assistant: b", "user: c"]), 500).expect("a prompt");
    assert_eq!((prompt.served_by.as_str(), prompt.fitted, prompt.projection), ("everything", true, None));
}

#[test]
fn a_history_of_many_chunks_arrives_in_order() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let lines: Vec<String> = (0..1_000).map(|i| format!("user: message {i}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assemble(&handle, &history(&lines), 100_000).expect("a prompt");
    let given = host.given("everything", "assemble");
    let texts = given["messages"].as_array().expect("messages").iter().map(|message| message[2][0].clone());
    assert!(texts.eq((0..1_000).map(|i| format!("message {i}"))), "{given}");
}

#[test]
fn no_messages_and_odd_ones_cross_as_they_are() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let odd = "\u{0}\u{202e}größe 🦀 \u{fffd}";
    let odd_line = format!("user: {odd}");
    let prompt = assemble(&handle, &history(&["user: a", "toolResult: lone", &odd_line]), BUDGET).expect("a prompt");
    assert_eq!(host.given("everything", "assemble")["messages"][2], json!(["e3", "user", [odd], true]));
    assert!(prompt.messages.iter().any(|message| message.text().contains(odd)));
    assemble(&handle, &history(&[]), BUDGET).expect("a prompt");
    assert_eq!(host.given("everything", "assemble")["messages"], json!([]));
}

#[test]
fn bootstrap_and_maintain_are_given_the_session_and_reach_the_transcript() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let answer = handle.bootstrap(&plain_call());
    assert_eq!((answer.served_by.as_str(), answer.why), ("everything", None));
    let taken = answer.value.expect("an answer");
    assert_eq!((taken.bootstrapped, taken.imported_messages.into_option()), (true, Some(3)));
    assert_eq!(
        host.given("everything", "bootstrap"),
        json!({ "session": "s1", "file": "s1.jsonl", "host": accepted() })
    );
    let kept = handle.maintain(&plain_call()).value.expect("an answer");
    assert_eq!((kept.changed, kept.bytes_freed, kept.rewritten_entries), (true, 11, 2));
    let given = host.given("everything", "maintain");
    assert_eq!(given["rewritten"], r#"rewrote {"replacements":[]}"#);
    assert_eq!(given["read"], "2 entries after e1");
}

#[test]
fn compact_is_given_the_budget_and_may_delegate() {
    let host = everything();
    let handle = host.engine("everything", json!({}));
    let result = compact(&handle, &plain_call()).expect("an answer");
    let mut given = json!({
        "session": "s1", "budget": BUDGET, "force": true, "tokens": 90, "agent": null, "target": 0,
        "instructions": null, "completed": r#"completed {"prompt":"summarise"}"#,
    });
    assert_eq!(host.given("everything", "compact"), given);
    assert!(result.ok && result.compacted);
    let request: Value = serde_json::from_str(result.reason.as_deref().unwrap_or("")).expect("the delegated request");
    assert_eq!((&request["sessionId"], &request["tokenBudget"]), (&json!("s1"), &json!(BUDGET)));

    let asked = CompactRequest {
        token_budget: BUDGET,
        manual: true,
        target: CompactTarget::Threshold,
        custom_instructions: Some("keep the file names".to_owned()),
        agent_id: Some("main".to_owned()),
        ..CompactRequest::default()
    };
    handle.compact(&plain_call(), asked).expect("an answer");
    for (key, value) in [
        ("force", json!(false)),
        ("tokens", json!(0)),
        ("agent", json!("main")),
        ("target", json!(1)),
        ("instructions", json!("keep the file names")),
    ] {
        given[key] = value;
    }
    assert_eq!(host.given("everything", "compact"), given);
}

#[test]
fn a_finished_turn_is_handed_over_by_the_first_member_there_is() {
    let said = messages(&["user: one", "assistant: uno", "user: three", "assistant: tres"]);
    let turn = Arc::new(PreparedHistory::new(said[2..].to_vec(), &TokenCounter::for_model(None)));
    let whole = || Arc::new(PreparedHistory::new(said.clone(), &TokenCounter::for_model(None)));
    let by = |member, engine: &str| Answer { value: TurnTaken::By(member), served_by: engine.into(), why: None };

    let host = everything();
    let handle = host.engine("everything", json!({}));
    assert_eq!(handle.take_turn(&plain_call(), &turn, whole, BUDGET), by("after_turn", "everything"));
    let given = host.given("everything", "after_turn");
    assert_eq!((&given["before"], &given["budget"], &given["summary"]), (&json!(2), &json!(BUDGET), &Value::Null));
    assert_eq!((&given["heartbeat"], given["messages"].as_array().map(Vec::len)), (&json!(false), Some(4)));

    let host = TestHost::with(&["strict"]);
    let handle = host.engine("strict", Value::Null);
    for _ in 0..2 {
        assert_eq!(handle.take_turn(&plain_call(), &turn, whole, BUDGET), by("ingest", "strict"));
    }
    assert_eq!(host.journal("strict").len(), 4, "two messages a turn, one by one");
}

#[test]
fn the_members_around_turns_and_children_cross_the_boundary() {
    let host = everything();
    let engine = boundary::create(&host, "everything", &json!({})).expect("an engine");
    let services = Services::default();
    let chunks = context_engine_interface::ViewChunks::build(&messages(&["user: three", "assistant: tres"]));
    let index = chunks.index();

    let commit = CommitTurnParamsFields {
        session_id: "s1".into(),
        advancement_key: "turn-3".into(),
        admission_json: r#"{"entry":"e5"}"#.into(),
        terminal_json: r#"{"entry":"e6"}"#.into(),
        messages: index.messages(),
        is_heartbeat: false,
        host_params: HostParams::from_json(r#"{"sessionKey":"k"}"#),
    };
    let committed = CallContext::lend(&services, |ctx| commit.lend(|params| engine.commit_turn(ctx, params)));
    assert_eq!(committed.expect("an answer").status, CommitStatus::COMMITTED);
    let given = host.given("everything", "commit_turn");
    assert_eq!((&given["key"], &given["admission"]), (&json!("turn-3"), &json!(r#"{"entry":"e5"}"#)));
    assert_eq!(
        (&given["terminal"], given["messages"].as_array().map(Vec::len)),
        (&json!(r#"{"entry":"e6"}"#), Some(2))
    );

    let spawn = PrepareSubagentSpawnParamsFields {
        parent_session_key: "agent:main:x".into(),
        child_session_key: "agent:main:child".into(),
        context_mode: Some("fork".into()).into(),
        ttl_ms: Some(60_000).into(),
        ..Default::default()
    };
    let prepared = CallContext::lend(&services, |ctx| spawn.lend(|params| engine.prepare_subagent_spawn(ctx, params)));
    let token = prepared.expect("an answer").rollback_token.into_option();
    assert_eq!(token, Some(41));
    let given = json!({ "parent": "agent:main:x", "child": "agent:main:child", "mode": "fork", "ttl": 60_000 });
    assert_eq!(host.given("everything", "prepare_subagent_spawn"), given);

    CallContext::lend(&services, |ctx| {
        let fields = RollbackSubagentSpawnParamsFields { token: 41, ..Default::default() };
        fields.lend(|params| engine.rollback_subagent_spawn(ctx, params))
    })
    .expect("undone");
    assert_eq!(host.given("everything", "rollback_subagent_spawn"), 41);

    let ended = SubagentEndedParamsFields {
        child_session_key: "agent:main:child".into(),
        reason: "completed".into(),
        ..Default::default()
    };
    CallContext::lend(&services, |ctx| ended.lend(|params| engine.on_subagent_ended(ctx, params))).expect("told");
    let given = json!({ "child": "agent:main:child", "reason": "completed" });
    assert_eq!(host.given("everything", "on_subagent_ended"), given);

    CallContext::lend(&services, |ctx| {
        let fields = DisposeParamsFields { reason: "reload".into(), ..Default::default() };
        fields.lend(|params| engine.dispose(ctx, params))
    })
    .expect("disposed");
    assert_eq!(host.journal("everything").last().expect("a call").0, "dispose");
    assert_eq!(host.given("everything", "dispose"), "reload");
}

#[test]
fn a_member_an_engine_leaves_out_answers_unsupported() {
    let host = TestHost::with(&["alpha"]);
    let engine = boundary::create(&host, "alpha", &Value::Null).expect("an engine");
    let error = CallContext::lend(&Services::default(), |ctx| {
        let fields = RollbackSubagentSpawnParamsFields::default();
        fields.lend(|params| engine.rollback_subagent_spawn(ctx, params))
    });
    let error = error.expect_err("no such member");
    assert_eq!((error.code, &*error.message), (ErrorCode::UNSUPPORTED, "`rollback_subagent_spawn` is not supported"));
    let handle = host.engine("alpha", Value::Null);
    assert!(handle.bootstrap(&plain_call()).value.is_none());
    assert_eq!(handle.info().id, "alpha", "a member left out is no failure");
}

#[test]
fn an_extension_nobody_knows_answers_nothing() {
    let host = TestHost::with(&["alpha", "everything"]);
    for (id, extension, version) in [
        ("everything", "nonsense", 1),
        ("everything", "tools", 2),
        ("everything", "tools", 0),
        ("everything", "", 1),
        ("everything", "tools/1", 1),
        ("alpha", "tools", 1),
        ("alpha", "nonsense", 1),
    ] {
        let table = boundary::module(&host, id).extension()(extension.into(), version);
        assert!(table.into_option().is_none(), "{id}: {extension}/{version}");
    }
    let long = "x".repeat(1 << 20);
    assert!(boundary::module(&host, "everything").extension()(long.as_str().into(), 1).into_option().is_none());
}

#[test]
fn tools_are_listed_and_run() {
    let host = TestHost::with(&["alpha", "everything"]);
    let engine = boundary::create(&host, "everything", &json!({})).expect("an engine");
    let table = boundary::module(&host, "everything").extension()("tools".into(), 1).into_option().expect("tools/1");
    let Ok(Extension::Tools1(tools)) = table.into_enum() else { panic!("tools/1 is a table of tools") };
    let listed = CallContext::lend(&Services::default(), |ctx| {
        let fields = ToolsListParamsFields { session_id: "s1".into(), ..Default::default() };
        fields.lend(|params| tools.list()(engine.object(), ctx, params)).into_result()
    });
    let listed = listed.expect("a list");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed[0]["name"], "recall");

    let run = |object, name: &str| {
        CallContext::lend(&Services::default(), |ctx| {
            let arguments = r#"{"q":1}"#;
            let fields =
                ToolCallParamsFields { name: name.into(), arguments_json: arguments.into(), ..Default::default() };
            fields.lend(|params| tools.call()(object, ctx, params)).into_result()
        })
    };
    let blocks: Value = serde_json::from_str(&run(engine.object(), "recall").expect("blocks")).expect("JSON");
    assert_eq!(blocks[0]["text"], r#"recalled {"q":1}, cancelled: false"#);
    assert_eq!(&*run(engine.object(), "other").expect_err("refused").message, "no tool called \"other\"");

    let alpha = boundary::create(&host, "alpha", &Value::Null).expect("an engine");
    let foreign = run(alpha.object(), "recall").expect_err("refused");
    assert_eq!(&*foreign.message, "the engine instance was not created by this plugin");
}

#[test]
fn the_record_says_all_the_engine_declares() {
    let host = everything();
    let ran = host.run([
        "plugins",
        "inspect",
        host.plugins().join(context_engine_tests::build::library_name("everything")).to_str().expect("text"),
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let record = &ran.json()["inspection"]["record"];
    let engine = json!({
        "id": "everything",
        "name": "Everything \"quoted\"",
        "version": "0.1.0",
        "ownsCompaction": true,
        "acceptedHostParams": ["sessionKey", "prompt"],
        "turnMaintenanceMode": "background",
        "transcriptSemantics": {
            "currentTurnFence": "before-current-turn-entry-v1",
            "turnAdvancementIdempotency": "atomic-idempotent-v1",
        },
        "hostRequirements": [{
            "operation": "agent-run",
            "requiredCapabilities": ["assemble-before-prompt"],
            "unsupportedMessage": "use another host",
        }],
    });
    assert_eq!(record["engine"], engine);
    assert_eq!((&record["extensions"], &record["panic"]), (&json!(["tools/1"]), &json!("unwind")));
}
