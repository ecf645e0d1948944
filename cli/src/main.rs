//! `context-engine`: the operator's door. Parses, calls the loader or the runtime, prints.
//!
//! Exit codes are a contract: 0 done; 1 done, and something is not as asked (another engine answered, a plugin was
//! refused); 2 not done. Results go to standard output, everything else to standard error.
#![forbid(unsafe_code)]

mod args;
mod doctor;
mod error;
mod output;
mod plugins;
mod replay;
mod sessions;
mod setup;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, PluginsCommand, SessionsCommand};

/// How a command ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All as asked.
    Fine,
    /// Something is not as asked; it was said.
    Findings,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    setup::init_logs(cli.verbose);
    let outcome = match &cli.command {
        Command::Replay(args) => replay::run(args),
        Command::Sessions(SessionsCommand::Import(args)) => sessions::import(args),
        Command::Plugins(PluginsCommand::List(args)) => plugins::list(args),
        Command::Plugins(PluginsCommand::Inspect(args)) => plugins::inspect(args),
        Command::Doctor(args) => doctor::run(args),
    };
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(error) => {
            output::complain(&error);
            ExitCode::from(2)
        }
    }
}
