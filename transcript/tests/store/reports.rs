//! One test per public bug report about a session's file, named after what broke.

use context_engine_transcript::store::NewEntry;
use serde_json::json;

use crate::support::*;

/// A reply that calls the tool `read` as `c1`.
fn call() -> NewEntry {
    let block = json!({ "type": "toolCall", "id": "c1", "name": "read", "arguments": {} });
    NewEntry::Message(object(json!({ "role": "assistant", "content": [block] })))
}

#[test]
fn a4_killed_between_call_and_result_the_file_stays_as_it_was() {
    let place = Place::new();
    let mut store = place.create();
    say(&mut store, "U1");
    store.append(call()).expect("room");
    drop(store);
    let before = place.bytes();
    let mut store = place.open();
    let first = store.context().expect("a context");
    say(&mut store, "U2");
    store.append(assistant("x")).expect("room");
    drop(store);
    let again = place.open().context().expect("a context");
    assert_eq!(again.messages[..2], first.messages);
    assert_eq!((first.messages.len(), again.messages.len()), (2, 4));
    assert!(place.bytes().starts_with(&before));
}

#[test]
fn c15_what_is_said_while_a_compaction_runs_is_in_context_once() {
    for compacted_first in [true, false] {
        let place = Place::new();
        let mut store = place.create();
        say(&mut store, "old");
        let kept = say(&mut store, "kept");
        let compacted = compaction("K", Some(&kept));
        // The summary was begun before they were said, and is written before or behind them.
        let said = [user("Ux"), user("Uy")];
        let order: Vec<NewEntry> = if compacted_first {
            [vec![compacted], said.to_vec()].concat()
        } else {
            [said.to_vec(), vec![compacted]].concat()
        };
        for entry in order {
            store.append(entry).expect("room");
        }
        assert_eq!(context(&store), "[K] kept Ux Uy");
        drop(store);
        assert_eq!(context(&place.open()), "[K] kept Ux Uy");
    }
}

#[test]
fn d1_nul_bytes_cost_what_is_damaged_and_the_next_entry_starts_a_line() {
    let nul = "\0".repeat(600);
    let file = format!("{HEADER}\n{}\n{nul}{}\n{}\n", line("a", ""), line("b", "a"), line("c", "b"));
    let place = Place::holding(&file);
    let (store, report) = place.open_report();
    assert_eq!(context(&store), "a b c");
    assert_eq!((report.damaged_lines.as_slice(), report.recovered, report.lost), ([3_u64].as_slice(), 1, 0));
    assert_eq!(report.warnings[0].to_string(), "1 damaged line (3): 1 whole records recovered, 0 lost");
    agrees_with_importer(&store, Some(&report));
    drop(store);

    place.put(format!("{file}{}", "\0".repeat(143_000)));
    let mut store = place.open();
    say(&mut store, "d");
    agrees_with_importer(&store, None);
    drop(store);
    let (store, report) = place.open_report();
    assert_eq!((context(&store).as_str(), report.damaged_lines.as_slice()), ("a b c d", [3_u64, 5].as_slice()));
    assert!(place.bytes().starts_with(file.as_bytes()));
}

#[test]
fn d1_a_file_of_nothing_but_nul_bytes_is_a_session_without_entries() {
    let place = Place::holding("\0".repeat(4096));
    let (mut store, _) = place.open_report();
    assert_eq!((store.id(), store.entries()), ("named", 0));
    say(&mut store, "a");
    drop(store);
    assert_eq!(context(&place.open()), "a");
}

#[test]
fn d2_records_on_one_line_and_a_record_that_was_cut_off_are_told_apart() {
    let (a, b) = (line("a", ""), line("b", "a"));
    let lines = format!("{HEADER}\n{}{b}\n{}{}\n", &a[..70], line("c", "b"), line("d", "c"));
    let place = Place::holding(&lines);
    let (mut store, report) = place.open_report();
    assert_eq!(context(&store), "b c d");
    assert_eq!((report.damaged_lines.as_slice(), report.recovered, report.lost), ([2_u64, 3].as_slice(), 3, 1));
    assert_eq!(report.lost_parents, 1);
    agrees_with_importer(&store, Some(&report));
    // They can be replaced, as others can.
    let text = object(json!({ "role": "user", "content": "C" }));
    store.rewrite(&[("c".to_owned(), text)]).expect("room");
    assert_eq!(context(&store), "b C d");
    agrees_with_importer(&store, None);
}

