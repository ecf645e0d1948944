//! Changes of `config.json5` by a command, which keep what a person wrote into it.
//!
//! Decision: a change is a list of small edits, each of which says what shall be, so that doing it twice does nothing twice
//! and a change made meanwhile by somebody else is not undone. The text is changed in place (`splice`); then it
//! is read as any host reads it, and written only when it says what was meant and nothing else has changed. Written beside
//! the file and renamed: nobody ever reads half of it. Commands wait for each other (`lock`).
//!
//! Invariant: a file that cannot be read as a configuration is never written.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use context_engine_loader::find::read_text;
use context_engine_loader::platform::create_private_dir;
use context_engine_loader::trust::names_digest;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::lock::{self, Lock};
use super::{MAX_CONFIG, Trusted, reading, splice};
use crate::RuntimeError;

/// How long another command may take for its change.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that shall be. A path is a list of keys, from the outside in.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// This value stands at the path.
    Set(Vec<String>, Value),
    /// Nothing stands at the path.
    Remove(Vec<String>),
    /// The list at the path has this item.
    Add(Vec<String>, Value),
    /// The list at the path has no item like this one.
    Drop(Vec<String>, Value),
    /// `plugins.trusted` has no item with this path and digest, however that is written and whatever else the item says.
    Distrust(Trusted),
    /// What the edit says, if this value stands at its path.
    IfStill(Value, Box<Edit>),
}

impl Edit {
    /// [`Edit::Set`], from keys.
    pub fn set(path: &[&str], value: impl Into<Value>) -> Edit {
        Edit::Set(owned(path), value.into())
    }

    /// [`Edit::Remove`], from keys.
    pub fn remove(path: &[&str]) -> Edit {
        Edit::Remove(owned(path))
    }

    /// [`Edit::Add`], from keys.
    pub fn add(path: &[&str], item: impl Into<Value>) -> Edit {
        Edit::Add(owned(path), item.into())
    }

    /// [`Edit::Drop`], from keys.
    pub fn drop(path: &[&str], item: impl Into<Value>) -> Edit {
        Edit::Drop(owned(path), item.into())
    }

    /// [`Edit::IfStill`]: for who has read the file before and means this value.
    #[must_use]
    pub fn if_still(self, value: impl Into<Value>) -> Edit {
        Edit::IfStill(value.into(), Box::new(self))
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|&key| key.to_owned()).collect()
}

/// Makes `edits` in the file at `path`; one that does not exist is made from `template`. Whether anything changed.
///
/// The file keeps its owner, group and mode, and a link to it stays a link; a new file is its owner's alone (0600), and in
/// somebody's folder that is this person.
///
/// # Errors
/// [`RuntimeError::Config`]: the file cannot be read, with the place of its mistake; it cannot be changed without touching
/// more than was meant; it cannot be written; its owner cannot be kept. It is as it was then.
pub fn edit(path: &Path, template: &str, edits: &[Edit]) -> Result<bool, RuntimeError> {
    prepare(path, template, edits)?.commit()
}

/// A change that is written beside the file and has yet to take its place. No other command changes the file meanwhile;
/// without [`Prepared::commit`] nothing changes.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    /// The file itself, where the path is a link to it.
    place: PathBuf,
    before: Option<String>,
    /// The file after the change; none where there is nothing to change.
    new: Option<NamedTempFile>,
    _lock: Lock,
}

