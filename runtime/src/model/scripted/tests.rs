//! Scripts, windows and strictness.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Wake;
use std::thread::Thread;
use std::time::Instant;

use context_engine_transcript::Message;
use serde_json::{Value, json};

use super::*;
use crate::model::{StopReason, ToolSpec, Usage};

/// Runs a future to its end on this thread, without any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn ask(model: &ScriptedModel, request: &ModelRequest) -> (Result<ModelReply, ModelError>, Vec<String>) {
    let mut seen = Vec::new();
    let mut events = |event: ModelEvent<'_>| {
        seen.push(match event {
            ModelEvent::Text(text) => format!("text {text}"),
            ModelEvent::Thinking(text) => format!("thinking {text}"),
            ModelEvent::ToolCall { id, name } => format!("call {id} {name}"),
            ModelEvent::Retry { attempt, reason, .. } => format!("retry {attempt} {reason}"),
        });
    };
    let result = block_on(model.respond(request, &mut events));
    (result, seen)
}

/// A prompt of messages in short: `u` user, `a` reply, `a:c1,c2` with calls, `r:c1` result, `x` of another role.
fn prompt(messages: &str) -> ModelRequest {
    let message = |(at, short): (usize, &str)| {
        let (kind, ids) = short.split_once(':').unwrap_or((short, ""));
        let mut ids = ids.split(',').filter(|id| !id.is_empty());
        let map = match kind {
            "u" => json!({ "role": "user", "content": "a question" }),
            "a" => {
                let calls = ids.map(|id| json!({ "type": "toolCall", "id": id, "name": "read", "arguments": {} }));
                let text = std::iter::once(json!({ "type": "text", "text": "an answer" }));
                json!({ "role": "assistant", "content": text.chain(calls).collect::<Vec<Value>>() })
            }
            "r" => json!({ "role": "toolResult", "toolCallId": ids.next_back(), "content": "found" }),
            "blank" => json!({ "role": "user", "content": " " }),
            _ => json!({ "role": "compactionSummary", "summary": "earlier" }),
        };
        let Value::Object(map) = map else { panic!("an object") };
        Arc::new(Message::from_map(format!("e{at}"), map).expect("a message"))
    };
    let messages = messages.split_whitespace().enumerate().map(message).collect();
    ModelRequest { messages, ..ModelRequest::default() }
}

#[test]
fn a_script_is_answered_step_by_step_and_requests_are_kept() {
    let usage = Usage { input: 3, output: 2, ..Usage::default() };
    let model = ScriptedModel::new([
        Step::thinking("hm").and_text("Reading.").and_call("c1", "read", json!({ "path": "p" })).usage(usage),
        Step::text("Done").stop(StopReason::Length).by("another").retried(Duration::from_secs(1), "busy"),
    ]);
    let (first, seen) = ask(&model, &prompt("u"));
    assert_eq!(seen, ["thinking hm", "text Reading.", "call c1 read"]);
    let first = first.expect("a reply");
    assert_eq!((first.stop, first.usage, first.tool_calls().count()), (StopReason::ToolUse, Some(usage), 1));
    assert_eq!(
        Value::Array(first.content),
        json!([{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "Reading." },
               { "type": "toolCall", "id": "c1", "name": "read", "arguments": { "path": "p" } }])
    );
    let (second, seen) = ask(&model, &prompt("u a:c1 r:c1"));
    let second = second.expect("a reply");
    assert_eq!((second.stop, second.response_model.as_deref()), (StopReason::Length, Some("another")));
    assert_eq!(seen, ["retry 1 busy", "text Done"]);
    let (third, _) = ask(&model, &prompt("u"));
    assert_eq!(third.expect_err("no step").text, "the script has 2 steps; this is request 3");
    assert_eq!(model.requests().iter().map(|request| request.messages.len()).collect::<Vec<_>>(), [1, 3, 1]);
}

#[test]
fn every_failure_has_its_kind_and_keeps_what_was_said() {
    let wait = Some(Duration::from_secs(9));
    for (step, kind, said) in [
        (Step::overflow(Some(9)), ModelErrorKind::Overflow { observed: Some(9) }, 0),
        (Step::timeout(), ModelErrorKind::Timeout, 0),
        (Step::rate_limited(wait), ModelErrorKind::RateLimited { retry_after: wait }, 0),
        (Step::refused(), ModelErrorKind::Refused, 0),
        (Step::unavailable(), ModelErrorKind::Unavailable, 0),
        (Step::fail(ModelErrorKind::Unauthorized), ModelErrorKind::Unauthorized, 0),
        (Step::text("half of").and_break_off(), ModelErrorKind::Interrupted, 1),
    ] {
        let error = ask(&ScriptedModel::new([step]), &prompt("u")).0.expect_err("no reply");
        assert_eq!((error.kind, error.partial.len()), (kind, said));
    }
}

