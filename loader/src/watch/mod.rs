//! A host that looks by itself when something of its plugins changes.
//!
//! Decision: the system says that something changed, never what: what is there is found out by a whole
//! [`reload`](crate::Loader::reload), which is cheap when nothing did. A look waits until nothing has changed for a moment,
//! so that a file that is being written is read once; what is read too early all the same is refused by its own headers,
//! and looked at again when it grows. Where the system cannot watch (a network drive, no watches left), the host looks
//! every second instead.
//!
//! Two threads: one is told, reads the configuration and says what was done; the other takes the passes, in which builds are
//! tried out. While it does, what is forbidden goes all the same.

mod options;
mod places;
mod writers;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

pub use self::options::{BeforeLook, TellReloads, WatchOptions};
use self::places::{Interests, Places};
use self::writers::Writers;
use crate::error::Problem;
use crate::hosts::{self, Announcement, EngineInUse, LastReload, ReloadedEngine, RunningHost};
use crate::loader::Loader;
use crate::quarantine::ProcessStamp;
use crate::reload::{Outcome, Pass, Passed, Reloaded};
use crate::supervise::Standing;

/// A look is taken at the latest so long after the first change, even when changes do not end.
const LATEST: Duration = Duration::from_secs(2);

/// A look is taken so often although nothing was told: events can be lost.
const ANYHOW: Duration = Duration::from_secs(60);

/// A host that was short of something tries again after this.
const SHORT_OF: Duration = Duration::from_secs(5);

/// A file that is gone may come back for so long: somebody deletes it and creates it anew.
const GRACE: Duration = Duration::from_millis(500);

/// While replaced instances are still on their way out, what this host has is said again after this.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(250);

/// Watches while it is there. Dropping it ends that: a look that is under way ends by itself and tells nobody.
#[derive(Debug)]
pub struct Watcher {
    tell: Sender<Told>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stopped: AtomicBool,
    announcement: Mutex<Announcement>,
}

/// What the watcher's thread is told.
pub(crate) enum Told {
    /// Something changed, as the system says.
    Changed(Result<notify::Event, notify::Error>),
    /// A session asked for an engine. `missed`: a look was taken while it was opened, and may not have seen it.
    Engine {
        missed: bool,
    },
    /// A pass was taken, for the request with this number.
    Passed(Passed, u64),
    Stop,
}

/// What a pass is to be taken for.
struct Order {
    /// The newest request.
    asked: u64,
    /// Whether it was not heeded before: what was refused is tried again, and what is gone is gone.
    anew: bool,
    being_written: BTreeSet<PathBuf>,
}

impl Loader {
    /// Takes a [`reload`](Self::reload) now, and whenever something changes in the plugins directories, the quarantine or
    /// the files that are named, until the watcher is dropped. The host says that it runs, for `plugins reload` and
    /// `doctor`, in the state folder.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(&self, options: WatchOptions) -> io::Result<Watcher> {
        let (tell, told) = mpsc::channel();
        let announcement = Mutex::new(Announcement::new(&self.options.state_dir));
        let shared = Arc::new(Shared { stopped: AtomicBool::new(false), announcement });
        self.reloads.tell_of_engines(tell.clone());
        let passes = take_passes(self.clone(), tell.clone())?;
        let watching = Watching {
            loader: self.clone(),
            options,
            shared: Arc::clone(&shared),
            system: None,
            places: Places::default(),
            writers: Writers::default(),
            passes,
            is_passing: false,
            is_due_again: false,
            said: vec![],
            heeded: hosts::asked(&self.options.state_dir),
            last: None,
            warned: false,
        };
        let for_system = tell.clone();
        thread::Builder::new().name("plugins watcher".to_owned()).spawn(move || watching.run(for_system, &told))?;
        Ok(Watcher { tell, shared })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // The thread may have ended.
        let _ = self.tell.send(Told::Stop);
        self.shared.announcement.lock().unwrap_or_else(PoisonError::into_inner).take_back();
    }
}

struct Watching {
    loader: Loader,
    options: WatchOptions,
    shared: Arc<Shared>,
    /// The system's own, where it can watch.
    system: Option<notify::RecommendedWatcher>,
    places: Places,
    writers: Writers,
    /// Takes passes, one at a time.
    passes: Sender<Order>,
    /// Whether one is taken.
    is_passing: bool,
    /// Whether another one is due when it has ended.
    is_due_again: bool,
    /// What was said last: what stays as it is is said once.
    said: Vec<Reloaded>,
    /// The newest request that was heeded.
    heeded: u64,
    last: Option<LastReload>,
    /// Whether it was said that the system cannot watch, or that this host cannot be announced.
    warned: bool,
}

