//! The host params of each call of a turn: what grows, as one JSON object (contract §1.3 to §1.5).
//!
//! Decision: only data crosses. What OpenClaw passes as functions are services of the call; what it passes of its whole
//! configuration stays here.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::budget::Window;
use super::settings::SettingsFacts;
use crate::model::{ModelInfo, Usage};
use crate::session::agent_of;

/// What a turn knows that its calls are told. Owned, because calls are made on other threads.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) session_id: Arc<str>,
    pub(crate) session_key: Arc<str>,
    pub(crate) session_path: PathBuf,
    pub(crate) prompt: String,
    pub(crate) model: ModelInfo,
    pub(crate) window: Window,
    pub(crate) message_budget: u64,
    pub(crate) settings: SettingsFacts,
    pub(crate) agent_dir: Option<PathBuf>,
    pub(crate) workspace_dir: Option<PathBuf>,
    pub(crate) last_usage: Option<(Usage, i64)>,
}

/// Why a compaction is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The next prompt is over budget.
    Budget,
    /// The provider refused the prompt.
    Overflow,
    /// The model did not answer in time.
    Timeout,
    /// A person asked.
    Manual,
}

impl Trigger {
    fn name(self) -> &'static str {
        match self {
            Trigger::Budget => "budget",
            Trigger::Overflow => "overflow",
            Trigger::Timeout => "timeout_recovery",
            Trigger::Manual => "manual",
        }
    }
}

/// One try of a compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) trigger: Trigger,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) current_tokens: u64,
}

impl Facts {
    /// Of the first `assemble` of a turn.
    pub(crate) fn assemble(&self) -> Arc<Map<String, Value>> {
        self.params(Some((Some(self.message_budget), Some(self.window.reserve))), true, None)
    }

    /// Of an `assemble` in the tool loop.
    pub(crate) fn assemble_in_loop(&self) -> Arc<Map<String, Value>> {
        self.params(Some((Some(self.window.tokens), None)), true, None)
    }

    /// Of `bootstrap` and of the members that take a turn in.
    pub(crate) fn lifecycle(&self) -> Arc<Map<String, Value>> {
        self.params(Some((None, None)), false, Some(self.whole_context()))
    }

    /// Of `maintain`.
    pub(crate) fn maintain(&self, in_background: bool) -> Arc<Map<String, Value>> {
        let mut context = self.model_context();
        if in_background {
            context.insert("allowDeferredCompactionExecution".into(), true.into());
        }
        self.params(None, false, Some(context))
    }

    /// Of `compact`.
    pub(crate) fn compact(&self, attempt: Attempt) -> Arc<Map<String, Value>> {
        let mut context = self.whole_context();
        context.insert("trigger".into(), attempt.trigger.name().into());
        context.insert("attempt".into(), attempt.attempt.into());
        context.insert("maxAttempts".into(), attempt.max_attempts.into());
        if attempt.current_tokens > 0 && attempt.trigger != Trigger::Manual {
            context.insert("currentTokenCount".into(), attempt.current_tokens.into());
        }
        let mut facts = self.clone();
        // Contract §2.4: for an overflow, and for nothing else.
        if attempt.trigger == Trigger::Overflow {
            facts.settings.degraded_reason = Some("context_overflow".to_owned());
        }
        facts.params(Some((Some(self.message_budget), Some(self.window.reserve))), false, Some(context))
    }

    fn params(
        &self,
        limits: Option<(Option<u64>, Option<u64>)>,
        with_prompt: bool,
        context: Option<Map<String, Value>>,
    ) -> Arc<Map<String, Value>> {
        let mut params = Map::new();
        params.insert("sessionKey".into(), (*self.session_key).into());
        params.insert("sessionTarget".into(), self.target());
        if let Some((prompt_token_budget, max_output_tokens)) = limits {
            let settings = SettingsFacts { prompt_token_budget, max_output_tokens, ..self.settings.clone() }.settings();
            // A struct of strings and numbers always has a JSON form.
            params.insert("runtimeSettings".into(), serde_json::to_value(settings).unwrap_or_default());
        }
        if let Some(context) = context {
            params.insert("runtimeContext".into(), context.into());
        }
        if with_prompt {
            params.insert("prompt".into(), self.prompt.as_str().into());
        }
        Arc::new(params)
    }

    fn target(&self) -> Value {
        json!({
            "agentId": agent_of(&self.session_key),
            "sessionId": &*self.session_id,
            "sessionKey": &*self.session_key,
            "storePath": self.session_path.to_string_lossy(),
        })
    }

    fn model_context(&self) -> Map<String, Value> {
        let mut context = Map::new();
        context.insert("provider".into(), self.model.provider.as_str().into());
        context.insert("modelId".into(), self.model.id.as_str().into());
        context.insert("modelContextWindow".into(), self.window.tokens.into());
        context.insert("tokenBudget".into(), self.window.prompt_budget().into());
        context
    }

    fn whole_context(&self) -> Map<String, Value> {
        let mut context = self.model_context();
        context.insert("transcriptStorage".into(), json!({ "kind": "jsonl" }));
        let folders =
            [("agentDir", &self.agent_dir), ("workspaceDir", &self.workspace_dir), ("cwd", &self.workspace_dir)];
        for (name, folder) in folders {
            context.extend(folder.as_ref().map(|folder| (name.to_owned(), folder.to_string_lossy().into())));
        }
        if let Some((usage, at)) = &self.last_usage {
            let last = json!({
                "input": usage.input,
                "output": usage.output,
                "cacheRead": usage.cache_read,
                "cacheWrite": usage.cache_write,
                "total": usage.total(),
            });
            context.insert("promptCache".into(), json!({ "lastCallUsage": last, "lastCacheTouchAt": at }));
        }
        context
    }
}
