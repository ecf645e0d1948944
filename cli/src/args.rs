//! The command line. Doc comments here are what `--help` prints.
#![allow(rustdoc::invalid_html_tags, reason = "`<turn>` in a help text is a placeholder, not a tag")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use context_engine_runtime::TurnRange;

use crate::compare::CompareArgs;
use crate::plugins::args::{InstallArgs, PackArgs, ReloadArgs, SelectArgs, SwitchArgs, TrustArgs, UninstallArgs};
use crate::sessions::SessionsCommand;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (engine schema 1)");

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  done, and something is not as asked: another engine answered, a plugin was refused
  2  not done; the reason is on standard error, and with --json in `error` on standard output, too

Things are kept in $CONTEXT_ENGINE_HOME (default ~/.context-engine): config.json5, plugins/, sessions/,
state/.";

/// Replays recorded agent sessions through context engines, and looks after the engines.
///
/// A context engine decides what a model sees before each call. Engines are shared libraries in a plugins directory;
/// the built-in engine is called `legacy`.
#[derive(Debug, Parser)]
#[command(name = "context-engine", version = VERSION, after_help = EXIT_CODES, term_width = 120)]
pub(crate) struct Cli {
    /// Say more on standard error: -v what is done, -vv for an engine's author.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play a recorded session through an engine, call by call
    Replay(ReplayArgs),
    /// Play recorded sessions through several engines and budgets, and say which engine serves them better
    Compare(CompareArgs),
    /// See what sessions there are and what is in them; import, export and repair them
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// See which engines there are; install, select, switch off and remove them
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// See which engines are set aside after a failure, why, and let them serve again
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Check the installation: which engine serves, what is wrong with the others, what to do
    Doctor(DoctorArgs),
    /// The child process of a probe. Run by the loader, with arguments only it can make
    #[command(hide = true)]
    ProbePlugin(ProbePluginArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProbePluginArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

const REPLAY_HELP: &str = "\
Formats, recognised by content: OpenClaw v3 and pi v1, Claude Code, Codex, Gemini CLI, SWE-agent, mini-swe-agent,
OpenHands, OpenAI chat messages, ShareGPT, ChatML (docs/formats.md says what is read of each).

Examples:
  context-engine replay session.jsonl --engine sliding-window --budget 32k
  context-engine replay dialogues.json --session all --json | jq .summary
  context-engine replay session.jsonl --turns 10..12 --dump prompts/   # every prompt as prompts/<turn>-<call>.json

Each prompt is within the budget, never empty, has every call with its result, and does not end in an assistant message.
The recorded file is never written.";

/// Play a recorded session through an engine.
///
/// Before each recorded model response, the history so far goes to the engine, and what would be sent to the model is
/// measured. One row per turn, with the counts of its last call: messages and tokens in the history and in the prompt;
/// how many messages of the history are not sent as they are, and how many of those a summary stands for; which engine
/// answered; its time over all calls of the turn. Neighbours of one speaker are sent as one message.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArgs {
    /// The recorded session
    pub(crate) session_file: PathBuf,
    /// Id of the engine [default: the slot in config.json5, else legacy]
    #[arg(long, value_name = "ID")]
    pub(crate) engine: Option<String>,
    /// Tokens one prompt may cost, system prompt included; 32000 or 32k
    #[arg(long, value_name = "TOKENS", default_value = "32k")]
    pub(crate) budget: Tokens,
    /// Turns to play, counted from 1, both ends included: A..B, A.., ..B or A; earlier ones are history
    #[arg(long, value_name = "A..B", default_value = "1..")]
    pub(crate) turns: TurnRange,
    /// Which session of a file with several: its number, or all
    #[arg(long, value_name = "N|all", default_value = "1")]
    pub(crate) session: Which,
    /// Keep the compactions that were recorded, instead of playing the raw messages
    #[arg(long)]
    pub(crate) honor_compactions: bool,
    /// Play the conversations of sub-agents in a Claude Code file too, as sessions behind the main one
    #[arg(long)]
    pub(crate) sidechains: bool,
    /// Model the tokens are counted for [default: the recorded one]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Write each prompt as DIR/<turn>-<call>.json (with --session all: DIR/<session>/…); replaces prompts an earlier
    /// replay left there
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Option<PathBuf>,
    /// Print one JSON object (with --session all: one per line)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) directories: Directories,
}

#[derive(Debug, Args)]
pub(crate) struct Directories {
    /// Plugins directory to use instead of the configured ones; may be given several times
    #[arg(long = "plugins", value_name = "DIR")]
    pub(crate) plugins: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// List the engines in the plugins directories; runs none of them
    List(ListArgs),
    /// Read one library or plugin folder and say whether it would be used; runs nothing of it
    Inspect(InspectArgs),
    /// Copy an engine into the plugins directory, or link a build of it
    Install(InstallArgs),
    /// Make an archive of an engine for others to install
    Pack(PackArgs),
    /// Remove an engine and what the configuration says about it
    Uninstall(UninstallArgs),
    /// Put an engine into the slot: what comes next is served by it
    Select(SelectArgs),
    /// Let an engine be used again that was switched off
    Enable(SwitchArgs),
    /// Switch an engine off: its file and its settings stay
    Disable(SwitchArgs),
    /// Let plugins of a workspace be used, by path and digest
    Trust(TrustArgs),
    /// Have the hosts that run look at their plugins now, and say what each of them did
    Reload(ReloadArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) directories: Directories,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The library, or the folder with its plugin.json
    pub(crate) path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Id of the engine to ask about, instead of the slot's
    #[arg(long, value_name = "ID")]
    pub(crate) engine: Option<String>,
    /// Read files only: do not try the engines out in a child process
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) directories: Directories,
}

