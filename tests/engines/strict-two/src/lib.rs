//! An engine that refuses two of the host params every host sends, `prompt` and `runtimeSettings`: each costs it one
//! refusal, and its code runs once.
#![forbid(unsafe_code)]

#[path = "../../strict/src/engine.rs"]
mod engine;

use context_engine_interface::export_engine;

use engine::Strict;

export_engine! {
    engine: Strict,
    id: "strict-two",
    name: "Strict two",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    known_host_params: ["sessionKey"],
}
