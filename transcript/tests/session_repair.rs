//! Damaged session files: what a list says of them, what a repair makes of them, and that both agree with a load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use context_engine_transcript::store::{
    Findings, HeaderState, OpenReport, RepairOptions, SessionLock, SessionStore, SessionSummary, list, repair, summary,
};
use context_engine_transcript::{
    Format, HistoryOptions, ImportWarning, Imported, RecordedSession, TranscriptError, load, load_bytes,
};
use tempfile::TempDir;

const NAME: &str = "2026-01-05T08-00-00-000Z_named.jsonl";
const HEADER: &str = r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-01-05T08:00:00.000Z","cwd":"/w"}"#;
const NOW: RepairOptions = RepairOptions { dry_run: false };
const DRY: RepairOptions = RepairOptions { dry_run: true };

/// A user message of text `id`, child of `parent`.
fn record(id: &str, parent: &str) -> String {
    let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-05T08:00:01.000Z","message":{{"role":"user","content":"{id}"}},"beside":1.50}}"#
    )
}

/// `a`, `b`, … each child of the one before.
fn records(ids: &[&str]) -> Vec<String> {
    let parents = [""].iter().chain(ids);
    ids.iter().zip(parents).map(|(id, parent)| record(id, parent)).collect()
}

fn file(lines: &[&str]) -> Vec<u8> {
    (lines.join("\n") + "\n").into_bytes()
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new(content: &[u8]) -> Place {
        let place = Place { folder: tempfile::tempdir().expect("a folder") };
        fs::write(place.session(), content).expect("written");
        place
    }

    fn session(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).expect("a folder").join(NAME)
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect()
    }

    fn listed(&self) -> SessionSummary {
        let listed = list(self.folder.path()).expect("a folder");
        listed.into_iter().find(|summary| summary.path.ends_with(NAME)).expect("listed")
    }
}

fn one(imported: Imported) -> RecordedSession {
    let [session] = <[RecordedSession; 1]>::try_from(imported.sessions).expect("one session");
    session
}

/// What must be the same before and after: every entry, the branch and what a model would be sent.
fn told(session: &RecordedSession) -> (String, Vec<String>, Vec<String>, Vec<String>) {
    let entries = session.entries.iter().map(|entry| match entry.message() {
        Some(message) => format!("{} {} {} {:?} {}", entry.id, entry.kind(), message.json, entry.timestamp, entry.raw),
        None => format!("{} {} {:?}", entry.id, entry.kind(), entry.timestamp),
    });
    let branch = session.active_branch().iter().map(|entry| entry.id.clone()).collect();
    let context = session.history(HistoryOptions { honor_compactions: true }).messages;
    let context = context.iter().map(|message| message.json.clone()).collect();
    (session.id.clone(), entries.collect(), branch, context)
}

/// Lines a load warns of as damaged, and what it lost.
fn damage(imported: &Imported) -> (Vec<u64>, u64) {
    let lines = imported.warnings.iter().find_map(|warning| match warning {
        ImportWarning::DamagedLines { lines, .. } => Some(lines.clone()),
        _ => None,
    });
    (lines.unwrap_or_default(), imported.lost)
}

