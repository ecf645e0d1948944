//! Everything a host can ask of an engine, once, and all that came of it as one value.
//!
//! Decision: engine and host of different times are compared by what they do, not by what they look like: what the engine
//! was given (its journal) and what the host was answered, member by member. So nothing here depends on how either of
//! them was built, and hosts on older interfaces are built from this very file. What is the host's own affair (budgets,
//! its wording, how long it took) is left out.

use std::path::Path;
use std::sync::Arc;

use context_engine_interface::abi::module::{EngineModule, Extension};
use context_engine_interface::record::Record;
use context_engine_interface::{
    AfterTurnParamsFields, AssembleParamsFields, BootstrapParamsFields, CallContext, CallServices,
    CommitTurnParamsFields, CompactParamsFields, ContextEngine, DisposeParamsFields, EngineContextFields, EngineError,
    EngineHost, HostParams, IngestBatchParamsFields, IngestParamsFields, MaintainParamsFields,
    PrepareSubagentSpawnParamsFields, RemoteEngine, RollbackSubagentSpawnParamsFields, SubagentEndedParamsFields,
    ToolCallParamsFields, ToolsListParamsFields, ViewChunks,
};
use context_engine_loader::supervise::EngineServices;
use context_engine_loader::{Creation, EngineHandle, Loader, LoaderOptions};
use context_engine_transcript::TokenCounter;
use serde_json::{Value, json};

use crate::session::{BUDGET, Services, assemble, compact, history, messages, plain_call, take_turn, three_turns};

/// What `faulty` can do wrong in `assemble` and live, an unknown fault included.
const FAULTS: [&str; 15] = [
    "error",
    "unsupported",
    "unavailable",
    "panic",
    "panic-number",
    "panic-bomb",
    "typo",
    "trace",
    "overlap",
    "past-end",
    "no-json",
    "empty",
    "unknown-step",
    "orphan-call",
    "lies-about-tokens",
];

/// What the engine `id`, whose library lies in `home/plugins`, did on its tour.
pub fn tour(home: &Path, id: &str) -> Value {
    let loader = Loader::new(LoaderOptions {
        directories: vec![home.join("plugins").into()],
        state_dir: home.join("state"),
        ..LoaderOptions::default()
    });
    let plugin = match loader.find(id) {
        Ok(plugin) => plugin,
        Err(error) => return json!({ "refused": error.problem.to_string() }),
    };
    if id == "faulty" {
        return FAULTS.into_iter().map(|what| (what.to_owned(), fault(&loader, home, what))).collect();
    }
    let module = match plugin.open() {
        Ok(module) => module,
        Err(error) => return json!({ "refused": error.problem.to_string() }),
    };
    let supervised = supervised(&loader, id);
    let given = journal(home, id);
    let bare = members(home, id, module);
    json!({
        "record": declared(&plugin.inspection().record),
        "supervised": supervised,
        "given": given,
        "bare": bare,
        "given bare": journal(home, id),
    })
}

/// What an engine says of itself; compiler and target say how it was built.
fn declared(record: &Record) -> Value {
    let mut said = serde_json::to_value(record).unwrap_or_else(|error| error.to_string().into());
    if let Some(said) = said.as_object_mut() {
        said.retain(|key, _| !matches!(key.as_str(), "compiler" | "target"));
    }
    said
}

fn engine(loader: &Loader, id: &str, config: Value) -> EngineHandle {
    let creation = Creation {
        config: Some(config),
        agent_dir: Some("/agents/main".into()),
        workspace_dir: Some("/workspace".into()),
        ..Creation::default()
    };
    loader.engine(id, &creation).expect("a handle")
}

