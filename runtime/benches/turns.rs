//! Ten thousand turns of one session: `cargo bench -p context-engine-runtime --bench turns`.
//!
//! Decision: one line for each thousand turns, so that it can be seen whether a turn gets slower and whether memory
//! grows. Each turn is a question, a call of a tool, its result and an answer, into a transcript on disk, through a model
//! that answers at once. What remains is the host's own time.
#![allow(missing_docs, clippy::print_stdout, reason = "a bench")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use context_engine_loader::{Loader, LoaderOptions};
use context_engine_runtime::model::{
    BoxFuture, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ToolSpec,
};
use context_engine_runtime::turn::{Tool, ToolCall, ToolOutput};
use context_engine_runtime::{Runtime, RuntimeOptions, Session, TurnRequest};
use context_engine_transcript::store::SessionHeader;
use serde_json::json;

const TURNS: usize = 10_000;
const TEXT: &str = "The pool waits for a connection that was closed by the other side, and nobody tells it so. ";

/// Calls a tool, then answers.
struct Quick {
    info: ModelInfo,
    asked: AtomicUsize,
}

impl Model for Quick {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn respond<'a>(
        &'a self,
        _: &'a ModelRequest,
        _: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut reply = ModelReply::text(TEXT.repeat(2));
        if asked.is_multiple_of(2) {
            let call =
                json!({ "type": "toolCall", "id": format!("c{asked}"), "name": "read", "arguments": { "path": "a" } });
            reply.content.push(call);
        }
        Box::pin(async { Ok(reply) })
    }
}

struct Read(ToolSpec);

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: ToolCall<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::text(TEXT.repeat(5)) })
    }
}

/// Resident memory in megabytes; 0 where it is not known.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0 / 1e6
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
    for window in [32_000, 200_000] {
        let loader = Loader::new(LoaderOptions { state_dir: folder.path().join("state"), ..LoaderOptions::default() });
        let info = ModelInfo { context_window: Some(window), ..ModelInfo::default() };
        let model = Arc::new(Quick { info, asked: AtomicUsize::new(0) });
        let mut options = RuntimeOptions::new(loader, model);
        let spec =
            ToolSpec { name: "read".into(), description: "Reads.".into(), parameters: json!({ "type": "object" }) };
        options.tools = vec![Arc::new(Read(spec))];
        let runtime = Runtime::new(options);
        let path = folder.path().join(format!("{window}.jsonl"));
        let session = Session::create(&path, SessionHeader::default()).expect("a session");
        println!("window {window}: turns, ms per turn, compactions, resident MB, transcript MB");
        let (mut compactions, mut started) = (0, Instant::now());
        for turn in 1..=TURNS {
            let asked = TurnRequest::text(TEXT);
            let report = tokio.block_on(runtime.run_turn(&session, asked, &mut |_| ())).expect("the turn begins");
            assert!(report.is_answered(), "turn {turn}: {:?}", report.end);
            compactions += report.compactions;
            if turn % 1_000 == 0 {
                let ms = started.elapsed().as_secs_f64();
                let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
                println!("{turn:>6} {ms:>8.3} {compactions:>6} {:>8.1} {:>8.1}", resident(), bytes as f64 / 1e6);
                started = Instant::now();
            }
        }
        drop(session);
        let opened = Instant::now();
        let (session, _) = Session::open(&path).expect("the session");
        println!(
            "  opened again in {:.0} ms, {} messages in context",
            opened.elapsed().as_secs_f64() * 1e3,
            session.messages().len()
        );
    }
}