/// Repairs a file and holds the repair to what it promises; gives what was found.
fn repaired(content: &[u8]) -> (Findings, String) {
    let place = Place::new(content);
    let path = place.session();
    let before = load(&path).expect("a session");
    let (lines, lost) = damage(&before);
    let warnings = before.warnings.clone();
    let before = told(&one(before));

    let dry = repair(&path, DRY).expect("looked at");
    assert_eq!((dry.backup, fs::read(&path).expect("there").as_slice()), (None, content), "a look changes nothing");
    assert_eq!(place.names(), [NAME.to_owned()].into());
    assert_eq!((&dry.findings.damaged_lines, dry.findings.lost), (&lines, lost), "as a load counts");
    assert_eq!(dry.findings.warnings, warnings, "in a load's words");
    assert_eq!(place.listed().findings, dry.findings, "as the list counts");
    let (store, opened) = SessionStore::open(&path).expect("opened");
    assert_eq!((opened.damaged_lines, opened.lost), (lines, lost), "as the store counts");
    assert_eq!(opened.warnings, warnings);
    drop(store);

    let report = repair(&path, NOW).expect("repaired");
    assert_eq!(report.findings, dry.findings);
    let after = load(&path).expect("a session");
    assert_eq!(after.warnings, [], "{}", String::from_utf8_lossy(&fs::read(&path).expect("there")));
    assert_eq!(told(&one(after)), before);
    let (store, opened) = SessionStore::open(&path).expect("opened");
    assert_eq!(
        (opened, store.branch_ids().iter().map(|id| id.to_string()).collect()),
        (OpenReport::default(), before.2.clone())
    );
    drop(store);
    assert_eq!(report.entries as usize, before.1.len());
    match &report.backup {
        None => {
            assert_eq!((fs::read(&path).expect("there").as_slice(), report.findings.is_damaged()), (content, false))
        }
        Some(backup) => {
            assert_eq!(fs::read(backup).expect("kept"), content, "the original is kept whole");
            let name = backup.file_name().expect("a name").to_string_lossy().into_owned();
            let middle = name.strip_prefix("2026-01-05T08-00-00-000Z_named.corrupt-20").expect("named after it");
            assert!(
                middle.ends_with(".jsonl") && middle.len() == "26-01-05T08-00-00-000Z-12345678.jsonl".len(),
                "{name}"
            );
            assert_eq!(place.names(), [NAME.to_owned(), name].into(), "nothing else is left");
            let kept = summary(backup).expect("listed");
            assert_eq!(kept.not_a_session.as_deref(), Some("the original that a repair has kept"));
        }
    }
    let text = fs::read_to_string(&path).expect("text");
    let again = repair(&path, NOW).expect("looked at");
    assert_eq!((again.backup, again.findings.is_damaged()), (None, false), "what was repaired is sound");
    assert_eq!(fs::read_to_string(&path).expect("text"), text);
    (report.findings, text)
}

#[test]
fn a_sound_file_is_not_touched() {
    let lines = [HEADER, &record("a", ""), &record("b", "a")];
    for content in [file(&lines), lines.join("\r\n\r\n").into_bytes(), file(&lines[..1])] {
        let (findings, _) = repaired(&content);
        assert_eq!(findings, Findings::default());
    }
    let place = Place::new(&file(&lines));
    let _lock = SessionLock::acquire(&place.session()).expect("free");
    assert!(repair(&place.session(), NOW).is_ok_and(|report| report.backup.is_none()), "nobody is kept from it");
}

#[test]
fn d1_records_behind_a_run_of_nul_bytes_are_kept() {
    let nul = "\0".repeat(600);
    let lines =
        [HEADER, &record("a", ""), &format!("{nul}{}", record("b", "a")), &record("c", "b"), &"\0".repeat(143_000)];
    let (findings, text) = repaired(lines.join("\n").as_bytes());
    assert_eq!((findings.damaged_lines, findings.recovered, findings.lost), (vec![3, 5], 1, 0));
    assert_eq!(text.as_bytes(), file(&[HEADER, &record("a", ""), &record("b", "a"), &record("c", "b")]));
}

#[test]
fn d2_a_record_behind_a_cut_one_and_two_on_one_line_are_kept() {
    let cut =
        r#"{"type":"message","id":"a","parentId":"z","message":{"role":"user","content":[{"type":"text","text":"hel"#;
    let glued = format!("{}{}", record("c", "b"), record("d", "c"));
    let (findings, text) = repaired(&file(&[HEADER, &record("z", ""), &format!("{cut}{}", record("b", "a")), &glued]));
    assert_eq!((findings.damaged_lines, findings.recovered, findings.lost), (vec![3, 4], 3, 1));
    assert_eq!(findings.lost_parents, 1, "a");
    let lines = [HEADER, &record("z", ""), &record("b", "z"), &record("c", "b"), &record("d", "c")];
    assert_eq!(text.as_bytes(), file(&lines), "b hangs on what stood before a");
}

