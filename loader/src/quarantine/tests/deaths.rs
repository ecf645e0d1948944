//! Processes that die: this test program started again, with a scenario in its environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::super::marks::{Marks, pause};
use super::*;

const SCENARIO: &str = "CONTEXT_ENGINE_TEST_SCENARIO";

/// Where a child dies, and how many calls of `assemble` it completes before.
#[derive(Clone, Copy)]
pub(super) struct Scenario<'a> {
    pub(super) how: &'a str,
    pub(super) place: &'a str,
    pub(super) completed: u32,
}

const IN_ASSEMBLE: Scenario<'_> = Scenario { how: "kill -9", place: "assemble", completed: 0 };

fn start(state: &Path, scenario: Scenario<'_>) -> Child {
    let Scenario { how, place, completed } = scenario;
    let child = "quarantine::tests::deaths::what_ends_the_process_in_a_call_is_proof";
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", child, "--nocapture"])
        .env(SCENARIO, format!("{how}|{place}|{completed}|{}", state.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started")
}

pub(super) fn dies(state: &Path, scenario: Scenario<'_>) -> ExitStatus {
    // Closing its standard input tells it to go on.
    let mut child = start(state, scenario);
    drop(child.stdin.take());
    child.wait().expect("ended")
}

pub(super) fn settle(state: &Path) -> Vec<Verdict> {
    Quarantine::open(state).settle_marks(&state.join(marks::FOLDER))
}

pub(super) fn findings(verdicts: &[Verdict]) -> Vec<Finding> {
    verdicts.iter().map(|verdict| verdict.finding).collect()
}

/// What the child does.
fn play(scenario: &str) {
    let parts: Vec<&str> = scenario.splitn(4, '|').collect();
    let (how, place, state) = (parts[0].to_owned(), parts[1].to_owned(), PathBuf::from(parts[3]));
    let completed: u32 = parts[2].parse().expect("a number");
    let marks = Marks::open(&state);
    let engine = std::thread::spawn(move || {
        let slot = marks.slot(&subject("alpha"));
        for _ in 0..completed {
            drop(slot.enter("assemble"));
        }
        let wait = || {
            writeln!(std::io::stdout(), "ready").expect("said");
            std::io::stdin().read_line(&mut String::new()).expect("told");
        };
        match place.as_str() {
            marks::OUTSIDE => {
                marks.watch_where(&subject("alpha"), |path| path.as_os_str().is_empty());
                wait();
                die(&how);
            }
            "a call, on another thread" => {
                marks.watch_where(&subject("alpha"), |path| path.as_os_str().is_empty());
                let _call = slot.enter("assemble");
                wait();
                std::thread::spawn(move || die(&how)).join().expect("joined");
            }
            marks::THREAD_END => {
                LAST_WORDS.with_borrow_mut(|words| words.0 = how);
                wait();
                slot.end_thread();
            }
            "between calls" => {
                wait();
                die(&how);
            }
            "a host service" => {
                let _call = slot.enter("assemble");
                let _paused = pause();
                wait();
                die(&how);
            }
            "another thread" => {
                let _call = slot.enter("assemble");
                wait();
                std::thread::spawn(move || die(&how)).join().expect("joined");
            }
            "the end of a call in a call" => {
                let _call = slot.enter("assemble");
                drop(slot.enter("compact"));
                wait();
                die(&how);
            }
            member => {
                let known = ["assemble", "create", "dispose"].into_iter().find(|known| *known == member);
                let _call = slot.enter(known.expect("a known member"));
                wait();
                die(&how);
            }
        }
    });
    engine.join().expect("joined");
}

fn die(how: &str) {
    crate::dylib::signals::tests::die_by(how);
}

/// What happens when a thread has ended.
#[derive(Default)]
struct LastWords(String);

impl Drop for LastWords {
    fn drop(&mut self) {
        match self.0.as_str() {
            "panic" => panic!("in a destructor"),
            how => die(how),
        }
    }
}

thread_local! {
    static LAST_WORDS: std::cell::RefCell<LastWords> = std::cell::RefCell::default();
}

#[test]
fn what_ends_the_process_in_a_call_is_proof() {
    // This test, started again by itself or by another one here.
    if let Ok(scenario) = std::env::var(SCENARIO) {
        return play(&scenario);
    }
    for (how, word) in [
        ("null read", "SIGSEGV"),
        ("stack overflow", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("exit", "called exit()"),
        ("SIGILL", "SIGILL"),
        ("SIGFPE", "SIGFPE"),
        ("SIGTRAP", "SIGTRAP"),
        ("truncated mapping", "SIGBUS"),
        ("SIGSYS", "SIGSYS"),
    ] {
        for place in ["assemble", "create", "the end of a call in a call"] {
            let state = state();
            let member = if place == "create" { place } else { "assemble" };
            dies(state.path(), Scenario { how, place, completed: 5 });
            let verdicts = settle(state.path());
            assert_eq!(findings(&verdicts), [Finding::Convicted], "{how} in {place}");
            assert!(verdicts[0].reason.contains(word) && verdicts[0].reason.ends_with(&format!("in {member}")));
            let held = Quarantine::open(state.path()).holds(&subject("alpha").key).expect("in force");
            assert_eq!(
                (held.fault, held.scope, held.path.clone()),
                (Fault::Crash, Scope::Durable, subject("alpha").path)
            );
            assert_eq!(settle(state.path()), [], "judged once");
        }
    }
}

#[cfg(unix)]
#[test]
fn the_process_dies_of_the_signal_it_would_have_died_of() {
    use std::os::unix::process::ExitStatusExt;
    for (how, signal) in [
        ("null read", libc::SIGSEGV),
        ("stack overflow", libc::SIGABRT),
        ("abort", libc::SIGABRT),
        ("SIGTRAP", libc::SIGTRAP),
        ("SIGTERM", libc::SIGTERM),
    ] {
        for place in ["assemble", "between calls"] {
            let status = dies(state().path(), Scenario { how, place, completed: 0 });
            assert_eq!(status.signal(), Some(signal), "{how} {place}");
        }
    }
}

#[test]
fn what_is_not_the_engines_doing_convicts_nobody() {
    for (how, place) in [
        ("null read", "between calls"),
        ("abort", "between calls"),
        ("exit", "between calls"),
        ("kill -9", "between calls"),
        ("null read", "a host service"),
        ("exit", "a host service"),
        ("SIGTERM", "assemble"),
        ("exit", "another thread"),
        ("nothing", "assemble"),
        ("abort", marks::OUTSIDE),
        ("exit", marks::OUTSIDE),
        ("kill -9", marks::OUTSIDE),
        ("SIGTRAP", marks::OUTSIDE),
        ("a mended trap", marks::OUTSIDE),
        ("nothing", marks::OUTSIDE),
        ("kill -9", marks::THREAD_END),
        ("nothing", marks::THREAD_END),
    ] {
        let state = state();
        dies(state.path(), Scenario { how, place, completed: 0 });
        let found = findings(&settle(state.path()));
        assert!(found.iter().all(|finding| *finding == Finding::Acquitted), "{how} {place}: {found:?}");
        assert_eq!(Quarantine::open(state.path()).list(), [], "{how} {place}");
    }
}

#[test]
fn a_signal_that_proves_nothing_makes_a_suspect() {
    for (how, place) in [
        ("kill -9", "assemble"),
        ("exit in a fork", "assemble"),
        #[cfg(target_os = "linux")]
        ("SIGABRT from outside", "assemble"),
        ("null read", "another thread"),
    ] {
        let state = state();
        dies(state.path(), Scenario { how, place, completed: 0 });
        assert_eq!(findings(&settle(state.path())), [Finding::Suspected(1)], "{how} {place}");
        assert!(Quarantine::open(state.path()).holds(&subject("alpha").key).is_none());
    }
}

#[test]
fn ten_kills_in_the_middle_of_healthy_calls_convict_nobody() {
    let state = state();
    for kill in 0..10 {
        // By somebody else, while the engine is in a call.
        let mut child = start(state.path(), Scenario { completed: 3, ..IN_ASSEMBLE });
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("ready"))));
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(findings(&settle(state.path())), [Finding::Acquitted], "{kill}");
    }
    assert_eq!(Quarantine::open(state.path()).list(), []);
}

