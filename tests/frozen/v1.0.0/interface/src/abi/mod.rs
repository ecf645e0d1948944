//! Everything that crosses the library boundary.
//!
//! Architecture Invariant: this is the only module of the crate with `unsafe` in it, and the only one whose types have
//! a frozen layout. Inside a major version nothing here changes shape: prefix structs grow at their end, traits grow by
//! methods with a default body, results grow in `extra_json`, the elements of a slice never change.
//!
//! | file | what crosses |
//! |---|---|
//! | `views`, `messages`, `chunk` | the history, borrowed |
//! | `params`, `plan`, `results`, `error` | one call: in and out |
//! | `host` | what the host does for the engine |
//! | `engine`, `guard` | the engine itself, and where its panics stop |
//! | `module` | the one exported symbol |
#![allow(
    unsafe_code,
    non_local_definitions,
    reason = "the StableAbi derive and sabi_trait emit unsafe impls, impls inside const blocks"
)]

pub mod chunk;
pub mod engine;
pub mod error;
pub(crate) mod guard;
pub mod host;
pub mod messages;
pub mod module;
pub mod params;
pub mod plan;
pub mod results;
pub mod views;
