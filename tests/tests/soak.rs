//! A host that lives long: a thousand turns with an engine that keeps failing, in one process.
//!
//! Decision: a test program of its own with one test, because it measures its own process. What is counted (threads,
//! descriptors, children, memory) must not grow with the turns; the few calls that hang for good each hold a thread, as
//! documented, and are counted in.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use context_engine_loader::probe::DEFAULT_DEADLINE;
use context_engine_loader::{Creation, Deadlines, Loader, ProbeOptions};
use context_engine_tests::build;
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{assemble, history, plain_call, take_turn, three_turns};
use serde_json::json;

const TURNS: usize = 1_000;

/// A plan that is over it is small too: what an engine allocates for itself is not what is measured here.
const SMALL_BUDGET: u64 = 500;

/// What can go wrong in a turn, and where. Half of the turns are healthy.
const FAULTS: [(&str, &str); 12] = [
    ("assemble", "error"),
    ("assemble", "panic"),
    ("assemble", "panic-number"),
    ("assemble", "panic-bomb"),
    ("assemble", "sleep"),
    ("assemble", "overlap"),
    ("assemble", "no-json"),
    ("assemble", "over-budget"),
    ("assemble", "side-effect-then-error"),
    ("after_turn", "panic"),
    ("after_turn", "hang-polite"),
    ("dispose", "panic"),
];

/// In one turn of so many `assemble` never returns. Each of these holds a thread and an instance for good, about 50 kB in a
/// debug build and more while the allocator still makes itself arenas for new threads; the rest must hold nothing.
const HANGS_ONE_IN: usize = 100;

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().expect("a number") * 1024.0
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Children of this process that nobody has waited for.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let is_ours = |stat: &String| {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&own.as_str())
    };
    let stats = fs::read_dir("/proc").expect("processes").flatten();
    stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).filter(is_ours).count()
}

/// Growth per step of the line that fits `values` best.
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let along = |at: usize| at as f64 - mean_x;
    let covariance: f64 = values.iter().enumerate().map(|(at, y)| along(at) * (y - mean_y)).sum();
    covariance / (0..values.len()).map(|at| along(at) * along(at)).sum::<f64>()
}

#[test]
#[allow(clippy::print_stderr, reason = "the figures are what a maintainer wants to see")]
fn a_thousand_turns_with_faults_leave_nothing_behind() {
    let host = TestHost::with(&["faulty"]);
    let file = host.root().join("faults.json");
    let set = |faults: serde_json::Value| {
        let new = host.root().join("faults.new");
        let text = json!({ "faults": faults, "sleep_ms": 200 }).to_string();
        fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).expect("written");
    };
    set(json!({}));
    let mut options = host.options();
    let args = vec!["probe-plugin".into()];
    options.probe = Some(ProbeOptions { child_exe: build::command(), args, deadline: DEFAULT_DEADLINE });
    let loader = Loader::new(options);
    let limit = Duration::from_millis(50);
    let short = ["assemble", "after_turn", "dispose"].map(|member| (member.to_owned(), limit));
    let creation = Creation {
        config: Some(json!({ "from_file": file })),
        deadlines: Deadlines::with(short).expect("members"),
        ..Creation::default()
    };
    let handle = loader.engine("faulty", &creation).expect("a handle");
    assert_eq!(handle.why(), None);

    // A small generator, so that every run is the same.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    let (mut memory, mut open) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        loader.quarantine().clear(None).expect("cleared");
        let hangs = below(HANGS_ONE_IN) == 0;
        let fault = FAULTS.get(below(2 * FAULTS.len())).copied();
        let fault = if hangs { Some(("assemble", "hang")) } else { fault };
        set(fault.map_or(json!({}), |(place, what)| json!({ place: what })));
        let prompt = assemble(&handle, &three_turns(), SMALL_BUDGET).expect("every turn is answered");
        *served.entry(prompt.served_by).or_default() += 1;
        take_turn(&handle, &plain_call(), history(&["user: three", "assistant: tres"]));
        memory.push(resident());
        open.push(descriptors());
    }
    let _whatever_the_last_fault_was = handle.dispose("shutdown");

    let by_plugin = served.get("faulty").copied().unwrap_or(0);
    let growth = slope(&memory[TURNS / 5..]);
    let (first, last) = (open[TURNS / 5], open[TURNS - 1]);
    eprintln!(
        "{by_plugin} of {TURNS} turns by the plugin; {growth:.0} bytes per turn; {first} then {last} descriptors; {} MB",
        (memory[TURNS - 1] / 1e6).round()
    );
    assert!(by_plugin * 100 >= TURNS * 30, "{served:?}");
    assert!(growth < 1_000.0, "{growth} bytes per turn over the last 80 %");
    assert!(last <= first, "{first} descriptors after a fifth of the turns, {last} at the end");
    assert_eq!(zombies(), 0);
}
