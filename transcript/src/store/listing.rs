//! The sessions of a folder: what they are called, what they hold, what is wrong with them, who has them open.
//!
//! Decision: nothing is locked and nothing is written, so that looking never keeps a host from its session. Whatever else
//! lies in the folder is listed too, with what it is: a session that "is gone" is most often a file nobody can read.

use std::cmp::Reverse;
use std::fs;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use context_engine_interface::Role;
use serde_json::Value;

use super::lock::{LockOwner, SessionLock};
use super::survey::{self, Findings, Line, Survey, Surveyed};
use crate::import::build::member;
use crate::import::id_from_name;
use crate::{Entry, EntryPayload, RecordedSession, TranscriptError};

/// Characters of a session's name.
const NAME: usize = 80;
/// In the name of what a repair keeps: see [`super::repair()`].
pub(super) const BACKUP: &str = ".corrupt-";

/// One file of a sessions folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Why the rest says nothing: the file is no session file, or cannot be read.
    pub not_a_session: Option<String>,
    /// The session's id: that of the header, else that in the file's name.
    pub id: String,
    /// Version of the format, 1 to 3.
    pub version: u32,
    /// What it was called last, else how its first message of a person begins; one line of at most 80 characters.
    pub name: Option<String>,
    /// Entries of all branches, without the header.
    pub entries: u64,
    /// Those of them that are messages.
    pub messages: u64,
    /// Ends of the tree: entries nothing follows. 0 for a session without entries.
    pub branches: u64,
    /// Compactions on all branches.
    pub compactions: u64,
    /// Earliest time of an entry, else the header's; milliseconds since the Unix epoch.
    pub first_ms: Option<i64>,
    /// Latest time of an entry.
    pub last_ms: Option<i64>,
    /// The model that answered last.
    pub model: Option<String>,
    /// Working directory of the agent.
    pub cwd: Option<String>,
    /// What is wrong with the file.
    pub findings: Findings,
    /// Who has it open to write.
    pub owner: Option<LockOwner>,
}

/// The files of a folder, the newest session first, what is none last. Hidden files, locks and half-written imports are left
/// out.
///
/// # Errors
/// [`TranscriptError::Read`] when the folder cannot be read; what is wrong with a file is in its summary.
pub fn list(folder: &Path) -> Result<Vec<SessionSummary>, TranscriptError> {
    let mut summaries: Vec<SessionSummary> = files(folder)?
        .into_iter()
        .map(|path| {
            summary(&path).unwrap_or_else(|error| SessionSummary {
                not_a_session: Some(match error {
                    TranscriptError::Read { source, .. } => format!("cannot be read: {source}"),
                    error => error.to_string(),
                }),
                ..empty(&path)
            })
        })
        .collect();
    summaries.sort_by_key(|summary| {
        (summary.not_a_session.is_some(), Reverse(summary.last_ms.or(summary.first_ms)), summary.path.clone())
    });
    Ok(summaries)
}

/// What one file holds, session or not.
///
/// # Errors
/// [`TranscriptError::Read`], [`TranscriptError::NotAFile`].
pub fn summary(path: &Path) -> Result<SessionSummary, TranscriptError> {
    if is_backup(path) {
        return Ok(SessionSummary {
            not_a_session: Some("the original that a repair has kept".to_owned()),
            ..empty(path)
        });
    }
    Ok(match survey::survey(path)? {
        Surveyed::Session(survey) => summarised(path, *survey),
        Surveyed::Other(found) => SessionSummary { not_a_session: Some(found), ..empty(path) },
    })
}

