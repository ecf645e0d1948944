//! Tools: the host's own, and those an engine brings (`tools/1`).
//!
//! Decision: to the model they are one list. A name that is taken stays with the host's tool: an engine cannot put itself
//! in the place of what the host lets a model do.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use context_engine_loader::EngineTool;
use serde_json::{Map, Value, json};

use crate::model::{BoxFuture, ToolSpec};

/// Something a model may call, as a host offers it.
pub trait Tool: Send + Sync + 'static {
    /// How the model is told of it.
    fn spec(&self) -> &ToolSpec;

    /// Whether it is the client's: engines are not told of it (contract §1.2 note d).
    fn is_clients(&self) -> bool {
        false
    }

    /// Runs it. Dropping the future ends it.
    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, ToolOutput>;
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// As the model gave it.
    pub id: &'a str,
    /// The tool's name.
    pub name: &'a str,
    /// What it is called with.
    pub arguments: &'a Map<String, Value>,
}

/// What a tool gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// `text` and `image` blocks in OpenClaw's shape.
    pub content: Vec<Value>,
    /// Whether it failed.
    pub is_error: bool,
    /// For the transcript alone.
    pub details: Option<Value>,
}

impl ToolOutput {
    /// A text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        let text: String = text.into();
        ToolOutput { content: vec![json!({ "type": "text", "text": text })], ..ToolOutput::default() }
    }

    /// Why it failed, for the model to read.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }
}

/// Runs a host's tool. A panic in it is an error for the model, like any other failure of a tool.
pub(crate) async fn run(tool: &dyn Tool, call: ToolCall<'_>) -> ToolOutput {
    let begun = catch_unwind(AssertUnwindSafe(|| tool.call(call)));
    let output = match begun {
        Ok(mut running) => {
            std::future::poll_fn(move |context| {
                match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
                    Ok(poll) => poll.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            })
            .await
        }
        Err(panic) => Err(panic),
    };
    output.unwrap_or_else(|_| {
        tracing::error!(tool = call.name, "the host's tool panicked");
        ToolOutput::error(format!("{} failed: it panicked", call.name))
    })
}

/// The tools of one turn.
pub(crate) struct ToolSet {
    host: Vec<Arc<dyn Tool>>,
    engine: HashSet<String>,
    pub(crate) specs: Arc<[ToolSpec]>,
    /// Names that engines are told.
    pub(crate) available: Arc<[String]>,
}

/// Who runs a tool.
pub(crate) enum Owner {
    Host(Arc<dyn Tool>),
    Engine,
    Nobody,
}

impl ToolSet {
    pub(crate) fn new(host: &[Arc<dyn Tool>], engine: Vec<EngineTool>) -> ToolSet {
        let mut names = HashSet::new();
        let host: Vec<Arc<dyn Tool>> =
            host.iter().filter(|tool| names.insert(tool.spec().name.clone())).cloned().collect();
        let mut specs: Vec<ToolSpec> = host.iter().map(|tool| tool.spec().clone()).collect();
        let clients: HashSet<&str> =
            host.iter().filter(|tool| tool.is_clients()).map(|tool| tool.spec().name.as_str()).collect();
        let mut available: Vec<String> =
            specs.iter().map(|spec| spec.name.clone()).filter(|name| !clients.contains(name.as_str())).collect();
        let mut of_engine = HashSet::new();
        for EngineTool { name, description, parameters } in engine {
            if !names.insert(name.clone()) {
                tracing::warn!(tool = name, "the engine's tool has the name of another tool and is left out");
                continue;
            }
            available.push(name.clone());
            of_engine.insert(name.clone());
            specs.push(ToolSpec { name, description, parameters });
        }
        ToolSet { host, engine: of_engine, specs: specs.into(), available: available.into() }
    }

    pub(crate) fn owner(&self, name: &str) -> Owner {
        match self.host.iter().find(|tool| tool.spec().name == name) {
            Some(tool) => Owner::Host(Arc::clone(tool)),
            None if self.engine.contains(name) => Owner::Engine,
            None => Owner::Nobody,
        }
    }
}

impl std::fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSet").field("available", &self.available).finish_non_exhaustive()
    }
}
