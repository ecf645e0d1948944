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

mod outcome;
mod reloads;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use self::outcome::{Outcome, Reloaded};
pub(crate) use self::reloads::Reloads;
pub use self::reloads::Retired;
use self::reloads::lock;
use crate::catalog::Plugin;
use crate::error::{LoaderError, Problem, Step};
use crate::find::Origin;
use crate::loader::{Attempt, Loader};
use crate::rules::Rules;
use crate::supervise::{LastOpened, Refused, Shared, Source, Standing, Supervised};
use crate::trust;

/// So many retired copies in one process are worth a warning.
pub const MANY_RETIRED: usize = 50;

/// How one pass looks at things.
pub(crate) struct Pass<'a> {
    /// Libraries that somebody has open and writes to, links resolved: not read yet.
    pub(crate) being_written: &'a BTreeSet<PathBuf>,
    /// How long a file that is not there may come back: somebody deletes it and creates it anew. None for who asks: what
    /// there is to wait for is told then, too.
    pub(crate) grace: Duration,
}

/// What one pass did.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) done: Vec<Reloaded>,
    /// Whether a file is being written, or is missing and may come back.
    pub(crate) waits: bool,
}

impl Pass<'_> {
    /// One that takes what is there now.
    pub(crate) const AT_ONCE: Pass<'static> = Pass { being_written: &BTreeSet::new(), grace: Duration::ZERO };

    /// Whether the library, or one in the folder, is being written.
    fn is_being_written(&self, plugin: &Path) -> bool {
        let plugin = fs::canonicalize(plugin).unwrap_or_else(|_| plugin.to_owned());
        self.being_written.iter().any(|written| written.starts_with(&plugin))
    }

    fn waits_for(&self, plugin: &Path) -> bool {
        !self.grace.is_zero() && self.is_being_written(plugin)
    }
}

impl Loader {
    /// Looks at the plugins directories, the policy and the configuration as they are now, and takes every engine that is
    /// in use there. What each of them did, once per engine and outcome. Takes as long as a probe; calls go on meanwhile.
    ///
    /// A build that was refused before is not tried again unless something of it changed.
    pub fn reload(&self) -> Vec<Reloaded> {
        self.pass(&Pass::AT_ONCE).done
    }

    /// The same, because a person asked: what was refused before is tried again.
    pub fn reload_anew(&self) -> Vec<Reloaded> {
        self.forget_refusals();
        self.pass(&Pass::AT_ONCE).done
    }

    pub(crate) fn forget_refusals(&self) {
        lock(&self.reloads.refused).clear();
    }

    /// Takes the engines away that the policy forbids now, without looking at any file. For who cannot wait for a pass. What
    /// a pin excludes is left to the pass: the build it asks for may be the one that is tried out.
    pub(crate) fn enforce(&self) -> Vec<Reloaded> {
        let policy = self.policy();
        let mut done: Vec<Reloaded> = Vec::new();
        for handle in self.reloads.in_use() {
            let (Some(source), Standing::Served(engine), Some(before)) =
                (&handle.source, handle.standing(), handle.opened())
            else {
                continue;
            };
            let id = &source.id;
            let Some(reason) = policy.forbids(id) else { continue };
            let problem = Problem::Forbidden { reason };
            let why = LoaderError::new(&before.path, Step::Trust, problem).about(id);
            if handle.vacate(&engine, format!("{id}: {why}")) {
                self.reloads.leaves(before.digest, Some(&engine));
                let reloaded = Reloaded { engine: id.clone(), outcome: Outcome::Removed { why: Box::new(why) } };
                if !done.contains(&reloaded) {
                    done.push(reloaded);
                }
            }
        }
        done
    }

    pub(crate) fn pass(&self, pass: &Pass<'_>) -> Passed {
        let _one_at_a_time = lock(&self.reloads.passing);
        self.reloads.passes.fetch_add(1, Ordering::AcqRel);
        let handles = self.reloads.in_use();
        let (mut done, mut waits): (Vec<Reloaded>, bool) = (Vec::new(), false);
        if !handles.is_empty() {
            let found = self.scan();
            for handle in handles {
                let Some(source) = &handle.source else { continue };
                let outcome = match self.renew(&handle, source, &found, pass) {
                    Renewed::As(outcome) => outcome,
                    Renewed::NobodyWaits => continue,
                    Renewed::Later => {
                        waits = true;
                        continue;
                    }
                };
                let reloaded = Reloaded { engine: source.id.clone(), outcome };
                if !done.contains(&reloaded) {
                    done.push(reloaded);
                }
            }
        }
        if !waits {
            lock(&self.reloads.missing).clear();
        }
        self.reloads.see_off();
        let Retired { copies, bytes } = self.retired();
        if copies >= MANY_RETIRED && !self.reloads.said_many.swap(true, Ordering::Relaxed) {
            tracing::warn!(copies, bytes, "many replaced engines are still in memory; restart this host when it suits");
        }
        Passed { done, waits }
    }

