//! A turn's handle: it stays with the instance that was in the seat when the turn began.
//!
//! Decision: a turn never changes its engine (contract Part 9), whatever is dropped into the plugins directory meanwhile.
//! Not every call of a handle is one of a turn, so the turn asks for it. A pin is a reference to the instance: while one
//! is alive, what was replaced is not released.

use std::sync::Arc;

use super::{EngineHandle, Supervised};

/// Who answers a turn.
pub(super) struct Pin {
    engine: Arc<Supervised>,
    why: Option<String>,
}

impl Pin {
    /// Who answers now: the engine of the turn, or `legacy` when it failed. Never anybody else.
    pub(super) fn current(&self, legacy: &Arc<Supervised>) -> (Arc<Supervised>, Option<String>) {
        match self.engine.why_set_aside() {
            Some(why) => (Arc::clone(legacy), Some(why.to_owned())),
            None => (Arc::clone(&self.engine), self.why.clone()),
        }
    }
}

impl EngineHandle {
    /// A handle for one turn. All its calls are answered by the instance that answers now; when that fails, by `legacy`,
    /// and never by a build that was put in its place meanwhile, or by the same one when a quarantine is lifted. The
    /// handle it is taken from learns of a failure.
    ///
    /// Drop it when the turn has ended: an instance that was replaced is released with its last holder.
    #[must_use]
    pub fn for_turn(&self) -> EngineHandle {
        let pin = self.pin.clone().unwrap_or_else(|| {
            let (engine, why) = self.current();
            Arc::new(Pin { engine, why })
        });
        EngineHandle { shared: Arc::clone(&self.shared), pin: Some(pin) }
    }
}
