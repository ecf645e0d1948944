//! What is installed: a path, what an archive holds, or what cargo builds; and whether that is a plugin at all.

use std::path::{Path, PathBuf};

use context_engine_loader::platform::TARGET;
use context_engine_loader::{LoaderError, Manifest, Plugin, Problem};
use tempfile::TempDir;

use super::refusal;
use crate::error::CliError;
use crate::plugins::args::InstallArgs;
use crate::plugins::{archive, crates, place};
use crate::setup::Host;

/// What is inspected: the path itself, or what an archive holds, in a folder that lives as long as it is needed.
pub(super) fn source(host: &Host, args: &InstallArgs) -> Result<(PathBuf, Option<TempDir>), CliError> {
    if let Some(package) = &args.package {
        if args.link && !crates::is_folder(package) {
            let reason = "a crate of the registry cannot be linked; install it without --link".to_owned();
            return Err(refusal(Path::new(package), reason));
        }
        let built = crates::build(package).map_err(|reason| refusal(Path::new(package), reason))?;
        return Ok((built.library, built.scratch));
    }
    let path = args.path.clone().unwrap_or_default();
    if !archive::is_one(&path) {
        return match archive::is_another(&path) {
            Some(what) => {
                let to_do = "make one with `context-engine plugins pack`, or unpack it and name the folder";
                Err(refusal(&path, format!("it is {what}, expected a gzipped tar file; {to_do}")))
            }
            None => Ok((path, None)),
        };
    }
    if args.link {
        return Err(refusal(&path, "an archive cannot be linked; install it without --link".to_owned()));
    }
    let failed = |source| CliError::File { path: host.home.plugins(), doing: "unpacking the archive", source };
    let work = place::workplace(&host.home.plugins()).map_err(failed)?;
    let unpacked = work.path().join("unpacked");
    archive::unpack(&path, &unpacked).map_err(|reason| refusal(&path, reason))?;
    Ok((unpacked, Some(work)))
}

/// `shown` is what the person named: what was unpacked of it is gone when they look.
pub(super) fn inspect(host: &Host, path: &Path, shown: &Path) -> Result<Plugin, CliError> {
    let is_folder = path.join("plugin.json").exists();
    if path.is_dir() && !is_folder && path.join("Cargo.toml").exists() {
        let reason = "it is a crate; `context-engine plugins install --crate PATH` builds it".to_owned();
        return Err(refusal(shown, reason));
    }
    host.loader.inspect(path).map_err(|error| {
        let named = || Manifest::read(path).ok()?.libraries.remove(TARGET);
        match (&error.problem, is_folder.then(named).flatten()) {
            (Problem::Io { reason, .. }, Some(library)) => refusal(
                shown,
                format!("plugin.json names the library {library:?}, which cannot be read: {reason}; put it there"),
            ),
            (Problem::NotAFile { .. }, Some(library)) => {
                let reason =
                    format!("plugin.json names the library {library:?}, which is no file; put the file itself there");
                refusal(shown, reason)
            }
            (Problem::NotAFile { found }, None) => {
                let expected = "expected a library, a folder with a plugin.json or an archive of `plugins pack`";
                refusal(shown, format!("{expected}, found a {found}; name one of these"))
            }
            _ if error.path.starts_with(path) => LoaderError { path: shown.to_owned(), ..error }.into(),
            _ => error.into(),
        }
    })
}
