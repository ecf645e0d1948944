//! `context-engine plugins pack`: one archive with an engine's libraries for several machines.
//!
//! Decision: what an archive says about its engine is read from the libraries' own records, so that it cannot say anything
//! else than they do. Everything is checked before the archive is written: whoever installs it cannot mend it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use context_engine_interface::record::Record;
use context_engine_loader::platform::TARGET;
use context_engine_loader::{Manifest, for_shell, inspect};
use serde_json::json;

use super::archive::Packed;
use super::args::PackArgs;
use super::{Told, archive, place};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::output::{path_json, size};
use crate::setup::Host;

/// What goes into an archive.
struct Contents {
    id: String,
    version: String,
    /// Target triple to name in the archive.
    libraries: BTreeMap<String, String>,
    files: Vec<Packed>,
    /// `plugin.json`, where it is not among the files.
    manifest: Option<Vec<u8>>,
}

pub(super) fn run(args: &PackArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let contents = match args.paths.as_slice() {
        [folder] if folder.is_dir() => of_folder(&host, folder, &args.out)?,
        libraries => of_libraries(&host, libraries)?,
    };
    let out = &args.out;
    if out.symlink_metadata().is_ok() && !args.force {
        return Err(refusal(out, "the file exists; use --force to replace it, or another --out".to_owned()));
    }
    let failed = |source| CliError::File { path: out.clone(), doing: "writing the archive", source };
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".packing-").tempfile_in(folder).map_err(failed)?;
    archive::pack(&contents.files, contents.manifest.as_deref(), file.as_file()).map_err(failed)?;
    let bytes = file.as_file().metadata().map_err(failed)?.len();
    // Whoever is given it may read it.
    #[cfg(unix)]
    file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(failed)?;
    // What cannot be unpacked again is not handed on.
    let work = tempfile::tempdir().map_err(failed)?;
    archive::unpack(file.path(), &work.path().join("tried")).map_err(|reason| refusal(out, reason))?;
    file.persist(out).map_err(|error| failed(error.error))?;
    let Contents { id, version, libraries, .. } = &contents;
    let mut told = Told::new(json!({
        "id": id, "version": version, "out": path_json(out), "bytes": bytes, "libraries": libraries,
    }));
    let targets: Vec<&str> = libraries.keys().map(String::as_str).collect();
    told.say(format!("packed    {id} {version} for {} as {} ({})", targets.join(", "), out.display(), size(bytes)));
    told.say(format!("`context-engine plugins install {}` installs it", for_shell(out)));
    told.print(args.json)
}

/// A plugin folder as it is, hidden files left out, and what lies in the archive's own place.
fn of_folder(host: &Host, folder: &Path, out: &Path) -> Result<Contents, CliError> {
    if !folder.join("plugin.json").exists() {
        return Err(refusal(
            folder,
            "it has no plugin.json; name the libraries themselves, and one is made".to_owned(),
        ));
    }
    let manifest = Manifest::read(folder)?;
    let version = manifest.version.to_string();
    for (target, name) in &manifest.libraries {
        let path = folder.join(name);
        let record = record(host, &path, target == TARGET)?;
        for (what, said, found) in [
            ("id", &manifest.id, &record.engine.id),
            ("version", &version, &record.engine.version),
            ("target", target, &record.target),
        ] {
            if said != found {
                return Err(refusal(
                    &path,
                    format!("plugin.json says the {what} {said:?}, the library {found:?}; make them the same"),
                ));
            }
        }
    }
    let (mut files, mut entries) = (vec![], 0);
    let own = fs::canonicalize(out).ok();
    let mut folders = vec![(folder.to_owned(), String::new())];
    let failed = |source| CliError::File { path: folder.to_owned(), doing: "reading the plugin folder", source };
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
                return Err(refusal(&path, "its name is no UTF-8; rename it".to_owned()));
            };
            let is_left_out = entry.file_name().to_string_lossy().starts_with('.')
                || (own.is_some() && fs::canonicalize(&path).ok() == own);
            entries += usize::from(!is_left_out);
            if !is_left_out && !archive::fits(&name) {
                let reason = "its path is too long for an archive, which has room for 100 bytes of a file's name and 155 of its \
                              folders'; shorten it";
                return Err(refusal(&path, reason.to_owned()));
            }
            match is_left_out {
                true => {}
                false if kind.is_dir() => folders.push((path, name + "/")),
                false if kind.is_file() => {
                    let meta = entry.metadata().map_err(failed)?;
                    let is_library = manifest.libraries.values().any(|library| within(library).as_ref() == Some(&name));
                    files.push(Packed { name, path, executable: place::is_executable(&meta) && !is_library });
                }
                false => {
                    return Err(refusal(
                        &path,
                        "it is no file and no folder; put the file itself in its place".to_owned(),
                    ));
                }
            }
            if entries > place::MAX_ENTRIES {
                let reason = format!(
                    "it holds more than {} files and folders; pack a folder with the plugin alone",
                    place::MAX_ENTRIES
                );
                return Err(refusal(&folder, reason));
            }
        }
    }
    // One that is hidden, or lies elsewhere, would not be there where it is installed.
    let is_packed = |library: &str| within(library).is_some_and(|name| files.iter().any(|file| file.name == name));
    if let Some((target, library)) = manifest.libraries.iter().find(|(_, library)| !is_packed(library)) {
        let reason = format!(
            "plugin.json names {library:?} for {target}, which is not packed; put it into the folder, not hidden, under that path"
        );
        return Err(refusal(folder, reason));
    }
    let libraries = manifest.libraries;
    Ok(Contents { id: manifest.id, version, libraries, files, manifest: None })
}

