//! Who answers, and what becomes of an engine that failed.
//!
//! Decision: the handle has one seat. The engine asked for sits in it until it fails; from then on the handle is `legacy`
//! in everything it reports, until the quarantine is lifted: then the engine is opened anew, as a fresh instance, and the
//! failed one is never called again. Handles may share an instance; each learns from the instance that it was set aside.
//! A reload puts another build into the seat (`swap`); a turn stays with the one that was in it (`pin`).
//!
//! | seat | its instance | who answers | what a reload may do |
//! |---|---|---|---|
//! | `Taken` | serves | it | replace it, or leave the seat to `legacy` |
//! | `Taken` | failed a moment ago | `legacy` | put another in its place |
//! | `Taken` | was disposed of by the host, through another handle | `legacy` | nothing |
//! | `Legacy` | | `legacy`, until the quarantine is lifted or a reload fills it | fill it |
//! | `Opening` | being opened by one session, its quarantine lifted | `legacy` | fill it |
//! | `Closed` | | `legacy` for good: the handle was disposed of | nothing |
//!
//! An instance that left every seat is released when the last turn that holds it has ended (`departure`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use context_engine_interface::EngineError;
use context_engine_interface::record::EngineInfo;

use super::failure::Failure;
use super::pin::Pin;
use super::{HostProfile, Supervised};
use crate::creation::Creation;
use crate::error::{LoaderError, Problem};
use crate::loader::OnFailure;
use crate::quarantine::{Fault, Quarantine, QuarantineKey};

/// The engine a session uses. Answers every call; cheap to clone. Other sessions' handles may share its instance.
#[derive(Clone)]
pub struct EngineHandle {
    pub(super) shared: Arc<Shared>,
    /// Of a turn's handle: who answers it.
    pub(super) pin: Option<Arc<Pin>>,
}

pub(crate) struct Shared {
    pub(super) legacy: Arc<Supervised>,
    pub(super) seat: RwLock<Seat>,
    quarantine: Quarantine,
    pub(super) on_failure: OnFailure,
    pub(super) host: HostProfile,
    /// Where the engine asked for comes from; `None` when that is `legacy` or linked.
    pub(crate) source: Option<Source>,
    /// The plugin that was opened last.
    pub(super) opened: Mutex<Option<LastOpened>>,
}

/// The plugin that took the seat last.
#[derive(Debug, Clone)]
pub(crate) struct LastOpened {
    /// Where it lies.
    pub(crate) path: PathBuf,
    pub(crate) digest: String,
    /// When it took the seat, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

/// Says what an engine is created with, each time it is opened.
pub type Creations = Arc<dyn Fn() -> Creation + Send + Sync>;

/// Where the engine a handle was asked for comes from.
pub(crate) struct Source {
    pub(crate) id: String,
    pub(crate) creation: Creations,
    pub(crate) opener: Opener,
}

/// Opens the engine a handle was asked for.
pub(crate) type Opener = Box<dyn Fn() -> Result<Arc<Supervised>, Refused> + Send + Sync>;

/// Why an engine could not be opened.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: LoaderError,
    /// The quarantine that has to be lifted first.
    pub(crate) held_by: Option<QuarantineKey>,
}

impl From<LoaderError> for Refused {
    fn from(error: LoaderError) -> Refused {
        Refused { error, held_by: None }
    }
}

#[derive(Clone)]
pub(super) enum Seat {
    Taken(Arc<Supervised>),
    /// `legacy`, because it was asked for or for this reason.
    Legacy {
        why: Option<String>,
        held_by: Option<QuarantineKey>,
    },
    /// `legacy`, while one session opens the engine anew.
    Opening {
        why: Option<String>,
    },
    /// `legacy` for good: the handle was disposed of, and nothing is opened for it any more.
    Closed {
        why: Option<String>,
    },
}

impl EngineHandle {
    /// A handle on what `source` opens, if it does.
    ///
    /// # Errors
    /// When it does not, and the host stops then.
    pub(crate) fn open(
        source: Source,
        legacy: Supervised,
        (quarantine, host, on_failure): (Quarantine, HostProfile, OnFailure),
    ) -> Result<EngineHandle, LoaderError> {
        let seat = match (source.opener)() {
            Ok(engine) => Seat::Taken(engine),
            // No fallback either: what the engine requires of its host, the person relies on (contract §1.7).
            Err(Refused { error, .. }) if matches!(error.problem, Problem::HostCapability { .. }) => return Err(error),
            Err(Refused { error, .. }) if on_failure == OnFailure::Stop => return Err(error),
            Err(refused) => refused.seat(),
        };
        Ok(EngineHandle::seated(seat, legacy, (quarantine, host, on_failure), Some(source)))
    }

