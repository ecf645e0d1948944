//! The lock of a session: report E2 in all its forms, two processes, and owners that are killed.
//!
//! Other processes are this test program, run again with [`HOLD`] set to the session they are to hold.

#![allow(clippy::print_stdout, reason = "how a child says what became of it")]

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use context_engine_transcript::TranscriptError;
use context_engine_transcript::store::SessionLock;
use tempfile::TempDir;

/// The session file a child is to hold until it is killed or its standard input ends.
const HOLD: &str = "SESSION_LOCK_TEST_HOLD";
/// The test that does it.
const CHILD: &str = "a_session_has_one_writer_and_the_second_is_told_who";

/// The child's side; `false` in a process that was not asked to hold anything.
fn held_as_asked() -> bool {
    let Some(session) = std::env::var_os(HOLD) else { return false };
    match SessionLock::acquire(Path::new(&session)) {
        Ok(_lock) => {
            println!("\nheld");
            let _ = std::io::stdin().lines().next();
        }
        Err(error) => println!("\nrefused: {error}"),
    }
    true
}

struct Holder {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Holder {
    /// A process that was started to take the session, and what became of it.
    fn start(session: &Path) -> (Holder, String) {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", CHILD, "--nocapture"])
            .env(HOLD, session)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let said =
            out.by_ref().lines().map_while(Result::ok).find(|line| line == "held" || line.starts_with("refused"));
        (Holder { child, out }, said.expect("an outcome"))
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    fn let_go(mut self) {
        drop(self.child.stdin.take());
        let _ = self.out.lines().count();
        self.child.wait().expect("ended");
    }
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a folder") }
    }

    fn session(&self) -> PathBuf {
        self.folder.path().join("s.jsonl")
    }

    fn lock(&self) -> PathBuf {
        self.folder.path().join("s.jsonl.lock")
    }
}

/// Who is in the way, by the error.
fn refused(session: &Path) -> String {
    match SessionLock::acquire(session) {
        Err(TranscriptError::Locked { path, owner }) if path == session => owner,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

thread_local! {
    /// What this thread logs, while somebody wants to know.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Writes to the log of the thread it is used on.
struct ThreadLog;

impl Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What `run` gave, and the lines it left in the log. One subscriber for all threads: with one each, a thread that has none
/// may have a log line switched off for the others.
fn logged<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| ThreadLog).init());
    LOGGED.set(Some(Vec::new()));
    let ran = run();
    let text = String::from_utf8(LOGGED.take().unwrap_or_default()).expect("text");
    (ran, text.lines().map(str::to_owned).collect())
}

/// A program of another kind that runs, and when it started.
#[cfg(target_os = "linux")]
fn sleeper() -> (Child, u64) {
    let child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let start = fields.split_whitespace().nth(19).and_then(|start| start.parse().ok());
    // Until it runs `sleep`, it is called as this program.
    while fs::read_to_string(format!("/proc/{}/comm", child.id())).expect("it runs").trim() != "sleep" {
        std::thread::yield_now();
    }
    (child, start.expect("a start"))
}

#[test]
fn a_session_has_one_writer_and_the_second_is_told_who() {
    if held_as_asked() {
        return;
    }
    let place = Place::new();
    let session = place.session();
    let (holder, said) = Holder::start(&session);
    assert_eq!(said, "held");
    let owner = refused(&session);
    assert!(owner.starts_with("session_lock") && owner.ends_with(&format!("(pid {})", holder.child.id())), "{owner}");
    let seen = SessionLock::owner(&session).expect("an owner");
    assert_eq!((seen.pid, seen.to_string()), (holder.child.id(), owner.clone()));
    assert!(seen.since.starts_with("20") && seen.since.ends_with('Z'), "{}", seen.since);
    let message = SessionLock::acquire(&session).expect_err("held").to_string();
    assert_eq!(message, format!("{}: the session is in use by {owner}; close it there, or wait", session.display()));
    holder.let_go();
    assert_eq!(SessionLock::owner(&session), None);
    assert!(!place.lock().exists(), "a clean release leaves no lock file");
    drop(SessionLock::acquire(&session).expect("free"));
}

#[test]
fn a_second_open_in_one_process_is_refused_under_any_path() {
    let place = Place::new();
    let session = place.session();
    fs::write(&session, "").expect("written");
    let lock = SessionLock::acquire(&session).expect("free");
    let folder = place.folder.path();
    let mut paths =
        vec![session.clone(), folder.join(".").join("s.jsonl"), folder.join("../").join(folder).join("s.jsonl")];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&session, folder.join("link.jsonl")).expect("linked");
        paths.push(folder.join("link.jsonl"));
    }
    for path in &paths {
        assert!(refused(path).ends_with(&format!("(pid {})", std::process::id())), "{}", path.display());
    }
    let (holder, said) = Holder::start(&session);
    assert!(said.contains(&format!("(pid {})", std::process::id())), "{said}");
    holder.let_go();
    drop(lock);
    for path in &paths {
        drop(SessionLock::acquire(path).expect("free"));
    }
}

