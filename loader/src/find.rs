//! Step 1, find: the plugins directories in order of precedence, and what in them may be a plugin.
//!
//! A plugin is a bare library, or a folder with a `plugin.json` and one library per platform. Everything else in a
//! plugins directory that has a library's ending is named with its reason; other files (notes, backups) are passed over.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{LoaderError, Problem, Step};
use crate::manifest::{MANIFEST, Manifest};
use crate::platform::LIBRARY_EXTENSION;

/// A plugins directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDirectory {
    /// The directory; it may itself be a link. A library or plugin folder stands for itself.
    pub path: PathBuf,
    /// Who named it.
    pub origin: Origin,
}

/// Who named a plugins directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The operator: its plugins are used.
    Configured,
    /// Nobody; it came with a workspace. Its plugins are listed, and used when `plugins.allow` or `plugins.trusted` names them.
    Workspace,
}

impl From<PathBuf> for PluginDirectory {
    fn from(path: PathBuf) -> PluginDirectory {
        PluginDirectory { path, origin: Origin::Configured }
    }
}

/// Something that may be a plugin: a regular file that can be staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What lies in the plugins directory: the library, or the folder that ships it.
    pub path: PathBuf,
    /// The library itself, links resolved.
    pub library: PathBuf,
    /// The folder's manifest.
    pub manifest: Option<Manifest>,
    /// Position of its directory in the order of precedence.
    pub precedence: usize,
    /// Who named its directory.
    pub origin: Origin,
    /// The plugins directory as it was named; the plugin itself when that was named.
    pub named: PathBuf,
    /// The same, links resolved. The library lies in it.
    pub root: PathBuf,
}

/// Where an entry was found.
#[derive(Clone, Copy)]
struct Place<'a> {
    named: &'a Path,
    root: &'a Path,
    precedence: usize,
    origin: Origin,
}

/// Looks through `directories`, first to last; within one, by name. A directory that is missing holds nothing; one that is
/// a plugin itself (a library, a folder with a `plugin.json`) is that plugin; one that was looked through already, by
/// whatever path, is not looked through again.
pub fn find(directories: &[PluginDirectory]) -> Vec<Result<Candidate, LoaderError>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for (precedence, PluginDirectory { path: directory, origin }) in directories.iter().enumerate() {
        // Links are resolved once; what is a link from here on must stay inside.
        let root = match resolve(directory) {
            Ok(root) => root,
            Err(_) if fs::symlink_metadata(directory).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {
                continue;
            }
            Err(error) => {
                found.push(Err(error));
                continue;
            }
        };
        if !seen.insert(root.clone()) {
            continue;
        }
        let place = Place { named: directory, root: &root, precedence, origin: *origin };
        if (root.is_file() || root.join(MANIFEST).exists())
            && let Some(plugin) = entry(directory, place)
        {
            found.push(plugin);
            continue;
        }
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) => {
                found.push(Err(io_error(directory, "reading the plugins directory", &error)));
                continue;
            }
        };
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        found.extend(names.iter().filter_map(|name| entry(&directory.join(name), place)));
    }
    found
}

/// The library or plugin folder at `path`, which the caller named: it may be a link to anywhere.
///
/// # Errors
/// Why there is none.
pub fn named(path: &Path) -> Result<Candidate, LoaderError> {
    let root = resolve(path)?;
    let place = Place { named: path, root: &root, precedence: 0, origin: Origin::Configured };
    if root.join(MANIFEST).exists() { folder(path, place) } else { library(path, place) }
}

/// `path` as a candidate; `None` when nothing says that it is meant as a plugin.
fn entry(path: &Path, place: Place<'_>) -> Option<Result<Candidate, LoaderError>> {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let has_manifest = path.join(MANIFEST).exists();
    let named_so = path.extension().is_some_and(|extension| extension == LIBRARY_EXTENSION);
    if hidden || !(has_manifest || named_so) {
        return None;
    }
    Some(if has_manifest { folder(path, place) } else { library(path, place) })
}

fn library(path: &Path, place: Place<'_>) -> Result<Candidate, LoaderError> {
    let library = regular_file(path)?;
    inside(path, &library, place)?;
    Ok(candidate(path, library, None, place))
}

fn folder(path: &Path, place: Place<'_>) -> Result<Candidate, LoaderError> {
    // Errors speak of what lies in the directory, which is what the person sees.
    let seen = |error: LoaderError| LoaderError { path: path.to_owned(), ..error };
    for link in [path.to_owned(), path.join(MANIFEST)] {
        let target = fs::canonicalize(&link).map_err(|error| io_error(path, "looking at the file", &error))?;
        inside(&link, &target, place).map_err(seen)?;
    }
    let manifest = Manifest::read(path).map_err(seen)?;
    let seen = |error: LoaderError| seen(error).about(&manifest.id);
    let link = manifest.library(path).map_err(seen)?;
    let library = regular_file(&link).map_err(seen)?;
    inside(&link, &library, place).map_err(seen)?;
    Ok(candidate(path, library, Some(manifest), place))
}

fn candidate(path: &Path, library: PathBuf, manifest: Option<Manifest>, place: Place<'_>) -> Candidate {
    let Place { named, root, precedence, origin } = place;
    let (path, named, root) = (path.to_owned(), named.to_owned(), root.to_owned());
    Candidate { path, library, manifest, precedence, origin, named, root }
}

/// Refuses a link that leads out of the plugins directory.
fn inside(link: &Path, target: &Path, place: Place<'_>) -> Result<(), LoaderError> {
    if target.starts_with(place.root) {
        return Ok(());
    }
    let problem = Problem::LeadsOut { link: link.to_owned(), target: target.to_owned() };
    Err(LoaderError::new(link, Step::Find, problem))
}

/// `path` with links resolved. The system ends circles and long chains.
fn resolve(path: &Path) -> Result<PathBuf, LoaderError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    fs::canonicalize(path).map_err(|error| match is_link {
        true => LoaderError::new(path, Step::Find, Problem::BrokenLink { reason: error.to_string() }),
        false => io_error(path, "looking at the file", &error),
    })
}

/// `path` with links resolved, if a regular file is there. Never opens it: opening a pipe would wait for a writer.
pub fn regular_file(path: &Path) -> Result<PathBuf, LoaderError> {
    let resolved = resolve(path)?;
    let kind = fs::metadata(&resolved).map_err(|error| io_error(path, "looking at the file", &error))?.file_type();
    if kind.is_file() {
        return Ok(resolved);
    }
    let found = if kind.is_dir() { "directory without a plugin.json" } else { describe(kind) };
    Err(LoaderError::new(path, Step::Find, Problem::NotAFile { found }))
}

/// The text of a small file. Refuses what is no regular file: a pipe would wait for a writer, a device never ends.
///
/// # Errors
/// What the system says; `InvalidInput` for what is no regular file or longer than `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let refuse = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return refuse(format!("expected a file, found a {}", describe(found.file_type())));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit { refuse(format!("expected at most {limit} bytes")) } else { Ok(text) }
}

fn describe(kind: fs::FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "named pipe";
        }
        if kind.is_socket() {
            return "socket";
        }
        if kind.is_block_device() || kind.is_char_device() {
            return "device";
        }
    }
    if kind.is_dir() { "directory" } else { "special file" }
}

pub(crate) fn io_error(path: &Path, doing: &'static str, error: &io::Error) -> LoaderError {
    LoaderError::new(path, Step::Find, Problem::Io { doing, reason: error.to_string() })
}
