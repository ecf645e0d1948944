//! Where a host keeps its things.

use std::path::{Path, PathBuf};

use context_engine_loader::PluginDirectory;

use crate::{Config, RuntimeError};

/// `$CONTEXT_ENGINE_HOME`, or `.context-engine` in the person's home directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The home the environment names.
    ///
    /// # Errors
    /// [`RuntimeError::NoHome`] when neither `CONTEXT_ENGINE_HOME` nor a home directory is set.
    pub fn from_env() -> Result<Home, RuntimeError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = || set(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(|home| home.join(".context-engine"));
        set("CONTEXT_ENGINE_HOME").or_else(user).map(Home::at).ok_or(RuntimeError::NoHome)
    }

    /// A home at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Home {
        Home { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.json5")
    }

    /// The plugins directory.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// The plugins directories that are configured, in order of precedence: `plugins.load.paths`, then the home's own.
    pub fn plugin_directories(&self, config: &Config) -> Vec<PluginDirectory> {
        let configured = config.plugins.load.paths.iter().map(|path| expand(path));
        configured.chain([self.plugins()]).map(PluginDirectory::from).collect()
    }

    /// The session files.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// What the loader keeps: staged copies, a folder per engine.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }
}

/// `~/…` in a configured path is the person's home directory, as a shell would have it.
pub fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) if !home.is_empty() => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}
