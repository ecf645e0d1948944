//! What a loader knows of the handles and instances in use, and what of them is still in memory.
//!
//! Decision: handles are held weakly: nobody is kept for being known. Of an instance only its departure is kept, until it is
//! gone.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{LoaderError, Problem};
use crate::instances::InstanceKey;
use crate::loader::{Attempt, Loader};
use crate::supervise::{Departure, EngineHandle, Shared, Supervised};
use crate::watch::Told;

/// Refusals that are remembered.
const MAX_REFUSED: usize = 64;

/// Builds that were replaced and that no instance uses any more. Their libraries stay mapped while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    /// How many.
    pub copies: usize,
    /// Address space their files take, in bytes.
    pub bytes: u64,
}

/// What the loader and its clones know of the handles in use.
#[derive(Default)]
pub(crate) struct Reloads {
    handles: Mutex<Vec<Weak<Shared>>>,
    /// One pass at a time.
    pub(super) passing: Mutex<()>,
    /// Passes that have begun.
    pub(super) passes: AtomicU64,
    pub(super) swaps: AtomicU64,
    /// Builds that were replaced, by digest.
    left: Mutex<HashSet<String>>,
    /// All instances that are not gone.
    instances: Mutex<Vec<Arc<Departure>>>,
    /// Engines whose file is not there, since a look missed it.
    pub(super) missing: Mutex<HashMap<String, Instant>>,
    /// What was refused for itself, and not by a quarantine.
    pub(super) refused: Mutex<HashMap<InstanceKey, LoaderError>>,
    /// Whether it was said that there are many retired copies.
    pub(super) said_many: AtomicBool,
    /// Watchers, which say what engines this host has.
    watchers: Mutex<Vec<Sender<Told>>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reloads {
    /// How many passes have begun: for who opens an engine, to be handed to [`gave_out`](Self::gave_out).
    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::Acquire)
    }

    /// A handle is in use from now on. When another pass has begun since `passes`, it may have looked before the handle was
    /// known, and after its engine was opened.
    pub(crate) fn gave_out(&self, handle: &EngineHandle, passes: u64) {
        let mut handles = lock(&self.handles);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle.shared()));
        drop(handles);
        // One that has stopped is forgotten.
        let missed = self.passes() != passes;
        lock(&self.watchers).retain(|watcher| watcher.send(Told::Engine { missed }).is_ok());
    }

    /// Has a watcher be told when an engine is asked for.
    pub(crate) fn tell_of_engines(&self, watcher: Sender<Told>) {
        lock(&self.watchers).push(watcher);
    }

    /// What was wrong with this instance before, for who does not try again.
    pub(crate) fn refused_before(&self, instance: &InstanceKey, attempt: Attempt) -> Option<LoaderError> {
        let mut refused = lock(&self.refused);
        match attempt {
            Attempt::Fresh => {
                refused.remove(instance);
                None
            }
            Attempt::Reload => refused.get(instance).cloned(),
        }
    }

    /// Remembers what was wrong with it, unless that was this host's doing.
    pub(crate) fn refuse(&self, instance: InstanceKey, error: &LoaderError) {
        if matches!(error.problem, Problem::Busy { .. } | Problem::State { .. }) {
            return;
        }
        let mut refused = lock(&self.refused);
        if refused.len() >= MAX_REFUSED {
            refused.clear();
        }
        refused.insert(instance, error.clone());
    }

    /// The handles that somebody has.
    pub(crate) fn in_use(&self) -> Vec<Arc<Shared>> {
        let mut handles = lock(&self.handles);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.iter().filter_map(Weak::upgrade).collect()
    }

    /// An instance was made.
    pub(crate) fn has_made(&self, instance: Arc<Departure>) -> Arc<Departure> {
        let mut instances = lock(&self.instances);
        instances.retain(|instance| !instance.is_gone());
        instances.push(Arc::clone(&instance));
        instance
    }

    /// The build is not that of a seat any more.
    pub(super) fn leaves(&self, digest: String, engine: Option<&Arc<Supervised>>) {
        lock(&self.left).insert(digest);
        if let Some(engine) = engine {
            engine.is_replaced_now();
        }
    }

    /// The instances that are not gone.
    fn instances(&self) -> Vec<Arc<Departure>> {
        let mut instances = lock(&self.instances);
        instances.retain(|instance| !instance.is_gone());
        instances.clone()
    }

    /// Says which of the instances that were replaced do not let go.
    pub(super) fn see_off(&self) {
        for late in self.instances().into_iter().filter(|instance| instance.is_news()) {
            let (engine, digest, ms) = (&late.engine, &late.digest, late.limit.as_millis());
            tracing::warn!(engine, digest, "the replaced engine has not returned from dispose within {ms} ms");
        }
    }

    /// Whether the engine's file has been missing for less than `grace`.
    pub(super) fn may_be_back(&self, id: &str, grace: Duration) -> bool {
        !grace.is_zero() && lock(&self.missing).entry(id.to_owned()).or_insert_with(Instant::now).elapsed() < grace
    }
}

impl Loader {
    /// Whether instances that were replaced are still on their way out.
    pub(crate) fn has_departing(&self) -> bool {
        let left = lock(&self.reloads.left).clone();
        let instances = self.reloads.instances();
        instances.iter().any(|instance| instance.is_leaving() && left.contains(&instance.digest))
    }

    /// Waits for the instances that are on their way out, each at most as long as its `dispose` may take: whoever ends the
    /// process then has their stores written. Instances that still serve are none of them.
    pub fn settle(&self) {
        // A look that is under way may leave one behind.
        drop(lock(&self.reloads.passing));
        let began = Instant::now();
        for instance in self.reloads.instances().into_iter().filter(|instance| !instance.is_overdue()) {
            if !instance.wait(began + instance.limit) {
                let (engine, digest, ms) = (&instance.engine, &instance.digest, instance.limit.as_millis());
                tracing::warn!(engine, digest, "the engine was not released within {ms} ms");
            }
        }
    }

    /// How often an instance was replaced under a handle, or an engine that was missing has come.
    pub fn swaps(&self) -> u64 {
        self.reloads.swaps.load(Ordering::Relaxed)
    }

    /// The builds that were replaced and are still mapped.
    pub fn retired(&self) -> Retired {
        let instances = self.reloads.instances().into_iter().filter(|instance| instance.is_in_use());
        let in_use: HashSet<String> = instances.map(|instance| instance.digest.clone()).collect();
        let left = lock(&self.reloads.left).clone();
        let opened = lock(&self.modules);
        let retired = opened.iter().filter(|(digest, _)| {
            let digest = digest.to_string();
            left.contains(&digest) && !in_use.contains(&digest)
        });
        retired.fold(Retired::default(), |sum, (_, opened)| Retired {
            copies: sum.copies + 1,
            bytes: sum.bytes + opened.mapped,
        })
    }

    /// Digests of the builds that are mapped.
    pub(crate) fn mapped(&self) -> Vec<String> {
        let mut mapped: Vec<String> = lock(&self.modules).keys().map(ToString::to_string).collect();
        mapped.sort();
        mapped
    }
}
