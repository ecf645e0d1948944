//! The runtime: engines, a model and tools, put to work on sessions.
//!
//! Decision: it owns no thread and no loop. Whoever embeds it asks for a turn and waits for it, on a tokio runtime of
//! theirs; sessions are independent of each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use context_engine_legacy::compaction::KEEP_RECENT_TOKENS;
use context_engine_loader::{CompactRequest, Creation, EngineHandle, LEGACY, Loader};
use context_engine_transcript::{Encoding, TokenCounter};
use serde_json::{Map, Value};
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use crate::RuntimeError;
use crate::model::{Model, ModelInfo};
use crate::options::RuntimeOptions;
use crate::session::completion::Completer;
use crate::session::{CompactionReport, Session};
use crate::turn::budget::Window;
use crate::turn::frame::Frame;
use crate::turn::record::now_ms;
use crate::turn::run::{Events, TakenBack, Turn};
use crate::turn::tools::ToolSet;
use crate::turn::{SettingsFacts, TurnEnd, TurnReport, TurnRequest};
use crate::watch::Configured;

/// Runs turns. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    options: RuntimeOptions,
    /// What engines are created with: the options', and what was configured since.
    configured: Arc<Configured>,
    slot: RwLock<String>,
    /// Engines that were opened, by id and by what they count with.
    engines: Mutex<HashMap<(String, Encoding), EngineHandle>>,
    /// Engines that a host opened itself, by id.
    lent: Mutex<HashMap<String, EngineHandle>>,
}

impl Runtime {
    /// A runtime with these options. Opens nothing yet.
    pub fn new(options: RuntimeOptions) -> Runtime {
        let slot = RwLock::new(options.engine.clone());
        let configured = Configured::new(Arc::clone(&options.creations));
        let (engines, lent) = (Mutex::default(), Mutex::default());
        Runtime { shared: Arc::new(Shared { options, configured, slot, engines, lent }) }
    }

    /// Id of the engine in the slot.
    pub fn engine(&self) -> String {
        let slot = self.shared.slot.read().unwrap_or_else(PoisonError::into_inner);
        match slot.trim() {
            "" | "none" => LEGACY.to_owned(),
            id => id.to_owned(),
        }
    }

    /// Puts another engine into the slot. Turns that run finish with theirs; the next ones have the new one, in every
    /// session, with the whole history.
    pub fn select_engine(&self, id: impl Into<String>) {
        *self.shared.slot.write().unwrap_or_else(PoisonError::into_inner) = id.into();
        let selected = self.engine();
        // Let go of here, an engine is released when the last turn it serves has ended.
        let others: Vec<_> = self.engines().extract_if(|(id, _), _| *id != selected && id != LEGACY).collect();
        drop(others);
    }

    /// Has turns that ask for `id` use this handle: an engine that is linked into the host, or opened by it. Disposing of
    /// it stays the host's affair, [`Runtime::close`] included.
    pub fn lend_engine(&self, id: impl Into<String>, engine: EngineHandle) {
        self.shared.lent.lock().unwrap_or_else(PoisonError::into_inner).insert(id.into(), engine);
    }

