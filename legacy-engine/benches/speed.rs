//! How fast the built-in engine is on a long session: `cargo bench -p context-engine-legacy`.
//!
//! Decision: plain timing instead of a statistics harness: what is asked is "well under a second", not nanoseconds.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a report for a person; a wrong fixture may fail")]

use std::sync::Arc;
use std::time::Instant;

use context_engine_interface::ViewChunks;
use context_engine_legacy::compaction::{CompactionOptions, compact};
use context_engine_legacy::fit::fit;
use context_engine_legacy::pipeline::{PipelineOptions, render, run};
use context_engine_legacy::summary::summarize;
use context_engine_transcript::Message;
use serde_json::{Value, json};

/// A session of `turns` turns of ten messages: a question, four call and result pairs, an answer.
fn session(turns: usize, broken: bool) -> Vec<Arc<Message>> {
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(turns * 10);
    let mut push = |value: Value| {
        let Value::Object(map) = value else { unreachable!("objects only") };
        out.push(Arc::new(Message::from_map(format!("e{}", out.len()), map).unwrap()));
    };
    for turn in 0..turns {
        push(
            json!({"role": "user", "content": format!("Please look at src/part_{turn}.rs and mend what fails there.")}),
        );
        for call in 0..4 {
            let id = if broken { format!("call_{call}") } else { format!("call_{turn}_{call}") };
            push(
                json!({"role": "assistant", "model": "m1", "stopReason": "toolUse", "usage": {"input": 10, "output": 5},
                "content": [{"type": "toolCall", "id": id, "name": "read", "arguments": {"path": format!("src/part_{turn}.rs")}}]}),
            );
            if !(broken && call == 3) {
                let output = format!("fn part_{turn}() {{ todo({call}) }}\n").repeat(12);
                push(json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": output}));
            }
        }
        push(
            json!({"role": "assistant", "content": format!("Part {turn} is mended: the loop in src/part_{turn}.rs ran once too often.")}),
        );
    }
    out
}

/// The hardest case for the summary: every byte is prose it has to read.
fn talk(turns: usize) -> Vec<Arc<Message>> {
    let prose = "We decided to keep src/net/pool.rs as it is. The next step is a test for https://example.com/a/7. It is \
                 slow, but never mind; 必须保留旧接口。 Tell me when build 4f1c99a is done, please. ";
    let message = |n: usize| {
        let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
        let Value::Object(map) = json!({"role": role, "content": prose.repeat(4)}) else { unreachable!("an object") };
        Arc::new(Message::from_map(format!("e{n}"), map).unwrap())
    };
    (0..2 * turns).map(message).collect()
}

fn time<T>(what: &str, bytes: usize, work: impl Fn() -> T) -> T {
    let mut best = f64::MAX;
    let mut result = work();
    for _ in 0..5 {
        let start = Instant::now();
        result = work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:<44} {:>8.1} ms {:>8.1} MB/s", best * 1e3, bytes as f64 / best / 1e6);
    result
}

fn main() {
    let options = PipelineOptions::default();
    for (name, broken) in [("in order", false), ("every turn broken", true)] {
        let messages = session(10_000, broken);
        let bytes = messages.iter().map(|m| m.json.len()).sum();
        let what = format!("{} messages {name}", messages.len());
        let (view, _) = time(&format!("pipeline, {what}"), bytes, || run(messages.clone(), &options));
        time(&format!("render, {what}"), bytes, || render(&view));
        let chunks = ViewChunks::build(&view);
        time(&format!("summary, {what}"), bytes, || summarize(chunks.index().messages().iter(), None, 16_000));
    }
    let by_four = |text: &str| (text.len() as u64).div_ceil(4);
    let mut view = run(session(10_000, false), &options).0;
    for message in &mut view {
        Arc::make_mut(message).tokens = 8 + by_four(&message.json);
    }
    let bytes = view.iter().map(|m| m.json.len()).sum();
    let chunks = ViewChunks::build(&view);
    let index = chunks.index();
    time("fit, 100000 messages that fit", bytes, || fit(index.messages(), u64::MAX, &by_four));
    time("fit, 100000 messages into 100k tokens", bytes, || fit(index.messages(), 100_000, &by_four));
    let options = CompactionOptions { usable_budget: 100_000, keep_recent: None, previous_summary: None };
    time("compact, 100000 messages", bytes, || compact(index.messages(), &options, &by_four));
    let talk = talk(20_000);
    let bytes = talk.iter().map(|m| m.json.len()).sum();
    let chunks = ViewChunks::build(&talk);
    time("summary, talk without tools", bytes, || summarize(chunks.index().messages().iter(), None, 16_000));
}
