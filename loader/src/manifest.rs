//! `plugin.json` of a plugin folder: which library of the folder is for which platform, and what the engine's configuration
//! may be.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::error::{LoaderError, Problem, Step};
use crate::find::read_text;
use crate::inspect::check_id;
use crate::platform::TARGET;
use crate::schema;

/// The longest manifest that is read, in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// File name of the manifest.
pub(crate) const MANIFEST: &str = "plugin.json";

/// What a plugin folder says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Id of the engine; the same as in the library's record.
    pub id: String,
    /// Version of the plugin.
    pub version: semver::Version,
    /// Target triple to path of the library, relative to the folder.
    pub libraries: BTreeMap<String, String>,
    /// JSON Schema (draft 7 or 2020-12) of `plugins.entries.<id>.config`. It refers to its own parts only, never in a
    /// circle; its defaults are not filled in.
    #[serde(default)]
    pub config_schema: Option<serde_json::Value>,
}

impl Manifest {
    /// Reads the manifest of `folder`.
    ///
    /// # Errors
    /// [`Problem::Io`], [`Problem::Manifest`] with the line or the part of the schema that is wrong, or [`Problem::Id`].
    pub fn read(folder: &Path) -> Result<Manifest, LoaderError> {
        let path = folder.join(MANIFEST);
        let text = read_text(&path, MAX_MANIFEST).map_err(|error| {
            let problem = Problem::Io { doing: "reading plugin.json", reason: error.to_string() };
            LoaderError::new(&path, Step::Find, problem)
        })?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| refuse(&path, error.to_string()))?;
        let allowed = check_id(&manifest.id, "plugin.json");
        allowed.map_err(|problem| LoaderError::new(&path, Step::Find, problem).about(&manifest.id))?;
        if let Some(schema) = &manifest.config_schema {
            schema::check(schema).map_err(|reason| refuse(&path, reason).about(&manifest.id))?;
        }
        Ok(manifest)
    }

    /// The library for this host.
    ///
    /// # Errors
    /// [`Problem::Manifest`] when there is none, or its path leaves the folder. Where links lead is not asked here.
    pub fn library(&self, folder: &Path) -> Result<PathBuf, LoaderError> {
        let manifest = folder.join(MANIFEST);
        let Some(relative) = self.libraries.get(TARGET) else {
            let known: Vec<&str> = self.libraries.keys().map(String::as_str).collect();
            let reason = format!("`libraries` has none for {TARGET}; it has {}", known.join(", "));
            return Err(refuse(&manifest, reason));
        };
        let stays =
            Path::new(relative).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !stays {
            let reason = format!("the library path {relative:?} leaves the folder; use a path inside it");
            return Err(refuse(&manifest, reason));
        }
        Ok(folder.join(relative))
    }
}

fn refuse(path: &Path, reason: String) -> LoaderError {
    LoaderError::new(path, Step::Find, Problem::Manifest { reason })
}