/// When something is to be done.
struct Due {
    look: Instant,
    /// The first change since the last look.
    first_change: Option<Instant>,
    /// When to say again what this host has: what was replaced is let go of later.
    announcement: Option<Instant>,
}

impl Watching {
    fn run(mut self, tell: Sender<Told>, told: &Receiver<Told>) {
        if !self.options.poll_only {
            // The receiver may be gone when the last events come.
            let hand_on = move |event| drop(tell.send(Told::Changed(event)));
            match notify::recommended_watcher(hand_on) {
                Ok(system) => self.system = Some(system),
                Err(error) => self.cannot_watch(&error),
            }
        }
        // What changed before anybody watched.
        let mut due = Due { look: Instant::now(), first_change: None, announcement: None };
        while !self.shared.stopped.load(Ordering::Acquire) {
            let now = Instant::now();
            // First, because news that never end would keep it from being looked at.
            if now >= due.look {
                due.first_change = None;
                due.look = now + self.interval(ANYHOW);
                if let Some(wait) = self.unharmed(Self::look).flatten() {
                    due.look = now + wait;
                }
                continue;
            }
            if due.announcement.is_some_and(|at| now >= at) {
                due.announcement = self.announce();
            }
            let until = due.announcement.map_or(due.look, |at| at.min(due.look));
            match told.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Told::Changed(event)) => {
                    if event.as_ref().map_or(true, |event| self.places.concerns(event)) {
                        if let Ok(event) = &event {
                            self.writers.heed(event, now);
                        }
                        let latest = *due.first_change.get_or_insert(now) + LATEST;
                        due.look = (now + self.options.settle).min(latest);
                    }
                }
                Ok(Told::Engine { missed: true }) => due.look = now,
                Ok(Told::Engine { missed: false }) => due.announcement = self.announce(),
                Ok(Told::Passed(passed, asked)) => {
                    self.is_passing = false;
                    let again = self.unharmed(|watching| watching.took(&passed, asked));
                    due.look = due.look.min(Instant::now() + again.unwrap_or(ANYHOW));
                    if std::mem::take(&mut self.is_due_again) {
                        due.look = Instant::now();
                    }
                    due.announcement = self.announce();
                }
                Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Does what may call the host, which may panic: it goes on watching.
    fn unharmed<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| run(self)));
        if done.is_err() {
            tracing::error!("what the host does about its plugins panicked; it goes on watching them");
        }
        done.ok()
    }

    /// One look; when the next one is due, if that is known.
    fn look(&mut self) -> Option<Duration> {
        // Before anything is read: what changes later is told.
        self.watch_places();
        let asked = hosts::asked(&self.loader.options.state_dir);
        let again = self.options.before.as_mut().and_then(|before| before());
        // It may have changed the directories.
        self.watch_places();
        if std::mem::replace(&mut self.is_passing, true) {
            // A build that is tried out takes as long as it takes. What is forbidden goes at once.
            self.is_due_again = true;
            let gone = self.loader.enforce();
            self.say(&gone);
        } else {
            let being_written = self.writers.at_work(Instant::now());
            // Its thread ends with this one.
            let _ = self.passes.send(Order { asked, anew: asked > self.heeded, being_written });
        }
        again
    }

    /// What follows from a pass: when to look again.
    fn took(&mut self, Passed { done, waits }: &Passed, asked: u64) -> Duration {
        self.heeded = self.heeded.max(asked);
        let why = |reloaded: &Reloaded| match &reloaded.outcome {
            Outcome::Kept { why, .. } => Some(why.problem.clone()),
            _ => None,
        };
        let problems: Vec<Problem> = done.iter().filter_map(why).collect();
        let again = if problems.iter().any(|problem| matches!(problem, Problem::Unstable { .. })) {
            self.options.settle
        } else if *waits {
            GRACE
        } else if problems.iter().any(|problem| matches!(problem, Problem::Busy { .. })) {
            SHORT_OF
        } else {
            ANYHOW
        };
        let engines = done.iter().map(ReloadedEngine::from).collect();
        self.last = Some(LastReload { at_ms: hosts::now_ms(), generation: self.heeded, engines });
        self.say(done);
        self.interval(again)
    }

    /// A time to wait, where the system may not tell.
    fn interval(&self, wait: Duration) -> Duration {
        if self.system.is_some() { wait } else { wait.min(self.options.poll) }
    }

    fn watch_places(&mut self) {
        let Some(system) = &mut self.system else { return };
        let (loader, state) = (&self.loader, &self.loader.options.state_dir);
        let plugins = loader.directories().iter().map(|directory| directory.path.clone()).collect();
        // A quarantine that is lifted lets a build be tried again.
        let own = [state.join(hosts::ASKED), state.join("quarantine")];
        let others = self.options.files.iter().cloned().chain(own).collect();
        if let Err(error) = self.places.set(system, &Interests { plugins, others }) {
            self.cannot_watch(&error);
            self.system = None;
        }
    }

    fn cannot_watch(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            let every = self.options.poll.as_millis();
            tracing::warn!(%error, "the system cannot watch the plugins directories; the host looks every {every} ms");
        }
    }

    /// Says what was done, and what could not be: once.
    fn say(&mut self, done: &[Reloaded]) {
        let is_said = |reloaded: &&Reloaded| self.said.iter().any(|said| reloaded.is_like(said));
        let new: Vec<Reloaded> = done.iter().filter(|reloaded| !is_said(reloaded)).cloned().collect();
        for reloaded in &new {
            match &reloaded.outcome {
                Outcome::Unchanged { .. } => {}
                Outcome::Kept { .. } | Outcome::Removed { .. } => tracing::warn!("{reloaded}"),
                Outcome::Replaced { .. } | Outcome::Opened { .. } => tracing::info!("{reloaded}"),
            }
        }
        // What happened happened: the same swap again is news.
        let stays = |reloaded: &&Reloaded| matches!(reloaded.outcome, Outcome::Unchanged { .. } | Outcome::Kept { .. });
        self.said = done.iter().filter(stays).cloned().collect();
        if let Some(told) = self.options.told.as_mut().filter(|_| new.iter().any(is_news)) {
            told(&new);
        }
    }

    /// Says that this host runs, and what it has; when to say it again.
    fn announce(&mut self) -> Option<Instant> {
        let retired = self.loader.retired();
        let host = RunningHost {
            process: ProcessStamp::current(),
            system: hosts::system().to_owned(),
            label: self.loader.options.host.label.clone(),
            engines: self.loader.engines_in_use(),
            swaps: self.loader.swaps(),
            retired_copies: retired.copies,
            retired_bytes: retired.bytes,
            mapped: self.loader.mapped(),
            last_reload: self.last.clone(),
        };
        let announcement = self.shared.announcement.lock().unwrap_or_else(PoisonError::into_inner);
        // Under its lock: who stops takes it back after this.
        if self.shared.stopped.load(Ordering::Acquire) {
            return None;
        }
        if let Err(error) = announcement.say(&host)
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(%error, "`plugins reload` will not find this host: its state folder cannot be written");
        }
        self.loader.has_departing().then(|| Instant::now() + ANNOUNCE_AGAIN)
    }
}

