//! `context-engine plugins install`: a library, a folder, an archive or a crate becomes a plugin of the home folder.
//!
//! Decision: everything that could speak against it is asked before anything is written; what is copied is what was
//! inspected, from the loader's private copy, and not what lies in its place a moment later. `--link` names the build's own
//! path in `plugins.load.paths`: what lies in the plugins directory must not lead out of it, and a path there is looked at
//! again at every scan.

mod source;

use std::path::{Path, PathBuf};

use context_engine_loader::trust::names_digest;
use context_engine_loader::{LoaderError, Origin, Plugin, Problem, on_one_line};
use context_engine_runtime::config::edit::Edit;
use context_engine_runtime::expand;
use serde_json::json;

use super::args::InstallArgs;
use super::place::Placing;
use super::{HEEDED, Told, alone, other_names, place, prepared, select};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::path_json;
use crate::setup::Host;

pub(super) fn run(args: &InstallArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let (path, _work) = source::source(&host, args)?;
    let plugin = source::inspect(&host, &path, args.path.as_deref().unwrap_or(&path))?;
    let (host, lock) = alone(!args.link)?;
    let found = host.loader.scan();
    may_be(&host, &plugin, &found, args)?;
    let mut told = match args.link {
        true => link(&host, &plugin, &path)?,
        false => copy_and_pin(&host, &plugin, &found, args)?,
    };
    // Trying it out takes its time.
    drop(lock);
    follow_up(&plugin, &found, args, &mut told);
    told.print(args.json)
}

/// What speaks against it that --force or another option is there for.
fn may_be(
    host: &Host,
    plugin: &Plugin,
    found: &[Result<Plugin, LoaderError>],
    args: &InstallArgs,
) -> Result<(), CliError> {
    let (id, path) = (&plugin.info().id, &plugin.candidate().path);
    let entry = host.config.plugins.entries.get(id);
    if let Some(pin) = entry.and_then(|entry| entry.pin.as_ref()).filter(|_| !args.pin) {
        let digest = plugin.staged().digest.to_string();
        if !names_digest(pin, &digest) {
            let reason =
                format!("plugins.entries.{id}.pin asks for {pin}, this is sha256:{digest}; --pin pins this build");
            return Err(refusal(path, reason));
        }
    }
    if let Some(other) = rival(host, plugin, found).filter(|_| !args.force) {
        let other = other.display();
        let reason = format!(
            "the id \"{id}\" is taken by {other}, whose directory comes first in plugins.load.paths, so this one would not \
             be used; `context-engine plugins uninstall {id}` or another order there changes that, --force installs it \
             beside it"
        );
        return Err(refusal(path, reason));
    }
    if args.link {
        return Ok(());
    }
    let Some((target, what)) = in_the_way(host, plugin, found) else { return Ok(()) };
    let shown = target.display();
    // What a person keeps there is no build that can be installed again.
    if is_folder_of_somebody(&target) {
        let reason =
            format!("{shown} is a folder and no plugin, and is not deleted, not even with --force; move it away");
        return Err(refusal(path, reason));
    }
    if !args.force {
        let reason = format!("{shown} is there already and is {what}; move it away, or --force replaces it");
        return Err(refusal(path, reason));
    }
    Ok(())
}

/// What has the name the plugin gets and is not the same engine: where, and what it is.
fn in_the_way(host: &Host, plugin: &Plugin, found: &[Result<Plugin, LoaderError>]) -> Option<(PathBuf, String)> {
    let id = &plugin.info().id;
    let target = place::target(&host.home.plugins(), id, plugin.candidate().manifest.is_some());
    if target.symlink_metadata().is_err() || managed(host, found, id).contains(&target) {
        return None;
    }
    let at_target = |found: &&Result<Plugin, LoaderError>| match found {
        Ok(plugin) => plugin.candidate().path == target,
        Err(error) => error.path == target,
    };
    let what = match found.iter().find(at_target) {
        Some(Ok(other)) => format!("not \"{id}\" but \"{}\" {}", other.info().id, other.info().version),
        Some(Err(LoaderError { engine: Some(other), .. })) => format!("not \"{id}\" but \"{}\"", on_one_line(other)),
        Some(Err(_)) | None => format!("not \"{id}\" as far as can be told"),
    };
    Some((target, what))
}