    /// Takes one handle to what was found.
    fn renew(
        &self,
        handle: &Arc<Shared>,
        source: &Source,
        found: &[Result<Plugin, LoaderError>],
        pass: &Pass<'_>,
    ) -> Renewed {
        let serving = match handle.standing() {
            Standing::Served(engine) => Some(engine),
            Standing::Vacant => None,
            Standing::Closed => return Renewed::NobodyWaits,
        };
        let before = handle.opened();
        let digest = serving.as_ref().and_then(digest_of);
        let keep = |refused: Refused| {
            if digest.is_none() {
                handle.still_vacant(&refused);
            }
            Renewed::As(Outcome::Kept { digest: digest.clone(), why: Box::new(refused.error) })
        };
        let plugin = match self.meant(source, found, before.as_ref(), serving.is_some()) {
            Ok(plugin) => plugin,
            Err(why) => {
                let taken = serving.as_ref().filter(|_| self.takes_away(&source.id, &why, before.as_ref()));
                let Some(engine) = taken else {
                    return if pass.waits_for(&why.path) { Renewed::Later } else { keep(why.into()) };
                };
                let not_found = matches!(why.problem, Problem::NotFound { .. });
                let is_gone = not_found && before.as_ref().is_some_and(|before| !before.path.exists());
                if is_gone && self.reloads.may_be_back(&source.id, pass.grace) {
                    return Renewed::Later;
                }
                let gone = if is_gone { "its file was removed; " } else { "" };
                if handle.vacate(engine, format!("{}: {gone}{why}", source.id)) {
                    self.reloads.leaves(digest.unwrap_or_default(), Some(engine));
                }
                return Renewed::As(Outcome::Removed { why: Box::new(why) });
            }
        };
        if pass.waits_for(&plugin.candidate.path) {
            return Renewed::Later;
        }
        if pass.is_being_written(&plugin.candidate.path) {
            let bytes = plugin.inspection.bytes;
            let problem = Problem::Unstable { before: bytes, after: bytes };
            let error = LoaderError::new(&plugin.candidate.path, Step::Stage, problem);
            return keep(error.about(&source.id).into());
        }
        let engine = match self.open_plugin(&plugin, &(source.creation)(), Attempt::Reload) {
            Ok(engine) => engine,
            Err(refused) => return keep(refused),
        };
        let to = digest_of(&engine).unwrap_or_default();
        if serving.as_ref().is_some_and(|serving| Arc::ptr_eq(serving, &engine)) {
            handle.found_at(&plugin.candidate.path);
            return Renewed::As(Outcome::Unchanged { digest: to });
        }
        // It may have been forbidden while it was tried out.
        let (candidate, id) = (&plugin.candidate, plugin.info().id.as_str());
        if let Err(problem) = trust::check(&self.policy(), candidate, id, plugin.staged.digest) {
            return keep(LoaderError::new(&candidate.path, Step::Trust, problem).about(id).into());
        }
        if !handle.swap(&engine) {
            return Renewed::NobodyWaits;
        }
        self.reloads.swaps.fetch_add(1, Ordering::Relaxed);
        if let Some(LastOpened { digest: from, .. }) = before {
            self.reloads.leaves(from, serving.as_ref());
        }
        Renewed::As(match digest {
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
        let Rules { directories, policy } = self.rules();
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

/// What a pass did about one handle.
enum Renewed {
    As(Outcome),
    /// It was disposed of.
    NobodyWaits,
    /// Its file is being written, or is not there and may come back in a moment.
    Later,
}

fn digest_of(engine: &Arc<Supervised>) -> Option<String> {
    engine.subject().map(|subject| subject.digest.clone())
}

fn is_shadowed(error: &LoaderError) -> bool {
    matches!(error.problem, Problem::Shadowed { .. })
}
