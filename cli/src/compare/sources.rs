//! Which sessions are compared: files, and folders of files.
//!
//! Decision: a file that was named must be a session; in a folder, what is none is said and left out, because folders of
//! agents hold other things, too.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use context_engine_runtime::compare::{SessionToCompare, calls};
use context_engine_transcript::{TokenCounter, load};

use crate::error::CliError;
use crate::output::{self, note, number};
use crate::replay::describe;

/// Reads the sessions and counts their tokens, for `model` or for the one each was recorded with.
pub(crate) fn read(paths: &[PathBuf], model: Option<&str>) -> Result<Vec<SessionToCompare>, CliError> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    // One file by two paths is one file: counted twice, its cases would pass for evidence.
    let mut is_new = |path: &Path| {
        let new = fs::canonicalize(path).map_or(true, |real| seen.insert(real));
        if !new {
            note(format_args!("left out: {}: it was given before", path.display()));
        }
        new
    };
    for path in paths {
        if !path.is_dir() {
            if is_new(path) {
                found.extend(of_file(path, model)?);
            }
            continue;
        }
        for file in files(path)?.into_iter().filter(|file| is_new(file)) {
            match of_file(&file, model) {
                Ok(sessions) => found.extend(sessions),
                Err(CliError::Transcript(error)) => note(format_args!("left out: {error}")),
                Err(error) => return Err(error),
            }
        }
    }
    let all = found.len();
    found.retain(|session| {
        let has_calls = calls(&session.session) > 0;
        if !has_calls {
            note(format_args!("{}: left out: no model answers in session {}", session.file, session.session.id));
        }
        has_calls
    });
    if found.is_empty() {
        let found = match all {
            0 => "no session was found".to_owned(),
            _ => format!("in none of the {} sessions a model has answered", number(all as u64)),
        };
        return Err(CliError::NothingToCompare { found });
    }
    let bar = output::progress(found.len(), "counting tokens");
    for session in &mut found {
        session.session.count_tokens(&session.counter);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn of_file(path: &Path, model: Option<&str>) -> Result<Vec<SessionToCompare>, CliError> {
    let imported = load(path)?;
    imported.warnings.iter().for_each(|warning| note(describe(path, warning)));
    let file = path.to_string_lossy();
    let session = |session: context_engine_transcript::RecordedSession| SessionToCompare {
        file: file.clone().into_owned(),
        counter: TokenCounter::for_model(model.or(session.model.as_deref())),
        session,
    };
    Ok(imported.sessions.into_iter().map(session).collect())
}

/// The files of a folder by name; hidden ones and folders in it are passed over.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::File { path: folder.to_owned(), doing: "looking for sessions", source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
