//! A thousand calls a second for thirty seconds, while the engine is replaced a hundred times: prints who answered and how
//! long it took. `reload_soak [SECONDS [SWAPS [BUILDS]]]`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::time::Duration;

use context_engine_tests::build::{Build, library_name};
use context_engine_tests::swaps::{Plan, Swapped, run};

const RATE: u32 = 1_000;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let given = |at: usize, otherwise: usize| asked.get(at).copied().unwrap_or(otherwise);
    let swaps = given(1, 100);
    let plan = Plan {
        lasts: Duration::from_secs(given(0, 30) as u64),
        rate: RATE,
        swaps,
        builds: given(2, swaps + 1).clamp(2, 1_000),
    };
    // As its users have it: what a copy costs is asked of no debug build.
    let built = Build::engines("test-plugins").arg("--package=alpha").profile("release").run();
    let done = run(plan, &built.join(library_name("alpha")));
    let Swapped { by_build, others, mixed, calls, pauses, first_calls, swaps, retired, resident: (before, after) } =
        done;
    println!("{} calls by {} builds, {} by anybody else", by_build.values().sum::<u64>(), by_build.len(), others.len());
    println!("{swaps} swaps; {mixed} turns with two builds");
    println!("call        {}", figures(&calls));
    println!("pause       {}", figures(&pauses));
    println!("first call  {}", figures(&first_calls));
    let per_swap = after.saturating_sub(before) as f64 / swaps.max(1) as f64 / 1e3;
    println!(
        "memory      {:.1} MB before, {:.1} MB after: {per_swap:.0} kB a swap",
        before as f64 / 1e6,
        after as f64 / 1e6
    );
    println!("retired     {} copies, {:.1} MB of address space", retired.copies, retired.bytes as f64 / 1e6);
    if let Some(other) = others.first() {
        println!("for example {other}");
    }
}

fn figures(sorted: &[Duration]) -> String {
    let at = |share: f64| sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or_default();
    format!("median {:?}, 99 % {:?}, 99.9 % {:?}, longest {:?}", at(0.5), at(0.99), at(0.999), at(1.0))
}
