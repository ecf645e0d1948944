//! The loader: takes the steps one after the other and hands out engine handles that always answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use context_engine_interface::{
    ContextEngine, EngineContext, EngineContextFields, EngineError, EngineHost, RemoteEngine,
};
use context_engine_legacy::LegacyEngine;
use context_engine_transcript::TokenCounter;
use serde_json::Value;

use crate::error::{LoaderError, Problem, Step};
use crate::find::PluginDirectory;
use crate::known::Known;
use crate::platform::create_private_dir;
use crate::supervise::{EngineHandle, EngineServices, Supervised};
use crate::trust::TrustPolicy;

/// Id of the built-in engine.
pub const LEGACY: &str = "legacy";

/// Where the loader looks and keeps things.
#[derive(Debug, Clone, Default)]
pub struct LoaderOptions {
    /// Plugins directories, in order of precedence.
    pub directories: Vec<PluginDirectory>,
    /// A directory of the host's own: staged copies, a folder per engine.
    pub state_dir: PathBuf,
    /// Which plugins may be used.
    pub policy: TrustPolicy,
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
    pub(crate) options: LoaderOptions,
    /// What earlier scans learned, shared by clones.
    pub(crate) known: Arc<Known>,
}

impl Loader {
    /// A loader with these options. Touches nothing yet.
    pub fn new(options: LoaderOptions) -> Loader {
        Loader { options, known: Arc::default() }
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

    fn open(&self, id: &str, creation: &Creation) -> Result<Supervised, LoaderError> {
        let plugin = self.find(id)?;
        let refuse = |problem| LoaderError::new(&plugin.candidate.path, Step::Open, problem);
        let module = plugin.open()?;
        let object = self
            .create(id, creation, |ctx| module.create()(ctx).into_result())
            .map_err(|error| refuse(Problem::Create { reason: error.to_string() }))?;
        tracing::info!(engine = id, path = %plugin.candidate.path.display(), digest = %plugin.staged.digest, "opened");
        Ok(Supervised::new(Box::new(RemoteEngine::new(object)), plugin.info().clone()))
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
