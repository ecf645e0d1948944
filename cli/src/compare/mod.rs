//! `context-engine compare`
//!
//! Decision: every replay gets an engine with an empty folder of its own and a quarantine of its own, in a folder that is
//! removed at the end. What one replay makes an engine learn or break must not show in the numbers of another, nor in the
//! next run.

mod args;
mod html;
mod sources;
mod table;
mod verdict;

pub(crate) use args::CompareArgs;

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_engine_loader::{EngineHandle, LoaderError};
use context_engine_runtime::compare::{CompareOptions, CompareReport, SessionToCompare, calls, compare};
use context_engine_transcript::TokenCounter;

use crate::Outcome;
use crate::error::CliError;
use crate::output::{self, json_line, note};
use crate::replay::choose;
use crate::setup::Host;

/// How a page of ours begins: what may be replaced.
const PAGE_START: &[u8] = b"<!doctype html>";

/// Age at which a folder that an interrupted comparison left behind is removed.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Opens the file for the report, before the work is done. One that exists is only replaced when it is a page: FILE may
/// have been forgotten, and the next word on the command line is a recorded session.
fn page(path: &Path) -> Result<fs::File, CliError> {
    let failed = |source| CliError::File { path: path.to_owned(), doing: "opening the report to write it", source };
    let mut file =
        fs::File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(PAGE_START.len() as u64).read_to_end(&mut start).map_err(failed)?;
    if start.is_empty() || start.eq_ignore_ascii_case(PAGE_START) {
        return Ok(file);
    }
    let reason = "it exists and is no report; name another file";
    Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)))
}

/// Removes what comparisons left behind that were interrupted long ago.
fn clear_up(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with("compare-");
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_ours && age.is_some_and(|age| age > STALE) {
            // Another time, then.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

pub(crate) fn run(args: &CompareArgs) -> Result<Outcome, CliError> {
    let html = args.html.as_deref().map(page).transpose()?;
    let host = Host::new(&args.directories)?;
    host.say_slips();
    let engines =
        args.engines.iter().map(|id| choose(&host, Some(id)).map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    let sessions = sources::read(&args.sessions, args.model.as_deref())?;
    let options = CompareOptions {
        engines,
        budgets: args.budget.iter().map(|budget| budget.0).collect(),
        prices: args.prices.0,
        keep_recent: host.config.agents.defaults.compaction.keep_recent_tokens,
        jobs: args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, usize::from),
    };
    let report = play(&host, &sessions, &options)?;
    if let (Some(path), Some(mut file)) = (&args.html, html) {
        let failed = |source| CliError::File { path: path.clone(), doing: "writing the report", source };
        let page = html::render(&report);
        let written = file.rewind().and_then(|()| file.set_len(0)).and_then(|()| file.write_all(page.as_bytes()));
        written.map_err(failed)?;
        note(format_args!("{}: written; open it in a browser", path.display()));
    }
    if args.json {
        json_line(&report)?;
    } else {
        table::print(&report, args.misses)?;
    }
    Ok(outcome(&report))
}

fn play(host: &Host, sessions: &[SessionToCompare], options: &CompareOptions) -> Result<CompareReport, CliError> {
    let state = host.home.state();
    let failed = |source| CliError::File { path: state.clone(), doing: "making a folder for the comparison", source };
    fs::create_dir_all(&state).map_err(failed)?;
    clear_up(&state);
    let folder = tempfile::Builder::new().prefix("compare-").tempdir_in(&state).map_err(failed)?;
    let opened = AtomicUsize::new(0);
    let open = |id: &str, counter: TokenCounter| -> Result<EngineHandle, LoaderError> {
        let own = folder.path().join(opened.fetch_add(1, Ordering::Relaxed).to_string());
        host.loader.on_trial(own).engine(id, &host.creation(id, Some(counter)))
    };
    let each: usize = sessions.iter().map(|session| calls(&session.session)).sum();
    let bar = output::progress(each * options.engines.len() * options.budgets.len(), "comparing");
    let report = compare(sessions, options, &open, &|| bar.inc(1));
    bar.finish_and_clear();
    if let Err(source) = folder.close() {
        note(format_args!("{}: removing the folder of the comparison: {source}", state.display()));
    }
    Ok(report?)
}

/// Whether every engine made every prompt.
fn outcome(report: &CompareReport) -> Outcome {
    let is_short = report.cells.iter().any(|cell| cell.error.is_some() || cell.measures.fallbacks > 0);
    if is_short { Outcome::Findings } else { Outcome::Fine }
}
