//! One engine and what the host has learned of it: every call of a member goes through here.
//!
//! Decision: what comes back is an answer, or a [`Failure`] that says whose fault it is. Only the engine's own faults set
//! it aside; what its caller or this host did not let it do does not.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{CallContext, ContextEngine, DisposeParamsFields, EngineError, ErrorCode, HostParams};

use super::Call;
use super::cancel::CancelToken;
use super::deadlines::Deadlines;
use super::host_params::HostParamPolicy;
use super::lease::{Lease, NoServices};
use super::threads::{EngineThreads, Fate};
use crate::quarantine::{Fault, Subject};

/// How often in a row a prompt may be over budget, though the engine could have made one that is not.
const OVER_BUDGET_LIMIT: u32 = 3;

/// Why a member gave no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The engine has no such member.
    Unsupported(EngineError),
    /// The caller took the call back.
    Cancelled,
    /// The engine could not be asked, or lacked something of this host's: it stays.
    NotItsFault(EngineError),
    /// The engine's own fault: it is set aside.
    Its(Fault, EngineError),
}

impl Failure {
    pub(super) fn describe(&self) -> String {
        match self {
            Failure::Cancelled => "the call was cancelled".to_owned(),
            Failure::Unsupported(error) | Failure::NotItsFault(error) | Failure::Its(_, error) => error.to_string(),
        }
    }

    pub(super) fn into_error(self) -> EngineError {
        match self {
            Failure::Cancelled => EngineError::new(ErrorCode::CANCELLED, "the call was cancelled"),
            Failure::Unsupported(error) | Failure::NotItsFault(error) | Failure::Its(_, error) => error,
        }
    }
}

/// What the host has for an engine of a plugin's, and a linked one does without.
pub(crate) struct Plugged {
    /// The build.
    pub(crate) subject: Subject,
    /// The threads its code runs on.
    pub(crate) threads: EngineThreads,
    /// How long it may take.
    pub(crate) deadlines: Deadlines,
}

/// An engine of a plugin's, with threads of its own; or a linked one, which runs on the caller's.
pub(crate) struct Supervised {
    /// Gone once it is set aside: its last owner is one of its own threads, because its destructor is its code.
    engine: RwLock<Option<Arc<dyn ContextEngine>>>,
    pub(crate) info: Arc<EngineInfo>,
    plugged: Option<Plugged>,
    host_params: HostParamPolicy,
    /// Members that answered `Unsupported`: not asked again.
    unsupported: Mutex<BTreeSet<&'static str>>,
    over_budget: AtomicU32,
    answered: AtomicBool,
    /// Why it is not called any more.
    set_aside: OnceLock<String>,
}

impl Supervised {
    /// A linked engine. It is trusted: its calls have no deadline.
    pub(crate) fn linked(engine: Arc<dyn ContextEngine>, info: EngineInfo) -> Supervised {
        let host_params = HostParamPolicy::new(info.accepted_host_params.clone());
        Supervised::new(engine, info, host_params, None)
    }

    /// An engine of a plugin's.
    pub(crate) fn loaded(
        engine: Arc<dyn ContextEngine>,
        info: EngineInfo,
        host_params: HostParamPolicy,
        plugged: Plugged,
    ) -> Supervised {
        Supervised::new(engine, info, host_params, Some(plugged))
    }

    fn new(
        engine: Arc<dyn ContextEngine>,
        info: EngineInfo,
        host_params: HostParamPolicy,
        plugged: Option<Plugged>,
    ) -> Supervised {
        Supervised {
            engine: RwLock::new(Some(engine)),
            info: Arc::new(info),
            plugged,
            host_params,
            unsupported: Mutex::default(),
            over_budget: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            set_aside: OnceLock::new(),
        }
    }

    /// The build, of a plugin's engine.
    pub(super) fn subject(&self) -> Option<&Subject> {
        self.plugged.as_ref().map(|plugged| &plugged.subject)
    }

