//! Another instance takes the seat of a handle in use.
//!
//! Decision: what swaps knows instances only, not how they run. Everything that takes time (finding, probing, opening) is
//! done before, with the old instance in its seat; a call sees one exchange under the seat's lock. Who sits there already
//! is told by the instance, so a handle that was disposed of, or whose instance was, stays as it is.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::handle::{LastOpened, Refused, Seat, Shared};
use super::{EngineHandle, Supervised};

/// How a handle stands before a reload.
pub(crate) enum Standing {
    /// This instance answers.
    Served(Arc<Supervised>),
    /// `legacy` answers in the place of an engine.
    Vacant,
    /// It was disposed of, or its instance was: nobody waits for another one.
    Closed,
}

impl EngineHandle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    pub(crate) fn standing(&self) -> Standing {
        match self.seat() {
            Seat::Taken(engine) if engine.why_set_aside().is_none() => Standing::Served(engine),
            Seat::Taken(engine) if engine.is_disposed() => Standing::Closed,
            Seat::Taken(_) | Seat::Legacy { .. } | Seat::Opening { .. } => Standing::Vacant,
            Seat::Closed { .. } => Standing::Closed,
        }
    }

    /// Why `legacy` answers.
    pub(crate) fn why(&self) -> Option<String> {
        match self.seat() {
            Seat::Taken(engine) => engine.why_set_aside().map(str::to_owned),
            Seat::Legacy { why, .. } | Seat::Opening { why } | Seat::Closed { why } => why,
        }
    }

    /// The plugin that took the seat last.
    pub(crate) fn opened(&self) -> Option<LastOpened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers where the plugin lies: it may have been renamed.
    pub(crate) fn found_at(&self, path: &Path) {
        if let Some(opened) = &mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner) {
            path.clone_into(&mut opened.path);
        }
    }

    /// Puts `engine` into the seat, unless the handle or its instance was disposed of meanwhile.
    pub(crate) fn swap(&self, engine: &Arc<Supervised>) -> bool {
        let is_open = |seat: &Seat| match seat {
            Seat::Taken(seated) => !seated.is_disposed(),
            Seat::Legacy { .. } | Seat::Opening { .. } => true,
            Seat::Closed { .. } => false,
        };
        self.take_seat(is_open, Seat::Taken(Arc::clone(engine)))
    }

    /// Leaves the seat to `legacy`, because `engine` may not be used any more. A later reload may fill it.
    pub(crate) fn vacate(&self, engine: &Arc<Supervised>, why: String) -> bool {
        let sits = |seat: &Seat| matches!(seat, Seat::Taken(seated) if Arc::ptr_eq(seated, engine));
        self.take_seat(sits, Seat::Legacy { why: Some(why), held_by: None })
    }

    /// Why `legacy` still answers; and the quarantine that has to be lifted first, when that is another one now.
    pub(crate) fn still_vacant(&self, refused: &Refused) {
        let known = |seat: &Seat| match seat {
            Seat::Legacy { held_by, .. } => held_by.is_none() || *held_by != refused.held_by,
            _ => false,
        };
        let (why, held_by) = (Some(refused.error.to_string()), refused.held_by);
        self.take_seat(known, Seat::Legacy { why, held_by });
    }
}
