//! The child's side of a probe: opens the library and says where it is before each step.
//!
//! Decision: whoever hosts engines offers this child from its own `main`, so that what is tried out is the host that will
//! open the library, with the same allocator, the same libraries and the same version.
//!
//! Invariant: no child outlives its parent's interest in it. A thread ends the process when the parent is gone or the
//! deadline has passed by a second, whatever the engine is doing.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::report::Notes;
use super::steps::{Services, take_steps};
use super::{NOT_RUN, REQUEST, Request, STATE};

/// How often the child looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How much longer than the deadline the child lives. The parent is the one to end it; this is for when it cannot.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a probe with the arguments [`probe`](super::probe) adds behind [`ProbeOptions::args`](super::ProbeOptions::args),
/// and answers what `main` is to exit with. Opens the library they name: for a process that does nothing else.
///
/// ```no_run
/// # fn main() -> std::process::ExitCode {
/// let mut args = std::env::args_os().skip(1);
/// if args.next().is_some_and(|first| first == "probe-plugin") {
///     return context_engine_loader::probe::child::run(args);
/// }
/// # std::process::ExitCode::SUCCESS
/// # }
/// ```
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match answer(&args.into_iter().collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // The parent reads it; where even that fails there is nobody left to tell.
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::from(NOT_RUN)
        }
    }
}

fn answer(args: &[OsString]) -> Result<(), String> {
    let [folder, library] = args else {
        return Err("expected the probe's folder and a library; this command is for hosts to run".to_owned());
    };
    let (folder, library) = (Path::new(folder), Path::new(library));
    let request = fs::read(folder.join(REQUEST)).map_err(|error| format!("reading the request: {error}"))?;
    let request: Request = serde_json::from_slice(&request).map_err(|error| format!("reading the request: {error}"))?;
    no_core_dump();
    let until = Instant::now() + Duration::from_millis(request.deadline_ms);
    watch(request.parent, until + GRACE)?;
    let services = Arc::new(Services::new(until));
    let mut notes =
        Notes::from_stdin().map_err(|error| format!("taking the report from the standard input: {error}"))?;
    let mut broken = None;
    let state_dir = folder.join(STATE);
    let verdict = take_steps(library, &request, &state_dir, &services, &mut |step| {
        let noted = notes.step(step);
        broken = broken.take().or(noted.err());
    });
    if let Some(error) = broken {
        return Err(format!("noting the step: {error}"));
    }
    notes.conclude(&verdict).map_err(|error| format!("writing the verdict: {error}"))
}

/// Ends this process when `parent` is no longer its parent, or at `end`. Returns when the thread that does is running.
fn watch(parent: u32, end: Instant) -> Result<(), String> {
    let orphaned = move || {
        #[cfg(unix)]
        return std::os::unix::process::parent_id() != parent;
        #[cfg(not(unix))]
        return parent == 0;
    };
    let (running, wait) = mpsc::sync_channel(1);
    let watching = std::thread::Builder::new().name("probe-watch".into()).spawn(move || {
        loop {
            if orphaned() || Instant::now() >= end {
                // What the library started goes as well, where this process leads a group of its own.
                #[cfg(unix)]
                {
                    use rustix::process::{Signal, getpid, kill_process_group};
                    let _ = kill_process_group(getpid(), Signal::KILL);
                }
                // Not `exit`: that runs what the library registered, and may wait for the step that hangs.
                std::process::abort();
            }
            // A thread that starts while a library is being opened waits for the opening to end: glibc holds the same lock
            // for both, and a constructor that hangs never gives it back. So it has to be here first.
            let _ = running.try_send(());
            std::thread::sleep(LOOK_EVERY);
        }
    });
    watching.map_err(|error| format!("starting a thread: {error}"))?;
    wait.recv().map_err(|error| format!("starting a thread: {error}"))
}

/// A probe that crashes has told all it knows; its memory on the disk helps nobody.
fn no_core_dump() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    }
}
