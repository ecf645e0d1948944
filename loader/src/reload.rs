//! Reload: the steps again, under handles that are in use.
//!
//! Decision: a pass looks at what is in the plugins directories now and takes each handle there, or leaves it as it is.
//! All steps up to the open instance are taken beside the old one, which answers meanwhile; a failure at any of them leaves
//! it in its seat. Only what a person decided takes an engine away: its file was removed, or the configuration forbids it.
//!
//! Decision: a build that was refused is not tried again by itself until its file, its configuration or the quarantine
//! changes: a watcher passes often, and a probe costs a process.
//!
//! Invariant: nothing here knows how an instance runs.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::catalog::Plugin;
use crate::error::{LoaderError, Problem};
use crate::find::Origin;
use crate::instances::InstanceKey;
use crate::loader::{Attempt, Loader};
use crate::stage::short;
use crate::supervise::{Departure, EngineHandle, LastOpened, Refused, Shared, Source, Standing, Supervised};
use crate::watch::Told;

/// So many retired copies in one process are worth a warning.
pub const MANY_RETIRED: usize = 50;

/// Refusals that are remembered.
const MAX_REFUSED: usize = 64;

/// What a [`Loader::reload`] did about one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The id that was asked for.
    pub engine: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a reload did. Digests are SHA-256 of the library, as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The build and the configuration in use are the ones there are.
    Unchanged {
        /// The build.
        digest: String,
    },
    /// A new instance has taken over. `from` and `to` are the same when it is the configuration that changed.
    Replaced {
        /// The build before.
        from: String,
        /// The build that serves now.
        to: String,
    },
    /// The engine serves where `legacy` did in its place.
    Opened {
        /// The build that serves now.
        digest: String,
    },
    /// The engine is gone, and `legacy` answers: its file was removed, or the configuration forbids it now.
    Removed {
        /// Why it may not be used.
        why: Box<LoaderError>,
    },
    /// What is there now cannot be used.
    Kept {
        /// The build that goes on serving; `None` when `legacy` does.
        digest: Option<String>,
        /// Why the new one is not used.
        why: Box<LoaderError>,
    },
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.engine)?;
        match &self.outcome {
            Outcome::Unchanged { digest } => write!(f, "unchanged, build {}", short(digest)),
            Outcome::Replaced { from, to } if from == to => {
                write!(f, "created anew with the changed configuration, build {}", short(to))
            }
            Outcome::Replaced { from, to } => write!(f, "build {} replaced by {}", short(from), short(to)),
            Outcome::Opened { digest } => write!(f, "serves now, build {}", short(digest)),
            Outcome::Removed { why } => write!(f, "retired, legacy answers: {why}"),
            Outcome::Kept { digest: Some(digest), why } => write!(f, "build {} goes on: {why}", short(digest)),
            Outcome::Kept { digest: None, why } => write!(f, "legacy goes on: {why}"),
        }
    }
}

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
    passing: Mutex<()>,
    /// Passes that have begun.
    passes: AtomicU64,
    swaps: AtomicU64,
    /// Builds that were replaced, by digest.
    left: Mutex<HashSet<String>>,
    departures: Mutex<Vec<Arc<Departure>>>,
    /// What was refused for itself, and not by a quarantine.
    refused: Mutex<HashMap<InstanceKey, LoaderError>>,
    /// Whether it was said that there are many retired copies.
    said_many: AtomicBool,
    /// Watchers, which say what engines this host has.
    watchers: Mutex<Vec<Sender<Told>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    /// The build is not that of a seat any more.
    fn leaves(&self, digest: String, engine: Option<&Arc<Supervised>>) {
        lock(&self.left).insert(digest);
        if let Some(departure) = engine.and_then(|engine| engine.departs()) {
            lock(&self.departures).push(departure);
        }
    }

    /// Forgets instances that are gone, and says which of them should be.
    fn see_off(&self) {
        let overdue: Vec<(Arc<Departure>, std::time::Duration)> = {
            let mut departures = lock(&self.departures);
            departures.retain(|departure| !departure.has_ended());
            let overdue = departures.extract_if(.., |departure| departure.missed().is_some());
            overdue.filter_map(|departure| departure.missed().map(|limit| (departure, limit))).collect()
        };
        for (departure, limit) in overdue {
            let (engine, digest, ms) = (&departure.engine, &departure.digest, limit.as_millis());
            tracing::warn!(engine, digest, "the replaced engine has not returned from dispose within {ms} ms");
        }
    }
}

impl Loader {
    /// Looks at the plugins directories, the policy and the configuration as they are now, and takes every engine that is
    /// in use there. What each of them did, once per engine and outcome. Takes as long as a probe; calls go on meanwhile.
    ///
    /// A build that was refused before is not tried again unless something of it changed.
    pub fn reload(&self) -> Vec<Reloaded> {
        self.pass(Attempt::Reload)
    }

    /// The same, because a person asked: what was refused before is tried again.
    pub fn reload_anew(&self) -> Vec<Reloaded> {
        lock(&self.reloads.refused).clear();
        self.pass(Attempt::Reload)
    }

    /// How often an instance was replaced under a handle, or an engine that was missing has come.
    pub fn swaps(&self) -> u64 {
        self.reloads.swaps.load(Ordering::Relaxed)
    }

