//! What ends the host's process is not contained; the next start knows who did it. And convicts nobody who did not.
//!
//! Decision: with the real command, because a process has to die. The engine is healthy in its first call: the probe calls
//! it once, in a child, and would find it out.
#![cfg(unix)]
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::{Creation, Loader, LoaderOptions};
use context_engine_tests::build;
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::session::{BUDGET, assemble, three_turns};
use serde_json::{Value, json};

/// A home whose slot names `faulty`, with these faults.
fn home(config: &Value) -> TestHost {
    let host = TestHost::with(&["faulty"]);
    configure(&host, config);
    host
}

fn configure(host: &TestHost, config: &Value) {
    let plugins = json!({ "slots": { "contextEngine": "faulty" }, "entries": { "faulty": { "config": config } } });
    fs::write(host.root().join("config.json5"), json!({ "plugins": plugins }).to_string()).expect("written");
}

fn replay(host: &TestHost) -> Ran {
    let session = build::workspace().join("cli/demo/session.jsonl");
    host.run(["replay".as_ref(), session.as_os_str(), "--turns=1..3".as_ref(), "--json".as_ref()])
}

fn served_by(ran: &Ran) -> Vec<String> {
    let mut engines: Vec<String> = ran.json()["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| call["served_by"].as_str().expect("an engine").to_owned())
        .collect();
    engines.dedup();
    engines
}

#[test]
fn after_a_crash_the_next_start_names_the_engine_and_legacy_answers() {
    for (fault, says) in [
        ("segfault", "SIGSEGV in assemble"),
        ("abort", "SIGABRT in assemble"),
        ("overflow", "in assemble"),
        ("exit", "exit() in assemble"),
    ] {
        let host = home(&json!({ "faults": { "assemble": fault }, "after": 1 }));
        let died = replay(&host);
        assert!(died.code != 0 && died.out.is_empty(), "{fault}: {died:#?}");

        let ran = replay(&host);
        assert_eq!((ran.code, served_by(&ran)), (1, vec!["legacy".to_owned()]), "{fault}: {}", ran.err);
        let why = ran.json()["calls"][0]["fallback"].as_str().expect("a reason").to_owned();
        assert!(why.contains("quarantined since it failed during assemble"), "{fault}: {why}");
        let told = host.run(["quarantine", "why", "faulty"]);
        assert!(told.code == 1 && told.out.contains(says), "{fault}: expected {says}: {told:#?}");
        let doctor = host.run(["doctor"]);
        assert!(doctor.code == 1 && doctor.out.contains("serves    legacy, because set aside"), "{}", doctor.out);

        assert_eq!(host.run(["quarantine", "clear", "faulty"]).code, 0);
        assert_eq!(host.run(["doctor"]).code, 0, "{fault}");
    }
}

/// In the environment of a host of its own, its home.
#[cfg(target_os = "linux")]
const HOME: &str = "CONTEXT_ENGINE_TEST_HOME";

/// A host in which the engine is used and released, and which goes on.
#[cfg(target_os = "linux")]
fn outlive_the_engines_threads(root: &Path) {
    let text = fs::read_to_string(root.join("config.json5")).expect("a configuration");
    let config: Value = serde_json::from_str(&text).expect("JSON");
    let loader = Loader::new(LoaderOptions {
        directories: vec![root.join("plugins").into()],
        state_dir: root.join("state"),
        ..LoaderOptions::default()
    });
    let config = config["plugins"]["entries"]["faulty"]["config"].clone();
    let creation = Creation { config: Some(config), ..Creation::default() };
    let handle = loader.engine("faulty", &creation).expect("a handle");
    for _ in 0..2 {
        assert_eq!(assemble(&handle, &three_turns(), BUDGET).expect("a prompt").served_by, "faulty");
    }
    drop(handle);
    thread::sleep(Duration::from_secs(30));
}

#[cfg(target_os = "linux")]
#[test]
fn a_crash_outside_of_the_calls_is_the_engines_as_well_where_it_is_proven() {
    // This test, started again by itself.
    if let Some(root) = std::env::var_os(HOME) {
        return outlive_the_engines_threads(Path::new(&root));
    }
    for (place, fault, says) in [
        ("thread_end", "panic", "SIGABRT at the end of a thread"),
        ("thread_end", "segfault", "SIGSEGV at the end of a thread"),
        ("thread_end", "exit", "called exit() at the end of a thread"),
        ("thread", "segfault", "SIGSEGV in its code, outside of a call"),
    ] {
        let host = home(&json!({ "faults": { place: fault }, "after": 1 }));
        let own = std::env::current_exe().expect("this program has a path");
        let ended = Command::new(own)
            .args(["--exact", "a_crash_outside_of_the_calls_is_the_engines_as_well_where_it_is_proven"])
            .env(HOME, host.root())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the host runs");
        assert!(!ended.success(), "{place} {fault}: it lives on");
        let ran = replay(&host);
        assert_eq!((ran.code, served_by(&ran)), (1, vec!["legacy".to_owned()]), "{place} {fault}: {}", ran.err);
        let told = host.run(["quarantine", "why", "faulty"]);
        assert!(told.code == 1 && told.out.contains(says), "{place} {fault}: expected {says}: {told:#?}");
    }
}

#[test]
fn a_fault_behind_the_last_answer_is_said_and_shows_in_the_exit_code() {
    let host = home(&json!({ "faults": { "after_turn": "panic" } }));
    let session = build::workspace().join("cli/demo/session.jsonl");
    let last_turn = ["replay".as_ref(), session.as_os_str(), "--turns=1".as_ref()];
    let ran = host.run(last_turn);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(
        ran.out.contains("it serves no more, because faulty: after_turn: `after_turn` panicked at "),
        "{}",
        ran.out
    );
}

#[test]
fn what_ends_a_process_at_once_is_found_out_in_the_probe() {
    for fault in ["segfault", "abort", "overflow", "exit", "panic"] {
        let host = home(&json!({ "faults": { "assemble": fault } }));
        for _ in 0..2 {
            let ran = replay(&host);
            assert_eq!((ran.code, served_by(&ran)), (1, vec!["legacy".to_owned()]), "{fault}: {}", ran.err);
        }
        let records = host.run(["quarantine", "list", "--json"]).json();
        assert_eq!((&records["engines"][0]["operation"], &records["inForce"]), (&json!("probe"), &json!(1)), "{fault}");
        assert_eq!(host.journal("faulty"), [], "{fault}: no folder of the real engine was touched");
    }
}

#[test]
fn what_is_set_aside_without_proof_is_said_to_be() {
    let host = TestHost::with(&["faulty"]);
    let faults = host.root().join("faults.json");
    configure(&host, &json!({ "from_file": faults }));
    // It passes the probe. Then each process dies in its first call.
    assert_eq!(replay(&host).code, 0);
    fs::write(&faults, json!({ "faults": { "assemble": "be-killed" } }).to_string()).expect("written");
    for death in 1..=3 {
        let died = replay(&host);
        assert!(died.out.is_empty(), "{death}: {died:#?}");
    }
    let ran = replay(&host);
    assert_eq!((ran.code, served_by(&ran)), (1, vec!["legacy".to_owned()]), "{}", ran.err);
    assert!(ran.err.contains("without proof") && !ran.err.contains("it ended the last host"), "{}", ran.err);
    let told = host.run(["quarantine", "why", "faulty"]);
    assert!(told.code == 1 && told.out.contains("nothing shows why"), "{told:#?}");
}

#[test]
fn a_host_that_is_killed_in_the_middle_of_healthy_calls_convicts_nobody() {
    let host = home(&json!({ "faults": { "assemble": "sleep" }, "sleep_ms": 10 }));
    for round in 1..=10 {
        let before = host.journal("faulty").len();
        let mut child = Command::new(build::command())
            .arg("replay")
            .arg(build::workspace().join("cli/demo/session.jsonl"))
            .env("CONTEXT_ENGINE_HOME", host.root())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command can be run");
        let patience = Instant::now() + Duration::from_secs(60);
        // `create`, and some calls: it is in the next one, nearly always.
        while host.journal("faulty").len() < before + 5 {
            assert!(Instant::now() < patience, "round {round}: the replay does not get on");
            thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }
    let listed = host.run(["quarantine", "list", "--all"]);
    assert_eq!((listed.code, listed.out.as_str()), (0, "no engine is set aside\n"));
    let ran = replay(&host);
    assert_eq!((ran.code, served_by(&ran)), (0, vec!["faulty".to_owned()]), "{}", ran.err);
}
