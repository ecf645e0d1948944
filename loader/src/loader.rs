//! The loader: takes the steps one after the other and hands out engine handles that always answer.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{ContextEngine, EngineError, EngineHost, EngineTools};
use context_engine_legacy::LegacyEngine;
use serde_json::Value;

use crate::builds::Builds;
use crate::catalog::Plugin;
use crate::create::{Opened, Uncreated};
use crate::creation::{Creation, OwnedCreation};
use crate::error::{LoaderError, Problem, Step};
use crate::find::PluginDirectory;
use crate::instances::{Instances, Taken};
use crate::known::Known;
use crate::probe::{self, ProbeFailure, ProbeOptions, ProbeReport};
use crate::quarantine::marks::{self, Marks};
use crate::quarantine::{self, Fault, Quarantine, Subject, Verdict};
use crate::reload::Reloads;
use crate::rules::Rules;
use crate::stage::Digest;
use crate::supervise::{
    Creations, Departure, EngineHandle, EngineServices, EngineThreads, HostParamPolicy, HostProfile, Instance, Lost,
    MAX_LOST, Plugged, Refused, Source, Supervised,
};
use crate::trust::TrustPolicy;

/// Id of the built-in engine.
pub const LEGACY: &str = "legacy";

/// Where the loader looks and keeps things.
#[derive(Debug, Clone, Default)]
pub struct LoaderOptions {
    /// Plugins directories, in order of precedence.
    pub directories: Vec<PluginDirectory>,
    /// A directory of the host's own: staged copies, quarantine, crash marks, a folder per engine.
    pub state_dir: PathBuf,
    /// Which plugins may be used.
    pub policy: TrustPolicy,
    /// How a build is tried in a child process before this process opens it. Without it, what a library does when it is
    /// opened happens here: nothing can be done about one that ends the process or never returns.
    pub probe: Option<ProbeOptions>,
    /// What this host offers engines.
    pub host: HostProfile,
    /// What happens when the engine asked for does not answer.
    pub on_failure: OnFailure,
}

/// What happens when the engine asked for does not answer (`plugins.contextEnginePolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// `legacy` answers.
    #[default]
    Legacy,
    /// The run stops: for those who prefer no answer to one from another context (report G9).
    Stop,
}

/// Who asks for an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// A session that needs it: what was refused before is tried again.
    Fresh,
    /// A reload that nobody waits for: what was refused before is not.
    Reload,
}

/// Finds, checks and opens engines. Clones share what was learned.
#[derive(Clone)]
pub struct Loader {
    pub(crate) options: LoaderOptions,
    /// What earlier scans learned, shared by clones.
    pub(crate) known: Arc<Known>,
    builds: Builds,
    quarantine: Quarantine,
    /// Made when the first plugin is about to be opened.
    marks: Arc<OnceLock<Marks>>,
    /// What may change while the loader is in use.
    pub(crate) rules: Arc<RwLock<Rules>>,
    /// Libraries that are open, by build: they stay open, so they are loaded and checked once.
    pub(crate) modules: Arc<Mutex<HashMap<Digest, Opened>>>,
    /// Threads that did not come back, by build.
    lost: Arc<Mutex<HashMap<Digest, Lost>>>,
    /// Instances that are alive.
    pub(crate) instances: Arc<Instances>,
    /// Handles that were given out, and what was replaced under them.
    pub(crate) reloads: Arc<Reloads>,
    /// Where engines keep their things, each in a folder of its own.
    engines: PathBuf,
}

impl Loader {
    /// A loader with these options. Touches nothing yet.
    pub fn new(mut options: LoaderOptions) -> Loader {
        let directories = std::mem::take(&mut options.directories).into();
        let policy = Arc::new(std::mem::take(&mut options.policy));
        let builds = Builds::open(&options.state_dir);
        let quarantine = Quarantine::open(&options.state_dir);
        let engines = options.state_dir.join("engines");
        Loader {
            options,
            known: Arc::default(),
            builds,
            quarantine,
            marks: Arc::default(),
            rules: Arc::new(RwLock::new(Rules { directories, policy })),
            modules: Arc::default(),
            lost: Arc::default(),
            instances: Arc::default(),
            reloads: Arc::default(),
            engines,
        }
    }

    /// A loader for a trial, whose outcome must not depend on another's: its engines keep their things in `engines`, and
    /// one that fails is set aside by this loader alone. What is set aside already stays so. No instance is shared with
    /// another loader.
    #[must_use]
    pub fn on_trial(&self, engines: PathBuf) -> Loader {
        // What earlier hosts left is judged for all, not for the trial.
        self.marks();
        let quarantine = self.quarantine.on_trial();
        Loader { quarantine, instances: Arc::default(), reloads: Arc::default(), engines, ..self.clone() }
    }

    /// A handle on an engine that is linked into this program. It is trusted: its calls have no deadline, and it stays
    /// when it fails.
    ///
    /// # Errors
    /// When the built-in engine, which answers in its place then, cannot be created.
    pub fn linked(
        &self,
        engine: Arc<dyn ContextEngine>,
        info: EngineInfo,
        creation: &Creation,
    ) -> Result<EngineHandle, LoaderError> {
        self.linked_instance(Instance::Linked(engine), info, creation)
    }

