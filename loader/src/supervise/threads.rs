//! Threads of one engine's own: the only ones its code ever runs on.
//!
//! Decision: a call that does not come back cannot be stopped, so it must not hold the thread of whoever asked. Each
//! engine instance has a few threads of its own; the caller waits until the deadline and leaves. The thread is then
//! lost until the call returns, if it ever does; whatever it answers is dropped on it. Everything a call works on is owned
//! by its job, so a lost thread never reads freed memory.
//!
//! Invariant: at most [`MAX_THREADS`] threads of an instance take jobs, and at most [`MAX_LOST`] of a build are lost; a
//! build that has lost so many is not opened again in this process.
//!
//! Waking a sleeping thread costs about 9 µs here, each way, and several times that when the processor has just gone
//! idle. Both sides therefore look again for a moment, yielding the processor, before they sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::cancel::CancelToken;
use super::lease::{Lease, NoServices};
use super::ticket::{DONE, Job, LEFT, REFUSED, RUNNING, Ticket, WAITING, lock};
use crate::quarantine::Subject;
use crate::quarantine::marks::Marks;

/// Threads of one instance that take jobs. More sessions than this that call at once wait for each other.
pub const MAX_THREADS: usize = 8;

/// Threads of one build that may be lost before it is not opened any more. A lost thread holds a stack, of which the
/// pages it touched are real: about 20 kB.
pub const MAX_LOST: usize = 64;

/// Address space of a thread's stack. Engines written for a main thread may recurse as deep as on one.
const STACK_SIZE: usize = 8 << 20;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// How long both sides look again before they sleep.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How long a call that was told to stop gets to do so before its thread counts as lost.
const GRACE: Duration = Duration::from_millis(100);

/// How a call on an engine's thread ended.
#[derive(Debug)]
pub(crate) enum Fate<R> {
    /// It answered in time.
    Answered(R),
    /// Its deadline passed; the answer, if one comes, is dropped.
    TimedOut,
    /// Its caller cancelled it.
    Cancelled,
    /// It did not begin: the engine was set aside while it waited, or the host is out of threads. Not the engine's doing,
    /// or not this call's.
    NotBegun(String),
}

/// Threads that did not come back, counted for all instances of a build.
pub(crate) type Lost = Arc<AtomicIsize>;

pub(crate) struct EngineThreads {
    pool: Arc<Pool>,
}

struct Pool {
    subject: Subject,
    marks: Marks,
    lost: Lost,
    state: Mutex<State>,
    ready: Condvar,
    /// Jobs in the queue, to be looked at without the lock.
    queued: AtomicUsize,
    /// Jobs that run, those their caller has left not included.
    running: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Arc<dyn Job>>,
    /// Threads that take jobs, the idle ones included.
    threads: usize,
    closed: bool,
    /// Runs when the pool is closed and nothing else does.
    last: Option<Arc<dyn Job>>,
    /// Calls their caller has left, with the time at which they should have ended.
    left: Vec<(Instant, Arc<dyn Job>)>,
}

impl EngineThreads {
    /// Threads for one instance of `subject`; the first starts with the first call.
    pub(crate) fn new(subject: Subject, marks: Marks, lost: Lost) -> EngineThreads {
        let pool = Pool {
            subject,
            marks,
            lost,
            state: Mutex::default(),
            ready: Condvar::new(),
            queued: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
        };
        EngineThreads { pool: Arc::new(pool) }
    }

    /// Runs `work` on one of the threads and waits for it, at most `limit` from when it begins.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        member: &'static str,
        limit: Duration,
        (lease, cancel): (&Arc<Lease>, &CancelToken),
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Fate<R> {
        let ticket = Arc::new(Ticket::new(member, lease, work, Some(thread::current())));
        if let Err(reason) = Pool::submit(&self.pool, Arc::clone(&ticket) as Arc<dyn Job>) {
            return Fate::NotBegun(reason);
        }
        let asked = Instant::now();
        while ticket.phase.load(Ordering::Acquire) < DONE && asked.elapsed() < LOOK_AGAIN {
            thread::yield_now();
        }
        let fate = self.wait(&ticket, asked, limit, cancel);
        lease.revoke();
        fate
    }

