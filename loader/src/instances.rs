//! Which instances are alive: sessions that ask for the same engine in the same place share one.
//!
//! Rule (contract of [`ContextEngine`](context_engine_interface::ContextEngine)): one instance per engine, agent folder and
//! workspace serves many sessions. Two of them would write one store behind each other's back.
//!
//! Decision: held weakly. An instance lives as long as a session has a handle on it, and one that was set aside or disposed of
//! is not given to anybody new. Who asks while another session opens it waits for that, as it would wait to open it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use context_engine_transcript::TokenCounter;

use crate::quarantine::QuarantineKey;
use crate::supervise::Supervised;

/// What makes two sessions' instances one: the build with its configuration, the folders, and what tokens are counted with.
/// An engine that counted with another model's encoding would fill budgets wrongly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    pub(crate) build: QuarantineKey,
    pub(crate) agent_dir: Option<PathBuf>,
    pub(crate) workspace_dir: Option<PathBuf>,
    pub(crate) counter: TokenCounter,
}

/// The instances of one loader and its clones.
#[derive(Default)]
pub(crate) struct Instances {
    places: Mutex<HashMap<InstanceKey, Place>>,
}

/// Where an instance is, while it lives. Locked by whoever opens it.
type Place = Arc<Mutex<Weak<Supervised>>>;

/// The place of one instance, which nobody else looks at or fills meanwhile.
pub(crate) struct Taken<'a>(MutexGuard<'a, Weak<Supervised>>);

impl Instances {
    /// The place of the instance that is meant. Those of instances that are gone are forgotten.
    pub(crate) fn place(&self, key: InstanceKey) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, place| {
            let asked_for = Arc::strong_count(place) > 1;
            asked_for || place.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
        });
        Arc::clone(places.entry(key).or_default())
    }
}

impl Taken<'_> {
    /// Waits for whoever opens the instance.
    pub(crate) fn of(place: &Place) -> Taken<'_> {
        Taken(place.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The instance, if it lives and serves.
    pub(crate) fn alive(&self) -> Option<Arc<Supervised>> {
        self.0.upgrade().filter(|engine| engine.why_set_aside().is_none())
    }

    /// Puts the instance there.
    pub(crate) fn fill(&mut self, engine: Supervised) -> Arc<Supervised> {
        let engine = Arc::new(engine);
        *self.0 = Arc::downgrade(&engine);
        engine
    }
}
