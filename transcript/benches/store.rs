//! How fast a session is opened, read and appended to: `cargo bench -p context-engine-transcript --bench store`.
//!
//! Decision: one session of 100 MB with what sessions are made of: many short messages, some tool results of 60 kB, text
//! that is not ASCII, and escapes; and one of very many tiny entries, for what each
//! of them costs. Whole passes from a file
//! that is in the system's cache: what a disk adds is the disk's.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use context_engine_transcript::store::{NewEntry, SessionHeader, SessionStore};
use serde_json::{Value, json};

const MEGABYTE: f64 = 1e6;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes, texts) in [
        ("mixed, 100 MB", 100_000_000, texts as fn(&mut Random) -> String),
        ("tiny, 100 MB", 100_000_000, |random: &mut Random| "x".repeat(random.below(20) as usize)),
    ] {
        let file = folder.path().join("session.jsonl");
        make(&file, bytes, texts);
        println!("{name}");
        open(&file);
        read(&file);
        append(&file);
        std::fs::remove_file(&file).expect("removed");
    }
}

fn open(file: &Path) {
    let bytes = std::fs::metadata(file).expect("the file").len();
    let mut best = Duration::MAX;
    let mut entries = 0;
    for _ in 0..5 {
        let started = Instant::now();
        let (store, report) = SessionStore::open(file).expect("a session");
        best = best.min(started.elapsed());
        entries = store.entries();
        assert!(report.warnings.is_empty() && store.branch_ids().len() == entries);
    }
    println!(
        "  open          {:>8.1} MB/s {:>10.2} ms, {entries} entries",
        bytes as f64 / MEGABYTE / best.as_secs_f64(),
        best.as_secs_f64() * 1e3
    );
}

fn read(file: &Path) {
    let (store, _) = SessionStore::open(file).expect("a session");
    let bytes = std::fs::metadata(file).expect("the file").len();
    let started = Instant::now();
    let context = store.context().expect("a context");
    let taken = started.elapsed();
    println!(
        "  context       {:>8.1} MB/s {:>10.2} ms, {} messages",
        bytes as f64 / MEGABYTE / taken.as_secs_f64(),
        taken.as_secs_f64() * 1e3,
        context.messages.len()
    );
    let ids: Vec<String> = store.branch_ids().into_iter().map(str::to_owned).collect();
    let mut random = Random(7);
    let started = Instant::now();
    let reads = 10_000;
    for _ in 0..reads {
        black_box(store.entry(&ids[random.below(ids.len() as u64) as usize]).expect("read"));
    }
    println!("  one entry     {:>10.2} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(reads));
    let started = Instant::now();
    let mut after: Option<String> = None;
    let mut pages = 0;
    loop {
        let page = store.page(after.as_deref(), 100, None).expect("a page");
        let Some(last) = page.last() else { break };
        after = last["id"].as_str().map(str::to_owned);
        pages += 1;
    }
    println!("  page of 100   {:>10.2} µs, {pages} pages", started.elapsed().as_secs_f64() * 1e6 / f64::from(pages));
}

fn append(file: &Path) {
    let (mut store, _) = SessionStore::open(file).expect("a session");
    let appends = 20_000;
    let entry = message("user", "a message of the usual length, which is not very long".to_owned());
    let started = Instant::now();
    for _ in 0..appends {
        store.append(entry.clone()).expect("room");
    }
    println!("  append        {:>10.2} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(appends));
    let started = Instant::now();
    let synced = 20;
    for _ in 0..synced {
        store.append(entry.clone()).expect("room");
        store.sync().expect("a disk");
    }
    println!("  append, sync  {:>10.2} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(synced));
    let ids = store.branch_ids();
    let from = ids[ids.len().saturating_sub(1_000)].to_owned();
    let Value::Object(changed) = json!({ "role": "user", "content": "shorter" }) else { return };
    let started = Instant::now();
    store.rewrite(&[(from, changed)]).expect("room");
    println!("  rewrite 1000  {:>10.2} ms", started.elapsed().as_secs_f64() * 1e3);
}

/// A session of about so many bytes.
fn make(file: &Path, bytes: u64, texts: impl Fn(&mut Random) -> String) {
    let mut store = SessionStore::create(file, SessionHeader::default()).expect("a session");
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    while std::fs::metadata(file).expect("the file").len() < bytes {
        let entries =
            (0..1_000).map(|i| message(["user", "assistant", "toolResult"][i % 3], texts(&mut random))).collect();
        store.append_all(entries).expect("room");
    }
}

fn message(role: &str, text: String) -> NewEntry {
    let usage =
        json!({ "input": 1200, "output": 340, "cacheRead": 18000, "totalTokens": 19540, "cost": { "total": 0.0123 } });
    let content = json!([{ "type": "text", "text": text }]);
    let message = match role {
        "assistant" => {
            json!({ "role": role, "content": content, "provider": "p", "model": "m", "usage": usage, "stopReason": "stop" })
        }
        "toolResult" => {
            json!({ "role": role, "toolCallId": "call_0", "toolName": "read", "content": content, "isError": false })
        }
        _ => json!({ "role": role, "content": content, "timestamp": 1_767_600_000_000_u64 }),
    };
    let Value::Object(map) = message else { unreachable!("an object") };
    NewEntry::Message(map)
}

/// Lines of 200 bytes to 60 kB, most of them short: prose, code with its line ends, other scripts, emoji.
fn texts(random: &mut Random) -> String {
    let length = match random.below(20) {
        0 => 20_000 + random.below(40_000),
        1..5 => 2_000 + random.below(8_000),
        _ => random.below(1_500),
    };
    let mut text = String::new();
    while (text.len() as u64) < length {
        let n = random.below(1_000_000);
        let _ = match random.below(10) {
            0 => write!(text, "上下文引擎决定模型在每次调用之前看到什么 {n}。"),
            1 => write!(text, "Überprüfung №{n} 🔥 naïve café; "),
            2..6 => writeln!(text, "    let claimed_{n} = queue.claim(\"worker-{n}\", Duration::from_secs(30))?;"),
            _ => write!(
                text,
                "The scheduler claims job {n}, runs it and reports; what fails is tried again after a while. "
            ),
        };
    }
    text
}

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
