//! Threads of one engine's own: the only ones its code ever runs on.
//!
//! Decision: a call that does not come back cannot be stopped, so it must not hold the thread of whoever asked. Each
//! engine instance has a few threads of its own; the caller waits until the deadline and leaves. The thread is then
//! lost until the call returns, if it ever does. Everything a call works on is owned by its job, so a lost thread never
//! reads freed memory; and the instance is owned by the pool, so its destructor never runs anywhere else.
//!
//! Invariant: at most [`MAX_THREADS`] threads of an instance take jobs, and no job begins once [`MAX_LOST`] threads of the
//! build are lost.
//!
//! Invariant: what releases the instance runs alone, and not while a call has not come back. If none ever does, the
//! instance stays.
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
use super::instance::{Engine, Instance};
use super::lease::{Lease, NoServices};
use super::ticket::{DONE, Job, LATE, LEFT, REFUSED, RUNNING, TOLD, Ticket, WAITING, Work, Workplace, lock};
use crate::quarantine::Subject;
use crate::quarantine::marks::{MarkSlot, Marks};

/// Threads of one instance that take jobs. More sessions than this that call at once wait for each other.
pub const MAX_THREADS: usize = 8;

/// Threads of one build that may be lost before nothing of it is called any more. A lost thread holds its stack, of which
/// the pages it touched are real, and what the engine holds: 50 kB or so for a small engine.
pub const MAX_LOST: usize = 64;

/// Address space of a thread's stack. Engines written for a main thread may recurse as deep as on one.
const STACK_SIZE: usize = 8 << 20;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// How long both sides look again before they sleep.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How long a call waits for a free thread at the least, however short its deadline: the machine may be busy.
const LEAST_WAIT: Duration = Duration::from_secs(1);

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
    /// It did not begin: the engine was set aside while it waited, or the host is out of threads. Or the host's own code
    /// failed in it. Not the engine's doing, or not this call's.
    NotTheEngines(String),
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
    /// Jobs that run, those their caller has left not included. Falls just after a job is answered, so that a thread may
    /// be started that was not needed; it goes when it finds nothing to do.
    running: AtomicUsize,
}

#[derive(Default)]
struct State {
    engine: Option<Engine>,
    jobs: VecDeque<Arc<dyn Job>>,
    /// Threads that take jobs, the idle ones included.
    threads: usize,
    /// No more jobs are taken.
    closed: bool,
    /// Releases the engine.
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

    /// Has `create` make the instance and say something about it, and waits at most `limit` for it. One that is made too late is dropped where it
    /// was made.
    pub(crate) fn create<T: Send + 'static, E: Send + 'static>(
        &self,
        limit: Duration,
        lease: &Arc<Lease>,
        create: impl FnOnce() -> Result<(Engine, T), E> + Send + 'static,
    ) -> Fate<Result<T, E>> {
        let create = move || match create() {
            Ok((engine, about)) => (Ok(about), Some(engine)),
            Err(error) => (Err(error), None),
        };
        self.wait_for("create", limit, (lease, &CancelToken::new()), Work::Create(Box::new(create)))
    }

