//! Step 6, the other half: an instance is made of an opened library, on a thread of its own.
//!
//! Decision: a library is opened once and stays open for the life of the process. Unmapping Rust code is not safe (a
//! thread that once ran it runs its destructors when it ends, reports H1 and H2), so what is replaced is retired, and
//! counted with the memory it holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use context_engine_interface::abi::module::EngineModule;
use context_engine_interface::{ErrorCode, RemoteEngine};

use crate::catalog::Plugin;
use crate::creation::Creation;
use crate::dylib::signals;
use crate::error::{LoaderError, Problem, Step};
use crate::loader::Loader;
use crate::open;
use crate::platform::mapped_bytes;
use crate::quarantine::Fault;
use crate::stage::Digest;
use crate::supervise::{CancelToken, Engine, EngineThreads, Fate, Instance, Lease, NoServices};

/// A library that is open.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) module: EngineModule,
    /// Bytes of address space its file takes; of its memory, what was touched is real.
    pub(crate) mapped: u64,
}

impl Loader {
    /// Opens the plugin's library and creates an instance, both on a thread of the engine's own: constructors and `create`
    /// are its code. Whether it has tools.
    pub(crate) fn create(
        &self,
        plugin: &Plugin,
        creation: &Creation,
        threads: &EngineThreads,
    ) -> Result<bool, Uncreated> {
        let limit = creation.deadlines.of("create");
        let lease = Arc::new(Lease::new(Arc::new(NoServices), CancelToken::new(), Some(limit)));
        let owned = self.creation_of(&plugin.info().id, creation);
        let (path, id) = (plugin.candidate.path.clone(), plugin.info().id.clone());
        let refuse = move |problem| Uncreated::Refused(LoaderError::new(&path, Step::Open, problem).about(&id));
        owned.make_state_dir().map_err(|error| {
            let (directory, reason) = (owned.state_dir.clone(), error.to_string());
            refuse(Problem::State { directory, reason })
        })?;
        let watch = threads.watch_library();
        let work = {
            let (plugin, refuse, modules) = (plugin.clone(), refuse.clone(), Arc::clone(&self.modules));
            let lease = Arc::clone(&lease);
            move || {
                let before = signals::snapshot();
                let created = module_of(&plugin, &modules);
                let created = created.map_err(|error| Uncreated::Refused(error.about(&plugin.info().id)));
                let created = created.inspect(|_| watch()).and_then(|module| {
                    let tools = open::tools(module, &plugin.inspection.record).map_err(&refuse)?;
                    let object =
                        owned.lend(|ctx| module.create()(ctx).into_result()).map_err(|error| match error.code {
                            ErrorCode::PANICKED => Uncreated::Broken(Fault::Panic, error.to_string()),
                            // A wrong configuration, a service that is not there: what a person mends without a new build.
                            _ => refuse(Problem::Create { reason: error.to_string() }),
                        })?;
                    Ok((Arc::new(Instance::Loaded(RemoteEngine::new(object), tools)) as Engine, tools.is_some()))
                });
                // What the host has changed since it gave up waiting is the host's.
                if !lease.is_over() {
                    give_handlers_back(&before, &plugin);
                }
                created
            }
        };
        match threads.create(limit, &lease, work) {
            Fate::Answered(created) => created,
            Fate::TimedOut | Fate::Cancelled => {
                let (ms, id) = (limit.as_millis(), &plugin.info().id);
                let reason =
                    format!("it did not return within {ms} ms; plugins.entries.{id}.timeoutsMs.create gives it longer");
                Err(Uncreated::Broken(Fault::Timeout, reason))
            }
            Fate::NotTheEngines(reason) => Err(refuse(Problem::Busy { reason })),
        }
    }
}

/// Why there is no instance.
pub(crate) enum Uncreated {
    Refused(LoaderError),
    /// It broke a rule no healthy engine breaks.
    Broken(Fault, String),
}

/// The plugin's module, opened now or before. Not opened under the lock: a constructor may never return.
fn module_of(plugin: &Plugin, opened: &Mutex<HashMap<Digest, Opened>>) -> Result<EngineModule, LoaderError> {
    let opened = || opened.lock().unwrap_or_else(PoisonError::into_inner);
    let before = opened().get(&plugin.staged.digest).map(|opened| opened.module);
    before.map_or_else(
        || {
            let module = plugin.open()?;
            let mapped = mapped_bytes(&plugin.staged.path).unwrap_or(plugin.inspection.bytes);
            opened().insert(plugin.staged.digest, Opened { module, mapped });
            Ok(module)
        },
        Ok,
    )
}

/// Signal handlers are the process's: what the plugin's library put in place while it was opened and created is taken out
/// again, and said.
fn give_handlers_back(before: &signals::Handlers, plugin: &Plugin) {
    let changed = signals::restore(before, &plugin.staged.path);
    if !changed.is_empty() {
        let changed: Vec<String> = changed.into_iter().map(signals::signal_name).collect();
        let (engine, signals) = (&plugin.info().id, changed.join(", "));
        tracing::warn!(engine, signals, "the engine changed how this process handles signals; the host put it back");
    }
}
