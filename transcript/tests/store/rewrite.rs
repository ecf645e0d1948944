//! Messages replaced in a session (contract, 5.3, and its tests 43 to 45).

use context_engine_transcript::EntryPayload;
use context_engine_transcript::store::{NewEntry, Rewrite, SessionStore};
use serde_json::{Map, Value, json};

use crate::support::*;

fn user_map(text: &str) -> Map<String, Value> {
    object(json!({ "role": "user", "content": text }))
}

fn rewrite(store: &mut SessionStore, replacements: &[(&str, &str)]) -> Rewrite {
    let replacements: Vec<_> = replacements.iter().map(|(id, text)| ((*id).to_owned(), user_map(text))).collect();
    store.rewrite(&replacements).unwrap_or_else(|error| panic!("{error}"))
}

/// Four messages of a user, `1` to `4`.
fn four() -> (Place, SessionStore, Vec<String>) {
    let place = Place::new();
    let mut store = place.create();
    let ids = ["1", "2", "3", "4"].map(|text| say(&mut store, text)).to_vec();
    (place, store, ids)
}

#[test]
fn contract_43_a_rewrite_of_entry_2_of_4_writes_2_to_4_again_below_1() {
    let (place, mut store, old) = four();
    let before = place.bytes();
    let long = say(&mut store, "a long text");
    store.branch(Some(&old[3])).expect("an entry");
    let done = rewrite(&mut store, &[(&old[1], "two")]);
    assert_eq!((done.changed, done.rewritten, done.bytes_freed, done.reason), (true, 1, 0, None));
    assert_eq!(done.new_ids.len(), 3);
    let new: Vec<&str> = store.branch_ids();
    assert_eq!(new[0], old[0]);
    assert_eq!(new[1..], old[1..].iter().map(|old| done.new_ids[old].as_str()).collect::<Vec<_>>());
    let parents = new.iter().map(|id| store.entry(id).expect("read").expect("there").parent_id);
    assert_eq!(
        parents.collect::<Vec<_>>(),
        [None, Some(new[0]), Some(new[1]), Some(new[2])].map(|id| id.map(str::to_owned))
    );
    assert_eq!(context(&store), "1 two 3 4");
    for (id, text) in old.iter().zip(["1", "2", "3", "4"]).chain([(&long, "a long text")]) {
        let entry = store.entry(id).expect("read").expect("still there");
        assert_eq!(entry.message().expect("a message").text(), text);
    }
    assert!(place.bytes().starts_with(&before));
    agrees_with_importer(&store, None);
    drop(store);
    let mut store = place.open();
    assert_eq!(context(&store), "1 two 3 4");
    store.branch(Some(&long)).expect("an entry");
    let done = rewrite(&mut store, &[(&long, "short"), (&old[0], "one and more")]);
    assert_eq!((done.rewritten, done.bytes_freed), (2, 6));
    assert_eq!(context(&store), "one and more 2 3 4 short");
    agrees_with_importer(&store, None);
}

#[test]
fn contract_44_nothing_to_replace_is_said_in_the_contracts_words() {
    let (place, mut store, old) = four();
    let before = place.bytes();
    let mut reason = |replacements: &[(&str, &str)]| {
        let done = rewrite(&mut store, replacements);
        assert_eq!((done.changed, done.rewritten, done.bytes_freed, done.new_ids.len()), (false, 0, 0, 0));
        done.reason.expect("a reason")
    };
    assert_eq!(reason(&[]), "no replacements requested");
    assert_eq!(reason(&[(" ", "x"), ("", "y")]), "no replacements requested");
    assert_eq!(reason(&[(&old[1], "2")]), "no changed matching message entries");
    assert_eq!(reason(&[("nowhere", "2")]), "no changed matching message entries");
    // The last of two counts.
    assert_eq!(reason(&[(&old[1], "x"), (&old[1], "2")]), "no changed matching message entries");
    assert_eq!(place.bytes(), before);
    store.branch(None).expect("before the first");
    assert_eq!(rewrite(&mut store, &[(&old[1], "x")]).reason.as_deref(), Some("empty session"));
    // Not on the active branch.
    store.branch(Some(&old[0])).expect("an entry");
    let reason = rewrite(&mut store, &[(&old[1], "x")]).reason;
    assert_eq!(reason.as_deref(), Some("no changed matching message entries"));
}

#[test]
fn only_messages_are_replaced() {
    let (_place, mut store, old) = four();
    let summary = store.append(compaction("K", Some(&old[2]))).expect("room").id;
    let note =
        NewEntry::CustomMessage { custom_type: "n".to_owned(), content: json!("n"), display: true, details: None };
    let note = store.append(note).expect("room").id;
    let done = rewrite(&mut store, &[(&summary, "x"), (&note, "x")]);
    assert_eq!(done.reason.as_deref(), Some("no changed matching message entries"));
    let no_role = object(json!({ "content": "x" }));
    assert!(store.rewrite(&[(old[3].clone(), no_role)]).is_err());
    assert_eq!(context(&store), "[K] 3 4 n");
}

