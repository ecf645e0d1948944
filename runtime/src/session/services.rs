//! What a session offers an engine during a call, within that call's scope.
//!
//! Decision: requests and answers are the contract's JSON (Parts 1.6, 1.8, 5.3). What an engine may read ends before the
//! turn's own message until the turn is answered, and what it may rewrite depends on the call: an engine that changes the
//! history it is just asked to plan would not know what it planned.

use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::{CompactResult, EngineError, ErrorCode};
use context_engine_loader::{Permit, SessionServices};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedMutexGuard;

use super::compaction::compact_session;
use super::live::{LiveSession, Scope};

/// How often it is looked whether the turn under way is over.
const LOOK: Duration = Duration::from_millis(5);
/// The most entries one page of the transcript has.
const MAX_PAGE: u32 = 10_000;

/// A session within the scope of one call.
pub(crate) struct Services {
    pub(crate) live: Arc<LiveSession>,
    pub(crate) scope: Scope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RewriteRequest {
    #[serde(default)]
    replacements: Vec<Replacement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Replacement {
    entry_id: String,
    message: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DelegateRequest {
    session_id: Option<String>,
    agent_id: Option<String>,
    token_budget: Option<u64>,
    custom_instructions: Option<String>,
    host_params: Option<Value>,
}

impl SessionServices for Services {
    fn complete(&self, permit: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        match &self.live.completer {
            Some(completer) => completer.complete(permit, request_json, &self.live),
            None => Err(EngineError::unavailable("complete")),
        }
    }

    fn rewrite_transcript(&self, permit: Permit<'_>, request_json: &str) -> Result<String, EngineError> {
        if !self.scope.rewrites {
            return Err(EngineError::unavailable("rewrite_transcript"));
        }
        let request: RewriteRequest = serde_json::from_str(request_json)
            .map_err(|error| EngineError::failed(format!("rewrite_transcript: {error}; expected replacements")))?;
        let _between_turns = self.between_turns(&permit)?;
        let replacements: Vec<(String, Map<String, Value>)> =
            request.replacements.into_iter().map(|one| (one.entry_id, one.message)).collect();
        let rewritten = permit.commit(|| self.live.state().rewrite(&replacements, &self.live.counter))?;
        let rewrite = rewritten
            .ok_or_else(|| EngineError::unavailable("rewrite_transcript"))?
            .map_err(|error| EngineError::failed(error.to_string()))?;
        let answer = json!({
            "changed": rewrite.changed,
            "bytesFreed": rewrite.bytes_freed,
            "rewrittenEntries": rewrite.rewritten,
            "reason": rewrite.reason,
            "newIds": rewrite.new_ids,
        });
        Ok(answer.to_string())
    }

    fn delegate_compaction(&self, permit: Permit<'_>, request_json: &str) -> Result<CompactResult, EngineError> {
        let request: DelegateRequest = serde_json::from_str(request_json)
            .map_err(|error| EngineError::failed(format!("delegate_compaction: no JSON request: {error}")))?;
        request.is_about(&self.live)?;
        let _between_turns = self.between_turns(&permit)?;
        let budget = request.token_budget.unwrap_or(u64::MAX).min(self.live.message_budget());
        let commit = |write: &mut dyn FnMut() -> Result<(), String>| permit.commit(write);
        compact_session(&self.live, &commit, budget, request.custom_instructions.as_deref())
    }

    fn read_transcript(&self, after: Option<&str>, limit: u32) -> Result<String, EngineError> {
        let limit = limit.min(MAX_PAGE) as usize;
        let state = self.live.state();
        let fence = state.fence().filter(|_| self.scope.fenced);
        let page = state.page(after, limit, fence).map_err(EngineError::failed)?;
        Ok(Value::Array(page).to_string())
    }
}

impl Services {
    /// What runs behind a turn writes between turns: nobody else writes between a call and its result. Waits for the turn
    /// under way.
    fn between_turns(&self, permit: &Permit<'_>) -> Result<Option<OwnedMutexGuard<()>>, EngineError> {
        if !self.scope.in_background {
            return Ok(None);
        }
        loop {
            match Arc::clone(&self.live.turn).try_lock_owned() {
                Ok(guard) => return Ok(Some(guard)),
                Err(_) if permit.is_over() => {
                    let text = "the call ended while a turn was under way; nothing was changed";
                    return Err(EngineError::new(ErrorCode::CANCELLED, text));
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}

impl DelegateRequest {
    /// Refuses a compaction of another session than the call's (contract §1.8).
    fn is_about(&self, live: &LiveSession) -> Result<(), EngineError> {
        let target = |key: &str| {
            let params = self.host_params.as_ref()?;
            params.get("sessionTarget")?.get(key)?.as_str()
        };
        let key = self.host_params.as_ref().and_then(|params| params.get("sessionKey")?.as_str());
        let own_agent = agent_of(&live.key);
        let same = |said: Option<&str>, own: Option<&str>| said.is_none_or(|said| said.is_empty() || Some(said) == own);
        let conflict = !same(self.session_id.as_deref(), Some(&live.id))
            || !same(target("sessionId"), Some(&live.id))
            || !same(key, Some(&live.key))
            || !same(target("sessionKey"), Some(&live.key))
            || !same(target("agentId"), own_agent);
        if conflict {
            return Err(EngineError::failed(
                "Context-engine successor target conflicts with the caller session identity",
            ));
        }
        if !same(self.agent_id.as_deref(), own_agent) {
            return Err(EngineError::failed("Context-engine successor session key conflicts with its agent identity"));
        }
        Ok(())
    }
}

/// The agent of a session key `agent:<id>:…`.
pub(crate) fn agent_of(key: &str) -> Option<&str> {
    key.strip_prefix("agent:")?.split(':').next().filter(|id| !id.is_empty())
}
