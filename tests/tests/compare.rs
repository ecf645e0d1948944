//! `context-engine compare` as people and scripts meet it: the table, the JSON, exit codes, what is left out.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use context_engine_tests::build::{example, library_name, workspace};
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::skip;
use serde_json::{Value, json};

/// A host with the example engine.
fn host() -> TestHost {
    let host = TestHost::new();
    fs::copy(example("sliding-window"), host.plugins().join(library_name("sliding-window"))).expect("copied");
    host
}

fn compare(host: &TestHost, args: &[&str]) -> Ran {
    host.run([&["compare"], args].concat())
}

/// Writes a session of chat messages into the folder `sessions`, and gives its path.
fn chat(host: &TestHost, name: &str, messages: &[(&str, &str)]) -> String {
    let folder = host.root().join("sessions");
    fs::create_dir_all(&folder).expect("a folder");
    let messages: Vec<Value> = messages.iter().map(|(role, text)| json!({ "role": role, "content": text })).collect();
    let path = folder.join(name);
    fs::write(&path, json!({ "messages": messages }).to_string()).expect("written");
    text(path)
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("a path that is text").to_owned()
}

/// A fact, three hundred words of something else, and a reply that names the fact.
fn berths(host: &TestHost) -> String {
    let filler = "and the wind blows from the west over the grey water ".repeat(40);
    let messages = [
        ("user", "Remember that the Saltwhistle lies at berth KAI_7 since the storm of last week."),
        ("assistant", "Noted."),
        ("user", filler.as_str()),
        ("assistant", "Fine weather for gulls."),
        ("user", "Where does she lie?"),
        ("assistant", "The ship lies at KAI_7."),
    ];
    chat(host, "berths.json", &messages)
}

