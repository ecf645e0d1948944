//! The loader: takes the steps one after the other and hands out engine handles that always answer.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    ContextEngine, EngineContext, EngineContextFields, EngineError, EngineHost, RemoteEngine,
};
use context_engine_legacy::LegacyEngine;
use context_engine_transcript::TokenCounter;
use serde_json::Value;

use crate::dylib;
use crate::error::{LoaderError, Problem, Step};
use crate::find::{self, Candidate};
use crate::inspect::{self, Inspection};
use crate::platform::create_private_dir;
use crate::stage::{self, Digest, Staged};
use crate::supervise::{EngineHandle, EngineServices, Supervised};

/// Id of the built-in engine.
pub const LEGACY: &str = "legacy";

/// A staged copy that nothing uses is removed when it is older than this: another host may be about to open it.
const STAGE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the loader looks and keeps things.
#[derive(Debug, Clone, Default)]
pub struct LoaderOptions {
    /// Plugins directories, in order of precedence.
    pub directories: Vec<PathBuf>,
    /// A directory of the host's own: staged copies, a folder per engine.
    pub state_dir: PathBuf,
}

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

/// What an engine is created with.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    /// The engine's configuration (`plugins.entries.<id>.config`).
    pub config: Option<Value>,
    /// The agent's folder.
    pub agent_dir: Option<PathBuf>,
    /// The workspace the agent works in.
    pub workspace_dir: Option<PathBuf>,
    /// What the engine's token counts are made with; the default counter when absent.
    pub counter: Option<TokenCounter>,
}

/// Finds, checks and opens engines.
#[derive(Debug, Clone)]
pub struct Loader {
    options: LoaderOptions,
}

impl Loader {
    /// A loader with these options. Touches nothing yet.
    pub fn new(options: LoaderOptions) -> Loader {
        Loader { options }
    }

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

    /// The engine with this id, or `legacy` with the reason why it is not that one.
    ///
    /// # Errors
    /// Only when the built-in engine itself cannot be created.
    pub fn engine(&self, id: &str, creation: &Creation) -> Result<EngineHandle, EngineError> {
        let legacy = self.create(LEGACY, creation, LegacyEngine::create)?;
        let legacy = Supervised::new(Box::new(legacy), LegacyEngine::info());
        if matches!(id.trim(), "" | "none" | LEGACY) {
            return Ok(EngineHandle::new(None, legacy, None));
        }
        match self.open(id.trim(), creation) {
            Ok(active) => Ok(EngineHandle::new(Some(active), legacy, None)),
            Err(error) => {
                tracing::warn!(engine = id, %error, "the engine cannot be used; legacy answers");
                Ok(EngineHandle::new(None, legacy, Some(error.to_string())))
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

    fn open(&self, id: &str, creation: &Creation) -> Result<Supervised, LoaderError> {
        let plugin = self.find(id)?;
        let refuse = |problem| LoaderError::new(&plugin.candidate.path, Step::Open, problem);
        let module = dylib::open(&plugin.staged.path)
            .map_err(|error| LoaderError { path: plugin.candidate.path.clone(), ..error })?;
        let exported = serde_json::from_str(module.record()().as_str());
        if exported.ok().as_ref() != Some(&plugin.inspection.record) {
            let left = "record in the file";
            let right = module.record()().as_str().to_owned();
            let problem =
                Problem::Identity { left_name: left, left: id.to_owned(), right_name: "running library", right };
            return Err(refuse(problem));
        }
        let object = self
            .create(id, creation, |ctx| module.create()(ctx).into_result())
            .map_err(|error| refuse(Problem::Create { reason: error.to_string() }))?;
        tracing::info!(engine = id, path = %plugin.candidate.path.display(), digest = %plugin.staged.digest, "opened");
        Ok(Supervised::new(Box::new(RemoteEngine::new(object)), plugin.info().clone()))
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

    fn create<E>(
        &self,
        id: &str,
        creation: &Creation,
        create: impl FnOnce(EngineContext<'_>) -> Result<E, EngineError>,
    ) -> Result<E, EngineError> {
        // The built-in engine keeps nothing and must answer where nothing can be written.
        let state_dir = if id == LEGACY { PathBuf::new() } else { self.options.state_dir.join("engines").join(id) };
        if id != LEGACY {
            create_private_dir(&state_dir)
                .map_err(|error| EngineError::failed(format!("making {}: {error}", state_dir.display())))?;
        }
        let counter = creation.counter.unwrap_or_else(|| TokenCounter::for_model(None));
        let host = EngineHost::new(Arc::new(EngineServices::new(id, counter)));
        let config = creation.config.as_ref().map_or_else(String::new, Value::to_string);
        let (state_dir, agent_dir, workspace_dir) = (
            state_dir.to_string_lossy(),
            creation.agent_dir.as_deref().map(Path::to_string_lossy),
            creation.workspace_dir.as_deref().map(Path::to_string_lossy),
        );
        let fields = EngineContextFields {
            config_json: config.as_str().into(),
            state_dir: state_dir.as_ref().into(),
            agent_dir: agent_dir.as_deref().map(Into::into).into(),
            workspace_dir: workspace_dir.as_deref().map(Into::into).into(),
            host: &host,
        };
        fields.lend(create)
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
