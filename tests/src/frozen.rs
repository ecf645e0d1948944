//! What is kept in `tests/frozen`: interfaces of other times, with engines that were written for them.
//!
//! Decision: sources, not libraries: a library would prove itself on one kind of machine only. Engines are built with
//! their own interface and lock file; hosts of the time are today's loader on the interface of the time, because what an
//! older host lacks beside is its own affair. Engines are built into the folder of the other test plugins, hosts into the
//! project's: each finds most of what it links there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::build::{Build, library_name, target, workspace};
use crate::changed::{files_of, read, write};

/// One frozen version.
#[derive(Debug)]
pub struct Frozen {
    /// Version of its interface.
    pub version: String,
    folder: PathBuf,
}

/// Every frozen version, oldest first.
///
/// # Panics
/// When there is none: a test over nothing would pass.
pub fn all() -> Vec<Frozen> {
    let mut all: Vec<Frozen> = folders(&workspace().join("tests/frozen")).filter_map(Frozen::in_folder).collect();
    let number = |frozen: &Frozen| -> Vec<u64> { frozen.version.split('.').flat_map(str::parse).collect() };
    all.sort_by_key(number);
    assert!(!all.is_empty(), "tests/frozen holds at least one version");
    all
}

fn folders(parent: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}

impl Frozen {
    fn in_folder(folder: PathBuf) -> Option<Frozen> {
        let version = folder.file_name()?.to_str()?.strip_prefix('v')?.to_owned();
        Some(Frozen { version, folder })
    }

    /// Its engines, built with their own interface: id and library.
    pub fn engines(&self) -> BTreeMap<String, PathBuf> {
        // Locked: nothing frozen is ever written, and a lock file that does not fit would be.
        let build =
            Build::by_author(&self.folder.join("Cargo.toml"), "test-plugins").arg("--workspace").arg("--locked");
        let built = build.run();
        let engine = |folder: PathBuf| {
            let id = folder.file_name()?.to_str()?.to_owned();
            let library = built.join(library_name(&format!("{id}-{}", self.version.replace('.', "-"))));
            library.exists().then_some((id, library))
        };
        folders(&self.folder.join("engines")).filter_map(engine).collect()
    }

    /// A host on its interface: today's loader, or the one that was frozen with it.
    pub fn host(&self) -> FrozenHost {
        let root = target().join("test-plugins/frozen").join(&self.version);
        let project = Some(self.folder.join("host")).filter(|frozen| frozen.exists());
        let project = project.as_deref().unwrap_or_else(|| workspace());
        let crates = ["transcript", "legacy-engine", "loader"];
        let mut files: BTreeMap<PathBuf, String> =
            crates.iter().flat_map(|name| files_of(&project.join(name), name)).collect();
        files.insert("Cargo.toml".into(), self.host_manifest(&read(&project.join("Cargo.toml"))));
        files.insert("Cargo.lock".into(), read(&project.join("Cargo.lock")));
        files.insert("host/Cargo.toml".into(), HOST.into());
        for (to, from) in
            [("main", "tests/frozen/host.rs"), ("tour", "tests/src/tour.rs"), ("session", "tests/src/session.rs")]
        {
            files.insert(format!("host/src/{to}.rs").into(), read(&project.join(from)));
        }
        write(&root, &files, &crates);
        let name = format!("frozen-host{}", std::env::consts::EXE_SUFFIX);
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = Build::new(&root.join("Cargo.toml"), &target()).arg("--package=frozen-host").profile(profile);
        build.run_and(|built| {
            let program = root.join(&name);
            fs::copy(built.join(&name), &program).expect("copied");
            FrozenHost { program }
        })
    }

    /// The project's manifest `text` with the host's crates as its members, on the frozen interface.
    fn host_manifest(&self, text: &str) -> String {
        let members = r#"["transcript", "legacy-engine", "loader", "host"]"#;
        let start = text.find("[workspace.package]").expect("package defaults");
        let interface = format!("path = {:?}", self.folder.join("interface"));
        let rest = text[start..].replace(r#"path = "interface""#, &interface);
        assert!(rest.contains(&interface), "the host is on the frozen interface");
        format!("[workspace]\nresolver = \"3\"\nmembers = {members}\n\n{rest}")
    }

    /// The layout of its interface, as [`crate::layout`] writes it.
    pub fn layout(&self) -> String {
        self.read("layout.txt")
    }

    /// What each of its engines did on its [tour](crate::tour) when it was frozen, by id.
    pub fn tours(&self) -> Value {
        let text = self.read("tours.json");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("tours.json of {}: {error}", self.version))
    }

    fn read(&self, name: &str) -> String {
        let path = self.folder.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Writes what is kept beside the sources, once: when it is frozen.
    ///
    /// # Errors
    /// When it is there already, or cannot be written.
    pub fn keep(&self, name: &str, text: &str) -> std::io::Result<()> {
        fs::File::create_new(self.folder.join(name))
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
    }
}

/// The manifest of a host on a frozen interface. What it does not use is what the command links beside: crates get the
/// features they have there, so the two share their builds.
const HOST: &str = r#"[package]
name = "frozen-host"
version = "0.1.0"
edition = "2024"

[dependencies]
context-engine-interface.workspace = true
context-engine-loader.workspace = true
context-engine-transcript.workspace = true
serde_json.workspace = true

clap.workspace = true
flate2.workspace = true
indicatif.workspace = true
json5.workspace = true
jsonc-parser.workspace = true
regex.workspace = true
tar.workspace = true
tokio.workspace = true
tracing-subscriber.workspace = true
"#;

/// A host on a frozen interface, as a program.
#[derive(Debug)]
pub struct FrozenHost {
    program: PathBuf,
}

impl FrozenHost {
    /// The [tours](crate::tour) of engines whose libraries lie in `home/plugins`, by id.
    pub fn tours(&self, home: &Path, ids: &[&str]) -> Value {
        let output = Command::new(&self.program).arg(home).args(ids).output().expect("the host can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the host must live: {}\n{said}", output.status);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}\n{said}"))
    }
}
