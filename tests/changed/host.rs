//! A host built against a changed interface: opens the plugin it is given, has it assemble one prompt, and prints what it
//! saw as JSON; `--layout` prints the interface's layout instead. How it opens plugins is the loader's own code, copied
//! beside this file.

mod dylib;
#[allow(dead_code)]
mod error;
mod layout;

use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::std_types::RSlice;
use context_engine_interface::{
    AssembleParamsFields, BlockFlags, BlockKind, BlockView, CallContext, CallServices, CompactResult, ContextEngine,
    EngineContextFields, EngineError, EngineHost, HostParams, HostServices, LogLevel, MessageFlags, MessageView,
    RemoteEngine, Role, ViewChunks, ViewSource,
};
use serde_json::{Value, json};

struct Services;

impl HostServices for Services {
    fn log(&self, _: LogLevel, _: &str) {}
    fn count_tokens(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}

fn none<T>() -> Result<T, EngineError> {
    Err(EngineError::unavailable("service"))
}

impl CallServices for Services {
    fn is_cancelled(&self) -> bool {
        false
    }
    fn remaining(&self) -> Option<Duration> {
        None
    }
    fn complete(&self, _: &str) -> Result<String, EngineError> {
        none()
    }
    fn rewrite_transcript(&self, _: &str) -> Result<String, EngineError> {
        none()
    }
    fn delegate_compaction(&self, _: &str) -> Result<CompactResult, EngineError> {
        none()
    }
    fn read_transcript(&self, _: Option<&str>, _: u32) -> Result<String, EngineError> {
        none()
    }
    fn memory_prompt_section(&self, _: &str) -> Result<Option<String>, EngineError> {
        none()
    }
}

struct Text(&'static str);

impl ViewSource for Text {
    fn view<'a>(&'a self, blocks: &mut Vec<BlockView<'a>>) -> MessageView<'a> {
        let text = self.0.into();
        let (kind, flags) = (BlockKind::TEXT, BlockFlags::default());
        blocks.push(BlockView { kind, flags, id: "".into(), name: "".into(), text, raw: "{}".into(), reserved: 0 });
        MessageView {
            id: text,
            role: Role::USER,
            flags: MessageFlags::default(),
            timestamp_ms: 0,
            tokens: 5,
            tool_call_id: "".into(),
            tool_name: "".into(),
            blocks: RSlice::EMPTY,
            json: r#"{"role":"user"}"#.into(),
            reserved: Default::default(),
        }
    }
}

fn main() {
    let path = std::env::args_os().nth(1).expect("a plugin");
    if path == "--layout" {
        print!("{}", layout::of_interface());
        return;
    }
    let seen = match dylib::open(path.as_ref()) {
        Ok(module) => used(module),
        Err(error) => json!({ "refused": format!("{:?}", error.problem) }),
    };
    println!("{seen}");
}

fn used(module: context_engine_interface::abi::module::EngineModule) -> Value {
    let host = EngineHost::new(Arc::new(Services));
    let state_dir = std::env::temp_dir();
    let ctx = EngineContextFields {
        config_json: "{}".into(),
        state_dir: state_dir.to_str().expect("text").into(),
        agent_dir: None.into(),
        workspace_dir: None.into(),
        host: &host,
    };
    let engine = RemoteEngine::new(ctx.lend(|ctx| module.create()(ctx)).into_result().expect("an engine"));
    let chunks = ViewChunks::build(&[Arc::new(Text("one")), Arc::new(Text("two"))]);
    let index = chunks.index();
    let params = AssembleParamsFields {
        session_id: "s1".into(),
        messages: index.messages(),
        token_budget: Some(1_000).into(),
        available_tools: RSlice::EMPTY,
        citations_mode: None.into(),
        model: None.into(),
        host_params: HostParams::NONE,
        #[cfg(feature = "later")]
        later: 42,
    };
    let plan = CallContext::lend(&Services, |ctx| params.lend(|params| engine.assemble(ctx, params))).expect("a plan");
    let inserted = plan.segments.iter().find(|segment| !segment.message_json.is_empty());
    let seen = json!({
        "inserted": inserted.map(|segment| segment.message_json.as_str()),
        "kept": plan.segments.iter().map(|segment| segment.len).sum::<u32>(),
    });
    #[cfg(feature = "later")]
    let seen = {
        let mut seen = seen;
        seen["engine"] = engine.object().later(1).into();
        seen["module"] = module.later().map(|later| later()).into();
        let table = module.extension()("later".into(), 1).into_option();
        seen["extension"] = table.map(|table| format!("{:?}", table.into_enum().ok())).into();
        seen
    };
    seen
}
