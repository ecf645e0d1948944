//! One pass over a session file: its entries without their long texts, and everything that is wrong with it.
//!
//! Decision: the list, the repair and a doctor all ask this one body, and it makes its entries with the importer's own
//! reader; so all of them name the same lines and the same numbers as a load (public report D7). One line is in memory at
//! a time.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Map, Value};

use super::brief;
use super::calls::unanswered_calls;
use crate::import::lines::{Damage, mend};
use crate::import::openclaw::{ACCEPT, Reader};
use crate::import::{damage_warnings, detect, id_from_name, regular_file};
use crate::{HistoryOptions, ImportWarning, RecordedSession, TranscriptError};

/// Lines looked at before a file counts as no session file: one may begin with many entries that are no messages.
const LINES: u64 = 1_000;
/// Bytes of another file that are looked at to say what it is.
const BEGINNING: u64 = 4 << 20;

/// Where the header of a session file stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderState {
    /// In the first record.
    #[default]
    First,
    /// Behind other records.
    Later,
    /// Nowhere: the file's name gives the id.
    Missing,
}

/// What is wrong with a session file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What a load warns of, in its words.
    pub warnings: Vec<ImportWarning>,
    /// Numbers of the lines that are no plain record, from 1, ascending.
    pub damaged_lines: Vec<u64>,
    /// Whole records found on them.
    pub recovered: u64,
    /// Fragments no record could be made of.
    pub lost: u64,
    /// Numbers of other lines that are read with a character or a number replaced.
    pub replaced_lines: Vec<u64>,
    /// Where the header stands.
    pub header: HeaderState,
    /// Entries that follow one that is not in the file, or themselves.
    pub lost_parents: u64,
    /// Entries that bear the id of an earlier one.
    pub duplicate_ids: u64,
    /// Entries without an id, in a version that has ids.
    pub missing_ids: u64,
    /// Tool calls without a result in the conversation as it would go on: no damage, each is made whole whenever a prompt
    /// is built.
    pub unanswered_calls: u64,
}

impl Findings {
    /// Whether a repair would change the file.
    pub fn is_damaged(&self) -> bool {
        !self.damaged_lines.is_empty()
            || !self.replaced_lines.is_empty()
            || self.header != HeaderState::First
            || self.lost_parents + self.duplicate_ids + self.missing_ids > 0
    }

    /// What is damaged, one thing each, in words.
    pub fn told(&self) -> Vec<String> {
        let mut told: Vec<String> = self.warnings.iter().map(ToString::to_string).collect();
        if self.header == HeaderState::Later {
            told.push("the session header is not the first record".to_owned());
        }
        for (count, what) in [
            (self.lost_parents, "whose parent is lost: hung on the entry before"),
            (self.duplicate_ids, "with the id of an earlier one: given another"),
            (self.missing_ids, "without an id: given one"),
        ] {
            if count > 0 {
                let entries = if count == 1 { "entry" } else { "entries" };
                told.push(format!("{count} {entries} {what}"));
            }
        }
        told
    }
}

/// What a file turned out to be.
pub(super) enum Surveyed {
    Session(Box<Survey>),
    /// No session file: what it is instead.
    Other(String),
}

/// A session file, read once.
pub(super) struct Survey {
    pub(super) version: u32,
    /// The entries are complete but for their long texts.
    pub(super) session: RecordedSession,
    pub(super) findings: Findings,
}

