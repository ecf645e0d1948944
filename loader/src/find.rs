//! Step 1, find: the plugins directories in order of precedence, and what in them may be a plugin.
//!
//! A plugin is a bare library, or a folder with a `plugin.json` and one library per platform. Everything else in a
//! plugins directory that has a library's ending is named with its reason; other files (notes, backups) are passed over.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{LoaderError, Problem, Step};
use crate::manifest::{MANIFEST, Manifest};
use crate::platform::LIBRARY_EXTENSION;

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
}

/// Looks through `directories`, first to last; within one, by name. A directory that is missing holds nothing; one that is
/// a plugin itself (a library, a folder with a `plugin.json`) is that plugin.
pub fn find(directories: &[PathBuf]) -> Vec<Result<Candidate, LoaderError>> {
    let mut found = Vec::new();
    for (precedence, directory) in directories.iter().enumerate() {
        if (directory.is_file() || directory.join(MANIFEST).exists())
            && let Some(plugin) = candidate(directory, precedence)
        {
            found.push(plugin);
            continue;
        }
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                found.push(Err(io_error(directory, "reading the plugins directory", &error)));
                continue;
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        found.extend(paths.iter().filter_map(|path| candidate(path, precedence)));
    }
    found
}

/// `path` as a candidate; `None` when nothing says that it is meant as a plugin.
pub fn candidate(path: &Path, precedence: usize) -> Option<Result<Candidate, LoaderError>> {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let has_manifest = path.join(MANIFEST).exists();
    let named_so = path.extension().is_some_and(|extension| extension == LIBRARY_EXTENSION);
    if hidden || !(has_manifest || named_so) {
        return None;
    }
    let found = if has_manifest {
        Manifest::read(path).and_then(|manifest| {
            let library = regular_file(&manifest.library(path)?)?;
            Ok(Candidate { path: path.to_owned(), library, manifest: Some(manifest), precedence })
        })
    } else {
        regular_file(path).map(|library| Candidate { path: path.to_owned(), library, manifest: None, precedence })
    };
    // Errors speak of what lies in the directory, which is what the person sees.
    Some(found.map_err(|error| LoaderError { path: path.to_owned(), ..error }))
}

/// `path` with links resolved, if a regular file is there. Never opens it: opening a pipe would wait for a writer.
pub fn regular_file(path: &Path) -> Result<PathBuf, LoaderError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let resolved = fs::canonicalize(path).map_err(|error| match is_link {
        true => LoaderError::new(path, Step::Find, Problem::BrokenLink { reason: error.to_string() }),
        false => io_error(path, "looking at the file", &error),
    })?;
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