#[test]
fn the_third_death_in_a_row_in_a_first_call_quarantines_and_a_healthy_process_ends_the_row() {
    let state = state();
    let healthy = Scenario { completed: 1, ..IN_ASSEMBLE };
    for (scenario, finding) in [
        (IN_ASSEMBLE, Finding::Suspected(1)),
        (IN_ASSEMBLE, Finding::Suspected(2)),
        (healthy, Finding::Acquitted),
        (IN_ASSEMBLE, Finding::Suspected(1)),
        (IN_ASSEMBLE, Finding::Suspected(2)),
        (IN_ASSEMBLE, Finding::Quarantined),
    ] {
        assert!(Quarantine::open(state.path()).holds(&subject("alpha").key).is_none());
        dies(state.path(), scenario);
        assert_eq!(findings(&settle(state.path())), [finding]);
    }
    let held = Quarantine::open(state.path()).holds(&subject("alpha").key).expect("in force");
    assert_eq!((held.fault, held.count), (Fault::Suspect, 5));
}

#[test]
fn a_process_that_worked_ends_the_row_although_it_was_killed() {
    let state = state();
    for (how, place, completed, row) in [
        ("kill -9", "assemble", 3, 0),
        ("kill -9", "between calls", 3, 0),
        ("kill -9", "between calls", 0, 2),
        ("abort", "another thread", 3, 0),
    ] {
        let quarantine = Quarantine::open(state.path());
        elsewhere(&quarantine, &subject("alpha"), Fault::Error, 1);
        elsewhere(&quarantine, &subject("alpha"), Fault::Error, 2);
        dies(state.path(), Scenario { how, place, completed });
        settle(state.path());
        assert_eq!(quarantine.list()[0].processes_in_a_row, row, "{how} {place} {completed}");
        quarantine.clear(None).expect("cleared");
    }
}

