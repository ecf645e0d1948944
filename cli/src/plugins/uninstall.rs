//! `context-engine plugins uninstall`
//!
//! Decision: the files get hidden names, then the configuration is changed, then the files are deleted. When the
//! configuration cannot be changed they get their names back, so all of it is done or nothing. Files are removed in the home's
//! plugins directory only; what an engine has stored stays unless that is asked for, because it cannot be made again.

use std::path::{Path, PathBuf};

use context_engine_loader::hosts::{self, RunningHost};
use context_engine_loader::platform::LIBRARY_EXTENSION;
use context_engine_loader::{LEGACY, LoaderError, Plugin, on_one_line};
use context_engine_runtime::config::edit::Edit;
use context_engine_runtime::expand;
use serde_json::json;

use super::args::UninstallArgs;
use super::place::Away;
use super::{HEEDED, Told, alone, known_ids, other_names, prepared, unknown};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::path_json;
use crate::setup::Host;

pub(super) fn run(args: &UninstallArgs) -> Result<Outcome, CliError> {
    let id = args.id.as_str();
    if id == LEGACY {
        return Err(CliError::BuiltIn { what: "cannot be uninstalled" });
    }
    let (host, _lock) = match args.dry_run {
        true => (Host::new(&Directories { plugins: vec![] })?, None),
        false => alone(false)?,
    };
    let found = host.loader.scan();
    let Places { files, links, unmounted, elsewhere } = where_it_is(&host, &found, id);
    let (edits, keys) = edits(&host, id, &links);
    // An id that is no name of a folder has none.
    let is_name = id.starts_with(|c: char| c.is_ascii_alphanumeric()) && !id.contains(['/', '\\']);
    let stored = Some(host.home.state().join("engines").join(id)).filter(|folder| is_name && folder.is_dir());
    if files.is_empty() && edits.is_empty() && elsewhere.is_empty() && stored.is_none() {
        return Err(unknown(id, known_ids(&host, &found)));
    }
    if args.purge && stored.is_some() {
        is_let_go(&host, id)?;
    }
    let would = if args.dry_run { "would be " } else { "" };
    let removed: &[PathBuf] = if args.keep_files { &[] } else { &files };
    let mut told = Told::new(json!({
        "id": id,
        "dryRun": args.dry_run,
        "removed": removed.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
        "config": keys,
        "purged": args.purge && stored.is_some(),
        "elsewhere": elsewhere.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
    }));
    if !args.dry_run {
        take_away(&host, removed, &edits, &mut told)?;
    }
    if !edits.is_empty() {
        told.say(format!("config    {would}changed: {}", keys.join(", ")));
    }
    for path in removed {
        told.say(format!("removed   {would}{}", path.display()));
    }
    for path in files.iter().filter(|_| args.keep_files) {
        told.say(format!("kept      {}; it can still be used by its id", path.display()));
    }
    if let Some(folder) = stored {
        let purged = if args.purge && !args.dry_run { std::fs::remove_dir_all(&folder) } else { Ok(()) };
        let shown = folder.display();
        match purged {
            Err(error) => {
                told.json["purged"] = false.into();
                told.warn(format!("kept      {shown}, what the engine has stored: it cannot be removed: {error}"));
            }
            Ok(()) if args.purge => told.say(format!("removed   {would}{shown}, what the engine had stored")),
            Ok(()) => told.say(format!("kept      {shown}, what the engine has stored; --purge removes it")),
        }
    }
    let allow = host.config.plugins.allow.as_deref();
    if allow.is_some_and(|allow| !allow.is_empty() && allow.iter().all(|allowed| allowed == id)) {
        told.say("plugins.allow is empty now, so no plugin is used; remove the key to allow every id");
    }
    for path in unmounted {
        let path = path.display();
        told.say(format!(
            "kept      {path} in plugins.load.paths: nothing is there now, and it may be a plugins directory"
        ));
    }
    for path in elsewhere {
        told.warn(format!("not ours  {} has this id, too, and was not touched; remove it there", path.display()));
    }
    if args.dry_run {
        return told.show(args.json);
    }
    told.say(HEEDED);
    told.print(args.json)
}

/// What is stored is not removed under a host that uses it: as it lets go of the engine, the engine writes it again.
fn is_let_go(host: &Host, id: &str) -> Result<(), CliError> {
    let running = hosts::running(&host.home.state());
    let uses = |host: &&RunningHost| host.engines.iter().any(|engine| engine.id == id && engine.digest.is_some());
    match running.iter().find(uses) {
        Some(host) => {
            Err(CliError::InUse { id: id.to_owned(), pid: host.process.pid, label: on_one_line(&host.label) })
        }
        None => Ok(()),
    }
}

