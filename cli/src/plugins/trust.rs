//! `context-engine plugins trust`: a plugin that came with a workspace is used, as long as its library is this very file.
//!
//! Decision: by path and digest. By id alone, any repository could bring a file that calls itself so; a library that changes,
//! by a pull for example, is a new question to the person. What is trusted has to be what a host would find in that
//! workspace, and afterwards it is looked at as that host does: exit code 0 means that it is used.

use std::path::{Path, PathBuf};

use context_engine_loader::trust::{TrustPolicy, names_digest};
use context_engine_loader::{Loader, LoaderError, LoaderOptions, Origin, Plugin, PluginDirectory, for_shell};
use context_engine_runtime::config::Trusted;
use context_engine_runtime::config::edit::Edit;
use serde_json::{Value, json};

use super::args::TrustArgs;
use super::{Told, configure, known_ids, unknown};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::path_json;
use crate::setup::{Host, WORKSPACE_PLUGINS};

pub(super) fn run(args: &TrustArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    match &args.what {
        None => list(&host).show(args.json),
        Some(what) if args.remove => remove(&host, what)?.print(args.json),
        Some(what) => add(&host, what)?.print(args.json),
    }
}

fn list(host: &Host) -> Told {
    let trusted = &host.config.plugins.trusted;
    let mut shown = vec![];
    let mut told = Told::new(Value::Null);
    for Trusted { path, sha256 } in trusted {
        let found = host.loader.inspect(path).map(|plugin| plugin.staged().digest.to_string());
        let state = match &found {
            Ok(digest) if names_digest(sha256, digest) => "trusted",
            Ok(_) => "changed",
            Err(_) => "unusable",
        };
        let hex = sha256.trim();
        let text = format!("{state:<10}{}  sha256:{}", path.display(), hex.strip_prefix("sha256:").unwrap_or(hex));
        shown.push(json!({ "path": path_json(path), "sha256": sha256, "state": state }));
        match (state, found) {
            ("trusted", _) => told.say(text),
            ("changed", _) => {
                told.warn(format!("{text}; `context-engine plugins trust {}` trusts it as it is", for_shell(path)))
            }
            (_, Err(error)) => told.warn(format!("{text}; {}", error.problem)),
            _ => {}
        }
    }
    if shown.is_empty() {
        told.say("no plugin of a workspace is trusted");
    }
    told.json = json!({ "trusted": shown });
    told
}

fn add(host: &Host, what: &str) -> Result<Told, CliError> {
    let Meant { mut usable, refused, folder, .. } = meant(host, what)?;
    if usable.is_empty() {
        return Err(match refused.into_iter().next() {
            Some(error) => error.into(),
            None => CliError::NothingToTrust { path: what.into() },
        });
    }
    usable.sort_by(|a, b| a.candidate().path.cmp(&b.candidate().path));
    let mut told = Told::new(Value::Null);
    let (mut shown, mut edits) = (vec![], vec![]);
    for plugin in &usable {
        let path = real(&plugin.candidate().path);
        let Some(text) = path.to_str() else {
            return Err(CliError::NotUtf8 { path });
        };
        let digest = plugin.staged().digest.to_string();
        let of_path = host.config.plugins.trusted.iter().filter(|trusted| trusted.path == path);
        let (same, old): (Vec<&Trusted>, Vec<&Trusted>) =
            of_path.partition(|trusted| names_digest(&trusted.sha256, &digest));
        edits.extend(old.iter().map(|&trusted| Edit::Distrust(trusted.clone())));
        if same.is_empty() {
            edits.push(Edit::add(&["plugins", "trusted"], json!({ "path": text, "sha256": digest })));
        }
        let changed = same.is_empty() || !old.is_empty();
        let info = plugin.info();
        shown.push(json!({ "id": info.id, "path": text, "sha256": digest, "changed": changed }));
        told.say(match (changed, &plugin.candidate().manifest) {
            (false, _) => format!("{} is trusted already, this same library", info.id),
            (true, None) => {
                format!(
                    "trusted   {} {}, {text}, as long as it is this very file (sha256:{digest})",
                    info.id, info.version
                )
            }
            (true, Some(_)) => format!(
                "trusted   {} {}, {text}, as long as its library is this very file (sha256:{digest}); plugin.json and \
                 other files of the folder may change",
                info.id, info.version
            ),
        });
    }
    configure(host, &edits)?;
    say_use(&usable, &folder, &mut told)?;
    for error in refused {
        told.warn(format!("not trusted, because it cannot be used: {error}"));
    }
    told.json = json!({ "trusted": shown });
    Ok(told)
}

/// Whether a host in that workspace uses them now, by its own rules: trust is not all it takes.
fn say_use(usable: &[Plugin], folder: &Path, told: &mut Told) -> Result<(), CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let workspace = PluginDirectory { path: folder.to_owned(), origin: Origin::Workspace };
    let directories = host.home.plugin_directories(&host.config).into_iter().chain([workspace]).collect();
    let found = scan(&host, directories, host.config.trust_policy());
    for plugin in usable {
        let (id, path) = (&plugin.info().id, &plugin.candidate().path);
        let refused = found.iter().filter_map(|found| found.as_ref().err()).find(|error| error.path == *path);
        if let Some(error) = refused {
            told.warn(format!("it is not used all the same: {}", error.problem));
        } else if host.config.plugins.slots.context_engine.as_deref().map(str::trim) != Some(id) {
            told.say(format!("`context-engine plugins select {id}`, run in that workspace, puts it into the slot"));
        }
    }
    Ok(())
}

