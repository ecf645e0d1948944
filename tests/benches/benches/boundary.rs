//! What the boundary between host and engine costs, in time: `cargo bench -p context-engine-benches`.
//!
//! Decision: each figure is measured on both sides with the same engine, so what counts is the difference or the ratio
//! of two figures of one run. On a shared machine times move by tens of percent; ratios are counted in instructions by
//! `cargo run --release -p context-engine-benches --bin instructions`. Times are of the thread's own processor clock, so
//! that a neighbour who takes the core does not count.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should stop")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use context_engine_benches::{Side, assemble, dispose, from_json, handle, messages, prompt, to_json};
use context_engine_interface::ViewChunks;
use context_engine_loader::PreparedHistory;
use context_engine_transcript::{Message, TokenCounter};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const SIDES: [(&str, Side); 2] = [("dyn", Side::Dyn), ("loaded", Side::Loaded)];

/// A call that does nothing: what crossing costs.
fn call(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("call");
    let views = ViewChunks::default();
    for (name, side) in SIDES {
        let engine = side.engine("nothing").unwrap();
        group.bench_function(BenchmarkId::new("assemble", name), |b| {
            b.iter(|| assemble(black_box(&*engine), black_box(&views)).unwrap());
        });
        group.bench_function(BenchmarkId::new("dispose", name), |b| {
            b.iter(|| dispose(black_box(&*engine)).unwrap());
        });
    }
}

/// The same ready views, read to the last message.
fn walk(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("walk");
    for n in SIZES {
        let views = ViewChunks::build(&messages(n));
        group.throughput(Throughput::Elements(n as u64));
        for (name, side) in SIDES {
            let engine = side.engine("walk").unwrap();
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter(|| assemble(black_box(&*engine), black_box(&views)).unwrap());
            });
        }
    }
}

/// Making views of ready messages, and the JSON round trip they stand in for.
fn build(c: &mut Criterion<CpuTime>) {
    for n in SIZES {
        let messages = messages(n);
        let mut group = c.benchmark_group("build");
        group.throughput(Throughput::Elements(n as u64));
        // Timed without the drop: a host keeps the views.
        group.bench_function(BenchmarkId::new("views", n), |b| {
            b.iter_custom(|iterations| (0..iterations).map(|_| time_of_a_build(&messages)).sum());
        });
        // What a turn makes anew in a session of this length.
        let newest = &messages[n - 10..];
        group.throughput(Throughput::Elements(10));
        group.bench_function(BenchmarkId::new("ten newest", n), |b| b.iter(|| ViewChunks::build(black_box(newest))));
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("json round trip", n), |b| {
            b.iter(|| from_json(&to_json(black_box(&messages))));
        });
    }
}

fn time_of_a_build(messages: &[Arc<Message>]) -> Duration {
    let start = CpuTime.start();
    let views = black_box(ViewChunks::build(black_box(messages)));
    let took = CpuTime.end(start);
    drop(views);
    took
}

/// A long session and a window of 32k tokens: the engine's answer, then all the host does to have a prompt.
fn window(c: &mut Criterion<CpuTime>) {
    let n = 100_000;
    let messages = messages(n);
    let views = ViewChunks::build(&messages);
    let mut group = c.benchmark_group("window");
    for (name, side) in SIDES {
        let engine = side.engine("window").unwrap();
        group.bench_function(BenchmarkId::new(name, n), |b| {
            b.iter(|| assemble(black_box(&*engine), black_box(&views)).unwrap());
        });
    }

    let home = tempfile::tempdir().unwrap();
    let handle = handle(home.path()).unwrap();
    let counter = TokenCounter::for_model(None);
    let history = Arc::new(PreparedHistory::new(messages, &counter));
    group.bench_function(BenchmarkId::new("prompt", n), |b| {
        b.iter(|| prompt(&handle, black_box(&history), &counter).unwrap());
    });
}

/// How long the thread itself ran; where the system does not tell, how long it took.
struct CpuTime;

#[cfg(unix)]
fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

#[cfg(not(unix))]
fn now() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;
    fn start(&self) -> Duration {
        now()
    }
    fn end(&self, start: Duration) -> Duration {
        now() - start
    }
    fn add(&self, left: &Duration, right: &Duration) -> Duration {
        *left + *right
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn settings() -> Criterion<CpuTime> {
    let (warm_up, measurement) = (Duration::from_millis(500), Duration::from_secs(2));
    let criterion = Criterion::default().with_measurement(CpuTime);
    criterion.sample_size(20).warm_up_time(warm_up).measurement_time(measurement)
}

criterion_group! {
    name = boundary;
    config = settings();
    targets = call, walk, build, window
}
criterion_main!(boundary);