/// Report E2: crash recovery must not need `rm`.
#[test]
fn e2_a_lock_left_behind_is_taken_over_at_once_with_one_log_line() {
    let mut ended = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "no such test"])
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    ended.wait().expect("ended");
    let gone = ended.id();
    let long = "x".repeat(1 << 20);
    let nested = "[".repeat(100_000);
    let ours =
        format!(r#"{{"pid":{gone},"name":"context-engine","startTime":12,"createdAt":"2026-01-05T08:00:00.000Z"}}"#);
    let foreign = format!(r#"{{"pid":{gone},"createdAt":"2026-01-05T08:00:00.000Z","starttime":12}}"#);
    let no_start = format!(r#"{{"pid":{gone}}}"#);
    let me = format!(r#"{{"pid":{},"name":"context-engine"}}"#, std::process::id());
    let other_start = format!(r#"{{"pid":{},"startTime":1}}"#, std::process::id());
    for content in [
        ours.as_str(),
        &foreign,
        &no_start,
        &me,
        &other_start,
        r#"{"pid":4294967295,"starttime":"7"}"#,
        r#"{"pid":0,"starttime":7}"#,
        r#"{"pid":-1}"#,
        r#"{"pid":1e99}"#,
        r#"{"name":"no pid"}"#,
        "999999",
        "[1]",
        "null",
        "",
        "\0\0\0\0",
        "garbage",
        r#"{"pid":"#,
        &long,
        &nested,
    ] {
        for yesterday in [false, true] {
            let place = Place::new();
            let file = fs::File::create_new(place.lock()).expect("made");
            (&file).write_all(content.as_bytes()).expect("written");
            if yesterday {
                file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("dated");
            }
            drop(file);
            let shown: String = content.chars().take(80).collect();
            assert_eq!(SessionLock::owner(&place.session()), None, "{shown}");
            let (lock, lines) = logged(|| SessionLock::acquire(&place.session()));
            let lock = lock.unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert!(lines.len() == 1 && lines[0].contains("took over a session lock"), "{shown}: {lines:?}");
            assert_eq!(SessionLock::owner(&place.session()).map(|owner| owner.pid), Some(std::process::id()));
            drop(lock);
            assert!(!place.lock().exists());
        }
    }
    let place = Place::new();
    let (lock, lines) = logged(|| SessionLock::acquire(&place.session()));
    assert!(lock.is_ok() && lines.is_empty(), "nothing was taken over: {lines:?}");
}

/// Report E2: a pid that another program has now.
#[cfg(target_os = "linux")]
#[test]
fn e2_a_pid_that_is_another_programs_now_holds_nothing() {
    let (mut sleep, start) = sleeper();
    let (pid, other) = (sleep.id(), start + 1);
    for content in [
        format!(r#"{{"pid":{pid}}}"#),
        format!(r#"{{"pid":{pid},"createdAt":"2026-01-05T08:00:00.000Z"}}"#),
        format!(r#"{{"pid":{pid},"starttime":{other}}}"#),
        format!(r#"{{"pid":{pid},"name":"context-engine","startTime":{other}}}"#),
        format!(r#"{{"pid":{pid},"startTime":{start},"bootId":"of another boot"}}"#),
    ] {
        let place = Place::new();
        fs::write(place.lock(), &content).expect("written");
        let (lock, lines) = logged(|| SessionLock::acquire(&place.session()));
        lock.unwrap_or_else(|error| panic!("{content}: {error}"));
        assert!(lines.len() == 1 && lines[0].contains("its pid is another program's by now"), "{content}: {lines:?}");
    }
    sleep.kill().expect("killed");
    sleep.wait().expect("ended");
}

/// A program that takes no lock of the system's, but says who it is (contract, 5.1: OpenClaw's own lock file).
#[cfg(target_os = "linux")]
#[test]
fn e2_a_live_owner_of_another_kind_is_named_and_left_alone() {
    let (mut sleep, start) = sleeper();
    let pid = sleep.id();
    let place = Place::new();
    for (content, name) in [
        (format!(r#"{{"pid":{pid},"createdAt":"2026-01-05T08:00:00.000Z","starttime":{start}}}"#), "sleep"),
        (format!(r#"{{"pid":{pid},"starttime":"{start}","name":"open\u001b[31mclaw"}}"#), "open[31mclaw"),
    ] {
        fs::write(place.lock(), &content).expect("written");
        let file = fs::File::options().append(true).open(place.lock()).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("dated");
        assert_eq!(refused(&place.session()), format!("{name} (pid {pid})"));
        assert_eq!(SessionLock::owner(&place.session()).map(|owner| owner.pid), Some(pid));
        assert_eq!(fs::read_to_string(place.lock()).expect("there"), content, "it was left as it was");
    }
    sleep.kill().expect("killed");
    sleep.wait().expect("ended");
    drop(SessionLock::acquire(&place.session()).expect("its owner has ended"));
}

#[test]
fn what_is_no_file_in_the_place_of_a_lock_is_named() {
    let place = Place::new();
    let error = || SessionLock::acquire(&place.session()).expect_err("not a file").to_string();
    fs::create_dir(place.lock()).expect("made");
    assert!(error().ends_with("s.jsonl.lock: taking the session's lock: expected a regular file, found a directory; remove what stands there"), "{}", error());
    fs::remove_dir(place.lock()).expect("removed");
    #[cfg(unix)]
    for target in ["precious.txt", "nowhere.txt"] {
        let target = place.folder.path().join(target);
        if target.ends_with("precious.txt") {
            fs::write(&target, "precious").expect("written");
        }
        std::os::unix::fs::symlink(&target, place.lock()).expect("linked");
        assert!(error().contains("found a symbolic link"), "{}", error());
        assert_eq!(SessionLock::owner(&place.session()), None);
        assert!(fs::read_to_string(&target).is_ok_and(|text| text == "precious") || !target.exists());
        fs::remove_file(place.lock()).expect("removed");
    }
    let nowhere = place.folder.path().join("none/s.jsonl");
    let error = SessionLock::acquire(&nowhere).expect_err("no folder").to_string();
    assert!(error.ends_with("; make the session's folder first"), "{error}");
}

#[test]
fn a_lock_file_that_a_hand_replaced_is_not_removed() {
    let place = Place::new();
    let lock = SessionLock::acquire(&place.session()).expect("free");
    fs::remove_file(place.lock()).expect("removed");
    fs::write(place.lock(), "of somebody else").expect("written");
    drop(lock);
    assert_eq!(fs::read_to_string(place.lock()).expect("there"), "of somebody else");
}

/// 100 owners that are killed: the next one has the session at once, every time.
#[test]
fn e2_a_killed_owner_keeps_nobody_out() {
    let place = Place::new();
    let session = place.session();
    for round in 0..100 {
        let (holder, said) = Holder::start(&session);
        assert_eq!(said, "held", "round {round}");
        let pid = holder.child.id();
        assert!(refused(&session).ends_with(&format!("(pid {pid})")), "round {round}");
        holder.kill();
        let (lock, lines) = logged(|| SessionLock::acquire(&session));
        lock.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(lines.len() == 1 && lines[0].contains(&format!("pid={pid}")), "round {round}: {lines:?}");
    }
}

#[test]
fn many_who_open_and_close_never_hold_it_together() {
    let place = Place::new();
    let session = place.session();
    let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while taken.load(Ordering::Relaxed) < 500 {
                    match SessionLock::acquire(&session) {
                        Ok(_lock) => {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                            taken.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two at once");
                        }
                        Err(TranscriptError::Locked { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    // Looking must not keep anybody from taking it.
                    SessionLock::owner(&session);
                }
            });
        }
    });
    assert!(!place.lock().exists());
}
