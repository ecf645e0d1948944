//! `context-engine sessions` and what `doctor` says of sessions, as a person types them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use context_engine_tests::build::workspace;
use context_engine_tests::host::TestHost;
use context_engine_transcript::load_bytes;
use context_engine_transcript::store::SessionLock;
use serde_json::Value;

const HEADER: &str = r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-01-05T08:00:00.000Z","cwd":"/w","systemPrompt":"Be brief."}"#;
/// A turn with a call, a branch that was left, a compaction, and a turn behind it.
const SESSION: [&str; 10] = [
    HEADER,
    r#"{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-05T08:00:01.000Z","message":{"role":"user","content":"read <it>\nplease"}}"#,
    r#"{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-01-05T08:00:02.000Z","message":{"role":"assistant","model":"m1","content":[{"type":"text","text":"I do."},{"type":"toolCall","id":"c1","name":"read","arguments":{"path":"x"}}]}}"#,
    r#"{"type":"message","id":"a3","parentId":"a2","timestamp":"2026-01-05T08:00:03.000Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"read","content":"```\nwhole"}}"#,
    r#"{"type":"message","id":"b1","parentId":"a3","timestamp":"2026-01-05T08:00:04.000Z","message":{"role":"user","content":"left alone"}}"#,
    r#"{"type":"message","id":"a4","parentId":"a3","timestamp":"2026-01-05T08:00:05.000Z","message":{"role":"assistant","model":"m1","content":"done"}}"#,
    r#"{"type":"compaction","id":"k1","parentId":"a4","timestamp":"2026-01-05T08:00:06.000Z","summary":"It was read.","firstKeptEntryId":"a4","tokensBefore":99}"#,
    r#"{"type":"message","id":"a5","parentId":"k1","timestamp":"2026-01-05T08:00:07.000Z","message":{"role":"bashExecution","command":"ls","output":"x","exitCode":0}}"#,
    r#"{"type":"session_info","id":"i1","parentId":"a5","timestamp":"2026-01-05T08:00:08.000Z","name":"Red \u001b[31m name"}"#,
    r#"{"type":"message","id":"a6","parentId":"i1","timestamp":"2026-01-05T08:01:00.000Z","message":{"role":"user","content":"and now?"}}"#,
];

fn put(host: &TestHost, name: &str, content: &str) -> PathBuf {
    let folder = host.root().join("sessions");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), content).expect("written");
    folder.join(name)
}

/// A host with one session.
fn host() -> TestHost {
    let host = TestHost::new();
    put(&host, "one.jsonl", &(SESSION.join("\n") + "\n"));
    host
}

/// Lines of the session, 100 of them, with lines 7, 50 and 51 damaged (report D7).
fn damaged() -> String {
    let header = HEADER.replace("s1", "d7");
    let entry = |n: usize| {
        format!(
            r#"{{"type":"message","id":"e{n}","parentId":null,"timestamp":"2026-01-04T08:00:00.000Z","message":{{"role":"user","content":"{n}"}}}}"#
        )
    };
    let line = |n: usize| match n {
        1 => header.clone(),
        7 => "garbage".to_owned(),
        50 | 51 => r#"{"type":"message","id":"#.to_owned(),
        _ => entry(n),
    };
    (1..=100).map(|n| line(n) + "\n").collect()
}

const DAMAGE: &str = "3 damaged lines (7, 50, 51): 0 whole records recovered, 3 lost";

