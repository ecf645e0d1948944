//! What is kept about an engine that failed, and for whom it is in force.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use serde::{Deserialize, Serialize, Serializer};

use super::key::{QuarantineKey, Subject};
use crate::platform::process_start;
use crate::text::on_one_line;

/// So many different processes in a row with a fault, or so many deaths in a row without proof, make a quarantine durable.
pub(super) const IN_A_ROW: u32 = 3;
/// Incidents kept in a record, besides those that processes that run still do without the engine for.
const HISTORY: usize = 16;
/// Incidents kept in any case.
const MOST: usize = 256;
/// Characters kept of a reason: it is an engine's text.
const REASON: usize = 2_000;

/// What an engine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It answered with an error.
    Error,
    /// It panicked.
    Panic,
    /// It did not answer before the deadline.
    Timeout,
    /// Its answer broke a rule.
    Answer,
    /// Its prompts were over budget again and again.
    OverBudget,
    /// The trial run in a child process failed.
    Probe,
    /// It ended the process, with proof.
    Crash,
    /// The process died while it ran, without proof that it was to blame.
    Suspect,
    /// It could not be created.
    Create,
}

impl Fault {
    /// What happened, as the end of "the engine …".
    pub fn describe(self) -> &'static str {
        match self {
            Fault::Error => "answered with an error",
            Fault::Panic => "panicked",
            Fault::Timeout => "did not answer in time",
            Fault::Answer => "gave an answer that breaks the rules",
            Fault::OverBudget => "planned more than the budget again and again",
            Fault::Probe => "failed its trial run",
            Fault::Crash => "ended the process",
            Fault::Suspect => "was running when the process died",
            Fault::Create => "could not be created",
        }
    }

    /// Whether one incident is enough for every process.
    fn is_durable(self) -> bool {
        matches!(self, Fault::Probe | Fault::Crash)
    }
}

/// For whom a quarantine is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// For the processes in which the engine failed; afterwards it is history.
    Process,
    /// For every process, until it is cleared.
    Durable,
}

/// Names a process for good: the number alone is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessStamp {
    /// The process number.
    pub pid: u32,
    /// When it started; see [`process_start`].
    pub start: u64,
}

impl ProcessStamp {
    /// This process.
    pub fn current() -> ProcessStamp {
        static CURRENT: OnceLock<ProcessStamp> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let pid = std::process::id();
            ProcessStamp { pid, start: process_start(pid).unwrap_or_default() }
        })
    }

    /// Whether that process runs, as far as this system can tell.
    pub fn is_running(self) -> bool {
        process_start(self.pid) == Some(self.start)
    }

    /// Whether that process may still run: where this system cannot tell, it may.
    pub(crate) fn may_run(self) -> bool {
        !cfg!(target_os = "linux") || self.is_running()
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The member that was called.
    pub operation: String,
    /// What the engine did.
    pub fault: Fault,
    /// In words, on one line.
    pub reason: String,
    /// The process it happened in.
    pub process: ProcessStamp,
}

impl Incident {
    pub(super) fn now(operation: &str, fault: Fault, reason: &str, process: ProcessStamp) -> Incident {
        let (operation, reason) = (one_line(operation, 64), one_line(reason, REASON));
        Incident { at_ms: now_ms(), operation, fault, reason, process }
    }

    /// What happened, in one line: "panicked in assemble: …", "called exit() in create".
    pub fn story(&self) -> String {
        story(self.fault, &self.operation, &self.reason)
    }
}

/// What is known about an engine that failed: the newest state first, then what led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The engine's id.
    pub engine: String,
    /// SHA-256 of its library.
    pub digest: String,
    /// Library and configuration.
    pub key: QuarantineKey,
    /// The plugin, as it was found.
    #[serde(serialize_with = "path_as_text")]
    pub path: PathBuf,
    /// Version of the host that wrote this.
    pub host_version: String,
    /// The member that was called.
    pub operation: String,
    /// What the engine did.
    pub fault: Fault,
    /// In words, on one line.
    pub reason: String,
    /// For whom it is in force.
    pub scope: Scope,
    /// The first incident, in milliseconds since 1970.
    pub first_at_ms: u64,
    /// The newest incident.
    pub last_at_ms: u64,
    /// Incidents in all.
    pub count: u64,
    /// The process of `fault`.
    pub process: ProcessStamp,
    /// Different processes in a row in which the engine failed.
    pub processes_in_a_row: u32,
    /// Processes in a row that died in it without proof and without having completed such a call before.
    pub suspected_in_a_row: u32,
    /// The newest incidents, oldest first.
    pub history: Vec<Incident>,
}

