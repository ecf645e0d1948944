//! The store of a session, on real files: what it keeps whatever happens to the process, the disk and the file.

#![allow(clippy::print_stderr, reason = "a skipped test must say so")]

mod behaviour;
mod crash;
mod foreign;
mod property;
mod recorded;
mod reports;
mod rewrite;
mod support;