#[test]
fn every_command_has_help_with_examples() {
    let host = TestHost::new();
    for command in ["list", "show", "export", "repair", "import"] {
        let ran = host.run(["sessions", command, "--help"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        for words in ["Examples:", "--json", &format!("context-engine sessions {command}")] {
            assert!(ran.out.contains(words), "{command}: {}", ran.out);
        }
    }
    let ran = host.run(["sessions", "--help"]);
    assert!(
        ["list", "show", "export", "repair", "import", "CONTEXT_ENGINE_HOME"].iter().all(|word| ran.out.contains(word))
    );
}

#[test]
fn what_cannot_be_done_ends_with_2_and_says_why() {
    let host = host();
    put(&host, "other.jsonl", &SESSION.join("\n").replace("\"s1\"", "\"s2\""));
    let out = host.root().join("sessions/one.jsonl");
    let out = out.to_str().expect("text");
    for (args, words) in [
        (&["show", "zzz"][..], "expected an id, or a beginning of one that no other has, found none of 2"),
        (&["show", "s"], "found s1, s2"),
        (&["show", ""], "found no id"),
        (&["show", "nowhere/x.jsonl"], "nowhere/x.jsonl: cannot read the transcript"),
        (&["show", "s1", "--dir", "nowhere"], "nowhere: cannot read the transcript"),
        (&["show", "s1", "--entry", "a"], "found a1, a2, a3, a4, a5, a6; `context-engine sessions show --all`"),
        (&["show", "s1", "--entry", "zz"], "looking for the entry \"zz\""),
        (&["show", "s1", "--all", "--context"], "cannot be used with"),
        (&["list", "--dir", "nowhere"], "nowhere: cannot read the transcript"),
        (&["export", "s1"], "--format"),
        (&["export", "s1", "--format", "openai", "--all-branches"], "the format openai has no branches"),
        (&["export", "s1", "--format", "openclaw", "--out", out], "use --force to replace it"),
        (&["repair"], "<SESSION>"),
        (&["repair", "zzz"], "found none of 2"),
    ] {
        let ran = host.run([&["sessions"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:#?}");
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn sessions_are_listed_with_their_facts() {
    let host = TestHost::new();
    let ran = host.run(["sessions", "list"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.out.starts_with("no sessions in ") && ran.out.lines().count() == 1, "{}", ran.out);
    let path = put(&host, "one.jsonl", &SESSION.join("\n"));
    put(&host, "notes.txt", "buy milk");
    let ran = host.run(["sessions", "list"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let size = format!("{:.1} kB", fs::metadata(&path).expect("there").len() as f64 / 1e3);
    assert_eq!(
        ran.out.lines().collect::<Vec<_>>(),
        [
            "id  last entry        messages  branches      size  name".to_owned(),
            format!("s1  2026-01-05 08:01         7         2  {size:>8}  Red \\u{{1b}}[31m name"),
            "not a session file: notes.txt: text that begins with `buy milk`".to_owned(),
            "1 session".to_owned(),
        ]
    );
    let report = host.run(["sessions", "list", "--json"]);
    assert!(!report.out.contains('\u{1b}'), "{}", report.out);
    let report = report.json();
    let session = &report["sessions"][0];
    for (member, value) in [
        ("id", Value::from("s1")),
        ("version", 3.into()),
        ("name", "Red \u{1b}[31m name".into()),
        ("entries", 9.into()),
        ("messages", 7.into()),
        ("branches", 2.into()),
        ("compactions", 1.into()),
        ("first", "2026-01-05T08:00:01Z".into()),
        ("last", "2026-01-05T08:01:00Z".into()),
        ("model", "m1".into()),
        ("cwd", "/w".into()),
        ("owner", Value::Null),
        ("damaged", false.into()),
    ] {
        assert_eq!(session[member], value, "{member}");
    }
    assert_eq!((&report["damaged"], &report["others"][0]["bytes"]), (&0.into(), &8.into()));
}

#[test]
fn a_session_is_shown_by_id_beginning_name_and_file() {
    let host = host();
    let ran = host.run(["sessions", "show", "s1"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:#?}");
    let facts: Vec<&str> = ran.out.lines().take_while(|line| !line.is_empty()).collect();
    for fact in [
        "session   s1",
        "model     m1",
        "folder    /w",
        "system    a prompt of 9 characters",
        "tree      2 branches, 1 compaction",
    ] {
        assert!(facts.contains(&fact), "{fact}: {facts:#?}");
    }
    let rows: Vec<&str> = ran.out.lines().skip(facts.len() + 1).collect();
    let begins = |row: usize, words: &[&str]| {
        assert_eq!(rows[row].split_whitespace().collect::<Vec<_>>()[..words.len()], *words, "{rows:#?}")
    };
    begins(0, &["1", "a1", "user", "2026-01-05", "08:00"]);
    begins(1, &["2", "a2", "assistant"]);
    assert!(rows[0].ends_with("read <it> please") && rows[1].ends_with(r#"I do. -> read {"path":"x"}"#), "{rows:#?}");
    begins(4, &["5", "k1", "compaction"]);
    assert!(
        rows[5].ends_with("$ ls") && rows[6].contains("session_info") && rows[6].contains(r"Red \u{1b}[31m name"),
        "{rows:#?}"
    );
    assert!(rows[9].starts_with("8 entries on the active branch, "), "{rows:#?}");
    let file = host.root().join("sessions/one.jsonl");
    for named in ["s", "one", "one.jsonl", file.to_str().expect("text")] {
        let same = host.run(["sessions", "show", named]);
        assert_eq!((same.code, same.out.lines().count()), (0, ran.out.lines().count()), "{named}: {}", same.err);
    }
    let elsewhere = TestHost::new();
    let dir = host.root().join("sessions");
    assert_eq!(elsewhere.run(["sessions", "show", "s1", "--dir", dir.to_str().expect("text")]).code, 0);
}

#[test]
fn branches_the_context_and_one_entry_are_shown_when_asked_for() {
    let host = host();
    let ids = |args: &[&str]| {
        let report = host.run([&["sessions", "show", "s1", "--json"], args].concat()).json();
        let entries = report["entries"].as_array().expect("entries").clone();
        entries.iter().map(|entry| entry["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&[]), "a1 a2 a3 a4 k1 a5 i1 a6");
    assert_eq!(ids(&["--context"]), "k1 a4 a5 a6");
    assert_eq!(ids(&["--all"]), "a1 a2 a3 b1 a4 k1 a5 i1 a6");
    let tree = host.run(["sessions", "show", "s1", "--all"]).out;
    let row = |id: &str| tree.lines().find(|line| line.contains(&format!(" {id} "))).expect("a row").to_owned();
    assert!(row("a3").starts_with("*     3  a3 ") && row("b1").starts_with("      4    b1 "), "{tree}");
    let report = host.run(["sessions", "show", "s1", "--json"]).json();
    let entry = &report["entries"][2];
    assert_eq!(
        (&entry["kind"], &entry["role"], &entry["parentId"], &entry["time"], &entry["active"]),
        (&"message".into(), &"toolResult".into(), &"a2".into(), &"2026-01-05T08:00:03Z".into(), &true.into())
    );
    let tokens: u64 =
        report["entries"].as_array().expect("entries").iter().filter_map(|entry| entry["tokens"].as_u64()).sum();
    assert!(tokens > 30 && report["tokens"] == tokens, "{report}");
    let entry = host.run(["sessions", "show", "s1", "--entry", "a3"]).out;
    assert!(entry.ends_with("--- text of read (c1) ---\n```\nwhole\n"), "{entry}");
    assert!(entry.contains("place     3 of 8 on the active branch"), "{entry}");
    assert!(host.run(["sessions", "show", "s1", "--entry", "b"]).out.contains("place     on a branch that was left"));
    assert!(
        host.run(["sessions", "show", "s1", "--entry", "a2"])
            .out
            .contains("--- call of read (c1) ---\n{\n  \"path\": \"x\"\n}\n")
    );
    let whole = host.run(["sessions", "show", "s1", "--entry", "k1", "--json"]).json();
    assert_eq!(whole, serde_json::from_str::<Value>(SESSION[6]).expect("JSON"));
}

/// Report D7: whoever looks says the same numbers.
#[test]
fn d7_list_show_doctor_and_repair_say_the_same_numbers() {
    let host = host();
    let path = put(&host, "bad.jsonl", &damaged());
    for (args, code) in [
        (&["sessions", "list"][..], 1),
        (&["sessions", "show", "d7"], 1),
        (&["doctor", "--no-probe"], 1),
        (&["sessions", "repair", "d7", "--dry-run"], 1),
        (&["sessions", "repair", "--all", "--dry-run"], 1),
    ] {
        let ran = host.run(args);
        assert_eq!((ran.code, ran.out.matches(DAMAGE).count()), (code, 1), "{args:?}: {ran:#?}");
    }
    let findings = |args: &[&str], at: &str| {
        let report = host.run([args, &["--json"]].concat()).json();
        report.pointer(at).unwrap_or_else(|| panic!("{at}: {report}"))["findings"].clone()
    };
    let listed = findings(&["sessions", "list"], "/sessions/1");
    assert_eq!((&listed["damagedLines"], &listed["lost"]), (&serde_json::json!([7, 50, 51]), &3.into()));
    for (args, at) in [
        (&["sessions", "show", "d7"][..], "/summary"),
        (&["sessions", "repair", "d7", "--dry-run"], "/sessions/0"),
        (&["doctor", "--no-probe"], "/sessions/damaged/0"),
    ] {
        assert_eq!(findings(args, at), listed, "{args:?}");
    }
    let export = host.run(["sessions", "export", "d7", "--format", "openai"]);
    assert!(export.code == 1 && export.err.contains(DAMAGE), "{export:#?}");
    assert_eq!(fs::read_to_string(&path).expect("there"), damaged(), "so far, everybody only looked");

    let ran = host.run(["sessions", "repair", "--all"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.out.contains("bad.jsonl: repaired, 96 entries kept") && ran.out.contains(DAMAGE), "{}", ran.out);
    assert!(ran.out.ends_with("2 sessions: 1 damaged and repaired\n"), "{}", ran.out);
    let kept = fs::read_dir(host.root().join("sessions")).expect("a folder").flatten();
    let kept: Vec<PathBuf> =
        kept.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("bad.corrupt-")).collect();
    assert_eq!(fs::read_to_string(&kept[0]).expect("the original"), damaged());
    for args in [
        &["sessions", "list"][..],
        &["sessions", "repair", "d7"],
        &["sessions", "repair", "--all"],
        &["doctor", "--no-probe"],
    ] {
        let ran = host.run(args);
        assert_eq!((ran.code, ran.out.matches("damaged lines").count()), (0, 0), "{args:?}: {ran:#?}");
    }
}

/// Report A4: exactly one call, told by the doctor; the file stays as it is.
#[test]
fn a4_doctor_reports_a_call_without_a_result() {
    let host = TestHost::new();
    let killed = SESSION[..3].join("\n") + "\n";
    let path = put(&host, "killed.jsonl", &killed);
    let words = "1 tool call without a result: it is made whole whenever a prompt is built";
    for args in [
        &["doctor", "--no-probe"][..],
        &["sessions", "list"],
        &["sessions", "show", "s1"],
        &["sessions", "repair", "s1"],
    ] {
        for _ in 0..2 {
            let ran = host.run(args);
            assert_eq!((ran.code, ran.out.matches(words).count()), (0, 1), "{args:?}: {ran:#?}");
        }
    }
    let report = host.run(["doctor", "--no-probe", "--json"]).json();
    assert_eq!(report["sessions"]["unansweredCalls"], 1);
    assert_eq!(fs::read_to_string(&path).expect("there"), killed);
}

/// Report E2: who has a session open is named, and nobody who only looks is in the way.
#[test]
fn a_session_in_use_is_shown_with_its_owner_and_not_repaired() {
    let host = host();
    let path = put(&host, "bad.jsonl", &damaged());
    let lock = SessionLock::acquire(&path).expect("free");
    let owner = format!("(pid {})", std::process::id());
    let ran = host.run(["sessions", "list"]);
    assert!(ran.out.contains("in use by sessions_command") && ran.out.contains(&owner), "{}", ran.out);
    assert_eq!(host.run(["sessions", "list", "--json"]).json()["sessions"][1]["owner"]["pid"], std::process::id());
    assert!(host.run(["sessions", "show", "d7"]).out.contains(&owner));
    let ran = host.run(["sessions", "repair", "d7"]);
    assert!(
        ran.code == 2 && ran.err.contains("bad.jsonl: the session is in use by ") && ran.err.contains(&owner),
        "{ran:#?}"
    );
    let ran = host.run(["sessions", "repair", "--all", "--json"]);
    assert!(ran.code == 1 && ran.err.contains(&owner), "{ran:#?}");
    assert_eq!((&ran.json()["failed"], &ran.json()["damaged"]), (&1.into(), &0.into()));
    assert_eq!(fs::read_to_string(&path).expect("there"), damaged());
    drop(lock);
    assert_eq!(host.run(["sessions", "repair", "d7"]).code, 1);
}

#[test]
fn an_export_as_chat_messages_is_what_was_said() {
    let host = host();
    let ran = host.run(["sessions", "export", "s1", "--format", "openai"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let expected = serde_json::json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "read <it>\nplease"},
        {"role": "assistant", "content": "I do.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "```\nwhole"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "Ran `ls`\n```\nx\n```"},
        {"role": "user", "content": "and now?"},
    ]);
    assert_eq!(ran.json(), expected);
    let report = host.run(["sessions", "export", "s1", "--format", "openai", "--json"]).json();
    assert_eq!((&report["content"], &report["format"]), (&expected, &"openai".into()));
    // Read again, it is the same conversation.
    let demo = workspace().join("cli/demo/session.jsonl");
    let ran = host.run(["sessions", "export", demo.to_str().expect("text"), "--format", "openai"]);
    let again = load_bytes("demo.json", ran.out.as_bytes()).expect("chat messages").sessions.remove(0);
    let recorded = load_bytes("demo", &fs::read(&demo).expect("there")).expect("a session").sessions.remove(0);
    let told = |session: &context_engine_transcript::RecordedSession| {
        let messages = session.history(Default::default()).messages;
        let told = messages.iter().map(|message| {
            let calls: Vec<&str> = message.tool_calls().map(|call| call.text.as_str()).collect();
            format!("{} {} {calls:?} {}", message.role_name(), message.text(), message.tool_call_id)
        });
        told.filter(|told| told != "assistant  [] ").collect::<Vec<_>>()
    };
    assert_eq!(told(&again), told(&recorded));
}

#[test]
fn an_export_as_session_file_holds_the_active_branch_or_all() {
    let host = host();
    let exported = |more: &[&str]| {
        let ran = host.run([&["sessions", "export", "s1", "--format", "openclaw"], more].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        load_bytes("x", ran.out.as_bytes()).expect("a session").sessions.remove(0)
    };
    let recorded = load_bytes("x", SESSION.join("\n").as_bytes()).expect("a session").sessions.remove(0);
    let all = exported(&["--all-branches"]);
    assert_eq!((&all.entries, &all.system), (&recorded.entries, &Some("Be brief.".to_owned())));
    let branch: Vec<String> = exported(&[]).entries.iter().map(|entry| entry.id.clone()).collect();
    assert_eq!(branch, recorded.active_branch().iter().map(|entry| entry.id.clone()).collect::<Vec<_>>());
    let out = host.root().join("copy.jsonl");
    let args = ["sessions", "export", "s1", "--format", "openclaw", "--out", out.to_str().expect("text")];
    let ran = host.run(args);
    assert!(ran.code == 0 && ran.out.contains("copy.jsonl: openclaw, "), "{ran:#?}");
    assert_eq!(host.run(args).code, 2, "nothing is replaced unasked");
    assert_eq!(
        host.run([&args[..], &["--force", "--json"]].concat()).json()["bytes"],
        fs::metadata(&out).expect("there").len()
    );
    let names: BTreeSet<String> = fs::read_dir(host.root())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.ends_with(".part")), "{names:?}");
}

#[test]
fn an_export_as_markdown_can_be_read() {
    let host = host();
    let long: String = (0..30).map(|n| format!("line {n}\\n")).collect();
    let more = format!(
        r#"{{"type":"message","id":"l1","parentId":"a6","message":{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm"}},{{"type":"toolCall","id":"c2","name":"run","arguments":{{}}}}]}}}}
{{"type":"message","id":"l2","parentId":"l1","message":{{"role":"toolResult","toolCallId":"c2","toolName":"run","isError":true,"content":"{long}"}}}}
{{"type":"message","id":"l3","parentId":"l2","message":{{"role":"assistant","content":"\u001b[31m","stopReason":"aborted"}}}}"#
    );
    put(&host, "two.jsonl", &(SESSION.join("\n").replace("\"s1\"", "\"s2\"") + "\n" + &more));
    let out = host.run(["sessions", "export", "s2", "--format", "markdown"]).out;
    for part in [
        "# read \\<it> please\n\n- session: `s2`\n- model: `m1`\n- folder: `/w`\n",
        "<details><summary>System prompt (1 line)</summary>\n\n```\nBe brief.\n```\n\n</details>\n",
        "\n## User\n\n*2026-01-05 08:00*\n\nread \\<it>\nplease\n\n## Assistant\n",
        "\nI do.\n\n**Call 1** of `read`\n\n```json\n{\n  \"path\": \"x\"\n}\n```\n\n**Result of call 1 (read):**\n\n````\n```\nwhole\n````\n\ndone\n",
        "*2026-01-05 08:00: the conversation so far was compacted*\n\n<details><summary>Summary (1 line)</summary>\n",
        "\n## Command\n\n*2026-01-05 08:00*\n\n```sh\nls\n```\n\n**Output:**\n\n```\nx\n```\n",
        "<details><summary>Thinking (1 line)</summary>\n",
        "<details><summary>Result of call 2 (run), which failed (30 lines)</summary>\n\n```\nline 0\n",
        "\n\\u{1b}[31m\n\n*The reply was interrupted.*\n",
    ] {
        assert!(out.contains(part), "{part}\n--- is not in ---\n{out}");
    }
    assert!(!out.contains("left alone") && !out.contains('\u{1b}'), "{out}");
}

/// What only the replaced file held would be gone.
#[test]
fn force_replaces_neither_what_is_read_nor_what_somebody_has_open() {
    let host = TestHost::new();
    let file = put(&host, "s1.jsonl", &(SESSION.join("\n") + "\n"));
    let folder = host.root().join("sessions");
    let before = fs::read(&file).expect("a session");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (path, into) = (text(&file), text(&folder));
    for args in [
        vec!["sessions", "import", &path, "--out", &into, "--force"],
        vec!["sessions", "export", "s1", "--format", "markdown", "--out", &path, "--force"],
    ] {
        let ran = host.run(&args);
        assert!(ran.code == 2 && ran.err.contains("it is what the session is read from"), "{ran:#?}");
    }
    let elsewhere = host.root().join("open.jsonl");
    fs::copy(&file, &elsewhere).expect("copied");
    let lock = context_engine_transcript::store::SessionLock::acquire(&elsewhere).expect("the lock");
    let ran = host.run(["sessions", "export", "s1", "--format", "openclaw", "--out", &text(&elsewhere), "--force"]);
    assert!(ran.code == 2 && ran.err.contains(&format!("pid {}", std::process::id())), "{ran:#?}");
    drop(lock);
    assert_eq!((fs::read(&file).expect("there"), fs::read(&elsewhere).expect("there")), (before.clone(), before));
}
