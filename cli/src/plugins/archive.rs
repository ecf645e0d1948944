//! Archives of plugins: a gzipped tar file with `plugin.json` at its top.
//!
//! Decision: an archive comes from a stranger, and unpacking it must do no more than make files and folders below one
//! folder. So the plain ustar format only, in which a name stands in its own header: names in extra headers, links and
//! devices are refused, and nothing is read beyond what the whole may unpack to, whatever its headers say.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use context_engine_loader::on_one_line;
use context_engine_loader::platform::create_private_dir;
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, EntryType, Header};

use super::place::{self, MAX_BYTES, MAX_ENTRIES};

/// The most folders that lie in one another.
const MAX_DEPTH: usize = 32;

/// How many times its own length an archive may unpack to. Libraries shrink to a third or a fourth.
const MAX_RATIO: u64 = 200;

/// An archive may always unpack to this: small ones are mostly zeros.
const ALWAYS: u64 = 1 << 20;

/// Whether a file is gzipped, by its first bytes.
pub(super) fn is_one(path: &Path) -> bool {
    let mut head = [0; 2];
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    regular && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == [0x1f, 0x8b]
}

/// What a file is that is no such archive and is often taken for one.
pub(super) fn is_another(path: &Path) -> Option<&'static str> {
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let mut head = vec![];
    if !regular || File::open(path).and_then(|file| file.take(512).read_to_end(&mut head)).is_err() {
        return None;
    }
    match head.as_slice() {
        [b'P', b'K', 3 | 5, ..] => Some("a zip file"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [b'B', b'Z', b'h', ..] => {
            Some("compressed in another way")
        }
        head if head.get(257..262) == Some(b"ustar") => Some("a tar file that is not compressed"),
        _ => None,
    }
}

/// Unpacks `archive` into the new folder `to`. On an error, what was unpacked so far is still there.
pub(super) fn unpack(archive: &Path, to: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let file = File::open(archive).map_err(text)?;
    let length = file.metadata().map_err(text)?.len();
    unpack_from(file, length, to)
}

fn unpack_from(packed: impl Read, length: u64, to: &Path) -> Result<(), String> {
    let limit = MAX_BYTES.min(length.saturating_mul(MAX_RATIO).max(ALWAYS));
    let mut unpacked = Limited { inner: GzDecoder::new(packed), left: limit, limit };
    let mut head = vec![];
    (&mut unpacked).take(512).read_to_end(&mut head).map_err(broken)?;
    is_tar(&head)?;
    let mut archive = Archive::new(head.as_slice().chain(unpacked));
    create_private_dir(to).map_err(|error| error.to_string())?;
    let mut seen = HashSet::new();
    // Folders need no entry of their own.
    let mut made: HashSet<PathBuf> = HashSet::new();
    // Whether a name, whatever its case, is that of a folder.
    let mut folders: HashMap<String, bool> = HashMap::new();
    let mut has_manifest = false;
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let mut entry = entry.map_err(broken)?;
        let (name, kind) = (entry.path_bytes().into_owned(), entry.header().entry_type());
        let shown = on_one_line(&String::from_utf8_lossy(&name));
        if !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(format!(
                "the archive has {} ({shown}), expected files and folders only; make it with `context-engine plugins pack`",
                called(kind)
            ));
        }
        let Some(path) = inside(&name) else {
            return Err(format!(
                "the archive has an entry {shown:?}, expected a path inside it; nothing of it was used"
            ));
        };
        if path.as_os_str().is_empty() {
            continue;
        }
        if path.components().count() > MAX_DEPTH {
            return Err(format!("the archive has folders more than {MAX_DEPTH} deep ({shown}); that is no plugin"));
        }
        made.extend(path.ancestors().map(Path::to_owned).filter(|path| !path.as_os_str().is_empty()));
        if made.len() > MAX_ENTRIES {
            return Err(format!("the archive has more than {MAX_ENTRIES} files and folders; that is no plugin"));
        }
        // Some systems take names that differ in case for one.
        if !seen.insert(path.to_string_lossy().to_lowercase()) {
            return Err(format!("the archive has {shown:?} twice; nothing of it was used"));
        }
        for (above, path) in path.ancestors().filter(|path| !path.as_os_str().is_empty()).enumerate() {
            let is_folder = above > 0 || kind == EntryType::Directory;
            if *folders.entry(path.to_string_lossy().to_lowercase()).or_insert(is_folder) != is_folder {
                let shown = on_one_line(&path.to_string_lossy());
                return Err(format!("the archive has {shown:?} as a file and as a folder; nothing of it was used"));
            }
        }
        let place = to.join(&path);
        let failed = |error: io::Error| match is_of_the_archive(&error) {
            true => broken(error),
            false => format!("unpacking {shown} into {}: {error}", to.display()),
        };
        if kind == EntryType::Directory {
            create_private_dir(&place).map_err(failed)?;
            continue;
        }
        let size = entry.header().size().map_err(broken)?;
        create_private_dir(place.parent().unwrap_or(to)).map_err(failed)?;
        // Of its mode, whether it can be run by its owner: never more.
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o100 != 0);
        if place::write(&mut entry, &place, executable).map_err(failed)? != size {
            return Err("the archive is cut off; get it again".to_owned());
        }
        has_manifest |= path == Path::new("plugin.json");
    }
    // The checksum stands behind everything.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    match has_manifest {
        true => Ok(()),
        false => {
            Err("the archive has no plugin.json at its top; make it with `context-engine plugins pack`".to_owned())
        }
    }
}

