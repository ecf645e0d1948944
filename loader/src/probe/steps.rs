//! What the child tries: one engine's short life, with a history of three messages.
//!
//! Decision: as little as shows that calls work. Nothing is asked that an engine may refuse for a good reason, and what
//! it refuses all the same is no failure: a probe convicts only of what no engine may do.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_engine_interface::{
    AssembleParamsFields, Assembly, CallContext, CallServices, ContextEngine, DisposeParamsFields, EngineContextFields,
    EngineError, EngineHost, ErrorCode, HostServices, LogLevel, RemoteEngine, ToolsListParamsFields, ViewChunks,
};
use context_engine_transcript::Message;
use serde_json::{Map, Value};

use super::failure::{ProbeFailure, ProbeStep};
use super::{Request, Verdict};
use crate::error::Problem;
use crate::open;
use crate::supervise::{Instance, left_out_of, read_tools, takes};
use crate::text::on_one_line;

/// What the messages may cost: far more than they do.
const BUDGET: u64 = 8_000;

/// The history, by role and text.
const HISTORY: [(&str, &str); 3] = [
    ("user", "Which files are in this folder?"),
    ("assistant", "Two: README.md and LICENSE."),
    ("user", "Read the first one."),
];

/// How many lines an engine logs are kept, and how long one may be.
const MAX_LINES: usize = 50;
const MAX_LINE: usize = 400;

/// How much of a reason is kept, in characters.
const MAX_REASON: usize = 4_000;

/// How the panic hook of a plugin begins its line.
const PANIC: &str = "panicked at ";

/// The services of the engine's life and of its calls: lines are collected and printed, tokens are guessed.
pub(super) struct Services {
    until: Instant,
    lines: Mutex<Vec<String>>,
    /// The newest line of the plugin's panic hook.
    panic: Mutex<Option<String>>,
}

impl Services {
    pub(super) fn new(until: Instant) -> Services {
        Services { until, lines: Mutex::default(), panic: Mutex::default() }
    }
}

impl HostServices for Services {
    fn log(&self, level: LogLevel, message: &str) {
        let line: String = on_one_line(message).chars().take(MAX_LINE).collect();
        if level == LogLevel::ERROR && message.starts_with(PANIC) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            // Into the probe's own file: the last words of an engine that ends the process are worth having.
            let _ = writeln!(std::io::stderr(), "{line}");
            lines.push(line);
        }
    }

    /// By length: reading the tables of a real encoding takes longer than the whole probe.
    fn count_tokens(&self, text: &str) -> u64 {
        tokens(text)
    }
}

impl CallServices for Services {
    fn remaining(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now()))
    }
}