    /// To be called once the library is open: what its own threads do is told from then on.
    pub(crate) fn watch_library(&self) -> impl FnOnce() + Send + 'static {
        let (marks, subject) = (self.pool.marks.clone(), self.pool.subject.clone());
        move || marks.watch(&subject)
    }

    /// Runs `call` on one of the threads and waits for it, at most `limit` from when it begins.
    pub(super) fn run<R: Send + 'static>(
        &self,
        member: &'static str,
        limit: Duration,
        with: (&Arc<Lease>, &CancelToken),
        call: impl FnOnce(&Instance) -> R + Send + 'static,
    ) -> Fate<R> {
        self.wait_for(member, limit, with, Work::Call(Box::new(call)))
    }

    fn wait_for<R: Send + 'static>(
        &self,
        member: &'static str,
        limit: Duration,
        (lease, cancel): (&Arc<Lease>, &CancelToken),
        work: Work<R>,
    ) -> Fate<R> {
        let ticket = Arc::new(Ticket::new(member, lease, (Some(limit), Some(thread::current())), work));
        if let Err(reason) = Pool::submit(&self.pool, Arc::clone(&ticket) as Arc<dyn Job>) {
            return Fate::NotTheEngines(reason);
        }
        let asked = Instant::now();
        while ticket.phase() < DONE && asked.elapsed() < LOOK_AGAIN {
            thread::yield_now();
        }
        let fate = self.wait(&ticket, (asked, limit), cancel);
        lease.revoke();
        fate
    }

    fn wait<R: Send + 'static>(
        &self,
        ticket: &Arc<Ticket<R>>,
        (asked, limit): (Instant, Duration),
        cancel: &CancelToken,
    ) -> Fate<R> {
        let mut watch = None;
        // When what was told to stop has to have stopped.
        let mut grace: Option<Instant> = None;
        let mut cancelled = false;
        let given_up = |cancelled| if cancelled { Fate::Cancelled } else { Fate::TimedOut };
        loop {
            let phase = ticket.phase();
            match phase {
                DONE => {
                    return match ticket.take_answer() {
                        Ok(Some(answer)) => Fate::Answered(answer),
                        Ok(None) => Fate::NotTheEngines("the engine was set aside".to_owned()),
                        Err(panic) => Fate::NotTheEngines(format!("the host panicked: {panic}")),
                    };
                }
                LATE => return given_up(cancelled),
                REFUSED => {
                    return Fate::NotTheEngines("the engine was set aside while the call waited for it".to_owned());
                }
                _ => {}
            }
            let (now, begun) = (Instant::now(), ticket.begun());
            if cancel.is_cancelled() && !cancelled {
                if ticket.moves(WAITING, LEFT) {
                    return Fate::Cancelled;
                }
                cancelled = true;
                if ticket.moves(RUNNING, TOLD) {
                    ticket.lease.revoke();
                    grace = Some(now + GRACE);
                }
                continue;
            }
            // No clock holds more than this.
            let far = Duration::from_secs(24 * 60 * 60 * 365);
            let ends = grace.unwrap_or_else(|| match begun {
                Some(begun) => begun + limit.min(far),
                None => asked + limit.clamp(LEAST_WAIT, far),
            });
            if now >= ends {
                if phase == WAITING {
                    if ticket.moves(WAITING, LEFT) {
                        let waited = asked.elapsed().as_millis();
                        let busy = format!("none of the engine's {MAX_THREADS} threads was free for {waited} ms");
                        return Fate::NotTheEngines(busy);
                    }
                } else if grace.is_none() {
                    if ticket.moves(RUNNING, TOLD) {
                        ticket.lease.revoke();
                        grace = Some(now + GRACE);
                    }
                } else if ticket.moves(TOLD, LEFT) {
                    let should_end = begun.map_or(now, |begun| begun + limit.min(far));
                    Pool::leave(&self.pool, Arc::clone(ticket) as Arc<dyn Job>, should_end, cancelled);
                    return given_up(cancelled);
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
        state.left.retain(|(_, job)| !job.has_ended());
        let now = Instant::now();
        state.left.iter().find(|(should_end, _)| *should_end <= now).map(|(_, job)| job.member())
    }

    /// Takes no more calls; those that wait are refused. `release` is given the instance when every call has come back,
    /// with nobody waiting for it.
    pub(super) fn close(&self, member: &'static str, release: impl FnOnce(Engine) + Send + 'static) {
        let lease = Arc::new(Lease::new(Arc::new(NoServices), CancelToken::new(), None));
        let last = Ticket::new(member, &lease, (None, None), Work::Release(Box::new(release)));
        let waiting: Vec<Arc<dyn Job>> = {
            let mut state = self.pool.state();
            if state.closed {
                return;
            }
            state.closed = true;
            state.last = Some(Arc::new(last));
            if state.threads == 0 && state.left.is_empty() && state.engine.is_some() {
                match Pool::spawn(&self.pool) {
                    Ok(()) => state.threads += 1,
                    Err(error) => tracing::warn!(engine = self.pool.subject.engine, %error, "cannot be released"),
                }
            }
            self.pool.queued.store(0, Ordering::Release);
            state.jobs.drain(..).collect()
        };
        for job in waiting {
            job.refuse();
        }
        self.pool.ready.notify_all();
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        // Of threads that were never closed: there was no instance, or it is dropped on one of them.
        self.close("drop", drop);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nobody was there to release it. Better kept than dropped on a thread of the host's.
        std::mem::forget(state.engine.take());
    }
}

impl Workplace for Pool {
    fn engine(&self) -> Option<Engine> {
        self.state().engine.clone()
    }

    fn set_engine(&self, engine: Option<Engine>) -> Option<Engine> {
        std::mem::replace(&mut self.state().engine, engine)
    }

    fn ended(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether so many threads of the build are lost that nothing more of it begins.
    fn has_lost_too_many(&self) -> bool {
        self.lost.load(Ordering::Relaxed) >= MAX_LOST as isize
    }

    /// Queues a job, with one more thread where all are busy.
    fn submit(pool: &Arc<Pool>, job: Arc<dyn Job>) -> Result<(), String> {
        if pool.has_lost_too_many() {
            return Err(format!("{MAX_LOST} calls of this build never returned; restart the host to use it again"));
        }
        let mut state = pool.state();
        if state.closed {
            return Err("the engine was set aside".to_owned());
        }
        let free = state.threads.saturating_sub(pool.running.load(Ordering::Acquire));
        if free <= state.jobs.len() && state.threads < MAX_THREADS {
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
        let work = move || {
            let slot = pool.marks.slot(&pool.subject);
            pool.work(&slot);
            slot.end_thread();
        };
        thread::Builder::new().name(name).stack_size(STACK_SIZE).spawn(work).map(drop)
    }

    /// What a thread does.
    fn work(&self, slot: &MarkSlot) {
        while let Some(job) = self.next() {
            // Nobody waits for the last one: should it hang, it is lost from the start.
            let unattended = isize::from(job.is_unattended());
            self.lost.fetch_add(unattended, Ordering::Relaxed);
            let stays = {
                let _in_call = slot.enter(job.member());
                job.run(self)
            };
            self.lost.fetch_sub(unattended, Ordering::Relaxed);
            if !stays && !self.comes_back() {
                return;
            }
        }
    }

    /// A thread that was given up for lost is back. Whether it is needed: another may have its place.
    fn comes_back(&self) -> bool {
        self.lost.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.state();
        state.left.retain(|(_, job)| !job.has_ended());
        let is_needed = state.threads == 0 && state.last.is_some() && state.left.is_empty();
        state.threads += usize::from(is_needed);
        is_needed
    }

    /// The next job; `None` when the thread should end.
    fn next(&self) -> Option<Arc<dyn Job>> {
        let since = Instant::now();
        while self.queued.load(Ordering::Acquire) == 0 && since.elapsed() < LOOK_AGAIN {
            thread::yield_now();
        }
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.queued.fetch_sub(1, Ordering::Release);
                self.running.fetch_add(1, Ordering::AcqRel);
                return Some(job);
            }
            if state.closed {
                let alone = self.running.load(Ordering::Acquire) == 0 && state.left.is_empty();
                let last = if alone { state.last.take() } else { None };
                match last {
                    Some(_) => _ = self.running.fetch_add(1, Ordering::AcqRel),
                    // Whoever comes back last finds what releases the engine.
                    None => state.threads -= 1,
                }
                return last;
            }
            let (back, waited) = self.ready.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = back;
            if waited.timed_out() && state.jobs.is_empty() && !state.closed {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Gives up the thread that runs `job`. Those that wait get another when it was only cancelled; for a deadline that was
    /// missed the engine is about to be set aside, and nothing more of it begins.
    fn leave(pool: &Arc<Pool>, job: Arc<dyn Job>, should_end: Instant, cancelled: bool) {
        pool.lost.fetch_add(1, Ordering::Relaxed);
        let mut state = pool.state();
        state.threads -= 1;
        pool.running.fetch_sub(1, Ordering::AcqRel);
        if !job.has_ended() {
            state.left.push((should_end, job));
        }
        if cancelled && !state.jobs.is_empty() && !pool.has_lost_too_many() && Pool::spawn(pool).is_ok() {
            state.threads += 1;
        }
    }
}
