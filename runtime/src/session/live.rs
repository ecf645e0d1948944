//! A session in the middle of a run: the history → pipeline → engine → prompt, compacting when it is too much.
//!
//! Decision: a replay and a live turn make their prompts here, by the same steps. What differs is what they may do when
//! the history is too much ([`Recovery`]): a replay compacts once in memory, a turn writes into its transcript.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use context_engine_interface::{CompactResult, EngineError};
use context_engine_legacy::pipeline::{self, BOOTSTRAP, PipelineOptions};
use context_engine_loader::supervise::SYSTEM_PROMPT_SEPARATOR;
use context_engine_loader::{
    Answer, AssembleError, AssembleRequest, Assembled, Call, CancelToken, CompactRequest, EngineHandle, LEGACY,
    PreparedHistory,
};
use context_engine_transcript::{Message, TokenCounter};
use serde_json::{Map, Value, json};

use super::compaction::{Compactor, at_once, compact_session};
use super::completion::Completer;
use super::services::Services;
use super::state::SessionState;
use super::truncate::{self, Reducible};
use crate::turn::budget::{Route, route};

/// What goes to the model.
#[derive(Debug)]
pub struct Prompt {
    /// The system prompt, an engine's addition in front of it.
    pub system: Option<String>,
    /// The messages, and who made them.
    pub assembled: Assembled,
    /// Tokens of system prompt, addition, messages, and of the tools' schemas.
    pub tokens: u64,
    /// Whether the session was compacted for this call.
    pub compacted: bool,
    /// Tool results that were shortened in the transcript for this call.
    pub truncated: usize,
    /// Recorded messages that the session's newest summary stands for.
    pub behind_summary: usize,
    /// How often the session was compacted by now.
    pub compactions: usize,
    /// What the summaries written by now cost, in tokens.
    pub summary_tokens: u64,
    /// Whether the engine planned an earlier prompt of the turn, and this one is that and what was said since.
    pub follows: bool,
    /// How much of the turn's own messages is in it.
    pub(crate) said: usize,
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
    pub(crate) key: Arc<str>,
    pub(crate) system: Option<String>,
    /// What is sent beside messages and addition: the system prompt, the tools' schemas.
    pub(crate) fixed_tokens: u64,
    pub(crate) model: Option<Arc<str>>,
    /// What one prompt may cost.
    pub(crate) budget: u64,
    pub(crate) keep_recent: u64,
    pub(crate) counter: TokenCounter,
    pub(crate) available_tools: Arc<[String]>,
    pub(crate) compactor: Arc<dyn Compactor>,
    pub(crate) completer: Option<Completer>,
    pub(crate) state: Arc<Mutex<SessionState>>,
    /// Held by the turn that is under way.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

/// What may be done when the history is too much for a prompt.
pub(crate) struct Recovery<'a> {
    /// How often the session may be compacted for one prompt.
    pub(crate) compactions: u32,
    /// The window of the model, when long tool results may be shortened in the transcript.
    pub(crate) truncate: Option<u64>,
    /// The host params of a compaction: how often it was tried, and what the history costs.
    pub(crate) compact_params: &'a dyn Fn(u32, u64) -> Arc<Map<String, Value>>,
    /// What follows a compaction.
    pub(crate) compacted: &'a dyn Fn(&CompactResult),
}

/// What an engine may see and change during a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// Whether reading the transcript ends before what was said in the turn.
    pub(crate) fenced: bool,
    /// Whether entries may be rewritten.
    pub(crate) rewrites: bool,
    /// Whether it runs behind a turn, and writes between turns only.
    pub(crate) in_background: bool,
    pub(crate) cancel: CancelToken,
}

