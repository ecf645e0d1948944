//! A small session: its history, the services of its calls, and one prompt of it.

use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::{CallServices, CompactResult, EngineError};
use context_engine_loader::supervise::AssembleRequest;
use context_engine_loader::{AssembleError, Assembled, Call, EngineHandle, PreparedHistory};
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
pub fn call<'a>(services: &'a Services, host_params: &'a Map<String, Value>) -> Call<'a> {
    Call { session_id: "s1", session_file: "s1.jsonl", host_params, services }
}

/// One prompt of `history` within `budget`.
///
/// # Errors
/// As [`EngineHandle::assemble`].
pub fn assemble(handle: &EngineHandle, history: &PreparedHistory, budget: u64) -> Result<Assembled, AssembleError> {
    let counter = TokenCounter::for_model(None);
    let tools = ["read".to_owned(), "exec".to_owned()];
    let request =
        AssembleRequest { history, budget, counter: &counter, model: Some("gpt-4o"), available_tools: &tools };
    handle.assemble(call(&Services::default(), &host_params()), request)
}

/// The texts of a prompt of [`three_turns`], message by message, with who answered: `alpha | hello + one | uno …`. A `+`
/// joins the blocks of one message.
#[track_caller]
pub fn answer(handle: &EngineHandle) -> String {
    let prompt = assemble(handle, &three_turns(), BUDGET).expect("a prompt");
    let texts = prompt.messages.iter().map(|message| message.text().replace('\n', " + "));
    [prompt.served_by].into_iter().chain(texts).collect::<Vec<_>>().join(" | ")
}