    /// Runs one turn: what the person said, the model's reply, and the tools in between.
    ///
    /// Turns of one session come one after the other, in the order in which they were asked for. Dropping the future
    /// takes the turn back: the session is as the last written entry has it, and the next turn begins when what was under
    /// way has ended.
    ///
    /// # Errors
    /// When the turn cannot begin: the transcript cannot be written, or the engine may not be answered for by another
    /// and does not answer itself. How a turn that began ended is in [`TurnReport::end`].
    pub async fn run_turn(
        &self,
        session: &Session,
        request: TurnRequest,
        events: Events<'_>,
    ) -> Result<TurnReport, RuntimeError> {
        // Whoever stops waiting for the turn takes it back: nothing of it goes on behind their back.
        let taken_back = TakenBack(request.cancel.clone());
        let busy = tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Ok(TurnReport::new(self.engine(), TurnEnd::Aborted)),
            busy = Arc::clone(&session.shared.turn).lock_owned() => busy,
        };
        // Of when the turn begins: another engine may have been selected while it waited.
        let asked_for = self.engine();
        let (frame, model, tools) = self.frame(session, &request, &asked_for, busy).await?;
        let (frame, has_history, answered_at) = {
            let message = user_message(&request);
            blocking(move || {
                let (has_history, answered_at) = {
                    let mut state = frame.session.state();
                    state.begin_turn();
                    let before = (state.has_history(), state.steps());
                    state.append(vec![message], &frame.counter)?;
                    before
                };
                Ok::<_, RuntimeError>((Frame { fenced: true, ..frame }, has_history, answered_at))
            })
            .await??
        };
        let report =
            TurnReport { served_by: frame.engine.info().id.clone(), ..TurnReport::new(asked_for, TurnEnd::Answered) };
        let instance = frame.engine.instance();
        let turn = Turn {
            frame,
            model,
            tools,
            cancel: request.cancel.clone(),
            events,
            told: session.shared.memory().told.take(),
            given: 0,
            instance,
            answered: 0,
            answered_at,
            max_calls: self.shared.options.max_calls.max(1),
            raw: request.raw,
            report,
        };
        let report = turn.run(has_history).await;
        std::mem::forget(taken_back);
        Ok(report)
    }

    /// Compacts a session because a person asked (contract §2.5). `instructions` is what the summary should attend to.
    /// Dropping the future leaves the compaction to go on to its end; the next turn waits for it.
    ///
    /// # Errors
    /// [`RuntimeError::Compaction`] while a turn runs, or with the engine's reason.
    pub async fn compact(
        &self,
        session: &Session,
        instructions: Option<String>,
    ) -> Result<CompactionReport, RuntimeError> {
        let Ok(busy) = Arc::clone(&session.shared.turn).try_lock_owned() else {
            let reason = "manual compaction unavailable while another embedded run is active".to_owned();
            return Err(RuntimeError::Compaction { reason });
        };
        let request = TurnRequest::default();
        let asked_for = self.engine();
        let (frame, _, _) = self.frame(session, &request, &asked_for, busy).await?;
        let request = CompactRequest {
            force: true,
            manual: true,
            custom_instructions: instructions,
            target: context_engine_loader::CompactTarget::Threshold,
            ..CompactRequest::default()
        };
        blocking(move || frame.compact_by_hand(request)).await?
    }

    /// Lets every engine release what it holds, those that were replaced before included, and waits for it. Sessions have to
    /// be settled before, and a watcher dropped.
    pub async fn close(&self) {
        let engines: Vec<EngineHandle> = {
            let mut engines = self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner);
            engines.drain().map(|(_, engine)| engine).collect()
        };
        let loader = self.loader().clone();
        let dispose = move || {
            for engine in engines {
                // The handle said so in the log.
                let _ = engine.dispose("shutdown");
            }
            loader.settle();
        };
        if let Err(error) = blocking(dispose).await {
            tracing::warn!(%error, "the engines could not be disposed of");
        }
    }

    /// The engine of a turn. One that does not serve is asked for again at the next turn (contract, Part 11 #4): its file may
    /// be there then.
    async fn open(&self, id: &str, counter: TokenCounter) -> Result<EngineHandle, RuntimeError> {
        let lent = self.shared.lent.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        let key = (id.to_owned(), counter.encoding());
        let known = lent.or_else(|| self.engines().get(&key).cloned());
        if let Some(engine) = known {
            return Ok(engine);
        }
        let runtime = self.clone();
        blocking(move || {
            let options = &runtime.shared.options;
            // Not the runtime itself: it owns the handle that asks.
            let (configured, asked) = (Arc::clone(&runtime.shared.configured), key.0.clone());
            let creation = Arc::new(move || {
                let creation = configured.creation(&asked);
                Creation { counter: creation.counter.or(Some(counter)), ..creation }
            });
            let engine =
                options.loader.engine_with(&key.0, creation).map_err(|error| RuntimeError::Engine(Box::new(error)))?;
            let is_selected = key.0 == LEGACY || key.0 == runtime.engine();
            if engine.info().id != key.0 || !is_selected {
                return Ok(engine);
            }
            // Another session may have been faster.
            Ok(runtime.engines().entry(key).or_insert(engine).clone())
        })
        .await?
    }

    pub(crate) fn loader(&self) -> &Loader {
        &self.shared.options.loader
    }

    pub(crate) fn configured(&self) -> &Configured {
        &self.shared.configured
    }

    fn engines(&self) -> std::sync::MutexGuard<'_, HashMap<(String, Encoding), EngineHandle>> {
        self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the calls of a turn are made with.
    async fn frame(
        &self,
        session: &Session,
        request: &TurnRequest,
        asked_for: &str,
        busy: OwnedMutexGuard<()>,
    ) -> Result<(Frame, Arc<dyn Model>, ToolSet), RuntimeError> {
        let options = &self.shared.options;
        let model = request.model.clone().unwrap_or_else(|| Arc::clone(&options.model));
        let info = model.info().clone();
        let counter = {
            let (session, info) = (session.clone(), info.clone());
            blocking(move || settle_model(&session, &info)).await??
        };
        // What a raw turn asks of nobody is not opened either.
        let engine = self.open(if request.raw { LEGACY } else { asked_for }, counter).await?;
        // Whatever is put in its place meanwhile: a turn has one engine, and `legacy` when that fails. On a thread that may
        // wait, because an engine whose quarantine was lifted is opened here.
        let engine = blocking(move || engine.for_turn()).await?;
        let model_name = format!("{}/{}", info.provider, info.id);
        let (overcount, last_usage) = {
            let memory = session.shared.memory();
            let known = memory.overcount.as_ref().filter(|(name, _)| *name == model_name);
            (known.map_or(1.0, |(_, over)| *over), memory.last_usage)
        };
        let window = Window::new(smaller(info.context_window, options.context_tokens), options.reserve_tokens);
        let creation = self.shared.configured.creation(asked_for);
        let host_tools = request.tools.as_deref().unwrap_or(&options.tools);
        let mut frame = Frame {
            session: Arc::clone(&session.shared),
            engine,
            completer: Some(Completer { model: Arc::clone(&model), host: tokio::runtime::Handle::current() }),
            counter,
            system: request.system.clone().unwrap_or_else(|| options.system.clone()),
            tools: Arc::default(),
            available_tools: Arc::default(),
            window,
            budget: (window.prompt_budget() as f64 / overcount.max(1.0)) as u64,
            keep_recent: options.keep_recent.unwrap_or(KEEP_RECENT_TOKENS),
            compactor: Arc::clone(&options.compactor),
            settings: settings(&options.host, &info, asked_for),
            agent_dir: creation.agent_dir,
            workspace_dir: creation.workspace_dir,
            prompt: prompt_text(request),
            is_heartbeat: request.is_heartbeat,
            compacted: None,
            compactions: session.state().conversation.compactions(),
            last_usage,
            _busy: Arc::new(busy),
            fenced: false,
            cancel: request.cancel.token(),
            model: info,
        };
        let engine_tools = if request.raw {
            Vec::new()
        } else {
            let asking = frame.clone();
            blocking(move || asking.list_tools()).await?
        };
        let tools = ToolSet::new(host_tools, engine_tools);
        frame.tools = Arc::clone(&tools.specs);
        frame.available_tools = Arc::clone(&tools.available);
        Ok((frame, model, tools))
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("engine", &self.engine()).finish_non_exhaustive()
    }
}

