//! Engines that misbehave in ways no answer shows: they print, leave things in threads, bring no guard, end the process.
//!
//! Decision: the engine `faulty` is checked here before others rely on it: a fault that did not happen would make every
//! test of its containment pass. What ends a process is tried in a process of its own, without the supervisor, so that
//! these tests say what the engine does and not what a host makes of it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use context_engine_interface::{
    AssembleParamsFields, Assembly, CallContext, CallServices, ContextEngine, EngineError, ErrorCode, RemoteEngine,
    ViewChunks,
};
use context_engine_loader::{Problem, TurnTaken};
use context_engine_tests::boundary;
use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::host::TestHost;
use context_engine_tests::record::without_record;
use context_engine_tests::session::{
    BUDGET, answer, assemble, compact, history, messages, plain_call, take_turn, three_turns,
};
use serde_json::{Value, json};

/// Set in a process that is there to be ended: what is to happen in it.
const CHILD: &str = "CONTEXT_ENGINE_TEST_CHILD";

/// Runs `test` again in a process of its own, with `what` as [`CHILD`]. What it leaves behind goes with `host`.
fn in_a_child(host: &TestHost, test: &str, what: &str) -> Output {
    child(host, test, what).output().expect("this program can be run")
}

fn child(host: &TestHost, test: &str, what: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"));
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, what).env("TMPDIR", host.root());
    child
}

/// Whether the process `child` starts is still at it some time after it has written `begun`. It is ended here.
fn never_returns(mut child: Command, begun: &Path) -> bool {
    let quiet = child.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = quiet.spawn().expect("this program can be run");
    let ended = |running: &mut std::process::Child| running.try_wait().expect("it can be asked").is_some();
    while !begun.exists() && !ended(&mut running) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(200));
    let returned = ended(&mut running);
    let _ = running.kill();
    running.wait().expect("it ends");
    begun.exists() && !returned
}

/// How a process ended, as people say it.
fn ending(output: &Output) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&output.status) {
        return format!("signal {signal}");
    }
    output.status.code().map_or_else(|| "unknown".to_owned(), |code| format!("code {code}"))
}

/// One plan of a bare engine, over three turns.
fn bare_assemble(engine: &RemoteEngine, services: &dyn CallServices) -> Result<Assembly, EngineError> {
    let chunks =
        ViewChunks::build(&messages(&["user: one", "assistant: uno", "user: two", "assistant: dos", "user: three"]));
    let index = chunks.index();
    let fields = AssembleParamsFields {
        session_id: "s1".into(),
        messages: index.messages(),
        token_budget: Some(BUDGET).into(),
        ..AssembleParamsFields::default()
    };
    CallContext::lend(services, |ctx| fields.lend(|params| engine.assemble(ctx, params)))
}

/// The `faulty` engine with `what` in `assemble`, without the supervisor.
fn bare(host: &TestHost, what: &str) -> RemoteEngine {
    boundary::create(host, "faulty", &json!({ "faults": { "assemble": what }, "sleep_ms": 1 })).expect("an engine")
}

/// Services no host offers: each call of one says so.
struct Nothing;

impl CallServices for Nothing {}

/// Services of a call that was cancelled before it began.
struct Cancelled;

impl CallServices for Cancelled {
    fn is_cancelled(&self) -> bool {
        true
    }
}

#[test]
fn faulty_is_a_good_engine_until_it_is_told_otherwise() {
    let host = TestHost::with(&["faulty"]);
    let handle = host.engine("faulty", json!({}));
    assert!(handle.bootstrap(&plain_call()).value.is_some());
    assert_eq!(answer(&handle), "faulty | one | uno | two | dos | three");
    let newest = history(&[&format!("user: {}", "word ".repeat(500)), "assistant: uno", "user: two"]);
    let prompt = assemble(&handle, &newest, 200).expect("a prompt");
    let texts: Vec<String> = prompt.messages.iter().map(|message| message.text()).collect();
    assert_eq!((prompt.served_by.as_str(), texts), ("faulty", vec!["two".to_owned()]), "{:?}", prompt.why);
    let taken = take_turn(&handle, &plain_call(), history(&["user: three", "assistant: tres"]));
    assert_eq!(taken.value, TurnTaken::By("after_turn"));
    assert!(handle.maintain(&plain_call()).value.is_some());
    assert!(compact(&handle, &plain_call()).expect("an answer").ok);
    handle.dispose("shutdown").expect("disposed");
    drop(handle);
    let reached: Vec<String> = host.journal("faulty").into_iter().map(|(member, _)| member).collect();
    let members =
        ["create", "bootstrap", "assemble", "assemble", "after_turn", "maintain", "compact", "dispose", "drop"];
    assert_eq!(reached, members);
}

