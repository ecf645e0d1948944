//! Judging the marks of processes that died.
//!
//! Decision: guilty only with proof. A mark convicts when a handler stamped it, because then the very thread that was in
//! the engine's call raised the fatal signal or called `exit`. A mark that is merely there (`kill -9`, the system out of
//! memory, a power failure) proves nothing: in a host that is busy some engine is always in a call. It makes a suspect,
//! and only when that process had not completed one call of the same operation; a build that has done it before in the
//! same process is healthy, and what killed the process came from elsewhere. So a host that is killed again and again in
//! the middle of healthy calls convicts nobody, and an engine that eats up the memory in each first call is found out at
//! the third time. Such a healthy process also ends what counted against the engine "in a row".
//!
//! Threads that are in no call have no mark, but where an engine's own code made the fault, its build is stamped: that is
//! proof, too, and convicts each configuration that was running. Unless the process ended in order afterwards: then
//! somebody had mended the fault.
//!
//! Three things are taken out. A process that ended in order (somebody sent SIGTERM, `exit` was called by the host) leaves
//! no suspects. `dispose` and `drop` come once in a process: any completed call acquits there. And a thread that was about
//! to end makes no suspect at all: its mark stays a little longer than the thread.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Quarantine;
use super::key::{QuarantineKey, Subject, hex};
use super::marks::{
    BLOCK, COUNTERS, DIGEST, ENDED, ENGINE, IS_OUTSIDE, KEY, MAGIC, MOST_SLOTS, OPERATIONS, OUTSIDE, PATH, THREAD_END,
};
use super::record::{Fault, Incident, ProcessStamp, Record, Scope};
use crate::dylib::signals::{EXIT, HOST, signal_name};
use crate::platform::open_regular;

/// Age at which a file of marks that has no name yet is left over.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// What became of a mark that a dead process left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whose mark it was.
    pub subject: Subject,
    /// The member that was running.
    pub operation: &'static str,
    /// The process that died.
    pub process: ProcessStamp,
    /// The verdict.
    pub finding: Finding,
    /// In words, on one line.
    pub reason: String,
}

/// How a mark is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Proven; quarantined for every process.
    Convicted,
    /// Not proven; so many deaths in a row.
    Suspected(u32),
    /// Not proven, but one death too many in a row; quarantined for every process.
    Quarantined,
    /// Not to blame.
    Acquitted,
}

/// A mark as it was left.
struct Mark {
    subject: Subject,
    operation: usize,
    in_call: bool,
    /// No mark of a thread: what the library did where no call was.
    outside: bool,
    stamp: u8,
    completed: [u32; 32],
}

