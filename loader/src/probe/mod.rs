//! Step 5, probe: a child process opens the library, creates an engine and runs a short self-test, before this process
//! does.
//!
//! Decision: a library can end, block or corrupt the process that opens it, and nothing inside that process can prevent
//! it. So the first process that opens a build is one that nobody needs. The child writes which step it is in before it
//! takes it: whatever ends it, the host knows where. Steps and verdict come through a file without a name (`report`),
//! because an engine may print what it likes and write where it likes. The engine is given a folder of the probe's own,
//! never its real one; the host reads nothing by name in there or beside it.
//!
//! Invariant: what the engine started is ended with the child, also when the child passed or has ended by itself. The
//! group is ended before its leader is waited for: until then its number belongs to nobody else. A process that leaves the
//! group (`setsid`) is not found.
//!
//! Only Linux was run. The macOS and Windows arms were compiled; on Windows what the engine starts is not ended with it.
//!
//! A host program offers the child itself: see [`child::run`].

pub mod child;
mod failure;
mod report;
mod steps;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use context_engine_interface::record::Record;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::platform::create_private_dir;
use crate::text::on_one_line;
pub use failure::{ProbeFailure, ProbeStep};
use report::Report;

/// How long a probe may take unless the host says otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(5);

/// Longer than any probe takes, and no clock overflows.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// How often the child is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How much of what the child printed goes into a failure, in characters.
const SAID: usize = 400;

/// How much of what it printed is looked at for that, in bytes.
const PRINTED_END: u64 = 1 << 14;

/// How much the child may print before it is thrown away, in bytes: a disk must not fill up within the deadline.
const MAX_PRINTED: u64 = 1 << 20;

/// What the child is told. The paths are arguments, because JSON holds no path that is not UTF-8; all the rest is in a
/// file, because a configuration may hold secrets and arguments are for everybody to see.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    record: Record,
    config: Option<Value>,
    deadline_ms: u64,
    /// The process the child answers. When it dies the child has no reason to live.
    parent: u32,
}

/// Files in the probe's folder.
const REQUEST: &str = "request.json";
const PRINTED: &str = "stderr";
const STATE: &str = "state";

/// What the name of the probe's folder begins with.
const PREFIX: &str = "probe-";

/// A folder of this age belongs to no probe that still runs.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// What the child exits with when it could not do its part, such as on a full disk. A code no engine is likely to use.
const NOT_RUN: u8 = 183;

/// How a host runs a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The program that runs [`child::run`] when it is asked to.
    pub child_exe: PathBuf,
    /// What it is asked with: its arguments before the probe's own.
    pub args: Vec<OsString>,
    /// How long the whole probe may take.
    pub deadline: Duration,
}

/// What a probe that passed has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// How long it took, the child's start included.
    pub took: Duration,
    /// The engine's own error in `assemble`, if it answered one: some engines need a service that a probe does not offer.
    pub assemble: Option<String>,
    /// Why its tools, or some of them, will not be offered.
    pub tools: Option<String>,
    /// The first lines the engine logged.
    pub log: Vec<String>,
}

/// The child's own end of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    failure: Option<ProbeFailure>,
    assemble: Option<String>,
    tools: Option<String>,
    log: Vec<String>,
}

/// Has a child process try the library at `library`, whose file holds `record`, with `config`. What the probe needs on
/// disk is made in `scratch` and removed.
///
/// # Errors
/// [`ProbeFailure`]. Not every one is the build's fault: see [`ProbeFailure::convicts`].
pub fn probe(
    options: &ProbeOptions,
    library: &Path,
    record: &Record,
    config: Option<&Value>,
    scratch: &Path,
) -> Result<ProbeReport, ProbeFailure> {
    let (started, deadline) = (Instant::now(), options.deadline.min(LONGEST_DEADLINE));
    let not_run =
        |doing: &'static str| move |reason: String| ProbeFailure::NotRun { reason: format!("{doing}: {reason}") };
    create_private_dir(scratch).map_err(|error| not_run("making its folder")(error.to_string()))?;
    collect(scratch);
    // Goes away with the value, whatever happens here.
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(scratch);
    let folder = folder.map_err(|error| not_run("making its folder")(error.to_string()))?;
    let request = Request {
        record: record.clone(),
        config: config.cloned(),
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        parent: std::process::id(),
    };
    let files = || {
        let (printed, to_print) = prepare(folder.path(), &request)?;
        let report = Report::new(folder.path())?;
        Ok((printed, to_print, report.for_child()?, report))
    };
    let (printed, to_print, to_report, mut report) =
        files().map_err(|error: io::Error| not_run("writing its files")(error.to_string()))?;
    let child = command(options, folder.path(), library).stdin(to_report).stderr(to_print).spawn();
    let child = child
        .map_err(|error| not_run("starting the child process")(format!("{}: {error}", options.child_exe.display())))?;
    let end = watch(child, &mut report, &printed, started + deadline);
    let said = || said(&printed);
    if let End::Verdict(verdict) = end {
        return match verdict.failure {
            None => {
                let Verdict { assemble, tools, log, .. } = verdict;
                Ok(ProbeReport { took: started.elapsed(), assemble, tools, log })
            }
            Some(failure) => Err(failure),
        };
    }
    Err(match (end, report.step) {
        (End::Deadline, Some(step)) => ProbeFailure::Deadline { step, ms: request.deadline_ms, said: said() },
        (End::Ended(status), Some(step)) if status.code() != Some(NOT_RUN.into()) => ended(status, step, said()),
        // Whatever kept the child from its first step, it was not the library.
        (End::Deadline, None) => {
            not_run("starting the child process")(format!("not done in {} ms", request.deadline_ms))
        }
        (End::Ended(status), _) => not_run("the child process")(format!("{status}{}", said())),
        (End::Lost(reason), _) => not_run("waiting for the child process")(reason),
        (End::Verdict(_), _) => not_run("the child process")("no verdict".to_owned()),
    })
}

