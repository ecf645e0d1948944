//! Prints what each measured thing costs in instructions, as a Markdown table.
//!
//! Decision: ratios are taken in instructions, not in time. The same program counts the same to a few in ten thousand,
//! however busy the machine is. Needs `valgrind`; `boundary_once` has to be built beside this program:
//!
//! ```text
//! cargo build --release -p context-engine-benches && cargo run --release -p context-engine-benches --bin instructions
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report for a person")]

use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What is measured, on how many messages, and over how many iterations the difference is taken.
const ROWS: [(&str, usize, u64); 13] = [
    ("nothing", 0, 1000),
    ("dispose", 0, 1000),
    ("walk", 1_000, 20),
    ("walk", 10_000, 10),
    ("walk", 100_000, 4),
    ("window", 100_000, 20),
    ("build", 1_000, 20),
    ("build", 10_000, 10),
    ("build", 100_000, 4),
    ("drop", 100_000, 4),
    ("json", 1_000, 4),
    ("json", 10_000, 2),
    ("json", 100_000, 1),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("instructions: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let exe = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let once: PathBuf = exe.with_file_name(format!("boundary_once{EXE_SUFFIX}"));
    println!("| what | messages | `&dyn` | loaded | more | ratio | per message |");
    println!("|---|---|---|---|---|---|---|");
    for (what, n, iterations) in ROWS {
        let linked = per_iteration(&once, what, "dyn", n, iterations)?;
        let per_message = |count: f64| if n == 0 { String::new() } else { format!("{:.1}", count / n as f64) };
        if matches!(what, "build" | "drop" | "json") {
            println!("| {what} | {n} | {linked:.0} | | | | {} |", per_message(linked));
            continue;
        }
        let loaded = per_iteration(&once, what, "loaded", n, iterations)?;
        let (more, ratio) = (loaded - linked, loaded / linked);
        println!("| {what} | {n} | {linked:.0} | {loaded:.0} | {more:.0} | {ratio:.4} | {} |", per_message(loaded));
    }
    Ok(())
}

/// The difference of two counts, so that the setup cancels out.
fn per_iteration(once: &Path, what: &str, side: &str, n: usize, iterations: u64) -> Result<f64, String> {
    let (few, many) = (count(once, what, side, n, 1)?, count(once, what, side, n, 1 + iterations)?);
    Ok((many as f64 - few as f64) / iterations as f64)
}

/// Instructions of the whole program.
fn count(once: &Path, what: &str, side: &str, n: usize, iterations: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(once);
    valgrind.args([what, side, &n.to_string(), &iterations.to_string()]);
    let output = valgrind.output().map_err(|error| format!("valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected :")).map(|(_, number)| number.trim());
    let collected = collected.filter(|_| output.status.success());
    collected.and_then(|number| number.parse().ok()).ok_or_else(|| format!("{valgrind:?} answered: {report}"))
}
