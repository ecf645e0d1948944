//! The order of things around an engine: where a host keeps them, what happens in a turn, the replay of a session.
//!
//! Decision: the runtime owns the transcript and the order of calls; engines own nothing of either. A replay is a run in
//! which the model's answers are already known, so it takes the same path as a live turn up to the model call.
//!
//! | start at | for |
//! |---|---|
//! | [`Runtime`] | turns: engine, model and tools, put to work on sessions |
//! | [`session`] | one conversation and its transcript |
//! | [`turn`] | what a turn is asked, and what it did |
//! | [`model`] | what answers prompts |
//! | [`replay`], [`compare`] | recorded sessions, played again |
//! | [`config`], [`Home`] | what a person configured, and where things are kept |
#![forbid(unsafe_code)]

pub mod compare;
pub mod config;
mod error;
mod home;
pub mod model;
mod options;
pub mod replay;
mod runtime;
mod secret;
pub mod session;
pub mod turn;
mod watch;

pub use config::Config;
pub use error::RuntimeError;
pub use home::{Home, expand};
pub use options::{Creations, RuntimeOptions};
pub use replay::{CallReport, Replay, ReplayOptions, ReplaySummary, TurnRange};
pub use runtime::Runtime;
pub use secret::Secret;
pub use session::{Prompt, Session};
pub use turn::{TurnEnd, TurnEvent, TurnReport, TurnRequest};
