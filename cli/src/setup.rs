//! What every command needs: logs, configuration, a loader.

use context_engine_loader::probe::DEFAULT_DEADLINE;
use context_engine_loader::{Creation, HostProfile, Loader, LoaderOptions, Origin, PluginDirectory, ProbeOptions};
use context_engine_runtime::{Config, Home};
use context_engine_transcript::TokenCounter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::Directories;
use crate::error::CliError;
use crate::output::note;

/// Logs go to standard error: nothing a plugin says may get between the lines of `--json`.
pub(crate) fn init_logs(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        // Where standard error is closed or full, a log line is lost and the command goes on.
        .log_internal_errors(false)
        .init();
}

/// The host as configured.
pub(crate) struct Host {
    pub(crate) home: Home,
    pub(crate) config: Config,
    /// Plugins directories, in order of precedence.
    pub(crate) directories: Vec<PluginDirectory>,
    pub(crate) loader: Loader,
}

impl Host {
    pub(crate) fn new(asked: &Directories) -> Result<Host, CliError> {
        let home = Home::from_env()?;
        let config = Config::read(&home.config())?;
        let directories: Vec<PluginDirectory> = if asked.plugins.is_empty() {
            home.plugin_directories(&config).into_iter().chain(workspace()).collect()
        } else {
            for missing in asked.plugins.iter().filter(|path| !path.exists()) {
                note(format_args!("--plugins {}: there is no such directory", missing.display()));
            }
            asked.plugins.iter().cloned().map(PluginDirectory::from).collect()
        };
        let loader = Loader::new(LoaderOptions {
            directories: directories.clone(),
            state_dir: home.state(),
            policy: config.trust_policy(),
            probe: probe(),
            host: HostProfile::new("the context-engine command"),
            on_failure: config.on_failure(),
        });
        Ok(Host { home, config, directories, loader })
    }

    /// Says which keys of the configuration look like ones that are read, and are none.
    pub(crate) fn say_slips(&self) {
        let config = self.home.config();
        for (place, meant) in Config::misspelt(&config) {
            note(format_args!("{}: {place} is no key that is read; did you mean {meant}?", config.display()));
        }
    }

    /// What the engine `id` is created with.
    pub(crate) fn creation(&self, id: &str, counter: Option<TokenCounter>) -> Creation {
        let config = self.config.plugins.entries.get(id).and_then(|entry| entry.config.clone());
        // A wrong one was refused when the configuration was read.
        let deadlines = self.config.deadlines(id).unwrap_or_default();
        Creation { config, counter, deadlines, ..Creation::default() }
    }
}

/// Plugins are tried out by this command, run again as a child.
fn probe() -> Option<ProbeOptions> {
    let child_exe = std::env::current_exe().ok()?;
    Some(ProbeOptions { child_exe, args: vec!["probe-plugin".into()], deadline: DEFAULT_DEADLINE })
}

/// Where a workspace keeps its plugins.
pub(crate) const WORKSPACE_PLUGINS: &str = ".context-engine/plugins";

/// The plugins directory of the workspace this command is run in, where there is one.
fn workspace() -> Option<PluginDirectory> {
    let path = std::env::current_dir().ok()?.join(WORKSPACE_PLUGINS);
    path.symlink_metadata().is_ok().then_some(PluginDirectory { path, origin: Origin::Workspace })
}
