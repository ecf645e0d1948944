//! Importers: what agents leave on disk, as [`RecordedSession`]s.
//!
//! Decision: one module per family of formats, each with a `recognises…` and an `import…`; `detect` asks them in turn
//! and [`load_bytes`] calls the one that answered. A new format is a new module and a line in each. Importers never
//! fail on a part of a file: what cannot be read is lost alone, counted, and said once per load.

mod build;
mod detect;
mod lines;
mod openai;
mod openclaw;

use std::fmt;
use std::path::Path;

use self::detect::Shape;
use self::lines::Damage;
pub(crate) use self::openclaw::is_entry as is_openclaw_entry;
use crate::{RecordedSession, TranscriptError};

/// A format that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// OpenClaw's session JSONL; version 1 is that of its ancestor pi, without ids.
    OpenClaw {
        /// The header's version, or what the entries look like when there is no header.
        version: u32,
    },
    /// OpenAI chat messages, or messages in OpenClaw's shape without a session around them.
    Chat,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::OpenClaw { version: 1 } => f.write_str("pi session (JSON lines, version 1)"),
            Format::OpenClaw { version } => write!(f, "OpenClaw session (JSON lines, version {version})"),
            Format::Chat => f.write_str("OpenAI chat messages"),
        }
    }
}

/// Something about a load that a person should know. Each kind comes at most once per load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportWarning {
    /// Lines that are no plain record. Whole records on them were used.
    DamagedLines {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
        /// Whole records found on them.
        recovered: u64,
        /// Fragments no record could be made of.
        lost: u64,
    },
    /// Lines with bytes that are no UTF-8, read with U+FFFD in place.
    NotUtf8 {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
    },
    /// Lines with half a surrogate pair, read with U+FFFD in place.
    HalfSurrogates {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
    },
    /// The session file has no header; the id was taken from the file's name.
    NoHeader,
    /// System messages later in a dialogue that differ from the first; kept as entries, not sent.
    LaterSystemMessages {
        /// How many, in all sessions.
        count: u64,
    },
}

impl fmt::Display for ImportWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportWarning::DamagedLines { lines, recovered, lost } => {
                write!(f, "{}: {recovered} whole records recovered, {lost} lost", Lines("damaged", lines))
            }
            ImportWarning::NotUtf8 { lines } => {
                write!(f, "{}: read with U+FFFD in place", Lines("with bytes that are no UTF-8", lines))
            }
            ImportWarning::HalfSurrogates { lines } => {
                write!(f, "{}: read with U+FFFD in place", Lines("with half a surrogate pair", lines))
            }
            ImportWarning::NoHeader => f.write_str("no session header: the id was taken from the file's name"),
            ImportWarning::LaterSystemMessages { count } => {
                write!(f, "{count} later system messages differ from the first: kept, not sent")
            }
        }
    }
}

/// `3 damaged lines (7, 50, 51)`, shortened for very many.
struct Lines<'a>(&'a str, &'a [u64]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Line numbers listed before the rest is only counted.
        const LISTED: usize = 20;
        let (Lines(what, lines), plural) = (self, if self.1.len() == 1 { "" } else { "s" });
        let listed: Vec<String> = lines.iter().take(LISTED).map(u64::to_string).collect();
        let more = if lines.len() > LISTED { ", …" } else { "" };
        if what.starts_with("with") {
            return write!(f, "{} line{plural} {what} ({}{more})", lines.len(), listed.join(", "));
        }
        write!(f, "{} {what} line{plural} ({}{more})", lines.len(), listed.join(", "))
    }
}

/// What a file held.
///
/// Invariant: the file's records are the sum of `counts.records` of the sessions and `lost`.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The format, as told by the content.
    pub format: Format,
    /// The conversations, in file order; at least one.
    pub sessions: Vec<RecordedSession>,
    /// What a person should know about the load.
    pub warnings: Vec<ImportWarning>,
    /// Records of the file that could not be read.
    pub lost: u64,
}

/// Reads a transcript file. The format is told from the content; the file's name only serves as the id of a session
/// that has none.
///
/// # Errors
/// [`TranscriptError::Read`], [`TranscriptError::NotAFile`], and those of [`load_bytes`].
pub fn load(path: &Path) -> Result<Imported, TranscriptError> {
    let read = |source| TranscriptError::Read { path: path.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(read)?;
    // Opening a pipe would wait for its other end.
    if !kind.is_file() {
        let found = if kind.is_dir() { "a directory" } else { "a pipe, a socket or a device" };
        return Err(TranscriptError::NotAFile { path: path.to_owned(), found });
    }
    let bytes = std::fs::read(path).map_err(read)?;
    load_bytes(&path.to_string_lossy(), &bytes)
}

/// Reads a transcript that is in memory; `name` is the path or name that errors show.
///
/// # Errors
/// [`TranscriptError::Empty`], [`TranscriptError::UnknownFormat`], or [`TranscriptError::Json`] for a damaged JSON
/// document. Damaged lines are no error.
pub fn load_bytes(name: &str, bytes: &[u8]) -> Result<Imported, TranscriptError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let name_id = id_from_name(name);
    let imported = match detect::shape(name, bytes)? {
        Shape::OpenClawLines => {
            let (version, sessions, damage) = openclaw::import(&name_id, bytes);
            imported(Format::OpenClaw { version }, sessions, damage)
        }
        Shape::ChatLines => {
            let (sessions, damage) = openai::import_lines(&name_id, bytes);
            imported(Format::Chat, sessions, damage)
        }
        Shape::ChatDocument(json) => {
            let (sessions, lost) = openai::import_document(&name_id, json);
            imported(Format::Chat, sessions, Damage { lost, ..Damage::default() })
        }
    };
    for warning in &imported.warnings {
        tracing::warn!(transcript = name, "{warning}");
    }
    Ok(imported)
}

fn imported(format: Format, sessions: Vec<RecordedSession>, damage: Damage) -> Imported {
    let mut warnings = Vec::new();
    let lost = damage.lost;
    if !damage.lines.is_empty() {
        let Damage { lines, recovered, lost, .. } = damage;
        warnings.push(ImportWarning::DamagedLines { lines, recovered, lost });
    }
    if !damage.not_utf8.is_empty() {
        warnings.push(ImportWarning::NotUtf8 { lines: damage.not_utf8 });
    }
    if !damage.half_surrogates.is_empty() {
        warnings.push(ImportWarning::HalfSurrogates { lines: damage.half_surrogates });
    }
    let without_header = |s: &RecordedSession| s.meta.is_empty();
    if matches!(format, Format::OpenClaw { .. }) && sessions.iter().any(without_header) {
        warnings.push(ImportWarning::NoHeader);
    }
    let later_system = |s: &RecordedSession| s.entries.iter().filter(|e| e.kind() == "system").count() as u64;
    let count = sessions.iter().map(later_system).sum();
    if format == Format::Chat && count > 0 {
        warnings.push(ImportWarning::LaterSystemMessages { count });
    }
    Imported { format, sessions, warnings, lost }
}

/// The id OpenClaw put into a file's name (`<timestamp>_<id>.jsonl`), or the name without its extension.
fn id_from_name(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
    let dated = |time: &str| time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T');
    let id = stem.split_once('_').filter(|(time, id)| dated(time) && !id.is_empty()).map_or(stem, |(_, id)| id);
    let id = [id, file].into_iter().find(|id| !id.trim().is_empty());
    id.unwrap_or("session").to_owned()
}
