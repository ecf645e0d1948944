//! Handlers of fatal signals and of `exit`: they stamp the crash mark of the thread that ends the process.
//!
//! Decision: a handler does one `pwrite` of one byte into a file that is open already, and hands on to whoever handled the
//! signal before; without such a handler the process dies of the same signal as ever. Only what may be called in a signal
//! handler is called: atomics, a thread-local without destructor, `pwrite`, `sigaction`, `raise`.
//!
//! Invariant: only the thread that runs an engine's call stamps that call's mark, and the first stamp stays. So the
//! standard library's stack overflow handler, which aborts, does not turn a SIGSEGV into a SIGABRT. A thread that is in no
//! call stamps whose code the fault was made by, where that can be told (`code`).
//!
//! The standard library gives its threads a stack for signals; on a thread made otherwise a stack overflow dies unstamped.
//! Run on Linux; written for macOS, too. On Windows there is none of this (`signals_none.rs`): a mark is never stamped
//! there, and every death in a call is one without proof.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, sigaction, siginfo_t};

mod code;
mod handlers;

pub(crate) use code::watch_library;
pub(crate) use handlers::{Handlers, restore, snapshot};

/// A stamp: `exit` was called by the code in the call. Signals have smaller numbers.
pub(crate) const EXIT: u8 = 255;
/// A stamp: it happened in the host's own code, in a service that the engine called.
pub(crate) const HOST: u8 = 254;

/// Signals that mean that the thread they arrive at did something wrong.
const FATAL: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGSYS, libc::SIGTRAP];
/// Signals by which somebody ends the process in order.
const ENDING: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
/// Numbers of signals are smaller on every system.
const SIGNALS: usize = 65;
/// Files of marks that can be open at once and get to know that the process ended in order.
const FILES: usize = 64;

/// Where the mark of the call is that this thread is in.
#[derive(Debug, Clone, Copy)]
struct Current {
    /// `-1`: in no call.
    fd: c_int,
    /// Place of the stamp.
    offset: i64,
    paused: bool,
    stamped: bool,
}

const NONE: Current = Current { fd: -1, offset: 0, paused: false, stamped: false };

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(NONE) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

static PREVIOUS: [AtomicPtr<sigaction>; SIGNALS] = [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];
/// What stands in a `sigaction` when the handler is ours: the address of a function need not be unique.
static OURS: AtomicUsize = AtomicUsize::new(0);
static OPEN: [AtomicI32; FILES] = [const { AtomicI32::new(-1) }; FILES];
/// Handlers that are about to write into a file of `OPEN`.
static WRITING: AtomicUsize = AtomicUsize::new(0);
/// SIGABRT was given back to whoever had it before.
static ABORT_IS_FREE: AtomicBool = AtomicBool::new(false);
/// The process the handlers were installed in: a child made by `fork` shares the files and must not write into them.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The process ends in order: threads that crash while the process is taken apart are not to blame.
static ENDS: AtomicBool = AtomicBool::new(false);

/// What a thread was in before; given back to [`leave`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before(Current);

/// Installs the handlers, once per process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
        OURS.store(handler as usize, Ordering::SeqCst);
        OWNER.store(own_pid(), Ordering::SeqCst);
        for signal in FATAL {
            take_over(signal);
        }
        for signal in ENDING {
            // A host that handles them itself says itself when it ends; `nohup` wants them ignored.
            if handler_of(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL) {
                take_over(signal);
            }
        }
        // SAFETY: registers a function that lives as long as this code; nothing of it unwinds.
        unsafe { libc::atexit(on_exit) };
    });
}

/// From now on this thread is in a call whose stamp is the byte of `file` at `offset`. `file` must stay open until
/// [`leave`]. Returns what has to be given to it, and the thread's number.
pub(crate) fn enter(file: &File, offset: u64) -> (Before, u32) {
    if ABORT_IS_FREE.load(Ordering::Relaxed) && ABORT_IS_FREE.swap(false, Ordering::SeqCst) {
        // The fault was mended by whoever handled it.
        take_over(libc::SIGABRT);
    }
    let current = Current { fd: file.as_raw_fd(), offset: offset as i64, ..NONE };
    let thread = THREAD.get();
    let thread = if thread == 0 { thread_number() } else { thread };
    THREAD.set(thread);
    (Before(CURRENT.replace(current)), thread)
}

/// This thread's call is over.
pub(crate) fn leave(before: Before) {
    CURRENT.set(before.0);
}

/// Says whether what happens on this thread from now on is the host's own doing. Returns what was said before.
pub(crate) fn set_paused(paused: bool) -> bool {
    let current = CURRENT.get();
    CURRENT.set(Current { paused, ..current });
    current.paused
}

