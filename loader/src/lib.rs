//! From a file in a plugins directory to an answered call: find → stage → inspect → trust → probe → open → call.
//!
//! Decision: each step is one module, takes what the step before gave, and fails with one error that names path, step,
//! what was expected and found, and what to do. Nothing of a plugin runs in this process before `open`. What comes out
//! is an [`EngineHandle`]: it always answers, by the engine asked for or by the built-in `legacy`, and says which.
//!
//! | step | module |
//! |---|---|
//! | 1 find | [`find`], `manifest` |
//! | 2 stage | [`stage`] |
//! | 3 inspect | [`inspect`] |
//! | 4 trust | [`trust`] |
//! | – configuration | `schema`: an engine is not created with one that does not fit |
//! | 5 probe | [`probe`] |
//! | 6 open | `open`, `dylib` |
//! | 6 create | `create` |
//! | 7 call | [`supervise`]; who may be called: [`quarantine`] |
//! | all again, under handles in use | `reload`; by itself: `watch`; when asked: [`hosts`] |
//!
//! What was learned about a build on the way is kept by [`builds`].
//!
//! Architecture Invariant: `unsafe` stands in `dylib` only.
#![deny(unsafe_code)]

pub mod builds;
mod catalog;
mod create;
mod creation;
mod dlerror;
mod dylib;
mod error;
pub mod find;
pub mod hosts;
pub mod inspect;
mod instances;
mod known;
mod loader;
mod manifest;
mod open;
pub mod platform;
pub mod probe;
pub mod quarantine;
mod reload;
mod rules;
mod schema;
pub mod stage;
pub mod supervise;
mod text;
pub mod trust;
mod watch;

pub use builds::Builds;
pub use catalog::{Plugin, closest_first};
/// Version of the built-in engine: of its behaviour, not of its crate.
pub use context_engine_legacy::VERSION as LEGACY_VERSION;
pub use creation::Creation;
pub use error::{LoaderError, Problem, Step};
pub use find::{Origin, PluginDirectory};
pub use loader::{LEGACY, Loader, LoaderOptions, OnFailure};
pub use manifest::Manifest;
pub use probe::{ProbeFailure, ProbeOptions, ProbeReport, ProbeStep};
pub use reload::{MANY_RETIRED, Outcome, Reloaded, Retired};
pub use schema::ConfigFault;
pub use supervise::{
    Answer, AssembleError, AssembleRequest, Assembled, Call, CancelToken, CompactRequest, CompactTarget, Creations,
    Deadlines, EngineHandle, EngineTool, HostProfile, NoServices, Permit, PreparedHistory, Projection, ProjectionMode,
    SessionServices, ToolAnswer, TurnFacts, TurnTaken,
};
pub use text::{for_shell, on_one_line, steers};
pub use trust::TrustPolicy;
pub use watch::{BeforeLook, TellReloads, WatchOptions, Watcher};
