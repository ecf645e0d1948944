//! What supervision adds to a call: `cargo bench -p context-engine-benches --bench supervised`.
//!
//! Decision: wall time, because what a supervised call costs is mostly waiting for another thread to wake. Measured twice:
//! call upon call, and with a millisecond of sleep before each, as calls come in a session. The bare call is the same
//! member of the same loaded engine, with the same params.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should stop")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use context_engine_benches::{Quiet, Side, call, handle};
use context_engine_interface::{CallContext, CompactParamsFields, HostParams, RuntimeSettings};
use context_engine_loader::CompactRequest;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Map, Value};

/// What a session sends with each call.
fn host_params() -> Map<String, Value> {
    let settings = serde_json::to_value(RuntimeSettings::new()).unwrap();
    let prompt = "Why does the pool wait for a connection that was closed? ".repeat(10);
    [("sessionKey", Value::from("agent:main:bench")), ("prompt", prompt.into()), ("runtimeSettings", settings)]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn supervised(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let handle = handle(home.path()).unwrap();
    let supervised_call = call(host_params());
    let supervised = || {
        let request =
            CompactRequest { token_budget: 1_000, current_tokens: 10, force: true, ..CompactRequest::default() };
        handle.compact(black_box(&supervised_call), request).unwrap()
    };
    let engine = Side::Loaded.engine("nothing").unwrap();
    let params = host_params();
    let bare = || {
        let json = Value::Object(params.clone()).to_string();
        let fields = CompactParamsFields {
            session_id: "session-1".into(),
            token_budget: Some(1_000).into(),
            force: true,
            current_token_count: Some(10).into(),
            host_params: HostParams::from_json(&json),
            ..CompactParamsFields::default()
        };
        CallContext::lend(&Quiet, |ctx| fields.lend(|params| engine.compact(ctx, params))).unwrap()
    };
    let mut group = c.benchmark_group("compact");
    for (name, pause) in [("call upon call", Duration::ZERO), ("a millisecond apart", Duration::from_millis(1))] {
        group.bench_function(BenchmarkId::new("bare", name), |b| b.iter_custom(|n| time(n, pause, bare)));
        group.bench_function(BenchmarkId::new("supervised", name), |b| b.iter_custom(|n| time(n, pause, supervised)));
    }
}

fn time<R>(iterations: u64, pause: Duration, run: impl Fn() -> R) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..iterations {
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let started = Instant::now();
        black_box(run());
        took += started.elapsed();
    }
    took
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500));
    targets = supervised
}
criterion_main!(benches);