impl Record {
    /// What a record becomes by one more incident.
    pub(super) fn after(found: Option<Record>, subject: &Subject, incident: Incident) -> Record {
        let mut record = found.unwrap_or_else(|| Record::first(subject, &incident));
        let known = record.scope == Scope::Durable || record.failed_in(incident.process);
        record.path.clone_from(&subject.path);
        record.host_version = env!("CARGO_PKG_VERSION").to_owned();
        record.last_at_ms = incident.at_ms;
        record.count += 1;
        match incident.fault {
            Fault::Suspect => record.suspected_in_a_row += 1,
            fault if !fault.is_durable() && !record.failed_in(incident.process) => record.processes_in_a_row += 1,
            _ => {}
        }
        let durable = incident.fault.is_durable()
            || (incident.fault == Fault::Suspect && record.suspected_in_a_row >= IN_A_ROW)
            || record.processes_in_a_row >= IN_A_ROW;
        let becomes_durable = durable && record.scope == Scope::Process;
        // The first failure is the cause; what follows while it is in force is mostly its consequence.
        if !known || becomes_durable {
            record.show(&incident);
        }
        if becomes_durable {
            record.scope = Scope::Durable;
        }
        record.history.push(incident);
        record.forget_oldest();
        record
    }

    /// Keeps the history bounded. The first failure of a process that runs stays: it is what sets the engine aside there.
    fn forget_oldest(&mut self) {
        let mut surplus = self.history.len().saturating_sub(HISTORY);
        if surplus == 0 {
            return;
        }
        let mut seen = BTreeSet::new();
        self.history.retain(|incident| {
            let is_first = incident.fault != Fault::Suspect && seen.insert(incident.process);
            if surplus == 0 || is_first && incident.process.may_run() {
                return true;
            }
            surplus -= 1;
            false
        });
        let surplus = self.history.len().saturating_sub(MOST);
        self.history.drain(..surplus);
    }

    fn first(subject: &Subject, incident: &Incident) -> Record {
        Record {
            engine: subject.engine.clone(),
            digest: subject.digest.clone(),
            key: subject.key,
            path: subject.path.clone(),
            host_version: String::new(),
            operation: incident.operation.clone(),
            fault: incident.fault,
            reason: incident.reason.clone(),
            scope: Scope::Process,
            first_at_ms: incident.at_ms,
            last_at_ms: incident.at_ms,
            count: 0,
            process: incident.process,
            processes_in_a_row: 0,
            suspected_in_a_row: 0,
            history: vec![],
        }
    }

    /// Puts an incident into the headline.
    fn show(&mut self, incident: &Incident) {
        self.operation.clone_from(&incident.operation);
        self.reason.clone_from(&incident.reason);
        (self.fault, self.process) = (incident.fault, incident.process);
    }

    fn first_failure_in(&self, process: ProcessStamp) -> Option<&Incident> {
        self.history.iter().find(|incident| incident.process == process && incident.fault != Fault::Suspect)
    }

    /// Whether the engine failed in that process. A death without proof is no failure.
    pub(super) fn failed_in(&self, process: ProcessStamp) -> bool {
        self.first_failure_in(process).is_some()
    }

    /// Whether one more process may make it durable.
    pub(super) fn counts_in_a_row(&self) -> bool {
        self.scope == Scope::Process && (self.processes_in_a_row > 0 || self.suspected_in_a_row > 0)
    }

    /// A process was served: what counts in a row starts again.
    pub(super) fn end_row(&mut self) {
        (self.processes_in_a_row, self.suspected_in_a_row) = (0, 0);
    }

    /// The record as `process` has to see it; `None` when it is not in force there.
    pub fn in_force_for(&self, process: ProcessStamp) -> Option<Record> {
        if self.scope == Scope::Durable {
            return Some(self.clone());
        }
        // Several processes may have failed one after the other: each is shown its own failure.
        let own = self.first_failure_in(process)?;
        let mut record = self.clone();
        record.show(own);
        Some(record)
    }

    /// Processes that run now and in which it is in force; `None` when it is in force in every process.
    pub fn in_force_in(&self) -> Option<Vec<ProcessStamp>> {
        if self.scope == Scope::Durable {
            return None;
        }
        let mut processes: Vec<ProcessStamp> = self.history.iter().map(|incident| incident.process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|&process| self.failed_in(process) && process.is_running());
        Some(processes)
    }

    /// Whether some process that runs now, or may be started, does without the engine.
    pub fn is_in_force(&self) -> bool {
        self.in_force_in().is_none_or(|processes| !processes.is_empty())
    }

    /// What happened, in one line; see [`Incident::story`].
    pub fn story(&self) -> String {
        story(self.fault, &self.operation, &self.reason)
    }
}

/// What happened, as the end of "the engine …", where that adds to the reason.
fn story(fault: Fault, operation: &str, reason: &str) -> String {
    match fault {
        // These say where themselves.
        Fault::Crash | Fault::Suspect => reason.to_owned(),
        fault => format!("{} in {operation}: {reason}", fault.describe()),
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn one_line(text: &str, longest: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = on_one_line(&words.join(" "));
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest - 1).chain(['…']).collect()
}

/// A path that is no text is shown with U+FFFD: it must not keep a record from being written.
fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
