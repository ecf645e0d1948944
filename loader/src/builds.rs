//! What was learned about a build of an engine: that a probe let it pass, and which host params it refuses.
//!
//! Decision: one small file per build, named by its digest, and never an obstacle. Everything in it can be learned again,
//! so a file that cannot be read or written costs a probe or a second call, and one line in the log. Facts live in memory
//! as well: the file is read once, and an unwritable directory costs nothing while the process lives.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, SystemTime};

use abi_stable::library::RootModule;
use context_engine_interface::abi::module::EngineModule;
use serde::{Deserialize, Serialize};

use crate::platform::{create_private_dir, open_regular};
use crate::stage::Digest;

/// Version of the files. A file of another one is not read.
///
/// - 1: probes, refusedHostParams.
const FORMAT: u32 = 1;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// How many configurations of one build are remembered as probed, the newest.
const MAX_PROBES: usize = 64;

/// A file that no host has used for so long is removed.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How exactly the time of the last use is kept.
const USE_RESOLUTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What the host remembers of builds, in `builds/` of its state directory. Cheap to clone; clones share one memory.
#[derive(Debug, Clone)]
pub struct Builds {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    known: Mutex<HashMap<Digest, Facts>>,
    warned: AtomicBool,
    collected: Once,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    format: u32,
    #[serde(default)]
    probes: Vec<Passed>,
    #[serde(default)]
    refused_host_params: BTreeSet<String>,
}

/// A probe that let the build pass. Both keys matter: another configuration takes another path through the engine,
/// another host asks other things of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Passed {
    host: String,
    config: String,
}

impl Builds {
    /// The memory in `state_dir`. Touches nothing yet.
    pub fn open(state_dir: &Path) -> Builds {
        let shared = Shared {
            directory: state_dir.join("builds"),
            known: Mutex::default(),
            warned: AtomicBool::new(false),
            collected: Once::new(),
        };
        Builds { shared: Arc::new(shared) }
    }

    /// Whether a probe by this version of the host let the build pass with the configuration `config_key` stands for.
    pub fn probe_passed(&self, digest: Digest, config_key: &str) -> bool {
        self.facts(digest, |facts| facts.probes.contains(&Passed::now(config_key)))
    }

    /// Remembers how a probe ended. One that failed only makes an earlier pass forgotten: why it failed is for quarantine
    /// to keep.
    pub fn record_probe(&self, digest: Digest, config_key: &str, passed: bool) {
        let probe = Passed::now(config_key);
        self.learn(digest, |facts| {
            facts.probes.retain(|known| *known != probe);
            if passed {
                facts.probes.push(probe);
            }
            let surplus = facts.probes.len().saturating_sub(MAX_PROBES);
            facts.probes.drain(..surplus);
        });
    }

    /// Host params the build refuses: it is called without them from the start.
    pub fn refused_host_params(&self, digest: Digest) -> BTreeSet<String> {
        self.facts(digest, |facts| facts.refused_host_params.clone())
    }

    /// Remembers that the build refuses the host param `key`.
    pub fn refuse_host_param(&self, digest: Digest, key: &str) {
        self.learn(digest, |facts| {
            facts.refused_host_params.insert(key.to_owned());
        });
    }

    fn facts<R>(&self, digest: Digest, read: impl FnOnce(&Facts) -> R) -> R {
        let mut known = self.shared.known();
        read(known.entry(digest).or_insert_with(|| self.shared.load(digest)))
    }

    fn learn(&self, digest: Digest, change: impl FnOnce(&mut Facts)) {
        let mut known = self.shared.known();
        // Another process may have learned something since this one read the file.
        let stored = self.shared.load(digest);
        let facts = known.entry(digest).or_default();
        facts.probes.splice(..0, stored.probes.iter().cloned());
        dedup(&mut facts.probes);
        facts.refused_host_params.extend(stored.refused_host_params.iter().cloned());
        change(facts);
        facts.format = FORMAT;
        if *facts != stored
            && let Err(error) = self.shared.store(digest, facts)
        {
            self.shared.warn("what was learned about an engine cannot be kept", &self.shared.file(digest), &error);
        }
    }
}

impl Passed {
    fn now(config_key: &str) -> Passed {
        let interface = EngineModule::VERSION_STRINGS.version;
        Passed { host: format!("{}+{interface}", env!("CARGO_PKG_VERSION")), config: config_key.to_owned() }
    }
}

