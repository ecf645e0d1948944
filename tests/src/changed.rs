//! Copies of the interface crate that are changed as a later version would be, with an engine and a host built on each.
//!
//! Decision: the change is made as text, here, so that the interface crate keeps no trace of its tests. The copies stay in
//! the target folder and share its build of abi_stable; a file is written only when it differs, so an unchanged copy is
//! not built again.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::build::{Build, library_name, target, workspace};

/// One place in the interface: file, the text there, the text it becomes.
pub type Edit = (&'static str, &'static str, &'static str);

/// What is built on a changed interface.
pub struct Changed {
    /// The engine `changed`.
    pub engine: PathBuf,
    host: PathBuf,
}

impl Changed {
    /// Builds engine and host on the interface with `edits`. `later`: they use what the edits append.
    ///
    /// # Panics
    /// When an edit does not fit, or nothing can be built.
    pub fn build(name: &str, edits: &[Edit], later: bool) -> Changed {
        let root = target().join("test-plugins/changed").join(name);
        let mut files = files_of(&workspace().join("interface"), "project/interface");
        for (file, from, to) in edits {
            let text = files.get_mut(&Path::new("project/interface").join(file)).expect("the file of an edit");
            assert_eq!(text.matches(from).count(), 1, "{file} has {from:?} once");
            *text = text.replacen(from, to, 1);
        }
        files.insert("project/Cargo.toml".into(), project_manifest());
        files.insert("users/Cargo.toml".into(), USERS.into());
        let cdylib = "[lib]\ncrate-type = [\"cdylib\"]\n";
        files.insert("users/engine/Cargo.toml".into(), user_manifest("changed", cdylib, &[], later));
        let linked = ["abi_stable", "libloading", "serde_json"];
        files.insert("users/host/Cargo.toml".into(), user_manifest("changed-host", "", &linked, later));
        for (to, from) in [
            ("users/engine/src/lib.rs", "tests/changed/engine.rs"),
            ("users/host/src/main.rs", "tests/changed/host.rs"),
            ("users/host/src/error.rs", "tests/changed/error.rs"),
            ("users/host/src/layout.rs", "tests/src/layout.rs"),
        ] {
            files.insert(to.into(), read(&workspace().join(from)));
        }
        files.insert("users/host/src/dylib.rs".into(), read(&workspace().join("loader/src/dylib/library.rs")));
        write(&root, &files, &["project/interface"]);
        let (manifest, lock) = (root.join("users/Cargo.toml"), root.join("users/Cargo.lock"));
        // The project's own choice of versions; without it the newest there are would be fetched.
        if !lock.exists() {
            fs::copy(workspace().join("Cargo.lock"), lock).expect("copied");
        }
        Build::by_author(&manifest, "test-plugins").arg("--workspace").run_and(|built| {
            let keep = |name: String| {
                fs::copy(built.join(&name), root.join(&name)).expect("copied");
                root.join(name)
            };
            Changed {
                engine: keep(library_name("changed")),
                host: keep(format!("changed-host{}", std::env::consts::EXE_SUFFIX)),
            }
        })
    }

    /// What the host on the changed interface sees of `plugin`.
    pub fn host_sees(&self, plugin: &Path) -> Value {
        serde_json::from_slice(&self.host_says(plugin.as_os_str())).expect("JSON")
    }

    /// The layout of the changed interface, as [`crate::layout`] writes it.
    pub fn layout(&self) -> String {
        String::from_utf8(self.host_says("--layout".as_ref())).expect("text")
    }

    fn host_says(&self, argument: &OsStr) -> Vec<u8> {
        let output = Command::new(&self.host).arg(argument).output().expect("the host can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the host must live: {}\n{said}", output.status);
        output.stdout
    }
}

/// The workspace of engine and host. Not the interface's: cargo names what it builds by the path inside the workspace,
/// and would take the interface of one copy for that of another.
const USERS: &str = r#"[workspace]
resolver = "3"
members = ["engine", "host"]

[workspace.dependencies]
abi_stable = { version = "=0.11.3", default-features = false }
context-engine-interface = { path = "../project/interface" }
libloading = "0.9"
serde_json = "1"

[profile.dev]
debug = false
"#;

/// The project's manifest with the interface as its only member.
fn project_manifest() -> String {
    let text = read(&workspace().join("Cargo.toml"));
    let start = text.find("[workspace.package]").expect("package defaults");
    let end = text.find("\n[profile").unwrap_or(text.len());
    format!("[workspace]\nresolver = \"3\"\nmembers = [\"interface\"]\n\n{}", &text[start..end])
}

/// The manifest of engine or host.
fn user_manifest(package: &str, target: &str, linked: &[&str], later: bool) -> String {
    let linked: String = linked.iter().map(|name| format!("{name}.workspace = true\n")).collect();
    let default = if later { "\"later\"" } else { "" };
    format!(
        "[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{target}\n[dependencies]\n\
         context-engine-interface.workspace = true\n{linked}\n[features]\ndefault = [{default}]\nlater = []\n"
    )
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files under `folder`, as paths under `name`.
pub(crate) fn files_of(folder: &Path, name: &str) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = Path::new(name).join(entry.file_name());
        match entry.path().is_dir() {
            true => files.extend(files_of(&entry.path(), name.to_str().expect("a path that is text"))),
            false => drop(files.insert(name, read(&entry.path()))),
        }
    }
    files
}

/// Writes what differs, and removes files in `copied` (a folder in `root`) that are no longer there.
pub(crate) fn write(root: &Path, files: &BTreeMap<PathBuf, String>, copied: &[&str]) {
    for folder in copied.iter().filter(|folder| root.join(folder).exists()) {
        for stale in files_of(&root.join(folder), folder).keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(root.join(stale)).expect("removed");
        }
    }
    for (name, text) in files {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
            continue;
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("written");
    }
}