/// What the supervised members answered.
fn supervised(loader: &Loader, id: &str) -> Value {
    let handle = engine(loader, id, json!({ "a": 1 }));
    let call = plain_call();
    let prompt = assembled(&handle, id, BUDGET);
    let bootstrap = handle.bootstrap(&call);
    let maintain = handle.maintain(&call);
    let taken = take_turn(&handle, &call, history(&["user: three", "assistant: tres"]));
    let compacted = compact(&handle, &call);
    let tools = handle.tools(&call);
    let called = |name: &str| {
        let answer = handle.call_tool(&call, "call-1", name, r#"{"q":1}"#);
        // How a failure is told to the model is the host's affair.
        json!([answer.served_by, (!answer.is_error).then_some(answer.content)])
    };
    let seen = json!({
        "why": handle.why(),
        "assemble": prompt,
        // Less than the three turns take: a window slides.
        "assemble in 16 tokens": assembled(&handle, id, 16),
        "bootstrap": [format!("{:?}", bootstrap.value), bootstrap.served_by],
        "maintain": [format!("{:?}", maintain.value), maintain.served_by],
        "turn": format!("{:?}", taken.value),
        "compact": format!("{compacted:?}"),
        "tools": tools.value.into_iter().map(|tool| tool.name).collect::<Vec<_>>(),
        "call": [called("recall"), called("other")],
        "dispose": format!("{:?}", handle.dispose("shutdown")),
    });
    drop(handle);
    seen
}

/// A prompt, as far as its engine decides it; nothing when another one had to answer, or none could.
fn assembled(handle: &EngineHandle, id: &str, budget: u64) -> Value {
    let prompt = assemble(handle, &three_turns(), budget).ok().filter(|prompt| prompt.served_by == id);
    prompt.map_or(Value::Null, |prompt| {
        json!({
            "texts": prompt.messages.iter().map(|message| message.text()).collect::<Vec<_>>(),
            "addition": prompt.system_prompt_addition,
            "may overflow": prompt.may_overflow,
            "projection": prompt.projection.map(|projection| [Some(projection.mode.name().into()), projection.epoch]),
            "repaired": prompt.repaired > 0,
            "fitted": prompt.fitted,
        })
    })
}

/// What became of a prompt that `faulty` does wrong.
fn fault(loader: &Loader, home: &Path, what: &str) -> Value {
    let config = json!({ "faults": { "assemble": what } });
    let handle = engine(loader, "faulty", config.clone());
    let prompt = assembled(&handle, "faulty", BUDGET);
    let module = loader.find("faulty").and_then(|plugin| plugin.open()).expect("opened a moment ago");
    let engine = create(home, "faulty", &config, module).expect("no fault in `create`");
    json!({ "prompt": prompt, "answer": planned(&engine, &Nothing) })
}

/// Services no host offers.
struct Nothing;

impl CallServices for Nothing {}

/// An instance without the supervisor, with its journal where `journal` looks.
///
/// # Errors
/// The engine's own.
pub fn create(home: &Path, id: &str, config: &Value, module: EngineModule) -> Result<RemoteEngine, EngineError> {
    let state_dir = home.join("state/engines").join(id);
    std::fs::create_dir_all(&state_dir).expect("a folder");
    let (state_dir, config) = (state_dir.to_string_lossy(), config.to_string());
    let services = EngineHost::new(Arc::new(EngineServices::new(id, TokenCounter::for_model(None))));
    let fields = EngineContextFields {
        config_json: config.as_str().into(),
        state_dir: state_dir.as_ref().into(),
        agent_dir: None.into(),
        workspace_dir: None.into(),
        host: &services,
    };
    fields.lend(|ctx| module.create()(ctx).into_result()).map(RemoteEngine::new)
}

/// A plan, or the error as code, text and details.
fn planned(engine: &RemoteEngine, services: &dyn CallServices) -> String {
    let chunks = ViewChunks::build(&messages(&["user: one", "assistant: uno", "user: two"]));
    let index = chunks.index();
    let fields = AssembleParamsFields {
        session_id: "s1".into(),
        messages: index.messages(),
        token_budget: Some(BUDGET).into(),
        ..Default::default()
    };
    let plan = CallContext::lend(services, |ctx| fields.lend(|params| engine.assemble(ctx, params)));
    plan.map_or_else(|error| format!("{error:?}"), |plan| format!("{plan:?}"))
}

/// What every member answers without the supervisor: the ones it calls rarely, and what it refuses.
fn members(home: &Path, id: &str, module: EngineModule) -> Value {
    let engine = match create(home, id, &json!({ "b": 2 }), module) {
        Ok(engine) => engine,
        Err(error) => return format!("{error:?}").into(),
    };
    let chunks = ViewChunks::build(&messages(&["user: three", "assistant: tres"]));
    let index = chunks.index();
    let known = HostParams::from_json(r#"{"sessionKey":"k"}"#);
    let (messages, session_id, session_file, host_params) = (index.messages(), "s1".into(), "s1.jsonl".into(), known);
    let mut seen = serde_json::Map::new();
    macro_rules! ask {
        ($member:ident, $words:literal, $fields:expr) => {
            let asked = |ctx: &CallContext<'_>| $fields.lend(|params| engine.$member(ctx, params));
            let answer = format!("{:?}", CallContext::lend(&Services::default(), asked));
            seen.insert($words.to_owned(), answer.into());
        };
    }
    ask!(bootstrap, "bootstrap", BootstrapParamsFields { session_id, session_file, host_params });
    ask!(maintain, "maintain", MaintainParamsFields { session_id, session_file, host_params });
    let Some(message) = messages.get(0) else { return "no message".into() };
    ask!(ingest, "ingest", IngestParamsFields { session_id, message, is_heartbeat: true, host_params });
    let fields = || IngestBatchParamsFields { session_id, messages, is_heartbeat: false, host_params };
    ask!(ingest_batch, "ingest_batch", fields());
    seen.insert("assemble".to_owned(), planned(&engine, &Services::default()).into());
    let fields = || CompactParamsFields {
        session_id,
        agent_id: Some("main".into()).into(),
        custom_instructions: Some("keep the file names".into()).into(),
        force: true,
        host_params,
        ..Default::default()
    };
    ask!(compact, "compact", fields());
    let fields = || AfterTurnParamsFields {
        session_id,
        session_file,
        messages,
        pre_prompt_message_count: 1,
        auto_compaction_summary: Some("what was said".into()).into(),
        is_heartbeat: true,
        host_params,
        ..Default::default()
    };
    ask!(after_turn, "after_turn", fields());
    let fields = || CommitTurnParamsFields {
        session_id,
        advancement_key: "turn-3".into(),
        admission_json: r#"{"entry":"e5"}"#.into(),
        terminal_json: r#"{"entry":"e6"}"#.into(),
        messages,
        is_heartbeat: false,
        host_params,
    };
    ask!(commit_turn, "commit_turn", fields());
    let fields = || PrepareSubagentSpawnParamsFields {
        parent_session_key: "agent:main:x".into(),
        child_session_key: "agent:main:child".into(),
        context_mode: Some("fork".into()).into(),
        ttl_ms: Some(60_000).into(),
        host_params,
        ..Default::default()
    };
    ask!(prepare_subagent_spawn, "prepare_subagent_spawn", fields());
    let undone = RollbackSubagentSpawnParamsFields { token: 41, host_params };
    ask!(rollback_subagent_spawn, "rollback_subagent_spawn", undone);
    let (child_session_key, reason) = ("agent:main:child".into(), "completed".into());
    ask!(on_subagent_ended, "on_subagent_ended", SubagentEndedParamsFields { child_session_key, reason, host_params });
    // What an engine that names the host params it knows refuses before its code runs.
    let host_params = HostParams::from_json(r#"{"sessionKey":"k","runtimeSettings":{"schemaVersion":1}}"#);
    ask!(bootstrap, "an unknown host param", BootstrapParamsFields { session_id, session_file, host_params });
    seen.insert("extensions".to_owned(), extensions(&engine, module));
    ask!(dispose, "dispose", DisposeParamsFields { reason: "reload".into(), host_params: HostParams::NONE });
    seen.into()
}

/// What the engine's tools answer, and what it answers to extensions that do not exist.
fn extensions(engine: &RemoteEngine, module: EngineModule) -> Value {
    let unknown = [("nonsense", 1), ("tools", 2), ("tools", 0), ("", 1)];
    let unknown = unknown.map(|(id, version)| module.extension()(id.into(), version).is_some());
    let table = module.extension()("tools".into(), 1).into_option().map(|table| table.into_enum());
    let Some(Ok(Extension::Tools1(tools))) = table else { return json!({ "unknown": unknown, "tools": null }) };
    let services = Services::default();
    let list = CallContext::lend(&services, |ctx| {
        let fields = ToolsListParamsFields { session_id: "s1".into(), ..Default::default() };
        format!("{:?}", fields.lend(|params| tools.list()(engine.object(), ctx, params)))
    });
    let call = |name: &str| {
        let fields = ToolCallParamsFields {
            session_id: "s1".into(),
            tool_call_id: "call-1".into(),
            name: name.into(),
            arguments_json: r#"{"q":1}"#.into(),
            host_params: HostParams::NONE,
        };
        let answer = |ctx: &CallContext<'_>| fields.lend(|params| tools.call()(engine.object(), ctx, params));
        format!("{:?}", CallContext::lend(&services, answer))
    };
    json!({ "unknown": unknown, "tools": { "list": list, "recall": call("recall"), "other": call("other") } })
}

/// What reached the engine since the last look, without what is the host's own affair.
fn journal(home: &Path, id: &str) -> Vec<Value> {
    let path = home.join("state/engines").join(id).join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    let line = |line: &str| {
        let mut entry: Value = serde_json::from_str(line).expect("a journal line");
        for private in ["budget", "seconds left"] {
            if let Some(value) = entry["params"].get_mut(private).filter(|value| value.is_number()) {
                *value = "a number".into();
            }
        }
        entry
    };
    text.lines().map(line).collect()
}
