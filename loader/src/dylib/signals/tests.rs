//! Ways to die, for child processes, and what a library may do to the handlers.

use std::path::Path;

use super::handlers::handlers_changed;
use super::*;

/// Ends this process, the way `how` says.
pub(crate) fn die_by(how: &str) {
    match how {
        "null read" => {
            // SAFETY: none: it is the fault that is wanted.
            unsafe { std::ptr::read_volatile(std::ptr::without_provenance::<u8>(8)) };
        }
        "stack overflow" => {
            std::hint::black_box(overflow(0));
        }
        "abort" => std::process::abort(),
        "exit" => std::process::exit(1),
        "kill -9" => raise(libc::SIGKILL),
        "SIGTERM" => raise(libc::SIGTERM),
        "SIGILL" => raise(libc::SIGILL),
        // By whoever handled it before; then somebody kills the process.
        #[cfg(target_arch = "x86_64")]
        "a mended trap" => {
            replace(libc::SIGTRAP);
            take_over(libc::SIGTRAP);
            // SAFETY: a trap that is handled, by a function that does nothing.
            unsafe { std::arch::asm!("int3") };
            raise(libc::SIGKILL);
        }
        "SIGTRAP" => raise(libc::SIGTRAP),
        "SIGFPE" => raise(libc::SIGFPE),
        "truncated mapping" => {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(4096).expect("made longer");
            // SAFETY: a new mapping; that its file is truncated is the fault that is wanted.
            unsafe {
                let map = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
                file.set_len(0).expect("truncated");
                std::ptr::read_volatile(map.cast::<u8>());
            }
        }
        "SIGSYS" => raise(libc::SIGSYS),
        "exit in a fork" => {
            // SAFETY: the child only ends, and the parent waits for it.
            unsafe {
                match libc::fork() {
                    0 => libc::exit(3),
                    child => libc::waitpid(child, ptr::null_mut(), 0),
                }
            };
            raise(libc::SIGKILL);
        }
        // At this very thread, but from another process.
        #[cfg(target_os = "linux")]
        "SIGABRT from outside" => {
            let (process, thread) = (own_pid(), thread_number());
            // SAFETY: the child makes two system calls, and the parent waits for it.
            unsafe {
                match libc::fork() {
                    0 => {
                        libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGABRT);
                        libc::_exit(0);
                    }
                    child => libc::waitpid(child, ptr::null_mut(), 0),
                }
            };
        }
        _ => {}
    }
}

/// Does what a badly behaved library does when it is opened.
fn replace(signal: c_int) {
    extern "C" fn nothing(_: c_int) {}
    let handler: extern "C" fn(c_int) = nothing;
    // SAFETY: a function of the right form that does nothing.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

fn raise(signal: c_int) {
    // SAFETY: what the signal does is wanted.
    unsafe { libc::raise(signal) };
}

fn overflow(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 512]);
    if depth == u64::MAX { 0 } else { overflow(depth + 1) + room[1] }
}

#[test]
fn handlers_that_a_library_replaced_are_named_and_put_back() {
    // Other tests of this process do it, too.
    install();
    let before = snapshot();
    for signal in [libc::SIGUSR2, libc::SIGURG] {
        replace(signal);
    }
    let mut changed = handlers_changed(&before);
    changed.retain(|signal| [libc::SIGUSR2, libc::SIGURG].contains(signal));
    changed.sort_by_key(|signal| signal_name(*signal));
    assert_eq!(changed.iter().map(|signal| signal_name(*signal)).collect::<Vec<_>>(), ["SIGURG", "SIGUSR2"]);
    assert!(restore(&before, Path::new("/another/library")).is_empty(), "what others put in place stays");
    let own = std::env::current_exe().expect("this program has a path");
    assert!(restore(&before, &own).contains(&libc::SIGURG));
    assert!(handlers_changed(&before).is_empty());
}
