//! What is looked through, and what of it may be used: the part of a loader's options that may change while it is in use.

use std::sync::{Arc, PoisonError};

use crate::find::PluginDirectory;
use crate::loader::Loader;
use crate::trust::TrustPolicy;

/// Read as one at the beginning of a scan.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) directories: Arc<[PluginDirectory]>,
    pub(crate) policy: Arc<TrustPolicy>,
}

impl Loader {
    /// Which plugins may be used.
    pub fn policy(&self) -> Arc<TrustPolicy> {
        self.rules().policy
    }

    /// The plugins directories, in order of precedence.
    pub fn directories(&self) -> Arc<[PluginDirectory]> {
        self.rules().directories
    }

    /// Has other plugins be used from the next session or [`reload`](Self::reload) on, in all clones.
    pub fn set_policy(&self, policy: TrustPolicy) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).policy = Arc::new(policy);
    }

    /// Has other directories be looked through from the next session or [`reload`](Self::reload) on, in all clones.
    pub fn set_directories(&self, directories: Vec<PluginDirectory>) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).directories = directories.into();
    }

    /// Both at once: no scan sees one without the other.
    pub fn set_rules(&self, directories: Vec<PluginDirectory>, policy: TrustPolicy) {
        let rules = Rules { directories: directories.into(), policy: Arc::new(policy) };
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