impl Quarantine {
    /// Judges the marks that dead processes left in `marks_dir`, and removes their files. Marks of processes that live
    /// are left alone. Called before any engine is opened.
    pub fn settle_marks(&self, marks_dir: &Path) -> Vec<Verdict> {
        let mut files: Vec<(_, PathBuf)> = fs::read_dir(marks_dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                Some((entry.metadata().ok().filter(fs::Metadata::is_file)?.modified().ok()?, entry.path()))
            })
            .collect();
        // In the order of the deaths, nearly: it matters for what is counted in a row.
        files.sort();
        let mut verdicts = vec![];
        for (written, path) in files {
            let ending = path.extension().and_then(|ending| ending.to_str());
            let left_over = || written.elapsed().is_ok_and(|age| age > LEFT_OVER);
            if !(ending == Some("marks") || ending == Some("new") && left_over()) {
                continue;
            }
            match self.settle_file(&path) {
                Ok(more) => verdicts.extend(more),
                Err(error) => tracing::debug!(path = %path.display(), %error, "these crash marks cannot be judged"),
            }
        }
        for verdict in &verdicts {
            let Verdict { subject: Subject { engine, .. }, reason, .. } = verdict;
            match verdict.finding {
                Finding::Convicted => {
                    tracing::error!(engine, reason, "the engine is in quarantine: it ended the last host");
                }
                Finding::Quarantined => {
                    let why =
                        "the engine is in quarantine without proof: three hosts in a row died while it was running";
                    tracing::error!(engine, reason, "{why}");
                }
                Finding::Suspected(_) => tracing::warn!(engine, reason, "a host died while the engine was running"),
                Finding::Acquitted => tracing::debug!(engine, reason, "a host ended while the engine was running"),
            }
        }
        verdicts
    }

    fn settle_file(&self, path: &Path) -> io::Result<Vec<Verdict>> {
        let mut file = open_regular(path, File::options().read(true))?;
        let locks = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Ok(vec![]),
            Err(TryLockError::Error(_)) => false,
        };
        // Another host may have judged it between the opening and the lock.
        if !path.exists() {
            return Ok(vec![]);
        }
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take((BLOCK * (MOST_SLOTS + 1)) as u64).read_to_end(&mut bytes)?;
        let (header, slots) = bytes.split_at(BLOCK.min(bytes.len()));
        let mut verdicts = vec![];
        if header.len() == BLOCK && header[..8] == MAGIC {
            let start = u64::from_le_bytes(header[16..24].try_into().unwrap_or_default());
            let process = ProcessStamp { pid: number(&header[12..16]), start };
            if !locks && process.is_running() {
                return Ok(vec![]);
            }
            let mut by_key: BTreeMap<QuarantineKey, Vec<Mark>> = BTreeMap::new();
            for mark in slots.chunks_exact(BLOCK).map(Mark::read).filter(|mark| !mark.subject.engine.is_empty()) {
                by_key.entry(mark.subject.key).or_default().push(mark);
            }
            verdicts.extend(by_key.values().filter_map(|marks| self.judge(marks, process, header[ENDED])));
        }
        if let Err(error) = fs::remove_file(path) {
            // It will be judged again, as nothing of the verdict could be written either.
            tracing::debug!(path = %path.display(), %error, "judged crash marks cannot be removed");
        }
        Ok(verdicts)
    }

    /// Judges the marks one process left of one key: one death counts once.
    fn judge(&self, marks: &[Mark], process: ProcessStamp, ended: u8) -> Option<Verdict> {
        let completed = |operation: usize| marks.iter().any(|mark| mark.completed[operation] > 0);
        let healthy = |operation: usize| match OPERATIONS[operation] {
            "dispose" | "drop" => (0..OPERATIONS.len()).any(completed),
            _ => completed(operation),
        };
        let running = || marks.iter().filter(|mark| mark.in_call);
        let verdict = |mark: &Mark, finding, reason| {
            let (subject, operation) = (mark.subject.clone(), OPERATIONS[mark.operation]);
            Some(Verdict { subject, operation, process, finding, reason })
        };
        let outside = || marks.iter().filter(|mark| mark.outside && ended == 0);
        if let Some(mark) = running().chain(outside()).find(|mark| !matches!(mark.stamp, 0 | HOST)) {
            let operation = OPERATIONS[mark.operation];
            let place = match operation {
                OUTSIDE => "in its code, outside of a call".to_owned(),
                THREAD_END => "at the end of a thread".to_owned(),
                member => format!("in {member}"),
            };
            let reason = match mark.stamp {
                EXIT => format!("called exit() {place}"),
                signal => format!("the process ended with {} {place}", signal_name(i32::from(signal))),
            };
            self.record(&mark.subject, Incident::now(operation, Fault::Crash, &reason, process));
            return verdict(mark, Finding::Convicted, reason);
        }
        let in_order = |mark: &Mark| ended != 0 || mark.stamp == HOST;
        let ending = |mark: &Mark| OPERATIONS[mark.operation] == THREAD_END;
        if let Some(mark) = running().find(|mark| !in_order(mark) && !ending(mark) && !healthy(mark.operation)) {
            let operation = OPERATIONS[mark.operation];
            let reason = format!(
                "the process died in {operation}, which it had not completed before; nothing shows why (kill -9, out of \
                 memory, a power failure)"
            );
            let record = self.record(&mark.subject, Incident::now(operation, Fault::Suspect, &reason, process));
            let finding = match record.scope {
                Scope::Durable => Finding::Quarantined,
                Scope::Process => Finding::Suspected(record.suspected_in_a_row),
            };
            return verdict(mark, finding, reason);
        }
        self.worked_in(marks[0].subject.key, process, &completed);
        let mark = running().next()?;
        let why = match (mark.stamp, ended) {
            (HOST, _) => "the host's own code failed meanwhile".to_owned(),
            (_, EXIT) => "the host ended meanwhile".to_owned(),
            (_, 0) => "the process was killed in the middle of healthy calls".to_owned(),
            (_, signal) => format!("the process was ended by {} meanwhile", signal_name(i32::from(signal))),
        };
        verdict(mark, Finding::Acquitted, why)
    }

    /// A process completed without a fault what others failed or died in: what counts in a row starts again. Most hosts
    /// are killed one day, and never come to say that they were served.
    fn worked_in(&self, key: QuarantineKey, process: ProcessStamp, completed: &dyn Fn(usize) -> bool) {
        let acquits = |record: &Record| {
            let operation = OPERATIONS.iter().position(|name| *name == record.operation);
            record.counts_in_a_row() && !record.failed_in(process) && operation.is_some_and(completed)
        };
        self.change(&key, acquits, Record::end_row);
    }
}

impl Mark {
    /// Any bytes make a mark: those of a file that is damaged name no operation that exists, or an engine nobody has.
    fn read(block: &[u8]) -> Mark {
        let text = |range: std::ops::Range<usize>| {
            let bytes = &block[range];
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let mut completed = [0; 32];
        for (count, four) in completed.iter_mut().zip(block[COUNTERS].chunks_exact(4)) {
            *count = number(four);
        }
        let subject = Subject {
            engine: crate::text::on_one_line(&text(ENGINE)),
            digest: hex(&block[DIGEST]),
            key: QuarantineKey::from_bytes(block[KEY].try_into().unwrap_or_default()),
            path: PathBuf::from(text(PATH)),
        };
        // A newer host may have more operations.
        let operation = Some(usize::from(block[2])).filter(|index| *index < OPERATIONS.len()).unwrap_or(0);
        let (in_call, outside) = (block[0] == 1, block[0] == IS_OUTSIDE);
        Mark { subject, operation, in_call, outside, stamp: block[1], completed }
    }
}

fn number(four: &[u8]) -> u32 {
    u32::from_le_bytes(four.try_into().unwrap_or_default())
}
