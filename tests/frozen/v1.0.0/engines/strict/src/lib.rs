//! An engine of an older contract: it knows two host params, and everything newer is refused before its code runs.
#![forbid(unsafe_code)]

mod engine;

use context_engine_interface::export_engine;

use engine::Strict;

export_engine! {
    engine: Strict,
    id: "strict",
    name: "Strict",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    known_host_params: ["sessionKey", "prompt"],
}
