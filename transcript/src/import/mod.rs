//! Importers: what agents leave on disk, as [`RecordedSession`]s.
//!
//! Decision: one module per family of formats, each with a `recognises…` and an `import…`; `detect` asks them in turn
//! and [`load_bytes`] calls the one that answered. A new format is a new module and a line in each. Importers never
//! fail on a part of a file: what cannot be read is lost alone, counted, and said once per load.

pub(crate) mod build;
mod claude;
mod codex;
mod cut;
pub(crate) mod detect;
mod draft;
mod gemini;
pub(crate) mod lines;
mod openai;
pub(crate) mod openclaw;
mod openhands;
mod shape;
mod sharegpt;
mod swe;
mod unique;
mod warning;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use self::detect::{Family, Shape};
use self::lines::{Accept, Damage};
use self::openai::Sessions;
pub(crate) use self::openclaw::is_entry as is_openclaw_entry;
use self::unique::UniqueNames;
pub use self::warning::ImportWarning;
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
    /// Claude Code's project JSONL, or its stream output.
    ClaudeCode,
    /// A Codex rollout, or items of OpenAI's Responses API.
    Codex,
    /// A chat of Gemini CLI, a list of Gemini's contents, or the stream output.
    GeminiCli,
    /// SWE-agent's `.traj`.
    SweAgent,
    /// mini-swe-agent's trajectory.
    MiniSweAgent,
    /// Events of OpenHands.
    OpenHands,
    /// OpenAI chat messages, or messages in OpenClaw's shape without a session around them.
    Chat,
    /// ShareGPT dialogues.
    ShareGpt,
    /// Text with ChatML's marks.
    ChatMl,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::OpenClaw { version: 1 } => f.write_str("pi session (JSON lines, version 1)"),
            Format::OpenClaw { version } => write!(f, "OpenClaw session (JSON lines, version {version})"),
            Format::ClaudeCode => f.write_str("Claude Code session"),
            Format::Codex => f.write_str("Codex rollout"),
            Format::GeminiCli => f.write_str("Gemini CLI session"),
            Format::SweAgent => f.write_str("SWE-agent trajectory"),
            Format::MiniSweAgent => f.write_str("mini-swe-agent trajectory"),
            Format::OpenHands => f.write_str("OpenHands events"),
            Format::Chat => f.write_str("OpenAI chat messages"),
            Format::ShareGpt => f.write_str("ShareGPT dialogues"),
            Format::ChatMl => f.write_str("ChatML text"),
        }
    }
}

/// What an importer is asked to do beyond the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportOptions {
    /// Give the conversations of sub-agents in a Claude Code file too, as sessions behind the main one. Otherwise they
    /// are left out and counted.
    pub sidechains: bool,
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
    load_with(path, ImportOptions::default())
}

/// [`load`], with options.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, options: ImportOptions) -> Result<Imported, TranscriptError> {
    regular_file(path)?;
    let read = |source| TranscriptError::Read { path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(read)?;
    load_bytes_with(&path.to_string_lossy(), &bytes, options)
}

/// Refuses a path that is not that of a regular file.
pub(crate) fn regular_file(path: &Path) -> Result<(), TranscriptError> {
    let read = |source| TranscriptError::Read { path: path.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(read)?;
    // Opening a pipe would wait for its other end.
    if !kind.is_file() {
        let found = if kind.is_dir() { "a directory" } else { "a pipe, a socket or a device" };
        return Err(TranscriptError::NotAFile { path: path.to_owned(), found });
    }
    Ok(())
}

/// Reads a transcript that is in memory; `name` is the path or name that errors show.
///
/// # Errors
/// [`TranscriptError::Empty`], [`TranscriptError::UnknownFormat`], or [`TranscriptError::Json`] for a damaged JSON
/// document. Damaged lines are no error, and neither is a document that is cut behind a whole message.
pub fn load_bytes(name: &str, bytes: &[u8]) -> Result<Imported, TranscriptError> {
    load_bytes_with(name, bytes, ImportOptions::default())
}

/// [`load_bytes`], with options.
///
/// # Errors
/// As [`load_bytes`].
pub fn load_bytes_with(name: &str, bytes: &[u8], options: ImportOptions) -> Result<Imported, TranscriptError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let name_id = id_from_name(name);
    let imported = match detect::shape(name, bytes)? {
        Shape::Lines(family) => lines_of(family, &name_id, bytes, options),
        Shape::Document(family, json, cut) => {
            let (format, sessions, lost) = document(family, &name_id, json);
            let mut imported = imported(format, sessions, Damage { lost, ..Damage::default() });
            imported.lost += u64::from(cut.is_some());
            imported.warnings.extend(cut.map(|line| ImportWarning::CutDocument { line }));
            imported
        }
        Shape::ChatMl(text) => {
            let mut sessions = Sessions::new(&name_id);
            sharegpt::chatml(&mut sessions, &text, &serde_json::Map::new());
            let (sessions, lost) = sessions.finish();
            imported(Format::ChatMl, sessions, Damage { lost, ..Damage::default() })
        }
    };
    for warning in &imported.warnings {
        tracing::info!(transcript = name, "{warning}");
    }
    Ok(imported)
}

