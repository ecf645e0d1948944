//! What is left when the process is killed, the line is cut, or the disk is full.
//!
//! A test that needs a process to kill or to limit starts its own program again, with an environment variable that says
//! which part it plays.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use context_engine_transcript::store::SessionStore;
use serde_json::json;

use crate::support::*;

/// The file the started process works on.
const FILE: &str = "STORE_TEST_FILE";
/// What its random numbers begin with.
const SEED: &str = "STORE_TEST_SEED";

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// This program, once more, for the one test.
fn again(test: &str, file: &Path, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FILE, file).env(SEED, seed.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// Says a line to the process that started this one, past the test harness's own output.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {line}").and_then(|()| out.flush()).expect("someone reads");
}

/// The lines that the process reports, until it ends.
fn reported(child: &mut Child) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if let Some(line) = line.strip_prefix("> ") {
                let _ = send.send(line.to_owned());
            }
        }
    });
    receive
}

/// Appends until it is killed.
fn append_for_ever(file: &Path, mut random: Random) {
    let (mut store, _) = SessionStore::open(file).unwrap_or_else(|error| panic!("{error}"));
    report("ready");
    loop {
        let mut text = || {
            let length = if random.below(12) == 0 { 20_000 + random.below(200_000) } else { random.below(2_000) };
            user(&"é\"x".repeat(length as usize / 4))
        };
        let entries = match text() {
            one if store.entries() % 5 > 0 => vec![one],
            one => vec![one, text(), text()],
        };
        for made in store.append_all(entries).unwrap_or_else(|error| panic!("{error}")) {
            report(&made.id);
        }
    }
}

#[test]
fn killed_200_times_nothing_that_was_acknowledged_is_lost() {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    if let (Some(file), Some(seed)) = (std::env::var_os(FILE), seed) {
        return append_for_ever(Path::new(&file), Random(seed));
    }
    const ROUNDS: u64 = 200;
    /// A session grows so long.
    const ROUNDS_OF_A_SESSION: u64 = 10;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut acknowledged_in_all, mut torn) = (0, 0);
    for session in 0..ROUNDS / ROUNDS_OF_A_SESSION {
        let place = Place::new();
        drop(place.create());
        let mut acknowledged: Vec<String> = Vec::new();
        for round in 0..ROUNDS_OF_A_SESSION {
            let test = "crash::killed_200_times_nothing_that_was_acknowledged_is_lost";
            let mut child = again(test, &place.file, 1 + random.below(1 << 60)).spawn().expect("a process");
            let reports = reported(&mut child);
            assert_eq!(reports.recv_timeout(Duration::from_secs(60)).as_deref(), Ok("ready"));
            std::thread::sleep(Duration::from_micros(random.below(12_000)));
            child.kill().expect("killed");
            child.wait().expect("ended");
            // Ends with the pipe, which ends with the process.
            acknowledged.extend(reports.iter());

            let (mut store, report) = place.open_report();
            torn += report.lost;
            assert!(report.damaged_lines.len() as u64 <= round + 1, "{report:?}");
            let at: HashMap<&str, usize> = store.branch_ids().into_iter().zip(0..).collect();
            let places = acknowledged.iter().map(|id| at.get(id.as_str()).copied().expect("on the branch"));
            assert!(places.is_sorted(), "session {session}, round {round}");
            // All on one branch, with what was written and not acknowledged any more.
            assert_eq!(at.len(), store.entries());
            acknowledged.push(say(&mut store, "one more"));
        }
        let (store, report) = place.open_report();
        agrees_with_importer(&store, Some(&report));
        acknowledged_in_all += acknowledged.len() as u64;
    }
    assert!(acknowledged_in_all > ROUNDS, "{acknowledged_in_all} acknowledged, {torn} lines torn");
}

