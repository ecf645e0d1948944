//! The members a session calls outside of a prompt, each asked of whoever sits in the handle's seat.

use std::ops::Range;
use std::sync::Arc;

use context_engine_interface::{
    AfterTurnParamsFields, BootstrapParamsFields, BootstrapResult, CallContext, CompactParamsFields, CompactResult,
    ContextEngine, EngineError, HostParams, IngestBatchParamsFields, IngestParamsFields, MaintainParamsFields,
    MaintainResult, MessageFlags,
};
use context_engine_transcript::Message;

use super::supervised::Failure;
use super::{Answer, Call, EngineHandle, PreparedHistory, Supervised};
use crate::loader::OnFailure;
use crate::quarantine::Fault;

/// How many messages before the place where a turn should begin are looked at for its first message.
const TURN_EDGE: usize = 16;

/// What became of a finished turn in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnTaken {
    /// By this member.
    By(&'static str),
    /// The member failed; the turn's `maintain` is skipped (contract §2.2).
    Failed,
}

/// How far the history is to be compacted.
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
}

/// Why there is no answer of the engine's.
struct NoAnswer {
    why: String,
    error: EngineError,
    /// Whether the engine was set aside for it.
    set_aside: bool,
}

impl NoAnswer {
    /// For the result `legacy` gives instead; of an engine that was set aside in the contract's words (§3.5).
    fn remark(&self) -> String {
        if self.set_aside { "context engine downgraded to legacy".to_owned() } else { self.why.clone() }
    }
}

impl EngineHandle {
    /// Calls `member`. `None` when the engine does not have it; `Err` with the reason when it gave no answer.
    fn ask<R: Send + 'static>(
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
        let set_aside = matches!(failure, Failure::Its(..));
        Some(Err(NoAnswer { why, error: failure.into_error(), set_aside }))
    }

    fn answer<T>(&self, engine: &Supervised, value: T, why: Option<String>) -> Answer<T> {
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
                token_budget: Some(request.token_budget).into(),
                force: request.force,
                current_token_count: Some(request.current_tokens).into(),
                host_params,
                ..CompactParamsFields::default()
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

    /// Hands the engine a finished turn: `after_turn`, else `ingest_batch`, else `ingest` (contract §2.2).
    ///
    /// `turn` is what the pipeline made of the turn's messages. `whole` gives the history after the turn; it is made only
    /// for an engine that may have `after_turn`.
    pub fn take_turn(
        &self,
        call: &Call,
        turn: &Arc<PreparedHistory>,
        whole: impl FnOnce() -> Arc<PreparedHistory>,
        token_budget: u64,
    ) -> Answer<TurnTaken> {
        let (engine, why) = self.current();
        let taken = self.hand_over(&engine, why, call, (turn, whole, token_budget));
        self.leave_if_held(&engine);
        taken
    }

    fn hand_over(
        &self,
        engine: &Arc<Supervised>,
        why: Option<String>,
        call: &Call,
        (turn, whole, token_budget): (&Arc<PreparedHistory>, impl FnOnce() -> Arc<PreparedHistory>, u64),
    ) -> Answer<TurnTaken> {
        let heartbeat = |message: &Arc<Message>| message.flags.contains(MessageFlags::HEARTBEAT);
        let is_heartbeat = !turn.is_empty() && turn.range(0..turn.len()).all(heartbeat);
        let taken = |member, answer: Result<(), NoAnswer>| match answer {
            Ok(()) => self.answer(engine, TurnTaken::By(member), why.clone()),
            Err(none) => self.answer(&self.shared.legacy, TurnTaken::Failed, Some(none.why)),
        };
        if !engine.is_known_to_lack("after_turn") {
            let history = whole();
            let before = first_of_turn(&history, turn) as u64;
            let (session_id, session_file) = (Arc::clone(&call.session_id), Arc::clone(&call.session_file));
            let after = self.ask(engine, "after_turn", call, move |engine, ctx, host_params| {
                let index = history.views().index();
                let fields = AfterTurnParamsFields {
                    session_id: (&*session_id).into(),
                    session_file: (&*session_file).into(),
                    messages: index.messages(),
                    pre_prompt_message_count: before,
                    auto_compaction_summary: None.into(),
                    is_heartbeat,
                    token_budget: Some(token_budget).into(),
                    host_params,
                };
                fields.lend(|params| engine.after_turn(ctx, params))
            });
            if let Some(answer) = after {
                return taken("after_turn", answer.map(drop));
            }
        }
        let (session_id, messages) = (Arc::clone(&call.session_id), Arc::clone(turn));
        let batch = self.ask(engine, "ingest_batch", call, move |engine, ctx, host_params| {
            let index = messages.views().index();
            let session_id = (&*session_id).into();
            let fields = IngestBatchParamsFields { session_id, messages: index.messages(), is_heartbeat, host_params };
            fields.lend(|params| engine.ingest_batch(ctx, params))
        });
        if let Some(answer) = batch {
            return taken("ingest_batch", answer.map(drop));
        }
        for at in 0..turn.len() {
            if let Err(none) = self.ingest(engine, call, turn, at) {
                return taken("ingest", Err(none));
            }
        }
        taken("ingest", Ok(()))
    }

    fn ingest(
        &self,
        engine: &Arc<Supervised>,
        call: &Call,
        turn: &Arc<PreparedHistory>,
        at: usize,
    ) -> Result<(), NoAnswer> {
        let (session_id, turn) = (Arc::clone(&call.session_id), Arc::clone(turn));
        let answer = self.ask(engine, "ingest", call, move |engine, ctx, host_params| {
            let index = turn.views().index();
            let Some(message) = index.messages().get(at) else { return Ok(()) };
            let fields = IngestParamsFields {
                session_id: (&*session_id).into(),
                message,
                is_heartbeat: message.flags.contains(MessageFlags::HEARTBEAT),
                host_params,
            };
            fields.lend(|params| engine.ingest(ctx, params)).map(drop)
        });
        match answer {
            Some(answer) => answer,
            None => {
                let error = EngineError::unsupported("ingest");
                let why = self.set_aside(engine, "ingest", Fault::Error, &error);
                Err(NoAnswer { why, error, set_aside: true })
            }
        }
    }
}

/// Index in `history` of the first message of `turn`, by identity: the pipeline may have merged or moved what stands at a
/// turn's edge.
fn first_of_turn(history: &PreparedHistory, turn: &PreparedHistory) -> usize {
    let is_new =
        |at: &usize| history.get(*at).is_some_and(|message| turn.range(0..turn.len()).any(|new| new.id == message.id));
    let newest: Range<usize> = history.len().saturating_sub(turn.len() + TURN_EDGE)..history.len();
    newest.clone().find(is_new).unwrap_or(newest.end)
}
