//! One writer per session: a lock file beside the session file.
//!
//! Decision: what holds is the operating system's lock on `<session file>.lock`, which ends with the process that took
//! it, however that ends; so no lock outlives its owner, and nobody has to remove one by hand. What the file says (process,
//! start, since when) only names the owner to others. Programs that write such a file and take no lock on it are left
//! alone while they provably run: the number lives, and its process started when the file says. A number alone proves
//! nothing, because numbers are used again.
//!
//! Concurrent openers: the owner removes the file while it still holds the lock, and whoever gets a lock looks whether its
//! file is still the one at the path. The lock is given up before the file is closed, so that a process started meanwhile,
//! which may share the open file for a moment, keeps nothing.
//!
//! Only Linux was run. On Windows, where what is locked cannot be read, the file is instead kept open against other
//! writers and vanishes with its owner; that part is written from its documentation.
//!
//! Invariant: while a [`SessionLock`] lives, nobody else has one of the same file, in this process or another, under
//! whatever path, as long as no hand removes the lock file.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::process;
use crate::TranscriptError;
use crate::time::format_iso;

/// How long an owner that cannot be seen is waited for: it may just have got the lock and not have said who it is, or
/// have been killed a moment ago. One that can be seen is named at once.
const PATIENCE: Duration = Duration::from_millis(200);
/// A lock file says a few hundred bytes; of a longer one, this much is looked at.
const LONGEST: u64 = 4096;
/// Characters of a name that are shown.
const NAME: usize = 64;

/// The right to write one session file, held until dropped.
#[derive(Debug)]
pub struct SessionLock {
    file: File,
    #[cfg_attr(windows, expect(dead_code, reason = "there the file vanishes with its owner"))]
    path: PathBuf,
}

/// Who holds a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    /// Number of the process; 0 when it did not say.
    pub pid: u32,
    /// What the program calls itself, else what the system calls it.
    pub name: String,
    /// When it took the lock, as it wrote it; empty when it did not.
    pub since: String,
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => f.write_str(&self.name),
            pid => write!(f, "{} (pid {pid})", self.name),
        }
    }
}

impl SessionLock {
    /// Takes the session, which need not exist yet; its folder must. A lock file that an ended process left, or that holds
    /// anything else, is taken over with a line in the log.
    ///
    /// # Errors
    /// [`TranscriptError::Locked`] when somebody else holds it, within a fraction of a second; [`TranscriptError::Lock`]
    /// when the lock file cannot be made or opened, something that is no file stands in its place, or the file system
    /// knows no locks.
    pub fn acquire(session_file: &Path) -> Result<SessionLock, TranscriptError> {
        let path = lock_path(session_file);
        let begun = Instant::now();
        loop {
            let content = match attempt(&path).map_err(|source| failure(&path, source))? {
                Attempt::Got { mut file, new } => {
                    let content = Content::of(&mut file);
                    if content.as_ref().and_then(Content::proven_owner).is_none() {
                        if !new {
                            tell_of_taking_over(&path, content.as_ref());
                        }
                        sign(&mut file, &path);
                        return Ok(SessionLock { file, path });
                    }
                    content
                }
                Attempt::Held => open_to_read(&path).as_mut().and_then(Content::of),
            };
            let owner = match content.as_ref().and_then(Content::proven_owner) {
                Some(owner) => owner,
                None if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                None => owner_or_unknown(content),
            };
            return Err(TranscriptError::Locked { path: session_file.to_owned(), owner: owner.to_string() });
        }
    }

    /// Who holds the session, without taking it; `None` when it is free.
    pub fn owner(session_file: &Path) -> Option<LockOwner> {
        let path = lock_path(session_file);
        let mut file = open_to_read(&path)?;
        let content = Content::of(&mut file);
        // Seen without a lock of our own, which somebody who opens the session meanwhile would have to wait for.
        let proven = content.as_ref().and_then(Content::proven_owner);
        proven.or_else(|| is_held(&file, &path).then(|| owner_or_unknown(content)))
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Where the file cannot be removed, an empty one names nobody.
        let _ = self.file.set_len(0);
        #[cfg(not(windows))]
        {
            if is_at(&self.file, &self.path) {
                let _ = fs::remove_file(&self.path);
            }
            let _ = self.file.unlock();
        }
    }
}

/// Beside the file itself, so that links and relative paths lead to one lock.
fn lock_path(session_file: &Path) -> PathBuf {
    let real = fs::canonicalize(session_file).or_else(|error| {
        // A session that is yet to be written; its folder is there.
        let name = session_file.file_name().ok_or(error)?;
        let folder = session_file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok::<_, io::Error>(fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
    });
    let mut path = real.unwrap_or_else(|_| session_file.to_owned()).into_os_string();
    path.push(".lock");
    path.into()
}

enum Attempt {
    /// The lock, and whether the file was made for it.
    Got { file: File, new: bool },
    /// Somebody has it, or the file was replaced meanwhile.
    Held,
}

#[cfg(not(windows))]
fn attempt(path: &Path) -> io::Result<Attempt> {
    let mut options = File::options();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Making a new file follows no link, and an old one is looked at first: a link would lead the owner's name into
    // another file, and a pipe would wait for its other end.
    let (file, new) = match options.clone().create_new(true).open(path) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path).and_then(|found| regular(&found)).and_then(|()| options.open(path)) {
                Ok(file) => (file, false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Held),
                Err(error) => return Err(error),
            }
        }
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => Ok(Attempt::Got { file, new }),
        Ok(()) | Err(fs::TryLockError::WouldBlock) => Ok(Attempt::Held),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(windows)]
