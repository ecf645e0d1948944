//! The configuration: the keys of OpenClaw's `openclaw.json` that are read here, from `config.json5`.
//!
//! Unknown keys are left alone: a person may keep keys of other tools, or of a later version, in the same file.

mod depth;
pub mod edit;
pub mod lock;
mod models;
mod reading;
mod slips;
mod splice;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use context_engine_loader::find::read_text;
use context_engine_loader::{Deadlines, OnFailure, TrustPolicy};
use serde::Deserialize;
use serde_json::Value;

pub use self::models::{
    ApiKey, Compat, ConfiguredModel, MaxTokensField, ModelChoice, Models, OPENAI_COMPLETIONS, Provider, ProviderModel,
};
use crate::RuntimeError;

/// The longest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 16 << 20;

/// What the file says. Every member has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Which engines may be used, and with what.
    pub plugins: Plugins,
    /// How agents run.
    pub agents: Agents,
    /// Who serves models.
    pub models: Models,
}

/// `plugins`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Plugins {
    /// `false`: no plugin is used, `legacy` answers.
    pub enabled: Option<bool>,
    /// When given, only these ids are used.
    pub allow: Option<Vec<String>>,
    /// These ids are not used, whatever `allow` says.
    pub deny: Vec<String>,
    /// Which engine is used.
    pub slots: Slots,
    /// What happens when it does not answer.
    pub context_engine_policy: Policy,
    /// Where else to look.
    pub load: Load,
    /// Per engine id.
    pub entries: BTreeMap<String, PluginEntry>,
    /// Plugins of workspaces that are used, written by `plugins trust`.
    pub trusted: Vec<Trusted>,
}

/// An item of `plugins.trusted`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Trusted {
    /// The library or plugin folder, links resolved.
    pub path: PathBuf,
    /// SHA-256 of its library: 64 hex digits, with or without `sha256:` before them.
    pub sha256: String,
}

/// `plugins.contextEnginePolicy`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `legacy` answers.
    #[default]
    Fallback,
    /// The run stops.
    Strict,
}

/// `plugins.slots`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Slots {
    /// Id of the engine to use; `legacy` when absent.
    pub context_engine: Option<String>,
    /// Another tool's. Kept to be able to put it back to its default when the plugin it names goes.
    pub memory: Option<Value>,
}

/// `plugins.load`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Load {
    /// More plugins directories, looked through before the one in the home folder.
    pub paths: Vec<PathBuf>,
}

/// `plugins.entries.<id>`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginEntry {
    /// `false`: not used.
    pub enabled: Option<bool>,
    /// SHA-256 of the only library that is used for it.
    pub pin: Option<String>,
    /// What the engine is created with.
    pub config: Option<Value>,
    /// How long it may take, by member, in milliseconds.
    pub timeouts_ms: BTreeMap<String, u64>,
}

/// `agents`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Agents {
    /// For every agent.
    pub defaults: AgentDefaults,
}

/// `agents.defaults`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentDefaults {
    /// How history is compacted.
    pub compaction: Compaction,
    /// The model that answers.
    pub model: Option<ModelChoice>,
    /// At most so many tokens of a model's window are used.
    pub context_tokens: Option<u64>,
}

/// `agents.defaults.compaction`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Compaction {
    /// How many tokens of recent history a compaction keeps; 20,000 when absent, never more than half the budget.
    pub keep_recent_tokens: Option<u64>,
    /// How long an engine's `compact` may take.
    pub timeout_seconds: Option<u64>,
}

impl Config {
    /// Reads `path`; a file that does not exist is an empty configuration.
    ///
    /// # Errors
    /// [`RuntimeError::Config`] with the place of the mistake.
    pub fn read(path: &Path) -> Result<Config, RuntimeError> {
        Ok(Config::read_written(path)?.unwrap_or_default())
    }

    /// The same; `None` when there is no file, or nothing in it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_written(path: &Path) -> Result<Option<Config>, RuntimeError> {
        let refuse =
            |reason: String| RuntimeError::Config { path: path.to_owned(), doing: "reading the configuration", reason };
        let text = match reading::text(path) {
            Ok(text) if reading::is_empty(&text) => return Ok(None),
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(error.to_string())),
        };
        reading::parse(&text).map(Some).map_err(refuse)
    }

    /// Keys of `path` that look like one that is read and are none: a slip of the keyboard, which is otherwise left alone
    /// like every key of other tools. Each with its place and the key that was meant.
    pub fn misspelt(path: &Path) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        let text = read_text(path, MAX_CONFIG).ok().filter(|text| depth::check(text).is_ok());
        let value = text.and_then(|text| json5::from_str::<Value>(&text).ok());
        if let Some(value) = value {
            slips::look_for(&value, "", "", &mut found);
        }
        found
    }

    /// How long the engine `id` may take.
    ///
    /// # Errors
    /// The name under `timeoutsMs` that is no member.
    pub fn deadlines(&self, id: &str) -> Result<Deadlines, String> {
        let compact = self.agents.defaults.compaction.timeout_seconds.map(Duration::from_secs);
        let own = self.plugins.entries.get(id).map(|entry| &entry.timeouts_ms);
        let own = own.into_iter().flatten().map(|(member, ms)| (member.clone(), Duration::from_millis(*ms)));
        Deadlines::with(compact.map(|limit| ("compact".to_owned(), limit)).into_iter().chain(own))
    }

    /// What happens when the engine asked for does not answer.
    pub fn on_failure(&self) -> OnFailure {
        match self.plugins.context_engine_policy {
            Policy::Fallback => OnFailure::Legacy,
            Policy::Strict => OnFailure::Stop,
        }
    }

    /// Which plugins may be used.
    pub fn trust_policy(&self) -> TrustPolicy {
        let plugins = &self.plugins;
        let off = plugins.entries.iter().filter(|(_, entry)| entry.enabled == Some(false));
        let pinned = plugins.entries.iter().filter_map(|(id, entry)| Some((id.clone(), entry.pin.clone()?)));
        TrustPolicy {
            enabled: plugins.enabled != Some(false),
            allow: plugins.allow.clone(),
            deny: plugins.deny.clone(),
            disabled: off.map(|(id, _)| id.clone()).collect(),
            pins: pinned.collect(),
            trusted: plugins.trusted.iter().map(|it| (it.path.clone(), it.sha256.clone())).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
