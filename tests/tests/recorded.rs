//! Real recorded sessions through the command: every prompt of every call keeps the rules.
//!
//! Decision: the sessions are too large and not ours to keep in the repository; they are looked for beside it. What is
//! asserted holds for any session, so nothing of theirs stands here. One engine and budget per large file: a replay
//! without optimisation takes seconds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use context_engine_tests::build::{example, library_name, workspace};
use context_engine_tests::host::TestHost;
use context_engine_tests::prompts::check_prompt;
use context_engine_tests::skip;
use serde_json::Value;

/// Replays every session of the file and checks all prompts.
fn every_prompt_keeps_the_rules(file: &str, engine: &str, budget: u64) {
    let folder = workspace().join("../shared/transcripts");
    if !folder.is_dir() {
        return skip(file, "the folder of recorded sessions");
    }
    let host = TestHost::new();
    fs::copy(example("sliding-window"), host.plugins().join(library_name("sliding-window"))).expect("copied");
    let (session, dump) = (folder.join(file), host.root().join("dump"));
    let before = fs::metadata(&session).and_then(|meta| meta.modified()).expect("a session");
    let budget_text = budget.to_string();
    let path = |path: &Path| path.to_str().expect("a path that is text").to_owned();
    let (session, dumped) = (path(&session), path(&dump));
    let args = [
        "replay",
        &session,
        "--session",
        "all",
        "--engine",
        engine,
        "--budget",
        &budget_text,
        "--dump",
        &dumped,
        "--json",
    ];
    let ran = host.run(args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::metadata(&session).and_then(|meta| meta.modified()).expect("a session"), before);

    let reports = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("one JSON object per session"));
    let calls: Vec<Value> =
        reports.flat_map(|mut report| report["calls"].as_array_mut().map(std::mem::take)).flatten().collect();
    assert!(!calls.is_empty());
    for call in &calls {
        assert_eq!((&call["served_by"], &call["fallback"]), (&Value::from(engine), &Value::Null), "{call}");
        assert!(call["sent_tokens"].as_u64().is_some_and(|sent| sent <= budget), "{call}");
    }
    let mut prompts = 0;
    for session in fs::read_dir(&dump).expect("dumped").flatten() {
        for prompt in fs::read_dir(session.path()).expect("a folder per session").flatten() {
            let path = prompt.path();
            let prompt: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
            assert_eq!(check_prompt(&prompt, budget), Vec::<String>::new(), "{}", path.display());
            prompts += 1;
        }
    }
    assert_eq!(prompts, calls.len(), "a prompt per call");
}

#[test]
fn a_session_with_a_branch_and_a_compaction() {
    for (engine, budget) in [("legacy", 8_000), ("legacy", 32_000), ("sliding-window", 8_000)] {
        every_prompt_keeps_the_rules("openclaw-v3-shape.jsonl", engine, budget);
    }
}

#[test]
fn thinking_with_signatures() {
    for engine in ["legacy", "sliding-window"] {
        every_prompt_keeps_the_rules("pi-thinking-message.json", engine, 8_000);
    }
}

#[test]
fn a_long_session_of_few_turns() {
    every_prompt_keeps_the_rules("pi-large-session.jsonl", "legacy", 8_000);
}

#[test]
fn a_session_that_was_recorded_until_its_compaction() {
    every_prompt_keeps_the_rules("pi-before-compaction.jsonl", "sliding-window", 8_000);
}

#[test]
fn two_hundred_dialogues_of_one_file() {
    every_prompt_keeps_the_rules("taubench-gpt4o-airline.json", "legacy", 8_000);
}
