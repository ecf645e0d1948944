//! A small session: its history, the services of its calls, and one prompt of it.

use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::{CallServices, CompactResult, EngineError};
use context_engine_loader::supervise::AssembleRequest;
use context_engine_loader::{
    Answer, AssembleError, Assembled, Call, CancelToken, CompactRequest, EngineHandle, Permit, PreparedHistory,
    SessionServices, TurnTaken,
};
use context_engine_transcript::{Message, TokenCounter};
use serde_json::{Map, Value, json};

/// What messages may cost in the tests that are not about budgets.
pub const BUDGET: u64 = 8_000;

/// Services that answer plainly, so that an engine's journal shows what came back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Services {
    /// Every service panics instead: a host's fault that must not end the plugin's call with the process.
    pub panics: bool,
}

impl Services {
    fn reach<T>(self, answer: T) -> T {
        assert!(!self.panics, "boom in the host");
        answer
    }
}

impl CallServices for Services {
    fn is_cancelled(&self) -> bool {
        self.reach(false)
    }

    fn remaining(&self) -> Option<Duration> {
        self.reach(Some(Duration::from_secs(30)))
    }

    fn complete(&self, request_json: &str) -> Result<String, EngineError> {
        self.reach(Ok(format!("completed {request_json}")))
    }

    fn rewrite_transcript(&self, request_json: &str) -> Result<String, EngineError> {
        self.reach(Ok(format!("rewrote {request_json}")))
    }

    fn delegate_compaction(&self, request_json: &str) -> Result<CompactResult, EngineError> {
        let reason = Some(request_json.into()).into();
        self.reach(Ok(CompactResult {
            ok: true,
            compacted: true,
            reason,
            tokens_before: 90,
            ..CompactResult::default()
        }))
    }

    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        self.reach(Ok(format!("{limit} entries after {}", after.unwrap_or("the start"))))
    }

    fn memory_prompt_section(&self, _: &str) -> Result<Option<String>, EngineError> {
        self.reach(Ok(Some("remember the milk".into())))
    }
}

impl SessionServices for Services {
    fn complete(&self, _: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        CallServices::complete(self, request_json)
    }

    fn rewrite_transcript(&self, _: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        CallServices::rewrite_transcript(self, request_json)
    }

    fn delegate_compaction(&self, _: Permit<'_>, request_json: &str) -> Result<CompactResult, EngineError> {
        CallServices::delegate_compaction(self, request_json)
    }

    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        CallServices::read_transcript(self, after, limit)
    }

    fn memory_prompt_section(&self, request_json: &str) -> Result<Option<String>, EngineError> {
        CallServices::memory_prompt_section(self, request_json)
    }
}

/// Messages from lines such as `user: hello`, with the ids `e1`, `e2`, …
pub fn messages(lines: &[&str]) -> Vec<Arc<Message>> {
    let message = |(number, line): (usize, &&str)| {
        let (role, text) = line.split_once(": ").expect("a line such as `user: hello`");
        let Value::Object(map) = json!({ "role": role, "content": text }) else { unreachable!("written as an object") };
        Arc::new(Message::from_map(format!("e{number}"), map).expect("a message"))
    };
    (1..).zip(lines).map(message).collect()
}

/// The history of [`messages`].
pub fn history(lines: &[&str]) -> PreparedHistory {
    PreparedHistory::new(messages(lines), &TokenCounter::for_model(None))
}

/// Three turns, the last of them waiting for its answer.
pub fn three_turns() -> PreparedHistory {
    history(&["user: one", "assistant: uno", "user: two", "assistant: dos", "user: three"])
}

/// Host params as the runtime sends them, `runtimeSettings` included.
pub fn host_params() -> Map<String, Value> {
    let params = json!({ "sessionKey": "agent:main:x", "prompt": "three", "runtimeSettings": { "schemaVersion": 1 } });
    let Value::Object(params) = params else { unreachable!("written as an object") };
    params
}

/// A call about session `s1`.
pub fn call(services: Services, host_params: Map<String, Value>) -> Call {
    Call {
        session_id: "s1".into(),
        session_file: "s1.jsonl".into(),
        host_params: Arc::new(host_params),
        services: Arc::new(services),
        cancel: CancelToken::new(),
    }
}

/// A call as the runtime makes it, with services that answer.
pub fn plain_call() -> Call {
    call(Services::default(), host_params())
}

/// One prompt of `history` within `budget`.
///
/// # Errors
/// As [`EngineHandle::assemble`].
pub fn assemble(handle: &EngineHandle, history: &PreparedHistory, budget: u64) -> Result<Assembled, AssembleError> {
    assemble_in(&plain_call(), handle, history, budget)
}

/// One prompt, in this call.
///
/// # Errors
/// As [`EngineHandle::assemble`].
pub fn assemble_in(
    call: &Call,
    handle: &EngineHandle,
    history: &PreparedHistory,
    budget: u64,
) -> Result<Assembled, AssembleError> {
    let request = AssembleRequest {
        history: Arc::new(history.clone()),
        budget,
        counter: TokenCounter::for_model(None),
        model: Some("gpt-4o".into()),
        available_tools: ["read".to_owned(), "exec".to_owned()].into(),
    };
    handle.assemble(call, &request)
}

/// A compaction from 90 tokens to [`BUDGET`].
///
/// # Errors
/// As [`EngineHandle::compact`].
pub fn compact(handle: &EngineHandle, call: &Call) -> Result<CompactResult, EngineError> {
    let request = CompactRequest { token_budget: BUDGET, current_tokens: 90, force: true, ..CompactRequest::default() };
    handle.compact(call, request).map(|answer| answer.value)
}

/// A turn of `turn`, in the history [`three_turns`] gives.
pub fn take_turn(handle: &EngineHandle, call: &Call, turn: PreparedHistory) -> Answer<TurnTaken> {
    handle.take_turn(call, &Arc::new(turn), || Arc::new(three_turns()), BUDGET)
}

/// The texts of a prompt of [`three_turns`], message by message, with who answered: `alpha | hello + one | uno …`. A `+`
/// joins the blocks of one message.
#[track_caller]
pub fn answer(handle: &EngineHandle) -> String {
    let prompt = assemble(handle, &three_turns(), BUDGET).expect("a prompt");
    let texts = prompt.messages.iter().map(|message| message.text().replace('\n', " + "));
    [prompt.served_by].into_iter().chain(texts).collect::<Vec<_>>().join(" | ")
}