fn is_folder_of_somebody(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) && !path.join("plugin.json").exists()
}

/// Another plugin with the same id that is used before it.
fn rival(host: &Host, plugin: &Plugin, found: &[Result<Plugin, LoaderError>]) -> Option<PathBuf> {
    let home = std::fs::canonicalize(host.home.plugins()).unwrap_or_else(|_| host.home.plugins());
    let others = found.iter().flatten().filter(|other| other.info().id == plugin.info().id);
    let mut others = others.map(|other| other.candidate());
    others
        .find(|other| {
            other.origin == Origin::Configured && other.root != home && other.library != plugin.candidate().library
        })
        .map(|other| other.path.clone())
}

/// What lies in the home's plugins directory and says that it is `id`.
pub(super) fn managed(host: &Host, found: &[Result<Plugin, LoaderError>], id: &str) -> Vec<PathBuf> {
    let plugins = host.home.plugins();
    let of_id = found.iter().flat_map(|found| match found {
        Ok(plugin) if plugin.info().id == id => {
            let mut names = other_names(&plugins, plugin);
            names.insert(0, plugin.candidate().path.clone());
            names
        }
        Err(error) if error.engine.as_deref() == Some(id) => vec![error.path.clone()],
        _ => vec![],
    });
    of_id.filter(|path| path.parent() == Some(&plugins)).collect()
}

fn link(host: &Host, plugin: &Plugin, path: &Path) -> Result<Told, CliError> {
    let path = place::plain(path).map_err(|source| CliError::File {
        path: path.to_owned(),
        doing: "finding where it lies",
        source,
    })?;
    let Some(text) = path.to_str() else {
        return Err(refusal(&path, "its path is no UTF-8 and cannot stand in config.json5; move it".to_owned()));
    };
    if path.parent() == Some(host.home.plugins().as_path()) {
        let reason = "it lies in the plugins directory, where it is used already; link a build elsewhere".to_owned();
        return Err(refusal(&path, reason));
    }
    // By whatever path it is listed, it is this file.
    let is_it = |listed: &PathBuf| {
        expand(listed) == path
            || std::fs::canonicalize(expand(listed)).is_ok_and(|listed| listed == plugin.candidate().root)
    };
    let listed = host.config.plugins.load.paths.iter().any(is_it);
    let changed = !listed && prepared(host, &[Edit::add(&["plugins", "load", "paths"], text)])?.commit()?;
    let mut told = Told::new(json!({ "linked": true, "changed": changed, "path": path_json(&path) }));
    let (id, version) = (&plugin.info().id, &plugin.info().version);
    told.say(match changed {
        true => format!("linked    {id} {version}, {text}: it is used in place, and followed when it is built again"),
        false => format!("{id} is linked already; there was nothing to link"),
    });
    Ok(told)
}

/// The file first: the other way round, the build that is in use would be forbidden for a moment.
fn copy_and_pin(
    host: &Host,
    plugin: &Plugin,
    found: &[Result<Plugin, LoaderError>],
    args: &InstallArgs,
) -> Result<Told, CliError> {
    let mark = place::pinning(&host.home.plugins(), &plugin.info().id);
    if !args.pin {
        let told = copy(host, plugin, found)?;
        let _ = std::fs::remove_file(mark);
        return Ok(told);
    }
    let (id, digest) = (plugin.info().id.as_str(), format!("sha256:{}", plugin.staged().digest));
    let prepared = prepared(host, &[Edit::set(&["plugins", "entries", id, "pin"], digest)])?;
    // For who is killed in between: it stays behind.
    let _mark =
        Mark::set(mark).map_err(|(path, source)| CliError::File { path, doing: "noting what is pinned", source })?;
    let mut told = copy(host, plugin, found)?;
    match prepared.commit() {
        Ok(_) => {
            told.say(format!("pinned    {id} to this build; another one is refused until `install --pin` pins that"))
        }
        Err(error) if told.json["changed"] == false => return Err(error.into()),
        Err(error) => told.warn(format!("it was not pinned: {error}")),
    }
    Ok(told)
}

