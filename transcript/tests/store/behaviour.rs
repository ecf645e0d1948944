//! What the store does when nothing is wrong, and what it refuses.

use std::fs;

use context_engine_transcript::store::{NewEntry, SessionHeader, SessionStore};
use context_engine_transcript::{EntryPayload, TranscriptError};
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn a_session_is_made_once_for_its_owner_alone() {
    let place = Place::new();
    let file = place.file.with_file_name("a").join("b").join("s.jsonl");
    let header = SessionHeader {
        id: Some("s7".to_owned()),
        cwd: Some("/w".to_owned()),
        parent_session: Some("s6".to_owned()),
        extra: object(json!({ "systemPrompt": "S", "modelId": "m9", "id": "other", "cwd": "other", "version": 9 })),
    };
    let store = SessionStore::create(&file, header).expect("a session");
    assert_eq!((store.id(), store.leaf(), store.entries()), ("s7", None, 0));
    let shown = Value::Object(store.header().expect("a header").clone());
    let at = shown["timestamp"].as_str().expect("a date").to_owned();
    assert_eq!(
        fs::read_to_string(&file).expect("the file"),
        format!(
            "{{\"type\":\"session\",\"version\":3,\"id\":\"s7\",\"timestamp\":\"{at}\",\"cwd\":\"/w\",\"parentSession\":\"s6\",\
             \"systemPrompt\":\"S\",\"modelId\":\"m9\"}}\n"
        )
    );
    assert!(at.len() == "2026-01-05T08:00:00.000Z".len() && at.ends_with('Z'), "{at}");
    assert_eq!(store.context().expect("a context").model, Some((None, "m9".to_owned())));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(file.ancestors().skip(1).take(2).map(mode).collect::<Vec<_>>(), [0o700, 0o700]);
    }
    drop(store);
    let error = SessionStore::create(&file, SessionHeader::default()).expect_err("it is there");
    assert_eq!(
        told(&file, &error),
        "FILE: making the session: expected no file of this name, found one; open it, or choose another name"
    );
    let made = Place::new();
    let id = made.create().id().to_owned();
    assert_eq!((id.len(), id.as_bytes()[14]), (36, b'7'), "{id}");
    assert_eq!(made.open().id(), id);
}

#[test]
fn every_kind_of_entry_is_written_as_the_contract_says() {
    let place = Place::new();
    let mut store = place.create();
    let first = say(&mut store, "hi");
    let entries = vec![
        assistant("ho"),
        NewEntry::CustomMessage {
            custom_type: "note".to_owned(),
            content: json!("n"),
            display: true,
            details: Some(json!({ "x": 1 })),
        },
        NewEntry::Label { target_id: first.clone(), label: Some("start".to_owned()) },
        NewEntry::Label { target_id: first.clone(), label: None },
        NewEntry::Custom { custom_type: "t".to_owned(), data: Some(json!([1])) },
        NewEntry::ModelChange { provider: Some("p2".to_owned()), model_id: "m2".to_owned() },
        NewEntry::ThinkingLevelChange { thinking_level: "low".to_owned() },
        NewEntry::SessionInfo { name: Some("N".to_owned()) },
        NewEntry::BranchSummary { from_id: first.clone(), summary: "B".to_owned(), details: None },
        compaction("K", Some(&first)),
        NewEntry::Reset { reason: "new".to_owned(), first_kept_entry_id: None },
    ];
    let appended = store.append_all(entries).expect("room");
    let rest =
        appended.iter().map(|a| a.message.as_ref().map_or("-".to_owned(), |m| m.role_name())).collect::<Vec<_>>();
    assert_eq!(rest.join(" "), "assistant custom - - - - - - branchSummary compactionSummary -");
    let written = String::from_utf8(place.bytes()).expect("text");
    let mut shown: Vec<String> = Vec::new();
    for line in written.lines().skip(1) {
        let mut map = object(serde_json::from_str(line).expect("JSON"));
        let keys: Vec<&String> = map.keys().take(4).collect();
        assert_eq!(keys, ["type", "id", "parentId", "timestamp"]);
        map.retain(|key, _| !["id", "parentId", "timestamp"].contains(&key.as_str()));
        shown.push(Value::Object(map).to_string().replace(&first, "FIRST"));
    }
    assert_eq!(
        shown,
        [
            r#"{"type":"message","message":{"role":"user","content":"hi"}}"#,
            r#"{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"ho"}],"provider":"p","model":"m"}}"#,
            r#"{"type":"custom_message","customType":"note","content":"n","display":true,"details":{"x":1}}"#,
            r#"{"type":"label","targetId":"FIRST","label":"start"}"#,
            r#"{"type":"label","targetId":"FIRST"}"#,
            r#"{"type":"custom","customType":"t","data":[1]}"#,
            r#"{"type":"model_change","provider":"p2","modelId":"m2"}"#,
            r#"{"type":"thinking_level_change","thinkingLevel":"low"}"#,
            r#"{"type":"session_info","name":"N"}"#,
            r#"{"type":"branch_summary","fromId":"FIRST","summary":"B"}"#,
            r#"{"type":"compaction","summary":"K","firstKeptEntryId":"FIRST","tokensBefore":100,"tokensAfter":10}"#,
            r#"{"type":"reset","reason":"new"}"#,
        ]
    );
    for made in appended {
        let entry = store.entry(&made.id).expect("read").expect("there");
        assert_eq!(made.message.as_ref(), entry.message().or_else(|| entry.summary()));
    }
    assert_eq!(store.context().expect("a context").model, Some((Some("p2".to_owned()), "m2".to_owned())));
    agrees_with_importer(&store, None);
    drop(store);
    let (store, report) = place.open_report();
    agrees_with_importer(&store, Some(&report));
}

