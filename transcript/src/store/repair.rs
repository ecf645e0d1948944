//! Mends a damaged session file: every whole record stays, what is broken goes, and the original is kept beside it.
//!
//! Decision: what is written is what a load has been reading all along. Lines that are sound are copied byte for byte; a
//! record is written anew only where it was damaged or where what names it or its parent had to change. Calls without a
//! result stay as they are (see [`unanswered_calls`](super::unanswered_calls)).
//!
//! Invariant: after a repair a load gives the same entries, ids and active branch as before it, and warns of nothing. The
//! new file is read again and compared before it takes its place, in one step; until then nothing has changed.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::listing::BACKUP;
use super::lock::SessionLock;
use super::platform;
use super::survey::{self, Findings, HeaderState, Line, Survey, Surveyed};
use crate::entry::Timestamp;
use crate::import::lines::mend;
use crate::import::openclaw::ACCEPT;
use crate::time::format_iso;
use crate::{Entry, EntryPayload, RecordedSession, TranscriptError};

/// How [`repair()`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairOptions {
    /// Only say what would be done. Needs no lock.
    pub dry_run: bool,
}

/// What was found, and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairReport {
    /// The session file.
    pub path: PathBuf,
    /// The session's id.
    pub id: String,
    /// Whole entries, all of which are kept.
    pub entries: u64,
    /// What was wrong before.
    pub findings: Findings,
    /// The original; `None` when nothing was changed.
    pub backup: Option<PathBuf>,
}

/// Repairs the session file at `path`. A sound file is not touched, and neither is its lock.
///
/// The original stays beside it as `<name>.corrupt-<time>-<8 hexadecimal digits>.jsonl`.
///
/// # Errors
/// [`TranscriptError::Read`] and [`TranscriptError::NotAFile`]; [`TranscriptError::NotASession`] and
/// [`TranscriptError::Version`] for what has to be imported first; [`TranscriptError::Locked`] and
/// [`TranscriptError::Lock`]; [`TranscriptError::Write`] and [`TranscriptError::Repair`]. The file is then as it was.
pub fn repair(path: &Path, options: RepairOptions) -> Result<RepairReport, TranscriptError> {
    let read = |source| TranscriptError::Read { path: path.to_owned(), source };
    // Behind a link, the file is what is replaced.
    let path = &fs::canonicalize(path).map_err(read)?;
    let report = |survey: Survey, backup| RepairReport {
        path: path.clone(),
        id: survey.session.id,
        entries: survey.session.entries.len() as u64,
        findings: survey.findings,
        backup,
    };
    let survey = session(path)?;
    if options.dry_run || !survey.findings.is_damaged() {
        return Ok(report(survey, None));
    }
    let _lock = SessionLock::acquire(path)?;
    let found = fs::metadata(path).map_err(read)?;
    // Somebody may have written until now.
    let survey = session(path)?;
    if survey.version < 2 {
        return Err(TranscriptError::Version { path: path.clone(), version: survey.version.into() });
    }
    let new = Unfinished::beside(path, &found)?;
    new.write(path, &survey)?;
    new.compare(path, &survey)?;
    let now = fs::metadata(path).map_err(read)?;
    if (now.len(), platform::identity(&now)) != (found.len(), platform::identity(&found)) {
        return Err(refused(path, "another program has written to the file meanwhile"));
    }
    let backup = new.take_place(path)?;
    Ok(report(survey, Some(backup)))
}

fn session(path: &Path) -> Result<Survey, TranscriptError> {
    match survey::survey(path)? {
        Surveyed::Session(survey) => Ok(*survey),
        Surveyed::Other(found) => Err(TranscriptError::NotASession { path: path.to_owned(), found }),
    }
}

