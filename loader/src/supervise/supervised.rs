//! One engine and what the host has learned of it: every call of a member goes through here.
//!
//! Decision: what comes back is an answer, or a [`Failure`] that says whose fault it is. Only the engine's own faults set
//! it aside; what its caller or this host did not let it do does not.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Instant;

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{CallContext, ContextEngine, DisposeParamsFields, EngineError, ErrorCode, HostParams};

use super::Call;
use super::cancel::CancelToken;
use super::deadlines::Deadlines;
use super::departure::Departure;
use super::failure::{Failure, bounded};
use super::host_params::HostParamPolicy;
use super::instance::{Engine, Instance};
use super::lease::{Lease, NoServices};
use super::threads::{EngineThreads, Fate};
use crate::quarantine::{Fault, Subject};

/// How often in a row a prompt may be over budget, though the engine could have made one that is not.
const OVER_BUDGET_LIMIT: u32 = 3;

/// What the host has for an engine of a plugin's, and a linked one does without.
pub(crate) struct Plugged {
    /// The build.
    pub(crate) subject: Subject,
    /// The threads its code runs on.
    pub(crate) threads: EngineThreads,
    /// How long it may take.
    pub(crate) deadlines: Deadlines,
    /// How it leaves.
    pub(crate) departure: Arc<Departure>,
}

/// Why an instance is not called any more.
struct SetAside {
    why: String,
    /// The host let go of it; it did not fail.
    by_host: bool,
}

/// Where an engine's code runs.
enum Home {
    /// On the caller's thread: a linked engine is trusted, its calls have no deadline.
    Linked(Engine),
    /// On threads of its own, which hold the instance.
    Plugged(Plugged),
}

/// An engine and what was learned of it.
pub(crate) struct Supervised {
    /// Which of all instances that this process made.
    pub(crate) instance: u64,
    home: Home,
    pub(crate) info: Arc<EngineInfo>,
    host_params: HostParamPolicy,
    /// Members that answered `Unsupported`: not asked again.
    unsupported: Mutex<BTreeSet<&'static str>>,
    over_budget: AtomicU32,
    answered: AtomicBool,
    /// Whether a prompt was missing already.
    without_prompt: AtomicBool,
    has_tools: bool,
    /// Whether a tool was left out already.
    without_tool: AtomicBool,
    /// Why it is not called any more.
    set_aside: OnceLock<SetAside>,
    /// Whether the quarantine it was set aside for is on record.
    on_record: AtomicBool,
}

impl Supervised {
    /// A linked engine.
    pub(crate) fn linked(engine: Engine, info: EngineInfo) -> Supervised {
        let host_params = HostParamPolicy::new(info.accepted_host_params.clone());
        let has_tools = matches!(*engine, Instance::LinkedWithTools(_));
        Supervised::new(Home::Linked(engine), (info, has_tools), host_params)
    }

    /// An engine of a plugin's, whose threads have its instance, with or without tools.
    pub(crate) fn loaded(about: (EngineInfo, bool), host_params: HostParamPolicy, plugged: Plugged) -> Supervised {
        Supervised::new(Home::Plugged(plugged), about, host_params)
    }

    fn new(home: Home, (info, has_tools): (EngineInfo, bool), host_params: HostParamPolicy) -> Supervised {
        static INSTANCES: AtomicU64 = AtomicU64::new(1);
        Supervised {
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            home,
            info: Arc::new(info),
            host_params,
            unsupported: Mutex::default(),
            over_budget: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            without_prompt: AtomicBool::new(false),
            has_tools,
            without_tool: AtomicBool::new(false),
            set_aside: OnceLock::new(),
            on_record: AtomicBool::new(false),
        }
    }

    fn plugged(&self) -> Option<&Plugged> {
        match &self.home {
            Home::Plugged(plugged) => Some(plugged),
            Home::Linked(_) => None,
        }
    }

