//! What is kept in `tests/frozen`: interfaces of other times, with engines that were written for them.
//!
//! Decision: sources, not libraries: a library would prove itself on one kind of machine only. Engines are built with
//! their own interface and lock file; hosts of the time are today's loader on the interface of the time, because what an
//! older host lacks beside is its own affair. Everything is built into the folder of the other test plugins, whose
//! abi_stable it shares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::build::{Build, library_name, workspace};

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

    /// Its interface's sources.
    pub fn interface(&self) -> PathBuf {
        self.folder.join("interface")
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
