//! A host that is killed in the middle of turns: what it told its person is in the transcript, and the session goes on.
//!
//! Decision: the test runs itself again as the host and kills it with the signal that cannot be caught, at points that
//! differ from round to round. What the store promises of single entries is tested with the store; here it is whole turns.
#![cfg(unix)]
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use context_engine_loader::{Loader, LoaderOptions};
use context_engine_runtime::model::{BoxFuture, ScriptedModel, Step, ToolSpec};
use context_engine_runtime::turn::{Tool, ToolCall, ToolOutput};
use context_engine_runtime::{Runtime, RuntimeOptions, Session, TurnRequest};
use context_engine_transcript::store::SessionHeader;
use serde_json::json;

/// The session of a host that is to be killed.
const SESSION: &str = "CONTEXT_ENGINE_TEST_SESSION";
/// How many rounds, where `CONTEXT_ENGINE_TEST_ROUNDS` does not say.
const ROUNDS: u64 = 60;

struct Read(ToolSpec);

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: ToolCall<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::text("what was read ".repeat(20)) })
    }
}

fn runtime(folder: &Path) -> (Runtime, Arc<ScriptedModel>) {
    let loader = Loader::new(LoaderOptions { state_dir: folder.join("state"), ..LoaderOptions::default() });
    let mut asked = 0;
    let answer = move |_: &_| {
        asked += 1;
        if asked % 3 == 0 {
            Step::text("answer ".repeat(30))
        } else {
            Step::call(format!("c{asked}"), "read", json!({ "n": asked })).and_call(
                format!("d{asked}"),
                "read",
                json!({}),
            )
        }
    };
    let model = Arc::new(ScriptedModel::from_fn(answer).window(4_000).strict_roles());
    let mut options = RuntimeOptions::new(loader, Arc::clone(&model) as _);
    let parameters = json!({ "type": "object" });
    options.tools = vec![Arc::new(Read(ToolSpec { name: "read".into(), description: String::new(), parameters }))];
    (Runtime::new(options), model)
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime")
}

/// The host: turn after turn, until it is killed. Each turn is told as soon as it is over.
#[test]
fn host_that_is_killed() {
    let Some(path) = std::env::var_os(SESSION) else { return };
    let path = Path::new(&path);
    let (session, _) = Session::open(path).expect("the session is free");
    let (runtime, _) = runtime(path.parent().expect("a folder"));
    let tokio = tokio_runtime();
    for turn in 0.. {
        let request = TurnRequest::text(format!("question {turn}"));
        let report = tokio.block_on(runtime.run_turn(&session, request, &mut |_| ())).expect("the turn begins");
        assert!(report.is_answered(), "{:?}", report.end);
        let mut out = std::io::stdout().lock();
        let (user, reply) = (report.user_entry.expect("an entry"), report.reply_entry.expect("an entry"));
        writeln!(out, "\nturn {user} {reply}").and_then(|()| out.flush()).expect("told");
    }
}

#[test]
fn what_a_host_told_is_there_when_it_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.jsonl");
    drop(Session::create(&path, SessionHeader::default()).expect("a session"));
    let mut told: Vec<String> = Vec::new();
    let rounds =
        std::env::var("CONTEXT_ENGINE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    for round in 0..rounds {
        let mut host = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "host_that_is_killed", "--nocapture", "--test-threads=1"])
            .env(SESSION, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a host");
        let mut lines = BufReader::new(host.stdout.take().expect("its output")).lines();
        let first = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("turn "));
        // From the first turn on, at points that differ.
        std::thread::sleep(Duration::from_micros(round * 7_919 % 40_000));
        host.kill().expect("killed");
        host.wait().expect("ended");
        let rest = lines.map_while(Result::ok).filter(|line| line.starts_with("turn "));
        // A line the kill cut in two is none that was told.
        let whole = |line: &String| line.split(' ').nth(2).is_some_and(|id| id.len() == 36);
        for line in first.into_iter().chain(rest).filter(whole) {
            told.extend(line.split(' ').skip(1).map(str::to_owned));
        }

        let recorded = context_engine_transcript::load(&path).expect("the transcript").sessions.remove(0);
        let mut branch = recorded.active_branch().into_iter().map(|entry| entry.id.as_str());
        for id in &told {
            assert!(
                branch.any(|entry| entry == id),
                "round {round}: {id} was told and is not there, or not in its place"
            );
        }
    }
    assert!(told.len() as u64 >= 2 * rounds, "{} entries were told", told.len());

    // And it goes on: the prompt is one that the strictest provider takes.
    let (session, _) = Session::open(&path).expect("the session is free");
    let (runtime, model) = runtime(folder.path());
    let report = tokio_runtime().block_on(runtime.run_turn(&session, TurnRequest::text("still there?"), &mut |_| ()));
    assert!(report.expect("the turn begins").is_answered());
    assert!(!model.requests().is_empty());
}
