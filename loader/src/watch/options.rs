//! How a host watches, and what it is told.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::reload::Reloaded;

/// Is called before a look.
pub type BeforeLook = Box<dyn FnMut() -> Option<Duration> + Send>;

/// Takes what a look did.
pub type TellReloads = Box<dyn FnMut(&[Reloaded]) + Send>;

/// How a loader is watched.
pub struct WatchOptions {
    /// Files that matter besides the plugins: a configuration.
    pub files: Vec<PathBuf>,
    /// How long nothing may have changed before a look is taken.
    pub settle: Duration,
    /// How often a look is taken where the system cannot watch.
    pub poll: Duration,
    /// Do not ask the system to watch: plugins lie on a drive that tells nothing.
    pub poll_only: bool,
    /// Called before each look, which sees what it sets: reads the configuration again. Says when it wants to be called
    /// again although nothing changes.
    pub before: Option<BeforeLook>,
    /// Told what a look did, when it did something; on the watcher's thread.
    pub told: Option<TellReloads>,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            files: vec![],
            settle: Duration::from_millis(30),
            poll: Duration::from_secs(1),
            poll_only: false,
            before: None,
            told: None,
        }
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("files", &self.files)
            .field("settle", &self.settle)
            .field("poll", &self.poll)
            .field("poll_only", &self.poll_only)
            .finish_non_exhaustive()
    }
}