    fn wait<R: Send + 'static>(
        &self,
        ticket: &Arc<Ticket<R>>,
        asked: Instant,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Fate<R> {
        let mut watch = None;
        // Once it was told to stop: when its time is over for good.
        let mut grace: Option<(Instant, bool)> = None;
        loop {
            let phase = ticket.phase.load(Ordering::Acquire);
            if phase == DONE {
                // What arrives after the deadline is no answer any more: somebody may have acted on its absence.
                return match (lock(&ticket.answer).take(), grace) {
                    (Some(answer), None) => Fate::Answered(answer),
                    (_, Some((_, true))) => Fate::Cancelled,
                    _ => Fate::TimedOut,
                };
            }
            if phase == REFUSED {
                return Fate::NotBegun("the engine was set aside while the call waited for it".to_owned());
            }
            let now = Instant::now();
            let begun = if phase == RUNNING { ticket.started.get().copied() } else { None };
            let ends = match (grace, begun) {
                (Some((ends, _)), _) => ends,
                (None, Some(begun)) => begun + limit,
                (None, None) => asked + limit,
            };
            if cancel.is_cancelled() && grace.is_none() {
                if begun.is_none() && ticket.moves(WAITING, LEFT) {
                    return Fate::Cancelled;
                }
                ticket.lease.revoke();
                grace = Some((now + GRACE, true));
                continue;
            }
            if now >= ends {
                if begun.is_none() && phase == WAITING {
                    if ticket.moves(WAITING, LEFT) {
                        let busy = format!("all {MAX_THREADS} threads of the engine were busy for {limit:?}");
                        return Fate::NotBegun(busy);
                    }
                    continue;
                }
                let Some((_, cancelled)) = grace else {
                    ticket.lease.revoke();
                    grace = Some((now + GRACE, false));
                    continue;
                };
                if ticket.moves(RUNNING, LEFT) {
                    let should_end = begun.map_or(now, |begun| begun + limit);
                    self.pool.leave(Arc::clone(ticket) as Arc<dyn Job>, should_end);
                    return if cancelled { Fate::Cancelled } else { Fate::TimedOut };
                }
                continue;
            }
            if watch.is_none() {
                watch = Some(cancel.wakes_this_thread());
                // Cancelled between the look above and the registration: look again.
                continue;
            }
            thread::park_timeout(ends - now);
        }
    }

