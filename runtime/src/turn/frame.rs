//! A turn as its engine sees it: every call of a member, made on a thread that may wait.
//!
//! Decision: engines block, turns do not. Everything a call needs is owned by the frame, so that a turn that is dropped in
//! the middle of one leaves nothing behind but a thread that ends by itself.

use std::path::PathBuf;
use std::sync::Arc;

use context_engine_interface::CompactResult;
use context_engine_loader::{CancelToken, CompactRequest, EngineHandle, EngineTool, TurnFacts, TurnTaken};
use context_engine_transcript::{Message, TokenCounter};
use tokio::sync::OwnedMutexGuard;

use super::budget::Window;
use super::facts::{Attempt, Facts, Trigger};
use super::settings::SettingsFacts;
use super::system::SystemPrompt;
use super::tools::ToolOutput;
use crate::RuntimeError;
use crate::model::{ModelInfo, ToolSpec, Usage};
use crate::session::completion::Completer;
use crate::session::live::{LiveSession, Prompt, Recovery, Scope};
use crate::session::{Compactor, Shared};

/// How often the session is compacted before one prompt is sent.
const COMPACTIONS: u32 = 3;
/// How many messages before the place where a turn should begin are looked at for its first message.
const EDGE: usize = 16;

/// What a turn's calls are made with.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) session: Arc<Shared>,
    pub(crate) engine: EngineHandle,
    pub(crate) model: ModelInfo,
    pub(crate) completer: Option<Completer>,
    pub(crate) counter: TokenCounter,
    pub(crate) system: SystemPrompt,
    pub(crate) tools: Arc<[ToolSpec]>,
    pub(crate) available_tools: Arc<[String]>,
    pub(crate) window: Window,
    /// What one prompt may cost: the window's budget, or less once a provider has refused a prompt.
    pub(crate) budget: u64,
    pub(crate) keep_recent: u64,
    pub(crate) compactor: Arc<dyn Compactor>,
    pub(crate) settings: SettingsFacts,
    pub(crate) agent_dir: Option<PathBuf>,
    pub(crate) workspace_dir: Option<PathBuf>,
    pub(crate) prompt: String,
    pub(crate) is_heartbeat: bool,
    /// The summary, when the host compacted during the turn.
    pub(crate) compacted: Option<Arc<str>>,
    pub(crate) last_usage: Option<(Usage, i64)>,
    /// The turn's own first entry: what engines read ends before it, until the turn is answered.
    pub(crate) fence: Option<Arc<str>>,
    pub(crate) cancel: CancelToken,
    /// Keeps the session from the next turn as long as a call of this one is under way, whoever still waits for it.
    pub(crate) _busy: Arc<OwnedMutexGuard<()>>,
}

/// What became of a finished turn in the engine.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    /// Whether the engine took it, by whichever member.
    pub(crate) taken: bool,
    pub(crate) served_by: String,
    pub(crate) why: Option<String>,
}

impl Frame {
    /// The session as it is now, for one prompt or one call.
    ///
    /// # Errors
    /// [`RuntimeError::FixedParts`] when what is sent beside the messages leaves no room for them (report B7).
    pub(crate) fn live(&self) -> Result<Arc<LiveSession>, RuntimeError> {
        let system = self.system.read();
        let system_tokens = system.as_deref().map_or(0, |system| self.counter.text(system));
        let schemas =
            if self.tools.is_empty() { String::new() } else { serde_json::to_string(&*self.tools).unwrap_or_default() };
        let tool_tokens = self.counter.text(&schemas);
        if system_tokens + tool_tokens >= self.budget {
            let budget = self.budget;
            return Err(RuntimeError::FixedParts { system: system_tokens, tools: tool_tokens, budget });
        }
        Ok(Arc::new(LiveSession {
            id: Arc::clone(&self.session.id),
            file: self.session.path.to_string_lossy().into(),
            key: Arc::clone(&self.session.key),
            system,
            fixed_tokens: system_tokens + tool_tokens,
            model: Some(format!("{}/{}", self.model.provider, self.model.id).into()),
            budget: self.budget,
            keep_recent: self.keep_recent,
            counter: self.counter,
            available_tools: Arc::clone(&self.available_tools),
            compactor: Arc::clone(&self.compactor),
            completer: self.completer.clone(),
            state: Arc::clone(&self.session.state),
        }))
    }

