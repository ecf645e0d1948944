//! In whose code a fault happened, for threads that are in no call.
//!
//! Decision: an engine may start threads of its own, and no mark says what they do. But a fault comes with the address of
//! the instruction that made it, and that instruction belongs to one library: when it is an engine's, this is proof. The
//! addresses are written down when a library was opened, because a handler may not ask the system for them. A fault in
//! code that others share (the C library, called with a wrong pointer), `abort` and `exit` prove nothing here.
//!
//! Libraries are never closed, so what was written down stays true. Linux only, on x86_64 and aarch64; elsewhere nothing
//! is known.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering};

use libc::{c_int, c_void};

use super::WRITING;

/// Pieces of code that are known. A library has one, or a few.
const PIECES: usize = 1024;
const FREE: c_int = -1;
const TAKEN: c_int = -2;

/// A piece of code, and the place of the stamp for what happens in it.
struct Piece {
    start: AtomicUsize,
    end: AtomicUsize,
    offset: AtomicI64,
    /// [`FREE`], [`TAKEN`] while it is being changed, or the file.
    fd: AtomicI32,
}

static KNOWN: [Piece; PIECES] = [const {
    Piece { start: AtomicUsize::new(0), end: AtomicUsize::new(0), offset: AtomicI64::new(0), fd: AtomicI32::new(FREE) }
}; PIECES];

/// From now on a fault in the code of a library that is open, on a thread that is in no call, is stamped into the byte of
/// `file` at `offset`. `file` must stay open until [`unregister`](super::unregister). `is_it` is asked with the path each
/// library was opened by; empty for the program itself. Returns whether there was such a library, and room.
pub(crate) fn watch_library(is_it: impl Fn(&Path) -> bool, file: &File, offset: u64) -> bool {
    let mut known = false;
    for (start, end) in code_of(is_it) {
        let free = KNOWN
            .iter()
            .find(|piece| piece.fd.compare_exchange(FREE, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok());
        let Some(piece) = free else { return false };
        piece.start.store(start, Ordering::SeqCst);
        piece.end.store(end, Ordering::SeqCst);
        piece.offset.store(offset as i64, Ordering::SeqCst);
        piece.fd.store(file.as_raw_fd(), Ordering::SeqCst);
        known = true;
    }
    known
}

/// Forgets what is stamped into a file, before it is closed.
pub(super) fn forget(file: &File) {
    let taken =
        |piece: &&Piece| piece.fd.compare_exchange(file.as_raw_fd(), TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    let pieces: Vec<&Piece> = KNOWN.iter().filter(taken).collect();
    // A handler that has read the file's number reads the rest before somebody else writes there.
    super::wait_for_writers();
    for piece in pieces {
        piece.fd.store(FREE, Ordering::SeqCst);
    }
}

/// Writes `byte` into the stamps of all whose code is at `address`. Returns whether there are any. For handlers.
pub(super) fn stamp_at(address: usize, byte: u8) -> bool {
    WRITING.fetch_add(1, Ordering::SeqCst);
    let mut stamped = false;
    for piece in &KNOWN {
        let fd = piece.fd.load(Ordering::SeqCst);
        let code = piece.start.load(Ordering::SeqCst)..piece.end.load(Ordering::SeqCst);
        if fd >= 0 && code.contains(&address) {
            super::write_byte(fd, byte, piece.offset.load(Ordering::SeqCst));
            stamped = true;
        }
    }
    WRITING.fetch_sub(1, Ordering::SeqCst);
    stamped
}

/// Where the code of the open libraries is that `is_it` picks.
#[cfg(target_os = "linux")]
fn code_of(is_it: impl Fn(&Path) -> bool) -> Vec<(usize, usize)> {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    type Found = Vec<(PathBuf, usize, usize)>;

    extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the system describes a library that is open; nothing of it changes during this call.
        let Some(info) = (unsafe { info.as_ref() }) else { return 0 };
        if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: `found` is what `code_of` gives below, and is used by nobody else meanwhile.
        let found = unsafe { &mut *found.cast::<Found>() };
        // SAFETY: a C string that stays as long as the library.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        // SAFETY: the system's own table, of that many entries.
        let parts = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        for part in parts.iter().filter(|part| part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_X != 0) {
            let start = (info.dlpi_addr as usize).wrapping_add(part.p_vaddr as usize);
            let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
            found.push((path, start, start.saturating_add(part.p_memsz as usize)));
        }
        0
    }

    let mut found = Found::new();
    // SAFETY: `add` is called before this returns, with the pointer given here; it does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found.into_iter().filter(|(path, ..)| is_it(path)).map(|(_, start, end)| (start, end)).collect()
}

#[cfg(not(target_os = "linux"))]
fn code_of(_: impl Fn(&Path) -> bool) -> Vec<(usize, usize)> {
    vec![]
}

/// The instruction at which a signal has stopped a thread.
pub(super) fn stopped_at(context: *mut c_void) -> Option<usize> {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // SAFETY: the system calls a handler with a context of this form.
        let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() }?;
        #[cfg(target_arch = "x86_64")]
        return Some(context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize);
        #[cfg(target_arch = "aarch64")]
        return Some(context.uc_mcontext.pc as usize);
    }
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        let _ = context;
        None
    }
}
