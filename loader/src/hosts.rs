//! Hosts that run, and how one is asked to reload: small files in the state folder.
//!
//! Decision: files, because a host owns no socket and needs none: `hosts/<pid>.json` is what a host says of itself, written
//! as one and removed at its end, and `reload` is a number that grows when somebody asks. A host that was killed leaves its
//! file behind; number and start of the process tell that, and whoever looks removes it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::platform::{create_private_dir, open_regular};
use crate::quarantine::ProcessStamp;
use crate::reload::{Outcome, Reloaded};

/// Where hosts say that they run, in the state folder.
const FOLDER: &str = "hosts";

/// The number that grows when somebody asks for a reload, in the state folder.
pub(crate) const ASKED: &str = "reload";

/// A host of another system that has not said for so long that it runs has ended.
const SILENT: Duration = Duration::from_secs(10 * 60);

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A host that runs and watches its plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningHost {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessStamp,
    /// Which system numbers its processes: a state folder may be shared by containers and machines.
    #[serde(default)]
    pub system: String,
    /// What people call it.
    pub label: String,
    /// Engines its sessions asked for.
    pub engines: Vec<EngineInUse>,
    /// How often an instance was replaced.
    pub swaps: u64,
    /// Builds that were replaced and are still mapped.
    pub retired_copies: usize,
    /// Address space their files take, in bytes.
    pub retired_bytes: u64,
    /// Digests of all builds it has mapped.
    pub mapped: Vec<String>,
    /// What its last look at the files did.
    pub last_reload: Option<LastReload>,
}

/// An engine of a running host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineInUse {
    /// The id that was asked for.
    pub id: String,
    /// SHA-256 of the build that serves; none when `legacy` does.
    pub digest: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Why `legacy` serves.
    pub why: Option<String>,
}

/// What a host's last reload did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastReload {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The newest request it has heeded; 0 for none.
    pub generation: u64,
    /// What became of each engine.
    pub engines: Vec<ReloadedEngine>,
}

/// [`Reloaded`], for other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadedEngine {
    /// The engine.
    pub id: String,
    /// `unchanged`, `replaced`, `opened`, `removed` or `kept`.
    pub outcome: String,
    /// The build that serves now; none when `legacy` does.
    pub digest: Option<String>,
    /// The build it replaced.
    pub from: Option<String>,
    /// Why what is there is not used.
    pub why: Option<String>,
    /// All of it, for a person.
    pub text: String,
}

impl From<&Reloaded> for ReloadedEngine {
    fn from(reloaded: &Reloaded) -> ReloadedEngine {
        let (outcome, digest, from, why) = match &reloaded.outcome {
            Outcome::Unchanged { digest } => ("unchanged", Some(digest), None, None),
            Outcome::Replaced { from, to } => ("replaced", Some(to), Some(from), None),
            Outcome::Opened { digest } => ("opened", Some(digest), None, None),
            Outcome::Removed { why } => ("removed", None, None, Some(why)),
            Outcome::Kept { digest, why } => ("kept", digest.as_ref(), None, Some(why)),
        };
        ReloadedEngine {
            id: reloaded.engine.clone(),
            outcome: outcome.to_owned(),
            digest: digest.cloned(),
            from: from.cloned(),
            why: why.map(ToString::to_string),
            text: reloaded.to_string(),
        }
    }
}

/// The hosts that run on this system with this state folder, by process number. Files of those that have ended are removed.
pub fn running(state_dir: &Path) -> Vec<RunningHost> {
    let mut hosts = announced(state_dir);
    hosts.retain(|host| host.system == system());
    hosts.sort_by_key(|host| host.process);
    hosts
}

/// The same, and those of other systems that have said so lately.
pub(crate) fn announced(state_dir: &Path) -> Vec<RunningHost> {
    let Ok(entries) = fs::read_dir(state_dir.join(FOLDER)) else { return vec![] };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut hosts: Vec<RunningHost> = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        // One that cannot be read is of a later version, or is not ours: left alone.
        let Some(host) = read(&path).ok().and_then(|text| serde_json::from_slice::<RunningHost>(&text).ok()) else {
            continue;
        };
        let here = host.system == system();
        // Nobody here can tell whether a process of another system runs; each host says so again every minute.
        if if here { host.process.may_run() } else { !is_older(&path, SILENT) } {
            hosts.push(host);
        } else {
            // Somebody else may have removed it already.
            let _ = fs::remove_file(&path);
        }
    }
    hosts
}

