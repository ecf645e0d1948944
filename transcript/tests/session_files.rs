//! OpenClaw and pi session files in, entries, branches and histories out.

use context_engine_transcript::{
    Entry, EntryPayload, Format, History, HistoryOptions, ImportWarning, Imported, RecordedSession, Timestamp,
    load_bytes,
};

fn load(lines: &[&str]) -> Imported {
    load_bytes("2026-01-05T08-00-00-000Z_named.jsonl", lines.join("\n").as_bytes()).expect("a session")
}

fn session(lines: &[&str]) -> RecordedSession {
    load(lines).sessions.remove(0)
}

/// A user message `text` under `id`, child of `parent`.
fn user(id: &str, parent: &str, text: &str) -> String {
    format!(r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"user","content":"{text}"}}}}"#)
}

fn ids(entries: &[&Entry]) -> String {
    let ids: Vec<&str> = entries.iter().map(|e| e.id.as_str()).collect();
    ids.join(" ")
}

fn branch(session: &RecordedSession) -> String {
    ids(&session.active_branch())
}

/// `id:text` of each message, or `id:role` where there is no text; then what was skipped.
fn told(history: &History) -> String {
    let message = |m: &context_engine_transcript::Message| match m.text() {
        text if text.is_empty() => format!("{}:{}", m.id, m.role_name()),
        text => format!("{}:{text}", m.id),
    };
    let messages: Vec<String> = history.messages.iter().map(|m| message(m)).collect();
    format!("{} | {:?}", messages.join(" "), history.skipped)
}

const HONOR: HistoryOptions = HistoryOptions { honor_compactions: true };
const RAW: HistoryOptions = HistoryOptions { honor_compactions: false };
const HEADER: &str = r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-01-05T08:00:00.000Z","cwd":"/w","parentSession":"s0"}"#;

#[test]
fn every_kind_of_entry_is_read_or_kept() {
    let lines = [
        HEADER,
        r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-05T08:00:01.000Z","message":{"role":"user","content":"hi"},"idempotencyKey":"k"}"#,
        r#"{"type":"model_change","id":"b","parentId":"a","timestamp":1767600002000,"provider":"p","modelId":"m1"}"#,
        r#"{"type":"custom_message","id":"c","parentId":"b","customType":"note","content":"n","display":true,"details":{"x":1}}"#,
        r#"{"type":"branch_summary","id":"d","parentId":"c","fromId":"a","summary":"was there"}"#,
        r#"{"type":"branch_summary","id":"e","parentId":"d","fromId":"a","summary":" "}"#,
        r#"{"type":"custom","id":"f","parentId":"e","customType":"t","data":[1]}"#,
        r#"{"type":"brand_new","id":"g","parentId":"f","y":2}"#,
        r#"{"type":"message","id":"h","parentId":"g","message":{"role":"assistant","content":[],"provider":"openclaw","model":"mirror"}}"#,
        r#"{"type":"message","id":"i","parentId":"h","message":"no object"}"#,
        r#"{"type":"message","id":"j","parentId":"i","message":{"role":"hookMessage","content":"h","timestamp":5}}"#,
    ];
    let imported = load(&lines);
    assert_eq!(imported.format, Format::OpenClaw { version: 3 });
    assert_eq!((imported.warnings.len(), imported.lost), (0, 0));
    let session = &imported.sessions[0];
    assert_eq!((session.id.as_str(), session.cwd.as_deref(), session.model.as_deref()), ("s1", Some("/w"), Some("m1")));
    assert_eq!(session.meta["parentSession"], "s0");
    let shown: Vec<String> = session
        .entries
        .iter()
        .map(|e| match e.message() {
            Some(m) => format!("{} {} @{} {}", e.id, m.json, m.timestamp_ms, e.raw),
            None => format!("{} {} {}", e.id, e.kind(), e.raw),
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#"a {"role":"user","content":[{"type":"text","text":"hi"}]} @1767600001000 {"idempotencyKey":"k"}"#,
            r#"b model_change {"type":"model_change","id":"b","parentId":"a","timestamp":1767600002000,"provider":"p","modelId":"m1"}"#,
            r#"c {"role":"custom","customType":"note","content":[{"type":"text","text":"n"}],"display":true,"details":{"x":1},"timestamp":0} @0 {"type":"custom_message","id":"c","parentId":"b","customType":"note","content":"n","display":true,"details":{"x":1}}"#,
            r#"d {"role":"branchSummary","summary":"was there","fromId":"a","timestamp":0} @0 {"type":"branch_summary","id":"d","parentId":"c","fromId":"a","summary":"was there"}"#,
            r#"e branch_summary {"type":"branch_summary","id":"e","parentId":"d","fromId":"a","summary":" "}"#,
            r#"f custom {"type":"custom","id":"f","parentId":"e","customType":"t","data":[1]}"#,
            r#"g brand_new {"type":"brand_new","id":"g","parentId":"f","y":2}"#,
            r#"h {"role":"assistant","content":[],"provider":"openclaw","model":"mirror"} @0 "#,
            r#"i message {"type":"message","id":"i","parentId":"h","message":"no object"}"#,
            r#"j {"role":"custom","content":[{"type":"text","text":"h"}],"timestamp":5} @5 "#,
        ]
    );
    assert_eq!(session.entries[1].timestamp, Timestamp::Millis(1_767_600_002_000));
    let counts = &session.counts;
    assert_eq!((counts.records, counts.total_messages(), counts.total_skipped()), (11, 5, 6));
    assert_eq!(
        told(&session.history(RAW)),
        r#"a:hi c:n h:assistant j:h | {"branchSummary": 1, "branch_summary": 1, "brand_new": 1, "custom": 1, "message": 1, "model_change": 1}"#
    );
}

