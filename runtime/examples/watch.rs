//! A host that runs a turn a second and watches its plugins and its configuration meanwhile:
//!
//! ```text
//! cargo run -p context-engine-runtime --example watch -- [TURNS]
//! ```
//!
//! Configuration, plugins and state are those of the `context-engine` command. Install, select, replace and remove engines
//! in another terminal while it runs; a line says what each turn was served by, and what a change did. The model is a
//! scripted one; the session is thrown away.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use context_engine_loader::probe::{self, DEFAULT_DEADLINE};
use context_engine_loader::{Creation, Loader, LoaderOptions, ProbeOptions, WatchOptions};
use context_engine_runtime::model::{ScriptedModel, Step};
use context_engine_runtime::{Config, Home, Runtime, RuntimeOptions, Session, TurnRequest};
use context_engine_transcript::store::SessionHeader;
use tracing::Level;

/// The word this program is run with to try a plugin out: before a host opens a library, a process does that nobody needs.
const PROBE: &str = "probe-plugin";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == PROBE).is_some() {
        return Ok(probe::child::run(args));
    }
    let turns = match args.next().map(|turns| turns.to_string_lossy().parse::<u64>()) {
        None => 600,
        Some(Ok(turns)) => turns,
        Some(Err(_)) => return Err("expected the number of turns to run, or nothing for ten minutes of them".into()),
    };
    // What it refuses, and why, is in the log.
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(Level::WARN).without_time().init();
    let home = Home::from_env()?;
    let config = Config::read(&home.config())?;
    let child_exe = std::env::current_exe()?;
    let loader = Loader::new(LoaderOptions {
        directories: home.plugin_directories(&config),
        state_dir: home.state(),
        policy: config.trust_policy(),
        on_failure: config.on_failure(),
        host: RuntimeOptions::profile("the example that watches"),
        probe: Some(ProbeOptions { child_exe, args: vec![PROBE.into()], deadline: DEFAULT_DEADLINE }),
    });
    let mut options = RuntimeOptions::new(loader, Arc::new(ScriptedModel::from_fn(|_| Step::text("Yes."))));
    options.engine = config.plugins.slots.context_engine.clone().unwrap_or_default();
    let at_start = config.clone();
    options.creations = Arc::new(move |id| Creation {
        config: at_start.plugins.entries.get(id).and_then(|entry| entry.config.clone()),
        deadlines: at_start.deadlines(id).unwrap_or_default(),
        ..Creation::default()
    });
    let runtime = Runtime::new(options);
    let told = |done: &[_]| done.iter().for_each(|reloaded| println!("          {reloaded}"));
    let watch = WatchOptions { told: Some(Box::new(told)), ..WatchOptions::default() };
    // Dropped at the end: while it lives, the host heeds what changes.
    let _watcher = runtime.watch(&home, config, watch)?;

    let folder = tempfile::tempdir()?;
    let session = Session::create(&folder.path().join("session.jsonl"), SessionHeader::default())?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    println!("watching {} and {}", home.config().display(), home.plugins().display());
    tokio.block_on(async {
        let mut said = None;
        for turn in 1..=turns {
            let report =
                runtime.run_turn(&session, TurnRequest::text(format!("Question {turn}?")), &mut |_| ()).await?;
            let tokens = report.calls.last().map_or(0, |call| call.sent_tokens);
            println!("turn {turn:<5}served by {}, {tokens} tokens", report.served_by);
            if let Some(why) = report.why.as_ref().filter(|why| said.as_ref() != Some(*why)) {
                println!("          {why}");
            }
            said = report.why;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        session.close().await;
        runtime.close().await;
        Ok(ExitCode::SUCCESS)
    })
}
