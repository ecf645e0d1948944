//! A turn, handed to the engine: whole when it has ended, or up to a point in the middle of its tool loop.
//!
//! Decision: one way in for both. `after_turn`, else `ingest_batch`, else `ingest` (contract §2.2, §2.3); what an engine
//! was given at a checkpoint is not given again at the turn's end, because both say where the new messages begin.

use std::ops::Range;
use std::sync::Arc;

use context_engine_interface::std_types::RStr;
use context_engine_interface::{
    AfterTurnParamsFields, EngineError, ErrorCode, IngestBatchParamsFields, IngestParamsFields, MessageFlags,
};
use context_engine_transcript::Message;

use super::members::NoAnswer;
use super::{Answer, Call, EngineHandle, PreparedHistory, Supervised};
use crate::quarantine::Fault;

/// How many messages before the place where a turn should begin are looked at for its first message.
const TURN_EDGE: usize = 16;

/// What became of a turn, or a part of one, in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnTaken {
    /// By this member.
    By(&'static str),
    /// The member failed; the turn's `maintain` is skipped (contract §2.2).
    Failed,
}

/// What is said of a turn besides its messages. A token budget alone is one.
#[derive(Debug, Clone, Default)]
pub struct TurnFacts {
    /// The budget of the turn's prompts, in tokens.
    pub token_budget: u64,
    /// The summary, when the host compacted during the turn.
    pub auto_compaction_summary: Option<Arc<str>>,
    /// Whether it is a heartbeat turn; when absent, it is one if all its messages are marked so.
    pub is_heartbeat: Option<bool>,
    /// How many messages of the whole history the engine was given before (`prePromptMessageCount`); when absent, those
    /// before the first message of the turn, which is looked for near the end.
    pub pre_prompt_message_count: Option<usize>,
}

impl From<u64> for TurnFacts {
    fn from(token_budget: u64) -> TurnFacts {
        TurnFacts { token_budget, ..TurnFacts::default() }
    }
}

impl EngineHandle {
    /// Hands the engine a finished turn: `after_turn`, else `ingest_batch`, else `ingest` (contract §2.2). Without new
    /// messages only `after_turn` is called.
    ///
    /// `turn` is what the pipeline made of the turn's messages; after a [`checkpoint_turn`](Self::checkpoint_turn), of
    /// those that came later. `whole` gives the history after the turn; it is made only for an engine that may have
    /// `after_turn`.
    pub fn take_turn(
        &self,
        call: &Call,
        turn: &Arc<PreparedHistory>,
        whole: impl FnOnce() -> Arc<PreparedHistory>,
        facts: impl Into<TurnFacts>,
    ) -> Answer<TurnTaken> {
        let (engine, why) = self.current();
        let taken = self.hand_over(&engine, why, call, turn, whole, facts.into());
        self.leave_if_held(&engine);
        taken
    }

    /// Hands the engine, in the middle of a turn's tool loop, the messages of `whole` from index `from` on, as
    /// [`take_turn`](Self::take_turn) does at the end (contract §2.3). When it is taken, the next checkpoint or the turn's
    /// end starts from `whole.len()`; when it failed, from the same place again.
    ///
    /// `whole` is the pipeline's view of the history so far. Where the new messages begin is `from`, whatever `facts` say.
    pub fn checkpoint_turn(
        &self,
        call: &Call,
        whole: &Arc<PreparedHistory>,
        from: usize,
        facts: impl Into<TurnFacts>,
    ) -> Answer<TurnTaken> {
        // A turn never changes its engine: what other sessions found out about the build is looked at when it ends.
        let (engine, why) = self.current();
        let from = from.min(whole.len());
        let new = Arc::new(whole.tail(from));
        let facts = TurnFacts { pre_prompt_message_count: Some(from), ..facts.into() };
        self.hand_over(&engine, why, call, &new, || Arc::clone(whole), facts)
    }