/// Keeps the last of each: the newest ones stand at the end.
fn dedup(probes: &mut Vec<Passed>) {
    let mut kept = Vec::with_capacity(probes.len());
    for probe in std::mem::take(probes).into_iter().rev() {
        if !kept.contains(&probe) {
            kept.push(probe);
        }
    }
    kept.reverse();
    *probes = kept;
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, HashMap<Digest, Facts>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, digest: Digest) -> PathBuf {
        self.directory.join(format!("{digest}.json"))
    }

    fn load(&self, digest: Digest) -> Facts {
        let path = self.file(digest);
        let read = read(&path).and_then(|text| {
            let facts: Facts = serde_json::from_slice(&text)?;
            match facts.format {
                FORMAT => Ok(facts),
                other => Err(io::Error::other(format!("format {other}, expected {FORMAT}"))),
            }
        });
        match &read {
            Ok(_) => touch(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.warn("what is known of an engine cannot be read; it is learned again", &path, error),
        }
        self.collected.call_once(|| collect(&self.directory, LIFETIME));
        read.unwrap_or_default()
    }

    fn store(&self, digest: Digest, facts: &Facts) -> io::Result<()> {
        create_private_dir(&self.directory)?;
        // A temporary file is its owner's alone, and keeps that when it gets its name.
        let mut file = tempfile::Builder::new().prefix(".learning-").tempfile_in(&self.directory)?;
        file.write_all(&serde_json::to_vec(facts)?)?;
        file.persist(self.file(digest)).map_err(|error| error.error)?;
        Ok(())
    }

    fn warn(&self, what: &str, path: &Path, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(path = %path.display(), %error, "{what}");
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = vec![];
    open_regular(path, File::options().read(true))?.take(MAX_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected at most {MAX_FILE} bytes")));
    }
    Ok(text)
}

/// Notes that the file was used, for [`collect`].
fn touch(path: &Path) {
    if age(path).is_some_and(|age| age > USE_RESOLUTION) {
        let file = open_regular(path, File::options().append(true));
        let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
        if let Err(error) = touched {
            tracing::debug!(path = %path.display(), %error, "its last use cannot be noted");
        }
    }
}

/// Removes files that were not used for `lifetime`, left-over temporary ones included.
fn collect(directory: &Path, lifetime: Duration) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let ours = |name: &str| name.ends_with(".json") || name.starts_with(".learning-");
    let paths = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(ours));
    for path in paths.map(|entry| entry.path()).filter(|path| age(path).is_some_and(|age| age > lifetime)) {
        // Another host may be faster; then it is gone as well.
        let _ = fs::remove_file(path);
    }
}

