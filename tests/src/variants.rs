//! Many builds of one engine, without building: a few bytes of the library are changed, its digest with them.
//!
//! Decision: of `alpha` a text that its answers show, so that a test sees which build answered; of any other engine what
//! stands behind the library's end, which nobody reads.

use std::fs;
use std::path::{Path, PathBuf};

use crate::build::plugin;

/// A text in `alpha` that stands in each of its prompts.
const SHOWN: &[u8] = b" with the helper of ";

/// Build number `number` of `alpha`: its prompts begin with `alpha v007 the helper of alpha`.
#[track_caller]
pub fn alpha(number: usize) -> Vec<u8> {
    numbered(&plugin("alpha"), number)
}

/// The same, of this build of `alpha`.
#[track_caller]
pub fn numbered(library: &Path, number: usize) -> Vec<u8> {
    let mut bytes = fs::read(library).expect("built");
    let places: Vec<usize> = (0..bytes.len() - SHOWN.len()).filter(|at| bytes[*at..].starts_with(SHOWN)).collect();
    assert_eq!(places.len(), 1, "the text stands there once");
    let shown = format!(" v{:03} the helper of ", number % 1_000);
    bytes[places[0]..places[0] + SHOWN.len()].copy_from_slice(shown.as_bytes());
    bytes
}

/// A build of engine `name` that differs from the others by its number alone.
pub fn variant(name: &str, number: usize) -> Vec<u8> {
    let mut bytes = fs::read(plugin(name)).expect("built");
    bytes.extend(format!("build {number}").bytes());
    bytes
}

/// Puts `bytes` at `path` in one step, as a careful person does.
///
/// # Panics
/// When the file system refuses.
pub fn put(path: &Path, bytes: impl AsRef<[u8]>) -> PathBuf {
    let folder = path.parent().expect("a folder");
    fs::create_dir_all(folder).expect("folders");
    let new = folder.join(".being-written");
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).expect("written");
    path.to_owned()
}