/// Whether the file was written longer ago than that.
fn is_older(path: &Path, than: Duration) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified()).ok();
    written.and_then(|written| written.elapsed().ok()).is_some_and(|age| age > than)
}

/// What numbers the processes here: this start of this machine, and of its name spaces the one this process is in.
pub fn system() -> &'static str {
    static SYSTEM: OnceLock<String> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        format!("{} {}", boot.trim(), space.display())
    })
}

/// Asks the hosts that run to look at their plugins now, and to try again what they refused. Returns the number of the
/// request; a host that has heeded it says so in [`LastReload::generation`].
///
/// # Errors
/// When the state folder cannot be written.
pub fn ask_for_reload(state_dir: &Path) -> io::Result<u64> {
    create_private_dir(state_dir)?;
    // By the clock, so that two who ask at once do not take the same number for theirs.
    let generation = now_ms().max(asked(state_dir).saturating_add(1));
    write(&state_dir.join(ASKED), format!("{generation}\n").as_bytes())?;
    Ok(generation)
}

/// The newest request; 0 for none.
pub(crate) fn asked(state_dir: &Path) -> u64 {
    let text = read(&state_dir.join(ASKED)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// This host's file.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
}

impl Announcement {
    /// Of one watcher; a process may have several.
    pub(crate) fn new(state_dir: &Path) -> Announcement {
        static ANNOUNCED: AtomicU32 = AtomicU32::new(1);
        let pid = std::process::id();
        let name = match ANNOUNCED.fetch_add(1, Ordering::Relaxed) {
            1 => format!("{pid}.json"),
            number => format!("{pid}-{number}.json"),
        };
        Announcement { path: state_dir.join(FOLDER).join(name) }
    }

    pub(crate) fn say(&self, host: &RunningHost) -> io::Result<()> {
        write(&self.path, &serde_json::to_vec_pretty(host)?)
    }

    pub(crate) fn take_back(&self) {
        // It may never have been written.
        let _ = fs::remove_file(&self.path);
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_private_dir(folder)?;
    let mut file = tempfile::Builder::new().prefix(".saying-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    open_regular(path, File::options().read(true))?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(process: ProcessStamp) -> RunningHost {
        RunningHost {
            process,
            system: system().to_owned(),
            label: "a test".to_owned(),
            engines: vec![],
            swaps: 0,
            retired_copies: 0,
            retired_bytes: 0,
            mapped: vec![],
            last_reload: None,
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_host_that_was_killed_is_not_shown_and_its_file_goes() {
        let state = tempfile::tempdir().expect("a folder");
        let here = ProcessStamp::current();
        let alive = Announcement::new(state.path());
        alive.say(&host(here)).expect("written");
        let dead = state.path().join(FOLDER).join("1.json");
        write(&dead, &serde_json::to_vec(&host(ProcessStamp { start: here.start + 1, ..here })).expect("JSON"))
            .expect("written");
        let foreign = state.path().join(FOLDER).join("2.json");
        write(&foreign, b"{}").expect("written");
        assert_eq!(running(state.path()), [host(here)]);
        assert!(!dead.exists() && foreign.exists());
        // In a container with a process space of its own, nobody has that number.
        let elsewhere = RunningHost { system: "elsewhere".to_owned(), ..host(ProcessStamp { pid: 3, start: 4 }) };
        let container = state.path().join(FOLDER).join("3.json");
        write(&container, &serde_json::to_vec(&elsewhere).expect("JSON")).expect("written");
        assert_eq!(running(state.path()), [host(here)]);
        assert_eq!(announced(state.path()).len(), 2);
        let silent = SystemTime::now() - SILENT - Duration::from_secs(1);
        File::options().write(true).open(&container).and_then(|file| file.set_modified(silent)).expect("aged");
        assert_eq!(announced(state.path()).len(), 1);
        assert!(!container.exists());
        alive.take_back();
        assert_eq!(running(state.path()), []);
    }

    #[test]
    fn each_request_has_a_number_of_its_own() {
        let state = tempfile::tempdir().expect("a folder");
        assert_eq!(asked(state.path()), 0);
        let numbers: Vec<u64> = (0..20).map(|_| ask_for_reload(state.path()).expect("asked")).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert_eq!(asked(state.path()), numbers[19]);
        fs::write(state.path().join(ASKED), "soon").expect("written");
        assert_eq!(asked(state.path()), 0);
    }
}
