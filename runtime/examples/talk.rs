//! Asks a model of the configuration one question in a session that stays, on the engine in the slot:
//!
//! ```text
//! cargo run -p context-engine-runtime --features openai --example talk -- SESSION.jsonl "What did I ask before?"
//! ```
//!
//! Configuration, plugins and state are those of the `context-engine` command (`docs/models.md` says how a model is named).
//! It has no tools. Run it again with the same file and the session goes on.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::error::Error;
use std::io::Write;
use std::path::Path;

use context_engine_loader::{Creation, Loader, LoaderOptions};
use context_engine_runtime::{Config, Home, Runtime, RuntimeOptions, Session, TurnEnd, TurnEvent, TurnRequest};
use context_engine_transcript::store::SessionHeader;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(question)) = (args.next(), args.next()) else {
        return Err("expected a session file and a question".into());
    };
    let home = Home::from_env()?;
    let config = Config::read(&home.config())?;
    let Some(model) = config.model(None)? else {
        return Err(format!("no model is configured in {}; docs/models.md says how", home.config().display()).into());
    };
    let loader = Loader::new(LoaderOptions {
        directories: home.plugin_directories(&config),
        state_dir: home.state(),
        policy: config.trust_policy(),
        on_failure: config.on_failure(),
        host: RuntimeOptions::profile("talk"),
        probe: None,
    });
    let mut options = RuntimeOptions::new(loader, model.open()?);
    options.engine = config.plugins.slots.context_engine.clone().unwrap_or_default();
    options.keep_recent = config.agents.defaults.compaction.keep_recent_tokens;
    options.creations = std::sync::Arc::new(move |id| Creation {
        config: config.plugins.entries.get(id).and_then(|entry| entry.config.clone()),
        deadlines: config.deadlines(id).unwrap_or_default(),
        ..Creation::default()
    });
    let runtime = Runtime::new(options);
    let path = Path::new(&file);
    let session = match path.exists() {
        true => Session::open(path)?.0,
        false => Session::create(path, SessionHeader::default())?,
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = tokio.block_on(async {
        let mut show = |event| match event {
            TurnEvent::Text(text) => {
                print!("{text}");
                // Nobody can be told when the terminal is gone.
                let _ = std::io::stdout().flush();
            }
            TurnEvent::Retry { after, reason } => eprintln!("again in {after:?}: {reason}"),
            _ => {}
        };
        let report = runtime.run_turn(&session, TurnRequest::text(question), &mut show).await;
        session.close().await;
        runtime.close().await;
        report
    })?;
    println!();
    let tokens = report.calls.last().map_or(0, |call| call.sent_tokens);
    eprintln!("by {} through {}, {tokens} tokens sent", report.asked_for, report.served_by);
    match report.end {
        TurnEnd::Failed(error) => Err(error.into()),
        _ => Ok(()),
    }
}