/// Removes what a host that was killed during a probe has left behind.
fn collect(scratch: &Path) {
    let Ok(entries) = fs::read_dir(scratch) else { return };
    let ours = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for entry in ours {
        let made = entry.metadata().and_then(|meta| meta.modified()).ok();
        if made.and_then(|made| SystemTime::now().duration_since(made).ok()).is_some_and(|age| age > LEFT_BEHIND) {
            // Another host may be faster; then it is gone as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// How it ended.
enum End {
    Verdict(Verdict),
    Ended(ExitStatus),
    Deadline,
    Lost(String),
}

/// Writes the request. What is printed, to be read, and to be printed to.
fn prepare(folder: &Path, request: &Request) -> io::Result<(File, File)> {
    create_private_dir(&folder.join(STATE))?;
    let mut private = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut private, 0o600);
    let mut file = private.create_new(true).write(true).open(folder.join(REQUEST))?;
    file.write_all(&serde_json::to_vec(request)?)?;
    // Both are opened before the child starts: afterwards the engine may put anything into its place.
    let printed = folder.join(PRINTED);
    // Appending, so that what was printed can be thrown away under a child that goes on printing.
    let to_print = File::options().create_new(true).append(true).open(&printed)?;
    Ok((File::options().read(true).write(true).open(&printed)?, to_print))
}

fn command(options: &ProbeOptions, folder: &Path, library: &Path) -> Command {
    let mut command = Command::new(&options.child_exe);
    command.args(&options.args).arg(folder).arg(library).stdout(Stdio::null());
    // A group of its own: what the engine starts is ended with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Waits for the child's verdict or its end. Nothing of it is left afterwards: not even a process entry.
fn watch(mut child: Child, report: &mut Report, printed: &File, deadline: Instant) -> End {
    loop {
        let ended = has_ended(&mut child);
        // After the look at the child: what it wrote before it ended is there by now.
        if let Some(verdict) = report.look() {
            // How a process takes its leave with the library in it proves nothing about calls.
            if ended.is_ok() {
                let _ = end(child);
            }
            return End::Verdict(verdict);
        }
        match ended {
            Ok(false) => {}
            Ok(true) => return end(child).map_or_else(|error| End::Lost(error.to_string()), End::Ended),
            // Somebody else has waited for it, or the host ignores SIGCHLD: its number may be that of another process.
            Err(error) => return End::Lost(error.to_string()),
        }
        if Instant::now() >= deadline {
            let _ = end(child);
            return End::Deadline;
        }
        if printed.metadata().is_ok_and(|meta| meta.len() > MAX_PRINTED) {
            let _ = printed.set_len(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether the child has ended. On Unix its entry stays, so that its number names it and its group and nothing else.
fn has_ended(child: &mut Child) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(child)), look)?.is_some())
    }
    #[cfg(not(unix))]
    return Ok(child.try_wait()?.is_some());
}

/// Ends the child, what it started, and its process entry. Nobody may have waited for it before.
fn end(mut child: Child) -> io::Result<ExitStatus> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    // It is ended, or it was already.
    let _ = child.kill();
    child.wait()
}

fn ended(status: ExitStatus, step: ProbeStep, said: String) -> ProbeFailure {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return ProbeFailure::Signal { step, signal, said };
    }
    ProbeFailure::Exit { step, code: status.code().unwrap_or(-1), said }
}

/// The end of what the child printed, ready to stand behind a sentence.
fn said(printed: &File) -> String {
    let length = printed.metadata().map_or(0, |meta| meta.len());
    let bytes = report::part(printed, length.saturating_sub(PRINTED_END), length);
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = words.char_indices().rev().nth(SAID - 1).map_or(0, |(at, _)| at);
    if words.is_empty() { String::new() } else { format!(" (it printed: {})", on_one_line(&words[start..])) }
}