fn attempt(path: &Path) -> io::Result<Attempt> {
    use std::os::windows::fs::OpenOptionsExt;
    const READ_WRITE_DELETE: u32 = 0x8000_0000 | 0x4000_0000 | 0x0001_0000;
    const SHARE_READ_DELETE: u32 = 0x1 | 0x4;
    const DELETE_ON_CLOSE: u32 = 0x0400_0000;
    const SHARING_VIOLATION: i32 = 32;
    let new = match fs::symlink_metadata(path) {
        Ok(found) => regular(&found).map(|()| false)?,
        Err(_) => true,
    };
    let mut options = File::options();
    options.access_mode(READ_WRITE_DELETE).share_mode(SHARE_READ_DELETE).custom_flags(DELETE_ON_CLOSE);
    match options.read(true).write(true).create(true).open(path) {
        Ok(file) => Ok(Attempt::Got { file, new }),
        Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(Attempt::Held),
        // About to vanish.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !new => Ok(Attempt::Held),
        Err(error) => Err(error),
    }
}

/// Whether a process holds the lock of a file that names no process that can be seen.
fn is_held(file: &File, path: &Path) -> bool {
    if cfg!(windows) {
        return File::options().write(true).open(path).is_err();
    }
    matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
}

fn regular(found: &fs::Metadata) -> io::Result<()> {
    let other = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "a pipe, a socket or a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected a regular file, found {other}")))
}

/// Whether the open file is the one at the path.
#[cfg(not(windows))]
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let (open, there) = (file.metadata().map(place), fs::symlink_metadata(path).map(place));
        matches!((open, there), (Ok(open), Ok(there)) if open == there)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

fn open_to_read(path: &Path) -> Option<File> {
    fs::symlink_metadata(path).and_then(|found| regular(&found)).and_then(|()| File::open(path)).ok()
}

fn failure(path: &Path, source: io::Error) -> TranscriptError {
    let to_do = match source.kind() {
        io::ErrorKind::InvalidData => "remove what stands there",
        io::ErrorKind::NotFound => "make the session's folder first",
        io::ErrorKind::Unsupported => "this file system knows no locks: keep sessions on another",
        _ => "sessions need a folder that can be written, on a file system that knows locks",
    };
    TranscriptError::Lock { path: path.to_owned(), source, to_do }
}

/// What a lock file says. Read leniently: other programs write some, too.
struct Content {
    pid: u32,
    name: String,
    start: Option<u64>,
    boot: Option<String>,
    since: String,
}

impl Content {
    /// `None` when it names no process.
    fn of(file: &mut File) -> Option<Content> {
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let json: Value = serde_json::from_slice(&bytes).ok()?;
        let whole = |value: &Value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        let text = |key: &str| json.get(key).and_then(Value::as_str).map(shown);
        Some(Content {
            pid: json.get("pid").and_then(whole).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0)?,
            name: text("name").unwrap_or_default(),
            start: ["startTime", "starttime"].into_iter().find_map(|key| json.get(key)).and_then(whole),
            boot: text("bootId"),
            since: text("createdAt").unwrap_or_default(),
        })
    }

    /// The owner, when it is certain that it runs.
    fn proven_owner(&self) -> Option<LockOwner> {
        let started = self.start.is_some_and(|start| process::start(self.pid) == Some(start));
        // After a power failure the same number may have started at the same tick.
        let same_boot = self.boot.is_none() || self.boot == process::boot();
        (started && same_boot).then(|| self.owner())
    }

    fn owner(&self) -> LockOwner {
        let called = Some(self.name.clone()).filter(|name| !name.is_empty());
        let name = called.or_else(|| process::name(self.pid).map(|name| shown(&name)));
        let name = name.unwrap_or_else(|| "a process".to_owned());
        LockOwner { pid: self.pid, name, since: self.since.clone() }
    }
}

fn owner_or_unknown(content: Option<Content>) -> LockOwner {
    let unknown =
        || LockOwner { pid: 0, name: "a process that does not say its name".to_owned(), since: String::new() };
    content.map_or_else(unknown, |content| content.owner())
}

/// Text of another program, fit for one line.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME).collect()
}

fn tell_of_taking_over(path: &Path, content: Option<&Content>) {
    let path = path.display();
    match content {
        None => tracing::info!(%path, "took over a session lock that names no owner"),
        Some(content) => {
            let pid = content.pid;
            match process::start(pid) {
                None => tracing::info!(%path, pid, "took over a session lock: its owner has ended"),
                Some(_) => tracing::info!(%path, pid, "took over a session lock: its pid is another program's by now"),
            }
        }
    }
}

/// Says who holds the lock. Nothing hangs on it: on a full disk the lock holds all the same, without a name.
fn sign(file: &mut File, path: &Path) {
    let pid = std::process::id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as i64);
    let owner = json!({
        "pid": pid,
        "name": process::own_name(),
        "startTime": process::start(pid),
        "bootId": process::boot(),
        "createdAt": format_iso(now),
    });
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(owner.to_string().as_bytes()));
    if let Err(error) = written {
        let _ = file.set_len(0);
        tracing::info!(path = %path.display(), %error, "holds a session lock without a name in it");
    }
}
