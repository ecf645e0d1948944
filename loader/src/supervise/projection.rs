//! What an engine says of hosts with threads of their own on the backend: when its prompt has to be sent whole.
//!
//! Decision: believed only where it is about the prompt that goes out, and bounded. Without it a host projects at every
//! turn, which costs tokens and is never wrong.

use context_engine_interface::Assembly;
use context_engine_interface::std_types::{ROption, RString};

/// The longest epoch or fingerprint of a projection that is believed, in bytes: it stands in records and is compared.
const MAX_PROJECTION_KEY: usize = 1_024;

/// How a host with threads of its own on the backend projects a prompt (contract §1.2, `contextProjection`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// When the host projects.
    pub mode: ProjectionMode,
    /// The epoch; a new one makes the host project again. At most 1,024 bytes, like the fingerprint.
    pub epoch: Option<String>,
    /// What the projection was made of.
    pub fingerprint: Option<String>,
}

/// When a host projects a prompt into a thread on its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionMode {
    /// At every turn.
    PerTurn,
    /// When the thread begins, once per epoch.
    ThreadBootstrap,
}

impl ProjectionMode {
    /// The contract's word for it.
    pub fn name(self) -> &'static str {
        match self {
            ProjectionMode::PerTurn => "per_turn",
            ProjectionMode::ThreadBootstrap => "thread_bootstrap",
        }
    }
}

impl Projection {
    /// What `plan` says, where it can be believed. Not cut where a key is too long: two epochs with one beginning would
    /// be one, and projecting at every turn is never wrong.
    pub(super) fn of(plan: &Assembly, engine: &str) -> Option<Projection> {
        let said = plan.context_projection.as_ref().into_option()?;
        let key = |key: &ROption<RString>| key.as_deref().into_option().map(str::to_owned);
        let (epoch, fingerprint) = (key(&said.epoch), key(&said.fingerprint));
        let longest = [&epoch, &fingerprint].into_iter().flatten().map(String::len).max().unwrap_or(0);
        if longest > MAX_PROJECTION_KEY {
            tracing::debug!(engine, bytes = longest, limit = MAX_PROJECTION_KEY, "its projection's key is too long");
            return None;
        }
        let mode = if said.thread_bootstrap { ProjectionMode::ThreadBootstrap } else { ProjectionMode::PerTurn };
        Some(Projection { mode, epoch, fingerprint })
    }
}

#[cfg(test)]
mod tests {
    use context_engine_interface::ContextProjection;

    use super::*;

    fn said(thread_bootstrap: bool, epoch: Option<&str>, fingerprint: Option<&str>) -> Option<Projection> {
        let key = |key: Option<&str>| key.map(RString::from).into();
        let projection = ContextProjection { thread_bootstrap, epoch: key(epoch), fingerprint: key(fingerprint) };
        Projection::of(&Assembly { context_projection: Some(projection).into(), ..Assembly::new() }, "e")
    }

    #[test]
    fn what_an_engine_says_is_passed_on_and_a_key_without_end_is_not() {
        assert_eq!(Projection::of(&Assembly::new(), "e"), None);
        let per_turn = Projection { mode: ProjectionMode::PerTurn, epoch: None, fingerprint: None };
        assert_eq!(said(false, None, None), Some(per_turn));
        let once = said(true, Some("e1"), Some("f1")).expect("a projection");
        assert_eq!((once.mode.name(), once.epoch.as_deref()), ("thread_bootstrap", Some("e1")));
        assert_eq!(once.fingerprint.as_deref(), Some("f1"));
        let (longest, longer) = ("x".repeat(MAX_PROJECTION_KEY), "x".repeat(MAX_PROJECTION_KEY + 1));
        assert!(said(true, Some(&longest), None).is_some());
        assert_eq!((said(true, Some(&longer), None), said(true, None, Some(&longer))), (None, None));
    }
}
