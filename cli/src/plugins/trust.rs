//! `context-engine plugins trust`: a plugin that came with a workspace is used, as long as it is this very file.
//!
//! Decision: by path and digest. By id alone, any repository could bring a file that calls itself so; a file that changes,
//! by a pull for example, is a new question to the person.

use std::path::{Path, PathBuf};

use context_engine_loader::{Loader, LoaderOptions, Origin, Plugin, PluginDirectory};
use context_engine_runtime::config::Trusted;
use context_engine_runtime::config::edit::Edit;
use serde_json::{Value, json};

use super::args::TrustArgs;
use super::{Told, configure, known_ids, unknown};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::path_json;
use crate::setup::Host;

/// Where a workspace keeps its plugins.
const FOLDER: &str = ".context-engine/plugins";

pub(super) fn run(args: &TrustArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    match &args.what {
        None => list(&host).print(args.json),
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
            Ok(digest) if digest.eq_ignore_ascii_case(sha256) => "trusted",
            Ok(_) => "changed",
            Err(_) => "unusable",
        };
        let text = format!("{state:<10}{}  sha256:{sha256}", path.display());
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
    let (mut usable, refused) = meant(host, what)?;
    if usable.is_empty() {
        return Err(match refused.into_iter().next() {
            Some(error) => error.into(),
            None => CliError::NothingToTrust { path: what.into() },
        });
    }
    usable.sort_by(|a, b| a.candidate().path.cmp(&b.candidate().path));
    let mut told = Told::new(Value::Null);
    let mut shown = vec![];
    for plugin in &usable {
        let path = real(&plugin.candidate().path);
        let Some(text) = path.to_str() else {
            return Err(CliError::NotUtf8 { path });
        };
        let digest = plugin.staged().digest.to_string();
        let item = |sha256: &str| json!({ "path": text, "sha256": sha256 });
        let old = host.config.plugins.trusted.iter().filter(|trusted| trusted.path == path && trusted.sha256 != digest);
        let mut edits: Vec<Edit> =
            old.map(|trusted| Edit::drop(&["plugins", "trusted"], item(&trusted.sha256))).collect();
        edits.push(Edit::add(&["plugins", "trusted"], item(&digest)));
        let changed = configure(host, &edits)?;
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
    for error in refused {
        told.warn(format!("not trusted, because it cannot be used: {error}"));
    }
    told.json = json!({ "trusted": shown });
    Ok(told)
}

type Meant = (Vec<Plugin>, Vec<context_engine_loader::LoaderError>);

/// The plugins that are meant by a folder, a file or an id of the workspace this command is run in.
fn meant(host: &Host, what: &str) -> Result<Meant, CliError> {
    let path = Path::new(what);
    let of_folder = |folder: PathBuf| {
        let directory = PluginDirectory { path: folder, origin: Origin::Configured };
        let options =
            LoaderOptions { directories: vec![directory], state_dir: host.home.state(), ..LoaderOptions::default() };
        Loader::new(options).scan()
    };
    let found = if path.join(FOLDER).is_dir() {
        of_folder(path.join(FOLDER))
    } else if path.exists() {
        of_folder(path.to_owned())
    } else {
        let found = of_folder(PathBuf::from(FOLDER));
        let of_id = found.into_iter().filter(|found| match found {
            Ok(plugin) => plugin.info().id == what,
            Err(error) => error.engine.as_deref() == Some(what),
        });
        let of_id: Vec<_> = of_id.collect();
        if of_id.is_empty() {
            return Err(unknown(what, known_ids(host, &host.loader.scan())));
        }
        of_id
    };
    let (mut usable, mut refused) = (vec![], vec![]);
    for found in found {
        match found {
            Ok(plugin) => usable.push(plugin),
            Err(error) => refused.push(error),
        }
    }
    Ok((usable, refused))
}

fn remove(host: &Host, what: &str) -> Result<Told, CliError> {
    let path = real(&std::path::absolute(what).unwrap_or_else(|_| what.into()));
    // What is gone is still known by the path it had.
    let of_id: Vec<PathBuf> = match Path::new(what).exists() {
        true => vec![],
        false => meant(host, what)
            .map(|(usable, refused)| {
                let usable = usable.iter().map(|plugin| real(&plugin.candidate().path));
                usable.chain(refused.iter().map(|error| real(&error.path))).collect()
            })
            .unwrap_or_default(),
    };
    let trusted = &host.config.plugins.trusted;
    let gone: Vec<&Trusted> =
        trusted.iter().filter(|trusted| trusted.path.starts_with(&path) || of_id.contains(&trusted.path)).collect();
    if gone.is_empty() {
        return Err(CliError::NotTrusted { what: what.to_owned() });
    }
    let item = |trusted: &&Trusted| json!({ "path": path_json(&trusted.path), "sha256": trusted.sha256 });
    let edits: Vec<Edit> = gone.iter().map(|trusted| Edit::drop(&["plugins", "trusted"], item(trusted))).collect();
    configure(host, &edits)?;
    let mut told = Told::new(json!({ "removed": gone.iter().map(item).collect::<Vec<_>>() }));
    for trusted in gone {
        told.say(format!("forgotten {}; it is not used any more", trusted.path.display()));
    }
    Ok(told)
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
