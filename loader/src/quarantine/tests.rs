//! The store, by itself and between processes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::record::Incident;
use super::*;

#[cfg(unix)]
mod deaths;
#[cfg(target_os = "linux")]
mod threads;

fn state() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn subject(engine: &str) -> Subject {
    let digest = "5a".repeat(32);
    let key = QuarantineKey::of_text(&digest, Some(&json!({ "engine": engine })));
    Subject { engine: engine.to_owned(), digest, key, path: PathBuf::from(format!("/plugins/lib{engine}.so")) }
}

/// A process that is none of ours.
fn process(pid: u32) -> ProcessStamp {
    ProcessStamp { pid: u32::MAX - pid, start: 7 }
}

/// A fault in another process.
fn elsewhere(quarantine: &Quarantine, subject: &Subject, fault: Fault, pid: u32) -> Record {
    quarantine.record(subject, Incident::now("assemble", fault, "broke", process(pid)))
}

fn files(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("quarantine")).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

#[test]
fn a_fault_is_in_force_for_the_process_it_happened_in_and_history_for_others() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    assert_eq!(quarantine.holds(&alpha.key), None);
    for fault in [Fault::Error, Fault::Panic, Fault::Timeout, Fault::Answer, Fault::OverBudget, Fault::Create] {
        elsewhere(&quarantine, &subject(fault.describe()), fault, 1);
        assert_eq!(quarantine.holds(&subject(fault.describe()).key), None, "{fault:?}");
    }
    let added = quarantine.add(&alpha, "assemble", Fault::Error, "a\nfirst\u{1b}");
    assert_eq!((added.scope, added.reason.as_str(), added.count), (Scope::Process, "a first\\u{1b}", 1));
    assert_eq!(quarantine.holds(&alpha.key), Some(added));
    assert!(quarantine.holds(&subject("beta").key).is_none());
}

#[test]
fn a_crash_a_failed_probe_and_a_third_process_in_a_row_are_in_force_for_all() {
    let state = state();
    let quarantine = Quarantine::open(state.path());
    for (fault, needed) in [(Fault::Crash, 1), (Fault::Probe, 1), (Fault::Suspect, 3), (Fault::Panic, 3)] {
        let subject = subject(fault.describe());
        for pid in 1..=needed {
            assert_eq!(quarantine.holds(&subject.key), None, "{fault:?} {pid}");
            elsewhere(&quarantine, &subject, fault, pid);
        }
        let held = quarantine.holds(&subject.key).expect("in force");
        assert_eq!((held.scope, held.fault, held.count), (Scope::Durable, fault, u64::from(needed)));
    }
}

#[test]
fn a_process_is_counted_once_and_one_that_was_served_ends_the_row() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    for pid in [1, 1, 2, 1, 2, 2] {
        elsewhere(&quarantine, &alpha, Fault::Error, pid);
    }
    assert_eq!((quarantine.list()[0].processes_in_a_row, quarantine.holds(&alpha.key)), (2, None));
    quarantine.served(&alpha.key);
    assert_eq!(quarantine.list()[0].processes_in_a_row, 0);
    elsewhere(&quarantine, &alpha, Fault::Error, 3);
    assert_eq!(quarantine.holds(&alpha.key), None);
    // A process in which it failed has not been served.
    quarantine.add(&alpha, "compact", Fault::Panic, "boom");
    quarantine.served(&alpha.key);
    assert_eq!(quarantine.list()[0].processes_in_a_row, 2);
}

#[test]
fn the_first_failure_in_a_process_is_shown_whatever_follows_and_wherever() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    quarantine.add(&alpha, "assemble", Fault::Timeout, "first");
    quarantine.add(&alpha, "dispose", Fault::Error, "second");
    elsewhere(&quarantine, &alpha, Fault::Panic, 1);
    let held = quarantine.holds(&alpha.key).expect("in force");
    assert_eq!((held.reason.as_str(), held.fault, held.count), ("first", Fault::Timeout, 3));
    assert_eq!(held.process, ProcessStamp::current());
    // Proof outweighs it.
    elsewhere(&quarantine, &alpha, Fault::Crash, 2);
    assert_eq!(quarantine.holds(&alpha.key).expect("in force").fault, Fault::Crash);
}

