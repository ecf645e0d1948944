//! `cargo demo`: the shortest way to see the project work.
//!
//! Builds the command and the example engine, drops the engine into a plugins directory, and has the command replay a
//! bundled session with the built-in engine and with the example, side by side.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a demonstration talks to the person who started it")]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX, EXE_SUFFIX};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const ENGINE: &str = "sliding-window";
const BUDGET: &str = "32000";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("demo: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the command's crate has no parent folder")?;
    let built = built_files()?;
    println!("1. Building the command and the example engine");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(workspace).args(["build", "--package", "context-engine", "--package", ENGINE]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    succeed(&mut build)?;

    let home = built.join("demo-home");
    let plugins = home.join("plugins");
    let library = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", ENGINE.replace('-', "_"));
    println!("\n2. Dropping {library} into {}", plugins.display());
    fs::create_dir_all(&plugins).map_err(|error| format!("{}: {error}", plugins.display()))?;
    drop_in(&built.join(&library), &plugins.join(&library))?;

    let command = built.join(format!("context-engine{EXE_SUFFIX}"));
    let session = workspace.join("cli/demo/session.jsonl");
    let context_engine = |args: &[&OsStr]| {
        let mut command = Command::new(&command);
        command.env("CONTEXT_ENGINE_HOME", &home).args(args);
        succeed(&mut command)
    };
    context_engine(&["plugins".as_ref(), "list".as_ref()])?;
    for (step, engine) in [(3, "legacy"), (4, ENGINE)] {
        println!("\n{step}. Replaying {} with {engine}", session.display());
        let args = ["replay".as_ref(), session.as_os_str(), "--engine".as_ref(), engine.as_ref()];
        context_engine(&[&args[..], &["--budget".as_ref(), BUDGET.as_ref()]].concat())?;
    }

    let shown = |path: &Path| path.strip_prefix(workspace).unwrap_or(path).display().to_string();
    let (command, plugins) = (shown(&command), shown(&plugins));
    println!("\nWhat to try next, from {}:", workspace.display());
    println!(
        "  {command} replay cli/demo/session.jsonl --engine {ENGINE} --plugins {plugins} --budget 8k --dump target/prompts"
    );
    println!("  {command} plugins inspect {}", shown(&home.join("plugins").join(&library)));
    println!("  {command} replay YOUR-SESSION.jsonl --engine legacy --json");
    Ok(())
}

/// The folder cargo builds into: this program lies in `examples` there.
fn built_files() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    exe.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| "this program has no folder".to_owned())
}

/// Copies under another name and renames: whoever looks meanwhile finds the old file or the new one, never half of it.
fn drop_in(from: &Path, to: &Path) -> Result<(), String> {
    let part = to.with_extension("part");
    let failed = |error| format!("copying {} to {}: {error}", from.display(), to.display());
    fs::copy(from, &part).map_err(failed)?;
    fs::rename(&part, to).map_err(failed)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}