/// How long ago the file was written; `None` for one that is not there or is from the future.
fn age(path: &Path) -> Option<Duration> {
    let written = fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok()?;
    SystemTime::now().duration_since(written).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::stage;

    /// A state directory with one staged build.
    fn build() -> (tempfile::TempDir, Digest) {
        let root = tempfile::tempdir().expect("a folder");
        let library = root.path().join("x.so");
        fs::write(&library, "a build").expect("written");
        let digest = stage(&library, &root.path().join("stages")).expect("staged").digest;
        (root, digest)
    }

    fn file(root: &tempfile::TempDir, digest: Digest) -> PathBuf {
        root.path().join("builds").join(format!("{digest}.json"))
    }

    fn make_old(path: &Path) {
        let long_ago = SystemTime::now() - LIFETIME - USE_RESOLUTION;
        File::options().append(true).open(path).and_then(|file| file.set_modified(long_ago)).expect("made old");
    }

    #[test]
    fn what_is_learned_outlives_the_process() {
        let (root, digest) = build();
        let builds = Builds::open(root.path());
        assert!(!builds.probe_passed(digest, "c1"));
        builds.record_probe(digest, "c1", true);
        builds.refuse_host_param(digest, "runtimeSettings");
        builds.clone().refuse_host_param(digest, "prompt");
        for builds in [builds, Builds::open(root.path())] {
            assert!(builds.probe_passed(digest, "c1"));
            assert!(!builds.probe_passed(digest, "c2"), "another configuration is another verdict");
            assert_eq!(Vec::from_iter(builds.refused_host_params(digest)), ["prompt", "runtimeSettings"]);
        }
    }

    #[test]
    fn a_probe_that_fails_takes_back_an_earlier_pass() {
        let (root, digest) = build();
        let builds = Builds::open(root.path());
        builds.record_probe(digest, "c1", true);
        builds.record_probe(digest, "c2", true);
        builds.record_probe(digest, "c1", false);
        for builds in [builds, Builds::open(root.path())] {
            assert!(!builds.probe_passed(digest, "c1"));
            assert!(builds.probe_passed(digest, "c2"));
        }
    }

    #[test]
    fn another_version_of_the_host_probes_again() {
        let (root, digest) = build();
        Builds::open(root.path()).record_probe(digest, "c1", true);
        let path = file(&root, digest);
        let text = fs::read_to_string(&path).expect("read").replace(env!("CARGO_PKG_VERSION"), "0.0.9");
        fs::write(&path, text).expect("written");
        let builds = Builds::open(root.path());
        assert!(!builds.probe_passed(digest, "c1"));
        builds.record_probe(digest, "c1", true);
        assert!(fs::read_to_string(&path).expect("read").contains("0.0.9"), "the older host's verdict is its own");
    }

    #[test]
    fn two_processes_learn_side_by_side() {
        let (root, digest) = build();
        let (one, two) = (Builds::open(root.path()), Builds::open(root.path()));
        assert!(one.refused_host_params(digest).is_empty() && two.refused_host_params(digest).is_empty());
        one.refuse_host_param(digest, "prompt");
        two.record_probe(digest, "c1", true);
        let third = Builds::open(root.path());
        assert!(third.probe_passed(digest, "c1"));
        assert_eq!(Vec::from_iter(third.refused_host_params(digest)), ["prompt"]);
    }

    #[test]
    fn the_newest_configurations_are_remembered() {
        let (root, digest) = build();
        let builds = Builds::open(root.path());
        for number in 0..=MAX_PROBES {
            builds.record_probe(digest, &number.to_string(), true);
        }
        assert!(!builds.probe_passed(digest, "0"));
        assert!(builds.probe_passed(digest, "1") && builds.probe_passed(digest, &MAX_PROBES.to_string()));
    }

    #[test]
    fn what_cannot_be_read_is_nothing_known_and_written_anew() {
        for foreign in ["", "{", "[]", "{\"format\":2}", "{\"format\":1,\"probes\":7}", "\u{0}\u{0}"] {
            let (root, digest) = build();
            let path = file(&root, digest);
            fs::create_dir(root.path().join("builds")).expect("a folder");
            fs::write(&path, foreign).expect("written");
            let builds = Builds::open(root.path());
            assert!(!builds.probe_passed(digest, "c1"), "{foreign:?}");
            assert!(builds.refused_host_params(digest).is_empty(), "{foreign:?}");
            builds.record_probe(digest, "c1", true);
            assert!(Builds::open(root.path()).probe_passed(digest, "c1"), "{foreign:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_nothing_known_and_replaced() {
        let (root, digest) = build();
        let path = file(&root, digest);
        fs::create_dir(root.path().join("builds")).expect("a folder");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo can be run");
        assert!(made.success());
        let builds = Builds::open(root.path());
        assert!(!builds.probe_passed(digest, "c1"));
        builds.record_probe(digest, "c1", true);
        assert!(Builds::open(root.path()).probe_passed(digest, "c1"));
    }

    #[test]
    fn a_directory_that_cannot_be_written_costs_only_the_memory_of_the_next_process() {
        let (root, digest) = build();
        fs::write(root.path().join("builds"), "a file where the directory should be").expect("written");
        let builds = Builds::open(root.path());
        builds.record_probe(digest, "c1", true);
        assert!(builds.probe_passed(digest, "c1"));
        assert!(!Builds::open(root.path()).probe_passed(digest, "c1"));
    }

    #[test]
    fn files_of_builds_nobody_uses_are_removed() {
        let (root, digest) = build();
        Builds::open(root.path()).record_probe(digest, "c1", true);
        let (used, kept) = (file(&root, digest), root.path().join("builds/notes.txt"));
        let others = ["0".repeat(64) + ".json", ".learning-x".to_owned()];
        let others = others.map(|name| root.path().join("builds").join(name));
        for path in others.iter().chain([&kept]) {
            fs::write(path, "{}").expect("written");
        }
        for path in others.iter().chain([&kept, &used]) {
            make_old(path);
        }
        assert!(Builds::open(root.path()).probe_passed(digest, "c1"));
        assert!(used.exists() && kept.exists());
        assert!(others.iter().all(|path| !path.exists()));
        assert!(age(&used).is_some_and(|age| age < USE_RESOLUTION), "a file that is used is young again");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_what_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let (root, digest) = build();
        Builds::open(root.path()).record_probe(digest, "c1", true);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&file(&root, digest)), 0o600);
        assert_eq!(mode(&root.path().join("builds")), 0o700);
    }
}
