//! What the operator said about plugins, by id.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Problem;
use crate::stage::Digest;

/// Which plugins may be used. The default allows every one that is not of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    /// `false`: no plugin is used (`plugins.enabled`).
    pub enabled: bool,
    /// When given, only these ids are used (`plugins.allow`).
    pub allow: Option<Vec<String>>,
    /// Ids that are not used, whatever `allow` says (`plugins.deny`).
    pub deny: Vec<String>,
    /// Ids whose entry is switched off (`plugins.entries.<id>.enabled: false`).
    pub disabled: BTreeSet<String>,
    /// Id to SHA-256 of the only library that may be used for it, as 64 hex digits with or without `sha256:` before them
    /// (`plugins.entries.<id>.pin`).
    pub pins: BTreeMap<String, String>,
    /// Plugins of workspaces that may be used: path of the library or folder, links resolved, and SHA-256 of the library as
    /// in `pins` (`plugins.trusted`).
    pub trusted: Vec<(PathBuf, String)>,
}

impl Default for TrustPolicy {
    fn default() -> TrustPolicy {
        TrustPolicy {
            enabled: true,
            allow: None,
            deny: vec![],
            disabled: BTreeSet::new(),
            pins: BTreeMap::new(),
            trusted: vec![],
        }
    }
}

impl TrustPolicy {
    /// Why `id` may not be used, if the policy says so (contract §3.1).
    pub fn forbids(&self, id: &str) -> Option<String> {
        let listed = |list: &[String]| list.iter().any(|listed| listed == id);
        if !self.enabled {
            return Some("plugins.enabled is false".into());
        }
        if listed(&self.deny) {
            return Some(format!("plugins.deny names \"{id}\""));
        }
        if self.allow.is_some() && !self.names(id) {
            return Some(format!("plugins.allow does not name \"{id}\""));
        }
        if self.disabled.contains(id) {
            return Some(format!("plugins.entries.{id}.enabled is false"));
        }
        None
    }

    /// Whether `allow` names `id`: not being forbidden is not enough for a plugin of a workspace.
    pub(super) fn names(&self, id: &str) -> bool {
        self.allow.iter().flatten().any(|listed| listed == id)
    }

    /// Whether a pin for `id` excludes the build with this digest. A pin that is no digest matches nothing: whoever wrote it
    /// wanted to be safe.
    pub(crate) fn pins_out(&self, id: &str, digest: &str) -> Option<&String> {
        self.pins.get(id).filter(|pin| !names_digest(pin, digest))
    }

    pub(super) fn check_pin(&self, id: &str, digest: Digest) -> Result<(), Problem> {
        let found = digest.to_string();
        match self.pins_out(id, &found) {
            Some(pin) => Err(Problem::Pin { id: id.to_owned(), expected: pin.clone(), found }),
            None => Ok(()),
        }
    }

    /// Whether a workspace's plugin at `path` may be used, because `allow` names it or because it is the trusted file.
    pub(crate) fn check_workspace(&self, id: &str, path: &Path, digest: &str) -> Result<(), Problem> {
        if self.names(id) {
            return Ok(());
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut trusted = self.trusted.iter().filter(|(trusted, _)| *trusted == path).peekable();
        if trusted.peek().is_none() {
            return Err(Problem::Workspace { id: id.to_owned() });
        }
        if trusted.any(|(_, wanted)| names_digest(wanted, digest)) {
            return Ok(());
        }
        Err(Problem::Untrusted { path })
    }
}

/// Whether two texts, which people may have written, name one digest: blanks around it, `sha256:` before it and its case
/// do not count.
pub fn names_digest(text: &str, digest: &str) -> bool {
    hex(text).eq_ignore_ascii_case(hex(digest))
}

fn hex(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("sha256:").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_one_however_it_is_written() {
        let digest = "ab".repeat(32);
        for text in [digest.clone(), format!("sha256:{digest}"), format!(" sha256:{digest}\n"), digest.to_uppercase()] {
            assert!(names_digest(&text, &digest) && names_digest(&digest, &text), "{text}");
        }
        for text in ["", "sha256:", "latest", &format!("sha256:sha256:{digest}"), &digest[1..]] {
            assert!(!names_digest(text, &digest), "{text}");
        }
    }
}
