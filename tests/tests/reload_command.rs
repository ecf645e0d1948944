//! `plugins reload` and `doctor` as a person uses them while a host runs: the host is this process.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::quarantine::ProcessStamp;
use context_engine_loader::{Creation, EngineHandle, HostProfile, Loader, LoaderOptions, WatchOptions, Watcher, hosts};
use context_engine_tests::build::library_name;
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::session::answer;
use context_engine_tests::variants::{alpha, put};
use serde_json::{Value, json};

struct Running {
    host: TestHost,
    file: PathBuf,
    loader: Loader,
    handle: EngineHandle,
    _watcher: Watcher,
}

impl Running {
    /// A host that uses build 1 of `alpha` and watches.
    fn new() -> Running {
        let host = TestHost::new();
        let file = put(&host.plugins().join(library_name("alpha")), alpha(1));
        let loader = Loader::new(LoaderOptions { host: HostProfile::new("the bot"), ..host.options() });
        let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
        let watcher = loader.watch(WatchOptions::default()).expect("a watcher");
        let patience = Instant::now() + Duration::from_secs(20);
        while !hosts::running(&host.root().join("state")).iter().any(|host| host.last_reload.is_some()) {
            assert!(Instant::now() < patience, "the watcher does not look");
            thread::sleep(Duration::from_millis(5));
        }
        Running { host, file, loader, handle, _watcher: watcher }
    }

    fn reload(&self, more: &[&str]) -> Ran {
        self.host.run([&["plugins", "reload"], more].concat())
    }

