//! `context-engine sessions`: what sessions there are, what is in them, and what can be done with a file of one.
//!
//! Decision: whatever only looks takes no lock, so that a session can be looked at while a host works on it.

mod args;
mod export;
mod facts;
mod import;
mod list;
mod markdown;
mod openai;
mod repair;
mod rows;
mod show;
mod write;

use std::path::{Path, PathBuf};

use context_engine_runtime::Home;
use context_engine_transcript::store::{SessionSummary, find};
use context_engine_transcript::{Imported, RecordedSession, TranscriptError, load};

use self::args::Folder;
pub(crate) use self::args::SessionsCommand;
pub(crate) use self::facts::overview;
use crate::Outcome;
use crate::error::CliError;
use crate::output::note;
use crate::replay::describe;

pub(crate) fn run(command: &SessionsCommand) -> Result<Outcome, CliError> {
    match command {
        SessionsCommand::List(args) => list::run(args),
        SessionsCommand::Show(args) => show::run(args),
        SessionsCommand::Export(args) => export::run(args),
        SessionsCommand::Repair(args) => repair::run(args),
        SessionsCommand::Import(args) => import::import(args),
    }
}

impl Folder {
    /// The folder that is meant.
    fn path(&self) -> Result<PathBuf, CliError> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(Home::from_env()?.sessions()),
        }
    }

    /// The sessions of the folder; of the one in the home there need be none.
    fn list(&self) -> Result<(PathBuf, Vec<SessionSummary>), CliError> {
        let path = self.path()?;
        let listed = match self.dir {
            None if !path.exists() => Vec::new(),
            _ => context_engine_transcript::store::list(&path)?,
        };
        Ok((path, listed))
    }

    /// The file of the session that is named: an id or its beginning, a file, or the name of one in the folder.
    fn session(&self, named: &str) -> Result<PathBuf, CliError> {
        let path = Path::new(named);
        if path.is_file() {
            return Ok(path.to_owned());
        }
        let folder = self.path()?;
        let in_folder = [folder.join(named), folder.join(format!("{named}.jsonl"))];
        if let Some(path) = in_folder.into_iter().find(|path| !named.is_empty() && path.is_file()) {
            return Ok(path);
        }
        // A path that leads nowhere is no id, and without a folder there is no session.
        let is_path = named.contains(['/', '\\']) || path.extension().is_some_and(|ending| ending == "jsonl");
        let needed = if is_path { path } else { &folder };
        std::fs::metadata(needed).map_err(|source| TranscriptError::Read { path: needed.to_owned(), source })?;
        Ok(find(&folder, named)?)
    }
}

/// The session in a file; the first where there are several.
fn open(path: &Path) -> Result<(RecordedSession, Imported), CliError> {
    let mut imported = load(path)?;
    let found = imported.sessions.len();
    if found > 1 {
        let to_do = "`context-engine sessions import` makes a file of each";
        note(format_args!("{}: session 1 of {found}; {to_do}", path.display()));
    }
    if found == 0 {
        return Err(CliError::NoSession { path: path.to_owned() });
    }
    Ok((imported.sessions.remove(0), imported))
}

/// Says what a load warns of.
fn warn(path: &Path, imported: &Imported) {
    imported.warnings.iter().for_each(|warning| note(describe(path, warning)));
}

/// Whether something of the file could not be read as it was written.
fn outcome(imported: &Imported) -> Outcome {
    match imported.lost > 0 || imported.warnings.iter().any(import::is_damage) {
        true => Outcome::Findings,
        false => Outcome::Fine,
    }
}
