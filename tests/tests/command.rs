//! The command as scripts and people meet it: exit codes, what stands on which stream, the members of `--json`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use context_engine_tests::build::{example, library_name, plugin, workspace};
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::prompts::check_prompt;
use serde_json::Value;

fn demo() -> PathBuf {
    workspace().join("cli/demo/session.jsonl")
}

/// Replays the demo session with more arguments.
fn replay(host: &TestHost, more: &[&str]) -> Ran {
    let session = demo();
    host.run([&["replay", session.to_str().expect("a path that is text")], more].concat())
}

/// A session of two turns, from lines.
const SESSION: [&str; 5] = [
    r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#,
    r#"{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"one"}}"#,
    r#"{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text","text":"uno"}]}}"#,
    r#"{"type":"message","id":"a3","parentId":"a2","timestamp":"2026-01-01T00:00:03.000Z","message":{"role":"user","content":"two"}}"#,
    r#"{"type":"message","id":"a4","parentId":"a3","timestamp":"2026-01-01T00:00:04.000Z","message":{"role":"assistant","content":[{"type":"text","text":"dos"}]}}"#,
];

/// Writes a session file outside the plugins directory.
fn session(host: &TestHost, lines: &[&str]) -> String {
    let path = host.root().join("session.jsonl");
    fs::write(&path, lines.join("\n")).expect("written");
    path.to_str().expect("a path that is text").to_owned()
}

