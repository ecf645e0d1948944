//! What a verdict on a large library costs: `cargo bench -p context-engine-benches --bench inspect`.
//!
//! Decision: the library is made here, from the probe's own, with 20 MB between what is loaded and the section headers, so
//! that headers and record lie as far apart as a linker puts them and no linker has to run. The file is in the system's
//! cache: what counts is how much of it is read.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should stop")]

use std::hint::black_box;

use context_engine_benches::probe_library;
use context_engine_loader::inspect;
use criterion::{Criterion, criterion_group, criterion_main};

/// Where an ELF header says where its section headers are.
const SECTIONS_AT: usize = 0x28;
const PADDING: usize = 20 << 20;

fn verdict(c: &mut Criterion) {
    let small = std::fs::read(probe_library().unwrap()).unwrap();
    let headers = u64::from_le_bytes(small[SECTIONS_AT..SECTIONS_AT + 8].try_into().unwrap()) as usize;
    let mut large = small[..headers].to_vec();
    // No zeros: a file system might keep those as a hole.
    large.extend((0..PADDING).map(|at| at as u8 | 1));
    large.extend(&small[headers..]);
    large[SECTIONS_AT..SECTIONS_AT + 8].copy_from_slice(&((headers + PADDING) as u64).to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let mut group = c.benchmark_group("inspect");
    for (name, bytes) in [("as built", small), ("with 20 MB", large)] {
        let path = folder.path().join("library.so");
        std::fs::write(&path, bytes).unwrap();
        group.bench_function(name, |b| b.iter(|| inspect::inspect(black_box(&path)).unwrap()));
    }
}

criterion_group!(benches, verdict);
criterion_main!(benches);