/// Has the session's messages counted and cleaned for the model, and its transcript say which one it is.
fn settle_model(session: &Session, model: &ModelInfo) -> Result<TokenCounter, RuntimeError> {
    let counter = TokenCounter::for_model(Some(&model.id));
    let before = session.shared.memory().counter.replace(counter);
    let recount = before.is_some_and(|before| before.encoding() != counter.encoding());
    let name = format!("{}/{}", model.provider, model.id);
    session.state().use_model(model, &name, recount, &counter)?;
    Ok(counter)
}

/// Runs what may wait.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, RuntimeError> {
    spawn_blocking(work).await.map_err(|error| RuntimeError::Task { reason: error.to_string() })
}

/// The smaller of both; 0 is none.
fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    let some = |tokens: Option<u64>| tokens.filter(|tokens| *tokens > 0);
    match (some(a), some(b)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn settings(host: &SettingsFacts, model: &ModelInfo, asked_for: &str) -> SettingsFacts {
    SettingsFacts {
        requested_model: host.requested_model.clone().or_else(|| Some(model.id.clone())),
        resolved_model: Some(model.id.clone()),
        provider: Some(model.provider.clone()),
        family: model.family.clone(),
        selected_engine: Some(asked_for.to_owned()),
        host_id: host.host_id.clone().or_else(|| Some("embedded".to_owned())),
        host_label: host.host_label.clone().or_else(|| Some("Embedded runtime".to_owned())),
        ..host.clone()
    }
}

fn user_message(request: &TurnRequest) -> Map<String, Value> {
    let mut message = Map::new();
    message.insert("role".into(), "user".into());
    message.insert("content".into(), request.content.clone().into());
    if request.is_heartbeat {
        message.insert("isHeartbeat".into(), true.into());
    }
    message.insert("timestamp".into(), now_ms().into());
    message
}

fn prompt_text(request: &TurnRequest) -> String {
    let texts = request.content.iter().filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}
