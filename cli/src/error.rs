//! Why a command could not be done.

use std::path::PathBuf;

use context_engine_loader::LoaderError;
use context_engine_runtime::RuntimeError;
use context_engine_transcript::TranscriptError;

/// One line for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Loader(#[from] LoaderError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    #[error("{}: the file has {found} sessions, there is no session {asked}; use --session 1 to {found}, or all", path.display())]
    Session { path: PathBuf, asked: usize, found: usize },
    #[error("{}: no session with messages was found in the file", path.display())]
    NoSession { path: PathBuf },
    #[error("nothing to compare engines on: {found}; name a recorded session in which a model has answered")]
    NothingToCompare { found: String },
    #[error("{}: writing the session: the file exists; use --force to replace it, or another --out", path.display())]
    Exists { path: PathBuf },
    #[error("{}: looking for the entry {id:?}: expected an id, or a beginning of one that no other has, found {found}; `context-engine sessions show --all` has all", path.display())]
    NoEntry { path: PathBuf, id: String, found: String },
    #[error("--all-branches: the format {format} has no branches; use --format openclaw, or leave it out")]
    AllBranches { format: &'static str },
    #[error("the engine \"{id}\" may not be used: {reason}; change that, or use another engine")]
    Forbidden { id: String, reason: String },
    #[error("no plugin has the id \"{id}\"; {}", match closest { Some(closest) => format!("did you mean \"{closest}\"? Known: {}", known.join(", ")), None if known.is_empty() => "there are none; `context-engine plugins install PATH` installs one".to_owned(), None => format!("known: {}", known.join(", ")) })]
    UnknownPlugin { id: String, closest: Option<String>, known: Vec<String> },
    #[error(
        "\"{id}\" was not selected: {reason}; --force selects it all the same, and legacy answers until it can serve"
    )]
    NotSelected { id: String, reason: String },
    #[error("{} was not installed: {reason}", path.display())]
    NotInstalled { path: PathBuf, reason: String },
    #[error(
        "what \"{id}\" has stored was not removed, nor anything else: the host {pid} ({label}) uses it and would write it again; \
         stop that host, or uninstall without --purge first and with it when the host has let go"
    )]
    InUse { id: String, pid: u32, label: String },
    #[error("{} was not packed: {reason}", path.display())]
    NotPacked { path: PathBuf, reason: String },
    #[error("{}: no plugin was found there; name a workspace with a .context-engine/plugins folder", path.display())]
    NothingToTrust { path: PathBuf },
    #[error("{what}: nothing there is trusted; `context-engine plugins trust --list` shows what is")]
    NotTrusted { what: String },
    #[error("{}: the path is no UTF-8 and cannot stand in config.json5; move it", path.display())]
    NotUtf8 { path: PathBuf },
    #[error("the built-in engine legacy {what}; `context-engine plugins list` shows the others")]
    BuiltIn { what: &'static str },
    #[error("nothing is known about \"{id}\"; {}", if known.is_empty() { "nothing is in quarantine".to_owned() } else { format!("in the quarantine and its history: {}", known.join(", ")) })]
    NotInQuarantine { id: String, known: Vec<String> },
    #[error("{}: {doing}: {source}", path.display())]
    File { path: PathBuf, doing: &'static str, source: std::io::Error },
    #[error("writing the output: {0}")]
    Output(#[from] std::io::Error),
    #[error("writing JSON: {0}")]
    Json(#[from] serde_json::Error),
}
