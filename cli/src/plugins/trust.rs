//! `context-engine plugins trust`: a plugin that came with a workspace is used, as long as it is this very file.
//!
//! Decision: by path and digest. By id alone, any repository could bring a file that calls itself so; a file that changes,
//! by a pull for example, is a new question to the person.

use std::path::{Path, PathBuf};

use context_engine_loader::trust::names_digest;
use context_engine_loader::{Loader, LoaderError, LoaderOptions, Origin, Plugin, PluginDirectory};
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
                told.warn(format!("{text}; `context-engine plugins trust {}` trusts it as it is", path.display()))
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
    let Meant { mut usable, refused, .. } = meant(host, what)?;
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
        told.say(match changed {
            true => format!(
                "trusted   {} {}, {text}, as long as it is this very file (sha256:{digest})",
                info.id, info.version
            ),
            false => format!("{} is trusted already, this same file", info.id),
        });
        if let Some(reason) = host.loader.policy().forbids(&info.id) {
            told.warn(format!("it is not used all the same: {reason}"));
        } else if host.config.plugins.slots.context_engine.as_deref().map(str::trim) != Some(&info.id) {
            told.say(format!(
                "`context-engine plugins select {}`, run in that workspace, puts it into the slot",
                info.id
            ));
        }
    }
    configure(host, &edits)?;
    for error in refused {
        told.warn(format!("not trusted, because it cannot be used: {error}"));
    }
    told.json = json!({ "trusted": shown });
    Ok(told)
}

struct Meant {
    usable: Vec<Plugin>,
    refused: Vec<LoaderError>,
    /// Whether it was the id that was meant.
    by_id: bool,
}

/// The plugins that are meant by a folder, a file or an id of the workspace this command is run in.
fn meant(host: &Host, what: &str) -> Result<Meant, CliError> {
    let path = Path::new(what);
    let of_folder = |folder: PathBuf| {
        let directory = PluginDirectory { path: folder, origin: Origin::Configured };
        let options =
            LoaderOptions { directories: vec![directory], state_dir: host.home.state(), ..LoaderOptions::default() };
        Loader::new(options).scan()
    };
    // An id first: what is called so in this folder may be anything. A path can be written as ./alpha.
    let of_workspace = of_folder(PathBuf::from(WORKSPACE_PLUGINS));
    let is_meant = |found: &Result<Plugin, LoaderError>| match found {
        Ok(plugin) => plugin.info().id == what,
        Err(error) => error.engine.as_deref() == Some(what),
    };
    let of_id: Vec<_> = of_workspace.into_iter().filter(is_meant).collect();
    let by_id = !of_id.is_empty();
    let found = if by_id {
        of_id
    } else if path.join(WORKSPACE_PLUGINS).is_dir() {
        of_folder(path.join(WORKSPACE_PLUGINS))
    } else if path.exists() {
        of_folder(path.to_owned())
    } else {
        return Err(unknown(what, known_ids(host, &host.loader.scan())));
    };
    let (mut usable, mut refused) = (vec![], vec![]);
    for found in found {
        match found {
            Ok(plugin) => usable.push(plugin),
            Err(error) => refused.push(error),
        }
    }
    Ok(Meant { usable, refused, by_id })
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
