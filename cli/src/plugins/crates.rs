//! Building an engine from its crate, with cargo.
//!
//! Decision: cargo is run as the person would run it, with its progress on standard error, and asked where the library is
//! instead of guessing it from names. A crate of the registry is fetched as a dependency of an empty project, because cargo
//! has no other way that needs no further tool; its source is copied from there and built as a package of its own, since
//! cargo does not build a `cdylib` for those who depend on it. Building runs the crate's build script with the person's
//! rights, as `cargo install` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::place;
use crate::output::note;

/// A library that was built, and the folder that goes away with it, if it was built in one.
pub(super) struct Built {
    pub(super) library: PathBuf,
    pub(super) scratch: Option<TempDir>,
}

/// Whether the folder of a crate is meant, and not one of the registry.
pub(super) fn is_folder(package: &str) -> bool {
    Path::new(package).is_dir() || package.contains(['/', '\\'])
}

/// Builds a crate: its folder, or `NAME` or `NAME@VERSION` of the registry.
pub(super) fn build(package: &str) -> Result<Built, String> {
    if is_folder(package) {
        let manifest = Path::new(package).join("Cargo.toml");
        if !manifest.is_file() {
            return Err("it has no Cargo.toml; name the folder of a crate, or a crate of the registry".to_owned());
        }
        return Ok(Built { library: library(&manifest, None)?, scratch: None });
    }
    let (name, version) = package.split_once('@').unwrap_or((package, "*"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || version.is_empty() || version.contains(['"', '\\', '\n']) {
        return Err("expected the folder of a crate, NAME or NAME@VERSION".to_owned());
    }
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let source = scratch.path().join("source");
    place::copy_folder(&fetch(name, version, scratch.path())?, &source).map_err(|error| error.to_string())?;
    let library = library(&source.join("Cargo.toml"), Some(&scratch.path().join("target")))?;
    Ok(Built { library, scratch: Some(scratch) })
}

/// Where cargo keeps the source of a crate, after it has fetched it.
fn fetch(name: &str, version: &str, scratch: &Path) -> Result<PathBuf, String> {
    let project = scratch.join("project");
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n{name} = \"{version}\"\n"
    );
    fs::create_dir_all(project.join("src"))
        .and_then(|()| fs::write(project.join("Cargo.toml"), manifest))
        .and_then(|()| fs::write(project.join("src/lib.rs"), ""))
        .map_err(|error| error.to_string())?;
    let said = cargo(&["metadata", "--format-version", "1", "--manifest-path"], &project.join("Cargo.toml"), None)?;
    let metadata: Value =
        serde_json::from_slice(&said).map_err(|error| format!("cargo's answer cannot be read: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let found =
        packages.filter(|package| package["name"] == name).find_map(|package| package["manifest_path"].as_str());
    let manifest = found.ok_or_else(|| format!("cargo did not say where the source of {name} is"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new(".")).to_owned())
}

/// Builds the package of a manifest and returns its `cdylib`.
fn library(manifest: &Path, target: Option<&Path>) -> Result<PathBuf, String> {
    let manifest = fs::canonicalize(manifest).map_err(|error| error.to_string())?;
    let arguments = ["build", "--release", "--message-format=json-render-diagnostics", "--manifest-path"];
    let said = cargo(&arguments, &manifest, target)?;
    let messages = said.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let is_cdylib = |message: &Value| {
        let kinds = message["target"]["kind"].as_array().into_iter().flatten();
        message["reason"] == "compiler-artifact" && kinds.into_iter().any(|kind| kind == "cdylib")
    };
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let mut found: Vec<(PathBuf, bool)> = vec![];
    for message in messages.filter(is_cdylib) {
        let is_own = message["manifest_path"].as_str().is_some_and(|path| Path::new(path).parent() == Some(folder));
        let names = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from);
        let is_library = |path: &PathBuf| path.extension().is_some_and(|it| it == std::env::consts::DLL_EXTENSION);
        found.extend(names.filter(is_library).map(|path| (path, is_own)));
    }
    // A workspace has libraries of other members, too.
    if let Some(own) = found.iter().find(|(_, is_own)| *is_own) {
        return Ok(own.0.clone());
    }
    match found.as_slice() {
        [(only, _)] => Ok(only.clone()),
        [] => {
            Err("it builds no shared library; write crate-type = [\"cdylib\"] under [lib] in its Cargo.toml".to_owned())
        }
        several => {
            let names: Vec<String> = several.iter().map(|(path, _)| path.display().to_string()).collect();
            Err(format!(
                "its workspace builds several shared libraries ({}); name the folder of one crate",
                names.join(", ")
            ))
        }
    }
}

/// Runs cargo; what it answers. Its progress and its errors go to standard error as they come.
fn cargo(arguments: &[&str], manifest: &Path, target: Option<&Path>) -> Result<Vec<u8>, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    note(format_args!("cargo {} {}", arguments[0], manifest.display()));
    let mut command = Command::new(program);
    command.args(arguments).arg(manifest).stdin(Stdio::null()).stderr(Stdio::inherit());
    if let Some(target) = target {
        command.arg("--target-dir").arg(target);
    }
    let output = command
        .output()
        .map_err(|error| format!("cargo cannot be run ({error}); install Rust, or install a built library"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("`cargo {}` failed ({}); what it said stands above", arguments[0], output.status)),
    }
}