    /// The same, of an engine that has tools.
    ///
    /// # Errors
    /// As [`linked`](Self::linked).
    pub fn linked_with_tools(
        &self,
        engine: Arc<dyn EngineTools>,
        info: EngineInfo,
        creation: &Creation,
    ) -> Result<EngineHandle, LoaderError> {
        self.linked_instance(Instance::LinkedWithTools(engine), info, creation)
    }

    fn linked_instance(
        &self,
        instance: Instance,
        info: EngineInfo,
        creation: &Creation,
    ) -> Result<EngineHandle, LoaderError> {
        let (quarantine, host) = (self.quarantine.clone(), self.options.host.clone());
        let engine = Supervised::linked(Arc::new(instance), info);
        Ok(EngineHandle::linked(engine, self.legacy(creation)?, (quarantine, host)))
    }

    fn legacy(&self, creation: &Creation) -> Result<Supervised, LoaderError> {
        let refuse = |error: EngineError| {
            let reason = error.to_string();
            LoaderError::new(&self.options.state_dir, Step::Open, Problem::Legacy { reason })
        };
        let legacy = self.creation_of(LEGACY, creation).lend(LegacyEngine::create).map_err(refuse)?;
        Ok(Supervised::linked(Arc::new(Instance::Linked(Arc::new(legacy))), LegacyEngine::info()))
    }

    /// What was learned of builds by running them.
    pub fn builds(&self) -> &Builds {
        &self.builds
    }

    /// Which engines are set aside.
    pub fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// The engine with this id, or `legacy` with the reason why it is not that one.
    ///
    /// Handles on the same engine with the same configuration, folders and counter share one instance while one of them is
    /// alive: when it fails for one of them, `legacy` answers all.
    ///
    /// # Errors
    /// When the built-in engine itself cannot be created; when this host lacks what the engine requires; when the engine
    /// cannot be opened and the policy is to stop then.
    pub fn engine(&self, id: &str, creation: &Creation) -> Result<EngineHandle, LoaderError> {
        let creation = creation.clone();
        self.engine_with(id, Arc::new(move || creation.clone()))
    }

