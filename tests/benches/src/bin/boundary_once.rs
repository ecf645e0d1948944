//! Does one thing a number of times, for counting instructions from outside.
//!
//! Usage: `boundary_once <what> <dyn|loaded> <messages> <iterations>`. The setup is the same for every number of
//! iterations, so the instructions of one iteration are the difference of two counts; `instructions` does that.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "says how it is used")]

use std::hint::black_box;
use std::process::ExitCode;

use context_engine_benches::{Side, assemble, dispose, from_json, handle, messages, prompt, to_json};
use context_engine_interface::ViewChunks;
use context_engine_loader::PreparedHistory;
use context_engine_transcript::TokenCounter;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("boundary_once: {reason}");
            eprintln!(
                "usage: boundary_once nothing|dispose|walk|window|build|drop|json|prompt dyn|loaded MESSAGES ITERATIONS"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [what, side, n, iterations] = arguments else { return Err("four arguments are needed".into()) };
    let side = match side.as_str() {
        "dyn" => Side::Dyn,
        "loaded" => Side::Loaded,
        other => return Err(format!("no side {other}")),
    };
    let number = |text: &String| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
    let (n, iterations) = (number(n)?, number(iterations)?);
    let messages = messages(n);
    match what.as_str() {
        // Kept until the end: a host keeps its views. `drop` is the same with the drop.
        "build" => {
            let mut kept = Vec::with_capacity(iterations);
            repeat(iterations, || kept.push(ViewChunks::build(black_box(&messages))));
            std::mem::forget(black_box(kept));
        }
        "drop" => repeat(iterations, || drop(black_box(ViewChunks::build(black_box(&messages))))),
        "json" => repeat(iterations, || drop(black_box(from_json(&to_json(black_box(&messages)))))),
        "prompt" => {
            let home = tempfile::tempdir().map_err(|error| error.to_string())?;
            let (handle, counter) = (handle(home.path())?, TokenCounter::for_model(None));
            let history = std::sync::Arc::new(PreparedHistory::new(messages, &counter));
            repeat(iterations, || drop(black_box(prompt(&handle, black_box(&history), &counter))));
        }
        "dispose" => {
            let engine = side.engine("nothing")?;
            repeat(iterations, || drop(black_box(dispose(black_box(&*engine)))));
        }
        work => {
            let engine = side.engine(work)?;
            let views = ViewChunks::build(&messages);
            repeat(iterations, || drop(black_box(assemble(black_box(&*engine), black_box(&views)))));
        }
    }
    Ok(())
}

fn repeat(iterations: usize, mut act: impl FnMut()) {
    (0..iterations).for_each(|_| act());
}