#[test]
fn removing_the_file_frees_the_engine_in_a_host_that_runs() {
    let state = state();
    let (host, shell) = (Quarantine::open(state.path()), Quarantine::open(state.path()));
    for engine in ["alpha", "beta"] {
        host.add(&subject(engine), "assemble", Fault::Error, "broke");
        assert!(host.holds(&subject(engine).key).is_some());
    }
    let cleared = shell.clear(Some("alpha")).expect("cleared");
    assert_eq!(cleared.iter().map(|record| record.engine.as_str()).collect::<Vec<_>>(), ["alpha"]);
    assert!(host.holds(&subject("alpha").key).is_none());
    assert!(host.holds(&subject("beta").key).is_some());
    fs::remove_file(&files(state.path())[0]).expect("removed by hand");
    assert!(host.holds(&subject("beta").key).is_none());
    // And what another host finds out is in force here.
    elsewhere(&shell, &subject("beta"), Fault::Crash, 1);
    assert!(host.holds(&subject("beta").key).is_some());
}

#[test]
fn what_was_read_long_after_the_last_change_is_read_again_after_the_next() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    quarantine.add(&alpha, "assemble", Fault::Error, "broke");
    let folder = fs::File::open(state.path().join("quarantine")).expect("the folder");
    folder.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("aged");
    for _ in 0..2 {
        assert!(quarantine.holds(&alpha.key).is_some());
    }
    assert!(lock(&quarantine.kept.seen)[&alpha.key].settled);
    Quarantine::open(state.path()).clear(None).expect("cleared");
    assert!(quarantine.holds(&alpha.key).is_none());
}

#[test]
fn where_nothing_can_be_written_it_works_in_memory() {
    let state = state();
    let blocked = state.path().join("file");
    fs::write(&blocked, "").expect("written");
    for place in [blocked.as_path(), Path::new(""), Path::new("/proc/nowhere")] {
        let (quarantine, alpha) = (Quarantine::open(place), subject("alpha"));
        quarantine.add(&alpha, "assemble", Fault::Error, "broke");
        assert!(quarantine.clone().holds(&alpha.key).is_some());
        assert_eq!(quarantine.list().len(), 1);
        let cleared = quarantine.clear(Some("alpha"));
        assert!(place == blocked || cleared.is_ok_and(|cleared| cleared.len() == 1));
        assert!(quarantine.holds(&alpha.key).is_none(), "{}", place.display());
    }
}

#[test]
fn a_foreign_file_counts_as_nothing_and_is_shown() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    let folder = state.path().join("quarantine");
    fs::create_dir(&folder).expect("made");
    let name = format!("alpha-{}.json", alpha.key.short());
    for bytes in [&b""[..], b"{}", b"\xff\xfe", b"[1, 2", &vec![b' '; 5 << 20]] {
        fs::write(folder.join(&name), bytes).expect("written");
        assert_eq!((quarantine.holds(&alpha.key), quarantine.list()), (None, vec![]));
        let shown = quarantine.unreadable();
        assert_eq!(shown.len(), 1);
        assert!(shown[0].path.ends_with(&name) && !shown[0].reason.is_empty());
    }
    // A new fault takes the place.
    quarantine.add(&alpha, "assemble", Fault::Error, "broke");
    assert!(quarantine.holds(&alpha.key).is_some() && quarantine.unreadable().is_empty());
    fs::write(folder.join("beta-0123.json"), "{").expect("written");
    fs::create_dir(folder.join("gamma-0123.json")).expect("made");
    assert_eq!(quarantine.unreadable().len(), 2);
    assert_eq!(quarantine.clear(Some("beta")).expect("cleared"), []);
    assert_eq!(quarantine.unreadable().len(), 1);
}

