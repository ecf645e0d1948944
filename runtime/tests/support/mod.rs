//! A host with one session, a scripted model and an engine that notes what it is called with.
//!
//! Decision: the engine is linked, so that a test says in one place what it does and what came of it. What a loaded
//! engine adds (crossing, threads, quarantine) is tested in the `tests` crate.

#![allow(dead_code, unreachable_pub, reason = "shared by the tests of this folder, each of which uses a part of it")]

use std::sync::{Arc, Mutex};

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, BlockKind, BootstrapParams, BootstrapResult,
    CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError, HostParamValues, HostParams,
    IngestBatchParams, IngestBatchResult, IngestParams, IngestResult, MaintainParams, MaintainResult,
};
use context_engine_loader::{Creation, Loader, LoaderOptions};
use context_engine_runtime::model::{BoxFuture, ScriptedModel, ToolSpec};
use context_engine_runtime::turn::{Tool, ToolCall, ToolOutput};
use context_engine_runtime::{Runtime, RuntimeOptions, Session, TurnEvent, TurnReport, TurnRequest};
use context_engine_transcript::store::SessionHeader;
use serde_json::json;
use tempfile::TempDir;

type Answer<P, R> = Box<dyn for<'a> Fn(&CallContext<'a>, P) -> Result<R, EngineError> + Send + Sync>;

/// What the engine does; what is left out is unsupported, and `assemble` keeps everything.
#[derive(Default)]
pub struct Script {
    pub owns_compaction: bool,
    pub background: bool,
    pub bootstrap: Option<Answer<(), BootstrapResult>>,
    pub maintain: Option<Answer<(), MaintainResult>>,
    pub ingest: Option<Answer<String, IngestResult>>,
    pub ingest_batch: Option<Answer<Vec<String>, IngestBatchResult>>,
    pub after_turn: Option<Answer<(), AfterTurnResult>>,
    pub assemble: Option<Planner>,
    pub compact: Option<Compactor>,
}

/// How an engine compacts.
pub type Compactor =
    Box<dyn Fn(&CallContext<'_>, CompactParams<'_>) -> Result<CompactResult, EngineError> + Send + Sync>;

/// How an engine plans.
pub type Planner = Box<dyn Fn(&AssembleParams<'_>) -> Result<Assembly, EngineError> + Send + Sync>;

/// An `assemble` for a [`Script`].
pub fn plans(
    plan: impl Fn(&AssembleParams<'_>) -> Result<Assembly, EngineError> + Send + Sync + 'static,
) -> Option<Planner> {
    Some(Box::new(plan))
}

/// What the engine was called with, one line for each call.
#[derive(Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    params: Arc<Mutex<Vec<(String, HostParamValues)>>>,
}

impl Log {
    fn note(&self, line: String, params: HostParams<'_>) {
        let member = line.split(' ').next().unwrap_or_default().to_owned();
        self.params.lock().expect("the log").push((member, params.read().expect("host params")));
        self.lines.lock().expect("the log").push(line);
    }

    /// The lines since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("the log"))
    }

    /// The members since the last time, without what they were given.
    pub fn members(&self) -> String {
        let names: Vec<String> =
            self.take().iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect();
        names.join(" ")
    }

    /// The host params of the last call of `member`.
    pub fn params(&self, member: &str) -> HostParamValues {
        let params = self.params.lock().expect("the log");
        params.iter().rev().find(|(name, _)| name == member).map(|(_, values)| values.clone()).expect("it was called")
    }
}

/// The engine.
struct Noting {
    script: Script,
    log: Log,
}

fn unsupported<R>(member: &str) -> Result<R, EngineError> {
    Err(EngineError::unsupported(member))
}