    /// The same, created with what `creation` says each time it is opened: a [`reload`](Self::reload) asks it again, and a
    /// changed configuration makes a new instance.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn engine_with(&self, id: &str, creation: Creations) -> Result<EngineHandle, LoaderError> {
        let legacy = self.legacy(&creation())?;
        let host = self.options.host.clone();
        let id = id.trim();
        if matches!(id, "" | "none" | LEGACY) {
            return Ok(EngineHandle::legacy(legacy, self.quarantine.clone(), host));
        }
        let opener = {
            let (loader, id, creation) = (self.clone(), id.to_owned(), Arc::clone(&creation));
            Box::new(move || loader.open(&id, &creation()))
        };
        let passes = self.reloads.passes();
        let source = Source { id: id.to_owned(), creation, opener };
        let handle = EngineHandle::open(source, legacy, (self.quarantine.clone(), host, self.options.on_failure))?;
        self.reloads.gave_out(&handle, passes);
        Ok(handle)
    }

    /// Looks through the crash marks earlier processes left. Done before the first plugin is opened, too.
    pub fn settle_crash_marks(&self) -> Vec<Verdict> {
        self.quarantine.settle_marks(&self.options.state_dir.join(marks::FOLDER))
    }

    /// Why this host cannot run the engine, whatever its state: what it requires of hosts.
    pub fn lacks(&self, plugin: &Plugin) -> Option<String> {
        self.options.host.lacks(plugin.info(), "agent-run")
    }

    /// The quarantine that holds the plugin, with this configuration.
    pub fn held(&self, plugin: &Plugin, creation: &Creation) -> Option<Arc<quarantine::Record>> {
        self.quarantine.holds(&creation.key(&plugin.staged.digest))
    }

    /// Tries the plugin out in a child process, unless it passed before with this configuration: then `None`. Whether the
    /// configuration fits the plugin's schema is asked before, with [`Plugin::check_config`].
    ///
    /// # Errors
    /// [`ProbeFailure`]; nobody is set aside for it. Without [`LoaderOptions::probe`], `NotRun`.
    pub fn probe(&self, plugin: &Plugin, creation: &Creation) -> Result<Option<ProbeReport>, ProbeFailure> {
        let config = creation.config.as_ref();
        let Some(options) = &self.options.probe else {
            return Err(ProbeFailure::NotRun { reason: "this host has no program for it".to_owned() });
        };
        let (digest, key) = (plugin.staged.digest, creation.key(&plugin.staged.digest).to_string());
        if self.builds.probe_passed(digest, &key) {
            return Ok(None);
        }
        let scratch = self.options.state_dir.join("probes");
        // What the engine may take to be created it may take here, too.
        let deadline = options.deadline.saturating_add(creation.deadlines.of("create"));
        let options = ProbeOptions { deadline, ..options.clone() };
        let outcome = probe::probe(&options, &plugin.staged.path, &plugin.inspection.record, config, &scratch);
        self.builds.record_probe(digest, &key, outcome.is_ok());
        outcome.map(Some)
    }

    fn open(&self, id: &str, creation: &Creation) -> Result<Arc<Supervised>, Refused> {
        self.open_plugin(&self.find(id)?, creation, Attempt::Fresh)
    }

    /// An instance of the plugin with this configuration: the one that is alive, or a new one.
    pub(crate) fn open_plugin(
        &self,
        plugin: &Plugin,
        creation: &Creation,
        attempt: Attempt,
    ) -> Result<Arc<Supervised>, Refused> {
        let id = plugin.info().id.as_str();
        let refuse = |step, problem| LoaderError::new(&plugin.candidate.path, step, problem).about(id);
        let info = plugin.info().clone();
        if let Some(text) = self.options.host.lacks(&info, "agent-run") {
            return Err(refuse(Step::Call, Problem::HostCapability { text }).into());
        }
        plugin.check_config(creation.config.as_ref())?;
        let marks = self.marks();
        let digest = plugin.staged.digest;
        let subject = Subject {
            engine: id.to_owned(),
            digest: digest.to_string(),
            key: creation.key(&digest),
            path: plugin.candidate.path.clone(),
        };
        let held = |error| Refused { error, held_by: Some(subject.key) };
        let instance = creation.instance(&digest);
        let place = self.instances.place(instance.clone());
        // From here on one session opens it, and those that ask meanwhile are told how that ended.
        let mut place = Taken::of(&place);
        if let Some(record) = self.quarantine.holds(&subject.key) {
            let (operation, reason) = (record.operation.clone(), record.reason.clone());
            let problem = Problem::Quarantined { engine: id.to_owned(), operation, reason };
            return Err(held(refuse(Step::Call, problem)));
        }
        if let Some(alive) = place.alive() {
            return Ok(alive);
        }
        if let Some(before) = self.reloads.refused_before(&instance, attempt) {
            return Err(before.into());
        }
        let lost = self.lost_of(digest);
        let lost_now = lost.load(Ordering::Relaxed);
        if lost_now >= MAX_LOST as isize {
            return Err(refuse(Step::Call, Problem::Lost { lost: lost_now.unsigned_abs() }).into());
        }
        if self.options.probe.is_some()
            && let Err(failure) = self.probe(plugin, creation)
        {
            let convicts = failure.convicts();
            if convicts {
                self.quarantine.add(&subject, "probe", Fault::Probe, &failure.to_string());
            }
            let error = refuse(Step::Probe, failure.into());
            if !convicts {
                self.reloads.refuse(instance, &error);
            }
            return Err(if convicts { held(error) } else { error.into() });
        }
        let threads = EngineThreads::new(subject.clone(), marks, lost);
        let has_tools = self.create(plugin, creation, &threads).map_err(|failure| match failure {
            Uncreated::Refused(error) => {
                self.reloads.refuse(instance, &error);
                Refused::from(error)
            }
            Uncreated::Broken(fault, reason) => {
                self.quarantine.add(&subject, "create", fault, &reason);
                held(refuse(Step::Open, Problem::Broken { member: "create", reason }))
            }
        })?;
        tracing::info!(engine = id, path = %plugin.candidate.path.display(), digest = subject.digest, "opened");
        let builds = self.builds.clone();
        let policy = HostParamPolicy::new(info.accepted_host_params.clone()).knowing(
            self.builds.refused_host_params(digest),
            Box::new(move |key| builds.refuse_host_param(digest, key)),
        );
        let deadlines = creation.deadlines.clone();
        let departure = Departure::new(subject.engine.clone(), subject.digest.clone(), deadlines.of("dispose"));
        let departure = self.reloads.has_made(Arc::new(departure));
        let plugged = Plugged { subject, threads, deadlines, departure };
        Ok(place.fill(Supervised::loaded((info, has_tools), policy, plugged)))
    }

    /// The marks of this process. Before the first, what earlier processes left is looked through: who died in an engine
    /// must be known before that engine is opened again.
    fn marks(&self) -> Marks {
        let first = || {
            self.settle_crash_marks();
            Marks::open(&self.options.state_dir)
        };
        self.marks.get_or_init(first).clone()
    }

    fn lost_of(&self, digest: Digest) -> Lost {
        Arc::clone(self.lost.lock().unwrap_or_else(PoisonError::into_inner).entry(digest).or_default())
    }

    pub(crate) fn creation_of(&self, id: &str, creation: &Creation) -> OwnedCreation {
        // The built-in engine keeps nothing and must answer where nothing can be written.
        let state_dir = if id == LEGACY { PathBuf::new() } else { self.engines.join(id) };
        OwnedCreation {
            config: creation.config.as_ref().map_or_else(String::new, Value::to_string),
            state_dir,
            agent_dir: creation.agent_dir.clone(),
            workspace_dir: creation.workspace_dir.clone(),
            host: EngineHost::new(Arc::new(EngineServices::new(id, creation.counter()))),
        }
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("options", &self.options).finish_non_exhaustive()
    }
}
