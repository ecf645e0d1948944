//! What an engine can do with a session during a call: read it, rewrite it, ask its model, have it compacted.

mod support;

use std::sync::{Arc, Mutex};

use context_engine_interface::{
    AfterTurnResult, BootstrapResult, CompactResult, EngineError, ErrorCode, IngestBatchResult, MaintainResult,
};
use context_engine_runtime::model::{ScriptedModel, Step, Usage};
use serde_json::{Value, json};

use support::{Echo, Host, Script};

/// Ids and texts of the messages an engine reads.
fn read(ctx: &context_engine_interface::CallContext<'_>) -> Vec<(String, String)> {
    let page = ctx.read_transcript(None, 1_000).expect("a page");
    let entries: Vec<Value> = serde_json::from_str(&page).expect("JSON");
    let messages = entries.iter().filter(|entry| entry["type"] == "message");
    let text = |entry: &Value| match &entry["message"]["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    messages.map(|entry| (entry["id"].as_str().expect("an id").to_owned(), text(entry))).collect()
}

fn texts(messages: &[(String, String)]) -> String {
    messages.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" | ")
}

/// Contract §2.1: what is read before a turn is answered ends before the turn; afterwards it is all there.
#[test]
fn an_engine_reads_up_to_the_turn_until_it_is_answered() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = |member: &'static str| {
        let seen = Arc::clone(&seen);
        move |ctx: &context_engine_interface::CallContext<'_>| {
            seen.lock().expect("a list").push(format!("{member}: {}", texts(&read(ctx))));
        }
    };
    let (bootstrap, after, maintain) = (note("bootstrap"), note("after_turn"), note("maintain"));
    let script = Script {
        bootstrap: Some(Box::new(move |ctx, ()| {
            bootstrap(ctx);
            Ok(BootstrapResult::default())
        })),
        after_turn: Some(Box::new(move |ctx, ()| {
            after(ctx);
            Ok(AfterTurnResult::default())
        })),
        maintain: Some(Box::new(move |ctx, ()| {
            maintain(ctx);
            Ok(MaintainResult::default())
        })),
        ..Script::default()
    };
    let mut host = Host::with(script, ScriptedModel::new(["one", "two"]), |options| options.engine = "legacy".into());
    host.ask("first");
    host.runtime.select_engine("probe");
    host.ask("second");
    let seen = seen.lock().expect("a list").join("\n");
    assert_eq!(
        seen,
        "bootstrap: first | one\nmaintain: first | one\n\
         after_turn: first | one | second | two\nmaintain: first | one | second | two"
    );
}

/// Contract §5.3, Part 12 #43: the suffix is written again under new ids, and the conversation is the rewritten one.
#[test]
fn an_engine_rewrites_what_it_cares_for() {
    let answers: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = Arc::clone(&answers);
    let maintain = move |ctx: &context_engine_interface::CallContext<'_>, ()| {
        let messages = read(ctx);
        if messages.len() < 4 {
            return Ok(MaintainResult::default());
        }
        let (id, _) = &messages[1];
        let replacement =
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "1" }], "stopReason": "stop" });
        let request = json!({ "replacements": [{ "entryId": id, "message": replacement }] });
        let answer = ctx.rewrite_transcript(&request.to_string())?;
        noted.lock().expect("a list").push(serde_json::from_str(&answer).expect("JSON"));
        Ok(MaintainResult { changed: true, ..MaintainResult::default() })
    };
    let script = Script {
        maintain: Some(Box::new(maintain)),
        after_turn: Some(Box::new(|_, ()| Ok(AfterTurnResult::default()))),
        ..Script::default()
    };
    let mut host = Host::new(script, ScriptedModel::new(["a long answer", "two", "three"]));
    host.ask("first");
    host.ask("second");
    assert_eq!(host.transcript(), "user first\nassistant 1\nuser second\nassistant two");
    assert!(host.ask("third").is_answered());
    assert_eq!(host.prompt(2), "u:first | a:1 | u:second | a:two | u:third");
    let answer = answers.lock().expect("a list")[0].clone();
    assert_eq!((&answer["changed"], &answer["rewrittenEntries"]), (&json!(true), &json!(1)));
}