#[test]
fn an_engine_that_has_served_is_not_suspected_of_its_dispose() {
    let state = state();
    for (completed, finding) in [(7, Finding::Acquitted), (0, Finding::Suspected(1))] {
        dies(state.path(), Scenario { place: "dispose", completed, ..IN_ASSEMBLE });
        assert_eq!(findings(&settle(state.path())), [finding]);
    }
}

#[test]
fn a_process_that_lives_is_left_alone() {
    let state = state();
    let mut child = start(state.path(), IN_ASSEMBLE);
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("ready"))));
    dies(state.path(), Scenario { how: "abort", ..IN_ASSEMBLE });
    let verdicts = settle(state.path());
    assert_eq!(findings(&verdicts), [Finding::Convicted]);
    assert_ne!(verdicts[0].process.pid, child.id());
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(settle(state.path()).len(), 1, "now it is dead");
}

#[test]
fn a_host_does_not_judge_its_own_calls() {
    let state = state();
    let marks = Marks::open(state.path());
    let slot = marks.slot(&subject("alpha"));
    let call = slot.enter("assemble");
    assert_eq!(settle(state.path()), []);
    drop(call);
    assert_eq!(fs::read_dir(state.path().join(marks::FOLDER)).expect("listed").count(), 1);
}

#[test]
fn a_number_that_was_used_again_does_not_protect_the_mark_of_the_dead() {
    let state = state();
    let marks = Marks::open(state.path());
    let slot = marks.slot(&subject("alpha"));
    let call = slot.enter("create");
    let folder = state.path().join(marks::FOLDER);
    let own = fs::read_dir(&folder).expect("listed").next().expect("a file").expect("a file").path();
    // As if a process with our number had left it: nobody holds its lock.
    let mut bytes = fs::read(own).expect("read");
    bytes[16] ^= 1;
    bytes[marks::BLOCK + 1] = crate::dylib::signals::EXIT;
    fs::write(folder.join("left.marks"), bytes).expect("written");
    let verdicts = settle(state.path());
    assert_eq!(
        (findings(&verdicts), verdicts[0].reason.as_str()),
        (vec![Finding::Convicted], "called exit() in create")
    );
    assert_eq!(verdicts[0].subject, subject("alpha"));
    assert_eq!(verdicts[0].process.pid, std::process::id());
    drop(call);
}

#[test]
fn hosts_that_fail_at_the_same_time_lose_nothing_of_each_other() {
    let state = state();
    std::thread::scope(|threads| {
        for pid in 0..4 {
            let state = state.path();
            threads.spawn(move || {
                let (quarantine, alpha) = (Quarantine::open(state), subject("alpha"));
                quarantine.record(&alpha, Incident::now("assemble", Fault::Error, "broke", process(pid)));
            });
        }
    });
    let record = &Quarantine::open(state.path()).list()[0];
    assert_eq!((record.count, record.history.len(), record.processes_in_a_row), (4, 4, 4));
}

#[test]
fn damaged_and_foreign_files_of_marks_are_removed_and_mean_nothing() {
    let state = state();
    let folder = state.path().join(marks::FOLDER);
    fs::create_dir_all(&folder).expect("made");
    let mut header = vec![0xff; 5 * marks::BLOCK - 3];
    for bytes in [&b""[..], b"CEMARKS1", &[0; 4096], &header.clone()] {
        fs::write(folder.join("1-1.marks"), bytes).expect("written");
        assert_eq!(settle(state.path()), []);
        assert!(!folder.join("1-1.marks").exists());
    }
    header[..8].copy_from_slice(&marks::MAGIC);
    header[marks::ENDED] = 0;
    fs::write(folder.join("2-1.marks"), header).expect("written");
    fs::write(folder.join("notes.txt"), "mine").expect("written");
    assert_eq!(settle(state.path()), [], "no mark says that it is in a call");
    assert!(folder.join("notes.txt").exists());
}

#[test]
fn marks_that_cannot_be_written_cost_nothing_but_the_mark() {
    let state = state();
    let blocked = state.path().join("file");
    fs::write(&blocked, "").expect("written");
    for place in [blocked.as_path(), Path::new("")] {
        let marks = Marks::open(place);
        let slot = marks.slot(&subject("alpha"));
        drop(slot.enter("assemble"));
    }
    assert_eq!(fs::read_dir(state.path()).expect("listed").count(), 1);
}

#[test]
fn a_place_is_used_again_and_the_file_goes_with_the_last_user() {
    let state = state();
    let marks = Marks::open(state.path());
    let folder = state.path().join(marks::FOLDER);
    let file = fs::read_dir(&folder).expect("listed").next().expect("a file").expect("a file").path();
    for _ in 0..10 {
        let (alpha, beta) = (marks.slot(&subject("alpha")), marks.slot(&subject("beta")));
        drop((alpha.enter("assemble"), beta.enter("a member nobody knows")));
    }
    assert_eq!(fs::metadata(&file).expect("there").len() as usize, 3 * marks::BLOCK);
    let slot = marks.slot(&subject("alpha"));
    drop(marks);
    drop(slot.enter("assemble"));
    assert!(file.exists());
    drop(slot);
    assert!(!file.exists());
}