/// Has passes taken on a thread of their own: trying a build out takes seconds, and a ban must not wait for it.
fn take_passes(loader: Loader, tell: Sender<Told>) -> io::Result<Sender<Order>> {
    let (order, orders) = mpsc::channel::<Order>();
    thread::Builder::new().name("plugins reloader".to_owned()).spawn(move || {
        for Order { asked, anew, being_written } in orders {
            let pass = Pass { being_written: &being_written, grace: if anew { Duration::ZERO } else { GRACE } };
            if anew {
                loader.forget_refusals();
            }
            // A host whose own code panics here (what an engine is created with is its) is looked after all the same.
            let passed = catch_unwind(AssertUnwindSafe(|| loader.pass(&pass)));
            let passed = passed.unwrap_or_else(|_| {
                tracing::error!("looking at the plugins panicked; the host goes on watching them");
                Passed::default()
            });
            // The watcher may have been dropped.
            let _ = tell.send(Told::Passed(passed, asked));
        }
    })?;
    Ok(order)
}

fn is_news(reloaded: &Reloaded) -> bool {
    !matches!(reloaded.outcome, Outcome::Unchanged { .. })
}

impl Loader {
    fn engines_in_use(&self) -> Vec<EngineInUse> {
        let mut engines: Vec<EngineInUse> = Vec::new();
        for handle in self.reloads.in_use() {
            let Some(source) = &handle.source else { continue };
            let digest = match handle.standing() {
                Standing::Served(engine) => engine.subject().map(|subject| subject.digest.clone()),
                Standing::Vacant => None,
                Standing::Closed => continue,
            };
            let why = if digest.is_none() { handle.why() } else { None };
            let since_ms = handle.opened().filter(|_| digest.is_some()).map(|opened| opened.at_ms);
            let engine = EngineInUse { id: source.id.clone(), digest, since_ms, why };
            if !engines.contains(&engine) {
                engines.push(engine);
            }
        }
        engines
    }
}
