//! What the end-to-end tests share.
//!
//! Decision: the tests use what a user has: libraries built by cargo from crates of their own, dropped into a plugins
//! directory, and the command as a process. Nothing is mocked between the dropped file and the prompt. Building happens
//! once per test program and lands in folders that stay, so a second run builds nothing.
//!
//! | module | gives |
//! |---|---|
//! | [`build`] | the plugins of `engines/`, the command, one-off builds |
//! | [`changed`] | an engine and a host on a changed interface |
//! | [`commands`] | `context-engine plugins …`, and what it left |
//! | [`host`] | a home in a temporary folder: its plugins directory, a loader, the command |
//! | [`boundary`] | a loaded engine without the supervisor |
//! | [`session`] | histories, call services, a call |
//! | `probe` | probes of the engines, on Linux |
//! | [`record`] | a plugin with another record in its file |
//! | [`swaps`] | calls while an engine is replaced under them |
//! | [`variants`] | many builds of one engine, without building |
//! | [`prompts`] | the rules every prompt keeps, as `checker/check_prompts.py` has them |
#![forbid(unsafe_code)]

pub mod append_only;
pub mod boundary;
pub mod build;
pub mod changed;
pub mod commands;
pub mod faulty;
pub mod frozen;
pub mod host;
pub mod layout;
#[cfg(target_os = "linux")]
pub mod probe;
pub mod prompts;
pub mod record;
pub mod session;
pub mod swaps;
pub mod tour;
pub mod variants;

/// Says that a test was left out because `what` is not here. Where all tests have to run (`CI` is set), that is a
/// failure.
#[allow(clippy::print_stderr, reason = "the person who runs the tests should know")]
pub fn skip(test: &str, what: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test}: {what} is missing, and CI is set");
    eprintln!("{test}: skipped, {what} is missing");
}