#[test]
fn an_engine_that_plans_cannot_rewrite_what_it_plans() {
    let bootstrap = |ctx: &context_engine_interface::CallContext<'_>, ()| {
        let error = ctx.rewrite_transcript("{\"replacements\":[]}").expect_err("refused");
        assert_eq!(error.code, ErrorCode::UNAVAILABLE);
        Ok(BootstrapResult::default())
    };
    let script = Script { bootstrap: Some(Box::new(bootstrap)), ..Script::default() };
    let mut host = Host::with(script, ScriptedModel::new(["one", "two"]), |options| options.engine = "legacy".into());
    host.ask("first");
    host.runtime.select_engine("probe");
    let report = host.ask("second");
    assert_eq!((report.served_by.as_str(), report.why), ("probe", None));
}

/// What the engine's `complete` answers when it asks this.
fn completed(request: Value, steps: Vec<Step>) -> Result<Value, EngineError> {
    let answer: Arc<Mutex<Option<Result<Value, EngineError>>>> = Arc::default();
    let noted = Arc::clone(&answer);
    let maintain = move |ctx: &context_engine_interface::CallContext<'_>, ()| {
        let answer = ctx.complete(&request.to_string());
        *noted.lock().expect("an answer") = Some(answer.map(|json| serde_json::from_str(&json).expect("JSON")));
        Ok(MaintainResult::default())
    };
    let script = Script { maintain: Some(Box::new(maintain)), ..Script::default() };
    let steps = std::iter::once(Step::text("hi")).chain(steps);
    let mut host = Host::new(script, ScriptedModel::new(steps));
    host.ask("hello");
    let answer = answer.lock().expect("an answer").take();
    answer.expect("it asked")
}

/// Contract §1.6.
#[test]
fn an_engine_completes_with_the_sessions_model() {
    let request = json!({
        "messages": [
            { "role": "system", "content": "Short." },
            { "role": "user", "content": "Sum up." },
        ],
        "systemPrompt": "You sum up.",
        "maxTokens": 100,
        "purpose": "context-engine.turn.maintenance",
    });
    let usage = Usage { input: 7, output: 2, cache_read: 3, cache_write: 0 };
    let answer = completed(request, vec![Step::text("All said.").usage(usage)]).expect("an answer");
    assert_eq!(
        (&answer["text"], &answer["model"], &answer["agentId"]),
        (&json!("All said."), &json!("scripted"), &json!("main"))
    );
    assert_eq!((&answer["usage"]["inputTokens"], &answer["usage"]["totalTokens"]), (&json!(7), &json!(12)));
    assert_eq!(answer["audit"]["caller"]["id"], "context-engine.turn.maintenance");
}

#[test]
fn a_completion_that_is_not_the_sessions_is_refused_and_says_why() {
    let ask = |change: Value| {
        let mut request = json!({ "messages": [{ "role": "user", "content": "x" }] });
        request.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        completed(request, vec![Step::unavailable()]).expect_err("refused").message.to_string()
    };
    let other_model = ask(json!({ "model": "gpt-99" }));
    assert_eq!(
        other_model,
        "LLM_COMPLETION_NOT_AUTHORIZED: the session's model is \"scripted/scripted\", and \"gpt-99\" is another one"
    );
    assert!(ask(json!({ "agentId": "other" })).starts_with("LLM_COMPLETION_NOT_AUTHORIZED: the session is of agent"));
    assert!(ask(json!({ "messages": [] })).starts_with("LLM_ISOLATED_INPUT_REJECTED"));
    assert!(
        ask(json!({ "messages": [{ "role": "tool", "content": "x" }] })).contains("expected system, user or assistant")
    );
    assert!(ask(json!({ "model": "scripted" })).starts_with("LLM_RUNTIME_UNAVAILABLE"));
}