fn scan(host: &Host, directories: Vec<PluginDirectory>, policy: TrustPolicy) -> Vec<Result<Plugin, LoaderError>> {
    let options = LoaderOptions { directories, state_dir: host.home.state(), policy, ..LoaderOptions::default() };
    Loader::new(options).scan()
}

struct Meant {
    usable: Vec<Plugin>,
    refused: Vec<LoaderError>,
    /// The plugins directory they lie in.
    folder: PathBuf,
    /// Whether it was the id that was meant.
    by_id: bool,
}

/// The plugins that are meant by a folder, a file or an id of the workspace this command is run in. They are found as a host
/// finds them, by their plugins directory: what only its own path leads to is used by no host.
fn meant(host: &Host, what: &str) -> Result<Meant, CliError> {
    // Everything is asked but what trusting them changes.
    let of_folder = |folder: &Path| {
        scan(
            host,
            vec![PluginDirectory { path: folder.to_owned(), origin: Origin::Configured }],
            TrustPolicy::default(),
        )
    };
    // An id first: what is called so in this folder may be anything. A path can be written as ./alpha.
    let here = PathBuf::from(WORKSPACE_PLUGINS);
    let is_meant = |found: &Result<Plugin, LoaderError>| match found {
        Ok(plugin) => plugin.info().id == what,
        Err(error) => error.engine.as_deref() == Some(what),
    };
    let of_id: Vec<_> = of_folder(&here).into_iter().filter(is_meant).collect();
    let by_id = !of_id.is_empty();
    let (found, folder) = match place(Path::new(what)) {
        _ if by_id => (of_id, here),
        Place::Nothing if what.contains(['/', '\\']) => return Err(CliError::NothingToTrust { path: what.into() }),
        Place::Nothing => return Err(unknown(what, known_ids(host, &host.loader.scan()))),
        Place::Elsewhere => return Err(CliError::NoWorkspace { path: what.into() }),
        Place::All(folder) => (of_folder(&folder), folder),
        Place::One(folder, path) => {
            let is_it = |found: &Result<Plugin, LoaderError>| match found {
                Ok(plugin) => plugin.candidate().path == path,
                Err(error) => error.path.starts_with(&path),
            };
            (of_folder(&folder).into_iter().filter(is_it).collect(), folder)
        }
    };
    let is_configured =
        |known: &&PluginDirectory| known.origin == Origin::Configured && real(&known.path) == real(&folder);
    if let Some(known) = host.directories.iter().find(is_configured) {
        return Err(CliError::NeedsNoTrust { path: what.into(), directory: known.path.clone() });
    }
    let (mut usable, mut refused) = (vec![], vec![]);
    for found in found {
        match found {
            Ok(plugin) => usable.push(plugin),
            Err(error) => refused.push(error),
        }
    }
    Ok(Meant { usable, refused, folder, by_id })
}

/// What of a workspace a path names.
enum Place {
    /// Its plugins directory, by the path of that or of the workspace.
    All(PathBuf),
    /// What lies in that directory under this path.
    One(PathBuf, PathBuf),
    /// Something that is no workspace's.
    Elsewhere,
    Nothing,
}

fn place(path: &Path) -> Place {
    let inner = path.join(WORKSPACE_PLUGINS);
    if inner.is_dir() {
        return Place::All(inner);
    }
    if path.symlink_metadata().is_err() {
        return Place::Nothing;
    }
    // Either may be a link to a folder of another name.
    let is_one = |folder: &Path| {
        let named = std::path::absolute(folder).is_ok_and(|folder| folder.ends_with(WORKSPACE_PLUGINS));
        folder.is_dir() && (named || real(folder).ends_with(WORKSPACE_PLUGINS))
    };
    if is_one(path) {
        return Place::All(path.to_owned());
    }
    let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (parent.filter(|parent| is_one(parent)), path.file_name()) {
        (Some(parent), Some(name)) => Place::One(parent.to_owned(), parent.join(name)),
        _ => Place::Elsewhere,
    }
}

fn remove(host: &Host, what: &str) -> Result<Told, CliError> {
    let path = real(&std::path::absolute(what).unwrap_or_else(|_| what.into()));
    let of_id: Option<Vec<PathBuf>> = meant(host, what).ok().filter(|meant| meant.by_id).map(|meant| {
        let usable = meant.usable.iter().map(|plugin| real(&plugin.candidate().path));
        usable.chain(meant.refused.iter().map(|error| real(&error.path))).collect()
    });
    let is_meant = |trusted: &&Trusted| match &of_id {
        Some(paths) => paths.contains(&trusted.path),
        // What is gone is still known by the path it had.
        None => trusted.path.starts_with(&path),
    };
    let gone: Vec<&Trusted> = host.config.plugins.trusted.iter().filter(is_meant).collect();
    let edits: Vec<Edit> = gone.iter().map(|&trusted| Edit::Distrust(trusted.clone())).collect();
    if gone.is_empty() || !configure(host, &edits)? {
        return Err(CliError::NotTrusted { what: what.to_owned() });
    }
    let item = |trusted: &&Trusted| json!({ "path": path_json(&trusted.path), "sha256": trusted.sha256 });
    let mut told = Told::new(json!({ "removed": gone.iter().map(item).collect::<Vec<_>>() }));
    for trusted in gone {
        told.say(format!("forgotten {}; it is not used any more", trusted.path.display()));
    }
    Ok(told)
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