#[test]
fn contract_45_what_refers_to_a_rewritten_entry_refers_to_the_new_one() {
    let (place, mut store, old) = four();
    let label = |target: &str| NewEntry::Label { target_id: target.to_owned(), label: Some("L".to_owned()) };
    let kept_before = store.append(compaction("K1", Some(&old[0]))).expect("room").id;
    let kept_within = store.append(compaction("K2", Some(&old[2]))).expect("room").id;
    let labels = store.append_all(vec![label(&old[0]), label(&old[3])]).expect("room");
    let summary = NewEntry::BranchSummary { from_id: old[3].clone(), summary: "B".to_owned(), details: None };
    let summary = store.append(summary).expect("room").id;
    let kept_before_again = store.append(compaction("K3", Some(&old[0]))).expect("room").id;
    let reset = NewEntry::Reset { reason: "new".to_owned(), first_kept_entry_id: Some(old[2].clone()) };
    let reset = store.append(reset).expect("room").id;
    let done = rewrite(&mut store, &[(&old[1], "two")]);
    let now = |id: &String| store.entry(&done.new_ids[id]).expect("read").expect("there");
    let kept = |id: &String| match now(id).payload {
        EntryPayload::Compaction { first_kept_entry_id, .. } | EntryPayload::Reset { first_kept_entry_id } => {
            first_kept_entry_id
        }
        _ => None,
    };
    let member = |id: &String, key: &str| {
        serde_json::from_str::<Value>(&now(id).raw).expect("JSON")[key].as_str().expect("an id").to_owned()
    };
    assert_eq!(kept(&kept_before).as_ref(), Some(&old[0]));
    assert_eq!(kept(&kept_before_again).as_ref(), Some(&old[0]));
    assert_eq!(kept(&kept_within).as_ref(), Some(&done.new_ids[&old[2]]));
    assert_eq!(kept(&reset).as_ref(), Some(&done.new_ids[&old[2]]));
    assert_eq!(member(&labels[0].id, "targetId"), old[0]);
    assert_eq!(member(&labels[1].id, "targetId"), done.new_ids[&old[3]]);
    assert_eq!(member(&summary, "fromId"), done.new_ids[&old[3]]);
    assert_eq!(context(&store), "3 4 ");
    agrees_with_importer(&store, None);
    drop(store);
    agrees_with_importer(&place.open(), None);
}

#[test]
fn what_is_written_again_keeps_its_date_and_its_other_members() {
    let at = "2026-01-05T08:00:00.000Z";
    let dated =
        line("a", "").replace("\"message\":", &format!("\"timestamp\":\"{at}\",\"idempotencyKey\":\"k\",\"message\":"));
    let place = Place::of_lines(&[HEADER, &dated, &line("b", "a")]);
    let mut store = place.open();
    let done = rewrite(&mut store, &[("a", "A")]);
    let entry = store.entry(&done.new_ids["a"]).expect("read").expect("there");
    assert_eq!(entry.message().expect("a message").timestamp_ms, 1_767_600_000_000);
    assert!(entry.raw.contains(r#""idempotencyKey":"k""#), "{}", entry.raw);
    assert_eq!(context(&store), "A b");
}

#[test]
fn a_rewrite_that_was_cut_off_changes_nothing() {
    let (place, mut store, old) = four();
    store.append(compaction("K", Some(&old[2]))).expect("room");
    let before = place.bytes();
    rewrite(&mut store, &[(&old[1], "two"), (&old[3], "four")]);
    drop(store);
    let after = place.bytes();
    for cut in before.len()..=after.len() {
        place.put(&after[..cut]);
        let (mut store, report) = place.open_report();
        // Looking closely takes long.
        let is_close = cut % 16 == 0 || cut + 2 > after.len() || after[cut - 2..cut + 2].contains(&b'\n');
        if is_close {
            agrees_with_importer(&store, Some(&report));
        }
        // The last line is whole without the end of it.
        let is_whole = cut + 1 >= after.len();
        let is_entry = |line: &&[u8]| serde_json::from_slice::<Value>(line).is_ok();
        let entries = after[before.len()..cut].split(|byte| *byte == b'\n').filter(is_entry).count();
        assert_eq!(report.cut_rewrite, if is_whole { 0 } else { entries as u64 });
        assert_eq!(context(&store), if is_whole { "[K] 3 four" } else { "[K] 3 4" }, "{cut}");
        say(&mut store, "next");
        drop(store);
        let store = place.open();
        assert_eq!(context(&store), if is_whole { "[K] 3 four next" } else { "[K] 3 4 next" }, "{cut}");
        if is_close {
            agrees_with_importer(&store, None);
        }
    }
}

#[test]
fn a_rewrite_after_one_that_was_cut_off_is_whole() {
    let (place, mut store, old) = four();
    let before = place.bytes();
    rewrite(&mut store, &[(&old[1], "two")]);
    drop(store);
    let after = place.bytes();
    place.put(&after[..after.len() - 30]);
    let mut store = place.open();
    assert_eq!(context(&store), "1 2 3 4");
    rewrite(&mut store, &[(&old[0], "one")]);
    assert_eq!(context(&store), "one 2 3 4");
    drop(store);
    let store = place.open();
    assert_eq!(context(&store), "one 2 3 4");
    assert!(place.bytes().starts_with(&before));
    agrees_with_importer(&store, None);
}

#[test]
fn a_branch_that_was_copied_out_of_a_rewritten_session_keeps_its_end() {
    let (place, mut store, old) = four();
    rewrite(&mut store, &[(&old[1], "two")]);
    // As another program would fork a session: the branch up to the third entry.
    let page: Vec<Value> = store.page(None, 3, None).expect("a page");
    let lines: Vec<String> = page.iter().map(Value::to_string).collect();
    let lines: Vec<&str> = std::iter::once(HEADER).chain(lines.iter().map(String::as_str)).collect();
    let fork = Place::of_lines(&lines);
    let store = fork.open();
    assert_eq!(context(&store), "1 two 3");
    agrees_with_importer(&store, None);
    drop(place);
}