#[test]
fn the_files_are_bounded_and_history_goes_before_what_is_in_force() {
    let state = state();
    let quarantine = Quarantine::open(state.path());
    elsewhere(&quarantine, &subject("crashed"), Fault::Crash, 1);
    for engine in 0..70 {
        elsewhere(&quarantine, &subject(&format!("e{engine}")), Fault::Error, 1);
    }
    let names: Vec<String> = quarantine.list().into_iter().map(|record| record.engine).collect();
    assert_eq!(names.len(), folder::MOST_FILES);
    assert!(names.contains(&"crashed".to_owned()) && names.contains(&"e69".to_owned()));
    let long = "x".repeat(10_000);
    let record = quarantine.add(&subject("e69"), "assemble", Fault::Error, &long);
    assert_eq!(record.reason.chars().count(), 2_000);
    for pid in 0..40 {
        elsewhere(&quarantine, &subject("e69"), Fault::Timeout, pid);
    }
    assert_eq!(quarantine.list()[0].history.len(), 16);
}

#[test]
fn what_is_in_force_for_every_process_is_not_forgotten_for_others() {
    let state = state();
    let quarantine = Quarantine::open(state.path());
    let crashed = |number: usize| subject(&format!("crashed{number}"));
    for number in 0..=folder::MOST_FILES {
        elsewhere(&quarantine, &crashed(number), Fault::Crash, 1);
    }
    for engine in 0..3 {
        elsewhere(&quarantine, &subject(&format!("e{engine}")), Fault::Error, 1);
    }
    assert!((0..=folder::MOST_FILES).all(|number| quarantine.holds(&crashed(number).key).is_some()));
    let history: Vec<String> =
        quarantine.list().into_iter().filter(|record| !record.is_in_force()).map(|record| record.engine).collect();
    assert_eq!(history, ["e2"], "history makes room");
}

#[test]
fn of_very_many_that_are_in_force_the_oldest_goes() {
    let state = state();
    let quarantine = Quarantine::open(state.path());
    let mut record = elsewhere(&quarantine, &subject("alpha"), Fault::Crash, 1);
    let digest = "5a".repeat(32);
    for number in 1..folder::MOST_IN_FORCE as u64 {
        record.key = QuarantineKey::of_text(&digest, Some(&json!(number)));
        record.last_at_ms += 1;
        let name = format!("quarantine/alpha-{}.json", record.key.short());
        fs::write(state.path().join(name), serde_json::to_string(&record).expect("text")).expect("written");
    }
    assert!(quarantine.holds(&subject("alpha").key).is_some() && quarantine.holds(&record.key).is_some());
    elsewhere(&quarantine, &subject("beta"), Fault::Crash, 1);
    assert_eq!(quarantine.list().len(), folder::MOST_IN_FORCE);
    assert_eq!(quarantine.holds(&subject("alpha").key), None);
    assert!(quarantine.holds(&record.key).is_some() && quarantine.holds(&subject("beta").key).is_some());
}

#[cfg(target_os = "linux")]
#[test]
fn failures_of_others_do_not_free_an_engine_where_it_failed_before() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    let pid = std::os::unix::process::parent_id();
    let parent = ProcessStamp { pid, start: crate::platform::process_start(pid).expect("it runs") };
    quarantine.add(&alpha, "assemble", Fault::Timeout, "first");
    quarantine.record(&alpha, Incident::now("compact", Fault::Panic, "boom", parent));
    for pid in 0..300 {
        // Or the third in a row would be in force for all.
        quarantine.change(&alpha.key, |_| true, Record::end_row);
        elsewhere(&quarantine, &alpha, Fault::Error, pid);
    }
    let record = &quarantine.list()[0];
    assert_eq!((record.scope, record.history.len()), (Scope::Process, 16));
    let mut running = vec![ProcessStamp::current(), parent];
    running.sort_unstable();
    assert_eq!(record.in_force_in(), Some(running));
    assert_eq!(quarantine.holds(&alpha.key).expect("in force").reason, "first");
    assert_eq!(record.in_force_for(parent).expect("in force").reason, "boom");
}

