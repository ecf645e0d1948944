//! The built-in engine: what every session falls back on.
//!
//! Decision: it works from the transcript alone, without a model, a store or a clock, so that it can answer when
//! everything else has failed. The same messages and the same budget always give the same prompt.
//!
//! | module | takes | gives |
//! |---|---|---|
//! | [`pipeline`] | raw history | what engines see ([`pipeline::run`]), what models see ([`pipeline::render`]) |
//! | [`fit`] | what engines see, a budget | a plan that fits, whatever the history |
//! | [`compaction`] | what engines see, a budget | where to cut, and a summary of what is cut off |
//! | [`summary`] | any messages, a length | what was said and done, in its own words |
//! | [`LegacyEngine`] | | the above as a `ContextEngine` |
//!
//! Invariant: nothing here panics on what a session holds, and nothing here writes.
#![forbid(unsafe_code)]

pub mod compaction;
mod engine;
pub mod fit;
pub mod pipeline;
pub mod summary;

#[cfg(test)]
mod notation;

pub use engine::{ID, LegacyEngine, NAME, VERSION};
