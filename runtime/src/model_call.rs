//! One model call: the session's history → pipeline → engine → prompt, compacting once when it is too much.

use std::sync::{Arc, Mutex, PoisonError};

use context_engine_interface::{CompactResult, EngineError};
use context_engine_legacy::pipeline::{self, BOOTSTRAP, PipelineOptions};
use context_engine_loader::LEGACY;
use context_engine_loader::supervise::SYSTEM_PROMPT_SEPARATOR;
use context_engine_loader::{
    AssembleError, AssembleRequest, Assembled, Call, CancelToken, CompactRequest, EngineHandle, Permit,
    PreparedHistory, SessionServices,
};
use context_engine_transcript::{Message, TokenCounter};
use serde_json::{Map, Value, json};

use crate::compaction::compact_session;
use crate::history::SettledHistory;
use crate::scratch::ScratchSession;

/// What goes to the model.
#[derive(Debug)]
pub struct Prompt {
    /// The system prompt, an engine's addition in front of it.
    pub system: Option<String>,
    /// The messages, and who made them.
    pub assembled: Assembled,
    /// Tokens of system prompt, addition and messages.
    pub tokens: u64,
    /// Whether the session was compacted for this call.
    pub compacted: bool,
    /// Recorded messages that the session's newest summary stands for.
    pub behind_summary: usize,
    /// How often the session was compacted by now.
    pub compactions: usize,
    /// What the summaries written by now cost, in tokens.
    pub summary_tokens: u64,
}

impl Prompt {
    /// `{"system":…,"messages":[…]}` with the messages in OpenClaw's shape.
    pub fn to_json(&self) -> Value {
        let messages: Vec<Value> = self.assembled.messages.iter().map(|message| message.to_value()).collect();
        json!({ "system": self.system, "messages": messages })
    }
}

/// A session in the middle of a run. Shared with the calls that are made about it: one that never returns keeps it.
pub(crate) struct LiveSession {
    pub(crate) id: Arc<str>,
    pub(crate) file: Arc<str>,
    pub(crate) system: Option<String>,
    pub(crate) system_tokens: u64,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) budget: u64,
    pub(crate) keep_recent: u64,
    pub(crate) counter: TokenCounter,
    pub(crate) scratch: Mutex<ScratchSession>,
    pub(crate) settled: Mutex<SettledHistory>,
}

impl LiveSession {
    /// What messages and addition may cost.
    fn message_budget(&self) -> u64 {
        self.budget.saturating_sub(self.system_tokens)
    }

    pub(crate) fn append(&self, message: &Arc<Message>) {
        self.scratch().append(Arc::clone(message), self.model.as_deref(), &self.counter);
    }

    pub(crate) fn scratch(&self) -> std::sync::MutexGuard<'_, ScratchSession> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history as engines get it.
    pub(crate) fn prepared(&self) -> PreparedHistory {
        let options = PipelineOptions { model: self.model.as_deref().map(str::to_owned), ..PipelineOptions::default() };
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.prepare(&self.scratch(), &options, &self.counter)
    }

    /// What the pipeline makes of one turn's messages.
    pub(crate) fn prepare_turn(&self, turn: &[Arc<Message>]) -> PreparedHistory {
        let options = PipelineOptions { model: self.model.as_deref().map(str::to_owned), ..PipelineOptions::default() };
        PreparedHistory::new(pipeline::run(turn.to_vec(), &options).0, &self.counter)
    }

    pub(crate) fn call(self: &Arc<Self>, host_params: &Arc<Map<String, Value>>) -> Call {
        Call {
            session_id: Arc::clone(&self.id),
            session_file: Arc::clone(&self.file),
            host_params: Arc::clone(host_params),
            services: Arc::clone(self) as Arc<dyn SessionServices>,
            cancel: CancelToken::new(),
        }
    }

    /// Makes the prompt of one model call.
    ///
    /// Compacts at most once (contract §2.4: no loop without progress), and only when the engine asked for serves: what
    /// `legacy` answers in place of a failed engine is fitted, not written.
    pub(crate) fn prompt(
        self: &Arc<Self>,
        handle: &EngineHandle,
        host_params: &Arc<Map<String, Value>>,
    ) -> Result<Prompt, AssembleError> {
        let mut compacted = false;
        loop {
            let history = self.prepared();
            let history = if history.is_empty() { self.opening() } else { history };
            let tokens = history.tokens();
            let request = AssembleRequest {
                history: Arc::new(history),
                budget: self.message_budget(),
                counter: self.counter,
                model: self.model.clone(),
                available_tools: Arc::default(),
            };
            let assembled = handle.assemble(&self.call(host_params), &request)?;
            let too_much = assembled.may_overflow && tokens > self.message_budget();
            if too_much && !compacted && assembled.served_by == handle.info().id {
                compacted = self.compact(handle, host_params, tokens);
                if compacted {
                    continue;
                }
            }
            let system = match (&assembled.system_prompt_addition, self.system.as_deref()) {
                (Some(addition), Some(system)) => Some(format!("{addition}{SYSTEM_PROMPT_SEPARATOR}{system}")),
                (Some(addition), None) => Some(addition.clone()),
                (None, system) => system.map(str::to_owned),
            };
            let tokens = assembled.tokens + self.system_tokens;
            let scratch = self.scratch();
            let (behind_summary, compactions, summary_tokens) =
                (scratch.summarised(), scratch.compactions(), scratch.summary_tokens());
            return Ok(Prompt { system, assembled, tokens, compacted, behind_summary, compactions, summary_tokens });
        }
    }