/// Why the archive cannot be read. What a damaged header holds is nothing to show.
fn broken(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::FileTooLarge => format!("the archive {error}; that is no plugin"),
        io::ErrorKind::Other => "the archive cannot be read: one of its headers is damaged; get it again".to_owned(),
        _ => format!("the archive cannot be read: {error}; get it again"),
    }
}

/// Refuses what does not begin as a tar file does, by its first block.
fn is_tar(head: &[u8]) -> Result<(), String> {
    if head.starts_with(&[0x1f, 0x8b]) {
        return Err("the archive is compressed twice; `gunzip` it once".to_owned());
    }
    let is_end = head.iter().all(|&byte| byte == 0);
    if !is_end && (head.len() < 512 || Header::from_byte_slice(head).cksum().is_err()) {
        let to_do = "make it with `context-engine plugins pack`";
        return Err(format!("what is compressed there is no tar file; {to_do}"));
    }
    Ok(())
}

/// A name as a path below the folder; empty for the folder itself.
fn inside(name: &[u8]) -> Option<PathBuf> {
    let name = std::str::from_utf8(name).ok()?;
    let mut path = PathBuf::new();
    if name.starts_with('/') {
        return None;
    }
    for part in name.trim_end_matches('/').split('/').filter(|part| *part != ".") {
        // Other systems have other ways to leave a folder.
        if part.is_empty() || part == ".." || part.contains(['\\', ':']) || part.chars().any(char::is_control) {
            return None;
        }
        path.push(part);
    }
    Some(path)
}

fn called(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink | EntryType::Link => "a link",
        EntryType::Char | EntryType::Block | EntryType::Fifo => "a device or pipe",
        EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader => {
            "an extended header"
        }
        _ => "an entry of an unknown kind",
    }
}

fn is_of_the_archive(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput, UnexpectedEof};
    // What the system says is of the disk.
    error.raw_os_error().is_none() && matches!(error.kind(), FileTooLarge | UnexpectedEof | InvalidInput | InvalidData)
}

/// Reads so many bytes and no more.
struct Limited<R> {
    inner: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let reason = format!("unpacks to more than the {} bytes one of its length may have", self.limit);
            io::Error::new(io::ErrorKind::FileTooLarge, reason)
        })?;
        Ok(read)
    }
}

/// A file to pack.
pub(super) struct Packed {
    /// Its name in the archive.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Whether it can be run by itself. A library need not be.
    pub(super) executable: bool,
}

/// Whether a name fits into the header of an entry.
pub(super) fn fits(name: &str) -> bool {
    Header::new_ustar().set_path(name).is_ok()
}

/// Writes the files, by name, as an archive whose bytes depend on names and contents alone, and on what can be run.
pub(super) fn pack(files: &[Packed], manifest: Option<&[u8]>, out: impl Write) -> io::Result<()> {
    let mut sorted: Vec<(&str, Option<&PathBuf>, bool)> =
        files.iter().map(|file| (file.name.as_str(), Some(&file.path), file.executable)).collect();
    if manifest.is_some() {
        sorted.push(("plugin.json", None, false));
    }
    sorted.sort_unstable();
    let mut tar = tar::Builder::new(GzBuilder::new().mtime(0).write(out, Compression::best()));
    for (name, path, executable) in sorted {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_path(name)?;
        header.set_mode(if executable { 0o755 } else { 0o644 });
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match path {
            None => {
                let bytes = manifest.unwrap_or_default();
                header.set_size(bytes.len() as u64);
                header.set_cksum();
                tar.append(&header, bytes)?;
            }
            Some(path) => {
                let file = File::open(path)?;
                let length = file.metadata()?.len();
                header.set_size(length);
                header.set_cksum();
                tar.append(&header, file.take(length))?;
            }
        }
    }
    tar.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests;