    /// The builds that were replaced and are still mapped.
    pub fn retired(&self) -> Retired {
        let mut in_use: HashSet<String> = self.instances.alive().iter().filter_map(digest_of).collect();
        let departing = lock(&self.reloads.departures);
        in_use.extend(departing.iter().filter(|gone| !gone.has_ended()).map(|gone| gone.digest.clone()));
        drop(departing);
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

    fn pass(&self, attempt: Attempt) -> Vec<Reloaded> {
        let _one_at_a_time = lock(&self.reloads.passing);
        self.reloads.passes.fetch_add(1, Ordering::AcqRel);
        let handles = self.reloads.in_use();
        let mut done: Vec<Reloaded> = Vec::new();
        if !handles.is_empty() {
            let found = self.scan();
            for handle in handles {
                let Some(source) = &handle.source else { continue };
                let Some(outcome) = self.renew(&handle, source, &found, attempt) else { continue };
                let reloaded = Reloaded { engine: source.id.clone(), outcome };
                if !done.contains(&reloaded) {
                    done.push(reloaded);
                }
            }
        }
        self.reloads.see_off();
        let Retired { copies, bytes } = self.retired();
        if copies >= MANY_RETIRED && !self.reloads.said_many.swap(true, Ordering::Relaxed) {
            tracing::warn!(copies, bytes, "many replaced engines are still in memory; restart this host when it suits");
        }
        done
    }

    /// Takes one handle to what was found. `None` when nobody waits for anything there.
    fn renew(
        &self,
        handle: &Arc<Shared>,
        source: &Source,
        found: &[Result<Plugin, LoaderError>],
        attempt: Attempt,
    ) -> Option<Outcome> {
        let serving = match handle.standing() {
            Standing::Served(engine) => Some(engine),
            Standing::Vacant => None,
            Standing::Closed => return None,
        };
        let before = handle.opened();
        let digest = serving.as_ref().and_then(digest_of);
        let keep = |refused: Refused| {
            if digest.is_none() {
                handle.still_vacant(&refused);
            }
            Some(Outcome::Kept { digest: digest.clone(), why: Box::new(refused.error) })
        };
        let plugin = match self.meant(source, found, before.as_ref(), serving.is_some()) {
            Ok(plugin) => plugin,
            Err(why) => {
                let Some(engine) = &serving else { return keep(why.into()) };
                if !self.takes_away(&source.id, &why, before.as_ref()) {
                    return keep(why.into());
                }
                let gone = if matches!(why.problem, Problem::NotFound { .. }) { "its file was removed; " } else { "" };
                if handle.vacate(engine, format!("{}: {gone}{why}", source.id)) {
                    self.reloads.leaves(digest.unwrap_or_default(), Some(engine));
                }
                return Some(Outcome::Removed { why: Box::new(why) });
            }
        };
        let engine = match self.open_plugin(&plugin, &(source.creation)(), attempt) {
            Ok(engine) => engine,
            Err(refused) => return keep(refused),
        };
        let to = digest_of(&engine).unwrap_or_default();
        if serving.as_ref().is_some_and(|serving| Arc::ptr_eq(serving, &engine)) {
            handle.found_at(&plugin.candidate.path);
            return Some(Outcome::Unchanged { digest: to });
        }
        if !handle.swap(&engine) {
            return None;
        }
        self.reloads.swaps.fetch_add(1, Ordering::Relaxed);
        if let Some(LastOpened { digest: from, .. }) = before {
            // Of a build that failed, its instance is gone already.
            self.reloads.leaves(from, serving.as_ref());
        }
        Some(match digest {
            Some(from) => Outcome::Replaced { from, to },
            None => Outcome::Opened { digest: to },
        })
    }

    /// The plugin that is meant now. While one serves, another of its id elsewhere does not step in for one whose file is
    /// there and cannot be read: it is being written.
    fn meant(
        &self,
        source: &Source,
        found: &[Result<Plugin, LoaderError>],
        before: Option<&LastOpened>,
        serves: bool,
    ) -> Result<Plugin, LoaderError> {
        let meant = self.find_in(found, &source.id);
        let Some(LastOpened { path, .. }) = before.filter(|_| serves) else { return meant };
        let in_place =
            found.iter().filter_map(|found| found.as_ref().err()).find(|error| path.starts_with(&error.path));
        match (&meant, in_place) {
            (Ok(plugin), Some(error)) if plugin.candidate.path != *path && !is_shadowed(error) => Err(error.clone()),
            (Err(error), Some(in_place)) if matches!(error.problem, Problem::NotFound { .. }) => Err(in_place.clone()),
            _ => meant,
        }
    }

    /// Whether an engine may not go on for this reason: somebody removed its file, or said that it is not to be used. What
    /// is there now may have been refused for something else before the policy was asked.
    fn takes_away(&self, id: &str, why: &LoaderError, before: Option<&LastOpened>) -> bool {
        let policy = self.policy();
        let directories = self.directories();
        let of_workspace = |path: &Path| {
            directories.iter().any(|place| place.origin == Origin::Workspace && path.starts_with(&place.path))
        };
        let forbidden = before.is_some_and(|LastOpened { path, digest, .. }| {
            policy.pins_out(id, digest).is_some()
                || of_workspace(path) && policy.check_workspace(id, path, digest).is_err()
        });
        forbidden
            || matches!(why.problem, Problem::NotFound { .. } | Problem::Forbidden { .. })
            || policy.forbids(id).is_some()
    }
}

fn digest_of(engine: &Arc<Supervised>) -> Option<String> {
    engine.subject().map(|subject| subject.digest.clone())
}

fn is_shadowed(error: &LoaderError) -> bool {
    matches!(error.problem, Problem::Shadowed { .. })
}