/// A file that is there as long as this is.
struct Mark(PathBuf);

impl Mark {
    fn set(path: PathBuf) -> Result<Mark, (PathBuf, std::io::Error)> {
        match std::fs::write(&path, "") {
            Ok(()) => Ok(Mark(path)),
            Err(error) => Err((path, error)),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Left behind, it is named by the next command.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn copy(host: &Host, plugin: &Plugin, found: &[Result<Plugin, LoaderError>]) -> Result<Told, CliError> {
    let (info, plugins) = (plugin.info(), host.home.plugins());
    let digest = plugin.staged().digest;
    let manifest = plugin.candidate().manifest.as_ref();
    let target = place::target(&plugins, &info.id, manifest.is_some());
    let mut before: Vec<(PathBuf, Option<Plugin>)> = managed(host, found, &info.id)
        .into_iter()
        .map(|path| (path.clone(), host.loader.inspect(&path).ok()))
        .collect();
    // The one that is used first, and before the links to it.
    let is_used = |path: &Path| {
        let used = |real: PathBuf| found.iter().flatten().any(|used| used.candidate().library.starts_with(&real));
        std::fs::canonicalize(path).is_ok_and(used)
    };
    before.sort_by_key(|(path, _)| (!is_used(path), path.is_symlink(), *path != target));
    let old = before.iter().find_map(|(_, plugin)| plugin.as_ref());
    let replaced = in_the_way(host, plugin, found);
    let same = old.filter(|old| old.staged().digest == digest);
    let mut told = Told::new(json!({ "linked": false, "path": path_json(&target) }));
    if let ([(path, _)], Some(_), None) = (before.as_slice(), same, manifest)
        && path.is_file()
    {
        told.json["changed"] = false.into();
        told.json["path"] = path_json(path);
        told.say(format!("{} {} is installed already, this same build; nothing was copied", info.id, info.version));
        return Ok(told);
    }
    let failed = |source| CliError::File { path: target.clone(), doing: "installing the plugin", source };
    let work = place::workplace(&plugins).map_err(failed)?;
    let made = work.path().join("made");
    let library = match manifest {
        None => made.clone(),
        Some(manifest) => {
            place::copy_folder(&plugin.candidate().path, &made).map_err(failed)?;
            let library = manifest.library(&made)?;
            std::fs::remove_file(&library).map_err(failed)?;
            library
        }
    };
    let mut inspected = std::fs::File::open(&plugin.staged().path).map_err(failed)?;
    place::write(&mut inspected, &library, false).map_err(failed)?;
    // The folder was copied after it was inspected.
    let copied = host.loader.inspect(&made)?;
    if copied.info().id != info.id || copied.staged().digest != digest {
        return Err(refusal(
            &plugin.candidate().path,
            "it changed while it was copied; run the command again".to_owned(),
        ));
    }
    let paths: Vec<PathBuf> = before.iter().map(|(path, _)| path.clone()).collect();
    let (id, version) = (info.id.as_str(), info.version.as_str());
    let placing = Placing { id, version, work: work.path(), made: &made, target: &target, before: &paths };
    place::place(&placing).map_err(failed)?;
    told.json["changed"] = true.into();
    told.json["before"] =
        old.map(|old| json!({ "version": old.info().version, "digest": old.staged().digest.to_string() })).into();
    let shown = target.display();
    told.say(match (old, same) {
        (_, Some(_)) => format!("installed {id} {version} again, this same build, as {shown}"),
        (Some(old), None) => format!(
            "installed {id} {version} (sha256:{digest}) in place of {} (sha256:{}), as {shown}",
            old.info().version,
            old.staged().digest
        ),
        (None, None) => format!("installed {id} {version} (sha256:{digest}) as {shown}"),
    });
    if let Some((path, what)) = replaced {
        told.json["replaced"] = path_json(&path);
        told.say(format!("replaced  {}, which was {what}, because of --force", path.display()));
    }
    // Two different files with one id in one directory: neither would be used.
    for path in paths.iter().filter(|path| **path != target) {
        told.say(format!("removed   {}, which had the same id", path.display()));
    }
    Ok(told)
}

/// Selects it, and says what else there is to know. What fails here is said: the plugin is installed.
fn follow_up(plugin: &Plugin, found: &[Result<Plugin, LoaderError>], args: &InstallArgs, told: &mut Told) {
    let (info, digest) = (plugin.info(), plugin.staged().digest.to_string());
    let id = info.id.as_str();
    told.json["id"] = id.into();
    told.json["version"] = info.version.clone().into();
    told.json["digest"] = digest.into();
    let namesake = found.iter().flatten().find(|other| other.info().name == info.name && other.info().id != id);
    if let Some(other) = namesake {
        told.say(format!(
            "note      \"{}\" is also the name of the engine \"{}\"; the id counts",
            info.name,
            other.info().id
        ));
    }
    // As any host reads it from now on.
    let host = match Host::new(&Directories { plugins: vec![] }) {
        Ok(host) => host,
        Err(error) => return told.warn(format!("whether it is used is not known: {error}")),
    };
    let pin = host.config.plugins.entries.get(id).and_then(|entry| entry.pin.as_ref());
    told.json["pinned"] = pin.is_some_and(|pin| names_digest(pin, &plugin.staged().digest.to_string())).into();
    for path in behind(&host, id).iter().filter(|_| args.link) {
        let path = path.display();
        told.warn(format!(
            "not used  {path}, which has this id, too, and comes after the linked build; remove it, or uninstall {id} and link \
             it again"
        ));
    }
    let used = host.loader.find(id);
    if let Err(error) = &used {
        told.warn(format!("it is not used as it is: {error}"));
    } else if let Some(used) = used.as_ref().ok().filter(|used| used.staged().digest != plugin.staged().digest) {
        told.warn(format!("it is not used as it is: {} has this id and comes first", used.candidate().path.display()));
    }
    let slot = host.config.plugins.slots.context_engine.as_deref().map_or("", str::trim).to_owned();
    let mut selected = slot == id;
    if args.select {
        match select::obstacle(&host, id) {
            Some(reason) if !args.force => told.warn(format!("it was not selected: {reason}")),
            why => match select::put(&host, id, why) {
                Ok(chosen) => {
                    selected = true;
                    told.finding |= chosen.finding;
                    told.lines.extend(chosen.lines);
                }
                Err(error) => told.warn(format!("it was not selected: {error}")),
            },
        }
    } else if used.is_ok() {
        told.say(match selected {
            true => format!("it is in the slot; {HEEDED}"),
            false => format!("`context-engine plugins select {id}` tries it out and puts it into the slot"),
        });
    }
    told.json["selected"] = selected.into();
}

/// What has the id, too, and is not used because another one comes first.
fn behind(host: &Host, id: &str) -> Vec<PathBuf> {
    let refused = host.loader.scan().into_iter().filter_map(Result::err);
    let shadowed = refused
        .filter(|error| error.engine.as_deref() == Some(id) && matches!(error.problem, Problem::Shadowed { .. }));
    shadowed.map(|error| error.path).collect()
}

pub(super) fn refusal(path: &Path, reason: String) -> CliError {
    CliError::NotInstalled { path: path.to_owned(), reason }
}
