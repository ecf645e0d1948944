//! What the child tells the parent: each step before it is taken, and the verdict when all is done.
//!
//! Decision: a file without a name, which the child inherits as its standard input and takes away from there before any
//! of the library's code runs. The engine is told no path that leads to it, and what it does to the files around its own
//! folder (a pipe, a verdict of its own) is read by nobody. Reading it never waits and has a limit. An engine that looks
//! through the descriptors of its own process to forge a verdict can do so: nothing in one process hides from the rest.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

use super::Verdict;
use super::failure::ProbeStep;
use crate::platform::{read_at, write_at};

/// More than any child tells, in bytes.
const LONGEST: u64 = 1 << 20;

/// How the line of the verdict begins.
const VERDICT: &str = "verdict ";

/// The parent's side.
#[derive(Debug)]
pub(super) struct Report {
    file: File,
    /// How much of it was read.
    read: u64,
    /// The step the child was in last.
    pub(super) step: Option<ProbeStep>,
}

impl Report {
    /// An empty one, on the disk that `folder` is on.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new(folder: &Path) -> io::Result<Report> {
        Ok(Report { file: tempfile::tempfile_in(folder)?, read: 0, step: None })
    }

    /// What the child is given as its standard input.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn for_child(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// Reads what is new. The verdict, once it is there.
    pub(super) fn look(&mut self) -> Option<Verdict> {
        let length = self.file.metadata().ok()?.len().min(LONGEST);
        if length == self.read {
            return None;
        }
        self.read = length;
        let text = String::from_utf8_lossy(&part(&self.file, 0, length)).into_owned();
        // The last line may be half written.
        let (lines, _) = text.rsplit_once('\n')?;
        self.step = lines.lines().filter_map(ProbeStep::from_name).next_back();
        lines.lines().filter_map(|line| line.strip_prefix(VERDICT)).find_map(|line| serde_json::from_str(line).ok())
    }
}

/// The bytes of a file from one place to another, as far as they are there.
pub(super) fn part(file: &File, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
    let mut read = 0;
    while let Ok(more @ 1..) = read_at(file, &mut bytes[read..], from + read as u64) {
        read += more;
    }
    bytes.truncate(read);
    bytes
}

/// The child's side.
#[derive(Debug)]
pub(super) struct Notes {
    file: File,
    written: u64,
}

impl Notes {
    /// Takes the file from the standard input, which is empty from then on.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn from_stdin() -> io::Result<Notes> {
        #[cfg(unix)]
        {
            let file = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            Ok(Notes { file: file.into(), written: 0 })
        }
        #[cfg(windows)]
        {
            let file = std::os::windows::io::AsHandle::as_handle(&io::stdin()).try_clone_to_owned()?;
            Ok(Notes { file: file.into(), written: 0 })
        }
    }

    /// Notes the step that is about to be taken.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn step(&mut self, step: ProbeStep) -> io::Result<()> {
        self.line(step.name())
    }

    /// Notes the verdict.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn conclude(&mut self, verdict: &Verdict) -> io::Result<()> {
        self.line(&format!("{VERDICT}{}", serde_json::to_string(verdict)?))
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        let line = format!("{text}\n");
        // Not where the file stands: parent and child share that.
        write_at(&self.file, line.as_bytes(), self.written)?;
        self.written += line.len() as u64;
        Ok(())
    }
}