/// What is shortened or rewritten during a turn has other ids behind it: the engine is given the turn all the same, under the
/// ids the transcript has, and reads up to it.
#[test]
fn a_turn_survives_that_its_own_entries_are_written_again() {
    let first_id: Arc<Mutex<Option<String>>> = Arc::default();
    let read_first = Arc::clone(&first_id);
    let rewritten = std::sync::atomic::AtomicBool::new(false);
    let maintain = move |ctx: &context_engine_interface::CallContext<'_>, ()| {
        let messages = read(ctx);
        *read_first.lock().expect("an id") = messages.first().map(|(id, _)| id.clone());
        // The maintenance behind `bootstrap`, in the second turn: its own question is in the file already.
        if messages.len() == 2 && !rewritten.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Ok(MaintainResult::default());
        }
        let (id, text) = &messages[0];
        let replacement = json!({ "role": "user", "content": [{ "type": "text", "text": format!("{text}!") }] });
        let request = json!({ "replacements": [{ "entryId": id, "message": replacement }] });
        ctx.rewrite_transcript(&request.to_string())?;
        assert_eq!(read(ctx).len(), messages.len(), "what is read still ends before the turn");
        Ok(MaintainResult { changed: true, ..MaintainResult::default() })
    };
    let script = Script {
        bootstrap: Some(Box::new(|_, ()| Ok(BootstrapResult::default()))),
        maintain: Some(Box::new(maintain)),
        after_turn: Some(Box::new(|_, ()| Ok(AfterTurnResult::default()))),
        ..Script::default()
    };
    let model = ScriptedModel::new([Step::text("one"), Step::unavailable(), Step::text("three")]);
    let mut host = Host::new(script, model);
    host.ask("first");
    host.ask("second");
    let report = host.ask("third");
    let lines = host.log.take();
    let given = lines.iter().rev().find(|line| line.starts_with("after_turn")).expect("it was given the turn");
    assert!(given.ends_with("u:second third | a:three"), "{given}");
    let ids: Vec<String> = host.session.messages().iter().map(|message| message.id.clone()).collect();
    assert!(
        ids.contains(&report.user_entry.expect("an entry")) && ids.contains(&report.reply_entry.expect("an entry"))
    );
}

/// What runs behind a turn writes between turns: not between a call of the next one and its result.
#[test]
fn maintenance_in_the_background_writes_between_turns() {
    let maintain = move |ctx: &context_engine_interface::CallContext<'_>, ()| {
        let messages = read(ctx);
        let (id, text) = &messages[0];
        let replacement = json!({ "role": "user", "content": [{ "type": "text", "text": format!("{text}!") }] });
        let request = json!({ "replacements": [{ "entryId": id, "message": replacement }] });
        // While the next turn runs, in most of the runs of this test.
        std::thread::sleep(std::time::Duration::from_millis(30));
        ctx.rewrite_transcript(&request.to_string()).map(|_| MaintainResult::default())
    };
    let script = Script {
        background: true,
        maintain: Some(Box::new(maintain)),
        after_turn: Some(Box::new(|_, ()| Ok(AfterTurnResult::default()))),
        ..Script::default()
    };
    let slow = |step: Step| step.after(std::time::Duration::from_millis(60));
    let steps = [Step::text("one"), slow(Step::call("c1", "read", json!({}))), slow(Step::text("two"))];
    let mut host =
        Host::with(script, ScriptedModel::new(steps), |options| options.tools = vec![Echo::tool("read", "it")]);
    host.ask_without_settling("first");
    host.ask_without_settling("second");
    host.block_on(host.session.settled());
    let given: Vec<String> = host.log.take().into_iter().filter(|line| line.starts_with("after_turn")).collect();
    assert!(given[1].ends_with("+ u:second | a:read | t:it | a:two"), "{given:?}");
    assert!(host.transcript().starts_with("user first!"), "{}", host.transcript());
}

