//! Where there are no signals: nothing is stamped, and every death in a call is one without proof. Never run.

use std::fs::File;

/// A stamp: `exit` was called by the code in the call.
pub(crate) const EXIT: u8 = 255;
/// A stamp: it happened in the host's own code.
pub(crate) const HOST: u8 = 254;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Before;

/// Handlers of all signals: none.
pub(crate) struct Handlers;

pub(crate) fn install() {}

pub(crate) fn enter(_: &File, _: u64) -> (Before, u32) {
    (Before, 0)
}

pub(crate) fn leave(_: Before) {}

pub(crate) fn set_paused(_: bool) -> bool {
    false
}

pub(crate) fn register(_: &File) {}

pub(crate) fn unregister(_: &File) {}

pub(crate) fn watch_library(_: impl Fn(&std::path::Path) -> bool, _: &File, _: u64) -> bool {
    false
}

pub(crate) const KNOWS_THREADS: bool = false;

pub(crate) fn thread_is_gone(_: u32) -> bool {
    false
}

/// The handlers as they are now.
pub(crate) fn snapshot() -> Handlers {
    Handlers
}

/// Puts back the handlers that changed since `before`.
pub(crate) fn restore(_: &Handlers, _: &std::path::Path) -> Vec<i32> {
    vec![]
}

/// A signal as people call it.
pub(crate) fn signal_name(signal: i32) -> String {
    format!("signal {signal}")
}
