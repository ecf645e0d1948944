//! Calls without a pause while an engine is replaced again and again under them.
//!
//! Decision: the whole way is taken, as by a person who copies files: a watched plugins directory, a probe for each build,
//! turns of two calls from several threads at a fixed rate. What is counted is who answered; how long it took is for
//! `reload_soak` to print and for nobody to assert.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::probe::DEFAULT_DEADLINE;
use context_engine_loader::{Creation, EngineHandle, Loader, LoaderOptions, ProbeOptions, Retired, WatchOptions};

use crate::build;
use crate::host::TestHost;
use crate::session::{BUDGET, assemble, three_turns};
use crate::variants::{numbered, put};

/// Threads that call.
const CALLERS: u32 = 4;

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How long calls are made.
    pub lasts: Duration,
    /// Calls a second, of all threads together.
    pub rate: u32,
    /// How often the file is replaced in that time.
    pub swaps: usize,
    /// How many builds take turns.
    pub builds: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Swapped {
    /// Calls that were answered, by the build that did.
    pub by_build: BTreeMap<usize, u64>,
    /// Calls that something else answered, and what that said.
    pub others: Vec<String>,
    /// Turns whose two calls were answered by different builds.
    pub mixed: u64,
    /// How long a call took, in all threads, shortest first.
    pub calls: Vec<Duration>,
    /// How long it took to get hold of the engine for a turn: what a swap can keep waiting.
    pub pauses: Vec<Duration>,
    /// From the file's being there to the first call the new build answered.
    pub first_calls: Vec<Duration>,
    /// Instances that took over.
    pub swaps: u64,
    /// What was replaced and is still mapped.
    pub retired: Retired,
    /// Resident memory in bytes before the first swap and at the end; 0 where the system does not tell.
    pub resident: (u64, u64),
}

/// Runs the plan with this build of `alpha`, and others made of it.
///
/// # Panics
/// When a build is not taken within a minute.
pub fn run(plan: Plan, alpha: &Path) -> Swapped {
    let host = TestHost::new();
    let file = put(&host.plugins().join(build::library_name("alpha")), numbered(alpha, 0));
    let args = vec!["probe-plugin".into()];
    let probe = Some(ProbeOptions { child_exe: build::command(), args, deadline: DEFAULT_DEADLINE });
    let loader = Loader::new(LoaderOptions { probe, ..host.options() });
    let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
    let _watcher = loader.watch(WatchOptions::default()).expect("a watcher");
    let (stop, newest) = (AtomicBool::new(false), AtomicUsize::new(usize::MAX));
    let builds: Vec<Vec<u8>> = (0..plan.builds).map(|number| numbered(alpha, number)).collect();
    let mut swapped = Swapped::default();
    thread::scope(|scope| {
        let call = || calls(&handle, plan.rate / CALLERS, (&stop, &newest));
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        // The allocator and the threads have what they need by now.
        thread::sleep(plan.lasts / 20);
        let before = resident();
        let began = Instant::now();
        for number in 1..=plan.swaps {
            let due = plan.lasts.mul_f64(0.95 * number as f64 / plan.swaps as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
            let build = number % plan.builds;
            put(&file, &builds[build]);
            let there = Instant::now();
            while newest.load(Ordering::Relaxed) != build {
                assert!(there.elapsed() < Duration::from_secs(60), "build {build} is not taken");
                thread::sleep(Duration::from_micros(200));
            }
            swapped.first_calls.push(there.elapsed());
        }
        swapped.resident = (before, resident());
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            swapped.add(caller.join().expect("a caller ends"));
        }
    });
    swapped.calls.sort();
    swapped.pauses.sort();
    swapped.first_calls.sort();
    (swapped.swaps, swapped.retired) = (loader.swaps(), loader.retired());
    swapped
}

/// Turns of two calls, `rate` calls a second, until it is told to stop.
fn calls(handle: &EngineHandle, rate: u32, (stop, newest): (&AtomicBool, &AtomicUsize)) -> Swapped {
    let mut done = Swapped::default();
    let history = three_turns();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let turn = handle.for_turn();
        done.pauses.push(began.elapsed());
        let mut of_turn = None;
        for _ in 0..2 {
            let began = Instant::now();
            let answer = assemble(&turn, &history, BUDGET);
            done.calls.push(began.elapsed());
            let said = match answer {
                Ok(prompt) => prompt.messages.first().map(|message| message.text()).unwrap_or_default(),
                Err(error) => error.to_string(),
            };
            match build_of(&said) {
                Some(build) => {
                    *done.by_build.entry(build).or_default() += 1;
                    done.mixed += u64::from(of_turn.is_some_and(|before| before != build));
                    of_turn = Some(build);
                    newest.store(build, Ordering::Relaxed);
                }
                None => done.others.push(said),
            }
        }
        due += Duration::from_secs(2) / rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    done
}

/// The build of `alpha` that says this.
fn build_of(said: &str) -> Option<usize> {
    said.strip_prefix("alpha v")?.get(..3)?.parse().ok()
}

impl Swapped {
    fn add(&mut self, other: Swapped) {
        for (build, calls) in other.by_build {
            *self.by_build.entry(build).or_default() += calls;
        }
        self.others.extend(other.others);
        self.mixed += other.mixed;
        self.calls.extend(other.calls);
        self.pauses.extend(other.pauses);
    }
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}
