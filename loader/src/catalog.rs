//! What the plugins directories hold: the steps that run no plugin code, taken for everything that is found, and which
//! of several plugins an id means.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use context_engine_interface::record::EngineInfo;
use serde_json::Value;

use crate::error::{LoaderError, Problem, Step, VERSION_IN_MANIFEST};
use crate::find::{self, Candidate, Origin};
use crate::hosts;
use crate::inspect::{self, Inspection};
use crate::known::Stamp;
use crate::loader::{LEGACY, Loader};
use crate::platform::CAN_LOAD;
use crate::schema;
use crate::stage::{self, Staged};
use crate::trust::{self, TrustPolicy};

/// A staged copy that nothing uses is removed when it is older than this: another host may be about to open it.
const STAGE_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// A plugin that passed everything that can be checked without running it.
#[derive(Debug, Clone)]
pub struct Plugin {
    // Private: whoever holds a plugin may open it, so nobody else may say what is opened.
    pub(crate) candidate: Candidate,
    pub(crate) staged: Staged,
    pub(crate) inspection: Inspection,
}

impl Plugin {
    /// What was found.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The private copy.
    pub fn staged(&self) -> &Staged {
        &self.staged
    }

    /// What the copy says about itself.
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// The engine it ships.
    pub fn info(&self) -> &EngineInfo {
        &self.inspection.record.engine
    }

    /// Whether its manifest has a schema for the engine's configuration. A bare library has none.
    pub fn has_config_schema(&self) -> bool {
        self.config_schema().is_some()
    }

    fn config_schema(&self) -> Option<&Value> {
        self.candidate.manifest.as_ref()?.config_schema.as_ref()
    }

    /// Whether the engine may be created with `config` (`plugins.entries.<id>.config`), as far as the plugin's schema says.
    /// Runs no plugin code; what an engine refuses beyond that it says itself when it is created.
    ///
    /// # Errors
    /// [`Problem::Config`] with everything that does not fit.
    pub fn check_config(&self, config: Option<&Value>) -> Result<(), LoaderError> {
        let Some(schema) = self.config_schema() else { return Ok(()) };
        // A schema that is none was refused with its manifest.
        let faults = schema::faults(schema, &self.info().id, config)
            .map_err(|reason| refused(self, Step::Config, Problem::Manifest { reason }))?;
        if faults.is_empty() { Ok(()) } else { Err(refused(self, Step::Config, Problem::Config { faults })) }
    }
}

impl Loader {
    /// Everything in the plugins directories: what may be used, and what may not with its reason. Runs no plugin code.
    ///
    /// One file reached by two paths counts once. Of two plugins with one id, the one whose directory comes first wins.
    /// Within one directory, copies of one file are one plugin, and of two different files neither is used, because
    /// nothing says which was meant.
    pub fn scan(&self) -> Vec<Result<Plugin, LoaderError>> {
        let mut seen = HashSet::new();
        let rules = self.rules();
        let mut found: Vec<Result<Plugin, LoaderError>> = find::find(&rules.directories)
            .into_iter()
            .filter(|found| found.as_ref().map_or(true, |candidate| seen.insert(candidate.library.clone())))
            .map(|found| trusted(&rules.policy, self.check(found?)?))
            .collect();
        settle_ids(&mut found);
        self.collect_stages(&found);
        self.known.retain(&seen);
        found
    }

    /// Removes copies that no plugin there is needs, and no host that runs has mapped.
    fn collect_stages(&self, found: &[Result<Plugin, LoaderError>]) {
        let mut keep: BTreeSet<String> =
            found.iter().flatten().map(|plugin| plugin.staged.digest.to_string()).chain(self.mapped()).collect();
        keep.extend(hosts::announced(&self.options.state_dir).into_iter().flat_map(|host| host.mapped));
        stage::collect(&self.stages(), &keep, STAGE_LIFETIME);
    }

    /// Checks one library or plugin folder by its path. Runs no plugin code.
    ///
    /// It is about the file: what the policy says of its id is not asked.
    ///
    /// # Errors
    /// The first reason why this host would not open it.
    pub fn inspect(&self, path: &Path) -> Result<Plugin, LoaderError> {
        let plugin = self.check(find::named(path)?)?;
        trust::check_permissions(&plugin.candidate).map_err(|problem| refused(&plugin, Step::Trust, problem))?;
        Ok(plugin)
    }

