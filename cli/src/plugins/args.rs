//! The command lines of what changes plugins. Doc comments here are what `--help` prints.

use clap::Args;

const SELECT_HELP: &str = "\
Examples:
  context-engine plugins select sliding-window
  context-engine plugins select legacy                 # back to the built-in engine

Before it is selected, the engine is checked and tried out in a child process, as `doctor` does. One that would not
serve now is not selected, unless --force is given.

Exit codes: 0 selected; 1 selected with --force, and it would not serve now; 2 not selected.";

#[derive(Debug, Args)]
#[command(after_help = SELECT_HELP)]
pub(crate) struct SelectArgs {
    /// Id of the engine, or legacy
    pub(crate) id: String,
    /// Select it although it would not serve now
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const SWITCH_HELP: &str = "\
Examples:
  context-engine plugins disable sliding-window        # legacy answers, if it was in the slot
  context-engine plugins enable sliding-window

What is written is plugins.entries.<id>.enabled in config.json5; comments there stay.

Exit codes: 0 done; 1 done, and another key still keeps the engine from being used; 2 not done.";

#[derive(Debug, Args)]
#[command(after_help = SWITCH_HELP)]
pub(crate) struct SwitchArgs {
    /// Id of the engine
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