#[test]
fn a_table_for_each_budget_and_a_word_on_how_to_read_it() {
    let host = host();
    let session = text(workspace().join("cli/demo/session.jsonl"));
    let ran = compare(&host, &[&session, "--budget", "8k,16k"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for words in [
        "Budget 8,000 tokens",
        "Budget 16,000 tokens",
        "Recall first",
        "tokens/call p50",
        "prefix",
        "hits/cases",
        "  => ",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let rows = |engine: &str| ran.out.lines().filter(|line| line.trim_start().starts_with(engine)).count();
    assert_eq!((rows("legacy"), rows("sliding-window")), (2, 2), "{}", ran.out);
    let left = fs::read_dir(host.root().join("state")).expect("a state folder").flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("compare-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn json_has_every_cell_and_is_the_same_on_every_run() {
    let host = host();
    let session = text(workspace().join("cli/demo/session.jsonl"));
    let run = |jobs: &str| {
        let args = [&session, "--budget", "16k,8k", "--prices", "1,0.5,2", "--json", "--jobs", jobs];
        let mut report = compare(&host, &args).json();
        for part in ["cells", "pooled"] {
            for cell in report[part].as_array_mut().expect("cells") {
                cell["measures"]["assembleUs"].take();
            }
        }
        report
    };
    let report = run("1");
    assert_eq!(report, run("3"));
    assert_eq!(report["schemaVersion"], 1);
    assert_eq!(report["budgets"], json!([8_000, 16_000]));
    assert_eq!(report["prices"], json!({ "input": 1.0, "cacheRead": 0.5, "cacheWrite": 2.0 }));
    let ids: Vec<&Value> = report["engines"].as_array().expect("engines").iter().map(|engine| &engine["id"]).collect();
    assert_eq!(ids, ["legacy", "sliding-window"]);
    assert_eq!(report["cells"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["pooled"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["prompts"].as_array().map(Vec::len), Some(2));
    let calls = &report["sessions"][0]["calls"];
    for cell in report["cells"].as_array().expect("cells") {
        assert_eq!(&cell["measures"]["calls"], calls, "{cell}");
        let budget = cell["budget"].as_u64().expect("a budget");
        assert!(cell["measures"]["sent"]["max"].as_u64().is_some_and(|max| max <= budget), "{cell}");
    }
}

#[test]
fn each_miss_is_listed_with_where_it_was_said() {
    let host = host();
    let ran = compare(&host, &[&berths(&host), "--engines", "sliding-window", "--budget", "460", "--misses"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let expected = ["0 % (0 % to 79 %), 0/1", "1 of 1 things", "turn 3, call 1: symbol KAI_7", "said in turn 1, entry"];
    for words in expected.iter().chain(&["Remember that the Saltwhistle lies at berth KAI_7 since the storm"]) {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
}

#[test]
fn of_a_folder_all_sessions_are_taken_and_the_rest_is_named() {
    let host = host();
    berths(&host);
    let unanswered = chat(&host, "unanswered.json", &[("user", "Is anybody there?")]);
    fs::write(host.root().join("sessions/notes.txt"), "no session").expect("written");
    let folder = text(host.root().join("sessions"));
    let ran = compare(&host, &[&folder, "--engines", "legacy", "--budget", "8k", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = ran.json();
    let files: Vec<&str> =
        report["sessions"].as_array().expect("sessions").iter().filter_map(|s| s["file"].as_str()).collect();
    assert!(matches!(files.as_slice(), [file] if file.ends_with("berths.json")), "{files:?}");
    assert!(
        ran.err.contains("notes.txt") && ran.err.contains("unanswered.json: left out: no model answers"),
        "{}",
        ran.err
    );
    let ran = compare(&host, &[&unanswered]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("in none of the 1 sessions a model has answered"), "{}", ran.err);
}

#[test]
fn a_budget_that_is_too_small_for_a_session_ends_its_cells_only() {
    let host = host();
    let messages =
        [("system", "Answer politely, and at length. ".repeat(40)), ("user", "Hi".into()), ("assistant", "Ho".into())];
    let messages: Vec<(&str, &str)> = messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let session = chat(&host, "polite.json", &messages);
    let ran = compare(&host, &[&session, "--engines", "legacy", "--budget", "100,8k"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.contains("Not played to the end:") && ran.out.contains("legacy 100: the system prompt takes"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("Budget 8,000 tokens"), "{}", ran.out);
}

#[test]
fn an_engine_that_fails_fails_in_every_cell_and_nowhere_else() {
    let host = TestHost::with(&["errs"]);
    let session = text(workspace().join("cli/demo/session.jsonl"));
    let ran = compare(&host, &[&session, "--engines", "legacy,errs", "--budget", "8k,16k", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let report = ran.json();
    for cell in report["cells"].as_array().expect("cells") {
        let measures = &cell["measures"];
        let failed = if cell["engine"] == 1 { measures["calls"].clone() } else { json!(0) };
        assert_eq!(measures["fallbacks"], failed, "{cell}");
    }
    let why = report["cells"][2]["measures"]["reasons"][0][0].as_str().unwrap_or_default();
    assert!(why.starts_with("errs: "), "{why}");
    // A trial convicts nobody.
    let ran = host.run(["quarantine", "list", "--all"]);
    assert!(ran.code == 0 && !ran.out.contains("errs"), "{ran:?}");
}

#[test]
fn what_cannot_be_done_ends_with_2() {
    let host = host();
    let session = text(workspace().join("cli/demo/session.jsonl"));
    for (args, words) in [
        (&[session.as_str(), "--engines", "legacy,slidin-window"][..], "did you mean \"sliding-window\"?"),
        (&[&session, "--prices", "1,2"], "expected three prices per million tokens"),
        (&[&session, "--budget", "8k,lots"], "expected a number such as 32000 or 32k"),
        (&[&session, "--jobs", "0"], "--jobs"),
        (&["nowhere.jsonl"], "nowhere.jsonl"),
        (&[], "<SESSION>"),
    ] {
        let ran = compare(&host, args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let ran = compare(&host, &["--help"]);
    let taught = ["--engines", "--budget", "--misses", "--prices", "Examples:", "recall", "Exit code 1"];
    assert!(ran.code == 0 && taught.iter().all(|words| ran.out.contains(words)), "{}", ran.out);
}

#[test]
fn a_recorded_session_of_the_folder_beside_the_project() {
    let session = workspace().join("../shared/transcripts/openclaw-v3-shape.jsonl");
    if !session.is_file() {
        return skip("a_recorded_session_of_the_folder_beside_the_project", "the folder of recorded sessions");
    }
    let ran = compare(&host(), &[&text(session), "--budget", "8k", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for cell in ran.json()["cells"].as_array().expect("cells") {
        let recall = &cell["measures"]["recall"];
        assert!(recall["hits"].as_u64() <= recall["cases"].as_u64(), "{cell}");
        assert_eq!(cell["error"], Value::Null, "{cell}");
    }
}

#[test]
fn a_recorded_session_is_never_replaced_by_the_report() {
    let host = TestHost::new();
    let session = host.root().join("session.jsonl");
    let recorded = fs::read(workspace().join("cli/demo/session.jsonl")).expect("the demo");
    fs::write(&session, &recorded).expect("written");
    let path = session.to_str().expect("text");
    // The file for the report was forgotten.
    let ran = host.run(["compare", "--engines", "legacy", "--budget", "8k", "--html", path, path]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("it exists and is no report; name another file"), "{}", ran.err);
    assert_eq!(fs::read(&session).expect("there"), recorded);

    let page = host.root().join("report.html");
    for _ in 0..2 {
        let page = page.to_str().expect("text");
        let ran = host.run(["compare", "--engines", "legacy", "--budget", "8k", "--html", page, path]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    assert!(fs::read_to_string(&page).expect("a page").starts_with("<!doctype html>"));
}

#[test]
fn one_file_by_two_paths_is_no_more_evidence_than_by_one() {
    let host = TestHost::new();
    let session = workspace().join("cli/demo/session.jsonl");
    let path = session.to_str().expect("text");
    let once = host.run(["compare", "--engines", "legacy", "--budget", "8k", "--json", path]);
    let twice = host.run(["compare", "--engines", "legacy", "--budget", "8k", "--json", path, path]);
    assert!(twice.err.contains("it was given before"), "{}", twice.err);
    assert_eq!(once.json()["pooled"][0]["measures"]["recall"], twice.json()["pooled"][0]["measures"]["recall"]);
    assert_eq!(twice.json()["sessions"].as_array().map(Vec::len), Some(1));
}