    fn seated(
        seat: Seat,
        legacy: Supervised,
        (quarantine, host, on_failure): (Quarantine, HostProfile, OnFailure),
        source: Option<Source>,
    ) -> EngineHandle {
        let opened = Mutex::new(seat.opened());
        let (legacy, seat) = (Arc::new(legacy), RwLock::new(seat));
        let shared = Shared { legacy, seat, quarantine, on_failure, host, source, opened };
        EngineHandle { shared: Arc::new(shared), pin: None }
    }

    /// A handle on the built-in engine.
    pub(crate) fn legacy(legacy: Supervised, quarantine: Quarantine, host: HostProfile) -> EngineHandle {
        let seat = Seat::Legacy { why: None, held_by: None };
        EngineHandle::seated(seat, legacy, (quarantine, host, OnFailure::Legacy), None)
    }

    /// A handle on a linked engine.
    pub(crate) fn linked(
        engine: Supervised,
        legacy: Supervised,
        (quarantine, host): (Quarantine, HostProfile),
    ) -> EngineHandle {
        let seat = Seat::Taken(Arc::new(engine));
        EngineHandle::seated(seat, legacy, (quarantine, host, OnFailure::Legacy), None)
    }

    /// What answers calls now.
    pub fn info(&self) -> Arc<EngineInfo> {
        Arc::clone(&self.current().0.info)
    }

    /// Which instance answers calls now. Another number after a failure, and when the engine is opened anew: an instance
    /// knows of a session what it was told itself.
    pub fn instance(&self) -> u64 {
        self.current().0.instance
    }

    /// Why `legacy` answers although another engine was asked for; `None` when the one asked for answers.
    pub fn why(&self) -> Option<String> {
        self.current().1
    }

    /// Who answers now, and why it is not the one asked for.
    pub(super) fn current(&self) -> (Arc<Supervised>, Option<String>) {
        if let Some(pin) = &self.pin {
            return pin.current(&self.shared.legacy);
        }
        let mut seat = self.seat();
        // Set aside through another handle on the same instance.
        if let Seat::Taken(engine) = &seat
            && let Some(why) = engine.why_quarantined()
        {
            self.give_seat_up(engine, why);
            seat = self.seat();
        }
        if let Seat::Legacy { held_by: Some(key), .. } = &seat
            && self.shared.quarantine.holds(key).is_none()
        {
            self.open_again(key);
            seat = self.seat();
        }
        let legacy = |why| (Arc::clone(&self.shared.legacy), why);
        match seat {
            // Set aside a moment ago, by a session that is about to say so; or disposed of through another handle.
            Seat::Taken(engine) => match engine.why_set_aside() {
                Some(why) => legacy(Some(why.to_owned())),
                None => (engine, None),
            },
            Seat::Legacy { why, .. } | Seat::Opening { why } | Seat::Closed { why } => legacy(why),
        }
    }

    fn seat(&self) -> Seat {
        self.shared.seat()
    }

    fn take_seat(&self, expected: impl FnOnce(&Seat) -> bool, next: Seat) -> bool {
        self.shared.take_seat(expected, next)
    }

    /// Opens the engine anew, now that nothing holds it back. `legacy` answers other sessions meanwhile.
    fn open_again(&self, lifted: &QuarantineKey) {
        let Some(source) = &self.shared.source else { return };
        let held = |seat: &Seat| matches!(seat, Seat::Legacy { held_by: Some(key), .. } if key == lifted);
        let Seat::Legacy { why, .. } = self.seat() else { return };
        // Another session may have been faster.
        if !self.take_seat(held, Seat::Opening { why }) {
            return;
        }
        let next = match (source.opener)() {
            Ok(engine) => Seat::Taken(engine),
            Err(refused) => refused.seat(),
        };
        // Unless the handle was disposed of meanwhile; then what was opened goes the way it came.
        self.take_seat(|seat| matches!(seat, Seat::Opening { .. }), next);
    }