impl ContextEngine for Noting {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        unsupported("create")
    }

    fn bootstrap(&self, ctx: &CallContext<'_>, params: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        self.log.note("bootstrap".into(), params.host_params());
        self.script.bootstrap.as_ref().map_or_else(|| unsupported("bootstrap"), |answer| answer(ctx, ()))
    }

    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        self.log.note("maintain".into(), params.host_params());
        self.script.maintain.as_ref().map_or_else(|| unsupported("maintain"), |answer| answer(ctx, ()))
    }

    fn ingest(&self, ctx: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        let text = said(params.message());
        self.log.note(format!("ingest {text}"), params.host_params());
        self.script.ingest.as_ref().map_or_else(|| Ok(IngestResult::skipped()), |answer| answer(ctx, text))
    }

    fn ingest_batch(
        &self,
        ctx: &CallContext<'_>,
        params: IngestBatchParams<'_>,
    ) -> Result<IngestBatchResult, EngineError> {
        let texts: Vec<String> = params.messages().iter().map(said).collect();
        self.log.note(format!("ingest_batch {}", texts.join(" | ")), params.host_params());
        self.script.ingest_batch.as_ref().map_or_else(|| unsupported("ingest_batch"), |answer| answer(ctx, texts))
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let texts: Vec<String> = params.messages().iter().map(said).collect();
        let (budget, tools) = (params.token_budget().into_option().unwrap_or(0), params.available_tools());
        let tools: Vec<&str> = tools.iter().map(|name| name.as_str()).collect();
        let line = format!("assemble {} budget={budget} tools=[{}]", texts.join(" | "), tools.join(","));
        self.log.note(line, params.host_params());
        match &self.script.assemble {
            Some(answer) => answer(&params),
            None => {
                let mut plan = Assembly::new();
                plan.keep(0..params.messages().len());
                Ok(plan)
            }
        }
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        let current = params.current_token_count().into_option();
        self.log.note(format!("compact force={} current={}", params.force(), current.is_some()), params.host_params());
        match &self.script.compact {
            Some(answer) => answer(ctx, params),
            None => ctx.delegate_compaction(params),
        }
    }

    fn after_turn(&self, ctx: &CallContext<'_>, params: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        let before = usize::try_from(params.pre_prompt_message_count()).expect("a count");
        let new: Vec<String> = params.messages().iter().skip(before).map(said).collect();
        self.log.note(format!("after_turn {before} + {}", new.join(" | ")), params.host_params());
        self.script.after_turn.as_ref().map_or_else(|| unsupported("after_turn"), |answer| answer(ctx, ()))
    }
}

/// A message as tests read it: who speaks and the first words.
fn said(message: &context_engine_interface::MessageView<'_>) -> String {
    let role = message.role.name().unwrap_or("?");
    let texts: Vec<&str> = message
        .blocks
        .iter()
        .map(|b| if b.kind == BlockKind::TOOL_CALL { b.name.as_str() } else { b.text.as_str() })
        .collect();
    let text: String = texts.join(" ").chars().take(24).collect();
    format!("{}:{text}", role.chars().next().unwrap_or('?'))
}

/// A tool that answers with its own name.
pub struct Echo {
    spec: ToolSpec,
    is_clients: bool,
    answer: String,
}

impl Echo {
    pub fn tool(name: &str, answer: &str) -> Arc<dyn Tool> {
        Echo::made(name, answer, false)
    }

    pub fn of_client(name: &str) -> Arc<dyn Tool> {
        Echo::made(name, name, true)
    }

    fn made(name: &str, answer: &str, is_clients: bool) -> Arc<dyn Tool> {
        let spec =
            ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({ "type": "object" }) };
        Arc::new(Echo { spec, is_clients, answer: answer.to_owned() })
    }
}

impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn is_clients(&self) -> bool {
        self.is_clients
    }

    fn call<'a>(&'a self, _: ToolCall<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::text(self.answer.clone()) })
    }
}

/// A host with one session.
pub struct Host {
    folder: TempDir,
    pub log: Log,
    pub model: Arc<ScriptedModel>,
    pub runtime: Runtime,
    pub session: Session,
    pub events: Vec<TurnEvent>,
    tokio: tokio::runtime::Runtime,
}