    /// The build, of a plugin's engine.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        self.plugged().map(|plugged| &plugged.subject)
    }

    /// Why the engine is not called any more.
    pub(crate) fn why_set_aside(&self) -> Option<&str> {
        self.set_aside.get().map(|set_aside| set_aside.why.as_str())
    }

    /// The host disposed of it: nobody is to have another one in its place.
    pub(super) fn is_disposed(&self) -> bool {
        self.set_aside.get().is_some_and(|set_aside| set_aside.by_host)
    }

    /// Another instance has taken its place. Told before the last holder lets go, which disposes of it with that reason.
    pub(crate) fn is_replaced_now(&self) {
        if let Some(plugged) = self.plugged() {
            plugged.departure.is_replaced_now();
        }
    }

    /// The quarantine it was set aside for is on record.
    pub(super) fn is_on_record_now(&self) {
        self.on_record.store(true, Ordering::Release);
    }

    /// Why it was set aside for a quarantine, once that is on record: whoever shares it may wait for it to be lifted.
    pub(super) fn why_quarantined(&self) -> Option<&str> {
        self.why_set_aside().filter(|_| self.on_record.load(Ordering::Acquire))
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
        self.call_instance(member, call, move |instance, ctx, host_params| ask(instance.engine(), ctx, host_params))
    }

    /// The same, for what is no member but an extension's function.
    pub(super) fn call_instance<R: Send + 'static>(
        &self,
        member: &'static str,
        call: &Call,
        ask: impl Fn(&Instance, &CallContext<'_>, HostParams<'_>) -> Result<R, EngineError> + Send + Sync + 'static,
    ) -> Result<R, Failure> {
        if call.cancel.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let known = || self.unsupported.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(member) {
            return Err(Failure::Unsupported(EngineError::unsupported(member)));
        }
        if let Some(hangs_in) = self.plugged().and_then(|plugged| plugged.threads.hangs_in()) {
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
            impl Fn(&Instance, &CallContext<'_>, HostParams<'_>) -> Result<R, EngineError> + Send + Sync + 'static,
        >,
    ) -> Result<R, Failure> {
        let limit = self.plugged().map(|plugged| plugged.deadlines.of(member));
        let lease = Arc::new(Lease::new(Arc::clone(&call.services), call.cancel.clone(), limit));
        let work = {
            let lease = Arc::clone(&lease);
            move |engine: &Instance| {
                CallContext::lend(&*lease, |ctx| ask(engine, ctx, HostParams::from_json(&host_params)))
            }
        };
        let fate = match (&self.home, limit) {
            (Home::Plugged(plugged), Some(limit)) => plugged.threads.run(member, limit, (&lease, &call.cancel), work),
            (Home::Plugged(_), None) => return Err(Failure::Cancelled),
            (Home::Linked(engine), _) => {
                let answer = catch_unwind(AssertUnwindSafe(|| work(engine)));
                lease.revoke();
                answer.map_or_else(|_| Fate::NotTheEngines("the host panicked".to_owned()), Fate::Answered)
            }
        };
        let answer = match fate {
            Fate::Answered(answer) => answer,
            Fate::Cancelled => return Err(Failure::Cancelled),
            Fate::NotTheEngines(reason) => return Err(Failure::NotItsFault(EngineError::failed(reason))),
            Fate::TimedOut => {
                let limit = limit.unwrap_or_default().as_millis();
                // Contract §7.9 has the words for a compaction.
                let what = if member == "compact" {
                    "Compaction timed out".to_owned()
                } else {
                    format!("`{member}` did not return within {limit} ms")
                };
                let text = format!(
                    "{what}; plugins.entries.{}.timeoutsMs.{member} gives it longer than {limit}",
                    self.info.id
                );
                return Err(Failure::Its(Fault::Timeout, EngineError::failed(text)));
            }
        };
        answer.map_err(bounded).map_err(|error| match error.code {
            ErrorCode::UNSUPPORTED => Failure::Unsupported(error),
            ErrorCode::CANCELLED if call.cancel.is_cancelled() => Failure::Cancelled,
            // Handed on from a service that this host does not have, or that failed.
            _ if lease.gave(&error) => Failure::NotItsFault(error),
            ErrorCode::PANICKED => Failure::Its(Fault::Panic, error),
            _ => Failure::Its(Fault::Error, error),
        })
    }

    /// Whether `member` answered `Unsupported` before.
    pub(super) fn is_known_to_lack(&self, member: &str) -> bool {
        self.unsupported.lock().unwrap_or_else(PoisonError::into_inner).contains(member)
    }

    /// Whether this is the first prompt that was missing.
    pub(super) fn is_first_without_prompt(&self) -> bool {
        !self.without_prompt.swap(true, Ordering::Relaxed)
    }

    /// Whether it has tools to be asked for.
    pub(super) fn has_tools(&self) -> bool {
        self.has_tools
    }

    /// Whether this is the first time that tools are left out.
    pub(super) fn is_first_tool_left_out(&self) -> bool {
        !self.without_tool.swap(true, Ordering::Relaxed)
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

    /// Sets the engine aside because it failed: it takes no more calls, and is released when those that run have returned.
    /// Only the first reason counts; `false` for the others.
    pub(super) fn retire(&self, why: String) -> bool {
        let first = self.set_aside.set(SetAside { why, by_host: false }).is_ok();
        if let Some(plugged) = self.plugged().filter(|_| first) {
            plugged.departure.fails();
            plugged.release();
        }
        first
    }

    /// Has the engine release what it holds, its destructor included, and waits for both: a host that ends the process
    /// now must know that its store is written. It takes no more calls.
    pub(super) fn dispose(&self, reason: &str) -> Result<(), Failure> {
        let why = format!("{} was disposed ({reason})", self.info.id);
        if self.set_aside.set(SetAside { why, by_host: true }).is_err() {
            return Ok(());
        }
        let answer = match &self.home {
            Home::Linked(engine) => dispose(engine.engine(), reason),
            Home::Plugged(plugged) => {
                let (tell, told) = mpsc::channel();
                let (reason, departure) = (reason.to_owned(), Arc::clone(&plugged.departure));
                plugged.threads.close("dispose", move |engine| {
                    departure.begins_to_dispose();
                    // Whoever waited may have left.
                    let _ = tell.send(None);
                    let answer = dispose(engine.engine(), &reason);
                    drop(engine);
                    departure.is_gone_now();
                    let _ = tell.send(Some(answer));
                });
                let limit = plugged.deadlines.of("dispose");
                let until = Instant::now() + limit;
                let failed = |text| EngineError::failed(text);
                if told.recv_timeout(limit).is_err() {
                    let text = format!("calls that run still kept it from being released for {} ms", limit.as_millis());
                    return Err(Failure::NotItsFault(failed(text)));
                }
                match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(Some(answer)) => answer,
                    _ => {
                        let text =
                            format!("`dispose` and its destructor did not return within {} ms", limit.as_millis());
                        return Err(Failure::Its(Fault::Timeout, failed(text)));
                    }
                }
            }
        };
        match answer {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(()),
            Err(error) if error.code == ErrorCode::PANICKED => Err(Failure::Its(Fault::Panic, error)),
            Err(error) => Err(Failure::Its(Fault::Error, error)),
        }
    }
}

impl Plugged {
    /// Has the instance disposed of and dropped once the calls that run have returned. Nobody waits for it here.
    fn release(&self) {
        let departure = Arc::clone(&self.departure);
        self.threads.close("dispose", move |engine| {
            departure.begins_to_dispose();
            drop(dispose(engine.engine(), departure.reason()));
            drop(engine);
            departure.is_gone_now();
        });
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let why = "its last handle was dropped".to_owned();
        let first = self.set_aside.set(SetAside { why, by_host: true }).is_ok();
        if let Some(plugged) = self.plugged().filter(|_| first) {
            plugged.departure.leaves();
            plugged.release();
        }
    }
}

fn dispose(engine: &dyn ContextEngine, reason: &str) -> Result<(), EngineError> {
    let fields = DisposeParamsFields { reason: reason.into(), ..DisposeParamsFields::default() };
    let lease = Lease::new(Arc::new(NoServices), CancelToken::new(), None);
    CallContext::lend(&lease, |ctx| fields.lend(|params| engine.dispose(ctx, params))).map(|_| ())
}
