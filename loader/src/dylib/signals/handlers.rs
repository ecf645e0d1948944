//! What a library does to the signal handlers of the process, and taking it back.
//!
//! Decision: only what the library itself has put in place is taken out: the host's other threads may install handlers
//! meanwhile.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use libc::{c_int, sigaction};

use super::{SIGNALS, handler_of};

/// Handlers of all signals, to see what a library does to them.
pub(crate) struct Handlers(Vec<(c_int, sigaction)>);

/// The handlers as they are now.
pub(crate) fn snapshot() -> Handlers {
    // Signal numbers fit: there are 64.
    let all = 1..SIGNALS as c_int;
    Handlers(all.filter_map(|signal| Some((signal, handler_of(signal)?))).collect())
}

/// Signals whose handling is no longer what it was at `before`.
pub(super) fn handlers_changed(before: &Handlers) -> Vec<i32> {
    /// Linux shows that the C library has set a handler at all: no difference of anybody's making.
    const RESTORER: c_int = if cfg!(target_os = "linux") { 0x0400_0000 } else { 0 };
    let essence = |action: &sigaction| (action.sa_sigaction, action.sa_flags & !RESTORER);
    let differs =
        |signal: c_int, then: &sigaction| handler_of(signal).is_some_and(|now| essence(&now) != essence(then));
    before.0.iter().filter(|(signal, then)| differs(*signal, then)).map(|(signal, _)| *signal).collect()
}

/// Puts back the handlers that `library` has replaced since `before`, by its own code or by none. Returns their signals.
///
/// What the host's other threads put in place meanwhile stays.
pub(crate) fn restore(before: &Handlers, library: &Path) -> Vec<i32> {
    let mut changed = handlers_changed(before);
    let is_its = |signal: c_int| {
        handler_of(signal).is_some_and(|now| match now.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => true,
            handler => library_of(handler).is_some_and(|path| same_file(&path, library)),
        })
    };
    changed.retain(|signal| is_its(*signal));
    for (signal, then) in before.0.iter().filter(|(signal, _)| changed.contains(signal)) {
        // SAFETY: `then` is what the system itself gave for this signal; the code of a handler is never unmapped.
        unsafe { sigaction(*signal, then, ptr::null_mut()) };
    }
    changed
}

/// The file that holds the code at `address`.
fn library_of(address: usize) -> Option<PathBuf> {
    // SAFETY: a struct of pointers and numbers, for which zeros are a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; `found` is written by the call alone.
    let known = unsafe { libc::dladdr(ptr::without_provenance(address), &raw mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the system gave a C string, which stays while the library is loaded, and none is ever unloaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    one == other || (real(one).is_some() && real(one) == real(other))
}
