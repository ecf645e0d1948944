//! Who else could have changed a plugin: modes and owners of its files and of the folders they lie in.
//!
//! Decision: whoever can write a library can run code as the user who loads it, so everything from the plugins directory
//! down to the library has to belong to root or to this process's user, and be writable by nobody else. A group of one is
//! as good as no group. Access lists are not looked at. Only Linux was run; on Windows nothing is asked.

use std::fmt;
use std::path::PathBuf;

#[cfg(unix)]
pub(super) use unix::check;

/// A file or folder that is open to others, and what closes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// The file or folder.
    pub path: PathBuf,
    /// Its mode or owner.
    pub found: String,
    /// What it should be.
    pub wanted: String,
    /// The command that makes it so.
    pub run: String,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::on_one_line(&self.path.to_string_lossy());
        write!(f, "{path} {}, expected {}; run `{}`", self.found, self.wanted, crate::on_one_line(&self.run))
    }
}

/// Windows has no modes; its access lists are not looked at.
#[cfg(not(unix))]
pub(super) fn check(_: &crate::find::Candidate) -> Result<(), crate::error::Problem> {
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::cell::OnceCell;
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use rustix::process::{getegid, geteuid};

    use super::Exposed;
    use crate::error::Problem;
    use crate::find::Candidate;
    use crate::manifest::MANIFEST;
    use crate::text::for_shell;
    use crate::trust::accounts::Accounts;

    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;
    const STICKY: u32 = 0o1000;

    /// Everything between the plugins directory and the library, then what would let others swap that directory.
    pub(in crate::trust) fn check(candidate: &Candidate) -> Result<(), Problem> {
        let asker = Asker::new();
        let mut faults = Vec::new();
        for parent in &parents(candidate) {
            let meta = look(parent)?;
            if meta.mode() & OTHERS_WRITE != 0 && meta.mode() & STICKY == 0 {
                faults.push(exposed(parent, meta.mode(), "others may replace what lies in it", "o-w", OTHERS_WRITE));
            }
        }
        for path in &belongings(candidate) {
            faults.extend(asker.faults(path, &look(path)?));
        }
        if faults.is_empty() { Ok(()) } else { Err(Problem::Permissions { faults }) }
    }

    /// The folder the plugins directory lies in, and the one a link to it lies in.
    fn parents(candidate: &Candidate) -> BTreeSet<PathBuf> {
        let named =
            candidate.named.parent().map(|parent| if parent.as_os_str().is_empty() { ".".as_ref() } else { parent });
        let named = named.and_then(|parent| fs::canonicalize(parent).ok());
        candidate.root.parent().map(Path::to_owned).into_iter().chain(named).collect()
    }

    /// The plugin's files and the folders they lie in, up to the plugins directory. Sorted: a folder before what it holds.
    fn belongings(candidate: &Candidate) -> BTreeSet<PathBuf> {
        let manifest = candidate.manifest.as_ref().and_then(|_| fs::canonicalize(candidate.path.join(MANIFEST)).ok());
        let files = [Some(candidate.library.clone()), manifest];
        let inside = |file: &PathBuf| -> Vec<PathBuf> {
            let above = file.ancestors().take_while(|path| path.starts_with(&candidate.root));
            above.map(Path::to_owned).collect()
        };
        files.iter().flatten().flat_map(inside).collect()
    }

    fn look(path: &Path) -> Result<fs::Metadata, Problem> {
        fs::metadata(path).map_err(|error| Problem::Io {
            doing: "looking at who may write it",
            reason: format!("{}: {error}", crate::on_one_line(&path.to_string_lossy())),
        })
    }

    /// Who this process is, and whom the machine knows.
    struct Asker {
        uid: u32,
        gid: u32,
        /// Read when something is open: most plugins are not.
        accounts: OnceCell<Accounts>,
    }

    impl Asker {
        fn new() -> Asker {
            Asker { uid: geteuid().as_raw(), gid: getegid().as_raw(), accounts: OnceCell::new() }
        }

        fn accounts(&self) -> &Accounts {
            self.accounts.get_or_init(Accounts::read)
        }

        fn faults(&self, path: &Path, meta: &fs::Metadata) -> Vec<Exposed> {
            let mut faults = Vec::new();
            if meta.uid() != 0 && meta.uid() != self.uid {
                let (found, me) = (self.name(meta.uid()), self.name(self.uid));
                faults.push(Exposed {
                    path: path.to_owned(),
                    found: format!("belongs to {found}"),
                    wanted: if self.uid == 0 { "root".to_owned() } else { format!("{me} or root") },
                    run: format!(
                        "chown {} {}",
                        self.accounts().user(self.uid).unwrap_or(&self.uid.to_string()),
                        for_shell(path)
                    ),
                });
            }
            let mode = meta.mode();
            let others = (mode & GROUP_WRITES != 0).then(|| self.others_in_group(meta)).flatten();
            match (mode & OTHERS_WRITE != 0, others) {
                (true, Some(_)) => {
                    faults.push(exposed(path, mode, "others may write it", "go-w", OTHERS_WRITE | GROUP_WRITES));
                }
                (true, None) => faults.push(exposed(path, mode, "others may write it", "o-w", OTHERS_WRITE)),
                (false, Some(who)) => faults.push(exposed(path, mode, &who, "g-w", GROUP_WRITES)),
                (false, None) => {}
            }
            faults
        }

        /// Who writes by way of the group, when that is somebody else than root and this process's user.
        fn others_in_group(&self, meta: &fs::Metadata) -> Option<String> {
            let gid = meta.gid();
            match self.accounts().others_in_group(gid, &[0, self.uid]) {
                Some(others) if others.is_empty() => None,
                Some(others) => {
                    let more = if others.len() > 3 { ", …" } else { "" };
                    Some(format!("{}{more} may write it as group {gid}", others[..others.len().min(3)].join(", ")))
                }
                // In a container or under a directory server: a user's own group usually has the user's number.
                None if gid == meta.uid() || (gid == self.gid && self.gid == self.uid) => None,
                None => Some(format!("group {gid}, which /etc/group does not have, may write it")),
            }
        }

        fn name(&self, uid: u32) -> String {
            self.accounts().user(uid).map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
        }
    }

    fn exposed(path: &Path, mode: u32, who: &str, change: &str, without: u32) -> Exposed {
        Exposed {
            path: path.to_owned(),
            found: format!("has mode {:04o} ({who})", mode & 0o7777),
            wanted: format!("{:04o}", mode & 0o7777 & !without),
            run: format!("chmod {change} {}", for_shell(path)),
        }
    }
}
