//! What an engine is created with, and which instance that means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use context_engine_interface::{EngineContext, EngineContextFields, EngineError, EngineHost};
use context_engine_transcript::TokenCounter;
use serde_json::{Value, json};

use crate::instances::InstanceKey;
use crate::platform::create_private_dir;
use crate::quarantine::QuarantineKey;
use crate::stage::Digest;
use crate::supervise::Deadlines;

/// What an engine is created with.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    /// The engine's configuration (`plugins.entries.<id>.config`).
    pub config: Option<Value>,
    /// The agent's folder. With `workspace_dir` it says which instance is meant, as it is written.
    pub agent_dir: Option<PathBuf>,
    /// The workspace the agent works in.
    pub workspace_dir: Option<PathBuf>,
    /// What the engine's token counts are made with; the default counter when absent.
    pub counter: Option<TokenCounter>,
    /// How long the engine may take for each member.
    pub deadlines: Deadlines,
}

impl Creation {
    /// The build together with what the engine is configured with, its deadlines included: another of either starts clean.
    pub(crate) fn key(&self, digest: &Digest) -> QuarantineKey {
        let changes = self.deadlines.changes();
        if changes.is_empty() {
            return QuarantineKey::of(digest, self.config.as_ref());
        }
        let changes: BTreeMap<&str, u64> =
            changes.into_iter().map(|(member, ms)| (member, u64::try_from(ms).unwrap_or(u64::MAX))).collect();
        QuarantineKey::of(digest, Some(&json!({ "config": self.config, "timeoutsMs": changes })))
    }

    /// The instance that is meant.
    pub(crate) fn instance(&self, digest: &Digest) -> InstanceKey {
        InstanceKey {
            build: self.key(digest),
            agent_dir: self.agent_dir.clone(),
            workspace_dir: self.workspace_dir.clone(),
            counter: self.counter(),
        }
    }

    pub(crate) fn counter(&self) -> TokenCounter {
        self.counter.unwrap_or_else(|| TokenCounter::for_model(None))
    }
}

/// What an engine is created with, owned by the job that creates it.
pub(crate) struct OwnedCreation {
    pub(crate) config: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) agent_dir: Option<PathBuf>,
    pub(crate) workspace_dir: Option<PathBuf>,
    pub(crate) host: EngineHost,
}

impl OwnedCreation {
    pub(crate) fn make_state_dir(&self) -> std::io::Result<()> {
        create_private_dir(&self.state_dir)
    }

    pub(crate) fn lend<E>(
        &self,
        create: impl FnOnce(EngineContext<'_>) -> Result<E, EngineError>,
    ) -> Result<E, EngineError> {
        let (state_dir, agent_dir, workspace_dir) = (
            self.state_dir.to_string_lossy(),
            self.agent_dir.as_deref().map(Path::to_string_lossy),
            self.workspace_dir.as_deref().map(Path::to_string_lossy),
        );
        let fields = EngineContextFields {
            config_json: self.config.as_str().into(),
            state_dir: state_dir.as_ref().into(),
            agent_dir: agent_dir.as_deref().map(Into::into).into(),
            workspace_dir: workspace_dir.as_deref().map(Into::into).into(),
            host: &self.host,
        };
        fields.lend(create)
    }
}
