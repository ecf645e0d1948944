//! One call on its way to an engine's thread and back: who waits for it, how far it is, and what it works on.
//!
//! Decision: caller and thread settle who is too late by one exchange of the phase. Whoever moves it from `RUNNING` decides:
//! to `DONE`, and the answer is the caller's; to `LEFT`, and the thread drops it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use super::lease::Lease;

/// A ticket, whatever it answers.
pub(super) trait Job: Send + Sync {
    fn member(&self) -> &'static str;
    /// Runs it; `running` is one less once it is answered. `false` when nobody waited for it any more at the end.
    fn run(&self, running: &AtomicUsize) -> bool;
    /// Tells whoever waits that it will not run.
    fn refuse(&self);
    fn is_done(&self) -> bool;
    fn is_unattended(&self) -> bool;
}

pub(super) const WAITING: u8 = 0;
pub(super) const RUNNING: u8 = 1;
pub(super) const DONE: u8 = 2;
/// Its caller has left.
pub(super) const LEFT: u8 = 3;
/// It will not run.
pub(super) const REFUSED: u8 = 4;

pub(super) struct Ticket<R> {
    member: &'static str,
    pub(super) phase: AtomicU8,
    finished: AtomicBool,
    pub(super) started: OnceLock<Instant>,
    work: Mutex<Option<Box<dyn FnOnce() -> R + Send>>>,
    pub(super) answer: Mutex<Option<R>>,
    pub(super) lease: Arc<Lease>,
    caller: Option<Thread>,
}

impl<R> Ticket<R> {
    pub(super) fn new(
        member: &'static str,
        lease: &Arc<Lease>,
        work: impl FnOnce() -> R + Send + 'static,
        caller: Option<Thread>,
    ) -> Ticket<R> {
        Ticket {
            member,
            phase: AtomicU8::new(WAITING),
            finished: AtomicBool::new(false),
            started: OnceLock::new(),
            work: Mutex::new(Some(Box::new(work))),
            answer: Mutex::new(None),
            lease: Arc::clone(lease),
            caller,
        }
    }

    pub(super) fn moves(&self, from: u8, to: u8) -> bool {
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn wake(&self) {
        if let Some(caller) = &self.caller {
            caller.unpark();
        }
    }
}

impl<R: Send> Job for Ticket<R> {
    fn member(&self) -> &'static str {
        self.member
    }

    fn run(&self, running: &AtomicUsize) -> bool {
        let _ = self.started.set(Instant::now());
        if !self.moves(WAITING, RUNNING) {
            lock(&self.work).take();
            running.fetch_sub(1, Ordering::AcqRel);
            return true;
        }
        self.lease.start();
        let answer = lock(&self.work).take().map(|work| work());
        *lock(&self.answer) = answer;
        let waited_for = self.moves(RUNNING, DONE);
        if waited_for {
            running.fetch_sub(1, Ordering::AcqRel);
        } else {
            // An answer nobody takes goes on the engine's own thread: dropping it may run the engine's code.
            lock(&self.answer).take();
        }
        self.finished.store(true, Ordering::Release);
        self.wake();
        waited_for
    }

    fn refuse(&self) {
        if self.moves(WAITING, REFUSED) {
            lock(&self.work).take();
            self.wake();
        }
    }

    fn is_done(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    fn is_unattended(&self) -> bool {
        self.caller.is_none()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
