//! The steps in which a new build takes the place of the old one.
//!
//! Decision: the steps are a list, made before the first is taken. So a test can stop after each of them, which is what a
//! kill does, and a host that looks.
//!
//! Invariant: before and after each step, the plugins directory has one build of the id, however often, if it had one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use context_engine_loader::platform::{LIBRARY_EXTENSION, TARGET, create_private_dir};
use serde_json::json;

use super::leftovers::ASIDE;
use super::{sync, write};

/// What takes whose place.
pub(in super::super) struct Placing<'a> {
    /// Id and version of the engine.
    pub(in super::super) id: &'a str,
    pub(in super::super) version: &'a str,
    /// The hidden folder in which the new build was made. What the new one replaces ends there.
    pub(in super::super) work: &'a Path,
    /// The new build, in it: a library, or a plugin folder.
    pub(in super::super) made: &'a Path,
    /// The name it gets.
    pub(in super::super) target: &'a Path,
    /// What has the id now, the one that is used first.
    pub(in super::super) before: &'a [PathBuf],
}

#[derive(Debug)]
enum Step {
    /// Gives a thing a name that is free.
    Rename(PathBuf, PathBuf),
    /// Gives a file the name of another, which is gone then.
    Replace(PathBuf, PathBuf),
    /// Lets two swap their names.
    Exchange(PathBuf, PathBuf),
}

/// Puts the new build into its place.
///
/// # Errors
/// What the system says. The old build is back then, as far as the system lets it.
pub(in super::super) fn place(placing: &Placing<'_>) -> io::Result<()> {
    let steps = plan(placing)?;
    let mut taken = 0;
    let all = steps.iter().try_for_each(|step| step.take().map(|()| taken += 1));
    let done = all.and_then(|()| sync(placing.target.parent().unwrap_or(Path::new("."))));
    if done.is_err() {
        steps[..taken].iter().rev().try_for_each(Step::take_back)?;
    }
    done
}

fn plan(placing: &Placing<'_>) -> io::Result<Vec<Step>> {
    let Placing { work, made, target, before, .. } = *placing;
    let (made, target) = (made.to_owned(), target.to_owned());
    let mut steps = vec![];
    // Copies of the one that is used, or builds that nobody can use.
    for (at, other) in before.iter().skip(1).enumerate() {
        steps.push(Step::Rename(other.clone(), work.join(format!("other-{at}"))));
    }
    let gone = |path: &Path| before.iter().skip(1).any(|other| other == path);
    let put = |from: &Path, to: &Path, is_file: bool| match fs::symlink_metadata(to) {
        Ok(there) if !gone(to) => match is_file && there.is_file() {
            true => Step::Replace(from.to_owned(), to.to_owned()),
            false => Step::Exchange(from.to_owned(), to.to_owned()),
        },
        _ => Step::Rename(from.to_owned(), to.to_owned()),
    };
    let is_file = made.is_file();
    let is_library = |path: &Path| path.extension() == Some(OsStr::new(LIBRARY_EXTENSION));
    match before.first().filter(|used| **used != target) {
        None => steps.push(put(&made, &target, is_file)),
        // First under the name of the old one.
        Some(used) if !is_file || is_library(used) => {
            steps.push(put(&made, used, is_file));
            let last = put(used, &target, is_file);
            let leaves_another = matches!(last, Step::Exchange(..));
            steps.push(last);
            if leaves_another {
                steps.push(Step::Rename(used.clone(), work.join("another")));
            }
        }
        // A file has no place under the name of a folder: for the moment, the new build is a folder, too.
        Some(used) => {
            let wrapped = wrap(placing)?;
            steps.push(Step::Exchange(wrapped, used.clone()));
            steps.push(put(&made, &target, is_file));
            steps.push(Step::Rename(used.clone(), work.join("used")));
        }
    }
    Ok(steps)
}

/// The library that was made, as a plugin folder.
fn wrap(placing: &Placing<'_>) -> io::Result<PathBuf> {
    let (folder, name) = (placing.work.join("wrapped"), format!("engine.{LIBRARY_EXTENSION}"));
    create_private_dir(&folder)?;
    let manifest = json!({ "id": placing.id, "version": placing.version, "libraries": { TARGET: name } });
    write(&mut manifest.to_string().as_bytes(), &folder.join("plugin.json"), false)?;
    write(&mut File::open(placing.made)?, &folder.join(name), false)?;
    Ok(folder)
}

impl Step {
    fn take(&self) -> io::Result<()> {
        match self {
            Step::Rename(from, to) | Step::Replace(from, to) => fs::rename(from, to),
            Step::Exchange(one, other) => exchange(one, other),
        }
    }

    fn take_back(&self) -> io::Result<()> {
        match self {
            Step::Rename(from, to) => fs::rename(to, from),
            Step::Exchange(one, other) => exchange(one, other),
            // The old one is gone, and the new one is whole.
            Step::Replace(..) => Ok(()),
        }
    }
}

/// Lets two things swap their names, at once where the system can do that.
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(()),
            Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    exchange_by_names(one, other)
}

/// The same one after the other. A command that is killed between leaves `other` where the next one finds it.
fn exchange_by_names(one: &Path, other: &Path) -> io::Result<()> {
    let plugins = other.parent().unwrap_or(Path::new("."));
    // Kept: what is in it goes only when it is not needed.
    let aside = tempfile::Builder::new().prefix(ASIDE).tempdir_in(plugins)?.keep();
    let old = aside.join(other.file_name().unwrap_or_default());
    let swapped = fs::rename(other, &old).and_then(|()| match fs::rename(one, other) {
        Ok(()) => fs::rename(&old, one),
        Err(error) => fs::rename(&old, other).and(Err(error)),
    });
    // One that is not empty is for the next command.
    let _ = fs::remove_dir(aside);
    swapped
}

#[cfg(test)]
mod tests;
