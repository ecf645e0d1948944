//! A probe: whatever a library does to the process that opens it first, it does to one that nobody needs.
//!
//! Decision: the child is the real command, and the engines really hang, exit and crash. After every probe nothing may be
//! left of it: no process, no file, no state of the engine's.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use context_engine_loader::probe::{self, DEFAULT_DEADLINE};
use context_engine_loader::{ProbeFailure, ProbeOptions, ProbeStep};
use context_engine_tests::build::{command, plugin, workspace};
use context_engine_tests::probe::{LONG, Probe};
use serde_json::{Value, json};

/// For engines that never end by themselves: long enough to get there on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

const CONSTRUCTOR: &str = "CONTEXT_ENGINE_TEST_CONSTRUCTOR";
const EXTENSION: &str = "CONTEXT_ENGINE_TEST_EXTENSION";

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("a folder of open files").count()
}

fn misbehaves(place: &str, what: &str) -> Value {
    json!({ "in": place, "do": what })
}

#[test]
fn a_sound_engine_passes_and_its_store_is_not_touched() {
    let report = Probe::of("probed").run(&json!({})).expect("it passes");
    assert_eq!(report.log, ["create", "assemble", "3 messages, hurried: true", "tools", "dispose", "drop"]);
    assert_eq!(report.assemble, None);
    let left_out = "tool 2: the name \"find it\" is not allowed: expected 1 to 64 letters, digits, `_` and `-`";
    assert_eq!(report.tools.as_deref(), Some(left_out), "it is said, and no failure");
    assert!(report.took < LONG);
}

#[test]
fn sound_engines_of_all_kinds_pass() {
    for (id, config) in [
        ("alpha", Value::Null),
        ("everything", json!({ "keep": 3 })),
        ("strict", json!({})),
        // Its panics are in members that a probe does not call.
        ("panics", json!({ "in": "compact" })),
        ("liar", json!({ "plan": "keeps nothing" })),
    ] {
        let report = Probe::of(id).run(&config).unwrap_or_else(|failure| panic!("{id}: {failure}"));
        assert_eq!(report.assemble, None, "{id}");
    }
}

#[test]
fn an_error_the_engine_may_answer_is_no_fault_of_the_build() {
    let probe = Probe::of("probed");
    assert_eq!(
        probe.fails(&misbehaves("create", "err"), false),
        "the engine could not be created: err on purpose; look at plugins.entries.<id>.config"
    );
    let report = probe.run(&misbehaves("assemble", "err")).expect("it passes");
    assert_eq!(report.assemble.as_deref(), Some("err on purpose"));
    let report = probe.run(&misbehaves("tools", "err")).expect("it passes");
    assert_eq!((report.assemble, report.tools.as_deref()), (None, Some("err on purpose")));
    for place in ["dispose", "drop"] {
        let report = probe.run(&misbehaves(place, "err")).expect("it passes");
        assert_eq!(report.assemble, None);
    }
}

#[test]
fn an_engine_that_ends_the_process_is_named_with_step_and_end() {
    let probe = Probe::of("probed");
    for place in ["create", "assemble", "tools", "dispose", "drop"] {
        for (what, end) in [
            ("exit", "exits the process with code 3"),
            ("abort", "ends the process with signal 6 (SIGABRT)"),
            ("segfault", "ends the process with signal 11 (SIGSEGV)"),
        ] {
            let failure = probe.fails(&misbehaves(place, what), true);
            assert!(failure.starts_with(&format!("its `{place}` {end} (it printed: create")), "{failure}");
            assert!(failure.ends_with("); get another build of the engine"), "{failure}");
        }
    }
}

#[test]
fn tools_that_are_declared_and_not_there_are_found_out() {
    let probe = Probe::of("probed").env(EXTENSION, "none");
    assert_eq!(
        probe.fails(&json!({}), true),
        "its `extension` answers wrongly: its record declares tools/1, which the library does not have; export the \
         engine with `export_engine!`"
    );
}

#[test]
fn a_panic_is_one_wherever_it_happens() {
    let probe = Probe::of("probed");
    for place in ["create", "assemble", "tools", "dispose", "drop"] {
        let failure = probe.run(&misbehaves(place, "panic")).expect_err("it may not pass");
        assert!(failure.convicts());
        let ProbeFailure::Panicked { step, reason } = &failure else { panic!("{place}: {failure}") };
        assert_eq!(step.name(), place);
        assert!(
            reason.contains("panicked at ") && reason.contains("src/lib.rs:") && reason.ends_with(": boom"),
            "{reason}"
        );
    }
}