    /// Why the engine is not called any more.
    pub(super) fn set_aside(&self) -> Option<&str> {
        self.set_aside.get().map(String::as_str)
    }

    /// Calls `member` with the host params the engine takes; once more for each one an older engine refuses.
    ///
    /// `ask` owns all it works on: it may outlive this call.
    pub(super) fn call<R: Send + 'static>(
        &self,
        member: &'static str,
        call: &Call,
        ask: impl Fn(&dyn ContextEngine, &CallContext<'_>, HostParams<'_>) -> Result<R, EngineError> + Send + Sync + 'static,
    ) -> Result<R, Failure> {
        if call.cancel.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let known = || self.unsupported.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(member) {
            return Err(Failure::Unsupported(EngineError::unsupported(member)));
        }
        if let Some(hangs_in) = self.plugged.as_ref().and_then(|plugged| plugged.threads.hangs_in()) {
            let text = format!("`{hangs_in}` was cancelled and has not returned");
            return Err(Failure::Its(Fault::Timeout, EngineError::failed(text)));
        }
        let ask = Arc::new(ask);
        loop {
            let sent = self.host_params.project(&call.host_params);
            let error = match self.once(member, call, Arc::clone(&sent.json), Arc::clone(&ask)) {
                Ok(answer) => {
                    self.answered.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failure::Its(_, error)) if error.code == ErrorCode::UNKNOWN_HOST_PARAM => error,
                Err(failure) => {
                    if matches!(failure, Failure::Unsupported(_)) {
                        known().insert(member);
                    }
                    return Err(failure);
                }
            };
            if !self.host_params.learn(member, &sent, &error) {
                return Err(Failure::Its(Fault::Error, error));
            }
        }
    }

    fn once<R: Send + 'static>(
        &self,
        member: &'static str,
        call: &Call,
        host_params: Arc<str>,
        ask: Arc<
            impl Fn(&dyn ContextEngine, &CallContext<'_>, HostParams<'_>) -> Result<R, EngineError> + Send + Sync + 'static,
        >,
    ) -> Result<R, Failure> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(engine) = engine else {
            let why = self.set_aside().unwrap_or_default();
            return Err(Failure::NotItsFault(EngineError::failed(format!("the engine was set aside: {why}"))));
        };
        let limit = self.plugged.as_ref().map(|plugged| plugged.deadlines.of(member));
        let lease = Arc::new(Lease::new(Arc::clone(&call.services), call.cancel.clone(), limit));
        let work = {
            let lease = Arc::clone(&lease);
            move || {
                guarded(|| CallContext::lend(&*lease, |ctx| ask(&*engine, ctx, HostParams::from_json(&host_params))))
            }
        };
        let answer = match (&self.plugged, limit) {
            (Some(plugged), Some(limit)) => {
                match plugged.threads.run(member, limit, (&lease, &call.cancel), work) {
                    Fate::Answered(answer) => answer,
                    Fate::Cancelled => return Err(Failure::Cancelled),
                    Fate::NotBegun(reason) => return Err(Failure::NotItsFault(EngineError::failed(reason))),
                    Fate::TimedOut if member == "compact" => {
                        // Contract §7.9 has the words.
                        return Err(Failure::Its(Fault::Timeout, EngineError::failed("Compaction timed out")));
                    }
                    Fate::TimedOut => {
                        let text = format!("`{member}` did not return within {} ms", limit.as_millis());
                        return Err(Failure::Its(Fault::Timeout, EngineError::failed(text)));
                    }
                }
            }
            _ => {
                let answer = work();
                lease.revoke();
                answer
            }
        };
        answer.map_err(|error| match error.code {
            ErrorCode::UNSUPPORTED => Failure::Unsupported(error),
            ErrorCode::CANCELLED if call.cancel.is_cancelled() => Failure::Cancelled,
            // Handed on from a service that this host does not have, or that failed. One that makes it up is not believed.
            ErrorCode::UNAVAILABLE | ErrorCode::FAILED if lease.host_failed() => Failure::NotItsFault(error),
            ErrorCode::PANICKED => Failure::Its(Fault::Panic, error),
            _ => Failure::Its(Fault::Error, error),
        })
    }

    /// Whether `member` answered `Unsupported` before.
    pub(super) fn is_known_to_lack(&self, member: &str) -> bool {
        self.unsupported.lock().unwrap_or_else(PoisonError::into_inner).contains(member)
    }

    /// Whether it answered at all.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// A prompt was over budget although the engine could have made one that is not. Whether that was once too often.
    pub(super) fn was_over_budget(&self) -> bool {
        self.over_budget.fetch_add(1, Ordering::Relaxed) + 1 >= OVER_BUDGET_LIMIT
    }

    /// A prompt was within the budget.
    pub(super) fn was_within_budget(&self) {
        self.over_budget.store(0, Ordering::Relaxed);
    }

    /// Sets the engine aside: it takes no more calls, and is released when those that run have returned. Only the first
    /// reason counts; `false` for the others.
    pub(super) fn retire(&self, why: String) -> bool {
        let first = self.set_aside.set(why).is_ok();
        if first {
            self.release("dispose", |engine| drop(dispose(&*engine, "released")));
        }
        first
    }

    /// Has the engine release what it holds, and waits for it. It takes no more calls.
    pub(super) fn dispose(&self, reason: &str) -> Result<(), Failure> {
        if self.set_aside().is_some() {
            return Ok(());
        }
        let why: Arc<str> = reason.into();
        let answer = self.call("dispose", &Call::outside_sessions(), move |engine, _, _| dispose(engine, &why));
        if let Err(failure @ (Failure::Its(Fault::Timeout, _) | Failure::NotItsFault(_))) = answer {
            self.retire(format!("it was disposed ({reason})"));
            return Err(failure);
        }
        let answer = match answer {
            Err(Failure::Unsupported(_)) => Ok(()),
            answer => answer,
        };
        if self.set_aside.set(format!("it was disposed ({reason})")).is_err() {
            return answer;
        }
        let (dropped, wait) = mpsc::sync_channel(1);
        let will_drop = self.release("drop", move |engine| {
            drop(engine);
            // Who waited may have left.
            let _ = dropped.send(());
        });
        let limit = self.plugged.as_ref().map(|plugged| plugged.deadlines.of("dispose")).unwrap_or_default();
        // Its destructor may be what writes its store: a host that ends the process now must know that it is done.
        if will_drop && wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            let text = format!("its destructor did not return within {} ms", limit.as_millis());
            return answer.and(Err(Failure::Its(Fault::Timeout, EngineError::failed(text))));
        }
        answer
    }

    /// Gives the engine to its own threads, to end with `last`. Whether it will run.
    fn release(&self, member: &'static str, last: impl FnOnce(Arc<dyn ContextEngine>) + Send + 'static) -> bool {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(plugged), Some(engine)) = (&self.plugged, engine) else { return false };
        let threads = &plugged.threads;
        if threads.has_lost() {
            // Its code is not run again, not even its destructor.
            std::mem::forget(engine);
            threads.close(member, || {});
            return false;
        }
        threads.close(member, move || last(engine));
        true
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // The last clone must not go on whatever thread this is: its destructor is the engine's code.
        self.retire("its last handle was dropped".to_owned());
    }
}

fn dispose(engine: &dyn ContextEngine, reason: &str) -> Result<(), EngineError> {
    let fields = DisposeParamsFields { reason: reason.into(), ..DisposeParamsFields::default() };
    let lease = Lease::new(Arc::new(NoServices), CancelToken::new(), None);
    CallContext::lend(&lease, |ctx| fields.lend(|params| engine.dispose(ctx, params))).map(|_| ())
}

/// A panic in here is the host's, or that of a linked engine: a plugin's own stop at its edge.
fn guarded<R>(run: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(EngineError::failed(format!("the host panicked: {text}")))
    })
}