fn refused(path: &Path, found: &'static str) -> TranscriptError {
    TranscriptError::Repair { path: path.to_owned(), found }
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> TranscriptError {
    let path = path.to_owned();
    move |source| TranscriptError::Write { path: path.clone(), doing, left: "the session is as it was", source }
}

/// The new file until it has taken its place; removed when it does not get there.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn beside(session: &Path, found: &fs::Metadata) -> Result<Unfinished, TranscriptError> {
        let name = session.file_name().unwrap_or_default().to_string_lossy();
        let path = session.with_file_name(format!(".{name}.repair-{}", digits()));
        let mut options = File::options();
        platform::private(options.write(true).create_new(true));
        let file = options.open(&path).map_err(failed(&path, "making the repaired session"))?;
        let new = Unfinished { path, file };
        // Where the system does not let us, it stays its maker's alone.
        let _ = new.file.set_permissions(found.permissions());
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let _ = std::os::unix::fs::fchown(&new.file, Some(found.uid()), Some(found.gid()));
        }
        Ok(new)
    }

    fn write(&self, session: &Path, survey: &Survey) -> Result<(), TranscriptError> {
        let failed = failed(&self.path, "writing the repaired session");
        let mut out = BufWriter::new(&self.file);
        let mut header = match survey.findings.header {
            HeaderState::First => None,
            HeaderState::Later => first_header(session)?,
            HeaderState::Missing => Some(made_header(survey)),
        };
        if let Some(header) = &header {
            writeln!(out, "{header}").map_err(&failed)?;
        }
        let mut entries = survey.session.entries.iter();
        let links = links(&survey.session);
        each_record(session, |record| {
            if survey::is_header(record.members()) {
                return match &mut header {
                    // It stands at the beginning by now.
                    Some(written) if survey.findings.header == HeaderState::Later && !written.is_null() => {
                        *written = Value::Null;
                        Ok(())
                    }
                    _ if has_id(record.members()) => record.put(&mut out),
                    // The file's name gave it one, and the name may change.
                    _ => {
                        let mut whole = record.whole();
                        whole.insert("id".to_owned(), survey.session.id.as_str().into());
                        writeln!(out, "{}", Value::Object(whole))
                    }
                };
            }
            let Some(entry) = entries.next() else { return record.put(&mut out) };
            let link = links.get(entry.id.as_str()).copied();
            if !change(&mut record.members().clone(), entry, link) {
                return record.put(&mut out);
            }
            let mut whole = record.whole();
            change(&mut whole, entry, link);
            writeln!(out, "{}", Value::Object(whole))
        })?
        .map_err(&failed)?;
        out.flush().and_then(|()| self.file.sync_all()).map_err(&failed)
    }

    /// Reads the new file as a load would.
    fn compare(&self, session: &Path, survey: &Survey) -> Result<(), TranscriptError> {
        let Surveyed::Session(new) = survey::survey(&self.path)? else {
            return Err(refused(session, "the repaired file is no session file"));
        };
        let ids = |session: &RecordedSession| session.entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
        let branch =
            |session: &RecordedSession| session.active_branch().iter().map(|e| e.id.clone()).collect::<Vec<_>>();
        if new.session.id != survey.session.id || ids(&new.session) != ids(&survey.session) {
            return Err(refused(session, "the repaired file has other entries"));
        }
        if branch(&new.session) != branch(&survey.session) {
            return Err(refused(session, "the repaired file has another active branch"));
        }
        if new.findings.is_damaged() {
            return Err(refused(session, "the repaired file would need a repair"));
        }
        Ok(())
    }

    /// Puts the new file in the place of the old one, which stays under the name that is returned.
    fn take_place(self, session: &Path) -> Result<PathBuf, TranscriptError> {
        let name = session.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".jsonl").unwrap_or(&name);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as i64);
        let time = format_iso(now).unwrap_or_default().replace([':', '.'], "-");
        let backup = session.with_file_name(format!("{stem}{BACKUP}{time}-{}.jsonl", digits()));
        // A second name for the original, so that there is a session file at every moment.
        if fs::hard_link(session, &backup).is_err() {
            fs::copy(session, &backup)
                .and_then(|_| File::open(&backup)?.sync_all())
                .map_err(failed(&backup, "keeping the original session"))?;
        }
        fs::rename(&self.path, session).map_err(|error| {
            let _ = fs::remove_file(&backup);
            failed(session, "putting the repaired session in its place")(error)
        })?;
        let folder = session.parent().unwrap_or(Path::new("."));
        let _ = platform::sync_folder(folder);
        Ok(backup)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the file has taken its place, nothing has this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Eight hexadecimal digits no other file has.
fn digits() -> String {
    format!("{:08x}", RandomState::new().hash_one(std::process::id()) as u32)
}

/// A record as it stands in the damaged file.
enum Record<'a> {
    /// On a line of its own: the line, and its JSON with long texts cut.
    Plain(&'a [u8], Map<String, Value>),
    /// Found on a damaged line.
    Mended(Map<String, Value>),
}

impl Record<'_> {
    fn members(&self) -> &Map<String, Value> {
        match self {
            Record::Plain(_, members) | Record::Mended(members) => members,
        }
    }

    /// The record with its long texts.
    fn whole(&self) -> Map<String, Value> {
        match self {
            Record::Plain(line, members) => serde_json::from_slice(line).unwrap_or_else(|_| members.clone()),
            Record::Mended(members) => members.clone(),
        }
    }

    fn put(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Record::Plain(line, _) => out.write_all(line).and_then(|()| out.write_all(b"\n")),
            Record::Mended(members) => {
                serde_json::to_writer(&mut *out, members).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"))
            }
        }
    }
}