impl LiveSession {
    /// What messages and addition may cost.
    pub(crate) fn message_budget(&self) -> u64 {
        self.budget.saturating_sub(self.fixed_tokens)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pipeline(&self) -> PipelineOptions {
        PipelineOptions { model: self.model.as_deref().map(str::to_owned), ..PipelineOptions::default() }
    }

    /// The history as engines get it.
    pub(crate) fn prepared(&self) -> PreparedHistory {
        self.state().prepared(&self.pipeline(), &self.counter)
    }

    /// What the pipeline makes of some messages alone, such as one turn's.
    pub(crate) fn prepare(&self, messages: &[Arc<Message>]) -> PreparedHistory {
        PreparedHistory::new(pipeline::run(messages.to_vec(), &self.pipeline()).0, &self.counter)
    }

    pub(crate) fn call(self: &Arc<Self>, host_params: &Arc<Map<String, Value>>, scope: &Scope) -> Call {
        Call {
            session_id: Arc::clone(&self.id),
            session_file: Arc::clone(&self.file),
            host_params: Arc::clone(host_params),
            services: Arc::new(Services { live: Arc::clone(self), scope: scope.clone() }),
            cancel: scope.cancel.clone(),
        }
    }

    /// Makes the prompt of one model call.
    ///
    /// Compacts and shortens as far as `recovery` allows, each time only if the last time made the history shorter
    /// (contract §2.4: no loop without progress), and only when the engine that has the seat answered.
    pub(crate) fn prompt(
        self: &Arc<Self>,
        handle: &EngineHandle,
        host_params: &Arc<Map<String, Value>>,
        scope: &Scope,
        recovery: &Recovery<'_>,
    ) -> Result<Prompt, AssembleError> {
        let (mut compacted, mut compactions, mut truncated, mut may_truncate) = (false, 0, 0, true);
        let mut shortest = u64::MAX;
        loop {
            let history = self.prepared();
            let history = if history.is_empty() { self.opening() } else { history };
            let tokens = history.tokens();
            let request = AssembleRequest {
                history: Arc::new(history),
                budget: self.message_budget(),
                counter: self.counter,
                model: self.model.clone(),
                available_tools: Arc::clone(&self.available_tools),
            };
            let assembled = handle.assemble(&self.call(host_params, scope), &request)?;
            let overflow = self.overflow(handle, &assembled, tokens).filter(|_| tokens < shortest);
            shortest = tokens;
            if let Some(overflow) = overflow {
                let window = recovery.truncate.filter(|_| may_truncate);
                let reducible = window.map(|window| truncate::reducible(self, window)).unwrap_or_default();
                let route = route(overflow, reducible.tokens);
                if matches!(route, Route::TruncateToolResultsOnly) {
                    may_truncate = false;
                    truncated += self.truncate(&reducible);
                    continue;
                }
                if compactions < recovery.compactions {
                    compactions += 1;
                    let host_params = (recovery.compact_params)(compactions, tokens);
                    if let Some(result) = self.compact(handle, &host_params, scope, self.forced(tokens)) {
                        compacted = true;
                        (recovery.compacted)(&result);
                        if let (Route::CompactThenTruncate, Some(window)) = (route, window) {
                            may_truncate = false;
                            // What was summarised away need not be shortened.
                            truncated += self.truncate(&truncate::reducible(self, window));
                        }
                        continue;
                    }
                }
            }
            return Ok(self.finish(assembled, compacted, truncated));
        }
    }

    /// By how much the history is too much, where that is the host's affair (contract §7.5).
    fn overflow(&self, handle: &EngineHandle, assembled: &Assembled, tokens: u64) -> Option<u64> {
        let info = handle.info();
        if assembled.served_by != info.id {
            return None;
        }
        if assembled.may_overflow {
            return Some(tokens.saturating_sub(self.message_budget())).filter(|over| *over > 0);
        }
        if info.owns_compaction {
            tracing::debug!(
                "[context-overflow-precheck] skipped: context engine \"{}\" owns compaction",
                assembled.served_by
            );
            return None;
        }
        assembled.fitted.then(|| tokens.saturating_sub(self.message_budget()).max(1))
    }

    /// Shortens tool results in the transcript; how many.
    pub(crate) fn truncate(&self, reducible: &Reducible) -> usize {
        if reducible.replacements.is_empty() {
            return 0;
        }
        match self.state().rewrite(&reducible.replacements, &self.counter) {
            Some(Ok(rewrite)) => rewrite.rewritten,
            Some(Err(error)) => {
                tracing::warn!(%error, "long tool results cannot be shortened in the transcript");
                0
            }
            None => 0,
        }
    }

    fn finish(&self, assembled: Assembled, compacted: bool, truncated: usize) -> Prompt {
        let system = match (&assembled.system_prompt_addition, self.system.as_deref()) {
            (Some(addition), Some(system)) => Some(format!("{addition}{SYSTEM_PROMPT_SEPARATOR}{system}")),
            (Some(addition), None) => Some(addition.clone()),
            (None, system) => system.map(str::to_owned),
        };
        let tokens = assembled.tokens + self.fixed_tokens;
        let state = self.state();
        let (behind_summary, compactions, summary_tokens) =
            (state.conversation.summarised(), state.conversation.compactions(), state.conversation.summary_tokens());
        Prompt {
            system,
            assembled,
            tokens,
            compacted,
            truncated,
            behind_summary,
            compactions,
            summary_tokens,
            follows: false,
            said: 0,
        }
    }

    /// `last` and what was said since, as one prompt; `None` when that is over the budget.
    pub(crate) fn follow_up(&self, last: &Prompt, said: &[Arc<Message>]) -> Option<Prompt> {
        let (said, _) = pipeline::sanitize(said.to_vec(), self.model.as_deref());
        let messages = last.assembled.messages.iter().cloned().chain(said).collect();
        let (messages, _) = pipeline::pair_repair(messages);
        let (mut messages, _) = pipeline::render(&messages);
        for message in messages.iter_mut().filter(|message| message.tokens == 0) {
            let tokens = self.counter.message(message);
            Arc::make_mut(message).tokens = tokens;
        }
        let sent: u64 = messages.iter().map(|message| message.tokens).sum();
        let before: u64 = last.assembled.messages.iter().map(|message| message.tokens).sum();
        // With what the engine added to the system prompt.
        let tokens = (last.assembled.tokens - before.min(last.assembled.tokens)) + sent;
        if tokens > self.message_budget() {
            return None;
        }
        let assembled = Assembled { messages, tokens, took: Duration::ZERO, ..last.assembled.clone() };
        let prompt = self.finish(assembled, false, 0);
        Some(Prompt { follows: true, ..prompt })
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

    /// The request of a compaction that has to make room.
    pub(crate) fn forced(&self, current_tokens: u64) -> CompactRequest {
        CompactRequest { token_budget: self.message_budget(), current_tokens, force: true, ..CompactRequest::default() }
    }

    /// Compacts the session. `None` when it did not get shorter, whatever the engine says of it (report C10).
    pub(crate) fn compact(
        self: &Arc<Self>,
        handle: &EngineHandle,
        host_params: &Arc<Map<String, Value>>,
        scope: &Scope,
        request: CompactRequest,
    ) -> Option<CompactResult> {
        // There has to be room: whoever does not own compaction and made none leaves it to the runtime.
        match self.compact_with(handle, host_params, scope, request, |_| true) {
            Ok((result, _)) if result.compacted => Some(result).filter(made_room),
            Ok((result, _)) => {
                tracing::info!(reason = result.reason.as_deref().unwrap_or("none given"), "not compacted");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "compaction failed; the prompt is fitted");
                None
            }
        }
    }

    /// Has the engine compact the session, and the runtime in its place when it does not own compaction, made no room and
    /// `is_declined` says that this was not its answer (report G7). Also who did it.
    ///
    /// # Errors
    /// The engine's or the compactor's; a compaction that puts another session in the place of this one.
    pub(crate) fn compact_with(
        self: &Arc<Self>,
        handle: &EngineHandle,
        host_params: &Arc<Map<String, Value>>,
        scope: &Scope,
        request: CompactRequest,
        is_declined: impl FnOnce(&CompactResult) -> bool,
    ) -> Result<(CompactResult, String), EngineError> {
        let instructions = request.custom_instructions.clone();
        let Answer { value: result, served_by, .. } = handle.compact(&self.call(host_params, scope), request)?;
        if result.compacted {
            return match self.other_session(&result) {
                None => Ok((result, served_by)),
                Some(refused) => Err(EngineError::failed(refused)),
            };
        }
        if handle.info().owns_compaction || served_by == LEGACY || !is_declined(&result) {
            return Ok((result, served_by));
        }
        let reason = result.reason.as_deref().unwrap_or("none given");
        tracing::info!(engine = served_by, reason, "the engine does not compact; the runtime does");
        let result = compact_session(self, &at_once, self.message_budget(), instructions.as_deref())?;
        Ok((result, LEGACY.to_owned()))
    }

    /// Why a compaction that puts another session in the place of this one is not accepted (contract §7.10). Nothing an
    /// engine can reach makes a transcript that could take its place.
    pub(crate) fn other_session(&self, result: &CompactResult) -> Option<String> {
        let target: Value = serde_json::from_str(&result.session_target_json).unwrap_or_default();
        let said = |key: &str| target.get(key).and_then(Value::as_str).map(str::to_owned);
        let id = result.session_id.as_deref().into_option().map(str::to_owned).or_else(|| said("sessionId"));
        let path = &*self.file;
        let differs = id.is_some_and(|id| id != *self.id)
            || said("sessionKey").is_some_and(|key| key != *self.key)
            || said("storePath").is_some_and(|store| store != path);
        differs.then(|| "Context-engine successor target changed the active session binding".to_owned())
    }
}

/// Whether the numbers say that room was made, where there are numbers.
fn made_room(result: &CompactResult) -> bool {
    let room = result.tokens_after.into_option().is_none_or(|after| after < result.tokens_before);
    if !room {
        tracing::warn!(
            tokens = result.tokens_before,
            "the engine says that it compacted, and the history is as long as before; taken for no compaction"
        );
    }
    room
}

#[cfg(test)]
mod tests;
