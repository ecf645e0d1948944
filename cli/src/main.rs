//! `context-engine`: the operator's door. Parses, calls the loader or the runtime, prints.
//!
//! Exit codes are a contract: 0 done; 1 done, and something is not as asked (another engine answered, a plugin was
//! refused, what was done could not be said); 2 not done. Results go to standard output, everything else to standard error.
//!
//! Decision: a script that asked for `--json` gets one object also where nothing was done, with what standard error says.
//! That is made here, once, from the parsed options, so that a command cannot forget it. A command line that cannot be
//! parsed is the exception: it does not say what was asked for.
#![forbid(unsafe_code)]

mod args;
mod compare;
mod doctor;
mod error;
mod hosts;
mod output;
mod plugins;
mod quarantine;
mod replay;
mod sessions;
mod setup;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use context_engine_loader::probe;

use crate::args::{Cli, Command, QuarantineCommand};
use crate::error::CliError;

/// How a command ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All as asked.
    Fine,
    /// Something is not as asked; it was said.
    Findings,
}

fn main() -> ExitCode {
    // Prints `--help` and `--version` itself, and ends there.
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    setup::init_logs(cli.verbose);
    run(&cli.command).unwrap_or_else(|error| {
        if asks_for_json(&matches) {
            // Standard error says it, too.
            let _ = output::json_line(&error.json());
        }
        output::complain(&error);
        ExitCode::from(2)
    })
}

/// Whether the command that was named was given its `--json`.
fn asks_for_json(matches: &ArgMatches) -> bool {
    let named = std::iter::successors(Some(matches), |matches| Some(matches.subcommand()?.1)).last();
    named.is_some_and(|named| matches!(named.try_get_one::<bool>("json"), Ok(Some(true))))
}

fn run(command: &Command) -> Result<ExitCode, CliError> {
    // Before anything of a plugin can run.
    output::claim_stdout()?;
    let outcome = match command {
        Command::Replay(args) => replay::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Sessions(command) => sessions::run(command),
        Command::Plugins(command) => plugins::run(command),
        Command::Quarantine(QuarantineCommand::List(args)) => quarantine::list(args),
        Command::Quarantine(QuarantineCommand::Why(args)) => quarantine::why(args),
        Command::Quarantine(QuarantineCommand::Clear(args)) => quarantine::clear(args),
        Command::Doctor(args) => doctor::run(args),
        Command::ProbePlugin(args) => return Ok(probe::child::run(args.args.iter().cloned())),
    };
    Ok(match outcome? {
        Outcome::Fine if !output::was_lost() => ExitCode::SUCCESS,
        Outcome::Fine | Outcome::Findings => ExitCode::from(1),
    })
}