impl Host {
    /// With the engine `probe` in the slot and no history.
    pub fn new(script: Script, model: ScriptedModel) -> Host {
        Host::with(script, model, |_| ())
    }

    pub fn with(script: Script, model: ScriptedModel, change: impl FnOnce(&mut RuntimeOptions)) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let session = Session::create(&folder.path().join("s1.jsonl"), SessionHeader::default()).expect("a session");
        Host::on((folder, session), script, model, change)
    }

    /// The session in a new host.
    pub fn restarted(self, script: Script, model: ScriptedModel) -> Host {
        let path = self.session.path().to_owned();
        let Host { folder, session, runtime, .. } = self;
        drop((session, runtime));
        let (session, _) = Session::open(&path).expect("the session");
        Host::on((folder, session), script, model, |_| ())
    }

    fn on(
        (folder, session): (TempDir, Session),
        script: Script,
        model: ScriptedModel,
        change: impl FnOnce(&mut RuntimeOptions),
    ) -> Host {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
        let loader = Loader::new(LoaderOptions {
            state_dir: folder.path().join("state"),
            host: RuntimeOptions::profile("the test"),
            ..LoaderOptions::default()
        });
        let model = Arc::new(model.strict_roles());
        let mut options = RuntimeOptions::new(loader.clone(), Arc::clone(&model) as _);
        options.engine = "probe".to_owned();
        change(&mut options);
        let runtime = Runtime::new(options);
        let log = Log::default();
        let info = EngineInfo {
            id: "probe".into(),
            name: "Probe".into(),
            accepted_host_params: None,
            owns_compaction: script.owns_compaction,
            turn_maintenance_mode: script.background.then(|| "background".to_owned()),
            ..context_engine_legacy::LegacyEngine::info()
        };
        let engine = Arc::new(Noting { script, log: log.clone() });
        runtime.lend_engine("probe", loader.linked(engine, info, &Creation::default()).expect("a handle"));
        Host { folder, log, model, runtime, session, events: Vec::new(), tokio }
    }

    /// Runs a turn.
    pub fn ask(&mut self, request: impl Into<Ask>) -> TurnReport {
        let Ask(request) = request.into();
        let events = &mut self.events;
        let mut note = |event| events.push(event);
        self.tokio.block_on(async {
            let report = self.runtime.run_turn(&self.session, request, &mut note).await.expect("the turn begins");
            self.session.settled().await;
            report
        })
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.tokio.block_on(work)
    }

    /// The conversation, as it stands and as it is read again.
    pub fn transcript(&self) -> String {
        let lines: Vec<String> = self
            .session
            .messages()
            .iter()
            .map(|message| {
                let calls: Vec<&str> = message.tool_calls().map(|call| call.id.as_str()).collect();
                let calls = if calls.is_empty() { String::new() } else { format!(" <{}>", calls.join(",")) };
                let text: String = message.text().chars().take(40).collect();
                format!("{}{calls} {text}", message.role_name())
            })
            .collect();
        lines.join("\n")
    }

    /// The texts of the prompt of request `at`.
    pub fn prompt(&self, at: usize) -> String {
        let requests = self.model.requests();
        let texts: Vec<String> = requests[at]
            .messages
            .iter()
            .map(|message| {
                let calls: Vec<&str> = message.tool_calls().map(|call| call.name.as_str()).collect();
                let text: String = message.text().chars().take(24).collect();
                format!("{}:{text}{}", &message.role_name()[..1], calls.concat())
            })
            .collect();
        texts.join(" | ")
    }
}

/// What a test asks: a text or a whole request.
pub struct Ask(TurnRequest);

impl From<&str> for Ask {
    fn from(text: &str) -> Ask {
        Ask(TurnRequest::text(text))
    }
}

impl From<TurnRequest> for Ask {
    fn from(request: TurnRequest) -> Ask {
        Ask(request)
    }
}
