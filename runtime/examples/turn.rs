//! One turn from end to end, with a model that says what it was told to: `cargo run -p context-engine-runtime --example turn`.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::Arc;

use context_engine_loader::{Loader, LoaderOptions};
use context_engine_runtime::model::{BoxFuture, ScriptedModel, Step, ToolSpec};
use context_engine_runtime::turn::{Tool, ToolCall, ToolOutput};
use context_engine_runtime::{Runtime, RuntimeOptions, Session, TurnEvent, TurnRequest};
use context_engine_transcript::store::SessionHeader;
use serde_json::json;

/// Reads a file that is always the same.
struct Read(ToolSpec);

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, ToolOutput> {
        let path = call.arguments.get("path").and_then(|path| path.as_str()).unwrap_or("?").to_owned();
        Box::pin(async move { ToolOutput::text(format!("{path}: buy milk")) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let loader = Loader::new(LoaderOptions {
        directories: vec![folder.path().join("plugins").into()],
        state_dir: folder.path().join("state"),
        host: RuntimeOptions::profile("the example"),
        ..LoaderOptions::default()
    });
    let model = ScriptedModel::new([
        Step::text("I look. ").and_call("c1", "read", json!({ "path": "notes.md" })),
        Step::text("You wanted to buy milk."),
    ]);
    let mut options = RuntimeOptions::new(loader, Arc::new(model));
    let parameters = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    options.tools =
        vec![Arc::new(Read(ToolSpec { name: "read".into(), description: "Reads a file.".into(), parameters }))];
    let runtime = Runtime::new(options);

    let path = folder.path().join("session.jsonl");
    let session = Session::create(&path, SessionHeader::default())?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let report = tokio.block_on(async {
        let mut show = |event| match event {
            TurnEvent::Text(text) => println!("model: {text}"),
            TurnEvent::ToolStarted { name, .. } => println!("tool:  {name}"),
            _ => {}
        };
        let report = runtime.run_turn(&session, TurnRequest::text("What is in my notes?"), &mut show).await;
        runtime.close().await;
        report
    })?;
    println!("served by {}, {} calls; the transcript:", report.served_by, report.calls.len());
    print!("{}", std::fs::read_to_string(&path)?);
    Ok(())
}
