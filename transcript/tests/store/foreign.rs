//! Another program that writes to the file and knows no lock.

use context_engine_transcript::TranscriptError;
use context_engine_transcript::store::{SessionHeader, SessionStore};

use crate::support::*;

fn two() -> (Place, SessionStore) {
    let place = Place::of_lines(&[HEADER, &line("a", ""), &line("b", "a")]);
    let store = place.open();
    (place, store)
}

/// The branch without the ids that were made up.
fn texts_of(store: &SessionStore) -> String {
    context(store)
}

#[test]
fn e1_two_writers_what_hangs_on_our_leaf_is_part_of_the_conversation() {
    let (place, mut store) = two();
    place.add(format!("{}\n{}\n", line("c", "b"), line("d", "c")));
    let mine = say(&mut store, "mine");
    assert_eq!((texts_of(&store).as_str(), store.foreign()), ("a b c d mine", 1));
    let parent = store.entry(&mine).expect("read").expect("there").parent_id;
    assert_eq!(parent.as_deref(), Some("d"));
    agrees_with_importer(&store, None);
    drop(store);
    assert_eq!(texts_of(&place.open()), "a b c d mine");
}

#[test]
fn e1_two_writers_what_hangs_on_a_stale_leaf_is_kept_on_a_branch_and_named() {
    let (place, mut store) = two();
    say(&mut store, "mine");
    place.add(format!("{}\n", line("stale", "b")));
    let told = warnings_of(|| {
        say(&mut store, "again");
    });
    assert_eq!(texts_of(&store), "a b mine again");
    assert_eq!(store.foreign(), 1);
    assert!(told.contains("on a branch that is not active: [stale]"), "{told}");
    assert!(store.entry("stale").expect("read").is_some());
    // Said once.
    assert_eq!(warnings_of(|| _ = say(&mut store, "more")), "");
    assert_eq!(store.foreign(), 1);
    agrees_with_importer(&store, None);
    drop(store);
    let mut store = place.open();
    assert_eq!(texts_of(&store), "a b mine again more");
    store.branch(Some("stale")).expect("reachable");
    assert_eq!(texts_of(&store), "a b stale");
}

#[test]
fn e1_a_second_writer_with_the_lock_in_mind_is_refused() {
    let (place, store) = two();
    let refused = |result: Result<(SessionStore, _), TranscriptError>| match result {
        Err(TranscriptError::Locked { path, .. }) => path.file_name() == place.file.file_name(),
        _ => false,
    };
    assert!(refused(SessionStore::open(&place.file)));
    // Under another name, too.
    #[cfg(unix)]
    {
        let link = place.file.with_file_name("link.jsonl");
        std::os::unix::fs::symlink(&place.file, &link).expect("a link");
        assert!(refused(SessionStore::open(&link)));
    }
    assert!(matches!(SessionStore::create(&place.file, SessionHeader::default()), Err(TranscriptError::Exists { .. })));
    drop(store);
    assert_eq!(texts_of(&place.open()), "a b");
}

#[test]
fn a_leaf_of_another_program_does_not_move_ours() {
    let (place, mut store) = two();
    place.add("{\"type\":\"leaf\",\"id\":\"l\",\"parentId\":\"b\",\"targetId\":\"a\"}\n");
    say(&mut store, "mine");
    assert_eq!(texts_of(&store), "a b mine");
    agrees_with_importer(&store, None);
}

#[test]
fn a_line_of_another_program_that_is_not_finished_is_taken_when_it_is() {
    let (place, mut store) = two();
    let (begun, rest) = (line("c", "b"), 20);
    place.add(&begun[..rest]);
    drop(store);
    let (reopened, report) = place.open_report();
    store = reopened;
    assert_eq!(report.damaged_lines, [4]);
    place.add(format!("{}\n", &begun[rest..]));
    say(&mut store, "mine");
    assert_eq!(texts_of(&store), "a b c mine");
    agrees_with_importer(&store, None);
}

#[test]
fn damage_by_another_program_costs_what_is_damaged() {
    let (place, mut store) = two();
    place.add(format!("{{\"type\":\"mess{}\n\0\0\0{}\n{{\"ty", line("c", "b"), line("d", "c")));
    let told = warnings_of(|| {
        say(&mut store, "mine");
    });
    assert!(told.contains("damaged lines: 3"), "{told}");
    assert_eq!(texts_of(&store), "a b c d mine");
    agrees_with_importer(&store, None);
    drop(store);
    let (store, report) = place.open_report();
    assert_eq!(report.damaged_lines, [4, 5, 6]);
    agrees_with_importer(&store, Some(&report));
}

#[test]
fn a_missing_parent_that_comes_later_closes_the_gap() {
    let place = Place::of_lines(&[HEADER, &line("a", ""), &line("x", "a"), &line("c", "b")]);
    let mut store = place.open();
    assert_eq!(branch(&store), "a x c");
    place.add(format!("{}\n", line("b", "a")));
    let id = say(&mut store, "mine");
    assert_eq!(branch(&store), format!("a b c {id}"));
    agrees_with_importer(&store, None);
}

#[test]
fn a_file_that_was_shortened_replaced_or_taken_away_is_not_written_to() {
    type Change = fn(&Place);
    let changes: [(Change, &str); 4] = [
        (|place| place.put(&place.bytes()[..60]), "it is shorter than it was"),
        (|place| std::fs::remove_file(&place.file).expect("removed"), "it is gone"),
        (
            |place| {
                let other = place.file.with_extension("new");
                std::fs::write(&other, place.bytes().repeat(2)).expect("a copy");
                std::fs::rename(other, &place.file).expect("renamed");
            },
            "another file has taken its place",
        ),
        (
            |place| place.add("{\"type\":\"session\",\"version\":3,\"id\":\"s2\"}\n"),
            "another session was written into it",
        ),
    ];
    for (change, found) in changes {
        let (place, mut store) = two();
        change(&place);
        let before = std::fs::read(&place.file).ok();
        for error in [
            store.append(user("x")).map(|_| ()),
            store.branch(Some("a")),
            store.rewrite(&[("a".to_owned(), object(serde_json::json!({ "role": "user" })))]).map(|_| ()),
        ] {
            assert_eq!(
                told(&place.file, &error.expect_err("refused")),
                format!(
                    "FILE: appending to the session: expected the file as it was left, found that {found}; \
                     nothing was written: open the session again"
                )
            );
        }
        assert_eq!(std::fs::read(&place.file).ok(), before);
    }
}

#[test]
fn two_writers_at_once_lose_nothing_that_was_acknowledged() {
    let (place, mut store) = two();
    let file = place.file.clone();
    let theirs = std::thread::spawn(move || {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("the file");
        for i in 0..300 {
            file.write_all(format!("{}\n", line(&format!("t{i}"), "b")).as_bytes()).expect("room");
        }
    });
    let mine: Vec<String> = (0..300).map(|i| say(&mut store, &format!("m{i}"))).collect();
    theirs.join().expect("no panic");
    let last = say(&mut store, "last");
    let check = |store: &SessionStore| {
        let branch = store.branch_ids();
        let at = mine.iter().map(|id| branch.iter().position(|on| on == id).expect("on the branch"));
        assert!(at.is_sorted());
        assert_eq!(store.leaf(), Some(last.as_str()));
        for i in 0..300 {
            let entry = store.entry(&format!("t{i}")).expect("read").expect("there");
            assert_eq!(entry.message().expect("a message").text(), format!("t{i}"));
        }
        agrees_with_importer(store, None);
    };
    check(&store);
    assert!(store.foreign() > 0);
    drop(store);
    check(&place.open());
}