fn lines_of(family: Family, name_id: &str, bytes: &[u8], options: ImportOptions) -> Imported {
    let one = |format, (session, damage)| imported(format, vec![session], damage);
    match family {
        Family::OpenClaw => {
            let (version, sessions, damage) = openclaw::import(name_id, bytes);
            imported(Format::OpenClaw { version }, sessions, damage)
        }
        Family::Claude => {
            let (sessions, damage) = claude::import(name_id, bytes, options.sidechains);
            imported(Format::ClaudeCode, sessions, damage)
        }
        Family::Codex => one(Format::Codex, codex::import(name_id, bytes)),
        Family::Gemini => one(Format::GeminiCli, gemini::import_lines(name_id, bytes)),
        Family::OpenHands => {
            let (sessions, damage) = openhands::import_lines(name_id, bytes);
            imported(Format::OpenHands, sessions, damage)
        }
        Family::Chat => {
            let (sessions, damage) = openai::import_lines(name_id, bytes);
            imported(Format::Chat, sessions, damage)
        }
        Family::Swe | Family::ShareGpt => {
            let mut sessions = Sessions::new(name_id);
            let mut format = Format::ShareGpt;
            let line = if family == Family::Swe { swe::recognises } else { sharegpt::recognises_line };
            let mut damage = lines::read(bytes, &Accept { line, part: |_| false }, |record| {
                match family {
                    Family::Swe => format = swe::import(&mut sessions, record.json),
                    _ => sharegpt::import(&mut sessions, record.json),
                }
                ControlFlow::Continue(())
            });
            let (sessions, lost) = sessions.finish();
            damage.lost += lost;
            imported(format, sessions, damage)
        }
    }
}

fn document(family: Family, name_id: &str, json: Value) -> (Format, Vec<RecordedSession>, u64) {
    let one = |format, (session, lost)| (format, vec![session], lost);
    let many = |format, (sessions, lost)| (format, sessions, lost);
    match family {
        Family::Codex => one(Format::Codex, codex::import_document(name_id, json)),
        Family::Gemini => one(Format::GeminiCli, gemini::import_document(name_id, json)),
        Family::OpenHands => one(Format::OpenHands, openhands::import_document(name_id, json)),
        Family::Swe => {
            let mut sessions = Sessions::new(name_id);
            let format = swe::import(&mut sessions, json);
            many(format, sessions.finish())
        }
        Family::ShareGpt => {
            let mut sessions = Sessions::new(name_id);
            sharegpt::import(&mut sessions, json);
            many(Format::ShareGpt, sessions.finish())
        }
        // The families of lines are never found in a document.
        Family::Chat | Family::OpenClaw | Family::Claude => many(Format::Chat, openai::import_document(name_id, json)),
    }
}

fn imported(format: Format, mut sessions: Vec<RecordedSession>, damage: Damage) -> Imported {
    let mut names = UniqueNames::default();
    for session in &mut sessions {
        session.id = names.claim(&session.id);
    }
    let lost = damage.lost;
    let mut warnings = damage_warnings(damage);
    let without_header = |s: &RecordedSession| s.meta.is_empty();
    if matches!(format, Format::OpenClaw { .. }) && sessions.iter().any(without_header) {
        warnings.push(ImportWarning::NoHeader);
    }
    let later_system = |s: &RecordedSession| s.entries.iter().filter(|e| e.kind() == "system").count() as u64;
    let count = sessions.iter().map(later_system).sum();
    // Claude Code's records of this name are its own.
    if !matches!(format, Format::OpenClaw { .. } | Format::ClaudeCode) && count > 0 {
        warnings.push(ImportWarning::LaterSystemMessages { count });
    }
    let count = sessions.iter().filter_map(|s| s.counts.skipped.get("sidechain")).sum();
    if count > 0 {
        warnings.push(ImportWarning::Sidechains { count });
    }
    Imported { format, sessions, warnings, lost }
}

/// What a person should know about the lines of a file.
pub(crate) fn damage_warnings(damage: Damage) -> Vec<ImportWarning> {
    let mut warnings = Vec::new();
    if damage.lines.is_empty() && damage.lost > 0 {
        warnings.push(ImportWarning::LostRecords { count: damage.lost });
    }
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
    if !damage.no_numbers.is_empty() {
        warnings.push(ImportWarning::NoNumbers { lines: damage.no_numbers });
    }
    warnings
}

/// The id OpenClaw put into a file's name (`<timestamp>_<id>.jsonl`), or the name without its extension.
pub(crate) fn id_from_name(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
    let dated = |time: &str| time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T');
    let id = stem.split_once('_').filter(|(time, id)| dated(time) && !id.is_empty()).map_or(stem, |(_, id)| id);
    let id = [id, file].into_iter().find(|id| !id.trim().is_empty());
    id.unwrap_or("session").to_owned()
}