#[test]
fn d3_a_damaged_header_costs_nothing_but_itself() {
    let names: Vec<String> = (0..50).map(|i| format!("e{i}")).collect();
    let fifty = records(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let lines: Vec<&str> = [r#"{"type":"ses"#].into_iter().chain(fifty.iter().map(String::as_str)).collect();
    let (findings, text) = repaired(&file(&lines));
    assert_eq!((findings.header, findings.damaged_lines), (HeaderState::Missing, vec![1]));
    let header = r#"{"type":"session","version":3,"id":"named","timestamp":"2026-01-05T08:00:01.000Z"}"#;
    let lines: Vec<&str> = [header].into_iter().chain(fifty.iter().map(String::as_str)).collect();
    assert_eq!(text.as_bytes(), file(&lines), "the id in the file's name is kept, and all 50 entries");
    // Without any header, and with one that stands behind an entry.
    let (findings, _) = repaired(&file(&lines[1..]));
    assert_eq!(
        (findings.header, findings.told()),
        (HeaderState::Missing, vec!["no session header: the id was taken from the file's name".to_owned()])
    );
    let (findings, text) = repaired(&file(&[&record("a", ""), HEADER, &record("b", "a")]));
    assert_eq!(findings.header, HeaderState::Later);
    assert_eq!(text.as_bytes(), file(&[HEADER, &record("a", ""), &record("b", "a")]));
}

#[test]
fn d5_half_a_surrogate_pair_and_bytes_that_are_no_text_cost_themselves_alone() {
    let half = record("a", "").replace(r#""a"},"beside"#, r#""\ud83d\udd25\ud83d…"},"beside"#);
    let mut content = file(&[HEADER, &half, &record("b", "a"), &record("c", "b").replace("1.50", "NaN"), ""]);
    let at = content.windows(4).position(|bytes| bytes == b"\"b\"}").expect("its text");
    content[at + 1] = 0xff;
    let (findings, text) = repaired(&content);
    assert_eq!((findings.damaged_lines.len(), findings.replaced_lines), (0, vec![2, 3, 4]));
    assert!(
        text.contains("🔥\u{fffd}…") && text.contains("\"content\":\"\u{fffd}\"") && text.contains("\"beside\":null"),
        "{text}"
    );
}

#[test]
fn d7_damaged_lines_have_the_same_numbers_everywhere() {
    let names: Vec<String> = (2..=100).map(|line| format!("e{line}")).collect();
    let mut lines: Vec<String> =
        [HEADER.to_owned()].into_iter().chain(records(&names.iter().map(String::as_str).collect::<Vec<_>>())).collect();
    for (line, text) in [(7, "garbage"), (50, r#"{"type":"message","id":"#), (51, r#"{"type":"message","id":"#)] {
        lines[line - 1] = text.to_owned();
    }
    let (findings, _) = repaired(&file(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(findings.damaged_lines, [7, 50, 51]);
    assert_eq!(
        findings.told(),
        [
            "3 damaged lines (7, 50, 51): 0 whole records recovered, 3 lost",
            "2 entries whose parent is lost: hung on the entry before"
        ]
    );
}

/// Report A4: a call nobody answered is told, and nothing is written.
#[test]
fn a4_a_call_without_a_result_is_counted_and_the_file_stays_as_it_is() {
    let call = |id: &str, parent: &str, call: &str, more: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"assistant","content":[{{"type":"toolCall","id":"{call}","name":"read","arguments":{{}}}}]{more}}}}}"#
        )
    };
    let result = |id: &str, parent: &str, call: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"toolResult","toolCallId":"{call}","toolName":"read","content":[]}}}}"#
        )
    };
    let unanswered = |lines: &[&str]| {
        let (findings, _) = repaired(&file(&[&[HEADER, &record("u", "")], lines].concat()));
        assert!(!findings.is_damaged());
        findings.unanswered_calls
    };
    let (first, answer) = (call("a", "u", "c1", ""), result("r", "a", "c1"));
    assert_eq!(unanswered(&[&first]), 1);
    assert_eq!(unanswered(&[&first, &record("u2", "a")]), 1);
    assert_eq!(unanswered(&[&first, &answer]), 0);
    assert_eq!(unanswered(&[&first, &record("u2", "a"), &result("r", "u2", "c1")]), 0, "a late one");
    assert_eq!(unanswered(&[&first, &answer, &call("b", "r", "c1", "")]), 1, "an id that comes again");
    assert_eq!(unanswered(&[&call("a", "u", "c1", r#","stopReason":"aborted""#)]), 0, "it is not sent");
    assert_eq!(unanswered(&[&first, &record("v", "u")]), 0, "on a branch that was left");
    let summary = r#"{"type":"compaction","id":"k","parentId":"a","summary":"s","firstKeptEntryId":"k"}"#;
    assert_eq!(unanswered(&[&first, summary]), 0, "behind a summary");
    assert_eq!(unanswered(&[&call("a", "u", "", ""), &result("r", "a", "")]), 0, "without ids");
    assert_eq!(unanswered(&[&first, &result("r", "a", "other")]), 1);
}

#[test]
fn lost_parents_double_and_missing_ids_and_circles_are_settled_as_a_load_settles_them() {
    let compaction =
        r#"{"type":"compaction","id":"k","parentId":"b","summary":"s","firstKeptEntryId":"b","tokensBefore":7}"#;
    let leaf = r#"{"type":"leaf","id":"l","parentId":"k","targetId":"b"}"#;
    let no_id = r#"{"type":"message","message":{"role":"user","content":"x"}}"#;
    for (lines, expected) in [
        // The id comes again: later references mean the later one.
        (vec![record("a", ""), record("b", "a"), record("b", "b"), compaction.into()], (0, 1, 0)),
        (vec![record("a", ""), record("b", "a"), record("b", "a"), compaction.into(), leaf.into()], (0, 1, 0)),
        (vec![record("a", ""), record("a", ""), record("a", "a")], (0, 2, 0)),
        (vec![record("a", "gone"), record("b", "a"), record("c", "lost"), record("d", "c")], (2, 0, 0)),
        // Off the active branch, too.
        (vec![record("a", ""), record("b", "lost"), record("c", "b"), record("d", "a")], (1, 0, 0)),
        (vec![record("a", ""), no_id.into(), record("b", "m000002")], (0, 0, 1)),
        (vec![record("a", "c"), record("b", "a"), record("c", "b")], (1, 0, 0)),
        (vec![record("a", ""), record("b", "b")], (1, 0, 0)),
    ] {
        let lines: Vec<&str> = [HEADER].into_iter().chain(lines.iter().map(String::as_str)).collect();
        let (found, text) = repaired(&file(&lines));
        assert_eq!((found.lost_parents, found.duplicate_ids, found.missing_ids), expected, "{lines:#?}\n{text}");
        assert!(text.contains(r#""beside":1.50"#), "the rest of a record stays: {text}");
    }
}

/// Half of a rewrite is no tip, before a repair and after it.
#[test]
fn what_is_left_of_a_rewrite_that_was_cut_off_does_not_become_the_branch() {
    let begun = |id: &str, parent: &str| record(id, parent).replace(r#""beside":1.50"#, r#""rewriteContinues":true"#);
    for parent in ["a", "lost"] {
        let lines = [HEADER, &record("a", ""), &record("b", "a"), "garbage", &begun("a2", parent), &begun("b2", "a2")];
        let place = Place::new(&file(&lines));
        repair(&place.session(), NOW).expect("repaired");
        let session = one(load(&place.session()).expect("a session"));
        let branch: Vec<&str> = session.active_branch().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(branch, ["a", "b"]);
    }
}

#[test]
fn a_file_cut_at_any_byte_loses_nothing_whole() {
    let call = r#"{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":[{"type":"toolCall","id":"t","name":"é🔥","arguments":{"x":[1,{"y":"\ud83d\udd25"}]}}]}}"#;
    let content = file(&[HEADER, &record("a", ""), &record("b", "a"), call, &record("d", "c")]);
    // Before that there is nothing whole.
    for length in HEADER.len()..content.len() {
        repaired(&content[..length]);
    }
}

#[test]
fn any_byte_that_changes_is_repaired_or_refused() {
    let call = r#"{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":[{"type":"toolCall","id":"t","name":"é🔥","arguments":{"x":[1,{"y":"\ud83d\udd25"}]}}]}}"#;
    let leaf = r#"{"type":"leaf","id":"l","parentId":"c","targetId":"a"}"#;
    let content =
        file(&[HEADER, &record("a", ""), &record("b", "a"), call, leaf, &record("d", "a"), &record("e", "d")]);
    let mut settled = 0;
    for (at, byte) in (0..content.len()).step_by(3).zip([b'\0', b'"', b'\n', 0xff, b'b'].into_iter().cycle()) {
        let mut changed = content.clone();
        changed[at] = byte;
        match load_bytes(NAME, &changed) {
            Ok(Imported { format: Format::OpenClaw { version: 3 }, sessions, .. }) if sessions.len() == 1 => {
                repaired(&changed);
                settled += 1;
            }
            _ => {
                let refused = repair(&Place::new(&changed).session(), NOW);
                assert!(refused.is_err() || refused.is_ok_and(|report| report.backup.is_none()));
            }
        }
    }
    assert!(settled > content.len() / 4, "most are sessions still: {settled}");
}

#[test]
fn a_session_in_use_is_not_repaired() {
    let content = file(&[HEADER, "garbage", &record("a", "")]);
    let place = Place::new(&content);
    let lock = SessionLock::acquire(&place.session()).expect("free");
    let Err(TranscriptError::Locked { owner, .. }) = repair(&place.session(), NOW) else { panic!("it is in use") };
    assert!(owner.ends_with(&format!("(pid {})", std::process::id())), "{owner}");
    assert_eq!(fs::read(place.session()).expect("there"), content);
    assert!(repair(&place.session(), DRY).is_ok(), "looking is free");
    assert_eq!(place.listed().owner.map(|owner| owner.pid), Some(std::process::id()));
    drop(lock);
    assert!(repair(&place.session(), NOW).is_ok());
}

#[test]
fn what_is_no_session_file_is_refused_with_what_to_do() {
    let v1 = r#"{"type":"session","id":"s","cwd":"/w"}"#;
    let entry = r#"{"type":"message","message":{"role":"user","content":"x"}}"#;
    let other = HEADER.replace("s1", "s2");
    for (content, words) in [
        (file(&[v1, entry, "garbage"]), "expected version 3 of the session format, found version 1"),
        (
            file(&[HEADER, &record("a", ""), &other, &record("b", "")]),
            "found a file of 2 sessions; `context-engine sessions import`",
        ),
        (
            b"[{\"role\":\"user\",\"content\":\"x\"}]".to_vec(),
            "found OpenAI chat messages; `context-engine sessions import`",
        ),
        (b"once upon a time".to_vec(), "found text that begins with `once upon a time`"),
        (b"".to_vec(), "found an empty file"),
    ] {
        let place = Place::new(&content);
        let error = repair(&place.session(), NOW).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains('\n'));
        assert_eq!((fs::read(place.session()).expect("there"), place.names().len()), (content, 1));
    }
    assert!(matches!(repair(Path::new("nowhere.jsonl"), NOW), Err(TranscriptError::Read { .. })));
}

#[cfg(unix)]
#[test]
fn the_file_behind_a_link_is_repaired_and_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(&file(&[HEADER, "garbage", &record("a", "")]));
    fs::set_permissions(place.session(), fs::Permissions::from_mode(0o640)).expect("set");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let link = elsewhere.path().join("link.jsonl");
    std::os::unix::fs::symlink(place.session(), &link).expect("linked");
    let report = repair(&link, NOW).expect("repaired");
    assert_eq!(report.path, place.session());
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink() && load(&link).is_ok_and(|new| new.lost == 0));
    let mode = fs::metadata(place.session()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}
