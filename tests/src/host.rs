//! A host in a temporary folder: what `CONTEXT_ENGINE_HOME` names, as a loader in this process and for the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use context_engine_loader::{
    Creation, EngineHandle, Loader, LoaderError, LoaderOptions, Plugin, PluginDirectory, TrustPolicy,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::build;

/// A home that goes away with the value.
pub struct TestHost {
    folder: TempDir,
}

/// What a run of the command gave.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl TestHost {
    /// A home without plugins.
    pub fn new() -> TestHost {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
        TestHost { folder }
    }

    /// A home with these plugins of `engines/`, each as a bare library.
    pub fn with(plugins: &[&str]) -> TestHost {
        let host = TestHost::new();
        for name in plugins {
            host.drop_in(name);
        }
        host
    }

    /// The home's folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The plugins directory.
    pub fn plugins(&self) -> PathBuf {
        self.root().join("plugins")
    }

    /// Copies the built plugin into the plugins directory.
    pub fn drop_in(&self, name: &str) -> PathBuf {
        self.take(&build::plugin(name))
    }

    /// Copies a library into the plugins directory.
    pub fn take(&self, library: &Path) -> PathBuf {
        let to = self.plugins().join(library.file_name().expect("a file"));
        fs::copy(library, &to).expect("copied");
        to
    }

    /// Copies the built plugin into the plugins directory as a plugin folder, its library as `lib/engine.so`.
    pub fn drop_in_folder(&self, name: &str, folder: &str) {
        self.drop_in_folder_with(name, folder, json!({}));
    }

    /// The same, with these members in its `plugin.json`.
    pub fn drop_in_folder_with(&self, name: &str, folder: &str, members: Value) {
        let libraries = json!({ context_engine_loader::platform::TARGET: "lib/engine.so" });
        let mut manifest = json!({ "id": name, "version": "0.1.0", "libraries": libraries });
        for (member, value) in members.as_object().into_iter().flatten() {
            manifest[member] = value.clone();
        }
        self.put(&format!("{folder}/plugin.json"), manifest.to_string());
        self.put(&format!("{folder}/lib/engine.so"), fs::read(build::plugin(name)).expect("built"));
    }

    /// Writes a file into the plugins directory, its folders included.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.plugins().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, bytes).expect("written");
        path
    }

    /// A loader of this home.
    pub fn loader(&self) -> Loader {
        self.loader_of(vec![self.plugins()])
    }

    /// A loader of this home that looks through these plugins directories.
    pub fn loader_of(&self, directories: Vec<PathBuf>) -> Loader {
        self.loader_with(directories.into_iter().map(PluginDirectory::from).collect(), TrustPolicy::default())
    }

    /// A loader of this home with this policy.
    pub fn loader_with(&self, directories: Vec<PluginDirectory>, policy: TrustPolicy) -> Loader {
        Loader::new(LoaderOptions { directories, policy, ..self.options() })
    }

    /// The options of [`TestHost::loader`].
    pub fn options(&self) -> LoaderOptions {
        LoaderOptions {
            directories: vec![self.plugins().into()],
            state_dir: self.root().join("state"),
            ..LoaderOptions::default()
        }
    }

    /// The engine `id`, created with `config`.
    pub fn engine(&self, id: &str, config: Value) -> EngineHandle {
        let creation = Creation { config: Some(config), ..Creation::default() };
        self.loader().engine(id, &creation).expect("a handle")
    }

    /// The verdict on each thing in the plugins directory, by file name.
    pub fn verdicts(&self) -> Vec<(String, Result<Plugin, LoaderError>)> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let named = |found: Result<Plugin, LoaderError>| match found {
            Ok(plugin) => (name(&plugin.candidate().path), Ok(plugin)),
            Err(error) => (name(&error.path), Err(error)),
        };
        self.loader().scan().into_iter().map(named).collect()
    }

    /// What engine `id` wrote to its journal: member and parameters, call by call.
    pub fn journal(&self, id: &str) -> Vec<(String, Value)> {
        let path = self.root().join("state/engines").join(id).join("journal.jsonl");
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).expect("a journal line");
            (entry["member"].as_str().expect("a member").to_owned(), entry["params"].take())
        };
        text.lines().map(line).collect()
    }

    /// What engine `id` was given in the newest call of `member`.
    #[track_caller]
    pub fn given(&self, id: &str, member: &str) -> Value {
        let calls = self.journal(id);
        let newest = calls.into_iter().rfind(|(name, _)| name == member);
        newest.unwrap_or_else(|| panic!("{id} was never asked to {member}")).1
    }

    /// Runs the command in this home.
    pub fn run<I: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Ran {
        self.run_with(args, &[])
    }

    /// Runs the command in this home, with environment variables.
    pub fn run_with<I: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = I>,
        environment: &[(&str, &Path)],
    ) -> Ran {
        let mut command = Command::new(build::command());
        command.args(args).env("CONTEXT_ENGINE_HOME", self.root()).envs(environment.iter().copied());
        let output = command.output().expect("the command can be run");
        let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Default for TestHost {
    fn default() -> TestHost {
        TestHost::new()
    }
}