    fn hand_over(
        &self,
        engine: &Arc<Supervised>,
        why: Option<String>,
        call: &Call,
        new: &Arc<PreparedHistory>,
        whole: impl FnOnce() -> Arc<PreparedHistory>,
        facts: TurnFacts,
    ) -> Answer<TurnTaken> {
        let marked = |message: &Arc<Message>| message.flags.contains(MessageFlags::HEARTBEAT);
        let is_heartbeat = facts.is_heartbeat.unwrap_or(!new.is_empty() && new.range(0..new.len()).all(marked));
        let taken = |member, answer: Result<(), NoAnswer>| match answer {
            Ok(()) => self.answer(engine, TurnTaken::By(member), why.clone()),
            Err(none) => self.answer(&self.shared.legacy, TurnTaken::Failed, Some(none.why)),
        };
        if !engine.is_known_to_lack("after_turn") {
            let history = whole();
            let before = facts.pre_prompt_message_count.unwrap_or_else(|| first_of_turn(&history, new));
            let before = before.min(history.len()) as u64;
            let (session_id, session_file) = (Arc::clone(&call.session_id), Arc::clone(&call.session_file));
            let after = self.ask(engine, "after_turn", call, move |engine, ctx, host_params| {
                let index = history.views().index();
                let fields = AfterTurnParamsFields {
                    session_id: (&*session_id).into(),
                    session_file: (&*session_file).into(),
                    messages: index.messages(),
                    pre_prompt_message_count: before,
                    auto_compaction_summary: facts.auto_compaction_summary.as_deref().map(RStr::from_str).into(),
                    is_heartbeat,
                    token_budget: Some(facts.token_budget).into(),
                    host_params,
                };
                fields.lend(|params| engine.after_turn(ctx, params))
            });
            if let Some(answer) = after {
                return taken("after_turn", answer.map(drop));
            }
        }
        if !new.is_empty() {
            let (session_id, messages) = (Arc::clone(&call.session_id), Arc::clone(new));
            let batch = self.ask(engine, "ingest_batch", call, move |engine, ctx, host_params| {
                let index = messages.views().index();
                let (session_id, messages) = ((&*session_id).into(), index.messages());
                let fields = IngestBatchParamsFields { session_id, messages, is_heartbeat, host_params };
                fields.lend(|params| engine.ingest_batch(ctx, params))
            });
            if let Some(answer) = batch {
                return taken("ingest_batch", answer.map(drop));
            }
        }
        taken("ingest", self.ingest_each(engine, call, new, facts.is_heartbeat))
    }

    /// One by one. A message that was not taken in does not keep the others back (contract §2.2), unless the engine is gone
    /// or the caller is. The first reason.
    fn ingest_each(
        &self,
        engine: &Arc<Supervised>,
        call: &Call,
        turn: &Arc<PreparedHistory>,
        is_heartbeat: Option<bool>,
    ) -> Result<(), NoAnswer> {
        let mut outcome = Ok(());
        for at in 0..turn.len() {
            let Err(none) = self.ingest(engine, call, (turn, at), is_heartbeat) else { continue };
            let ends = none.set_aside || none.error.code == ErrorCode::CANCELLED;
            outcome = outcome.and(Err(none));
            if ends {
                break;
            }
        }
        outcome
    }

    fn ingest(
        &self,
        engine: &Arc<Supervised>,
        call: &Call,
        (turn, at): (&Arc<PreparedHistory>, usize),
        is_heartbeat: Option<bool>,
    ) -> Result<(), NoAnswer> {
        let (session_id, turn) = (Arc::clone(&call.session_id), Arc::clone(turn));
        let answer = self.ask(engine, "ingest", call, move |engine, ctx, host_params| {
            let index = turn.views().index();
            let Some(message) = index.messages().get(at) else { return Ok(()) };
            let fields = IngestParamsFields {
                session_id: (&*session_id).into(),
                message,
                is_heartbeat: is_heartbeat.unwrap_or(message.flags.contains(MessageFlags::HEARTBEAT)),
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
