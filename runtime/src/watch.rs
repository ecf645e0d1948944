//! A runtime that heeds its configuration and its plugins while it runs.
//!
//! Decision: only what changed in the file is applied, so that what a host chose itself stays until a person says
//! otherwise. A turn that runs keeps its engine; a file that cannot be read changes nothing, and is said once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use context_engine_loader::{Creation, Deadlines, Loader, Origin, PluginDirectory, WatchOptions, Watcher};
use serde_json::Value;

use crate::options::Creations;
use crate::{Config, Home, Runtime, RuntimeError};

/// A configuration that is gone or empty has to stay so for this long before it counts: programs that save a file empty it,
/// or move it away, first.
const BLANK: Duration = Duration::from_secs(2);

/// What engines are created with: what the host says, and what was configured differently since.
pub(crate) struct Configured {
    creations: Creations,
    changed: RwLock<HashMap<String, (Option<Value>, Deadlines)>>,
}

impl Configured {
    pub(crate) fn new(creations: Creations) -> Arc<Configured> {
        Arc::new(Configured { creations, changed: RwLock::default() })
    }

    /// What the engine `id` is created with now.
    pub(crate) fn creation(&self, id: &str) -> Creation {
        let creation = (self.creations)(id);
        match self.changed.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned() {
            Some((config, deadlines)) => Creation { config, deadlines, ..creation },
            None => creation,
        }
    }

    /// Remembers the engines whose entry is another one now.
    fn change(&self, before: &Config, now: &Config) {
        let entry = |config: &Config, id: &str| {
            let configured = config.plugins.entries.get(id).and_then(|entry| entry.config.clone());
            // A wrong one was refused when the configuration was read.
            (configured, config.deadlines(id).unwrap_or_default())
        };
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        for id in before.plugins.entries.keys().chain(now.plugins.entries.keys()) {
            let entry_now = entry(now, id);
            if entry_now != entry(before, id) {
                changed.insert(id.clone(), entry_now);
            }
        }
    }
}

impl Runtime {
    /// Watches the plugins and the configuration of `home` until the watcher is dropped. `config` is what the host was
    /// made with: what the file says differently is applied now, and whenever it changes.
    ///
    /// Heeded are `plugins.slots.contextEngine`; what says which plugins may be used and where they are; and of
    /// `plugins.entries.<id>` `config` and `timeoutsMs`. Everything else waits for the next start.
    ///
    /// # Errors
    /// [`RuntimeError::Watch`] when no thread can be started.
    pub fn watch(&self, home: &Home, config: Config, options: WatchOptions) -> Result<Watcher, RuntimeError> {
        let mut files = options.files;
        files.push(home.config());
        let mut heeding =
            Heeding { runtime: self.clone(), home: home.clone(), heeded: config, refused: None, blank_since: None };
        let mut first = options.before;
        let before = move || {
            let again = first.as_mut().and_then(|first| first());
            [again, heeding.heed()].into_iter().flatten().min()
        };
        let options = WatchOptions { files, before: Some(Box::new(before)), ..options };
        self.loader().watch(options).map_err(|error| RuntimeError::Watch { reason: error.to_string() })
    }
}

struct Heeding {
    runtime: Runtime,
    home: Home,
    heeded: Config,
    /// What was wrong with the file, as it was said.
    refused: Option<String>,
    /// Since when there is no file, or nothing in it.
    blank_since: Option<Instant>,
}

impl Heeding {
    /// Applies what the configuration says differently now. When to ask again although nothing changes.
    fn heed(&mut self) -> Option<Duration> {
        let now = match Config::read_written(&self.home.config()) {
            Ok(Some(now)) => {
                self.blank_since = None;
                now
            }
            // Nothing is forbidden in it, and it is what a file is for a moment while it is saved.
            Ok(None) => {
                let since = *self.blank_since.get_or_insert_with(Instant::now);
                if let Some(left) = BLANK.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                    return Some(left);
                }
                Config::default()
            }
            Err(error) => {
                self.blank_since = None;
                let error = error.to_string();
                if self.refused.as_ref() != Some(&error) {
                    tracing::warn!("the configuration that was read before stays in force: {error}");
                    self.refused = Some(error);
                }
                return None;
            }
        };
        self.refused = None;
        if now == self.heeded {
            return None;
        }
        let before = std::mem::replace(&mut self.heeded, now);
        let now = &self.heeded;
        let loader = self.runtime.loader();
        let (policy, load) = (now.trust_policy(), &now.plugins.load);
        if policy != before.trust_policy() || *load != before.plugins.load {
            let directories = if *load == before.plugins.load {
                loader.directories().to_vec()
            } else {
                directories(loader, &self.home, now)
            };
            loader.set_rules(directories, policy);
        }
        self.runtime.configured().change(&before, now);
        if now.plugins.slots != before.plugins.slots {
            self.runtime.select_engine(now.plugins.slots.context_engine.clone().unwrap_or_default());
        }
        None
    }
}

/// The configured plugins directories, and those of the workspace there were.
fn directories(loader: &Loader, home: &Home, config: &Config) -> Vec<PluginDirectory> {
    let of_workspace = |directory: &&PluginDirectory| directory.origin == Origin::Workspace;
    let mut directories = home.plugin_directories(config);
    directories.extend(loader.directories().iter().filter(of_workspace).cloned());
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        json5::from_str(text).expect("a configuration")
    }

    /// What the host chose for an engine stays until the file says something else about that engine.
    #[test]
    fn only_an_entry_that_changed_is_heeded() {
        let own = Creation { config: Some(serde_json::json!("the host's")), ..Creation::default() };
        let configured = Configured::new(Arc::new(move |_| own.clone()));
        let shown = |id: &str| configured.creation(id).config.map(|config| config.to_string());
        let steps = [
            "{}",
            "{plugins: {entries: {a: {config: 1}}}}",
            "{plugins: {entries: {a: {}, b: {timeoutsMs: {assemble: 7}}}}}",
        ];
        let expected = [(Some("1"), Some("\"the host's\"")), (None, None)];
        for (pair, (a, b)) in steps.windows(2).zip(expected) {
            configured.change(&config(pair[0]), &config(pair[1]));
            assert_eq!((shown("a").as_deref(), shown("b").as_deref()), (a, b), "{}", pair[1]);
        }
        assert_eq!(shown("c").as_deref(), Some("\"the host's\""));
        assert_eq!(configured.creation("b").deadlines.of("assemble").as_millis(), 7);
    }
}