fn tokens(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

/// Takes one step after the other; `note` is told before each.
pub(super) fn take_steps(
    library: &Path,
    request: &Request,
    state_dir: &Path,
    services: &Arc<Services>,
    note: &mut impl FnMut(ProbeStep),
) -> Verdict {
    let mut seen = Seen::default();
    let outcome = live(library, request, state_dir, services, note, &mut seen);
    let log = std::mem::take(&mut *services.lines.lock().unwrap_or_else(PoisonError::into_inner));
    Verdict { failure: outcome.err(), assemble: seen.assemble, tools: seen.tools, log }
}

/// What is no failure, and worth a word.
#[derive(Default)]
struct Seen {
    assemble: Option<String>,
    tools: Option<String>,
}

fn live(
    library: &Path,
    request: &Request,
    state_dir: &Path,
    services: &Arc<Services>,
    note: &mut impl FnMut(ProbeStep),
    seen: &mut Seen,
) -> Result<(), ProbeFailure> {
    note(ProbeStep::Open);
    let module = open::library(library, &request.record).map_err(refusal)?;
    note(ProbeStep::Extension);
    open::check_extension(module).map_err(refusal)?;
    let tools = open::tools(module, &request.record).map_err(refusal)?;

    note(ProbeStep::Create);
    let host = EngineHost::new(Arc::clone(services) as Arc<dyn HostServices>);
    let config = request.config.as_ref().map_or_else(String::new, Value::to_string);
    let state_dir = state_dir.to_string_lossy();
    let fields = EngineContextFields {
        config_json: config.as_str().into(),
        state_dir: state_dir.as_ref().into(),
        agent_dir: None.into(),
        workspace_dir: None.into(),
        host: &host,
    };
    let created = fields.lend(|ctx| module.create()(ctx)).into_result();
    let object = created.map_err(|error| {
        panicked(ProbeStep::Create, &error)
            .unwrap_or_else(|| ProbeFailure::Create { reason: brief(&error.to_string()) })
    })?;
    let instance = Instance::Loaded(RemoteEngine::new(object), tools);
    let engine = instance.engine();

    note(ProbeStep::Assemble);
    let plan = assemble(engine, services.as_ref());
    match plan {
        Ok(plan) => in_order(&plan, HISTORY.len() as u64)
            .map_err(|reason| ProbeFailure::Wrong { step: ProbeStep::Assemble, reason })?,
        Err(error) => match panicked(ProbeStep::Assemble, &error) {
            Some(failure) => return Err(failure),
            None => seen.assemble = Some(brief(&error.to_string())),
        },
    }

    if tools.is_some() {
        note(ProbeStep::Tools);
        seen.tools = list_tools(&instance, services.as_ref())?;
    }

    note(ProbeStep::Dispose);
    let fields = DisposeParamsFields { reason: "shutdown".into(), ..DisposeParamsFields::default() };
    let disposed = CallContext::lend(services.as_ref(), |ctx| fields.lend(|params| engine.dispose(ctx, params)));
    if let Some(failure) = disposed.err().and_then(|error| panicked(ProbeStep::Dispose, &error)) {
        return Err(failure);
    }

    note(ProbeStep::Drop);
    let panic = || services.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    // One of a thread of the engine's own is the engine's affair, here as everywhere.
    drop(panic());
    drop(instance);
    match panic() {
        Some(reason) => Err(ProbeFailure::Panicked { step: ProbeStep::Drop, reason }),
        None => Ok(()),
    }
}

fn assemble(engine: &dyn ContextEngine, services: &dyn CallServices) -> Result<Assembly, EngineError> {
    let messages = HISTORY.iter().zip(1..).map(|((role, text), number)| {
        let map = Map::from_iter([("role".to_owned(), Value::from(*role)), ("content".to_owned(), Value::from(*text))]);
        let message = Message::from_map(format!("probe-{number}"), map).map_err(EngineError::failed)?;
        Ok(Arc::new(Message { tokens: tokens(text), ..message }))
    });
    let views = ViewChunks::build(&messages.collect::<Result<Vec<_>, EngineError>>()?);
    let index = views.index();
    let fields = AssembleParamsFields {
        session_id: "probe".into(),
        messages: index.messages(),
        token_budget: Some(BUDGET).into(),
        ..AssembleParamsFields::default()
    };
    CallContext::lend(services, |ctx| fields.lend(|params| engine.assemble(ctx, params)))
}

/// What of the list cannot be offered; nothing of it is a failure but a panic.
fn list_tools(instance: &Instance, services: &dyn CallServices) -> Result<Option<String>, ProbeFailure> {
    let fields = ToolsListParamsFields { session_id: "probe".into(), ..ToolsListParamsFields::default() };
    let listed = CallContext::lend(services, |ctx| fields.lend(|params| instance.list_tools(ctx, params)));
    match listed {
        Ok(json) => {
            let (_, left_out) = read_tools(&json);
            Ok((!left_out.is_empty()).then(|| brief(&left_out_of(&left_out))))
        }
        Err(error) => match panicked(ProbeStep::Tools, &error) {
            Some(failure) => Err(failure),
            None => Ok(Some(brief(&error.to_string()))),
        },
    }
}

/// A panic is one wherever it happens; every other error is the engine's to answer.
fn panicked(step: ProbeStep, error: &EngineError) -> Option<ProbeFailure> {
    let reason = || brief(&error.to_string());
    (error.code == ErrorCode::PANICKED).then(|| ProbeFailure::Panicked { step, reason: reason() })
}

/// One line, and not longer than a person reads: it is an engine's text.
fn brief(text: &str) -> String {
    on_one_line(&text.chars().take(MAX_REASON).collect::<String>())
}

/// Whose fault it is that a library cannot be opened: the system's, or the build's.
fn refusal(problem: Problem) -> ProbeFailure {
    let reason = brief(&problem.to_string());
    match problem {
        Problem::Extension { .. } | Problem::NoExtension { .. } => {
            ProbeFailure::Wrong { step: ProbeStep::Extension, reason }
        }
        Problem::Identity { .. } | Problem::Layout { .. } | Problem::NoRecord => {
            ProbeFailure::Wrong { step: ProbeStep::Open, reason }
        }
        _ => ProbeFailure::Refused { reason },
    }
}

/// Refuses a plan whose steps are none, or take messages twice or that do not exist.
fn in_order(plan: &Assembly, known: u64) -> Result<(), String> {
    let mut next = 0;
    for (step, segment) in plan.segments.iter().enumerate() {
        if let Some(taken) = takes(step, segment, next, known).map_err(|error| error.to_string())? {
            next = taken.end;
        }
    }
    Ok(())
}