    fn facts(&self, live: &LiveSession) -> Facts {
        Facts {
            session_id: Arc::clone(&self.session.id),
            session_key: Arc::clone(&self.session.key),
            session_path: self.session.path.clone(),
            prompt: self.prompt.clone(),
            model: self.model.clone(),
            window: self.window,
            message_budget: live.message_budget(),
            settings: self.settings.clone(),
            agent_dir: self.agent_dir.clone(),
            workspace_dir: self.workspace_dir.clone(),
            last_usage: self.last_usage,
        }
    }

    /// What a call may see before the turn is answered.
    fn reading(&self) -> Scope {
        Scope { fence: self.fence.clone(), rewrites: false, cancel: self.cancel.clone() }
    }

    /// What maintenance may do, within the fence while there is one.
    fn maintaining(&self, fenced: bool) -> Scope {
        let fence = self.fence.clone().filter(|_| fenced);
        Scope { fence, rewrites: true, cancel: self.cancel.clone() }
    }

    /// Offers the engine a session that has a transcript, and has it care for it (contract §2.1 step 5).
    pub(crate) fn bootstrap(&self) -> Result<(), RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let answer = self.engine.bootstrap(&live.call(&facts.lifecycle(), &self.reading()));
        match (answer.value, answer.why) {
            // It has no `bootstrap`; `maintain` may be there all the same.
            (None, _) | (Some(_), None) => self.maintain_with(&live, &facts, "bootstrap", &self.maintaining(true)),
            (Some(_), Some(why)) => tracing::warn!("context engine bootstrap failed: {why}"),
        }
        Ok(())
    }

    fn maintain_with(&self, live: &Arc<LiveSession>, facts: &Facts, reason: &str, scope: &Scope) {
        maintain(&self.engine, live, facts, (reason, false), scope);
    }

    /// Makes the prompt of the next call: `in_loop` behind the first of a turn.
    pub(crate) fn make_prompt(&self, in_loop: bool) -> Result<Prompt, RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let host_params = if in_loop { facts.assemble_in_loop() } else { facts.assemble() };
        let compact_params = |attempt, current_tokens| {
            facts.compact(Attempt { trigger: Trigger::Budget, attempt, max_attempts: COMPACTIONS, current_tokens })
        };
        let compacted = |_: &CompactResult| self.maintain_with(&live, &facts, "compaction", &self.maintaining(true));
        let recovery = Recovery {
            compactions: COMPACTIONS,
            truncate: Some(self.window.tokens),
            compact_params: &compact_params,
            compacted: &compacted,
        };
        live.prompt(&self.engine, &host_params, &self.reading(), &recovery).map_err(RuntimeError::Prompt)
    }

    /// The prompt of the next call, made of the last one and what was said since: what an engine that does not own
    /// compaction planned once for the turn. `None` when that is over the budget.
    pub(crate) fn follow_up(&self, last: &Prompt, said: &[Arc<Message>]) -> Option<Prompt> {
        let live = self.live().ok()?;
        live.follow_up(last, said)
    }

    /// Compacts the session; whether it got shorter.
    pub(crate) fn compact(&self, attempt: Attempt) -> Result<bool, RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let request = live.forced(attempt.current_tokens);
        let compacted = live.compact(&self.engine, &facts.compact(attempt), &self.reading(), request);
        // Contract §2.4: behind a timeout, `maintain` is not called.
        if compacted.is_some() && attempt.trigger != Trigger::Timeout {
            self.maintain_with(&live, &facts, "compaction", &self.maintaining(true));
        }
        Ok(compacted.is_some())
    }

    /// Compacts because a person asked.
    pub(crate) fn compact_by_hand(&self, request: CompactRequest) -> Result<CompactResult, RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let attempt = Attempt { trigger: Trigger::Manual, attempt: 1, max_attempts: 1, current_tokens: 0 };
        let before = live.prepared().tokens();
        let request = CompactRequest { token_budget: live.message_budget(), current_tokens: before, ..request };
        let answer = self.engine.compact(&live.call(&facts.compact(attempt), &self.maintaining(false)), request);
        let answer = answer.map_err(|error| RuntimeError::Compaction { reason: error.to_string() })?;
        if let Some(reason) = live.other_session(&answer.value) {
            return Err(RuntimeError::Compaction { reason });
        }
        if answer.value.compacted {
            self.maintain_with(&live, &facts, "compaction", &self.maintaining(false));
        }
        Ok(answer.value)
    }

    /// The engine's own tools.
    pub(crate) fn list_tools(&self) -> Vec<EngineTool> {
        let Ok(live) = self.live() else { return Vec::new() };
        let facts = self.facts(&live);
        self.engine.tools(&live.call(&facts.lifecycle(), &self.reading())).value
    }

    /// Has the engine run one of its tools.
    pub(crate) fn call_tool(&self, id: &str, name: &str, arguments: &str) -> Result<ToolOutput, RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let scope = Scope { fence: None, ..self.reading() };
        let answer = self.engine.call_tool(&live.call(&facts.lifecycle(), &scope), id, name, arguments);
        Ok(ToolOutput { content: answer.content, is_error: answer.is_error, details: None })
    }

    /// Shortens long tool results in the transcript; how many.
    pub(crate) fn truncate(&self) -> Result<usize, RuntimeError> {
        let live = self.live()?;
        let reducible = crate::session::truncate::reducible(&live, self.window.tokens);
        Ok(if reducible.replacements.is_empty() { 0 } else { live.truncate(&reducible) })
    }

    /// Gives the engine what was said since it was last given something. In the middle of a turn, or at its end.
    pub(crate) fn hand_over(&self, said: &[Arc<Message>], ends: bool) -> Result<Taken, RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        let call = live.call(&facts.lifecycle(), &Scope { fence: None, ..self.reading() });
        let told = TurnFacts {
            token_budget: live.budget,
            is_heartbeat: Some(self.is_heartbeat),
            auto_compaction_summary: self.compacted.clone(),
            ..TurnFacts::default()
        };
        let answer = if ends {
            let turn = Arc::new(live.prepare(said));
            self.engine.take_turn(&call, &turn, || Arc::new(live.prepared()), told)
        } else {
            let whole = Arc::new(live.prepared());
            let is_new = |at: &usize| whole.get(*at).is_some_and(|message| said.iter().any(|new| new.id == message.id));
            // A turn stands at the end, and the pipeline merges at its edge at most.
            let newest = whole.len().saturating_sub(said.len() + EDGE)..whole.len();
            let from = newest.clone().find(is_new).unwrap_or(newest.end);
            self.engine.checkpoint_turn(&call, &whole, from, told)
        };
        let taken = matches!(answer.value, TurnTaken::By(_));
        Ok(Taken { taken, served_by: answer.served_by, why: answer.why })
    }

    /// Has the engine care for the transcript behind a turn, now or in the background, as it says of itself.
    pub(crate) fn maintain_after_turn(&self) -> Result<(), RuntimeError> {
        let live = self.live()?;
        let facts = self.facts(&live);
        if self.engine.info().turn_maintenance_mode.as_deref() != Some("background") {
            self.maintain_with(&live, &facts, "turn", &self.maintaining(false));
            return Ok(());
        }
        let engine = self.engine.clone();
        self.session.maintenance.ask(Box::new(move |cancel| {
            let scope = Scope { fence: None, rewrites: true, cancel };
            maintain(&engine, &live, &facts, ("turn", true), &scope);
        }));
        Ok(())
    }
}

fn maintain(
    engine: &EngineHandle,
    live: &Arc<LiveSession>,
    facts: &Facts,
    (reason, in_background): (&str, bool),
    scope: &Scope,
) {
    let answer = engine.maintain(&live.call(&facts.maintain(in_background), scope));
    if let Some(why) = answer.why.filter(|_| answer.value.is_some()) {
        tracing::warn!("context engine maintain failed ({reason}): {why}");
    } else if let Some(result) = answer.value.filter(|result| result.changed) {
        tracing::info!(
            "[context-engine] maintenance({reason}) changed transcript rewrittenEntries={} bytesFreed={} sessionKey={}",
            result.rewritten_entries,
            result.bytes_freed,
            live.key
        );
    }
}
