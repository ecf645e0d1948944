//! How fast text is counted: `cargo bench -p context-engine-transcript --bench tokens`.
//!
//! Decision: whole megabytes of the kinds of text sessions hold, and of the kinds that break tokenisers (one long run of
//! spaces, of one letter, of letters without a word), each for the worst second and not for the average: a session is as
//! slow as its worst message.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use context_engine_transcript::{Encoding, TokenCounter};

const MEGABYTE: usize = 1_000_000;

fn main() {
    for encoding in [Encoding::O200kBase, Encoding::Cl100kBase] {
        let counter = TokenCounter::new(encoding);
        black_box(counter.text("the vocabulary is loaded at the first count"));
        for (name, text) in texts() {
            let best = (0..7).map(|_| time(&counter, &text)).min().unwrap_or(Duration::MAX);
            let rate = text.len() as f64 / MEGABYTE as f64 / best.as_secs_f64();
            println!("{encoding:<12} {name:<28} {rate:>6.1} MB/s {:>9} tokens", counter.text(&text));
        }
    }
}

fn time(counter: &TokenCounter, text: &str) -> Duration {
    let started = Instant::now();
    black_box(counter.text(black_box(text)));
    started.elapsed()
}

fn texts() -> Vec<(&'static str, String)> {
    let english =
        "The scheduler claims a job, runs it and reports; what fails is tried again after a while, twice at most. ";
    let code = "    let claimed = queue.claim(&worker, Duration::from_secs(30))?;\n    if claimed.is_empty() { return Ok(0); }\n";
    let cjk = "上下文引擎决定模型在每次调用之前看到什么。過去のメッセージは要約され、最近の会話はそのまま残ります。";
    vec![
        ("English", repeat(english)),
        ("code", repeat(code)),
        ("CJK", repeat(cjk)),
        ("base64", random(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")),
        ("random letters", random(b"abcdefghijklmnopqrstuvwxyz")),
        ("spaces", " ".repeat(MEGABYTE)),
        ("one letter", "a".repeat(MEGABYTE)),
    ]
}

fn repeat(text: &str) -> String {
    text.repeat(MEGABYTE / text.len())
}

fn random(alphabet: &[u8]) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet[(state % alphabet.len() as u64) as usize])
    };
    (0..MEGABYTE).map(|_| next()).collect()
}
