//! `context-engine plugins …`: one file per command, and what they share.
//!
//! Decision: a command that changes something reads first, says what it will not do before it touches anything, and ends
//! with what happened and what to do next.

mod archive;
pub(crate) mod args;
mod crates;
mod enable;
mod inspect;
mod install;
mod list;
mod pack;
pub(crate) mod place;
mod reload;
mod select;
mod trust;
mod uninstall;

use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
use std::path::{Path, PathBuf};

use context_engine_loader::find::Candidate;
use context_engine_loader::platform::LIBRARY_EXTENSION;
use context_engine_loader::{LoaderError, Plugin, Problem, closest_first, on_one_line};
use context_engine_runtime::Home;
use context_engine_runtime::config::edit::{Edit, Prepared, edit, prepare};
use context_engine_runtime::config::lock::Lock;
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::{Directories, PluginsCommand};
use crate::error::CliError;
use crate::output::{done, json_line, line, note, path_json};
use crate::setup::Host;

/// When what was changed is heeded.
const HEEDED: &str = "hosts that watch heed it with their next turn, others at their next start";

/// What a configuration is made from that is not there yet.
const TEMPLATE: &str = include_str!("../../config.template.json5");

pub(crate) fn run(command: &PluginsCommand) -> Result<Outcome, CliError> {
    match command {
        PluginsCommand::List(args) => list::run(args),
        PluginsCommand::Inspect(args) => inspect::run(args),
        PluginsCommand::Install(args) => install::run(args),
        PluginsCommand::Pack(args) => pack::run(args),
        PluginsCommand::Uninstall(args) => uninstall::run(args),
        PluginsCommand::Trust(args) => trust::run(args),
        PluginsCommand::Enable(args) => enable::run(args, true),
        PluginsCommand::Disable(args) => enable::run(args, false),
        PluginsCommand::Select(args) => select::run(args),
        PluginsCommand::Reload(args) => reload::run(args),
    }
}

/// What a command did, for a person and for scripts.
struct Told {
    lines: Vec<String>,
    json: Value,
    /// Whether something is not as asked.
    finding: bool,
}

impl Told {
    fn new(json: Value) -> Told {
        Told { lines: vec![], json, finding: false }
    }

    /// Something that happened.
    fn say(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Something that is not as asked, with what to do.
    fn warn(&mut self, text: impl Into<String>) {
        self.finding = true;
        self.say(text);
    }

    /// Of a command that has done what it was asked for.
    fn print(self, json: bool) -> Result<Outcome, CliError> {
        done();
        self.show(json)
    }

    /// Of a command that only looked.
    fn show(mut self, json: bool) -> Result<Outcome, CliError> {
        if json {
            self.json["said"] = self.lines.into();
            json_line(&self.json)?;
        } else {
            for text in &self.lines {
                line(on_one_line(text))?;
            }
        }
        Ok(if self.finding { Outcome::Findings } else { Outcome::Fine })
    }
}

/// The host as it is while no other command installs or removes plugins. No lock where nobody can: there is no plugins
/// directory, or it cannot be written, and `make` does not ask for one.
fn alone(make: bool) -> Result<(Host, Option<Lock>), CliError> {
    let plugins = Home::from_env()?.plugins();
    let lock = match if make || plugins.exists() { place::lock(&plugins).map(Some) } else { Ok(None) } {
        Ok(lock) => lock,
        Err(error) if !make && matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => None,
        Err(source) => return Err(CliError::File { path: plugins, doing: "keeping other commands out", source }),
    };
    // Whoever holds the lock pins nothing now.
    for (_, id) in place::unpinned(&plugins).iter().filter(|_| lock.is_some()) {
        note(format_args!("context-engine: {}", not_pinned(id)));
    }
    // What it was before it was locked may have been changed by the one that was waited for.
    Ok((Host::new(&Directories { plugins: vec![] })?, lock))
}

/// What to do about a pin that was asked for and broken off.
pub(crate) fn not_pinned(id: &str) -> String {
    format!(
        "an `install --pin` of \"{id}\" was broken off, so what has this id may not be pinned; `context-engine plugins \
         install PATH --pin` pins it, an install without --pin leaves it so"
    )
}

/// Changes the configuration; whether there was anything to change.
fn configure(host: &Host, edits: &[Edit]) -> Result<bool, CliError> {
    Ok(edit(&host.home.config(), TEMPLATE, edits)?)
}

/// What lies in the plugins directory under other names and is the plugin, too: links to it, or what it is a link to.
fn other_names(plugins: &Path, plugin: &Plugin) -> Vec<PathBuf> {
    let Candidate { path, library, root, .. } = plugin.candidate();
    let is_it = |entry: &PathBuf| {
        let leads_there = std::fs::canonicalize(entry).is_ok_and(|real| real != *root && library.starts_with(real));
        let named_so = entry.extension().is_some_and(|extension| extension == LIBRARY_EXTENSION);
        entry != path && (named_so || entry.join("plugin.json").exists()) && leads_there
    };
    let entries = std::fs::read_dir(plugins).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(is_it).collect()
}

/// The change, up to the moment in which it is made.
fn prepared(host: &Host, edits: &[Edit]) -> Result<Prepared, CliError> {
    Ok(prepare(&host.home.config(), TEMPLATE, edits)?)
}

/// The ids that plugins have, those that are refused included, and those the configuration has settings for.
fn known_ids(host: &Host, found: &[Result<Plugin, LoaderError>]) -> Vec<String> {
    let of_plugins = found.iter().filter_map(|found| match found {
        Ok(plugin) => Some(plugin.info().id.clone()),
        Err(error) => error.engine.clone(),
    });
    let mut ids: Vec<String> = of_plugins.chain(host.config.plugins.entries.keys().cloned()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Nobody has this id: with the ids there are, the closest first.
fn unknown(id: &str, mut known: Vec<String>) -> CliError {
    let closest = closest_first(id, &mut known);
    let shown: String = id.chars().take(64).collect();
    CliError::UnknownPlugin { id: on_one_line(&shown), closest, known }
}

/// Whether something is not as the person asked. What they blocked themselves is.
pub(crate) fn is_finding(found: &Result<Plugin, LoaderError>) -> bool {
    found.as_ref().is_err_and(|error| !matches!(error.problem, Problem::Forbidden { .. }))
}

/// What happened to a plugin that is not used.
pub(crate) fn verdict(error: &LoaderError) -> &'static str {
    match error.problem {
        Problem::Forbidden { .. }
        | Problem::Workspace { .. }
        | Problem::Untrusted { .. }
        | Problem::Permissions { .. }
        | Problem::Pin { .. } => "blocked",
        _ => "refused",
    }
}

/// A plugin's verdict for scripts.
pub(crate) fn verdict_json(found: Result<&Plugin, &LoaderError>) -> Value {
    match found {
        Ok(plugin) => json!({
            "path": path_json(&plugin.candidate().path),
            "usable": true,
            "digest": plugin.staged().digest.to_string(),
            "inspection": plugin.inspection(),
        }),
        Err(error) => json!({
            "path": path_json(&error.path),
            "usable": false,
            "id": error.engine,
            "verdict": verdict(error),
            "step": error.step.to_string(),
            "reason": error.problem.to_string(),
        }),
    }
}
