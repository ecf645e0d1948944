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
use context_engine_runtime::{Config, expand};
use serde_json::json;

use super::args::UninstallArgs;
use super::place::Away;
use super::{HEEDED, Told, alone, known_ids, other_names, place, prepared, unknown};
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
    // What keeps such a file from being used must not go before it.
    let remains = !elsewhere.is_empty() || (args.keep_files && !files.is_empty());
    let Changes { edits, mut keys, kept } = changes(&host, id, &links, remains);
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
        let _ = std::fs::remove_file(place::pinning(&host.home.plugins(), id));
        say_slots(&host, &mut keys, &mut told);
        told.json["config"] = json!(keys);
    }
    if !keys.is_empty() {
        told.say(format!("config    {would}changed: {}", keys.join(", ")));
    }
    for path in removed {
        told.say(format!("removed   {would}{}", path.display()));
    }
    for path in files.iter().filter(|_| args.keep_files) {
        let used = if kept.is_empty() { "; it can still be used by its id" } else { "" };
        told.say(format!("kept      {}{used}", path.display()));
    }
    if !kept.is_empty() {
        let kept = kept.join(" and ");
        told.say(format!(
            "kept      {kept}, because a file with this id is still there; without them it could be used"
        ));
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

/// A slot that somebody gave to another engine meanwhile was left alone.
fn say_slots(host: &Host, keys: &mut Vec<String>, told: &mut Told) {
    let Ok(now) = Config::read(&host.home.config()) else { return };
    if let Some(slot) = now.plugins.slots.context_engine.filter(|slot| slot.trim() != LEGACY)
        && let Some(at) = keys.iter().position(|key| key == SLOT_IS_BACK)
    {
        keys.remove(at);
        told.say(format!("kept      plugins.slots.contextEngine at {slot}, which was put there meanwhile"));
    }
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

/// What is said when the slot goes back to its default.
const SLOT_IS_BACK: &str = "plugins.slots.contextEngine is legacy again";

#[derive(Default)]
struct Changes {
    edits: Vec<Edit>,
    /// The same in words.
    keys: Vec<String>,
    /// Keys that stay, because they keep a file that remains from being used.
    kept: Vec<String>,
}

impl Changes {
    fn make(&mut self, edit: Edit, key: impl Into<String>) {
        self.edits.push(edit);
        self.keys.push(key.into());
    }
}

/// What is changed in the configuration. Where a file with the id `remains`, nothing is that would let it be used again.
fn changes(host: &Host, id: &str, links: &[PathBuf], remains: bool) -> Changes {
    let plugins = &host.config.plugins;
    let names = |list: &[String]| list.iter().any(|listed| listed == id);
    let mut changes = Changes::default();
    // Another engine may have been selected meanwhile.
    if let Some(slot) = plugins.slots.context_engine.as_deref().filter(|slot| slot.trim() == id) {
        changes.make(Edit::set(&["plugins", "slots", "contextEngine"], LEGACY).if_still(slot), SLOT_IS_BACK);
    }
    if plugins.slots.memory.as_ref().is_some_and(|slot| slot == id) {
        let edit = Edit::remove(&["plugins", "slots", "memory"]).if_still(id);
        changes.make(edit, "plugins.slots.memory is at its default again");
    }
    if let Some(entry) = plugins.entries.get(id) {
        let own = format!("plugins.entries.{id}");
        let off = entry.enabled == Some(false);
        let blocking = [("pin", entry.pin.is_some()), ("enabled", off)].into_iter().filter(|(_, is_there)| *is_there);
        let blocking: Vec<String> = blocking.filter(|_| remains).map(|(key, _)| format!("{own}.{key}")).collect();
        if blocking.is_empty() {
            changes.make(Edit::remove(&["plugins", "entries", id]), format!("{own} is gone"));
        } else {
            for (key, is_there) in [
                ("config", entry.config.is_some()),
                ("timeoutsMs", !entry.timeouts_ms.is_empty()),
                ("enabled", entry.enabled == Some(true)),
            ] {
                if is_there {
                    changes.make(Edit::remove(&["plugins", "entries", id, key]), format!("{own}.{key} is gone"));
                }
            }
        }
        changes.kept.extend(blocking);
    }
    if plugins.allow.as_deref().is_some_and(names) {
        changes.make(Edit::drop(&["plugins", "allow"], id), "plugins.allow no longer names it");
    }
    match names(&plugins.deny) {
        true if remains => changes.kept.push("plugins.deny".to_owned()),
        true => changes.make(Edit::drop(&["plugins", "deny"], id), "plugins.deny no longer names it"),
        false => {}
    }
    for link in links {
        let text = link.to_string_lossy();
        let edit = Edit::drop(&["plugins", "load", "paths"], text.as_ref());
        changes.make(edit, format!("plugins.load.paths no longer has {text}"));
    }
    changes
}
