//! Step 3, inspect: a verdict from the bytes, without running any of them.
//!
//! `dlopen` runs a library's constructors, so whatever can be known before must be read from the file: what kind of file
//! it is, for which machine, whether it is whole, and the record. Reads through a cache, never by mapping a file that
//! somebody else may truncate.

mod elf;
mod kind;

use std::fs::File;
use std::path::Path;

use context_engine_interface::record::{self, HEADER_LEN, MAX_JSON_LEN, Record, SECTION};
use context_engine_interface::{OLDEST_SCHEMA_VERSION, SCHEMA_VERSION};
use object::{Object, ObjectSection, ReadCache, ReadRef};
use serde::Serialize;

use crate::dylib::system::glibc_version;
use crate::error::{LoaderError, Problem, Step};

/// The longest library that is copied, in bytes: a sparse file may claim more than the disk holds.
const MAX_LIBRARY: u64 = 1 << 30;

/// What is known of a plugin before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The engine's record.
    pub record: Record,
    /// Length of the library in bytes.
    pub bytes: u64,
    /// Libraries it needs, as it names them.
    pub needs: Vec<String>,
    /// The newest glibc it needs, as `2.34`; `None` when it needs none.
    pub glibc: Option<String>,
}

/// Looks at the dropped file itself, before it is copied: what is no whole library of this machine is not worth the copy,
/// however long it is.
///
/// # Errors
/// The reason why the copy would be refused.
pub fn glance(path: &Path) -> Result<(), LoaderError> {
    let refuse = |problem| LoaderError::new(path, Step::Inspect, problem);
    let io = |error: std::io::Error| refuse(Problem::Io { doing: "reading the library", reason: error.to_string() });
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    if bytes > MAX_LIBRARY {
        return Err(refuse(Problem::TooLong { bytes, limit: MAX_LIBRARY }));
    }
    kind::check(&ReadCache::new(file), bytes).map(|_| ()).map_err(refuse)
}

/// Reads the library at `path`.
///
/// # Errors
/// The first reason why this host would not open it.
pub fn inspect(path: &Path) -> Result<Inspection, LoaderError> {
    let refuse = |problem| LoaderError::new(path, Step::Inspect, problem);
    let io = |error: std::io::Error| refuse(Problem::Io { doing: "reading the library", reason: error.to_string() });
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let cache = ReadCache::new(file);
    let Library { needs, glibc, record } = kind::check(&cache, bytes).map_err(refuse)?;
    let record = read_record(&cache, record.ok_or(Problem::NoRecord).map_err(refuse)?).map_err(refuse)?;
    let about = |problem| refuse(problem).about(&record.engine.id);
    check_record(&record).map_err(about)?;
    check_glibc(glibc, glibc_version()).map_err(about)?;
    Ok(Inspection { record, bytes, needs, glibc: glibc.map(elf::dotted) })
}

/// The record of a library for any machine. Whether this host could open it is not asked.
///
/// # Errors
/// [`Problem::Io`]; [`Problem::NotALibrary`] and [`Problem::NoRecord`] for what is no engine; [`Problem::Record`] and what
/// the record says that no host accepts.
pub fn record_of(path: &Path) -> Result<Record, LoaderError> {
    let refuse = |problem| LoaderError::new(path, Step::Inspect, problem);
    let io = |error: std::io::Error| refuse(Problem::Io { doing: "reading the library", reason: error.to_string() });
    let cache = ReadCache::new(File::open(crate::find::regular_file(path)?).map_err(io)?);
    let no_library = |error: object::Error| refuse(Problem::NotALibrary { found: error.to_string() });
    let section =
        object::File::parse(&cache).map_err(no_library)?.section_by_name(SECTION).and_then(|it| it.file_range());
    let record = read_record(&cache, section.ok_or(Problem::NoRecord).map_err(refuse)?).map_err(refuse)?;
    check_record(&record).map_err(|problem| refuse(problem).about(&record.engine.id))?;
    Ok(record)
}

/// What the headers of a whole shared library say.
#[derive(Debug)]
struct Library {
    needs: Vec<String>,
    /// The newest glibc it needs.
    glibc: Option<(u32, u32)>,
    /// Offset and size of the record's section.
    record: Option<(u64, u64)>,
}

fn read_record<'data, R: ReadRef<'data>>(data: R, (offset, size): (u64, u64)) -> Result<Record, Problem> {
    // A section may claim gigabytes; no more is read than a record can be long.
    let size = size.min((HEADER_LEN + MAX_JSON_LEN) as u64);
    let bytes = data
        .read_bytes_at(offset, size)
        .map_err(|()| Problem::Malformed { reason: format!("section {SECTION} lies outside the file") })?;
    record::parse(bytes).map_err(|error| Problem::Record { reason: error.to_string() })
}

fn check_glibc(needed: Option<(u32, u32)>, found: Option<(u32, u32)>) -> Result<(), Problem> {
    match (needed, found) {
        (Some(needed), Some(found)) if needed > found => {
            Err(Problem::Glibc { needed: elf::dotted(needed), found: elf::dotted(found) })
        }
        _ => Ok(()),
    }
}

fn check_record(record: &Record) -> Result<(), Problem> {
    if !(OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION).contains(&record.schema_version) {
        return Err(Problem::Schema { expected: SCHEMA_VERSION, found: record.schema_version });
    }
    if record.panic != "unwind" {
        return Err(Problem::PanicStrategy { found: record.panic.clone() });
    }
    check_id(&record.engine.id, "`export_engine!`")
}

/// Checks that `id`, which is written in `place`, may name an engine. Ids that differ only in case cannot exist.
///
/// # Errors
/// [`Problem::Id`] with the rule it breaks.
pub(crate) fn check_id(id: &str, place: &'static str) -> Result<(), Problem> {
    let broken = |rule| Err(Problem::Id { id: id.to_owned(), rule, place });
    if id.is_empty() || id.len() > 64 {
        return broken("1 to 64 characters");
    }
    if !id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte)) {
        return broken("lower-case letters, digits, `-`, `_` and `.` only");
    }
    if !id.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return broken("it starts with a letter or a digit");
    }
    if id == "legacy" || id == "none" {
        return broken("the name is reserved for the built-in engine");
    }
    Ok(())
}