/// The first half of [`edit()`], with everything in it that a person can be wrong about: for a command that changes other
/// things, too, and shall change nothing when this cannot be done.
///
/// # Errors
/// As of [`edit()`].
pub fn prepare(path: &Path, template: &str, edits: &[Edit]) -> Result<Prepared, RuntimeError> {
    let refuse = |reason: String| refusal(path, reason);
    let io = |error: io::Error| refuse(error.to_string());
    let place = place(path).map_err(io)?;
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.exists() {
        create_private_dir(folder).map_err(io)?;
    }
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let lock = lock::lock(&place.with_file_name(format!(".{name}.lock")), PATIENCE).map_err(io)?;
    let before = match reading::text(&place) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    let old = before.as_deref().filter(|text| !reading::is_empty(text)).unwrap_or(template);
    let new = edited(old, edits).map_err(|reason| refuse(format!("{reason}; nothing was changed")))?;
    if before.as_deref().is_some_and(|before| before == new) || (before.is_none() && new == template) {
        return Ok(Prepared { path: path.to_owned(), place, before, new: None, _lock: lock });
    }
    let mut file = tempfile::Builder::new().prefix(".config-").tempfile_in(folder).map_err(io)?;
    match fs::metadata(&place) {
        Ok(old) => {
            lock::keep_owner(file.as_file(), &old).map_err(io)?;
            file.as_file().set_permissions(old.permissions()).map_err(io)?;
        }
        Err(_) => lock::hand_over(file.as_file(), &fs::metadata(folder).map_err(io)?),
    }
    file.write_all(new.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(io)?;
    Ok(Prepared { path: path.to_owned(), place, before, new: Some(file), _lock: lock })
}

impl Prepared {
    /// Makes the change. Whether there was one.
    ///
    /// # Errors
    /// [`RuntimeError::Config`]: somebody who knows nothing of the lock has changed the file meanwhile; it cannot be written.
    /// It is as it was then.
    pub fn commit(self) -> Result<bool, RuntimeError> {
        let Some(new) = self.new else { return Ok(false) };
        // An editor knows nothing of the lock.
        if read_text(&self.place, MAX_CONFIG).ok() != self.before {
            let reason = "it changed meanwhile; nothing was changed, run the command again".to_owned();
            return Err(refusal(&self.path, reason));
        }
        new.persist(&self.place).map_err(|error| refusal(&self.path, error.error.to_string()))?;
        Ok(true)
    }
}

fn refusal(path: &Path, reason: String) -> RuntimeError {
    RuntimeError::Config { path: path.to_owned(), doing: "changing it", reason }
}

/// The text after `edits`.
///
/// # Errors
/// Why it cannot be changed: the place of a mistake in it, or the edit that does not fit.
pub fn edited(text: &str, edits: &[Edit]) -> Result<String, String> {
    reading::parse(text)?;
    // A mark of byte order is no part of the text.
    let (mark, text) = text.split_at(text.len() - text.trim_start_matches('\u{feff}').len());
    let before = text;
    let mut text = text.to_owned();
    if reading::is_blank(&text) {
        // Comments without anything to comment on.
        let newline = if text.is_empty() || text.ends_with(['\n', '\r']) { "" } else { "\n" };
        text.push_str(&format!("{newline}{{}}\n"));
    }
    let empty = text.clone();
    for edit in edits {
        text = one(&text, edit)?;
    }
    // Without a change, nothing changes.
    let text = if text == empty { before } else { &text };
    Ok(format!("{mark}{text}"))
}

fn one(text: &str, edit: &Edit) -> Result<String, String> {
    let read = |text: &str| json5::from_str::<Value>(text).map_err(|error| error.to_string());
    let before = read(text)?;
    let (path, wanted) = (path_of(edit), wanted(&before, edit)?);
    if wanted == before {
        return Ok(text.to_owned());
    }
    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
    let new = spliced(text, edit, &keys, &before).map_err(|reason| {
        format!("{}: {reason}; change it by hand, the command leaves such a file alone", keys.join("."))
    })?;
    if read(&new).ok().as_ref() != Some(&wanted) {
        let place = keys.join(".");
        return Err(format!("{place} cannot be changed without touching more than that; change it by hand"));
    }
    reading::parse(&new).map_err(|reason| format!("it would no longer be a configuration: {reason}"))?;
    Ok(new)
}

fn spliced(text: &str, edit: &Edit, keys: &[&str], before: &Value) -> Result<String, String> {
    match edit {
        Edit::Set(_, value) => splice::set(text, keys, value),
        Edit::Remove(_) => Ok(splice::remove(text, keys)?.unwrap_or_else(|| text.to_owned())),
        Edit::Add(_, item) => splice::push(text, keys, item),
        Edit::IfStill(_, edit) => spliced(text, edit, keys, before),
        Edit::Drop(..) | Edit::Distrust(_) => {
            let path = path_of(edit);
            let listed = at(before, &path).and_then(Value::as_array).into_iter().flatten().enumerate();
            let found: Vec<usize> = listed.filter(|(_, listed)| drops(edit, listed)).map(|(at, _)| at).collect();
            let mut text = text.to_owned();
            for at in found.into_iter().rev() {
                text = splice::take(&text, keys, at)?.unwrap_or(text);
            }
            Ok(text)
        }
    }
}

/// Where an edit is made.
fn path_of(edit: &Edit) -> Vec<String> {
    match edit {
        Edit::Set(path, _) | Edit::Remove(path) | Edit::Add(path, _) | Edit::Drop(path, _) => path.clone(),
        Edit::Distrust(_) => owned(&["plugins", "trusted"]),
        Edit::IfStill(_, edit) => path_of(edit),
    }
}

/// Whether an edit takes this item out of its list.
fn drops(edit: &Edit, listed: &Value) -> bool {
    match edit {
        Edit::Drop(_, item) => listed == item,
        Edit::Distrust(Trusted { path, sha256 }) => serde_json::from_value::<Trusted>(listed.clone())
            .is_ok_and(|listed| listed.path == *path && names_digest(&listed.sha256, sha256)),
        _ => false,
    }
}

/// What the file shall say.
fn wanted(before: &Value, edit: &Edit) -> Result<Value, String> {
    let mut value = before.clone();
    match edit {
        Edit::Set(path, new) => *made(&mut value, path)? = new.clone(),
        Edit::Remove(path) => {
            let (key, parents) = path.split_last().ok_or("the whole configuration is no key")?;
            if let Some(Value::Object(parent)) = at_mut(&mut value, parents) {
                parent.shift_remove(key);
            }
        }
        Edit::Add(path, item) => {
            let list = made(&mut value, path)?;
            if list.is_null() {
                *list = Value::Array(vec![]);
            }
            let items = list.as_array_mut().ok_or_else(|| format!("{} is no list", path.join(".")))?;
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
        Edit::Drop(..) | Edit::Distrust(_) => {
            if let Some(Value::Array(items)) = at_mut(&mut value, &path_of(edit)) {
                items.retain(|listed| !drops(edit, listed));
            }
        }
        Edit::IfStill(meant, edit) => {
            if at(before, &path_of(edit)) == Some(meant) {
                return wanted(before, edit);
            }
        }
    }
    Ok(value)
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

fn at_mut<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, key| value.get_mut(key))
}

/// The place at `path`, made where it is missing.
fn made<'a>(value: &'a mut Value, path: &[String]) -> Result<&'a mut Value, String> {
    let mut place = value;
    for (depth, key) in path.iter().enumerate() {
        let object = place.as_object_mut().ok_or_else(|| match depth {
            0 => "the file holds no object".to_owned(),
            depth => format!("{} is no object", path[..depth].join(".")),
        })?;
        place = object.entry(key.clone()).or_insert(match depth + 1 == path.len() {
            true => Value::Null,
            false => Value::Object(serde_json::Map::new()),
        });
    }
    Ok(place)
}

/// The file itself, where the path is a link to it.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(place) => Ok(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            Ok(path.to_owned())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
