//! Probes by the real command, and that nothing of them is left.
//!
//! Decision: one at a time in a test program. What is left over is looked for among this process's children and files,
//! and those of a neighbouring test would look just the same.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use context_engine_loader::{ProbeFailure, ProbeOptions, ProbeReport, probe};
use serde_json::Value;

use crate::build::command;
use crate::host::TestHost;

/// A deadline for probes that end by themselves: they must not need it.
pub const LONG: Duration = Duration::from_secs(60);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A host with one engine of `engines/`, and what it is probed with.
pub struct Probe {
    /// The host.
    pub host: TestHost,
    id: &'static str,
    library: Option<PathBuf>,
    environment: Vec<OsString>,
    deadline: Duration,
    _alone: MutexGuard<'static, ()>,
}

impl Probe {
    /// A probe of the engine `id`. No other test of this program gets one before this one is dropped.
    pub fn of(id: &'static str) -> Probe {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let host = TestHost::with(&[id]);
        Probe { host, id, library: None, environment: vec![], deadline: LONG, _alone: alone }
    }

    /// With a deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Probe {
        self.deadline = deadline;
        self
    }

    /// With an environment variable, for what happens before the engine knows its configuration.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Probe {
        let mut pair = OsString::from(format!("{name}="));
        pair.push(value.as_ref());
        self.environment.push(pair);
        self
    }

    /// With another library than the one whose record it has.
    #[must_use]
    pub fn library(mut self, bytes: &[u8]) -> Probe {
        let path = self.host.root().join("patched.so");
        fs::write(&path, bytes).expect("written");
        self.library = Some(path);
        self
    }

    /// Where the probe's own files are while it runs.
    pub fn scratch(&self) -> PathBuf {
        self.host.root().join("state/probes")
    }

    /// `env` stands in front of the command and makes way for it: the child is the command.
    pub fn options(&self) -> ProbeOptions {
        let command = [command().into(), "probe-plugin".into()];
        ProbeOptions {
            child_exe: "/usr/bin/env".into(),
            args: self.environment.iter().cloned().chain(command).collect(),
            deadline: self.deadline,
        }
    }

    /// Runs the probe; nothing of it may be left.
    ///
    /// # Errors
    /// The probe's own.
    #[track_caller]
    pub fn run(&self, config: &Value) -> Result<ProbeReport, ProbeFailure> {
        self.run_with(&self.options(), config)
    }

    /// Runs the probe in another way; nothing of it may be left.
    ///
    /// # Errors
    /// The probe's own.
    #[track_caller]
    pub fn run_with(&self, options: &ProbeOptions, config: &Value) -> Result<ProbeReport, ProbeFailure> {
        let plugin = self.host.loader().find(self.id).expect("nothing to see in the bytes");
        let library = self.library.as_deref().unwrap_or(&plugin.staged().path);
        let started = Instant::now();
        let outcome = probe::probe(options, library, &plugin.inspection().record, Some(config), &self.scratch());
        let took = started.elapsed();
        assert!(took < options.deadline + Duration::from_secs(2), "it took {took:?}: {outcome:?}");
        assert_eq!(children(), Vec::<String>::new(), "no process may be left: {outcome:?}");
        let left: Vec<_> = fs::read_dir(self.scratch()).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "no file may be left: {left:?}");
        assert!(!self.host.root().join("state/engines").exists(), "the engine's own store may not be touched");
        outcome
    }

    /// The failure, in words. `convicts`: whether it has to be the build's fault.
    #[track_caller]
    pub fn fails(&self, config: &Value, convicts: bool) -> String {
        let failure = self.run(config).expect_err("it may not pass");
        assert_eq!(failure.convicts(), convicts, "{failure}");
        failure.to_string()
    }
}

/// Processes whose parent is this one, dead ones that nobody waited for included.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").expect("a process table").flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    // Behind the name, which may hold anything: state, parent.
    let parent = |stat: &String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
    stats.filter(|stat| parent(stat).as_deref() == Some(own.as_str())).collect()
}