#[test]
fn an_engine_that_never_ends_is_ended_with_all_it_started() {
    let probe = Probe::of("probed").within(SHORT);
    for place in ["create", "assemble", "tools", "dispose", "drop"] {
        let failure = probe.fails(&misbehaves(place, "hang"), true);
        assert!(
            failure.starts_with(&format!("its `{place}` did not finish within the 2000 ms of a probe")),
            "{failure}"
        );
    }
    probe.fails(&misbehaves("create", "spawn"), true);
    is_gone("297.531");
}

/// Waits until the `sleep` with this argument has ended: it was told to, and needs a moment.
#[track_caller]
fn is_gone(argument: &str) {
    let line = format!("sleep\0{argument}");
    let until = Instant::now() + Duration::from_secs(20);
    let runs = || {
        let lines = fs::read_dir("/proc").expect("a process table").flatten();
        let mut lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.any(|found| found.starts_with(line.as_bytes()))
    };
    while runs() {
        assert!(Instant::now() < until, "{line:?} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_an_engine_started_is_ended_although_it_passed_or_has_ended_by_itself() {
    let probe = Probe::of("probed");
    for place in ["create", "assemble", "tools", "dispose", "drop"] {
        probe.run(&misbehaves(place, "spawn and go on")).expect("it passes");
        is_gone("297.532");
        let failure = probe.fails(&misbehaves(place, "spawn and exit"), true);
        assert!(failure.starts_with(&format!("its `{place}` exits the process with code 3")), "{failure}");
        is_gone("297.533");
    }
}

#[test]
fn an_engine_reaches_nothing_by_name_that_the_host_reads() {
    let probe = Probe::of("probed");
    for place in ["create", "assemble", "tools", "dispose", "drop"] {
        let pipes = |then: &str| misbehaves(place, &format!("pipes, then {then}"));
        let report = probe.run(&pipes("")).expect("it passes");
        assert_eq!(report.log.last().map(String::as_str), Some("drop"), "{place}");
        let failure = probe.fails(&pipes("exit"), true);
        assert!(failure.starts_with(&format!("its `{place}` exits the process with code 3 (it printed: create")));
    }
}

#[test]
fn a_constructor_that_misbehaves_does_so_in_the_child() {
    for (what, end, deadline) in [
        ("exit", "exits the process with code 3; get another build of the engine", LONG),
        ("abort", "ends the process with signal 6 (SIGABRT); get another build of the engine", LONG),
        ("hang", "did not finish within the 2000 ms of a probe; get another build of the engine", SHORT),
    ] {
        let probe = Probe::of("probed").env(CONSTRUCTOR, what).within(deadline);
        assert_eq!(probe.fails(&json!({}), true), format!("its `open` {end}"));
    }
    let marker = tempfile::tempdir().expect("a folder");
    let marker = marker.path().join("marker");
    Probe::of("constructor").env("CONTEXT_ENGINE_TEST_MARKER", &marker).run(&json!({})).expect("it passes");
    assert!(marker.exists(), "the witness must be able to speak");
}

#[test]
fn what_an_engine_printed_last_is_told_on_one_line() {
    let failure = Probe::of("probed").env(CONSTRUCTOR, "print").fails(&json!({}), true);
    assert_eq!(
        failure,
        "its `open` ends the process with signal 6 (SIGABRT) (it printed: last words \\u{1b}[31m); \
         get another build of the engine"
    );
    let failure = Probe::of("probed").within(SHORT).run(&misbehaves("assemble", "flood")).expect_err("it may not pass");
    let ProbeFailure::Deadline { step: ProbeStep::Assemble, said, .. } = failure else { panic!("{failure}") };
    assert!(said.contains("flood flood") && said.len() < 500, "{said}");
}

#[test]
fn a_plan_no_host_can_follow_is_a_wrong_answer() {
    let probe = Probe::of("liar");
    let rule = "indices ascend and never overlap";
    for (plan, reason) in [
        ("overlap", format!("step 1 of the plan takes message 1, expected one from 2 to 2: {rule}")),
        ("past the end", format!("step 0 of the plan takes message 3, expected one from 0 to 2: {rule}")),
        ("length wraps", "step 0 of the plan keeps 4294967295 messages from 1, the history has 3".to_owned()),
        ("replaces twice", format!("step 1 of the plan takes message 0, expected one from 1 to 2: {rule}")),
        ("unknown step", "step 1 of the plan has kind 99, which this host does not know".to_owned()),
    ] {
        let failure = probe.fails(&json!({ "plan": plan }), true);
        assert_eq!(failure, format!("its `assemble` answers wrongly: {reason}"), "{plan}");
    }
}

#[test]
fn an_engine_that_answers_any_extension_is_refused_by_probe_and_host() {
    let words = |asked: &str| {
        format!("it answers an extension it cannot have ({asked}); export the engine with `export_engine!`")
    };
    let session = workspace().join("cli/demo/session.jsonl");
    let session = session.to_str().expect("a path that is text");
    for (length, asked) in
        [("19", "\"no-such-extension/0\""), ("0", "the empty id"), ("1048576", "an id of a million bytes")]
    {
        let probe = Probe::of("probed").env(EXTENSION, length);
        let failure = probe.fails(&json!({}), true);
        assert_eq!(failure, format!("its `extension` answers wrongly: {}", words(asked)));
        let replay = ["replay", session, "--engine", "probed", "--turns", "1", "--json"];
        let ran = probe.host.run_with(replay, &[(EXTENSION, Path::new(length))]);
        assert!(ran.code == 1 && ran.out.contains("it answers an extension it cannot have"), "{ran:#?}");
    }
    let replay = ["replay", session, "--engine", "probed", "--turns", "1"];
    let ran = Probe::of("probed").host.run_with(replay, &[(EXTENSION, Path::new("7"))]);
    assert_eq!(ran.code, 0, "an id nobody asks for: {ran:#?}");
}

/// The library of `alpha` with a name of its dynamic strings replaced by one of the same length.
fn with_name(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(plugin("alpha")).expect("built");
    let whole = |name: &str| [b"\0", name.as_bytes(), b"\0"].concat();
    let (from, to) = (whole(from), whole(to));
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the library has the name");
    bytes[at..at + to.len()].copy_from_slice(&to);
    bytes
}

#[test]
fn what_the_system_lacks_is_named() {
    let version = version_needed();
    let newer = format!("GLIBC_9{}", &version["GLIBC_2".len()..]);
    for (bytes, words) in [
        (
            with_name("libc.so.6", "libx.so.9"),
            "it needs libx.so.9, which this system does not have; install it".to_owned(),
        ),
        (
            with_name("realpath", "realpalm"),
            "it needs the symbol `realpalm`, which no library here has; \
             link the library that has it, or build the engine for this system"
                .to_owned(),
        ),
        (
            with_name(&version, &newer),
            format!(
                "it needs `{newer}` of libc.so.6, and the one here is older; \
                 build the engine on an older system, or upgrade this one"
            ),
        ),
    ] {
        let failure = Probe::of("alpha").library(&bytes).fails(&Value::Null, false);
        assert_eq!(failure, words);
    }
}

/// A version of libc's symbols that the library needs.
fn version_needed() -> String {
    let bytes = fs::read(plugin("alpha")).expect("built");
    let names = bytes.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let needed = names.filter(|name| name.starts_with("GLIBC_2.") && name.len() > "GLIBC_2.".len());
    needed.max().expect("a version").to_owned()
}

#[test]
fn a_library_that_is_not_what_its_file_said_is_a_wrong_answer() {
    let other = fs::read(plugin("beta")).expect("built");
    let failure = Probe::of("alpha").library(&other).fails(&Value::Null, true);
    assert!(
        failure
            .starts_with("its `open` answers wrongly: the record in the file says \"alpha\", the running library says"),
        "{failure}"
    );
    let failure = Probe::of("alpha").library(&fs::read(plugin("plain")).expect("built")).fails(&Value::Null, true);
    assert!(failure.starts_with("its `open` answers wrongly: the library has no context-engine record"), "{failure}");
}

#[test]
fn a_probe_that_cannot_be_run_convicts_nobody() {
    let probe = Probe::of("probed");
    let run = |exe: &str, args: &[&str], deadline| {
        let args = args.iter().map(Into::into).collect();
        let options = ProbeOptions { child_exe: exe.into(), args, deadline };
        let failure = probe.run_with(&options, &json!({})).expect_err("it cannot run");
        assert!(!failure.convicts(), "{failure}");
        failure.to_string()
    };
    let advice = "look at the host's installation";
    assert_eq!(
        run("/nowhere/host", &[], DEFAULT_DEADLINE),
        format!(
            "the probe could not be run: starting the child process: /nowhere/host: \
             No such file or directory (os error 2); {advice}"
        )
    );
    assert_eq!(
        run("/bin/true", &[], DEFAULT_DEADLINE),
        format!("the probe could not be run: the child process: exit status: 0; {advice}")
    );
    assert_eq!(
        run("/bin/sh", &["-c", "echo no >&2; exit 2"], DEFAULT_DEADLINE),
        format!("the probe could not be run: the child process: exit status: 2 (it printed: no); {advice}")
    );
    assert_eq!(
        run("/bin/sh", &["-c", "sleep 60"], Duration::from_millis(200)),
        format!("the probe could not be run: starting the child process: not done in 200 ms; {advice}")
    );
    fs::write(probe.host.root().join("file"), "").expect("written");
    let plugin = probe.host.loader().find("probed").expect("usable");
    let scratch = probe.host.root().join("file/probes");
    let failed = probe::probe(&probe.options(), &plugin.staged().path, &plugin.inspection().record, None, &scratch);
    let failure = failed.expect_err("no folder");
    assert!(failure.to_string().starts_with("the probe could not be run: making its folder: "), "{failure}");
    let ran = probe.host.run(["probe-plugin"]);
    assert_eq!((ran.code, ran.out.as_str()), (183, ""));
    assert_eq!(ran.err, "expected the probe's folder and a library; this command is for hosts to run\n");
}

#[test]
fn a_child_that_nobody_waits_for_ends_itself() {
    let probe = Probe::of("probed");
    let plugin = probe.host.loader().find("probed").expect("usable");
    let long = Duration::from_secs(600).as_millis();
    // The first has a parent that is not this process; the second is forgotten by its own.
    for (parent, deadline_ms) in [(1, long), (std::process::id(), 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("state")).expect("a folder");
        let request = json!({
            "record": plugin.inspection().record,
            "config": null,
            "deadlineMs": deadline_ms,
            "parent": parent,
        });
        fs::write(folder.path().join("request.json"), request.to_string()).expect("written");
        let mut child = Command::new(command())
            .arg("probe-plugin")
            .args([folder.path(), &plugin.staged().path])
            // In there it holds the loader's lock: the worst place to be ended in.
            .env(CONSTRUCTOR, "hang")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let started = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if started.elapsed() > Duration::from_secs(30) {
                child.kill().and_then(|()| child.wait()).expect("ended");
                panic!("parent {parent}: it lives on");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn what_a_killed_host_left_behind_is_removed() {
    let probe = Probe::of("alpha");
    let (old, young) = (probe.scratch().join("probe-old"), probe.scratch().join("probe-young"));
    for folder in [&old, &young] {
        fs::create_dir_all(folder.join("state")).expect("a folder");
    }
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    fs::File::open(&old).and_then(|folder| folder.set_modified(yesterday)).expect("made old");
    let plugin = probe.host.loader().find("alpha").expect("usable");
    let scratch = probe.scratch();
    probe::probe(&probe.options(), &plugin.staged().path, &plugin.inspection().record, None, &scratch)
        .expect("it passes");
    assert!(!old.exists() && young.exists(), "what is young may belong to another host");
}

#[test]
fn a_full_disk_convicts_nobody() {
    let probe = Probe::of("alpha");
    // No file may grow in the child: what it notes and concludes cannot be written.
    let script = r#"ulimit -f 0; trap '' XFSZ; exec "$0" "$@""#;
    let args = vec!["-c".into(), script.into(), command().into(), "probe-plugin".into()];
    let options = ProbeOptions { child_exe: "/bin/sh".into(), args, deadline: LONG };
    let failure = probe.run_with(&options, &Value::Null).expect_err("it cannot run");
    assert!(matches!(failure, ProbeFailure::NotRun { .. }) && !failure.convicts(), "{failure}");
}

#[test]
fn probes_leave_no_open_file_behind() {
    let probe = Probe::of("probed");
    let options = ProbeOptions { deadline: Duration::from_secs(1), ..probe.options() };
    let mut open = Vec::new();
    for round in 0..21 {
        let config = match round % 4 {
            0 => json!({}),
            1 => misbehaves("create", "exit"),
            2 => misbehaves("assemble", "abort"),
            _ => misbehaves("create", "err"),
        };
        let _ = probe.run_with(&options, &config);
        open.push(open_files());
    }
    // The first probe may open what stays for good, such as a source of random numbers.
    assert!(open[1..].iter().all(|count| *count == open[1]), "{open:?}");
}
