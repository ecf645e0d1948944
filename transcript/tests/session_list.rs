//! The list of sessions: what it says of each file of a folder, and how one is found by its id.

use std::fs;
use std::path::Path;

use context_engine_transcript::store::{SessionLock, SessionSummary, find, list, one_line, summary};
use context_engine_transcript::{EntryPayload, RecordedSession, TranscriptError, load};
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        fs::write(folder.path().join(name), content).expect("written");
    }
    folder
}

fn session(id: &str, minute: u32, lines: &str) -> String {
    format!(
        "{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"timestamp\":\"2026-01-05T08:00:00.000Z\",\"cwd\":\"/w\"}}\n\
         {{\"type\":\"message\",\"id\":\"a\",\"parentId\":null,\"timestamp\":\"2026-01-05T08:{minute:02}:00.000Z\",\
         \"message\":{{\"role\":\"user\",\"content\":\"first of {id}\"}}}}\n{lines}"
    )
}

/// The numbers of a summary, from a load of the whole file.
fn loaded(session: &RecordedSession) -> (String, u64, u64, u64, Option<String>) {
    let compactions = session.entries.iter().filter(|entry| matches!(entry.payload, EntryPayload::Compaction { .. }));
    (
        session.id.clone(),
        session.entries.len() as u64,
        session.counts.total_messages(),
        compactions.count() as u64,
        session.model.clone(),
    )
}

#[test]
fn a_session_is_told_in_one_line_of_facts() {
    let long = "word ".repeat(60);
    let lines = format!(
        r#"{{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-05T08:30:00.000Z","message":{{"role":"assistant","model":"m1","content":"{long}{}"}}}}
{{"type":"compaction","id":"k","parentId":"b","timestamp":"2026-01-05T08:31:00.000Z","summary":"s","firstKeptEntryId":"b","tokensBefore":9}}
{{"type":"message","id":"c","parentId":"a","timestamp":1767602040000,"message":{{"role":"assistant","model":"m2","content":"x"}}}}
{{"type":"session_info","id":"i","parentId":"c","name":" A  name\nof \u001b[31m its own "}}
{{"type":"leaf","id":"l","parentId":"i","targetId":"k"}}
"#,
        "x".repeat(5_000)
    );
    let folder = folder(&[("x.jsonl", &session("s1", 1, &lines))]);
    let path = folder.path().join("x.jsonl");
    let found = summary(&path).expect("a session");
    let expected = SessionSummary {
        path: path.clone(),
        bytes: fs::metadata(&path).expect("there").len(),
        id: "s1".into(),
        version: 3,
        name: Some("A name of \u{1b}[31m its own".into()),
        entries: 6,
        messages: 3,
        branches: 2,
        compactions: 1,
        first_ms: Some(1_767_600_060_000),
        last_ms: Some(1_767_602_040_000),
        model: Some("m1".into()),
        cwd: Some("/w".into()),
        ..SessionSummary::default()
    };
    assert_eq!(found, expected);
    let lock = SessionLock::acquire(&path).expect("free");
    assert_eq!(summary(&path).expect("a session").owner.map(|owner| owner.pid), Some(std::process::id()));
    drop(lock);
}

