//! The only unsafe code of the crate: opening libraries, and what of the system has no safe interface.
#![allow(unsafe_code, reason = "dlopen, reading the exported header, signal handlers: each block says why it holds")]

mod library;
#[cfg(unix)]
pub(crate) mod signals;
#[cfg(not(unix))]
#[path = "signals_none.rs"]
pub(crate) mod signals;
pub(crate) mod system;

pub(crate) use library::open;