/// Puts something into the place of a file that no host may wait for.
#[cfg(unix)]
fn put_in_the_way(path: &Path, what: &str) {
    match what {
        "a pipe" => {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo can be run").success());
        }
        "a directory" => fs::create_dir_all(path.join("inner")).expect("made"),
        "a link to a pipe" => {
            let pipe = path.with_extension("pipe");
            put_in_the_way(&pipe, "a pipe");
            std::os::unix::fs::symlink(pipe, path).expect("made");
        }
        "a socket" => drop(std::os::unix::net::UnixListener::bind(path).expect("made")),
        other => panic!("nothing is called {other}"),
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_file_in_the_place_of_one_stops_nobody() {
    for what in ["a pipe", "a directory", "a link to a pipe", "a socket"] {
        let state = state();
        let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
        let folder = state.path().join("quarantine");
        fs::create_dir_all(&folder).expect("made");
        put_in_the_way(&folder.join(".lock"), what);
        put_in_the_way(&folder.join("alpha-0123.json"), what);
        put_in_the_way(&folder.join(format!("other-{}.json", alpha.key.short())), what);
        assert_eq!(quarantine.holds(&alpha.key), None, "{what}");
        quarantine.add(&alpha, "assemble", Fault::Error, "broke");
        assert!(Quarantine::open(state.path()).holds(&alpha.key).is_some(), "{what}: it is on disk");
        assert_eq!(quarantine.unreadable().len(), 2, "{what}");
        assert_eq!(quarantine.clear(Some("alpha")).expect("cleared").len(), 1, "{what}");
        assert!(quarantine.holds(&alpha.key).is_none(), "{what}");
        assert_eq!(quarantine.clear(None).expect("cleared"), [], "{what}");

        let marks = state.path().join(marks::FOLDER);
        fs::create_dir_all(&marks).expect("made");
        put_in_the_way(&marks.join("1-1.marks"), what);
        assert_eq!(quarantine.settle_marks(&marks), [], "{what}");
    }
}

#[test]
fn a_lock_that_is_never_given_back_costs_no_incident() {
    let state = state();
    let (quarantine, alpha) = (Quarantine::open(state.path()), subject("alpha"));
    elsewhere(&quarantine, &alpha, Fault::Error, 1);
    let lock = fs::File::open(state.path().join("quarantine/.lock")).expect("there");
    lock.lock().expect("locked");
    quarantine.add(&alpha, "assemble", Fault::Error, "broke");
    assert_eq!(Quarantine::open(state.path()).holds(&alpha.key).expect("in force").count, 2);
    assert_eq!(quarantine.clear(Some("alpha")).expect("cleared").len(), 1);
    drop(lock);
}

#[test]
fn an_id_cannot_leave_the_folder() {
    let state = state();
    let quarantine = Quarantine::open(state.path());
    for engine in ["../../evil", ".lock", "a/b", ""] {
        quarantine.add(&subject(engine), "assemble", Fault::Error, "broke");
        assert!(quarantine.holds(&subject(engine).key).is_some(), "{engine}");
    }
    assert_eq!(files(state.path()).len(), 4);
    assert_eq!(quarantine.clear(Some("../../evil")).expect("cleared").len(), 1);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let state = state();
    Quarantine::open(state.path()).add(&subject("alpha"), "assemble", Fault::Error, "broke");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&state.path().join("quarantine")), mode(&files(state.path())[0])), (0o700, 0o600));
    let _marks = marks::Marks::open(state.path());
    let file = fs::read_dir(state.path().join("marks")).expect("the folder").next().expect("a file").expect("a file");
    assert_eq!((mode(&state.path().join("marks")), mode(&file.path())), (0o700, 0o600));
}
