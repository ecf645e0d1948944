//! A host that looks by itself when something of its plugins changes.
//!
//! Decision: the system says that something changed, never what: what is there is found out by a whole
//! [`reload`](crate::Loader::reload), which is cheap when nothing did. A look waits until nothing has changed for a moment,
//! so that a file that is being written is read once; what is read too early all the same is refused by its own headers,
//! and looked at again when it grows. Where the system cannot watch (a network drive, no watches left), the host looks
//! every second instead.

mod places;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use self::places::{Interests, Places};
use crate::error::Problem;
use crate::hosts::{self, Announcement, EngineInUse, LastReload, ReloadedEngine, RunningHost};
use crate::loader::Loader;
use crate::quarantine::ProcessStamp;
use crate::reload::{Outcome, Reloaded};
use crate::supervise::Standing;

/// A look is taken at the latest so long after the first change, even when changes do not end.
const LATEST: Duration = Duration::from_secs(2);

/// A look is taken so often although nothing was told: events can be lost.
const ANYHOW: Duration = Duration::from_secs(60);

/// A host that was short of something tries again after this.
const SHORT_OF: Duration = Duration::from_secs(5);

/// Takes what a look did.
pub type TellReloads = Box<dyn FnMut(&[Reloaded]) + Send>;

/// How a loader is watched.
pub struct WatchOptions {
    /// Files that matter besides the plugins: a configuration.
    pub files: Vec<PathBuf>,
    /// How long nothing may have changed before a look is taken.
    pub settle: Duration,
    /// How often a look is taken where the system cannot watch.
    pub poll: Duration,
    /// Do not ask the system to watch: plugins lie on a drive that tells nothing.
    pub poll_only: bool,
    /// Called before each look, which sees what it sets: reads the configuration again.
    pub before: Option<Box<dyn FnMut() + Send>>,
    /// Told what a look did, when it did something; on the watcher's thread.
    pub told: Option<TellReloads>,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            files: vec![],
            settle: Duration::from_millis(30),
            poll: Duration::from_secs(1),
            poll_only: false,
            before: None,
            told: None,
        }
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("files", &self.files)
            .field("settle", &self.settle)
            .field("poll", &self.poll)
            .field("poll_only", &self.poll_only)
            .finish_non_exhaustive()
    }
}

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
    Stop,
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
        let watching = Watching {
            loader: self.clone(),
            options,
            shared: Arc::clone(&shared),
            system: None,
            places: Places::default(),
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
    /// What was said last: what stays as it is is said once.
    said: Vec<Reloaded>,
    /// The newest request that was heeded.
    heeded: u64,
    last: Option<LastReload>,
    /// Whether it was said that the system cannot watch, or that this host cannot be announced.
    warned: bool,
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
        let mut next = self.look();
        let mut first_change: Option<Instant> = None;
        loop {
            match told.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Told::Changed(event)) => {
                    let concerns = event.as_ref().map_or(true, |event| self.places.concerns(event));
                    if concerns {
                        let now = Instant::now();
                        let latest = *first_change.get_or_insert(now) + LATEST;
                        next = (now + self.options.settle).min(latest);
                    }
                }
                Ok(Told::Engine { missed: true }) => next = Instant::now(),
                Ok(Told::Engine { missed: false }) => self.announce(),
                Err(RecvTimeoutError::Timeout) => {
                    first_change = None;
                    next = self.look();
                }
                Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.shared.stopped.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// One look; when the next one is due.
    fn look(&mut self) -> Instant {
        // Before anything is read: what changes later is told.
        self.watch_places();
        let asked = hosts::asked(&self.loader.options.state_dir);
        if let Some(before) = &mut self.options.before {
            before();
            // It may have changed the directories.
            self.watch_places();
        }
        let done = if asked > self.heeded { self.loader.reload_anew() } else { self.loader.reload() };
        self.heeded = self.heeded.max(asked);
        if self.shared.stopped.load(Ordering::Acquire) {
            return Instant::now();
        }
        let why = |reloaded: &Reloaded| match &reloaded.outcome {
            Outcome::Kept { why, .. } => Some(why.problem.clone()),
            _ => None,
        };
        let problems: Vec<Problem> = done.iter().filter_map(why).collect();
        let again = if problems.iter().any(|problem| matches!(problem, Problem::Unstable { .. })) {
            self.options.settle
        } else if problems.iter().any(|problem| matches!(problem, Problem::Busy { .. })) {
            SHORT_OF
        } else {
            ANYHOW
        };
        self.say(&done);
        let engines = done.iter().map(ReloadedEngine::from).collect();
        self.last = Some(LastReload { at_ms: hosts::now_ms(), generation: self.heeded, engines });
        self.announce();
        Instant::now() + if self.system.is_some() { again } else { again.min(self.options.poll) }
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
        let new: Vec<Reloaded> = done.iter().filter(|reloaded| !self.said.contains(reloaded)).cloned().collect();
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

    /// Says that this host runs, and what it has.
    fn announce(&mut self) {
        let retired = self.loader.retired();
        let host = RunningHost {
            process: ProcessStamp::current(),
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
            return;
        }
        if let Err(error) = announcement.say(&host)
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(%error, "`plugins reload` will not find this host: its state folder cannot be written");
        }
    }
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