    /// Finds the plugin with this id.
    ///
    /// # Errors
    /// The reason why the plugin with this id may not be used, else [`Problem::NotFound`] with the ids there are.
    pub fn find(&self, id: &str) -> Result<Plugin, LoaderError> {
        self.find_in(&self.scan(), id)
    }

    /// The same, in what a scan gave.
    pub(crate) fn find_in(&self, found: &[Result<Plugin, LoaderError>], id: &str) -> Result<Plugin, LoaderError> {
        let mut known = BTreeSet::from([LEGACY.to_owned()]);
        let mut refused: Vec<&LoaderError> = Vec::new();
        for found in found {
            match found {
                Ok(plugin) if plugin.info().id == id => return Ok(plugin.clone()),
                Ok(plugin) => {
                    known.insert(plugin.info().id.clone());
                }
                Err(error) => refused.push(error),
            }
        }
        // What a plugin says it is counts more than what its file is called.
        for meant in [speaks_of as fn(&LoaderError, &str) -> bool, is_called] {
            if let Some(at) = refused.iter().position(|error| meant(error, id)) {
                return Err(refused[at].clone());
            }
        }
        let usable = |id: &String| inspect::check_id(id, "").is_ok();
        known.extend(refused.into_iter().filter_map(|error| error.engine.clone()).filter(usable));
        let mut known: Vec<String> = known.into_iter().collect();
        let closest = closest_first(id, &mut known);
        let directory = self.directories().first().map(|directory| directory.path.clone());
        let problem = Problem::NotFound { id: id.to_owned(), closest, known };
        Err(LoaderError::new(&directory.unwrap_or_default(), Step::Find, problem))
    }

    /// What the files say: staged, inspected, and one thing with one name.
    fn check(&self, candidate: Candidate) -> Result<Plugin, LoaderError> {
        // Errors speak of what lies in the directory, which is what the person sees; the private copy means nothing to them.
        let seen = |error: LoaderError| {
            let error = LoaderError { path: candidate.path.clone(), ..error };
            candidate.manifest.iter().fold(error, |error, manifest| error.about(&manifest.id))
        };
        let (staged, inspection) = self.look(&candidate.library).map_err(seen)?;
        let plugin = Plugin { candidate, staged, inspection };
        let (manifest, id) = (plugin.candidate.manifest.as_ref(), &plugin.info().id);
        if let Some(manifest) = manifest.filter(|manifest| manifest.id != *id) {
            let (left, right) = (manifest.id.clone(), id.clone());
            let problem = Problem::Identity { left_name: "plugin.json", left, right_name: "library", right };
            return Err(refused(&plugin, Step::Inspect, problem));
        }
        let version = &plugin.info().version;
        if let Some(manifest) = manifest.filter(|manifest| manifest.version.to_string() != *version) {
            let (left, right) = (manifest.version.to_string(), version.clone());
            let problem =
                Problem::Identity { left_name: VERSION_IN_MANIFEST, left, right_name: "version in the library", right };
            return Err(refused(&plugin, Step::Inspect, problem));
        }
        if !CAN_LOAD {
            return Err(refused(&plugin, Step::Inspect, Problem::StaticHost));
        }
        Ok(plugin)
    }

    /// Stages and inspects a library, or remembers what that gave before.
    fn look(&self, library: &Path) -> Result<(Staged, Inspection), LoaderError> {
        let before = Stamp::of(library);
        if let Some(known) = before.as_ref().and_then(|stamp| self.known.get(library, stamp)) {
            return Ok(known);
        }
        inspect::glance(library)?;
        let staged = stage::stage(library, &self.stages())?;
        let inspection = inspect::inspect(&staged.path)?;
        let after = Stamp::of(library);
        self.known.remember(library, (before, after), SystemTime::now(), (&staged, &inspection));
        Ok((staged, inspection))
    }

    fn stages(&self) -> PathBuf {
        self.options.state_dir.join("stages")
    }
}