/// A path of `plugin.json` as the name of a packed file; none if it leaves the folder.
fn within(library: &str) -> Option<String> {
    let mut parts = vec![];
    for part in Path::new(library).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

/// Libraries of one engine, each for another machine.
fn of_libraries(host: &Host, paths: &[PathBuf]) -> Result<Contents, CliError> {
    let (mut libraries, mut files) = (BTreeMap::new(), vec![]);
    let mut first: Option<Record> = None;
    if let Some(folder) = paths.iter().find(|path| path.is_dir()) {
        let reason =
            "it is a folder, and was named beside others; name one plugin folder alone, or libraries".to_owned();
        return Err(refusal(folder, reason));
    }
    for path in paths {
        let own = inspect::record_of(path).is_ok_and(|record| record.target == TARGET);
        let record = record(host, path, own || paths.len() == 1)?;
        if let Some(first) = &first {
            let engines = [&first.engine, &record.engine].map(|engine| format!("{} {}", engine.id, engine.version));
            if engines[0] != engines[1] {
                let reason =
                    format!("it is {}, the first one is {}; pack one version of one engine", engines[1], engines[0]);
                return Err(refusal(path, reason));
            }
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("engine");
        let name = format!("lib/{}/{name}", record.target);
        if !archive::fits(&name) {
            return Err(refusal(
                path,
                "its name is too long for an archive, which has room for 100 bytes; rename it".to_owned(),
            ));
        }
        if libraries.insert(record.target.clone(), name.clone()).is_some() {
            let reason = format!("it is for {}, as one before it; name one library per platform", record.target);
            return Err(refusal(path, reason));
        }
        files.push(Packed { name, path: path.clone(), executable: false });
        first.get_or_insert(record);
    }
    let Some(Record { engine, .. }) = first else {
        return Err(refusal(Path::new("plugins pack"), "no library was named".to_owned()));
    };
    let manifest = json!({ "id": engine.id, "version": engine.version, "libraries": libraries });
    let manifest = Some(serde_json::to_vec_pretty(&manifest)?);
    Ok(Contents { id: engine.id, version: engine.version, libraries, files, manifest })
}

/// What a library says about itself; one of this machine is inspected as it would be when it is installed.
fn record(host: &Host, path: &Path, is_own: bool) -> Result<Record, CliError> {
    if is_own {
        return Ok(host.loader.inspect(path)?.inspection().record.clone());
    }
    Ok(inspect::record_of(path)?)
}

fn refusal(path: &Path, reason: String) -> CliError {
    CliError::NotPacked { path: path.to_owned(), reason }
}
