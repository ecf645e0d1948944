//! How an instance leaves.
//!
//! Decision: every instance has one of these from the start, known to its loader: a library is a retired copy when no
//! instance of it is there any more, and a host that ends waits for those that are on their way out, whoever sent them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An instance, as far as its end is concerned.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) engine: String,
    /// Its build.
    pub(crate) digest: String,
    /// How long `dispose` may take.
    pub(crate) limit: Duration,
    /// Another instance has its place.
    replaced: AtomicBool,
    /// It was said that it does not let go.
    said: AtomicBool,
    at: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It takes calls.
    Here,
    /// It was set aside. Nobody waits for it: a call of it may never come back.
    Failed,
    /// It takes no more calls, and those that run are still to return.
    Leaving,
    /// `dispose` runs.
    Disposing(Instant),
    /// `dispose` and the destructor have returned.
    Gone,
}

impl Departure {
    pub(crate) fn new(engine: String, digest: String, limit: Duration) -> Departure {
        let (replaced, said) = (AtomicBool::new(false), AtomicBool::new(false));
        Departure { engine, digest, limit, replaced, said, at: Mutex::new(Stage::Here), changed: Condvar::new() }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn comes_to(&self, stage: Stage) {
        *self.stage() = stage;
        self.changed.notify_all();
    }

    /// Another instance has taken its place.
    pub(crate) fn is_replaced_now(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// What `dispose` is told when the last holder has let go.
    pub(super) fn reason(&self) -> &'static str {
        if self.replaced.load(Ordering::Acquire) { "reload" } else { "released" }
    }

    pub(super) fn fails(&self) {
        self.comes_to(Stage::Failed);
    }

    /// It takes no more calls, and is to be released.
    pub(super) fn leaves(&self) {
        self.comes_to(Stage::Leaving);
    }

    pub(super) fn begins_to_dispose(&self) {
        self.comes_to(Stage::Disposing(Instant::now()));
    }

    pub(super) fn is_gone_now(&self) {
        self.comes_to(Stage::Gone);
    }

    /// `dispose` and the destructor have returned.
    pub(crate) fn is_gone(&self) -> bool {
        *self.stage() == Stage::Gone
    }

    /// Whether its build is needed: one that failed, or that does not let go, is as good as gone.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_there = matches!(*self.stage(), Stage::Here | Stage::Leaving | Stage::Disposing(_));
        is_there && !self.is_overdue()
    }

    /// It is on its way out, and within its time.
    pub(crate) fn is_leaving(&self) -> bool {
        let is_leaving = matches!(*self.stage(), Stage::Leaving | Stage::Disposing(_));
        is_leaving && !self.is_overdue()
    }

    /// `dispose` has begun and not returned within its deadline.
    pub(crate) fn is_overdue(&self) -> bool {
        matches!(*self.stage(), Stage::Disposing(begun) if begun.elapsed() > self.limit)
    }

    /// Whether to say now that it does not let go: once, of one that was replaced.
    pub(crate) fn is_news(&self) -> bool {
        self.replaced.load(Ordering::Acquire) && self.is_overdue() && !self.said.swap(true, Ordering::Relaxed)
    }

    /// Waits for one that is on its way out, until `until` at the latest. Whether nothing is left to wait for.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        let mut stage = self.stage();
        while matches!(*stage, Stage::Leaving | Stage::Disposing(_)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            stage = self.changed.wait_timeout(stage, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
