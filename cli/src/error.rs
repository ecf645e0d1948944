//! Why a command could not be done.

use std::path::{Path, PathBuf};

use context_engine_loader::LoaderError;
use context_engine_runtime::RuntimeError;
use context_engine_transcript::TranscriptError;
use serde_json::{Value, json};

use crate::output::path_json;

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
    #[error("{}: trusting it: it lies in no workspace, where a host would ask; name a workspace, or what lies in its .context-engine/plugins", path.display())]
    NoWorkspace { path: PathBuf },
    #[error("{}: trusting it: it needs no trust: what lies in {} is used unasked, because that is a plugins directory of the configuration or the home", path.display(), directory.display())]
    NeedsNoTrust { path: PathBuf, directory: PathBuf },
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

impl CliError {
    /// The same for scripts: the file or folder it is about, where it is about one, and the line for the person.
    pub(crate) fn json(&self) -> Value {
        json!({ "error": { "path": self.path().map(path_json), "message": self.to_string() } })
    }

    fn path(&self) -> Option<&Path> {
        match self {
            CliError::Loader(error) => of_loader(error),
            CliError::Runtime(RuntimeError::Config { path, .. }) => Some(path),
            CliError::Runtime(RuntimeError::Engine(error)) => of_loader(error),
            CliError::Runtime(RuntimeError::Transcript(error)) | CliError::Transcript(error) => of_transcript(error),
            CliError::Session { path, .. }
            | CliError::NoSession { path }
            | CliError::Exists { path }
            | CliError::NoEntry { path, .. }
            | CliError::NotInstalled { path, .. }
            | CliError::NotPacked { path, .. }
            | CliError::NothingToTrust { path }
            | CliError::NoWorkspace { path }
            | CliError::NeedsNoTrust { path, .. }
            | CliError::NotUtf8 { path }
            | CliError::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// An id that nobody has lies nowhere.
fn of_loader(error: &LoaderError) -> Option<&Path> {
    Some(error.path.as_path()).filter(|path| !path.as_os_str().is_empty())
}

fn of_transcript(error: &TranscriptError) -> Option<&Path> {
    match error {
        TranscriptError::Read { path, .. }
        | TranscriptError::NotAFile { path, .. }
        | TranscriptError::Locked { path, .. }
        | TranscriptError::Lock { path, .. }
        | TranscriptError::Repair { path, .. }
        | TranscriptError::Exists { path, .. }
        | TranscriptError::Version { path, .. }
        | TranscriptError::NotASession { path, .. }
        | TranscriptError::Write { path, .. }
        | TranscriptError::Changed { path, .. }
        | TranscriptError::EntryNotFound { path, .. }
        | TranscriptError::Entry { path, .. }
        | TranscriptError::EntryGone { path, .. } => Some(path),
        _ => None,
    }
}