/// Gives `each` every record of the file, in order; the inner result is the first that was an error.
fn each_record(
    session: &Path,
    mut each: impl FnMut(Record<'_>) -> io::Result<()>,
) -> Result<io::Result<()>, TranscriptError> {
    let read = |source| TranscriptError::Read { path: session.to_owned(), source };
    let mut outcome = Ok(());
    survey::lines(&mut BufReader::new(survey::open(session)?), |_, line| {
        outcome = match line {
            Line::Plain(bytes, Value::Object(members)) => each(Record::Plain(bytes, members)),
            Line::Plain(..) => Ok(()),
            Line::Other(bytes) => mend(bytes, &ACCEPT).records.into_iter().try_for_each(|(_, json)| match json {
                Value::Object(members) => each(Record::Mended(members)),
                _ => Ok(()),
            }),
        };
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(read)?;
    Ok(outcome)
}

fn has_id(header: &Map<String, Value>) -> bool {
    header.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty())
}

fn first_header(session: &Path) -> Result<Option<Value>, TranscriptError> {
    let mut header = None;
    // There is nothing to be written that could fail.
    let _ = each_record(session, |record| {
        if header.is_none() && survey::is_header(record.members()) {
            header = Some(Value::Object(record.whole()));
        }
        Ok(())
    })?;
    Ok(header)
}

/// A header in the place of one that was lost: what can still be known of it.
fn made_header(survey: &Survey) -> Value {
    let session = &survey.session;
    let mut header = Map::new();
    header.insert("type".to_owned(), "session".into());
    header.insert("version".to_owned(), survey.version.into());
    header.insert("id".to_owned(), session.id.as_str().into());
    let time = session.entries.iter().map(|entry| &entry.timestamp).find_map(|time| match time {
        Timestamp::Iso(text) => Some(text.clone()),
        time => Some(time.ms()).filter(|&ms| ms != 0).and_then(format_iso),
    });
    header.extend(time.map(|time| ("timestamp".to_owned(), time.into())));
    Value::Object(header)
}

/// The entries that get another parent, and which: on the active branch the one a load puts before it, elsewhere the one
/// before in the file.
fn links(session: &RecordedSession) -> HashMap<&str, Option<&str>> {
    let branch = session.active_branch();
    let mut links = HashMap::new();
    let before = std::iter::once(None).chain(branch.iter().map(|entry| Some(entry.id.as_str())));
    for (before, entry) in before.zip(&branch) {
        if entry.parent_id.as_deref() != before {
            links.insert(entry.id.as_str(), before);
        }
    }
    let on_branch: HashSet<&str> = branch.iter().map(|entry| entry.id.as_str()).collect();
    let known: HashSet<&str> = session.entries.iter().map(|entry| entry.id.as_str()).collect();
    let before = std::iter::once(None).chain(session.entries.iter().map(|entry| Some(entry.id.as_str())));
    for (before, entry) in before.zip(&session.entries) {
        let is_lost = entry.parent_id.as_deref().is_some_and(|parent| !known.contains(parent));
        if is_lost && !on_branch.contains(entry.id.as_str()) {
            // What is left of a rewrite that was cut off must not come to hang on the tip.
            links.insert(entry.id.as_str(), before.filter(|_| !entry.rewrite_continues()));
        }
    }
    links
}

/// Gives an entry's JSON the id, parent and references that a load gives it; `false` when it has them.
fn change(record: &mut Map<String, Value>, entry: &Entry, link: Option<Option<&str>>) -> bool {
    let mut changed = false;
    let mut set = |key: &str, id: Option<&str>, even_if_missing: bool| {
        let known = record.get(key);
        // What has no such member means the entry before, or nothing.
        if known.and_then(Value::as_str) == id && known.is_some() || known.is_none() && !even_if_missing {
            return;
        }
        record.insert(key.to_owned(), id.map_or(Value::Null, Value::from));
        changed = true;
    };
    set("id", Some(&entry.id), true);
    set("parentId", link.unwrap_or(entry.parent_id.as_deref()), link.is_some());
    match &entry.payload {
        EntryPayload::Compaction { first_kept_entry_id: Some(id), .. }
        | EntryPayload::Reset { first_kept_entry_id: Some(id) } => set("firstKeptEntryId", Some(id), false),
        EntryPayload::Leaf { target_id: Some(id) } => set("targetId", Some(id), false),
        _ => {}
    }
    changed
}