fn trusted(policy: &TrustPolicy, plugin: Plugin) -> Result<Plugin, LoaderError> {
    trust::check(policy, &plugin.candidate, &plugin.info().id, plugin.staged.digest)
        .map_err(|problem| refused(&plugin, Step::Trust, problem))?;
    Ok(plugin)
}

/// Sorts `known` by how close each is to `id`. The closest, if it may have been meant.
pub fn closest_first(id: &str, known: &mut [String]) -> Option<String> {
    // No id is longer, and the distance to a very long text costs memory.
    let near: String = id.chars().take(64).collect();
    let distance = |known: &String| strsim::damerau_levenshtein(known, &near);
    known.sort_by_key(distance);
    known.first().filter(|known| distance(known) <= near.chars().count().max(3) / 2).cloned()
}

fn refused(plugin: &Plugin, step: Step, problem: Problem) -> LoaderError {
    LoaderError::new(&plugin.candidate.path, step, problem).about(&plugin.info().id)
}

/// Whether a refused plugin says that it is `id`: in its record or in its manifest.
fn speaks_of(error: &LoaderError, id: &str) -> bool {
    let in_manifest = matches!(&error.problem, Problem::Identity { left_name: "plugin.json", left, .. } if left == id);
    in_manifest || error.engine.as_deref() == Some(id)
}

/// Whether a refused plugin that says nothing about itself has a file or folder named like `id`.
fn is_called(error: &LoaderError, id: &str) -> bool {
    let stem = error.path.file_stem().map(|stem| stem.to_string_lossy().replace('_', "-")).unwrap_or_default();
    error.engine.is_none() && (stem.strip_prefix("lib").unwrap_or(&stem) == id || stem == id)
}

/// Refuses plugins whose id another one has.
fn settle_ids(found: &mut [Result<Plugin, LoaderError>]) {
    keep_workspaces_back(found);
    let mut by_id: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, plugin) in found.iter().enumerate() {
        if let Ok(plugin) = plugin {
            by_id.entry(plugin.info().id.clone()).or_default().push(at);
        }
    }
    for (id, at) in by_id.into_iter().filter(|(_, at)| at.len() > 1) {
        // As found: in order of precedence, within one directory by name.
        let rivals: Vec<(usize, Plugin)> =
            at.into_iter().filter_map(|at| Some((at, found[at].clone().ok()?))).collect();
        let Some((_, winner)) = rivals.first() else { continue };
        let beside = |plugin: &Plugin| plugin.candidate.precedence == winner.candidate.precedence;
        let differs = |plugin: &Plugin| plugin.staged.digest != winner.staged.digest;
        let clash = rivals.iter().map(|(_, plugin)| plugin).find(|plugin| beside(plugin) && differs(plugin));
        for (at, plugin) in rivals.iter().skip(usize::from(clash.is_none())) {
            let problem = match clash {
                Some(other) if beside(plugin) => {
                    let other = if differs(plugin) { winner } else { other };
                    Problem::DuplicateId { id: id.clone(), other: other.candidate.path.clone() }
                }
                _ => Problem::Shadowed {
                    id: id.clone(),
                    winner: winner.candidate.path.clone(),
                    same_file: !differs(plugin),
                },
            };
            found[*at] = Err(refused(plugin, Step::Inspect, problem));
        }
    }
}

/// Refuses a workspace's plugin whose id a refused plugin of the operator's says it has: naming the id in `allow` was meant
/// for that one, and a repository must not step in for it.
fn keep_workspaces_back(found: &mut [Result<Plugin, LoaderError>]) {
    for at in 0..found.len() {
        let (before, from) = found.split_at_mut(at);
        let Some(Ok(plugin)) = from.first().filter(|found| is_of_workspace(found)) else { continue };
        let meant =
            before.iter().filter_map(|found| found.as_ref().err()).find(|error| speaks_of(error, &plugin.info().id));
        if let Some(meant) = meant {
            let (id, winner) = (plugin.info().id.clone(), meant.path.clone());
            let problem = Problem::Shadowed { id, winner, same_file: false };
            from[0] = Err(refused(plugin, Step::Trust, problem));
        }
    }
}

fn is_of_workspace(found: &Result<Plugin, LoaderError>) -> bool {
    found.as_ref().is_ok_and(|plugin| plugin.candidate.origin == Origin::Workspace)
}
