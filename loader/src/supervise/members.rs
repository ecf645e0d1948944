//! The members a session calls outside of prompts and turns, each asked of whoever sits in the handle's seat.

use std::sync::Arc;

use context_engine_interface::std_types::RStr;
use context_engine_interface::{
    BootstrapParamsFields, BootstrapResult, CallContext, CompactParamsFields, CompactResult, CompactionTarget,
    ContextEngine, EngineError, HostParams, MaintainParamsFields, MaintainResult,
};

use super::failure::Failure;
use super::{Answer, Call, EngineHandle, Supervised};
use crate::loader::OnFailure;
use crate::quarantine::Fault;

/// How far a compaction goes (contract §1.2, `compactionTarget`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactTarget {
    /// Until the history fits the budget.
    #[default]
    Budget,
    /// Down to the engine's own threshold, as a person asks for it (contract §2.5).
    Threshold,
}

impl From<CompactTarget> for CompactionTarget {
    fn from(target: CompactTarget) -> CompactionTarget {
        match target {
            CompactTarget::Budget => CompactionTarget::BUDGET,
            CompactTarget::Threshold => CompactionTarget::THRESHOLD,
        }
    }
}

/// How far the history is to be compacted, and for whom.
#[derive(Debug, Clone, Default)]
pub struct CompactRequest {
    /// What the history may cost, in tokens.
    pub token_budget: u64,
    /// What it costs now.
    pub current_tokens: u64,
    /// Compact even below the engine's threshold.
    pub force: bool,
    /// A person asked for it, outside of any turn: the host needs what the engine requires for `manual-compact`.
    pub manual: bool,
    /// How far to go.
    pub target: CompactTarget,
    /// What the summary should attend to, in the person's words.
    pub custom_instructions: Option<String>,
    /// The agent the session belongs to.
    pub agent_id: Option<String>,
}

/// Why there is no answer of the engine's.
pub(super) struct NoAnswer {
    pub(super) why: String,
    pub(super) error: EngineError,
    /// Whether the engine was set aside for it.
    pub(super) set_aside: bool,
}

impl NoAnswer {
    /// For the result `legacy` gives instead; of an engine that was set aside in the contract's words (§3.5).
    fn remark(&self) -> String {
        if self.set_aside { "context engine downgraded to legacy".to_owned() } else { self.why.clone() }
    }
}

impl EngineHandle {
    /// Calls `member`. `None` when the engine does not have it; `Err` with the reason when it gave no answer.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        engine: &Arc<Supervised>,
        member: &'static str,
        call: &Call,
        ask: impl Fn(&dyn ContextEngine, &CallContext<'_>, HostParams<'_>) -> Result<R, EngineError> + Send + Sync + 'static,
    ) -> Option<Result<R, NoAnswer>> {
        let failure = match engine.call(member, call, ask) {
            Ok(answer) => return Some(Ok(answer)),
            Err(Failure::Unsupported(_)) => return None,
            Err(failure) => failure,
        };
        let why = match &failure {
            Failure::Its(fault, error) => self.set_aside(engine, member, *fault, error),
            other => format!("{}: {member}: {}", engine.info.id, other.describe()),
        };
        if matches!(failure, Failure::NotItsFault(_)) {
            tracing::warn!(engine = engine.info.id, member, why, "legacy answers this call");
        }
        // A linked engine stays, whatever it does.
        let set_aside = matches!(failure, Failure::Its(..)) && engine.why_set_aside().is_some();
        Some(Err(NoAnswer { why, error: failure.into_error(), set_aside }))
    }

    pub(super) fn answer<T>(&self, engine: &Supervised, value: T, why: Option<String>) -> Answer<T> {
        Answer { value, served_by: engine.info.id.clone(), why }
    }

    /// Offers the engine a session that already has a transcript. `None` when it has no `bootstrap`.
    pub fn bootstrap(&self, call: &Call) -> Answer<Option<BootstrapResult>> {
        let (engine, why) = self.current();
        let (session_id, session_file) = (Arc::clone(&call.session_id), Arc::clone(&call.session_file));
        let answer = self.ask(&engine, "bootstrap", call, move |engine, ctx, host_params| {
            let fields = BootstrapParamsFields {
                session_id: (&*session_id).into(),
                session_file: (&*session_file).into(),
                host_params,
            };
            fields.lend(|params| engine.bootstrap(ctx, params))
        });
        match answer.transpose() {
            Ok(answer) => self.answer(&engine, answer, why),
            Err(none) => {
                let reason = Some(none.remark().into()).into();
                let result = BootstrapResult { reason, ..BootstrapResult::default() };
                self.answer(&self.shared.legacy, Some(result), Some(none.why))
            }
        }
    }

    /// Has the engine care for the transcript. `None` when it has no `maintain`.
    pub fn maintain(&self, call: &Call) -> Answer<Option<MaintainResult>> {
        let (engine, why) = self.current();
        let (session_id, session_file) = (Arc::clone(&call.session_id), Arc::clone(&call.session_file));
        let answer = self.ask(&engine, "maintain", call, move |engine, ctx, host_params| {
            let fields = MaintainParamsFields {
                session_id: (&*session_id).into(),
                session_file: (&*session_file).into(),
                host_params,
            };
            fields.lend(|params| engine.maintain(ctx, params))
        });
        match answer.transpose() {
            Ok(answer) => self.answer(&engine, answer, why),
            Err(none) => {
                let reason = Some(none.remark().into()).into();
                let result = MaintainResult { reason, ..MaintainResult::default() };
                self.answer(&self.shared.legacy, Some(result), Some(none.why))
            }
        }
    }

    /// Makes the history shorter. A failure is reported and not redone by `legacy`: the engine may have got half-way.
    ///
    /// # Errors
    /// The engine's error; `Failed` with the contract's text when this host lacks what the engine requires.
    pub fn compact(&self, call: &Call, request: CompactRequest) -> Result<Answer<CompactResult>, EngineError> {
        let (engine, why) = self.current();
        let lacks = request.manual.then(|| self.shared.host.lacks(&engine.info, "manual-compact")).flatten();
        if let Some(lacks) = lacks {
            return Err(EngineError::failed(lacks));
        }
        if let (Some(why), OnFailure::Stop) = (&why, self.shared.on_failure) {
            return Err(EngineError::failed(format!(
                "{why}; the policy is \"strict\": legacy does not compact instead"
            )));
        }
        let session_id = Arc::clone(&call.session_id);
        let answer = self.ask(&engine, "compact", call, move |engine, ctx, host_params| {
            let fields = CompactParamsFields {
                session_id: (&*session_id).into(),
                agent_id: request.agent_id.as_deref().map(RStr::from_str).into(),
                token_budget: Some(request.token_budget).into(),
                force: request.force,
                current_token_count: Some(request.current_tokens).into(),
                compaction_target: request.target.into(),
                custom_instructions: request.custom_instructions.as_deref().map(RStr::from_str).into(),
                host_params,
            };
            fields.lend(|params| engine.compact(ctx, params))
        });
        match answer {
            Some(Ok(answer)) => Ok(self.answer(&engine, answer, why)),
            Some(Err(none)) => Err(none.error),
            None => {
                let error = EngineError::unsupported("compact");
                self.set_aside(&engine, "compact", Fault::Error, &error);
                Err(error)
            }
        }
    }
}