const QUARANTINE_HELP: &str = "\
An engine that fails is set aside, and legacy answers. After an error, a panic or a call that
takes too long this holds for the process it happened in; after a crash, a failed probe or the
third process in a row it holds until it is cleared. A new build or another configuration of the
engine starts clean.

Examples:
  context-engine quarantine list --all                 # the history, too
  context-engine quarantine why sliding-window
  context-engine quarantine clear sliding-window       # hosts that run use it again, too
  context-engine quarantine list --json | jq '.engines[].engine'

Exit codes: list and why end with 1 when an engine is set aside now, why and clear with 2 when
nothing is known about the id.";

#[derive(Debug, Subcommand)]
#[command(after_help = QUARANTINE_HELP)]
pub(crate) enum QuarantineCommand {
    /// List the engines that are set aside
    #[command(after_help = QUARANTINE_HELP)]
    List(QuarantineListArgs),
    /// Tell the whole story of one engine, and what to do
    #[command(after_help = QUARANTINE_HELP)]
    Why(QuarantineWhyArgs),
    /// Forget what is known about an engine, in all its builds and configurations: it serves again
    #[command(after_help = QUARANTINE_HELP)]
    Clear(QuarantineClearArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineListArgs {
    /// The history, too: what was in force for processes that have ended
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineWhyArgs {
    /// Id of the engine
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineClearArgs {
    /// Id of the engine
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Every engine, and the history
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number of tokens, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens(pub(crate) u64);

impl FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Tokens, String> {
        let plain: String = text.trim().chars().filter(|c| !matches!(c, '_' | ',')).collect();
        let lower = plain.to_ascii_lowercase();
        let (digits, unit) = match lower.strip_suffix('k') {
            Some(digits) => (digits, 1_000),
            None => (lower.as_str(), 1),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        number
            .filter(|&number| number > 0)
            .map(Tokens)
            .ok_or_else(|| "expected a number such as 32000 or 32k".to_owned())
    }
}

/// Which session of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    Number(usize),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        if text == "all" {
            return Ok(Which::All);
        }
        let number = text.parse::<usize>().ok().filter(|&number| number > 0);
        number.map(Which::Number).ok_or_else(|| "expected a number from 1 on, or `all`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_schema() {
        assert!(VERSION.ends_with(&format!("schema {})", context_engine_interface::SCHEMA_VERSION)));
    }

    #[test]
    fn tokens_are_read_as_people_write_them() {
        for (text, tokens) in
            [("32000", 32_000), ("32k", 32_000), ("128K", 128_000), ("8,000", 8_000), ("8_000", 8_000)]
        {
            assert_eq!(text.parse(), Ok(Tokens(tokens)));
        }
        for text in ["", "0", "-1", "k", "32m", "99999999999999999999"] {
            assert!(text.parse::<Tokens>().is_err(), "{text}");
        }
    }
}
