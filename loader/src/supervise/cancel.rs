//! How the caller of a call takes it back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// Cancels the calls that were given it. Cheap to clone; all clones are one token.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    waiting: Mutex<Vec<Thread>>,
}

impl CancelToken {
    /// A token that nobody has cancelled yet.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels, for good. Whoever waits for a call returns at once; the engine learns of it when it asks.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        for thread in self.waiting().iter() {
            thread.unpark();
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::SeqCst)
    }

    /// Has [`CancelToken::cancel`] wake the current thread, until the answer is dropped.
    pub(super) fn wakes_this_thread(&self) -> Watch<'_> {
        self.waiting().push(thread::current());
        Watch(self)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Thread>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Watch<'a>(&'a CancelToken);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        let mut waiting = self.0.waiting();
        if let Some(at) = waiting.iter().position(|thread| thread.id() == me) {
            waiting.swap_remove(at);
        }
    }
}