#[test]
fn text_comes_in_pieces_of_whole_characters() {
    let step = Step::text("añb€c").in_pieces(2, Duration::from_millis(1));
    let (reply, seen) = ask(&ScriptedModel::new([step]), &prompt("u"));
    assert_eq!(seen, ["text añ", "text b€", "text c"]);
    assert_eq!(reply.expect("a reply"), ModelReply::text("añb€c"));
}

#[test]
fn a_pause_is_kept_without_a_runtime_and_on_a_stopped_clock_in_one() {
    let begun = Instant::now();
    let model = ScriptedModel::new([Step::text("late").after(Duration::from_millis(30))]);
    assert!(ask(&model, &prompt("u")).0.is_ok() && begun.elapsed() >= Duration::from_millis(30));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let begun = tokio::time::Instant::now();
        let model = ScriptedModel::new([Step::text("late").after(Duration::from_secs(3600))]);
        let reply = model.respond(&ModelRequest::default(), &mut |_| {}).await;
        assert!(reply.is_ok() && begun.elapsed() >= Duration::from_secs(3600));
    });
}

#[test]
fn one_that_never_answers_can_be_dropped() {
    let model = ScriptedModel::new([Step::never(), Step::text("next")]);
    let (first, second) = (prompt("u"), prompt("u"));
    {
        let mut events = |_: ModelEvent<'_>| {};
        let mut never = model.respond(&first, &mut events);
        let polled = block_on(poll_fn(|context| Poll::Ready(never.as_mut().poll(context).is_pending())));
        assert!(polled);
    }
    assert!(ask(&model, &second).0.is_ok());
}

#[test]
fn a_function_answers_and_a_number_of_tokens_is_enforced() {
    let model = ScriptedModel::from_fn(|request| Step::text(request.messages.len().to_string())).window(60);
    assert_eq!(ask(&model, &prompt("u a u")).0.expect("a reply"), ModelReply::text("3"));
    let system = Some("word ".repeat(80));
    let tools = [ToolSpec { name: "read".into(), description: "word ".repeat(80), parameters: json!({}) }].into();
    for request in
        [ModelRequest { system, ..prompt("u") }, ModelRequest { tools, ..prompt("u") }, prompt(&"u a ".repeat(12))]
    {
        let counted = request_tokens(&request, &TokenCounter::for_model(None));
        let error = ask(&model, &request).0.expect_err("too long");
        assert!(counted > 60);
        assert_eq!(error.kind, ModelErrorKind::Overflow { observed: Some(counted) });
    }
    assert_eq!((model.info().context_window, model.steps_left(), model.requests().len()), (Some(60), None, 4));
}

#[test]
fn an_overflow_takes_no_step() {
    let model = ScriptedModel::new(["first"]).window(20);
    assert!(ask(&model, &prompt("u a u a u a u a u")).0.is_err());
    assert_eq!(ask(&model, &prompt("u")).0.expect("a reply"), ModelReply::text("first"));
}

#[test]
fn prompts_that_strict_providers_refuse() {
    for (messages, expected) in [
        ("u", None),
        ("u a:c1,c2 r:c2 r:c1 u a u", None),
        ("u a:c1 r:c1 a:c1 r:c1", None),
        ("", Some("the prompt has no messages")),
        ("a u", Some("message 0 is a reply; the first one has to be the user's")),
        ("u u", Some("message 1 (e1) is the user's, as the one before it")),
        ("u a a u", Some("message 2 (e2) is a reply, as the one before it")),
        ("u a", Some("the prompt ends in a reply: there is nothing to answer")),
        ("u a:c1", Some("the prompt ends where the result of call c1 is due")),
        ("u a:c1,c2 r:c1 u", Some("message 3 (e3) is the user's where the result of call c2 is due")),
        ("u r:c1", Some("message 1 (e1) is the result of call \"c1\", which is not open")),
        ("u a:c1 r:c1 r:c1", Some("message 3 (e3) is the result of call \"c1\", which is not open")),
        ("u a:c1,c1 r:c1 r:c1", Some("message 1 (e1) calls \"read\" with the id \"c1\", which is empty or taken")),
        ("u x", Some("message 1 (e1) is a \"compactionSummary\" message, which no model knows")),
        ("blank", Some("message 0 (e0) has nothing to read")),
    ] {
        let model = ScriptedModel::new(["fine"]).strict_roles();
        let refused = ask(&model, &prompt(messages)).0.err().map(|error| error.text);
        assert_eq!(refused.as_deref(), expected, "{messages}");
    }
}