/// Reads the file at `path`.
pub(super) fn survey(path: &Path) -> Result<Surveyed, TranscriptError> {
    let read = |source| TranscriptError::Read { path: path.to_owned(), source };
    let file = open(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name_id = id_from_name(&name);
    let mut reading = Reading::new(&name_id);
    lines(&mut BufReader::with_capacity(1 << 18, &file), |number, line| reading.line(number, line)).map_err(read)?;
    if reading.is_session != Some(true) {
        return Ok(Surveyed::Other(beginning(path).map_err(read)?));
    }
    let Reading { reader, damage, header, .. } = reading;
    let (version, mut sessions) = reader.finish();
    match (sessions.len(), sessions.pop()) {
        (1, Some(session)) => {
            let findings = findings(&session, version, damage, header.unwrap_or(HeaderState::Missing));
            Ok(Surveyed::Session(Box::new(Survey { version, session, findings })))
        }
        (several, _) => {
            let to_do = "`context-engine sessions import` makes a file of each";
            Ok(Surveyed::Other(format!("a file of {several} sessions; {to_do}")))
        }
    }
}

/// Opens a session file to read it; a pipe would wait for its other end.
pub(super) fn open(path: &Path) -> Result<File, TranscriptError> {
    regular_file(path)?;
    File::open(path).map_err(|source| TranscriptError::Read { path: path.to_owned(), source })
}

/// A line that is not blank.
pub(super) enum Line<'a> {
    /// One plain record: its bytes, and its JSON with long texts cut.
    Plain(&'a [u8], Value),
    /// Anything else.
    Other(&'a [u8]),
}

/// Every line that is not blank with its number, until `each` breaks off.
pub(super) fn lines(file: &mut impl BufRead, mut each: impl FnMut(u64, Line<'_>) -> ControlFlow<()>) -> io::Result<()> {
    let mut buffer = Vec::new();
    for number in 1.. {
        buffer.clear();
        if file.read_until(b'\n', &mut buffer)? == 0 {
            break;
        }
        let bytes = buffer.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&buffer).trim_ascii();
        if bytes.is_empty() {
            continue;
        }
        let plain = std::str::from_utf8(bytes).ok().and_then(brief::parse).filter(ACCEPT.line);
        let line = plain.map_or(Line::Other(bytes), |json| Line::Plain(bytes, json));
        if each(number, line).is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a record is a session's header.
pub(super) fn is_header(record: &Map<String, Value>) -> bool {
    record.get("type").is_some_and(|kind| kind == "session")
}

struct Reading<'a> {
    reader: Reader<'a>,
    damage: Damage,
    position: u64,
    /// Whether the file is a session file, once a line has shown it.
    is_session: Option<bool>,
    header: Option<HeaderState>,
    records: u64,
}

impl<'a> Reading<'a> {
    fn new(name_id: &'a str) -> Reading<'a> {
        let (reader, damage) = (Reader::new(name_id), Damage::default());
        Reading { reader, damage, position: 0, is_session: None, header: None, records: 0 }
    }

    fn line(&mut self, number: u64, line: Line<'_>) -> ControlFlow<()> {
        match line {
            Line::Plain(_, json) => self.record(json),
            Line::Other(bytes) => {
                let mut found = mend(bytes, &ACCEPT);
                self.damage.note(number, &found);
                self.damage.lost += found.lost;
                for (lost_before, json) in std::mem::take(&mut found.records) {
                    self.position += lost_before;
                    found.lost -= lost_before;
                    self.record(json);
                }
                self.position += found.lost;
            }
        }
        match self.is_session {
            Some(true) => ControlFlow::Continue(()),
            None if number < LINES => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn record(&mut self, json: Value) {
        self.is_session = self.is_session.or_else(|| detect::is_of_session_file(&json));
        let Value::Object(map) = json else { return };
        if self.header.is_none() && is_header(&map) {
            self.header = Some(if self.records == 0 { HeaderState::First } else { HeaderState::Later });
        }
        self.reader.record(self.position, map);
        self.position += 1;
        self.records += 1;
    }
}

fn findings(session: &RecordedSession, version: u32, damage: Damage, header: HeaderState) -> Findings {
    let mended = |what: &str| session.counts.mended.get(what).copied().unwrap_or(0);
    let mut replaced: Vec<u64> =
        [&damage.not_utf8, &damage.half_surrogates, &damage.no_numbers].into_iter().flatten().copied().collect();
    replaced.retain(|line| damage.lines.binary_search(line).is_err());
    replaced.sort_unstable();
    replaced.dedup();
    let context = session.history(HistoryOptions { honor_compactions: true });
    let mut findings = Findings {
        damaged_lines: damage.lines.clone(),
        recovered: damage.recovered,
        lost: damage.lost,
        replaced_lines: replaced,
        header,
        lost_parents: mended("lost parent") + circles(session),
        duplicate_ids: mended("duplicate id"),
        missing_ids: if version == 1 { 0 } else { mended("made-up id") },
        unanswered_calls: unanswered_calls(&context.messages),
        warnings: damage_warnings(damage),
    };
    if header == HeaderState::Missing {
        findings.warnings.push(ImportWarning::NoHeader);
    }
    findings
}

/// Entries of the active branch whose parent is in the file and yet is not the one before on the branch.
fn circles(session: &RecordedSession) -> u64 {
    let branch = session.active_branch();
    let known: HashSet<&str> = session.entries.iter().map(|entry| entry.id.as_str()).collect();
    let before = std::iter::once(None).chain(branch.iter().map(|entry| Some(entry.id.as_str())));
    let bridged = before.zip(&branch).filter(|(before, entry)| match entry.parent_id.as_deref() {
        Some(parent) => Some(parent) != *before && known.contains(parent),
        None => false,
    });
    bridged.count() as u64
}

/// What a file is that is no session file.
fn beginning(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let cut = File::open(path)?.take(BEGINNING).read_to_end(&mut bytes)? as u64 == BEGINNING;
    // Half a line at the end would count as damage.
    if cut && let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') {
        bytes.truncate(end);
    }
    Ok(detect::describe_other(&bytes))
}
