//! How a probe fails, in words, and whose fault it is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the child process does, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeStep {
    /// Opening the library, which runs its constructors, and checking that it is what its file said.
    Open,
    /// Asking for extensions that do not exist.
    Extension,
    /// Creating an engine.
    Create,
    /// Assembling a prompt of a history of three messages.
    Assemble,
    /// Listing its tools, where its record declares some.
    Tools,
    /// Disposing of the engine.
    Dispose,
    /// Dropping the engine.
    Drop,
}

impl ProbeStep {
    const ALL: [ProbeStep; 7] = [
        ProbeStep::Open,
        ProbeStep::Extension,
        ProbeStep::Create,
        ProbeStep::Assemble,
        ProbeStep::Tools,
        ProbeStep::Dispose,
        ProbeStep::Drop,
    ];

    /// The step's name, as the child writes it.
    pub fn name(self) -> &'static str {
        match self {
            ProbeStep::Open => "open",
            ProbeStep::Extension => "extension",
            ProbeStep::Create => "create",
            ProbeStep::Assemble => "assemble",
            ProbeStep::Tools => "tools",
            ProbeStep::Dispose => "dispose",
            ProbeStep::Drop => "drop",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<ProbeStep> {
        ProbeStep::ALL.into_iter().find(|step| step.name() == name)
    }
}

impl fmt::Display for ProbeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a probe did not let a build pass. `said` is the end of what the child printed, ready to stand behind a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ProbeFailure {
    /// A signal ended the child.
    #[error("its `{step}` ends the process with {}{said}; get another build of the engine", signal_name(*signal))]
    Signal {
        /// Where.
        step: ProbeStep,
        /// The signal's number.
        signal: i32,
        /// What was printed.
        said: String,
    },
    /// The child exited before it was done.
    #[error("its `{step}` exits the process with code {code}{said}; get another build of the engine")]
    Exit {
        /// Where.
        step: ProbeStep,
        /// The exit code.
        code: i32,
        /// What was printed.
        said: String,
    },
    /// The child was not done in time and was killed.
    #[error("its `{step}` did not finish within the {ms} ms of a probe{said}; get another build of the engine")]
    Deadline {
        /// Where.
        step: ProbeStep,
        /// What the whole probe was given, in milliseconds.
        ms: u64,
        /// What was printed.
        said: String,
    },
    /// The engine panicked.
    #[error("its `{step}` panics: {reason}; get another build of the engine")]
    Panicked {
        /// Where.
        step: ProbeStep,
        /// The panic's message and place.
        reason: String,
    },
    /// The library is not what its file said, or an answer is none.
    #[error("its `{step}` answers wrongly: {reason}")]
    Wrong {
        /// Where.
        step: ProbeStep,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The system's loader refused the library.
    #[error("{reason}")]
    Refused {
        /// What is missing, and what to do.
        reason: String,
    },
    /// The engine refused to be created, as it may.
    #[error("the engine could not be created: {reason}; look at plugins.entries.<id>.config")]
    Create {
        /// What the engine says.
        reason: String,
    },
    /// The probe itself could not be run.
    #[error("the probe could not be run: {reason}; look at the host's installation")]
    NotRun {
        /// What kept it.
        reason: String,
    },
}

impl ProbeFailure {
    /// Whether the build is to blame, now and the next time: it can be set aside for good. A configuration the engine
    /// refuses, a library this system lacks, a signal from outside and a probe that could not be run can all be mended
    /// without another build.
    pub fn convicts(&self) -> bool {
        match self {
            ProbeFailure::Signal { signal, .. } => !from_outside(*signal),
            ProbeFailure::Exit { .. }
            | ProbeFailure::Deadline { .. }
            | ProbeFailure::Panicked { .. }
            | ProbeFailure::Wrong { .. } => true,
            ProbeFailure::Refused { .. } | ProbeFailure::Create { .. } | ProbeFailure::NotRun { .. } => false,
        }
    }
}

/// A signal by its name. The numbers differ between systems.
#[cfg(unix)]
fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::SYS, "SIGSYS"),
    ];
    let known = names.iter().find(|(known, _)| known.as_raw() == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| format!("signal {signal} ({name})"))
}

/// Whether people or the system send it: out of memory, a shutdown, an interrupt.
#[cfg(unix)]
fn from_outside(signal: i32) -> bool {
    use rustix::process::Signal;
    [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP].iter().any(|outside| outside.as_raw() == signal)
}

#[cfg(not(unix))]
fn signal_name(signal: i32) -> String {
    format!("signal {signal}")
}

#[cfg(not(unix))]
fn from_outside(_: i32) -> bool {
    false
}