    /// A call its caller has left that should have ended by now and has not: the member it hangs in.
    pub(super) fn hangs_in(&self) -> Option<&'static str> {
        let mut state = self.pool.state();
        if state.left.is_empty() {
            return None;
        }
        state.left.retain(|(_, job)| !job.is_done());
        let now = Instant::now();
        state.left.iter().find(|(should_end, _)| *should_end <= now).map(|(_, job)| job.member())
    }

    /// Whether a call has not come back.
    pub(super) fn has_lost(&self) -> bool {
        let mut state = self.pool.state();
        state.left.retain(|(_, job)| !job.is_done());
        !state.left.is_empty()
    }

    /// Takes no more calls; those that wait are refused. `last` runs when the ones that run have returned, with nobody
    /// waiting for it.
    pub(super) fn close(&self, member: &'static str, last: impl FnOnce() + Send + 'static) {
        let waiting: Vec<Arc<dyn Job>> = {
            let mut state = self.pool.state();
            if state.closed {
                return;
            }
            state.closed = true;
            self.pool.queued.store(0, Ordering::Release);
            state.jobs.drain(..).collect()
        };
        // Before `last` can run: what they hold of the engine must not outlive it.
        for job in waiting {
            job.refuse();
        }
        let lease = Arc::new(Lease::new(Arc::new(NoServices), CancelToken::new(), None));
        let last = Ticket::new(member, &lease, last, None);
        let mut state = self.pool.state();
        if state.threads == 0 {
            match Pool::spawn(&self.pool) {
                Ok(()) => state.threads += 1,
                Err(error) => {
                    // What it would have released is kept: better than running the engine's code here.
                    tracing::warn!(engine = self.pool.subject.engine, %error, "cannot be released");
                    std::mem::forget(last);
                    return;
                }
            }
        }
        state.last = Some(Arc::new(last));
        drop(state);
        self.pool.ready.notify_all();
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        self.pool.state().closed = true;
        self.pool.ready.notify_all();
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues a job, with one more thread where all are busy.
    fn submit(pool: &Arc<Pool>, job: Arc<dyn Job>) -> Result<(), String> {
        let mut state = pool.state();
        if state.closed {
            return Err("the engine was set aside".to_owned());
        }
        let free = state.threads.saturating_sub(pool.running.load(Ordering::Acquire));
        let short = free <= state.jobs.len();
        if short && state.threads < MAX_THREADS {
            match Pool::spawn(pool) {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    return Err(format!("this host cannot start a thread for the engine: {error}"));
                }
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        pool.queued.fetch_add(1, Ordering::Release);
        drop(state);
        pool.ready.notify_one();
        Ok(())
    }

    fn spawn(pool: &Arc<Pool>) -> io::Result<()> {
        let pool = Arc::clone(pool);
        let name = format!("engine {}", pool.subject.engine);
        thread::Builder::new().name(name).stack_size(STACK_SIZE).spawn(move || pool.work()).map(drop)
    }

    /// What a thread does.
    fn work(&self) {
        let slot = self.marks.slot(&self.subject);
        while let Some(job) = self.next() {
            // Nobody waits for the last one: should it hang, it is lost from the start.
            let unattended = isize::from(job.is_unattended());
            self.lost.fetch_add(unattended, Ordering::Relaxed);
            let waited_for = {
                let _in_call = slot.enter(job.member());
                job.run(&self.running)
            };
            self.lost.fetch_sub(unattended, Ordering::Relaxed);
            if !waited_for {
                // This thread was given up for lost and is back. Another may have its place.
                self.lost.fetch_sub(1, Ordering::Relaxed);
                self.state().left.retain(|(_, left)| !left.is_done());
                return;
            }
        }
    }

    /// The next job; `None` when the thread should end.
    fn next(&self) -> Option<Arc<dyn Job>> {
        let since = Instant::now();
        while self.queued.load(Ordering::Acquire) == 0 && since.elapsed() < LOOK_AGAIN {
            thread::yield_now();
        }
        let mut state = self.state();
        loop {
            let job = state.jobs.pop_front();
            let is_queued = job.is_some();
            let idle = self.running.load(Ordering::Acquire) == 0;
            if let Some(job) = job.or_else(|| state.last.take_if(|_| idle)) {
                self.queued.fetch_sub(usize::from(is_queued), Ordering::Release);
                self.running.fetch_add(1, Ordering::AcqRel);
                return Some(job);
            }
            // Of a closed pool, whichever thread is left when nothing runs any more finds `last`.
            if state.closed {
                state.threads -= 1;
                let is_needed = state.threads == 0 && state.last.is_some();
                if !is_needed {
                    return None;
                }
                state.threads += 1;
            }
            let (back, waited) = self.ready.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = back;
            if waited.timed_out() && state.jobs.is_empty() && !state.closed {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Gives up the thread that runs `job`.
    fn leave(&self, job: Arc<dyn Job>, should_end: Instant) {
        let mut state = self.state();
        state.threads -= 1;
        self.running.fetch_sub(1, Ordering::AcqRel);
        state.left.push((should_end, job));
        self.lost.fetch_add(1, Ordering::Relaxed);
        // An engine that hangs is not called again, not even to be released.
        std::mem::forget(state.last.take());
    }
}