/// Fills the file to the limit this process has, and reports what was said and what was written.
#[cfg(unix)]
fn fill(file: &Path) {
    let (mut store, _) = SessionStore::open(file).unwrap_or_else(|error| panic!("{error}"));
    let length = || std::fs::metadata(file).expect("the file").len();
    let big = "b".repeat(40_000);
    let mut first = String::new();
    for i in 0..6 {
        first = say(&mut store, &format!("small {i}"));
        let before = length();
        let map = object(json!({ "role": "user", "content": big }));
        for failed in [
            store.append(user(&big)).map(|_| ()),
            store.append_all(vec![user("one"), user(&big), user("two")]).map(|_| ()),
            store.rewrite(&[(first.clone(), map)]).map(|_| ()),
        ] {
            report(&told(file, &failed.expect_err("no room")));
            assert_eq!((length(), store.leaf()), (before, Some(first.as_str())));
        }
    }
    // Up to the last byte.
    while let Ok(made) = store.append(user("x")) {
        first = made.id;
    }
    assert!(length() <= 16_384 && length() > 16_000, "{}", length());
    report(&format!("last {first} of {}", store.entries()));
}

#[cfg(unix)]
#[test]
fn a_full_disk_costs_the_entry_it_came_at() {
    if let Some(file) = std::env::var_os(FILE) {
        return fill(Path::new(&file));
    }
    let place = Place::new();
    drop(place.create());
    let program = again("crash::a_full_disk_costs_the_entry_it_came_at", &place.file, 1);
    // In units of 512 bytes. Without the signal, a write that goes too far fails as one to a full disk does.
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"ulimit -f 32 && trap "" XFSZ && exec "$0" "$@""#]).arg(program.get_program());
    limited.args(program.get_args()).env(FILE, &place.file).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = limited.spawn().expect("a shell");
    let reports: Vec<String> = reported(&mut child).iter().collect();
    assert!(child.wait().expect("ended").success());
    let (last, failed) = reports.split_last().expect("reports");
    assert_eq!(failed.len(), 18);
    for (told, doing) in failed.iter().zip(
        ["appending to the session", "appending to the session", "rewriting entries of the session"].iter().cycle(),
    ) {
        let begin = format!("FILE: {doing}: ");
        assert!(told.starts_with(&begin) && told.ends_with("; nothing was written: make room and try again"), "{told}");
    }
    let (mut store, found) = place.open_report();
    assert_eq!(*last, format!("last {} of {}", store.leaf().expect("a leaf"), store.entries()));
    assert_eq!(found.damaged_lines.len(), 0);
    assert!(context(&store).starts_with("small 0 small 1 small 2 small 3 small 4 small 5 x x"));
    say(&mut store, "there is room again");
    agrees_with_importer(&store, None);
}

#[test]
fn a_file_cut_at_any_byte_loses_the_unfinished_line_and_no_more() {
    let place = Place::new();
    let mut store = place.create();
    let texts = ["hi", "schön 🔥 \"quoted\"", "3"];
    let first = texts.map(|text| say(&mut store, text))[0].clone();
    store.append(compaction("K", Some(&first))).expect("room");
    store.branch(Some(&first)).expect("an entry");
    say(&mut store, "again");
    drop(store);
    let whole = place.bytes();
    for cut in 0..=whole.len() {
        place.put(&whole[..cut]);
        let (mut store, report) = place.open_report();
        // The last line is whole without the end of it.
        let is_entry = |line: &&[u8]| serde_json::from_slice::<serde_json::Value>(line).is_ok();
        let lines = whole[..cut].split(|byte| *byte == b'\n');
        let entries = lines.clone().skip(1).filter(is_entry).count();
        let torn = lines.filter(|line| !line.is_empty() && !is_entry(line)).count();
        assert_eq!((store.entries(), report.damaged_lines.len()), (entries, torn), "{cut}");
        assert_eq!(place.bytes(), whole[..cut]);
        let before = store.branch_ids().join(" ");
        let id = say(&mut store, "next");
        drop(store);
        let (store, report) = place.open_report();
        assert_eq!(branch(&store), format!("{before} {id}").trim(), "{cut}");
        assert_eq!((store.entries(), report.damaged_lines.len()), (entries + 1, torn), "{cut}");
        assert!(place.bytes().starts_with(&whole[..cut]));
        if cut % 16 == 0 {
            agrees_with_importer(&store, Some(&report));
        }
    }
}
