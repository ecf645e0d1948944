//! One call on its way to an engine's thread and back: who waits for it, how far it is, and what it works on.
//!
//! Decision: caller and thread settle who is too late by one exchange of the phase, and only an answer in time ever leaves
//! the engine's thread. What comes later is dropped there, an engine that was created too late included: dropping it may
//! run the engine's code.
//!
//! ```text
//! WAITING ─→ RUNNING ─→ DONE            answered in time
//!    │          ├────→ LATE             ended after the deadline, before its caller noticed
//!    │          └────→ TOLD ─→ LATE     told to stop, and stopped
//!    │                   └──→ LEFT      told to stop, and did not: its thread is lost
//!    ├─→ LEFT                           its caller left while it waited
//!    └─→ REFUSED                        the engine was set aside while it waited
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::instance::{Engine, Instance};
use super::lease::Lease;

/// Where a ticket's work is done.
pub(super) trait Workplace {
    /// The instance, while there is one.
    fn engine(&self) -> Option<Engine>;
    /// Puts the instance in its place, or takes it away; returns the one that was there.
    fn set_engine(&self, engine: Option<Engine>) -> Option<Engine>;
    /// One job less is running.
    fn ended(&self);
}

/// A ticket, whatever it answers.
pub(super) trait Job: Send + Sync {
    fn member(&self) -> &'static str;
    /// Runs it. `false` when its caller has left meanwhile, and the thread was given up.
    fn run(&self, place: &dyn Workplace) -> bool;
    /// Tells whoever waits that it will not run.
    fn refuse(&self);
    fn has_ended(&self) -> bool;
    /// Whether nobody waits for it.
    fn is_unattended(&self) -> bool;
}

pub(super) const WAITING: u8 = 0;
pub(super) const RUNNING: u8 = 1;
pub(super) const TOLD: u8 = 2;
pub(super) const DONE: u8 = 3;
pub(super) const LATE: u8 = 4;
pub(super) const LEFT: u8 = 5;
pub(super) const REFUSED: u8 = 6;

type CallWork<R> = Box<dyn FnOnce(&Instance) -> R + Send>;

/// What is done on the engine's thread.
pub(super) enum Work<R> {
    /// Makes the instance.
    Create(Box<dyn FnOnce() -> (R, Option<Engine>) + Send>),
    Call(CallWork<R>),
    /// Takes the instance for good.
    Release(Box<dyn FnOnce(Engine) -> R + Send>),
}

/// What became of the work: an answer, none for want of an instance, or a panic of the host's own code.
pub(super) type Performed<R> = Result<Option<R>, String>;

pub(super) struct Ticket<R> {
    member: &'static str,
    phase: AtomicU8,
    ended: AtomicBool,
    started: OnceLock<Instant>,
    work: Mutex<Option<Work<R>>>,
    answer: Mutex<Option<Performed<R>>>,
    pub(super) lease: Arc<Lease>,
    /// From when it begins; `None` for what nobody waits for.
    limit: Option<Duration>,
    caller: Option<Thread>,
}

impl<R> Ticket<R> {
    pub(super) fn new(
        member: &'static str,
        lease: &Arc<Lease>,
        (limit, caller): (Option<Duration>, Option<Thread>),
        work: Work<R>,
    ) -> Ticket<R> {
        Ticket {
            member,
            phase: AtomicU8::new(WAITING),
            ended: AtomicBool::new(false),
            started: OnceLock::new(),
            work: Mutex::new(Some(work)),
            answer: Mutex::new(None),
            lease: Arc::clone(lease),
            limit,
            caller,
        }
    }

    pub(super) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    pub(super) fn moves(&self, from: u8, to: u8) -> bool {
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// When it began, if it has.
    pub(super) fn begun(&self) -> Option<Instant> {
        let begun = self.phase() != WAITING;
        self.started.get().copied().filter(|_| begun)
    }

    /// The answer of a ticket that is done.
    pub(super) fn take_answer(&self) -> Performed<R> {
        lock(&self.answer).take().unwrap_or(Ok(None))
    }

    fn perform(work: Option<Work<R>>, place: &dyn Workplace) -> Option<R> {
        match work? {
            Work::Create(create) => {
                let (answer, created) = create();
                place.set_engine(created);
                Some(answer)
            }
            Work::Call(call) => place.engine().map(|engine| call(&engine)),
            Work::Release(release) => place.set_engine(None).map(release),
        }
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

    fn run(&self, place: &dyn Workplace) -> bool {
        let started = *self.started.get_or_init(Instant::now);
        let work = lock(&self.work).take();
        if !self.moves(WAITING, RUNNING) {
            place.ended();
            return true;
        }
        self.lease.start();
        let creates = matches!(work, Some(Work::Create(_)));
        let performed = catch_unwind(AssertUnwindSafe(|| Self::perform(work, place))).map_err(|payload| {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
        });
        let in_time = self.limit.is_none_or(|limit| started.elapsed() <= limit);
        let mut answered = false;
        if in_time {
            *lock(&self.answer) = Some(performed);
            answered = self.moves(RUNNING, DONE);
        }
        if !answered {
            // Here and not by whoever comes last: an answer, and an engine, nobody takes.
            let late = lock(&self.answer).take();
            drop(late);
            if creates {
                place.set_engine(None);
            }
        }
        let stays = answered || self.moves(RUNNING, LATE) || self.moves(TOLD, LATE);
        if stays {
            place.ended();
        }
        self.ended.store(true, Ordering::Release);
        self.wake();
        stays
    }

    fn refuse(&self) {
        if self.moves(WAITING, REFUSED) {
            self.wake();
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn is_unattended(&self) -> bool {
        self.caller.is_none()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