#[test]
fn big_numbers_changed_and_numbers_that_are_none_cost_the_record() {
    let call = |id: &str, arguments: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","message":{{"role":"assistant","content":[{{"type":"toolCall","id":"c","name":"f","arguments":{arguments}}}],"n":18446744073709551617}}}}"#
        )
    };
    let whole = r#"{"x":12345678901234567890123,"y":1e400,"z":-0.10,"w":1E5}"#;
    let imported = load(&[HEADER, &call("a", whole), &call("b", r#"{"x":NaN,"y":[-Infinity,"NaN"]}"#)]);
    let jsons: Vec<&str> =
        imported.sessions[0].entries.iter().filter_map(Entry::message).map(|m| m.json.as_str()).collect();
    // The digits stay; only an exponent has one spelling.
    let json = |arguments: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"toolCall","id":"c","name":"f","arguments":{arguments}}}],"n":18446744073709551617}}"#
        )
    };
    let kept = whole.replace("1e400", "1e+400").replace("1E5", "1e+5");
    assert_eq!(jsons, [json(&kept), json(r#"{"x":null,"y":[null,"NaN"]}"#)]);
    assert_eq!(imported.warnings, [ImportWarning::NoNumbers { lines: vec![3] }]);
    assert_eq!(imported.warnings[0].to_string(), "1 line with NaN or Infinity (3): read with null in place");
}

#[test]
fn version_1_is_linear_and_names_the_kept_entry_by_its_place() {
    let message = |text: &str| format!(r#"{{"type":"message","message":{{"role":"user","content":"{text}"}}}}"#);
    let session = session(&[
        r#"{"type":"session","id":"s","modelId":"m0"}"#,
        &message("a"),
        &message("b"),
        r#"{"type":"compaction","summary":"sum","firstKeptEntryIndex":2,"tokensBefore":9}"#,
        &message("c"),
    ]);
    assert_eq!(branch(&session), "m000001 m000002 m000003 m000004");
    assert_eq!(session.model.as_deref(), Some("m0"));
    assert_eq!(told(&session.history(RAW)), r#"m000001:a m000002:b m000004:c | {"compaction": 1}"#);
    assert_eq!(told(&session.history(HONOR)), r#"m000003:compactionSummary m000002:b m000004:c | {"compacted": 1}"#);
    let EntryPayload::Compaction { summary, tokens_before, message, .. } = &session.entries[2].payload else {
        panic!("no compaction")
    };
    assert_eq!((summary.as_str(), *tokens_before), ("sum", Some(9)));
    assert_eq!(message.json, r#"{"role":"compactionSummary","summary":"sum","tokensBefore":9,"timestamp":0}"#);
}

#[test]
fn honoring_compactions_keeps_the_last_boundary_only() {
    let kept = |first: &str| {
        session(&[
            HEADER,
            &user("a", "", "1").replace(r#""""#, "null"),
            r#"{"type":"compaction","id":"k1","parentId":"a","summary":"one"}"#,
            &user("b", "k1", "2"),
            &user("c", "b", "3"),
            &format!(
                r#"{{"type":"compaction","id":"k2","parentId":"c","summary":"two","firstKeptEntryId":"{first}"}}"#
            ),
            &user("d", "k2", "4"),
        ])
    };
    let skipped = r#"{"compacted": 2, "compaction": 1}"#;
    assert_eq!(told(&kept("c").history(HONOR)), format!("k2:compactionSummary c:3 d:4 | {skipped}"));
    for nowhere_before in ["gone", "d"] {
        let history = kept(nowhere_before).history(HONOR);
        assert_eq!(told(&history), r#"k2:compactionSummary d:4 | {"compacted": 3, "compaction": 1}"#);
    }
    assert_eq!(told(&kept("c").history(RAW)), r#"a:1 b:2 c:3 d:4 | {"compaction": 2}"#);
}

#[test]
fn a_reset_ends_what_came_before_only_when_asked() {
    let session = session(&[
        HEADER,
        &user("a", "", "1").replace(r#""""#, "null"),
        r#"{"type":"reset","id":"r","parentId":"a","reason":"new"}"#,
        &user("b", "r", "2"),
    ]);
    assert_eq!(told(&session.history(RAW)), r#"a:1 b:2 | {"reset": 1}"#);
    assert_eq!(told(&session.history(HONOR)), r#"b:2 | {"compacted": 1, "reset": 1}"#);
}

#[test]
fn the_tip_is_the_last_entry_or_where_a_leaf_entry_points() {
    let root = user("a", "", "1").replace(r#""""#, "null");
    let (left, right) = (user("b", "a", "2"), user("c", "a", "3"));
    let leaf = |to: &str| format!(r#"{{"type":"leaf","id":"l","parentId":"c","targetId":{to}}}"#);
    assert_eq!(branch(&session(&[HEADER, &root, &left, &right])), "a c");
    assert_eq!(branch(&session(&[HEADER, &root, &left, &right, &leaf("\"b\"")])), "a b");
    assert_eq!(branch(&session(&[HEADER, &root, &left, &right, &leaf("null")])), "");
    assert_eq!(branch(&session(&[HEADER, &root, &left, &right, &leaf("\"b\""), &user("d", "b", "4")])), "a b d");
    let history = session(&[HEADER, &root, &left, &right]).history(RAW);
    assert_eq!(told(&history), r#"a:1 c:3 | {"off-branch": 1}"#);
}

#[test]
fn lost_parents_circles_and_taken_ids_drop_nothing() {
    let lost = session(&[HEADER, &user("a", "gone", "1"), &user("b", "gone", "2"), &user("c", "b", "3")]);
    assert_eq!(branch(&lost), "a b c");
    assert_eq!(lost.counts.mended.get("lost parent"), Some(&2));

    let circle =
        session(&[HEADER, &user("a", "a", "1"), &user("b", "d", "2"), &user("c", "b", "3"), &user("d", "c", "4")]);
    assert_eq!(branch(&circle), "a b c d");

    let taken =
        session(&[HEADER, &user("a", "", "1"), &user("b", "a", "2"), &user("b", "b", "3"), &user("c", "b", "4")]);
    assert_eq!(branch(&taken), "a b b-2 c");
    assert_eq!(told(&taken.history(RAW)), "a:1 b:2 b-2:3 c:4 | {}");

    let nameless = session(&[HEADER, &user("", "", "1"), &user(" ", "", "2"), &user("m000001", "", "3")]);
    assert_eq!(branch(&nameless), "m000001 m000002 m000001-2");
}

#[test]
fn a_long_damaged_session_is_walked_in_linear_time() {
    let n = 20_000;
    let mut lines = vec![HEADER.to_owned()];
    // Every parent is missing, then every second one stands behind its child.
    lines.extend((0..n).map(|i| user(&format!("a{i}"), &format!("gone{i}"), "x")));
    lines.extend((0..n).map(|i| user(&format!("b{i}"), &format!("b{}", if i % 2 == 0 { i + 1 } else { i - 1 }), "x")));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(session(&lines).active_branch().len(), 2 * n);
}

#[test]
fn a_second_header_with_another_id_starts_another_session() {
    let imported = load(&[
        HEADER,
        &user("a", "", "1"),
        HEADER,
        &user("b", "a", "2"),
        r#"{"type":"session","version":3,"id":"s2"}"#,
        &user("a", "", "3"),
    ]);
    let told: Vec<String> = imported.sessions.iter().map(|s| format!("{} {}", s.id, told(&s.history(RAW)))).collect();
    assert_eq!(told, ["s1 a:1 b:2 | {}", "s2 a:3 | {}"]);
    assert_eq!(imported.sessions.iter().map(|s| s.counts.records).sum::<u64>(), 6);
}

#[test]
fn a_file_without_header_is_a_session_named_like_the_file() {
    let imported = load(&[&user("a", "", "1")]);
    assert_eq!(imported.format, Format::OpenClaw { version: 3 });
    assert_eq!(imported.sessions[0].id, "named");
    assert_eq!(imported.warnings, [ImportWarning::NoHeader]);
}
