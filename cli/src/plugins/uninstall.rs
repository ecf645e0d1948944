//! `context-engine plugins uninstall`
//!
//! Decision: the configuration first, the files after it: a slot must not name what is gone. Files are removed in the home's
//! plugins directory only; what an engine has stored stays unless that is asked for, because it cannot be made again.

use std::path::{Path, PathBuf};

use context_engine_loader::{LEGACY, LoaderError, Plugin};
use context_engine_runtime::config::edit::Edit;
use context_engine_runtime::expand;
use serde_json::json;

use super::args::UninstallArgs;
use super::{HEEDED, Told, configure, known_ids, place, unknown};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::path_json;
use crate::setup::Host;

pub(super) fn run(args: &UninstallArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let id = args.id.as_str();
    if id == LEGACY {
        return Err(CliError::BuiltIn { what: "cannot be uninstalled" });
    }
    let found = host.loader.scan();
    let (files, links, elsewhere) = where_it_is(&host, &found, id);
    let (edits, keys) = edits(&host, id, &links);
    // An id that is no name of a folder has none.
    let is_name = id.starts_with(|c: char| c.is_ascii_alphanumeric()) && !id.contains(['/', '\\']);
    let stored = Some(host.home.state().join("engines").join(id)).filter(|folder| is_name && folder.is_dir());
    if files.is_empty() && edits.is_empty() && elsewhere.is_empty() && stored.is_none() {
        return Err(unknown(id, known_ids(&host, &found)));
    }
    let would = if args.dry_run { "would be " } else { "" };
    let removed: Vec<&PathBuf> = files.iter().filter(|_| !args.keep_files).collect();
    let mut told = Told::new(json!({
        "id": id,
        "dryRun": args.dry_run,
        "removed": removed.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
        "config": keys,
        "purged": args.purge && stored.is_some(),
        "elsewhere": elsewhere.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
    }));
    if !edits.is_empty() {
        if !args.dry_run {
            configure(&host, &edits)?;
        }
        told.say(format!("config    {would}changed: {}", keys.join(", ")));
    }
    for path in removed {
        if !args.dry_run {
            let failed = |source| CliError::File { path: path.clone(), doing: "removing the plugin", source };
            place::remove(path).map_err(failed)?;
        }
        told.say(format!("removed   {would}{}", path.display()));
    }
    for path in files.iter().filter(|_| args.keep_files) {
        told.say(format!("kept      {}; it can still be used by its id", path.display()));
    }
    if let Some(folder) = stored {
        match args.purge {
            true => {
                if !args.dry_run {
                    let failed =
                        |source| CliError::File { path: folder.clone(), doing: "removing what is stored", source };
                    std::fs::remove_dir_all(&folder).map_err(failed)?;
                }
                told.say(format!("removed   {would}{}, what the engine had stored", folder.display()));
            }
            false => {
                told.say(format!("kept      {}, what the engine has stored; --purge removes it", folder.display()))
            }
        }
    }
    let allow = host.config.plugins.allow.as_deref();
    if allow.is_some_and(|allow| !allow.is_empty() && allow.iter().all(|allowed| allowed == id)) {
        told.say("plugins.allow is empty now, so no plugin is used; remove the key to allow every id");
    }
    for path in elsewhere {
        told.warn(format!("not ours  {} has this id, too, and was not touched; remove it there", path.display()));
    }
    if !args.dry_run {
        told.say(HEEDED);
    }
    told.print(args.json)
}

type Places = (Vec<PathBuf>, Vec<PathBuf>, Vec<PathBuf>);

/// Files of the home, paths in `plugins.load.paths` that are the plugin itself, and what else has the id.
fn where_it_is(host: &Host, found: &[Result<Plugin, LoaderError>], id: &str) -> Places {
    let is_it = |error: &LoaderError| match &error.engine {
        Some(engine) => engine == id,
        // What cannot be read says nothing about itself but its name.
        None => is_called(&error.path, id),
    };
    let paths = found.iter().filter_map(|found| match found {
        Ok(plugin) if plugin.info().id == id => Some(plugin.candidate().path.clone()),
        Err(error) if is_it(error) => Some(error.path.clone()),
        _ => None,
    });
    let (mut files, mut elsewhere) = (vec![], vec![]);
    let configured = &host.config.plugins.load.paths;
    let mut links: Vec<PathBuf> =
        configured.iter().filter(|path| !expand(path).exists() && is_called(path, id)).cloned().collect();
    for path in paths {
        match configured.iter().find(|configured| expand(configured) == path) {
            Some(link) => links.push(link.clone()),
            None if path.parent() == Some(&host.home.plugins()) => files.push(path),
            None => elsewhere.push(path),
        }
    }
    (files, links, elsewhere)
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
    if plugins.slots.context_engine.as_deref().is_some_and(|slot| slot.trim() == id) {
        change(
            Edit::set(&["plugins", "slots", "contextEngine"], LEGACY),
            "plugins.slots.contextEngine is legacy again".to_owned(),
        );
    }
    if plugins.slots.memory.as_ref().is_some_and(|slot| slot == id) {
        change(
            Edit::remove(&["plugins", "slots", "memory"]),
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