#[test]
fn d3_a_torn_header_costs_nothing_but_itself() {
    let ids: Vec<String> = (0..50).map(|i| format!("e{i}")).collect();
    let parent = |i: usize| i.checked_sub(1).map_or("", |before| ids[before].as_str());
    let lines: Vec<String> = ids.iter().enumerate().map(|(i, id)| line(id, parent(i)) + "\n").collect();
    let file = format!("{{\"type\":\"ses\n{}", lines.concat());
    let place = Place::holding(&file);
    let (mut store, report) = place.open_report();
    assert_eq!(
        (store.id(), store.header(), store.branch_ids()),
        ("named", None, ids.iter().map(String::as_str).collect())
    );
    agrees_with_importer(&store, Some(&report));
    let told: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
    let no_header = "no session header: the id was taken from the file's name";
    assert_eq!(told, ["1 damaged line (1): 0 whole records recovered, 1 lost", no_header]);
    say(&mut store, "next");
    drop(store);
    let store = place.open();
    assert_eq!((store.id(), store.entries()), ("named", 51));
    assert!(place.bytes().starts_with(file.as_bytes()));
}

#[test]
fn d5_half_a_surrogate_pair_costs_one_character() {
    let broken = line("a", "").replace("\"content\":\"a\"", "\"content\":\"🔥\\ud83d!\"");
    let place = Place::of_lines(&[HEADER, &broken, &line("b", "a")]);
    let (mut store, report) = place.open_report();
    assert_eq!(context(&store), "🔥\u{fffd}! b");
    assert_eq!((report.damaged_lines.len(), report.lost), (0, 0));
    assert_eq!(report.warnings[0].to_string(), "1 line with half a surrogate pair (2): read with U+FFFD in place");
    agrees_with_importer(&store, Some(&report));
    assert_eq!(store.page(None, 1, None).expect("a page")[0]["message"]["content"], "🔥\u{fffd}!");
    for text in ["🎉", "🇧🇷", "👨‍👩‍👧", "e\u{301}", "𠜎", "\u{0}\u{1f}\u{7f}\u{2028}\"\\"] {
        say(&mut store, text);
    }
    let before = context(&store);
    drop(store);
    assert_eq!(context(&place.open()), before);
}

#[test]
fn d7_damaged_lines_are_said_once_with_their_numbers() {
    let mut lines: Vec<String> = (0..99).map(|i| line(&format!("e{i}"), "x")).collect();
    lines.insert(0, HEADER.to_owned());
    for damaged in [7, 50, 51] {
        lines[damaged - 1].truncate(30);
    }
    let place = Place::of_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut opened = None;
    let told = warnings_of(|| opened = Some(place.open_report()));
    assert_eq!(told, "3 damaged lines (7, 50, 51): 0 whole records recovered, 3 lost\n");
    let (store, report) = opened.expect("opened");
    assert_eq!((report.damaged_lines.as_slice(), report.lost), ([7_u64, 50, 51].as_slice(), 3));
    agrees_with_importer(&store, Some(&report));
    assert_eq!(warnings_of(|| _ = context(&store)), "");
}

#[test]
fn e4_nothing_of_an_abandoned_branch_is_in_context() {
    let place = Place::new();
    let mut store = place.create();
    say(&mut store, "U1");
    let a1 = store.append(assistant("A1")).expect("room").id;
    let secret = say(&mut store, "secret word PELICAN");
    store.append(assistant("A2 PELICAN")).expect("room");
    store.append(compaction("PELICAN", Some(&secret))).expect("room");
    store.branch(Some(&a1)).expect("an entry");
    assert_eq!(context(&store), "U1 A1");
    let u3 = say(&mut store, "U3");
    store.append(assistant("A3")).expect("room");
    assert_eq!(context(&store), "U1 A1 U3 A3");
    let page = store.page(None, 100, None).expect("a page");
    assert!(!format!("{page:?}").contains("PELICAN"));
    store.append(compaction("K", Some(&u3))).expect("room");
    assert_eq!(context(&store), "[K] U3 A3");
    drop(store);
    assert_eq!(context(&place.open()), "[K] U3 A3");
}

#[test]
fn e5_between_two_compactions_the_first_summary_is_there_in_full() {
    let place = Place::new();
    let mut store = place.create();
    let kept = say(&mut store, "a");
    store.append(compaction("the first summary", Some(&kept))).expect("room");
    let before = place.bytes();
    let between = say(&mut store, "b");
    let kept = say(&mut store, "c");
    store.append(compaction("the second summary", Some(&kept))).expect("room");
    say(&mut store, "d");
    assert_eq!(context(&store), "[the second summary] c d");
    store.branch(Some(&between)).expect("an entry");
    assert_eq!(context(&store), "[the first summary] a b");
    say(&mut store, "e");
    drop(store);
    let store = place.open();
    assert_eq!(context(&store), "[the first summary] a b e");
    assert!(place.bytes().starts_with(&before));
    agrees_with_importer(&store, None);
}
