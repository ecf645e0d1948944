//! Step 6, call: one handle that always answers, by the engine asked for or by `legacy`, and says which.
//!
//! Decision: a caller never sees an engine, only this handle. Whatever goes wrong in a plugin is answered by `legacy` in
//! the same call, from the history alone, never from the plugin's output; the answer carries `served_by` and `why`.

mod assemble;
mod history;
mod host_params;
mod plan;
mod services;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    AfterTurnParamsFields, BootstrapParamsFields, BootstrapResult, CallContext, CallServices, CompactParamsFields,
    CompactResult, ContextEngine, DisposeParamsFields, EngineError, ErrorCode, HostParams, IngestBatchParamsFields,
    IngestParamsFields, MaintainParamsFields, MaintainResult, MessageFlags, Messages,
};
use context_engine_transcript::Message;
use serde_json::{Map, Value};

pub use assemble::{AssembleError, AssembleRequest, Assembled, SYSTEM_PROMPT_SEPARATOR};
pub use history::PreparedHistory;
pub use services::EngineServices;

use host_params::HostParamPolicy;
use services::NoServices;

/// How many messages before the place where a turn should begin are looked at for its first message.
const TURN_EDGE: usize = 16;

/// An engine and what the host has learned about it.
pub(crate) struct Supervised {
    pub(crate) engine: Box<dyn ContextEngine>,
    pub(crate) info: EngineInfo,
    host_params: HostParamPolicy,
    /// Members that answered `Unsupported`: not asked again.
    unsupported: Mutex<BTreeSet<&'static str>>,
    failed: AtomicBool,
}

impl Supervised {
    pub(crate) fn new(engine: Box<dyn ContextEngine>, info: EngineInfo) -> Supervised {
        let host_params = HostParamPolicy::new(info.accepted_host_params.clone());
        Supervised { engine, info, host_params, unsupported: Mutex::default(), failed: AtomicBool::new(false) }
    }

    /// Whether this is the first failed prompt: the rest goes to the answers, not to the log.
    fn first_failure(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }

    /// Calls an optional member; `None` when the engine has none.
    fn optional<R>(
        &self,
        member: &'static str,
        host_params: &Map<String, Value>,
        call: impl Fn(&str) -> Result<R, EngineError>,
    ) -> Option<Result<R, EngineError>> {
        let known = || self.unsupported.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(member) {
            return None;
        }
        match self.host_params.call(member, host_params, call) {
            Err(error) if error.code == ErrorCode::UNSUPPORTED => {
                known().insert(member);
                None
            }
            answer => Some(answer),
        }
    }
}

/// The engine a session uses. Answers every call; cheap to clone.
#[derive(Clone)]
pub struct EngineHandle {
    /// The plugin's engine, while there is one that works.
    active: Option<Arc<Supervised>>,
    legacy: Arc<Supervised>,
    /// Why `legacy` answers although another engine was asked for.
    why: Option<String>,
}

/// What a session calls an engine about: who asks, and with which growing part.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The session.
    pub session_id: &'a str,
    /// Where its transcript is kept.
    pub session_file: &'a str,
    /// The host params, before projection.
    pub host_params: &'a Map<String, Value>,
    /// Services for this call.
    pub services: &'a dyn CallServices,
}

/// What became of a finished turn in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnTaken {
    /// By this member.
    By(&'static str),
    /// The member failed; the turn's `maintain` is skipped (contract §2.2).
    Failed,
}

impl EngineHandle {
    pub(crate) fn new(active: Option<Supervised>, legacy: Supervised, why: Option<String>) -> EngineHandle {
        EngineHandle { active: active.map(Arc::new), legacy: Arc::new(legacy), why }
    }

    /// What answers calls now.
    pub fn info(&self) -> &EngineInfo {
        &self.current().info
    }

