//! What the plugins directories hold: the steps that run no plugin code, taken for everything that is found, and which
//! of several plugins an id means.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use context_engine_interface::record::EngineInfo;

use crate::error::{LoaderError, Problem, Step};
use crate::find::{self, Candidate};
use crate::inspect::{self, Inspection};
use crate::loader::{LEGACY, Loader};
use crate::stage::{self, Digest, Staged};

/// A staged copy that nothing uses is removed when it is older than this: another host may be about to open it.
const STAGE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A plugin that passed everything that can be checked without running it.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// What was found.
    pub candidate: Candidate,
    /// The private copy.
    pub staged: Staged,
    /// What the copy says about itself.
    pub inspection: Inspection,
}

impl Plugin {
    /// The engine it ships.
    pub fn info(&self) -> &EngineInfo {
        &self.inspection.record.engine
    }
}

impl Loader {
    /// Everything in the plugins directories: what may be used, and what may not with its reason. Runs no plugin code.
    ///
    /// One file reached by two paths counts once. Of two plugins with one id, the one whose directory comes first wins;
    /// within one directory neither does, because nothing says which was meant.
    pub fn scan(&self) -> Vec<Result<Plugin, LoaderError>> {
        let mut seen = HashSet::new();
        let mut found: Vec<Result<Plugin, LoaderError>> = find::find(&self.options.directories)
            .into_iter()
            .filter(|found| found.as_ref().map_or(true, |candidate| seen.insert(candidate.library.clone())))
            .map(|found| self.check(found?))
            .collect();
        settle_ids(&mut found);
        let keep: Vec<Digest> = found.iter().flatten().map(|plugin| plugin.staged.digest).collect();
        stage::collect(&self.stages(), &keep, STAGE_LIFETIME);
        found
    }

    /// Checks one library or plugin folder by its path. Runs no plugin code.
    ///
    /// # Errors
    /// The first reason why this host would not open it.
    pub fn inspect(&self, path: &Path) -> Result<Plugin, LoaderError> {
        match find::candidate(path, 0) {
            Some(candidate) => self.check(candidate?),
            None => {
                let library = find::regular_file(path)?;
                self.check(Candidate { path: path.to_owned(), library, manifest: None, precedence: 0 })
            }
        }
    }

    /// Finds the plugin with this id.
    ///
    /// # Errors
    /// The reason why the plugin with this id may not be used, else [`Problem::NotFound`] with the closest id.
    pub fn find(&self, id: &str) -> Result<Plugin, LoaderError> {
        let mut known = vec![LEGACY.to_owned()];
        let mut refused = None;
        for found in self.scan() {
            match found {
                Ok(plugin) if plugin.info().id == id => return Ok(plugin),
                Ok(plugin) => known.push(plugin.info().id.clone()),
                Err(error) if refused.is_none() && speaks_of(&error, id) => refused = Some(error),
                Err(_) => {}
            }
        }
        Err(refused.unwrap_or_else(|| {
            let distance = |known: &&String| strsim::damerau_levenshtein(known, id);
            let closest = known.iter().min_by_key(distance).filter(|known| distance(known) <= id.len().max(3) / 2);
            let problem = Problem::NotFound { id: id.to_owned(), closest: closest.cloned(), known: known.clone() };
            let directory = self.options.directories.first().cloned().unwrap_or_default();
            LoaderError::new(&directory, Step::Find, problem)
        }))
    }

    fn check(&self, candidate: Candidate) -> Result<Plugin, LoaderError> {
        // Errors speak of what lies in the directory, which is what the person sees; the private copy means nothing to them.
        let seen = |error: LoaderError| LoaderError { path: candidate.path.clone(), ..error };
        inspect::glance(&candidate.library).map_err(seen)?;
        let staged = stage::stage(&candidate.library, &self.stages()).map_err(seen)?;
        let inspection = inspect::inspect(&staged.path).map_err(seen)?;
        if let Some(manifest) = &candidate.manifest {
            let engine = &inspection.record.engine;
            let differs = |left: &str, right: &str| Problem::Identity {
                left_name: "plugin.json",
                left: left.to_owned(),
                right_name: "library",
                right: right.to_owned(),
            };
            if manifest.id != engine.id {
                let problem = differs(&manifest.id, &engine.id);
                return Err(LoaderError::new(&candidate.path, Step::Inspect, problem));
            }
        }
        Ok(Plugin { candidate, staged, inspection })
    }

    fn stages(&self) -> PathBuf {
        self.options.state_dir.join("stages")
    }
}

/// Whether a refused plugin is the one meant by `id`: by its file or folder name, or by the id in the error.
fn speaks_of(error: &LoaderError, id: &str) -> bool {
    if let Problem::DuplicateId { id: clash, .. } | Problem::Shadowed { id: clash, .. } = &error.problem {
        return clash == id;
    }
    let stem = error.path.file_stem().map(|stem| stem.to_string_lossy().replace('_', "-")).unwrap_or_default();
    stem.strip_prefix("lib").unwrap_or(&stem) == id || stem == id
}

/// Refuses plugins whose id another one has.
fn settle_ids(found: &mut [Result<Plugin, LoaderError>]) {
    let mut by_id: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, plugin) in found.iter().enumerate() {
        if let Ok(plugin) = plugin {
            by_id.entry(plugin.info().id.clone()).or_default().push(at);
        }
    }
    for (id, at) in by_id.into_iter().filter(|(_, at)| at.len() > 1) {
        let place = |at: usize| found[at].as_ref().ok().map(|p| (p.candidate.precedence, p.candidate.path.clone()));
        let places: Vec<(usize, (usize, PathBuf))> = at.iter().filter_map(|&at| Some((at, place(at)?))).collect();
        let Some(first) = places.iter().map(|(_, (precedence, _))| *precedence).min() else { continue };
        let winners: Vec<&(usize, (usize, PathBuf))> = places.iter().filter(|(_, (p, _))| *p == first).collect();
        for (at, (precedence, path)) in &places {
            let problem = if winners.len() == 1 {
                let (winner, (_, winner_path)) = winners[0];
                if at == winner {
                    continue;
                }
                Problem::Shadowed { id: id.clone(), winner: winner_path.clone() }
            } else if *precedence == first {
                let other = winners.iter().find(|(other, _)| other != at).map(|(_, (_, path))| path.clone());
                Problem::DuplicateId { id: id.clone(), other: other.unwrap_or_default() }
            } else {
                Problem::Shadowed { id: id.clone(), winner: winners[0].1.1.clone() }
            };
            found[*at] = Err(LoaderError::new(path, Step::Inspect, problem));
        }
    }
}