    /// What is said of hosts.
    fn of_hosts(ran: &Ran) -> String {
        let lines = ran.out.lines().skip_while(|line| !line.starts_with("host"));
        lines.map(str::trim).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn a_host_that_runs_says_what_it_did() {
    let running = Running::new();
    let (pid, first) = (std::process::id(), running.loader.find("alpha").expect("found").staged().digest.to_string());
    put(&running.file, alpha(2));
    let ran = running.reload(&["alpha"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.starts_with("ok "), "each step's verdict: {ran:?}");
    let said = Running::of_hosts(&ran);
    assert!(said.starts_with(&format!("host      {pid} the bot: has looked\nalpha: ")), "{said}");
    assert!(answer(&running.handle).contains("v002"));

    // A bad build: what is wrong is said by the file's verdict and by the host, which goes on.
    let good = fs::read(&running.file).expect("read");
    put(&running.file, &good[..9_000]);
    let ran = running.reload(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let said = Running::of_hosts(&ran);
    assert!(said.contains("goes on") && said.contains("is cut off"), "{said}");
    assert!(answer(&running.handle).contains("v002"));

    put(&running.file, good);
    let again = running.reload(&["--json"]).json();
    let [told] = &again["hosts"].as_array().expect("hosts")[..] else { panic!("{again:#}") };
    assert_eq!((&told["pid"], &told["label"], &told["answered"]), (&json!(pid), &json!("the bot"), &json!(true)));
    assert_eq!(told["engines"][0]["outcome"], "unchanged");
    assert_ne!(told["engines"][0]["digest"], Value::from(first));
    assert_eq!(again["plugins"][0]["usable"], true);

    fs::remove_file(&running.file).expect("removed");
    let ran = running.reload(&["alpha"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let said = Running::of_hosts(&ran);
    assert!(said.contains("legacy") && said.contains("no plugin has the id \"alpha\""), "{said}");
    assert!(answer(&running.handle).starts_with("legacy"));
}

#[test]
fn an_engine_no_host_uses_is_said_to_be_none_of_theirs() {
    let running = Running::new();
    running.host.drop_in("beta");
    let ran = running.reload(&["beta"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(Running::of_hosts(&ran).ends_with("has looked, and uses no such engine"), "{ran:?}");
}

#[test]
fn without_a_host_the_next_start_is_told() {
    let host = TestHost::with(&["alpha"]);
    let ran = host.run(["plugins", "reload"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out.contains("no host that watches runs here") && ran.out.ends_with("a host that starts now uses legacy\n"),
        "{ran:?}"
    );
    put(&host.root().join("config.json5"), "{plugins: {slots: {contextEngine: 'alpha'}}}");
    let ran = host.run(["plugins", "reload", "alpha"]);
    assert!(ran.out.ends_with("a host that starts now uses alpha\n"), "{ran:?}");
    let ran = host.run(["plugins", "reload", "alfa"]);
    assert!(ran.code == 1 && ran.out.contains("no plugin has the id \"alfa\""), "{ran:?}");
    let next = host.run(["plugins", "reload", "--json"]).json();
    assert_eq!((&next["nextStart"]["serves"], &next["hosts"]), (&json!("alpha"), &json!([])));
}

/// What a host says of itself, as one that stopped looking has left it.
fn announce(host: &TestHost, retired: usize) {
    let ProcessStamp { pid, start } = ProcessStamp::current();
    let said = json!({
        "pid": pid, "start": start, "system": hosts::system(), "label": "the bot", "engines": [{ "id": "alpha", "digest": "ab".repeat(32), "sinceMs": 0, "why": null }],
        "swaps": retired, "retiredCopies": retired, "retiredBytes": retired * 500_000, "mapped": [], "lastReload": null,
    });
    put(&host.root().join("state/hosts").join(format!("{pid}.json")), said.to_string());
}

#[test]
fn a_host_that_does_not_answer_is_waited_for_and_named() {
    let host = TestHost::with(&["alpha"]);
    announce(&host, 0);
    // Another watcher of the same process, with the same name, which has heeded every request there will be.
    let file = host.root().join(format!("state/hosts/{}.json", std::process::id()));
    let mut second: Value = serde_json::from_slice(&fs::read(&file).expect("read")).expect("JSON");
    second["lastReload"] = json!({ "atMs": 0, "generation": u64::MAX, "engines": [] });
    put(&file.with_file_name(format!("{}-2.json", std::process::id())), second.to_string());
    let ran = host.run(["plugins", "reload"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for said in ["the bot: has not answered within 5 s", "the bot: has looked"] {
        assert_eq!(ran.out.matches(said).count(), 1, "{said}: {ran:?}");
    }
}

#[test]
fn doctor_shows_hosts_and_what_they_still_hold() {
    let host = TestHost::with(&["alpha"]);
    for (retired, code, expected) in [
        (0, 0, "the bot: alpha (build abababababab); 0 swaps\n"),
        (1, 0, "the bot: alpha (build abababababab); 1 swap, 1 retired copy (500.0 kB)\n"),
        (60, 1, "60 swaps, 60 retired copies (30.0 MB)\n            restart it when it suits"),
    ] {
        announce(&host, retired);
        let ran = host.run(["doctor", "--no-probe"]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.out.contains(expected), "{expected}: {ran:?}");
        let json = host.run(["doctor", "--no-probe", "--json"]).json();
        assert_eq!(
            (&json["hosts"][0]["retiredCopies"], &json["hosts"][0]["worthRestart"]),
            (&json!(retired), &json!(code == 1))
        );
    }
}

/// A host that was killed left its file behind.
#[cfg(target_os = "linux")]
#[test]
fn a_host_that_was_killed_is_none() {
    let host = TestHost::with(&["alpha"]);
    announce(&host, 0);
    let file = host.root().join("state/hosts").join(format!("{}.json", std::process::id()));
    let text = fs::read_to_string(&file).expect("read");
    let mut said: Value = serde_json::from_str(&text).expect("JSON");
    said["start"] = 1.into();
    put(&file, said.to_string());
    let ran = host.run(["plugins", "reload"]);
    assert!(ran.out.contains("no host that watches runs here") && !file.exists(), "{ran:?}");
}