/// Contract §1.8, Part 12 #28: a compaction of another session is refused before anything is done.
#[test]
fn c28_a_delegated_compaction_is_about_the_session_of_the_call() {
    let forged: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&forged);
    let compact = move |ctx: &context_engine_interface::CallContext<'_>,
                        params: context_engine_interface::CompactParams<'_>| {
        let fields = context_engine_interface::CompactParamsFields {
            session_id: "another".into(),
            token_budget: params.token_budget(),
            ..Default::default()
        };
        let error = fields.lend(|forged| ctx.delegate_compaction(forged)).expect_err("refused");
        noted.lock().expect("a list").push(error.message.to_string());
        ctx.delegate_compaction(params)
    };
    let script = Script { compact: Some(Box::new(compact)), ..Script::default() };
    let words = "word ".repeat(200);
    let model = ScriptedModel::from_fn(move |_| Step::text(words.clone()));
    let mut host = Host::with(script, model, |options| options.keep_recent = Some(10));
    (0..3).for_each(|turn| drop(host.ask(format!("question {turn}").as_str())));
    let result = host.block_on(host.runtime.compact(&host.session, None)).expect("compacted");
    assert!(result.compacted);
    let expected = "Context-engine successor target conflicts with the caller session identity";
    assert_eq!(*forged.lock().expect("a list"), [expected]);
    let params = host.log.params("compact");
    assert_eq!(params.session_target.expect("a target")["agentId"], "main");
    assert!(params.runtime_context.expect("a context").get("currentTokenCount").is_none());
}

/// Report E10: after a restart, the whole history was taken in again as new, and equal texts were taken for one.
#[test]
fn e10_an_engine_can_tell_what_it_knows_by_entry_ids() {
    let stored: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = || {
        let (by_reading, by_batch) = (Arc::clone(&stored), Arc::clone(&stored));
        let take = |stored: &Mutex<Vec<String>>, ids: Vec<String>| {
            let mut stored = stored.lock().expect("a store");
            let new: Vec<String> = ids.into_iter().filter(|id| !stored.contains(id)).collect();
            stored.extend(new);
        };
        Script {
            bootstrap: Some(Box::new(move |ctx, ()| {
                take(&by_reading, read(ctx).into_iter().map(|(id, _)| id).collect());
                Ok(BootstrapResult { bootstrapped: true, ..BootstrapResult::default() })
            })),
            ingest_batch: Some(Box::new(move |ctx, _| {
                take(&by_batch, read(ctx).into_iter().map(|(id, _)| id).collect());
                Ok(IngestBatchResult::default())
            })),
            ..Script::default()
        }
    };
    let mut host = Host::new(script(), ScriptedModel::from_fn(|_| Step::text("ok")));
    (0..100).for_each(|_| assert!(host.ask("ok").is_answered()));
    assert_eq!(stored.lock().expect("a store").len(), 200);
    for restart in 1..=3 {
        host = host.restarted(script(), ScriptedModel::from_fn(|_| Step::text("ok")));
        assert!(host.ask("ok").is_answered());
        assert_eq!(host.log.members().split(' ').next(), Some("bootstrap"));
        assert_eq!(stored.lock().expect("a store").len(), 200 + 2 * restart);
    }
}

/// Contract §7.10, Part 11 #35.
#[test]
fn a_compaction_that_names_another_session_is_refused_and_nothing_changes() {
    let other = |_: &context_engine_interface::CallContext<'_>, _: context_engine_interface::CompactParams<'_>| {
        let session_id = Some("another".into()).into();
        Ok(CompactResult { ok: true, compacted: true, session_id, ..CompactResult::default() })
    };
    let script = Script { owns_compaction: true, compact: Some(Box::new(other)), ..Script::default() };
    let mut host = Host::new(script, ScriptedModel::new(["one"]));
    host.ask("first");
    let error = host.block_on(host.runtime.compact(&host.session, None)).expect_err("refused").to_string();
    assert_eq!(error, "compaction: Context-engine successor target changed the active session binding");
    assert_eq!(host.transcript(), "user first\nassistant one");
}

#[test]
fn an_accepted_compaction_of_the_engines_own_store_leaves_the_transcript_alone() {
    let own = |_: &context_engine_interface::CallContext<'_>, _: context_engine_interface::CompactParams<'_>| {
        let tokens_after = Some(10).into();
        Ok(CompactResult { ok: true, compacted: true, tokens_before: 500, tokens_after, ..CompactResult::default() })
    };
    let script = Script { owns_compaction: true, compact: Some(Box::new(own)), ..Script::default() };
    let mut host = Host::new(script, ScriptedModel::new(["one"]));
    host.ask("first");
    let before = std::fs::read(host.session.path()).expect("a transcript");
    assert!(host.block_on(host.runtime.compact(&host.session, Some("the facts".into()))).expect("an answer").compacted);
    assert_eq!(std::fs::read(host.session.path()).expect("a transcript"), before);
}