#[test]
fn help_and_version_need_nothing() {
    let host = TestHost::new();
    for (args, words) in [
        (&["--help"][..], &["replay", "plugins", "doctor", "Exit codes:", "CONTEXT_ENGINE_HOME"][..]),
        (&["replay", "--help"], &["--engine", "--budget", "--turns", "--dump", "--json", "Examples:"]),
        (&["plugins", "--help"], &["list", "inspect"]),
        (&["doctor", "--help"], &["--json"]),
    ] {
        let ran = host.run(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        assert!(words.iter().all(|word| ran.out.contains(word)), "{args:?}: {}", ran.out);
    }
    let ran = host.run(["--version"]);
    assert!(
        ran.code == 0 && ran.out.starts_with("context-engine ") && ran.out.contains("(engine schema 1)"),
        "{ran:?}"
    );
}

#[test]
fn what_cannot_be_done_ends_with_2_and_says_why_on_standard_error() {
    let host = TestHost::with(&["alpha"]);
    let empty = session(&host, &[]);
    let demo = demo();
    let demo = demo.to_str().expect("a path that is text");
    for (args, words) in [
        (&["replay", demo, "--engine", "alhpa"][..], "no plugin has the id \"alhpa\"; did you mean \"alpha\"?"),
        (&["replay", demo, "--engine", "zzz"], "known: alpha, legacy"),
        (&["replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (&["replay", &empty], "session.jsonl"),
        (&["replay", demo, "--turns", "9000"], "turns 9000..9000 were asked for; the session has"),
        (&["replay", demo, "--turns", "5..2"], "expected turns as A..B"),
        (&["replay", demo, "--session", "7"], "there is no session 7"),
        (&["replay", demo, "--budget", "lots"], "expected a number such as 32000 or 32k"),
        (&["replay", demo, "--budget", "0"], "expected a number such as 32000 or 32k"),
        (&["replay"], "<SESSION_FILE>"),
        (&["replya", demo], "replay"),
        (&[], "Usage:"),
    ] {
        let ran = host.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_broken_plugin_asked_for_by_name_is_answered_by_legacy_and_exit_1() {
    let host = TestHost::new();
    let whole = fs::read(plugin("alpha")).expect("built");
    host.put(&library_name("alpha"), &whole[..4096]);
    let ran = replay(&host, &["--engine", "alpha", "--json", "--turns", "1..2"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let report = ran.json();
    assert_eq!(report["engine"], "alpha");
    let calls = report["calls"].as_array().expect("calls");
    assert!(!calls.is_empty());
    for call in calls {
        assert_eq!(call["served_by"], "legacy");
        assert!(call["fallback"].as_str().expect("a reason").contains("the file is cut off"), "{call}");
    }
    assert_eq!(report["summary"]["fallbacks"], calls.len());
    assert!(ran.err.lines().filter(|line| line.contains("cut off")).count() <= 1, "said once: {}", ran.err);
    let table = replay(&host, &["--engine", "alpha", "--turns", "1"]);
    assert_eq!(table.code, 1);
    assert!(table.out.lines().last().expect("lines").starts_with("legacy answered, because "), "{}", table.out);
}

#[test]
fn an_engine_that_fails_at_every_call_is_answered_by_legacy_and_exit_1() {
    let host = TestHost::with(&["panics"]);
    fs::write(host.root().join("config.json5"), "{plugins: {entries: {panics: {config: {in: 'assemble'}}}}}")
        .expect("written");
    let ran = replay(&host, &["--engine", "panics", "--json", "--turns", "1..3"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let report = ran.json();
    let calls = report["calls"].as_array().expect("calls");
    assert!(calls.iter().all(|call| call["served_by"] == "legacy"));
    assert!(calls[0]["fallback"].as_str().expect("a reason").contains("boom in assemble"), "{}", calls[0]);
    assert!(!ran.err.contains("thread '"), "the plugin must not print over the host: {}", ran.err);
}

#[test]
fn the_members_of_a_json_report_are_those_documented() {
    let host = TestHost::with(&["alpha"]);
    let ran = replay(&host, &["--engine", "alpha", "--json", "--turns", "2..3"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = ran.json();
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(
        keys(&report),
        ["session", "engine", "budget", "calls", "summary", "set_aside"].map(String::from).into()
    );
    assert_eq!(report["budget"], 32_000);
    let documented = [
        "turn",
        "call",
        "history_messages",
        "history_tokens",
        "sent_messages",
        "sent_tokens",
        "served_by",
        "fallback",
        "compacted",
        "assemble_us",
    ];
    let mut before = (0, 0);
    for call in report["calls"].as_array().expect("calls") {
        let missing: Vec<&str> = documented.into_iter().filter(|key| call.get(key).is_none()).collect();
        assert_eq!(missing, Vec::<&str>::new(), "{call}");
        let number = |key: &str| call[key].as_u64().unwrap_or_else(|| panic!("{key} is no number: {call}"));
        let place = (number("turn"), number("call"));
        assert!(place > before && (2..=3).contains(&place.0), "calls stand in order: {place:?} after {before:?}");
        before = place;
        assert!(number("sent_messages") > 0 && number("sent_tokens") <= 32_000, "{call}");
        assert!(number("history_messages") > 0 && number("history_tokens") > 0, "{call}");
        assert_eq!((&call["served_by"], &call["fallback"]), (&Value::from("alpha"), &Value::Null));
        assert!(call["compacted"].is_boolean() && call["assemble_us"].is_u64(), "{call}");
    }
}

#[test]
fn a_damaged_line_is_warned_of_by_its_number_and_json_stays_clean() {
    let host = TestHost::new();
    let torn = &SESSION[2][..60];
    let path = session(&host, &[SESSION[0], SESSION[1], torn, SESSION[2], SESSION[3], SESSION[4]]);
    let before = fs::read(&path).expect("read");
    let ran = host.run(["replay", &path, "--json"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.json()["calls"].as_array().map(Vec::len), Some(2));
    assert!(ran.err.contains("session.jsonl: 1 damaged line (3)"), "{}", ran.err);
    assert_eq!(fs::read(&path).expect("read"), before, "the recorded file is never written");
}

#[test]
fn nothing_a_plugin_says_gets_between_the_lines_of_json() {
    let host = TestHost::with(&["everything"]);
    let path = session(&host, &SESSION);
    let ran = host.run(["replay", &path, "--engine", "everything", "--json", "-vv"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.json()["calls"].as_array().map(Vec::len), Some(2));
    assert!(ran.err.contains("everything is created"), "what it says stands in the log: {}", ran.err);
}

/// Report G1: four ways to be absent, four reasons.
#[test]
fn doctor_names_the_reason_for_each_way_a_slot_can_be_wrong() {
    let configured = |config: &str, plugins: &[&str]| {
        let host = TestHost::with(plugins);
        fs::write(host.root().join("config.json5"), config).expect("written");
        let ran = host.run(["doctor", "--json"]);
        let report = ran.json();
        let why = report["why"].as_str().unwrap_or_default().to_owned();
        (ran.code, report["serves"].as_str().unwrap_or_default().to_owned(), why)
    };
    let slot = |id: &str, more: &str| format!("{{plugins: {{slots: {{contextEngine: '{id}'}}{more}}}}}");
    let legacy = |reason: &str, (code, serves, why): (i32, String, String)| {
        assert_eq!((code, serves.as_str()), (1, "legacy"));
        assert!(why.contains(reason), "expected {reason:?}, found {why:?}");
    };
    assert_eq!(configured("{}", &[]), (0, "legacy".into(), String::new()));
    assert_eq!(configured(&slot("alpha", ""), &["alpha"]), (0, "alpha".into(), String::new()));
    legacy("did you mean \"alpha\"?", configured(&slot("alpah", ""), &["alpha"]));
    legacy("known: legacy", configured(&slot("alpha", ""), &[]));
    legacy(
        "plugins.entries.alpha.enabled is false",
        configured(&slot("alpha", ", entries: {alpha: {enabled: false}}"), &["alpha"]),
    );
    legacy("plugins.deny names \"alpha\"", configured(&slot("alpha", ", deny: ['alpha']"), &["alpha"]));
    legacy("plugins.allow does not name \"alpha\"", configured(&slot("alpha", ", allow: []"), &["alpha"]));
    legacy("plugins.enabled is false", configured(&slot("alpha", ", enabled: false"), &["alpha"]));
}

#[test]
fn prompts_are_dumped_by_turn_and_call() {
    let host = TestHost::new();
    let dump = host.root().join("dump");
    fs::create_dir(&dump).expect("a folder");
    fs::write(dump.join("9-9.json"), r#"{"system":null,"messages":["of an earlier replay"]}"#).expect("written");
    fs::write(dump.join("notes.txt"), "mine").expect("written");
    let path = session(&host, &SESSION);
    let ran = host.run(["replay", &path, "--dump", dump.to_str().expect("text")]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let names = fs::read_dir(&dump).expect("a folder").flatten().map(|entry| entry.file_name().into_string());
    let names: BTreeSet<String> = names.map(|name| name.expect("text")).collect();
    assert_eq!(names, ["1-1.json", "2-1.json", "notes.txt"].map(String::from).into());
    fs::write(dump.join("2024-01.json"), r#"{"report":"mine"}"#).expect("written");
    let ran = host.run(["replay", &path, "--dump", dump.to_str().expect("text")]);
    assert!(ran.code == 2 && ran.err.contains("\"2024-01.json\" is named like a prompt and is none"), "{ran:#?}");
    let second: Value = serde_json::from_slice(&fs::read(dump.join("2-1.json")).expect("read")).expect("JSON");
    let texts: Vec<&Value> =
        second["messages"].as_array().expect("messages").iter().map(|m| &m["content"][0]["text"]).collect();
    assert_eq!(texts, ["one", "uno", "two"]);
}

#[test]
fn every_prompt_of_the_demo_session_keeps_the_rules() {
    let host = TestHost::new();
    fs::copy(example("sliding-window"), host.plugins().join(library_name("sliding-window"))).expect("copied");
    for (engine, budget) in
        [("legacy", 8_000), ("legacy", 32_000), ("sliding-window", 8_000), ("sliding-window", 32_000)]
    {
        let dump = host.root().join(format!("{engine}-{budget}"));
        let dumped = dump.to_str().expect("text");
        let ran = replay(&host, &["--engine", engine, "--budget", &budget.to_string(), "--json", "--dump", dumped]);
        assert_eq!(ran.code, 0, "{engine} at {budget}: {}", ran.err);
        let report = ran.json();
        let calls = report["calls"].as_array().expect("calls");
        assert!(calls.len() > 50, "{}", calls.len());
        assert_eq!(fs::read_dir(&dump).expect("a folder").count(), calls.len());
        for call in calls {
            let name = format!("{}-{}.json", call["turn"], call["call"]);
            let prompt: Value = serde_json::from_slice(&fs::read(dump.join(&name)).expect("dumped")).expect("JSON");
            assert_eq!(check_prompt(&prompt, budget), Vec::<String>::new(), "{engine} at {budget}: {name}");
            assert_eq!(call["sent_messages"], prompt["messages"].as_array().map_or(0, Vec::len), "{name}");
            assert!(call["sent_tokens"].as_u64().is_some_and(|sent| sent <= budget), "{engine} at {budget}: {call}");
            assert_eq!((&call["served_by"], &call["fallback"]), (&Value::from(engine), &Value::Null), "{name}");
        }
    }
}