#[test]
fn context_begins_at_the_last_compaction_or_reset() {
    let place = Place::new();
    let mut store = place.create();
    let ids: Vec<String> = ["a", "b", "c"].map(|text| say(&mut store, text)).to_vec();
    assert_eq!(context(&store), "a b c");
    store.append(compaction("K1", Some(&ids[1]))).expect("room");
    assert_eq!(context(&store), "[K1] b c");
    say(&mut store, "d");
    store.append(compaction("K2", Some(&ids[2]))).expect("room");
    assert_eq!(context(&store), "[K2] c d");
    for nowhere in [None, Some("gone")] {
        store.append(compaction("K3", nowhere)).expect("room");
        assert_eq!(context(&store), "[K3]");
    }
    let kept = say(&mut store, "e");
    say(&mut store, "f");
    store.append(NewEntry::Reset { reason: "reset".to_owned(), first_kept_entry_id: Some(kept) }).expect("room");
    say(&mut store, "g");
    assert_eq!(context(&store), "e f g");
    let reset = NewEntry::Reset { reason: "new".to_owned(), first_kept_entry_id: None };
    store.append(reset).expect("room");
    assert_eq!(context(&store), "");
    agrees_with_importer(&store, None);
}

#[test]
fn pages_are_entries_of_the_active_branch_up_to_the_fence() {
    let place =
        Place::of_lines(&[HEADER, &line("a", ""), &line("b", "a"), &line("c", "a"), &line("d", "c"), &line("e", "d")]);
    let store = place.open();
    let page = |after, limit, before| match store.page(after, limit, before) {
        Ok(page) => {
            page.iter().map(|entry| entry["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>().join(" ")
        }
        Err(error) => told(&place.file, &error),
    };
    assert_eq!(page(None, 10, None), "a c d e");
    assert_eq!(page(None, 2, None), "a c");
    assert_eq!(page(Some("c"), 10, None), "d e");
    assert_eq!(page(Some("a"), 10, Some("e")), "c d");
    assert_eq!(page(Some("d"), 10, Some("c")), "");
    assert_eq!(page(Some("e"), 10, None), "");
    assert_eq!(page(None, usize::MAX, Some("a")), "");
    assert_eq!(page(Some("x"), 1, None), "FILE: Entry x not found; name an entry by its whole id");
    assert_eq!(page(None, 1, Some("b")), "FILE: Entry b not found on the active branch; name an entry by its whole id");
    assert_eq!(store.page(None, 1, None).expect("a page")[0]["message"], json!({ "role": "user", "content": "a" }));
}

#[test]
fn a_move_to_another_branch_is_an_entry_and_takes_nothing_away() {
    let place = Place::new();
    let mut store = place.create();
    let (a, b) = (say(&mut store, "a"), say(&mut store, "b"));
    let before = place.bytes();
    store.branch(Some(&b)).expect("there already");
    assert_eq!(place.bytes(), before);
    store.branch(Some(&a)).expect("an entry");
    assert_eq!(store.leaf(), Some(a.as_str()));
    let c = say(&mut store, "c");
    assert_eq!(branch(&store), format!("{a} {c}"));
    store.branch(None).expect("before the first");
    assert_eq!((store.leaf(), branch(&store).as_str()), (None, ""));
    drop(store);
    let mut store = place.open();
    assert_eq!(store.leaf(), None);
    let error = store.branch(Some("nowhere")).expect_err("no entry");
    assert_eq!(told(&place.file, &error), "FILE: Entry nowhere not found; name an entry by its whole id");
    let d = say(&mut store, "d");
    assert_eq!(branch(&store), d);
    store.branch(Some(&b)).expect("an entry");
    assert_eq!(context(&store), "a b");
    assert!(place.bytes().starts_with(&before));
    agrees_with_importer(&store, None);
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let place = Place::new();
    let mut store = place.create();
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let before = place.bytes();
    let no_role = NewEntry::Message(object(json!({ "content": "x" })));
    assert!(matches!(store.append(no_role), Err(TranscriptError::Message { .. })));
    let custom = |data| NewEntry::Custom { custom_type: "t".to_owned(), data: Some(data) };
    let error = store.append(custom(deep(130))).expect_err("too deep");
    assert_eq!(
        told(&place.file, &error),
        "FILE: appending an entry of type custom: expected members that are nested at most 120 deep; nothing was written"
    );
    let label = NewEntry::Label { target_id: "x".to_owned(), label: None };
    assert!(matches!(store.append(label), Err(TranscriptError::EntryNotFound { .. })));
    // One that fails takes the others with it.
    assert!(store.append_all(vec![user("a"), custom(deep(130))]).is_err());
    assert_eq!((place.bytes(), store.entries()), (before, 0));
    store.append(custom(deep(120))).expect("not too deep");
    let message = NewEntry::Message(object(json!({ "role": "toolResult", "content": "r", "details": deep(130) })));
    let made = store.append(message).expect("a message is brought into shape");
    drop(store);
    let (store, report) = place.open_report();
    agrees_with_importer(&store, Some(&report));
    assert_eq!(store.entry(&made.id).expect("read").expect("there").message(), made.message.as_ref());
}

/// A runtime serves sessions on several threads.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<SessionStore>();
};

#[test]
fn what_is_synced_is_what_was_written() {
    let place = Place::new();
    let mut store = place.create();
    say(&mut store, "a");
    let before = place.bytes();
    store.sync().expect("a disk");
    store.sync().expect("a disk");
    assert_eq!(place.bytes(), before);
}

#[test]
fn no_entries_are_no_write() {
    let place = Place::new();
    let mut store = place.create();
    let before = place.bytes();
    assert_eq!(store.append_all(Vec::new()).expect("nothing to write"), []);
    assert_eq!(place.bytes(), before);
}

#[test]
fn older_sessions_and_other_files_are_refused_and_left_alone() {
    let import = "make one of it first: `context-engine sessions import`";
    let no_session = |found: &str| {
        format!(
            "FILE: opening the session: expected the JSON lines of one session (OpenClaw's format, version 3), found {found}; {import}"
        )
    };
    let version = |version: u32| {
        format!(
            "FILE: opening the session: expected version 3 of the session format, found version {version}; an older one has to be imported first: `context-engine sessions import`"
        )
    };
    let second = r#"{"type":"session","version":3,"id":"s2"}"#;
    let v1 = r#"{"type":"session","id":"s","modelId":"m0"}"#;
    let v1_message = r#"{"type":"message","message":{"role":"user","content":"a"}}"#;
    let v2 = HEADER.replace(":3", ":2");
    let claude = r#"{"type":"user","uuid":"u","parentUuid":null,"message":{"role":"user","content":"x"}}"#;
    let codex = r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[]}}"#;
    for (lines, expected) in [
        (vec![v1, v1_message], version(1)),
        (vec![&v2, &line("a", "")], version(2)),
        (vec![&HEADER.replace(":3", ":4")], version(4)),
        (vec![v1_message], no_session("no header, and no entry of this format")),
        (vec![claude], no_session("no header, and no entry of this format")),
        (vec![codex], no_session("no header, and no entry of this format")),
        (vec!["notes", "more notes"], no_session("no line of this format")),
        (vec![r#"{"plugins": {"#, r#"}}"#], no_session("no line of this format")),
        (
            vec![HEADER, &line("a", ""), second, &line("b", "")],
            no_session(r#"the header of a second one, "s2", in line 3"#),
        ),
    ] {
        let place = Place::of_lines(&lines);
        let before = place.bytes();
        assert_eq!(place.error(), expected, "{lines:?}");
        assert_eq!(place.bytes(), before);
    }
    let place = Place::new();
    assert!(place.error().starts_with("FILE: cannot read the transcript: "), "{}", place.error());
    fs::create_dir(&place.file).expect("a folder");
    assert!(place.error().contains("expected a regular file, found a directory"), "{}", place.error());
    // Nothing is left beside what was no session.
    let beside = fs::read_dir(place.file.parent().expect("a folder")).expect("a folder").count();
    assert_eq!(beside, 1);
}

#[test]
fn a_header_that_comes_twice_is_one_session() {
    let place = Place::of_lines(&[HEADER, &line("a", ""), HEADER, &line("b", "a")]);
    let (store, report) = place.open_report();
    assert_eq!((store.id(), branch(&store).as_str()), ("s1", "a b"));
    agrees_with_importer(&store, Some(&report));
}

#[test]
fn lost_parents_circles_and_taken_ids_drop_nothing() {
    let leaf = |to: &str| format!(r#"{{"type":"leaf","id":"l","parentId":"c","targetId":{to}}}"#);
    let first_kept = r#"{"type":"compaction","id":"k","parentId":"b","summary":"s","firstKeptEntryId":"b"}"#;
    for (lines, expected) in [
        (vec![line("a", "gone"), line("b", "gone"), line("c", "b")], "a b c"),
        (vec![line("a", "a"), line("b", "d"), line("c", "b"), line("d", "c")], "a b c d"),
        (vec![line("a", ""), line("b", "a"), line("b", "b"), line("c", "b")], "a b b-2 c"),
        (vec![line("a", ""), line("b", "a"), first_kept.to_owned(), line("b", "k"), line("b", "b")], "a b k b-2 b-3"),
        (vec![line("a", ""), line("c", "b"), line("b", "a")], "a b"),
        (vec![line("a", ""), line("b", "a"), line("c", "b"), leaf("\"b\"")], "a b"),
        (vec![line("a", ""), line("b", "a"), line("c", "b"), leaf("\"gone\"")], "a b c l"),
        (vec![line("a", ""), line("b", "a"), line("c", "b"), leaf("null")], ""),
        (vec![line("a", ""), leaf("\"a\"").replace("\"l\"", "\"a\"")], "a a-2"),
    ] {
        let lines: Vec<&str> = std::iter::once(HEADER).chain(lines.iter().map(String::as_str)).collect();
        let place = Place::of_lines(&lines);
        let (mut store, report) = place.open_report();
        agrees_with_importer(&store, Some(&report));
        assert_eq!(branch(&store), expected, "{lines:?}");
        let id = say(&mut store, "next");
        assert_eq!(branch(&store), format!("{expected} {id}").trim());
        agrees_with_importer(&store, None);
    }
}

#[test]
fn blanks_carriage_returns_and_a_byte_order_mark_are_no_damage() {
    let text = format!("\u{feff}{HEADER}\r\n\r\n  {}  \r\n\t\n{}", line("a", ""), line("b", "a"));
    let place = Place::holding(&text);
    let (mut store, report) = place.open_report();
    agrees_with_importer(&store, Some(&report));
    assert_eq!((context(&store).as_str(), report.damaged_lines.len()), ("a b", 0));
    say(&mut store, "c");
    assert!(place.bytes().starts_with(format!("{text}\n{{").as_bytes()));
    drop(store);
    assert_eq!(context(&place.open()), "a b c");
}

#[test]
fn numbers_keep_their_digits() {
    let place = Place::new();
    let mut store = place.create();
    let message: Value =
        serde_json::from_str(r#"{"role":"user","content":"x","n":[1.50,12345678901234567890123]}"#).expect("JSON");
    let id = store.append(NewEntry::Message(object(message))).expect("room").id;
    drop(store);
    let entry = place.open().entry(&id).expect("read").expect("there");
    let EntryPayload::Message(message) = &entry.payload else { panic!("no message") };
    assert!(message.json.contains("[1.50,12345678901234567890123]"), "{}", message.json);
}

#[test]
fn an_entry_that_is_no_longer_there_is_an_error_and_no_guess() {
    let place = Place::of_lines(&[HEADER, &line("a", ""), &line("b", "a")]);
    let store = place.open();
    let bytes = String::from_utf8(place.bytes()).expect("text");
    place.put(bytes.replace("\"id\":\"b\"", "\"id\":\"x\""));
    let error = store.context().expect_err("another entry");
    assert!(matches!(&error, TranscriptError::EntryGone { id, .. } if id == "b"), "{error}");
    place.put(&bytes[..bytes.len() - 10]);
    assert!(matches!(store.entry("b"), Err(TranscriptError::EntryGone { .. })));
}