    /// A prompt before anybody has spoken: the model was called with its system prompt alone.
    fn opening(&self) -> PreparedHistory {
        let filler = json!({ "role": "user", "content": BOOTSTRAP });
        let message = match filler {
            Value::Object(map) => Message::from_map("opening", map).ok(),
            _ => None,
        };
        PreparedHistory::new(message.map(Arc::new).into_iter().collect(), &self.counter)
    }

    /// Whether the session got shorter.
    fn compact(self: &Arc<Self>, handle: &EngineHandle, host_params: &Arc<Map<String, Value>>, tokens: u64) -> bool {
        let request = CompactRequest {
            token_budget: self.message_budget(),
            current_tokens: tokens,
            force: true,
            ..CompactRequest::default()
        };
        match handle.compact(&self.call(host_params), request) {
            Ok(answer) if answer.value.compacted => true,
            // Not its business, and it did not hand it on: the runtime's own compaction, in the same recovery (report G7).
            Ok(answer) if !handle.info().owns_compaction && answer.served_by != LEGACY => {
                let (engine, reason) =
                    (&answer.served_by, answer.value.reason.as_deref().unwrap_or("none given").to_owned());
                tracing::info!(engine, reason, "the engine does not compact; the runtime does");
                let usable = self.message_budget();
                compact_session(self, |write| Ok(write()), usable).is_ok_and(|result| result.compacted)
            }
            Ok(answer) => {
                tracing::info!(reason = answer.value.reason.as_deref().unwrap_or("none given"), "not compacted");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "compaction failed; the prompt is fitted");
                false
            }
        }
    }
}

impl SessionServices for LiveSession {
    fn delegate_compaction(&self, permit: Permit<'_>, request_json: &str) -> Result<CompactResult, EngineError> {
        let request: Value = serde_json::from_str(request_json)
            .map_err(|error| EngineError::failed(format!("delegate_compaction: no JSON request: {error}")))?;
        let budget = request.get("tokenBudget").and_then(Value::as_u64).unwrap_or_else(|| self.message_budget());
        compact_session(self, |write| permit.commit(write), budget.min(self.message_budget()))
    }

    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        let page = self.scratch().page(after, limit as usize).map_err(EngineError::failed)?;
        Ok(Value::Array(page).to_string())
    }
}

#[cfg(test)]
mod tests {
    use context_engine_interface::{
        AssembleParams, Assembly, CallContext, CompactParams, ContextEngine, EngineContext, IngestParams, IngestResult,
        PromptAuthority,
    };
    use context_engine_loader::{Creation, Loader, LoaderOptions};

    use super::*;

    /// Keeps the newest message, asks for the overflow check, and says of compaction that it is not its business.
    struct NotMine;

    impl ContextEngine for NotMine {
        fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
            Ok(NotMine)
        }

        fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
            Ok(IngestResult::skipped())
        }

        fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
            let all = params.messages().len();
            let mut plan = Assembly { prompt_authority: PromptAuthority::PREASSEMBLY_MAY_OVERFLOW, ..Assembly::new() };
            plan.keep(all - 1..all);
            Ok(plan)
        }

        fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
            Ok(CompactResult { reason: Some("delegate".into()).into(), ..CompactResult::default() })
        }
    }

    /// Report G7: asked in the recovery, it answered "not mine", and the only try was wasted.
    #[test]
    fn an_engine_that_does_not_own_compaction_leaves_it_to_the_runtime_in_the_same_recovery() {
        let counter = TokenCounter::for_model(None);
        let live = Arc::new(LiveSession {
            id: "s".into(),
            file: "s".into(),
            system: None,
            system_tokens: 0,
            model: None,
            budget: 400,
            keep_recent: 100,
            counter,
            scratch: Mutex::default(),
            settled: Mutex::default(),
        });
        for turn in 0..40 {
            for role in ["user", "assistant"] {
                let text = format!("{role} {turn}: {}", "so many words ".repeat(5));
                let Value::Object(map) = json!({ "role": role, "content": text }) else { panic!("an object") };
                live.append(&Arc::new(Message::from_map(format!("{role}-{turn}"), map).expect("a message")));
            }
        }
        let question = json!({ "role": "user", "content": "and now?" });
        let Value::Object(map) = question else { panic!("an object") };
        live.append(&Arc::new(Message::from_map("last", map).expect("a message")));

        let info = context_engine_interface::record::EngineInfo { id: "not-mine".into(), ..legacy_info() };
        let loader = Loader::new(LoaderOptions::default());
        let handle = loader.linked(Arc::new(NotMine), info, &Creation::default()).expect("a handle");
        let prompt = live.prompt(&handle, &Arc::default()).expect("a prompt");
        assert!(prompt.compacted && prompt.behind_summary > 0);
        assert_eq!((prompt.assembled.served_by.as_str(), live.scratch().compactions()), ("not-mine", 1));
    }

    fn legacy_info() -> context_engine_interface::record::EngineInfo {
        context_engine_legacy::LegacyEngine::info()
    }
}