#[test]
fn the_newest_comes_first_and_what_is_no_session_last_with_its_reason() {
    let claude =
        r#"{"type":"user","uuid":"u","parentUuid":null,"sessionId":"c","message":{"role":"user","content":"hi"}}"#;
    let folder = folder(&[
        ("old.jsonl", &session("old", 1, "")),
        ("new.json", &session("new", 9, "garbage\n")),
        ("untimed.jsonl", r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"hi"}}"#),
        ("claude.jsonl", claude),
        ("chat.json", "[\n {\"role\": \"user\",\n \"content\": \"hi\"}\n]"),
        ("cut.json", "{\"role\": \"user\",\n \"content\": \"hi"),
        ("empty.jsonl", "\n"),
        ("notes.txt", "buy\nmilk"),
        ("two.jsonl", &(session("t1", 1, "") + &session("t2", 1, ""))),
        ("old.corrupt-2026-01-05T08-00-00-000Z-12345678.jsonl", &session("old", 1, "")),
        (".hidden.jsonl", &session("hidden", 1, "")),
        ("x.jsonl.part", "half"),
        ("x.jsonl.lock", "{}"),
    ]);
    fs::create_dir(folder.path().join("a folder.jsonl")).expect("made");
    let listed = list(folder.path()).expect("a folder");
    let told: Vec<String> = listed
        .iter()
        .map(|summary| {
            let name = summary.path.file_name().expect("a name").to_string_lossy();
            match &summary.not_a_session {
                None => format!(
                    "{name}: {} {:?} {:?}",
                    summary.id,
                    summary.name.as_deref().unwrap_or(""),
                    summary.findings.damaged_lines
                ),
                Some(reason) => format!("{name}: {reason}"),
            }
        })
        .collect();
    assert_eq!(
        told,
        [
            r#"new.json: new "first of new" [3]"#,
            r#"old.jsonl: old "first of old" []"#,
            r#"untimed.jsonl: untimed "hi" []"#,
            "chat.json: OpenAI chat messages; `context-engine sessions import` makes a session file of it",
            "claude.jsonl: Claude Code session; `context-engine sessions import` makes a session file of it",
            "cut.json: a damaged JSON document (EOF while parsing a string, line 2)",
            "empty.jsonl: an empty file",
            r"notes.txt: text that begins with `buy\nmilk`",
            "old.corrupt-2026-01-05T08-00-00-000Z-12345678.jsonl: the original that a repair has kept",
            "two.jsonl: a file of 2 sessions; `context-engine sessions import` makes a file of each",
        ]
    );
    assert!(matches!(list(Path::new("nowhere")), Err(TranscriptError::Read { .. })));
}

#[test]
fn a_session_is_found_by_its_id_or_a_beginning_of_it() {
    let header = r#"{"type":"ses"#;
    let torn = session("x", 1, "").lines().skip(1).map(|line| format!("{header}\n{line}\n")).collect::<String>();
    let folder = folder(&[
        ("a.jsonl", &session("0193-aa", 1, "")),
        ("b.jsonl", &session("0193-ab", 1, "")),
        ("c.jsonl", &session("0193", 1, "")),
        ("2026-01-05T08-00-00-000Z_torn.jsonl", &torn),
        ("d.jsonl", &session("double", 1, "")),
        ("e.jsonl", &session("double", 1, "")),
        ("a.corrupt-2026-01-05T08-00-00-000Z-12345678.jsonl", &session("0193-aa", 1, "")),
    ]);
    let found = |id: &str| match find(folder.path(), id) {
        Ok(path) => path.file_name().expect("a name").to_string_lossy().into_owned(),
        Err(TranscriptError::NoSession { found, .. }) => found.replace(&*folder.path().to_string_lossy(), "~"),
        Err(error) => panic!("{error}"),
    };
    for (id, file) in [
        ("0193-aa", "a.jsonl"),
        ("0193-ab", "b.jsonl"),
        ("0193", "c.jsonl"),
        ("torn", "2026-01-05T08-00-00-000Z_torn.jsonl"),
        ("to", "2026-01-05T08-00-00-000Z_torn.jsonl"),
        ("0193-a", "0193-aa, 0193-ab"),
        ("double", "~/d.jsonl, ~/e.jsonl"),
        ("zzz", "none of 6"),
        ("", "no id"),
    ] {
        assert_eq!(found(id), file, "{id}");
    }
    let error = find(folder.path(), "zzz").expect_err("unknown").to_string();
    assert!(error.ends_with("found none of 6; `context-engine sessions list` shows all"), "{error}");
}

#[test]
fn a_list_counts_what_a_load_counts() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo");
    let mut sessions = 0;
    for folder in [demo, recorded].iter().filter(|folder| folder.is_dir()) {
        for found in list(folder).expect("a folder") {
            if found.not_a_session.is_some() {
                continue;
            }
            sessions += 1;
            let imported = load(&found.path).expect("a session");
            assert_eq!(found.findings.warnings, imported.warnings, "{}", found.path.display());
            assert_eq!(found.findings.lost, imported.lost);
            let told = (found.id, found.entries, found.messages, found.compactions, found.model);
            assert_eq!(told, loaded(&imported.sessions[0]), "{}", found.path.display());
        }
    }
    assert!(sessions > 0);
}

#[test]
fn a_text_is_shown_by_its_beginning_on_one_line() {
    for (text, longest, line) in [
        ("", 5, ""),
        ("  a \n\n b\t", 5, "a b"),
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
        ("🔥🔥🔥", 2, "🔥…"),
        ("ab", 1, "…"),
    ] {
        assert_eq!(one_line(text, longest), line, "{text:?}");
    }
    let blanks = format!("a{}b", " ".repeat(100_000));
    assert_eq!(one_line(&blanks, 10), "a…");
}
