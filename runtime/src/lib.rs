//! The order of things around an engine: where a host keeps them, what happens in a turn, the replay of a session.
//!
//! Decision: the runtime owns the transcript and the order of calls; engines own nothing of either. A replay is a run in
//! which the model's answers are already known, so it takes the same path as a live turn up to the model call.
#![forbid(unsafe_code)]

mod compaction;
pub mod compare;
pub mod config;
mod error;
mod history;
mod home;
pub mod model;
mod model_call;
pub mod replay;
mod scratch;
mod secret;

pub use config::Config;
pub use error::RuntimeError;
pub use home::Home;
pub use model_call::Prompt;
pub use replay::{CallReport, Replay, ReplayOptions, ReplaySummary, TurnRange};
pub use secret::Secret;