    /// Sets a failed engine aside. Returns why `legacy` answers this call.
    pub(super) fn set_aside(
        &self,
        engine: &Arc<Supervised>,
        member: &'static str,
        fault: Fault,
        error: &dyn std::fmt::Display,
    ) -> String {
        let id = &engine.info.id;
        let why = format!("{id}: {member}: {error}");
        let Some(subject) = engine.subject() else { return why };
        if !engine.retire(why.clone()) {
            return why;
        }
        // Before the seat: a seat that names a quarantine which is not there is opened anew.
        self.shared.quarantine.add(subject, member, fault, &error.to_string());
        engine.is_on_record_now();
        self.give_seat_up(engine, &why);
        tracing::error!(
            engine = id,
            "Context engine \"{id}\" failed during {member}: {}; quarantining it for this process and falling back to \
             default engine \"legacy\".",
            crate::text::on_one_line(&error.to_string()),
        );
        why
    }

    /// Gives the seat to `legacy` when another session, or another process, had the build set aside meanwhile. Asked
    /// between turns: a turn never changes its engine for that.
    pub(super) fn leave_if_held(&self, engine: &Arc<Supervised>) {
        let Some(subject) = engine.subject() else { return };
        let Some(record) = self.shared.quarantine.holds(&subject.key) else { return };
        let why = format!("{} was set aside: {}: {}", subject.engine, record.operation, record.reason);
        if engine.retire(why.clone()) {
            engine.is_on_record_now();
            self.give_seat_up(engine, &why);
        }
    }

    /// Gives the seat of `engine` to `legacy`, until its quarantine is lifted.
    fn give_seat_up(&self, engine: &Arc<Supervised>, why: &str) {
        let its_own = |seat: &Seat| matches!(seat, Seat::Taken(seated) if Arc::ptr_eq(seated, engine));
        let held_by = engine.subject().map(|subject| subject.key);
        self.take_seat(its_own, Seat::Legacy { why: Some(why.to_owned()), held_by });
    }

    /// Lets the engine release what it holds: `shutdown`, `reload` or `released`. Later calls are answered by `legacy`;
    /// once is enough. It is the instance that is disposed of, for every handle that shares it; a session that is done
    /// drops its handle, and the instance goes with the last one.
    ///
    /// # Errors
    /// Why it could not. The engine is gone all the same.
    pub fn dispose(&self, reason: &str) -> Result<(), EngineError> {
        let seat = {
            let mut seat = self.shared.seat.write().unwrap_or_else(PoisonError::into_inner);
            let (why, engine) = match &*seat {
                Seat::Taken(engine) => (Some(format!("{} was disposed", engine.info.id)), Some(Arc::clone(engine))),
                Seat::Legacy { why, .. } | Seat::Opening { why } | Seat::Closed { why } => (why.clone(), None),
            };
            *seat = Seat::Closed { why };
            engine
        };
        let Some(seat) = seat else { return Ok(()) };
        let served = seat.has_answered();
        let Err(failure) = seat.dispose(reason) else {
            if let Some(subject) = seat.subject().filter(|_| served) {
                self.shared.quarantine.served(&subject.key);
            }
            return Ok(());
        };
        let engine = &seat.info.id;
        if let (Failure::Its(fault, error), Some(subject)) = (&failure, seat.subject()) {
            self.shared.quarantine.add(subject, "dispose", *fault, &error.to_string());
        }
        tracing::warn!(engine, reason = failure.describe(), "the engine could not be disposed of");
        Err(failure.into_error())
    }
}

impl Shared {
    pub(super) fn seat(&self) -> Seat {
        self.seat.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the seat, if it is as `expected`. Nothing else is done under its lock: sessions read it at each call.
    pub(super) fn take_seat(&self, expected: impl FnOnce(&Seat) -> bool, next: Seat) -> bool {
        let mut seat = self.seat.write().unwrap_or_else(PoisonError::into_inner);
        if !expected(&seat) {
            return false;
        }
        let opened = next.opened();
        let before = std::mem::replace(&mut *seat, next);
        drop(seat);
        if opened.is_some() {
            *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        }
        // Behind the lock: its last holder has an instance released, which may start a thread.
        drop(before);
        true
    }
}

impl Seat {
    /// The plugin of the engine that sits in it.
    fn opened(&self) -> Option<LastOpened> {
        let Seat::Taken(engine) = self else { return None };
        let subject = engine.subject()?;
        let (path, digest) = (subject.path.clone(), subject.digest.clone());
        Some(LastOpened { path, digest, at_ms: crate::hosts::now_ms() })
    }
}

impl Refused {
    fn seat(self) -> Seat {
        let Refused { error, held_by } = self;
        tracing::warn!(%error, "the engine cannot be used; legacy answers");
        Seat::Legacy { why: Some(error.to_string()), held_by }
    }
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineHandle").field("info", &self.info()).field("why", &self.why()).finish_non_exhaustive()
    }
}