/// Files and configuration, or nothing of both. The files first: what was forbidden or pinned must be gone before the
/// configuration no longer says so, and a host that looks between finds a slot that names what is missing, and says that.
fn take_away(host: &Host, files: &[PathBuf], edits: &[Edit], told: &mut Told) -> Result<(), CliError> {
    let plugins = host.home.plugins();
    let failed = |source| CliError::File { path: plugins.clone(), doing: "removing the plugin", source };
    let prepared = prepared(host, edits)?;
    let away = Away::take(&plugins, files).map_err(failed)?;
    if let Err(error) = prepared.commit() {
        away.map_or(Ok(()), Away::put_back).map_err(failed)?;
        return Err(error.into());
    }
    if let Some(Err(error)) = away.map(Away::delete) {
        told.warn(format!("what was removed is hidden in {} and cannot be deleted: {error}", plugins.display()));
    }
    Ok(())
}

struct Places {
    /// Of the home.
    files: Vec<PathBuf>,
    /// Paths in `plugins.load.paths` that are the plugin itself.
    links: Vec<PathBuf>,
    /// Paths there that are called so, and where nothing is: of a drive that is not mounted, for example.
    unmounted: Vec<PathBuf>,
    /// What else has the id.
    elsewhere: Vec<PathBuf>,
}

fn where_it_is(host: &Host, found: &[Result<Plugin, LoaderError>], id: &str) -> Places {
    let is_it = |error: &LoaderError| match &error.engine {
        Some(engine) => engine == id,
        // What cannot be read says nothing about itself but its name.
        None => is_called(&error.path, id),
    };
    let plugins = host.home.plugins();
    let paths = found.iter().flat_map(|found| match found {
        Ok(plugin) if plugin.info().id == id => {
            let mut names = other_names(&plugins, plugin);
            names.push(plugin.candidate().path.clone());
            names
        }
        Err(error) if is_it(error) => vec![error.path.clone()],
        _ => vec![],
    });
    let (mut files, mut elsewhere) = (vec![], vec![]);
    let configured = &host.config.plugins.load.paths;
    let gone = configured.iter().filter(|path| !expand(path).exists() && is_called(path, id)).cloned();
    // Only a library is a plugin by its name.
    let (mut links, unmounted): (Vec<PathBuf>, Vec<PathBuf>) =
        gone.partition(|path| path.extension().is_some_and(|extension| extension == LIBRARY_EXTENSION));
    for path in paths {
        match configured.iter().find(|configured| expand(configured) == path) {
            Some(link) => links.push(link.clone()),
            None if path.parent() == Some(&plugins) => files.push(path),
            None => elsewhere.push(path),
        }
    }
    Places { files, links, unmounted, elsewhere }
}

fn is_called(path: &Path, id: &str) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = stem.strip_prefix(std::env::consts::DLL_PREFIX).unwrap_or(&stem).to_owned();
    stem == id || stem.replace('_', "-") == id
}

/// What is changed in the configuration, and the keys in words.
fn edits(host: &Host, id: &str, links: &[PathBuf]) -> (Vec<Edit>, Vec<String>) {
    let plugins = &host.config.plugins;
    let names = |list: &[String]| list.iter().any(|listed| listed == id);
    let (mut edits, mut keys) = (vec![], vec![]);
    let mut change = |edit: Edit, key: String| {
        edits.push(edit);
        keys.push(key);
    };
    // Another engine may have been selected meanwhile.
    if let Some(slot) = plugins.slots.context_engine.as_deref().filter(|slot| slot.trim() == id) {
        change(
            Edit::set(&["plugins", "slots", "contextEngine"], LEGACY).if_still(slot),
            "plugins.slots.contextEngine is legacy again".to_owned(),
        );
    }
    if plugins.slots.memory.as_ref().is_some_and(|slot| slot == id) {
        change(
            Edit::remove(&["plugins", "slots", "memory"]).if_still(id),
            "plugins.slots.memory is at its default again".to_owned(),
        );
    }
    if plugins.entries.contains_key(id) {
        change(Edit::remove(&["plugins", "entries", id]), format!("plugins.entries.{id} is gone"));
    }
    for (key, named) in [("allow", plugins.allow.as_deref().is_some_and(names)), ("deny", names(&plugins.deny))] {
        if named {
            change(Edit::drop(&["plugins", key], id), format!("plugins.{key} no longer names it"));
        }
    }
    for link in links {
        let text = link.to_string_lossy();
        change(
            Edit::drop(&["plugins", "load", "paths"], text.as_ref()),
            format!("plugins.load.paths no longer has {text}"),
        );
    }
    (edits, keys)
}