/// Makes known a file that holds at `marks::ENDED` how the process ended.
pub(crate) fn register(file: &File) {
    for place in &OPEN {
        if place.compare_exchange(-1, file.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return;
        }
    }
}

/// Forgets a file, before it is closed.
pub(crate) fn unregister(file: &File) {
    code::forget(file);
    for place in &OPEN {
        let _ = place.compare_exchange(file.as_raw_fd(), -1, Ordering::SeqCst, Ordering::SeqCst);
    }
    // Once closed, the number may name another file: a handler that has read it writes first.
    wait_for_writers();
}

fn wait_for_writers() {
    while WRITING.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
}

/// Whether [`enter`] gives numbers by which [`thread_is_gone`] knows a thread.
pub(crate) const KNOWS_THREADS: bool = cfg!(target_os = "linux");

/// Whether no thread of this process has that number any more: its last destructor has run.
pub(crate) fn thread_is_gone(thread: u32) -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: signal 0 is none; only whether the thread is there is asked.
        let answer = unsafe { libc::syscall(libc::SYS_tgkill, own_pid(), thread, 0) };
        answer != 0 && errno() == libc::ESRCH
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = thread;
        false
    }
}

/// A signal as people call it.
pub(crate) fn signal_name(signal: i32) -> String {
    let known = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGCHLD, "SIGCHLD"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGURG, "SIGURG"),
    ];
    let name = known.iter().find(|(number, _)| *number == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// How `signal` is handled; `None` when the system does not say.
fn handler_of(signal: c_int) -> Option<sigaction> {
    // SAFETY: all zeros is a valid `sigaction`, and the call only writes into it.
    let mut action: sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above; without a new action nothing is changed.
    let answer = unsafe { sigaction(signal, ptr::null(), &mut action) };
    (answer == 0).then_some(action)
}

fn take_over(signal: c_int) {
    let (Some(previous), Some(place)) = (handler_of(signal), PREVIOUS.get(signal as usize)) else { return };
    // Kept for good: the handler may run at any time.
    place.store(Box::into_raw(Box::new(previous)), Ordering::SeqCst);
    let mut action = previous;
    action.sa_sigaction = OURS.load(Ordering::SeqCst);
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` holds a function of the form that SA_SIGINFO asks for, and a signal mask the system gave.
    unsafe { sigaction(signal, &action, ptr::null_mut()) };
}

extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = errno();
    // SAFETY: the system calls the handler with the description of the signal; `on_fault` checks that it is there.
    let code = unsafe { info.as_ref() }.map_or(0, |info| info.si_code);
    let dies = !ENDING.contains(&signal);
    if dies && !sent_by_another_process(info, code) {
        stamp(signal as u8);
    }
    let outside = if dies && is_fault(code) { stamp_outside(signal as u8, context) } else { None };
    if !dies {
        end_in_order(signal as u8);
    }
    set_errno(errno);
    // SAFETY: written once, before this handler was installed, and never freed.
    let previous = PREVIOUS.get(signal as usize).and_then(|place| unsafe { place.load(Ordering::SeqCst).as_ref() });
    let Some(previous) = previous else { return die(signal, code) };
    if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
        free_abort();
    }
    match previous.sa_sigaction {
        libc::SIG_DFL => die(signal, code),
        // The system does not let a thread ignore its own fault.
        libc::SIG_IGN if is_fault(code) => die(signal, code),
        libc::SIG_IGN => {}
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed it promised a function of this form by SA_SIGINFO.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
            take_back(outside, signal);
        }
        handler => {
            // SAFETY: as above; without SA_SIGINFO it is a function of this form.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
            take_back(outside, signal);
        }
    }
}

/// Gives SIGABRT back. Whoever handles a stack overflow aborts, and the stack that signals have has no room for a second
/// one: the process would die of another signal than without us. The stamp is there already.
fn free_abort() {
    // SAFETY: written once, before this handler was installed, and never freed.
    let previous = unsafe { PREVIOUS[libc::SIGABRT as usize].load(Ordering::SeqCst).as_ref() };
    if let (Some(previous), true) = (previous, is_ours(libc::SIGABRT)) {
        ABORT_IS_FREE.store(true, Ordering::SeqCst);
        // SAFETY: what the system gave for this signal before.
        unsafe { sigaction(libc::SIGABRT, previous, ptr::null_mut()) };
    }
}

fn is_ours(signal: c_int) -> bool {
    handler_of(signal).is_some_and(|action| action.sa_sigaction == OURS.load(Ordering::SeqCst))
}

/// Lets the process die of `signal`, as if nobody had handled it.
fn die(signal: c_int, code: c_int) {
    let Some(mut action) = handler_of(signal) else { return };
    if action.sa_sigaction != OURS.load(Ordering::SeqCst) {
        // Somebody else handles it now and has asked us, too: that one decides.
        return;
    }
    if ENDING.contains(&signal) {
        ENDS.store(true, Ordering::SeqCst);
    }
    action.sa_sigaction = libc::SIG_DFL;
    action.sa_flags = 0;
    // SAFETY: the default action needs no function.
    unsafe { sigaction(signal, &action, ptr::null_mut()) };
    // A fault comes again when its instruction does, and then the dump shows the place. Others would be over.
    let comes_again = is_fault(code) && matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE);
    if !comes_again {
        // SAFETY: may be called in a handler; the signal is blocked now and arrives on return.
        unsafe { libc::raise(signal) };
    }
}

extern "C" fn on_exit() {
    let current = CURRENT.get();
    if current.fd >= 0 && !current.paused {
        stamp(EXIT);
    } else {
        end_in_order(EXIT);
        ENDS.store(true, Ordering::SeqCst);
    }
}

/// Whether the system found the fault itself; otherwise the signal was sent. macOS has a code above for that.
fn is_fault(code: c_int) -> bool {
    (1..0x1_0000).contains(&code)
}

/// Whether somebody else sent the signal, as service managers send SIGABRT to a host that hangs: the thread it happens to
/// arrive at has done nothing.
fn sent_by_another_process(info: *mut siginfo_t, code: c_int) -> bool {
    if is_fault(code) || info.is_null() {
        return false;
    }
    // SAFETY: the system's own description; the sender stands in it when the code says that there is one.
    let sender = unsafe { (*info).si_pid() };
    // macOS does not say who, when a thread signals a thread. On Linux 0 is somebody outside of a container.
    sender != own_pid() && !(cfg!(target_vendor = "apple") && sender == 0)
}

/// Stamps the mark of the call this thread is in.
fn stamp(stamp: u8) {
    let current = CURRENT.get();
    if current.fd < 0 || current.stamped || ENDS.load(Ordering::SeqCst) {
        return;
    }
    CURRENT.set(Current { stamped: true, ..current });
    write_byte(current.fd, if current.paused { HOST } else { stamp }, current.offset);
}

/// Stamps whose code it was, on a thread that is in no call. Returns where that was.
fn stamp_outside(stamp: u8, context: *mut c_void) -> Option<usize> {
    let current = CURRENT.get();
    if current.fd >= 0 || current.paused || ENDS.load(Ordering::SeqCst) {
        return None;
    }
    code::stopped_at(context).filter(|address| code::stamp_at(*address, stamp))
}

/// Whoever handled the signal before has mended the fault, when it would come to us again: nobody died of it.
fn take_back(outside: Option<usize>, signal: c_int) {
    if let Some(address) = outside.filter(|_| is_ours(signal)) {
        code::stamp_at(address, 0);
    }
}

/// Notes in every file that the process ended in order: a call that was still running is no suspect.
fn end_in_order(how: u8) {
    WRITING.fetch_add(1, Ordering::SeqCst);
    for place in &OPEN {
        let fd = place.load(Ordering::SeqCst);
        if fd >= 0 {
            write_byte(fd, how, crate::quarantine::marks::ENDED as i64);
        }
    }
    WRITING.fetch_sub(1, Ordering::SeqCst);
}

fn write_byte(fd: c_int, byte: u8, offset: i64) {
    if own_pid() != OWNER.load(Ordering::SeqCst) {
        return;
    }
    // SAFETY: may be called in a handler; one byte that lives on this stack. Nothing can be done about a failure.
    unsafe { libc::pwrite(fd, (&raw const byte).cast(), 1, offset as libc::off_t) };
}

fn own_pid() -> c_int {
    // SAFETY: only asks; may be called in a handler.
    unsafe { libc::getpid() }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_errno(value: c_int) {
    // SAFETY: the place of this thread's own `errno`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    unsafe {
        #[cfg(target_os = "linux")]
        let place = libc::__errno_location();
        #[cfg(target_os = "android")]
        let place = libc::__errno();
        *place = value;
    }
    // SAFETY: as above.
    #[cfg(target_vendor = "apple")]
    unsafe {
        *libc::__error() = value;
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    let _ = value;
}

fn thread_number() -> u32 {
    // SAFETY: only asks.
    #[cfg(target_os = "linux")]
    return unsafe { libc::gettid() } as u32;
    #[cfg(not(target_os = "linux"))]
    return 0;
}

#[cfg(test)]
pub(crate) mod tests;
