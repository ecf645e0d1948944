//! What operating systems do differently: reading at a place, telling one file from another, permissions.
//!
//! Written for Unix and Windows; only run on Linux.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Reads up to `buffer.len()` bytes from `offset` on, whatever the file's own position is.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, offset);
}

/// What tells a file from one that took its place; `None` where the standard library cannot say.
pub(super) fn identity(file: &Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((file.dev(), file.ino()))
    }
    // An open file is not replaced on Windows.
    #[cfg(windows)]
    {
        let _ = file;
        None
    }
}

/// Shortens the file to `length`.
pub(super) fn truncate(file: &File, path: &Path, length: u64) -> io::Result<()> {
    #[cfg(unix)]
    {
        let _ = path;
        file.set_len(length)
    }
    // A handle that can only append cannot shorten.
    #[cfg(windows)]
    {
        let _ = file;
        OpenOptions::new().write(true).open(path)?.set_len(length)
    }
}

/// A file that is made is its owner's alone (0600). On Windows, the folder's rules hold.
pub(super) fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let _ = options;
}

/// Makes a folder and those above it, each its owner's alone (0700).
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Makes a file's name as durable as its content.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return File::open(path)?.sync_all();
    #[cfg(windows)]
    {
        let _ = path;
        Ok(())
    }
}