    /// Why `legacy` answers although another engine was asked for; `None` when the one asked for answers.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn current(&self) -> &Supervised {
        self.active.as_deref().unwrap_or(&self.legacy)
    }

    /// Offers the engine a session that already has a transcript. `None` when it has no `bootstrap` or failed; a failure
    /// is logged and the session goes on with the engine (contract, Part 11 #21).
    pub fn bootstrap(&self, call: Call<'_>) -> Option<BootstrapResult> {
        let current = self.current();
        let answer = current.optional("bootstrap", call.host_params, |host_params| {
            let fields = BootstrapParamsFields {
                session_id: call.session_id.into(),
                session_file: call.session_file.into(),
                host_params: HostParams::from_json(host_params),
            };
            CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.bootstrap(ctx, params)))
        });
        self.logged("bootstrap", answer)
    }

    /// Lets the engine care for the transcript. `None` when it has no `maintain` or failed, which is logged.
    pub fn maintain(&self, call: Call<'_>) -> Option<MaintainResult> {
        let current = self.current();
        let answer = current.optional("maintain", call.host_params, |host_params| {
            let fields = MaintainParamsFields {
                session_id: call.session_id.into(),
                session_file: call.session_file.into(),
                host_params: HostParams::from_json(host_params),
            };
            CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.maintain(ctx, params)))
        });
        self.logged("maintain", answer)
    }

    /// Makes the history shorter. A failure is reported and not redone by `legacy`: the engine may have got half-way.
    ///
    /// # Errors
    /// The engine's error.
    pub fn compact(&self, call: Call<'_>, token_budget: u64, tokens: u64) -> Result<CompactResult, EngineError> {
        let current = self.current();
        current.host_params.call("compact", call.host_params, |host_params| {
            let fields = CompactParamsFields {
                session_id: call.session_id.into(),
                token_budget: Some(token_budget).into(),
                force: true,
                current_token_count: Some(tokens).into(),
                host_params: HostParams::from_json(host_params),
                ..CompactParamsFields::default()
            };
            CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.compact(ctx, params)))
        })
    }

    /// Hands the engine a finished turn: `after_turn`, else `ingest_batch`, else `ingest` (contract §2.2).
    ///
    /// `turn` is what the pipeline made of the turn's messages. `whole` gives the history after the turn; it is made only
    /// for an engine that has `after_turn`.
    pub fn take_turn(
        &self,
        call: Call<'_>,
        turn: &PreparedHistory,
        whole: impl Fn() -> PreparedHistory,
        token_budget: u64,
    ) -> TurnTaken {
        let current = self.current();
        let heartbeat = |message: &Arc<Message>| message.flags.contains(MessageFlags::HEARTBEAT);
        let is_heartbeat = !turn.is_empty() && turn.range(0..turn.len()).all(heartbeat);
        let after = current.optional("after_turn", call.host_params, |host_params| {
            let history = whole();
            let index = history.views().index();
            // By identity: the pipeline may have merged or moved what stands at a turn's edge.
            let is_new = |at: &usize| {
                history.get(*at).is_some_and(|message| turn.range(0..turn.len()).any(|new| new.id == message.id))
            };
            let newest = history.len().saturating_sub(turn.len() + TURN_EDGE)..history.len();
            let before = newest.clone().find(is_new).unwrap_or(newest.end);
            let fields = AfterTurnParamsFields {
                session_id: call.session_id.into(),
                session_file: call.session_file.into(),
                messages: index.messages(),
                pre_prompt_message_count: before as u64,
                auto_compaction_summary: None.into(),
                is_heartbeat,
                token_budget: Some(token_budget).into(),
                host_params: HostParams::from_json(host_params),
            };
            CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.after_turn(ctx, params)))
        });
        if let Some(answer) = after {
            return self.taken("after_turn", answer.map(|_| ()));
        }
        let index = turn.views().index();
        let batch = current.optional("ingest_batch", call.host_params, |host_params| {
            let fields = IngestBatchParamsFields {
                session_id: call.session_id.into(),
                messages: index.messages(),
                is_heartbeat,
                host_params: HostParams::from_json(host_params),
            };
            CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.ingest_batch(ctx, params)))
        });
        if let Some(answer) = batch {
            return self.taken("ingest_batch", answer.map(|_| ()));
        }
        self.taken("ingest", self.ingest_each(call, index.messages()))
    }

    /// Ingests message by message; an error is kept, the rest is still ingested.
    fn ingest_each(&self, call: Call<'_>, messages: Messages<'_>) -> Result<(), EngineError> {
        let current = self.current();
        let mut outcome = Ok(());
        for message in messages.iter() {
            let ingested = current.host_params.call("ingest", call.host_params, |host_params| {
                let fields = IngestParamsFields {
                    session_id: call.session_id.into(),
                    message,
                    is_heartbeat: message.flags.contains(MessageFlags::HEARTBEAT),
                    host_params: HostParams::from_json(host_params),
                };
                CallContext::lend(call.services, |ctx| fields.lend(|params| current.engine.ingest(ctx, params)))
            });
            outcome = outcome.and(ingested.map(|_| ()));
        }
        outcome
    }

    /// Lets the engine release what it holds before its last handle is dropped: `shutdown`, `reload` or `released`. A
    /// failure is logged.
    pub fn dispose(&self, reason: &str) {
        for engine in self.active.iter().chain([&self.legacy]) {
            let answer = engine.optional("dispose", &Map::new(), |_| {
                let fields = DisposeParamsFields { reason: reason.into(), ..DisposeParamsFields::default() };
                CallContext::lend(&NoServices, |ctx| fields.lend(|params| engine.engine.dispose(ctx, params)))
            });
            self.logged("dispose", answer);
        }
    }

    fn taken(&self, member: &'static str, answer: Result<(), EngineError>) -> TurnTaken {
        match self.logged(member, Some(answer)) {
            Some(()) => TurnTaken::By(member),
            None => TurnTaken::Failed,
        }
    }

    fn logged<R>(&self, member: &str, answer: Option<Result<R, EngineError>>) -> Option<R> {
        match answer? {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::warn!(engine = self.info().id, member, %error, "the engine failed; the turn goes on");
                None
            }
        }
    }
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineHandle").field("info", self.info()).field("why", &self.why).finish_non_exhaustive()
    }
}