/// The file of a session, by its id or a beginning of it that no other has.
///
/// # Errors
/// [`TranscriptError::Read`] when the folder cannot be read, [`TranscriptError::NoSession`] when no session, or more than
/// one, is meant.
pub fn find(folder: &Path, id: &str) -> Result<PathBuf, TranscriptError> {
    let known: Vec<(String, PathBuf)> = files(folder)?
        .into_iter()
        .filter(|path| !is_backup(path))
        .filter_map(|path| Some((id_of(&path)?, path)))
        .collect();
    let whole: Vec<&(String, PathBuf)> = known.iter().filter(|(known, _)| known == id).collect();
    let begun: Vec<&(String, PathBuf)> = known.iter().filter(|(known, _)| known.starts_with(id)).collect();
    match if whole.is_empty() { &begun[..] } else { &whole[..] } {
        [(_, path)] if !id.is_empty() => Ok(path.clone()),
        found => {
            let found = match found {
                _ if id.is_empty() => "no id".to_owned(),
                [] => format!("none of {}", known.len()),
                // The same id twice: only the file tells them apart.
                several if !whole.is_empty() => {
                    several.iter().map(|(_, path)| path.display().to_string()).collect::<Vec<_>>().join(", ")
                }
                several => several.iter().map(|(id, _)| id.as_str()).take(8).collect::<Vec<_>>().join(", "),
            };
            Err(TranscriptError::NoSession { folder: folder.to_owned(), id: id.to_owned(), found })
        }
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, TranscriptError> {
    let read = |source| TranscriptError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_passing = name.starts_with('.') || name.ends_with(".lock") || name.ends_with(".part");
        if !is_passing && fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn is_backup(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(BACKUP))
}

fn name_id(path: &Path) -> String {
    id_from_name(&path.file_name().unwrap_or_default().to_string_lossy())
}

fn empty(path: &Path) -> SessionSummary {
    let bytes = fs::metadata(path).map_or(0, |found| found.len());
    SessionSummary { path: path.to_owned(), bytes, id: name_id(path), ..SessionSummary::default() }
}

/// The id without reading the session.
fn id_of(path: &Path) -> Option<String> {
    let mut id = None;
    let file = survey::open(path).ok()?;
    let header = |_, line: Line<'_>| {
        if let Line::Plain(_, Value::Object(map)) = line
            && survey::is_header(&map)
        {
            id = map.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
        }
        ControlFlow::Break(())
    };
    survey::lines(&mut BufReader::new(file), header).ok()?;
    Some(id.unwrap_or_else(|| name_id(path)))
}

fn summarised(path: &Path, survey: Survey) -> SessionSummary {
    let Survey { version, session, findings } = survey;
    let times = || session.entries.iter().map(|entry| entry.timestamp.ms()).filter(|&ms| ms != 0);
    let header_time = session.meta.get("timestamp").and_then(Value::as_str).and_then(crate::time::parse_iso_ms);
    let compactions = session.entries.iter().filter(|entry| matches!(entry.payload, EntryPayload::Compaction { .. }));
    SessionSummary {
        version,
        name: name(&session),
        entries: session.entries.len() as u64,
        messages: session.counts.total_messages(),
        branches: branches(&session),
        compactions: compactions.count() as u64,
        first_ms: times().min().or(header_time),
        last_ms: times().max(),
        model: session.model,
        cwd: session.cwd,
        findings,
        owner: SessionLock::owner(path),
        id: session.id,
        ..empty(path)
    }
}

fn name(session: &RecordedSession) -> Option<String> {
    let is_info = |entry: &&Entry| entry.kind() == "session_info";
    let given = session.entries.iter().rev().find(is_info).and_then(|entry| member(&entry.raw, "name"));
    let said = || {
        let said = session.entries.iter().filter_map(Entry::message).filter(|message| message.role == Role::USER);
        said.map(|message| one_line(&message.text(), NAME)).find(|text| !text.is_empty())
    };
    given.map(|name| one_line(&name, NAME)).filter(|name| !name.is_empty()).or_else(said)
}

/// A text's beginning on one line: at most `longest` characters, with a mark where it was cut.
pub fn one_line(text: &str, longest: usize) -> String {
    // More than enough for the characters wanted, however many blanks stand between them.
    let start = text.get(..text.floor_char_boundary(64 * longest + 64)).unwrap_or(text);
    let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(longest) {
        None if start.len() == text.len() => line,
        None => line + "…",
        Some(_) => line.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Ends of the tree. A `leaf` entry only moves the tip and is no end itself, unless something hangs on it.
fn branches(session: &RecordedSession) -> u64 {
    let places = session.entries.iter().enumerate().map(|(place, entry)| (entry.id.as_str(), place));
    let places: std::collections::HashMap<&str, usize> = places.collect();
    let mut followed = vec![false; session.entries.len()];
    let mut ends = 0;
    for (place, entry) in session.entries.iter().enumerate().rev() {
        let is_followed = followed.get(place).copied().unwrap_or_default();
        if !is_followed && matches!(entry.payload, EntryPayload::Leaf { .. }) {
            continue;
        }
        ends += u64::from(!is_followed);
        // A lost parent's place is taken by the entry before.
        let parent = entry.parent_id.as_deref();
        let parent = parent.and_then(|parent| places.get(parent).copied().or(place.checked_sub(1)));
        if let Some(followed) = parent.and_then(|parent| followed.get_mut(parent)) {
            *followed = true;
        }
    }
    ends
}