#[test]
fn a_fault_of_faulty_begins_and_ends_when_the_test_says() {
    let host = TestHost::with(&["faulty"]);
    let handle = host.engine("faulty", json!({ "faults": { "assemble": "error" }, "after": 2 }));
    let served = |handle| assemble(handle, &three_turns(), BUDGET).expect("a prompt").served_by;
    assert_eq!([served(&handle), served(&handle), served(&handle)], ["faulty", "faulty", "legacy"]);

    let file = host.root().join("faults.json");
    let engine = boundary::create(&host, "faulty", &json!({ "from_file": file })).expect("an engine");
    let outcome = || bare_assemble(&engine, &Nothing).map(|plan| plan.segments.len()).map_err(|error| error.code);
    assert_eq!(outcome(), Ok(1));
    fs::write(&file, r#"{"faults": {"assemble": "unavailable"}}"#).expect("written");
    assert_eq!(outcome(), Err(ErrorCode::UNAVAILABLE));
    fs::write(&file, r#"{"faults": {"assemble": "empty"}}"#).expect("written");
    assert_eq!(outcome(), Ok(0));
    fs::write(&file, "{}").expect("written");
    assert_eq!(outcome(), Ok(1));
}

#[test]
fn each_fault_that_lets_the_process_live_is_what_its_name_says() {
    let host = TestHost::with(&["faulty"]);
    for (what, code, words) in [
        ("error", ErrorCode::FAILED, "assemble errs on purpose"),
        ("side-effect-then-error", ErrorCode::FAILED, "assemble errs on purpose"),
        ("unsupported", ErrorCode::UNSUPPORTED, "`assemble` is not supported"),
        ("unavailable", ErrorCode::UNAVAILABLE, "this host does not offer `complete` here"),
        ("panic", ErrorCode::PANICKED, ": boom in assemble"),
        ("panic-number", ErrorCode::PANICKED, ": a payload that is no text"),
        ("panic-bomb", ErrorCode::PANICKED, ": a payload that is no text"),
        ("typo", ErrorCode::FAILED, "no fault is called \"typo\""),
    ] {
        let error = bare_assemble(&bare(&host, what), &Nothing).expect_err(what);
        assert_eq!(error.code, code, "{what}");
        assert!(error.message.ends_with(words), "{what}: {}", error.message);
    }
    let error = bare_assemble(&bare(&host, "hang-polite"), &Cancelled).expect_err("cancelled");
    assert_eq!((error.code, &*error.message), (ErrorCode::CANCELLED, "assemble was cancelled"));
    assert_eq!(host.given("faulty", "side effect"), "assemble");
    for what in ["sleep", "trace", "late-write"] {
        assert_eq!(bare_assemble(&bare(&host, what), &Nothing).expect(what).segments.len(), 1, "{what}");
    }
    let refused = json!({ "error": 6, "message": "this host does not offer `delegate_compaction` here" });
    assert_eq!(host.given("faulty", "late write"), refused);
}

#[test]
fn each_wrong_plan_of_faulty_is_refused_or_mended() {
    for (what, served_by) in [
        ("overlap", "legacy"),
        ("past-end", "legacy"),
        ("no-json", "legacy"),
        ("empty", "legacy"),
        ("unknown-step", "legacy"),
        ("over-budget", "faulty"),
        ("orphan-call", "faulty"),
        ("lies-about-tokens", "faulty"),
    ] {
        let host = TestHost::with(&["faulty"]);
        let handle = host.engine("faulty", json!({ "faults": { "assemble": what } }));
        let prompt = assemble(&handle, &three_turns(), BUDGET).expect("a prompt");
        assert_eq!(prompt.served_by, served_by, "{what}: {:?}", prompt.why);
        assert_eq!((prompt.fitted, prompt.repaired > 0), (what == "over-budget", what == "orphan-call"), "{what}");
        assert!(prompt.tokens <= BUDGET, "{what}");
    }
}

#[test]
fn each_fault_that_ends_the_process_ends_it_as_its_name_says() {
    if let Ok(what) = std::env::var(CHILD) {
        let host = TestHost::with(&["faulty"]);
        let _ = bare_assemble(&bare(&host, &what), &Nothing);
        return;
    }
    let host = TestHost::new();
    let test = "each_fault_that_ends_the_process_ends_it_as_its_name_says";
    for (what, endings) in [
        ("error", &["code 0"][..]),
        ("exit", &["code 1"]),
        ("abort", &["signal 6"]),
        ("segfault", &["signal 11"]),
        // By the handler of the host's std, where the thread is one it knows.
        ("overflow", &["signal 6", "signal 11"]),
    ] {
        let output = in_a_child(&host, test, what);
        let ending = ending(&output);
        assert!(endings.contains(&&*ending), "{what}: {ending}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn each_fault_that_never_returns_never_does() {
    if let Ok(what) = std::env::var(CHILD) {
        let host = TestHost::with(&["faulty"]);
        let engine = bare(&host, &what);
        fs::write(std::env::temp_dir().join(&what), "begun").expect("written");
        let _ = bare_assemble(&engine, &Nothing);
        return;
    }
    let host = TestHost::new();
    for (what, never) in [("hang", true), ("spin", true), ("hang-polite", true), ("sleep", false)] {
        let child = child(&host, "each_fault_that_never_returns_never_does", what);
        assert_eq!(never_returns(child, &host.root().join(what)), never, "{what}");
    }
}

/// Report H2: crash when a thread that once called the plugin ends.
#[test]
fn what_an_engine_leaves_in_a_thread_is_cleaned_up_after_the_engine_is_gone() {
    let host = TestHost::with(&["thread-local"]);
    let round = || {
        let engine = boundary::create(&host, "thread-local", &Value::Null).expect("an engine");
        let plan = bare_assemble(&engine, &Nothing).expect("a plan");
        let said: Value = serde_json::from_str(&plan.segments[0].message_json).expect("a message");
        said["content"][0]["text"].as_str().expect("a text").to_owned()
    };
    for number in 0..100 {
        let said = std::thread::scope(|scope| scope.spawn(round).join().expect("the thread lives"));
        // The round's own thread ends after its answer, the engine's before it.
        assert_eq!(said, format!("{} threads ended", number * 2 + 1));
        let handle = host.engine("thread-local", Value::Null);
        std::thread::spawn(move || drop(handle)).join().expect("the thread lives");
    }
}

#[test]
fn a_library_without_the_guard_has_no_record_and_is_refused_unexecuted() {
    let host = TestHost::new();
    let bytes = without_record(&fs::read(plugin("unguarded")).expect("built"));
    host.put(&library_name("unguarded"), bytes);
    let (_, verdict) = host.verdicts().remove(0);
    assert_eq!(verdict.expect_err("refused").problem, Problem::NoRecord);
}

/// Nothing in a file can prove who wrote its code. So a hand-written record gets such a library opened, and its panic ends
/// the process: a host's `catch_unwind` would not help, because the function that panics may not unwind at all.
/// Report H14: a host's `catch_unwind` does not catch the panic of another library.
#[test]
fn a_panic_without_the_guard_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let host = TestHost::with(&["unguarded"]);
        let _ = std::panic::catch_unwind(|| boundary::create(&host, "unguarded", &Value::Null).is_ok());
        return;
    }
    let output = in_a_child(&TestHost::new(), "a_panic_without_the_guard_ends_the_process", "create");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(ending(&output), "signal 6", "{said}");
    assert!(said.contains("boom without a guard") && said.contains("cannot unwind"), "{said}");
}

/// Report H15: a table for any id or kind it is asked for.
#[test]
fn a_library_that_answers_every_extension_is_refused() {
    let host = TestHost::with(&["leaky-extension", "everything", "alpha"]);
    let why = host.engine("leaky-extension", Value::Null).why().expect("refused");
    assert!(why.contains("open: it answers an extension it cannot have"), "{why}");
    assert_eq!(["everything", "alpha"].map(|id| host.engine(id, json!({})).why()), [None, None]);
}

#[test]
fn an_engine_that_takes_over_signal_handlers_answers_as_any_other() {
    let host = TestHost::with(&["signals"]);
    let session = two_turns(&host);
    // In a process of its own: the handlers would stay.
    let ran = host.run(["replay", &session, "--engine", "signals", "--json"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.json()["calls"][1]["served_by"], "signals");
    let warning = "the engine changed how this process handles signals; the host put it back";
    let lines: Vec<&str> = ran.err.lines().filter(|line| line.contains(warning)).collect();
    assert_eq!(lines.len(), 1, "{}", ran.err);
    assert!(lines[0].contains("SIGSEGV") && lines[0].contains("SIGTERM"), "{}", lines[0]);
}

#[test]
fn a_constructor_does_what_its_variable_says() {
    if std::env::var_os(CHILD).is_some() {
        boundary::module(&TestHost::with(&["constructor"]), "constructor");
        return;
    }
    let host = TestHost::new();
    let marker = host.root().join("marker");
    let test = "a_constructor_does_what_its_variable_says";
    let opens = |what: &str| {
        let mut child = child(&host, test, "open");
        child.env("CONTEXT_ENGINE_TEST_CONSTRUCTOR", what);
        child
    };
    let with = |what: &str| ending(&opens(what).output().expect("this program can be run"));
    assert_eq!((with("exit"), with("nothing")), ("code 1".to_owned(), "code 0".to_owned()));
    assert!(!marker.exists());
    assert_eq!(with(&format!("marker:{}", marker.display())), "code 0");
    assert!(marker.exists());
    let begun = host.root().join("begun");
    let mut looping = opens("loop");
    looping.env("CONTEXT_ENGINE_TEST_MARKER", &begun);
    assert!(never_returns(looping, &begun));
}

/// A session of two turns, outside the plugins directory.
fn two_turns(host: &TestHost) -> String {
    let entry = |id: u64, role: &str, text: &str| {
        let parent = (id > 1).then(|| format!("a{}", id - 1));
        let message = json!({ "role": role, "content": [{ "type": "text", "text": text }] });
        let timestamp = format!("2026-01-01T00:00:0{id}.000Z");
        json!({ "type": "message", "id": format!("a{id}"), "parentId": parent, "timestamp": timestamp, "message": message })
            .to_string()
    };
    let start = json!({ "type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z" });
    let entries = [(1, "user", "one"), (2, "assistant", "uno"), (3, "user", "two"), (4, "assistant", "dos")];
    let lines = [start.to_string()].into_iter().chain(entries.map(|(id, role, text)| entry(id, role, text)));
    let path = host.root().join("session.jsonl");
    fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("written");
    path.to_str().expect("a path that is text").to_owned()
}

/// Replays two turns with `faulty`, which does `what` at each place the command gets to.
fn replay_with(what: &str, more: &[&str]) -> context_engine_tests::host::Ran {
    let host = TestHost::with(&["faulty"]);
    let faults: Value = PLACES.iter().map(|place| ((*place).to_owned(), json!(what))).collect();
    let config = json!({ "plugins": { "entries": { "faulty": { "config": { "faults": faults } } } } });
    fs::write(host.root().join("config.json5"), config.to_string()).expect("written");
    let session = two_turns(&host);
    host.run([&["replay", &session, "--engine", "faulty"], more].concat())
}

const PLACES: [&str; 4] = ["create", "assemble", "thread", "after_turn"];

#[test]
fn what_a_plugin_prints_does_not_reach_standard_output() {
    let ran = replay_with("print", &["--json"]);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.out);
    let report = ran.json();
    assert_eq!(report["calls"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["calls"][1]["served_by"], "faulty");
    for place in PLACES {
        for words in ["\"faulty\": \"prints line 1999 in", "faulty complains, line 1999 in"] {
            assert!(ran.err.contains(&format!("{words} {place}")), "{words} {place}");
        }
    }
    let table = replay_with("print", &[]);
    assert!(table.code == 0 && !table.out.contains("prints line"), "{}", table.out);
}

#[test]
fn what_a_plugin_traces_and_logs_stands_in_the_hosts_log_under_its_name() {
    let ran = replay_with("trace", &["--json"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.json()["calls"][0]["served_by"], "faulty");
    for line in [
        "traced by faulty place=\"assemble\" count=3",
        "another_crate::inner: traced by\\nanother crate",
        "count=3",
        "traced with a bad value value= (a value panicked while it was logged: boom in a value)",
        "logged by faulty in after_turn",
        "logged by faulty in thread",
        "another_crate: logged by another crate",
        "logged with  (a value panicked while it was logged: boom in a value)",
    ] {
        let whole = format!(" WARN {line} engine=\"faulty\"");
        assert!(ran.err.lines().any(|found| found == whole), "expected {whole:?} in {}", ran.err);
    }
    for absent in ["in bulk", "of a span"] {
        assert!(!ran.err.contains(absent), "{}", ran.err);
    }
    let all = replay_with("trace", &["-vvv"]).err;
    for line in ["traced in bulk", "logged in bulk"] {
        assert!(all.contains(&format!("TRACE {line} engine=\"faulty\"")), "{all}");
    }
}
