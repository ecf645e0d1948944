//! The end of a session file, where it grows.
//!
//! Decision: what is appended is one write, and a write that fails part-way is taken back, so that a full disk costs the
//! entry it came at and nothing else. What is taken back is only what reads as ours: a lock can be ignored.

use std::fs::File;
use std::io;
use std::path::Path;

use super::platform;

/// A file that is appended to. A trait, because no test can make a real disk fail to shorten a file.
pub(super) trait Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn shorten(&mut self, length: u64) -> io::Result<()>;
}

/// A file opened for appending, and its path.
pub(super) struct OnDisk<'a>(pub(super) &'a File, pub(super) &'a Path);

impl Disk for OnDisk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut self.0, bytes)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        platform::read_at(self.0, buffer, offset)
    }

    fn shorten(&mut self, length: u64) -> io::Result<()> {
        platform::truncate(self.0, self.1, length)
    }
}

/// Why nothing was appended.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) source: io::Error,
    /// Whether the file is as it was. Otherwise part of the bytes are in it.
    pub(super) undone: bool,
}

/// Appends all bytes or none to a file of the given length.
pub(super) fn append(disk: &mut impl Disk, length: u64, bytes: &[u8]) -> Result<(), Failed> {
    let mut rest = bytes;
    let source = loop {
        match disk.write(rest) {
            Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
            Ok(written) if written < rest.len() => rest = rest.get(written..).unwrap_or_default(),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let undone = undo(disk, length, bytes).unwrap_or(false);
    Err(Failed { source, undone })
}

/// Shortens the file to what it was; `false` when what was added since is not the beginning of `bytes`.
fn undo(disk: &mut impl Disk, length: u64, bytes: &[u8]) -> io::Result<bool> {
    let added = disk.length()?.saturating_sub(length);
    if added == 0 {
        return Ok(true);
    }
    let Some(ours) = usize::try_from(added).ok().and_then(|added| bytes.get(..added)) else { return Ok(false) };
    let mut found = vec![0; ours.len()];
    let mut filled = 0;
    while let Some(rest) = found.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match disk.read_at(rest, length + filled as u64)? {
            0 => return Ok(false),
            read => filled += read,
        }
    }
    if found != ours {
        return Ok(false);
    }
    disk.shorten(length)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, a few at a time.
    #[derive(Default)]
    struct Small {
        content: Vec<u8>,
        room: usize,
        cannot_shorten: bool,
        /// Written by another program between two writes.
        between: &'static [u8],
        interrupted: bool,
    }

    impl Disk for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !std::mem::replace(&mut self.interrupted, true) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let taken = bytes.len().min(self.room).min(3);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.content.extend(&bytes[..taken]);
            self.content.extend(std::mem::take(&mut self.between));
            Ok(taken)
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.content.len() as u64)
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let at = &self.content[offset as usize..];
            let read = at.len().min(buffer.len()).min(2);
            buffer[..read].copy_from_slice(&at[..read]);
            Ok(read)
        }

        fn shorten(&mut self, length: u64) -> io::Result<()> {
            if self.cannot_shorten {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.content.truncate(length as usize);
            Ok(())
        }
    }

    /// What the file holds after the line `new` was appended to `old`, and what was said of it.
    fn appended(mut disk: Small) -> (String, &'static str) {
        disk.content = b"old\n".to_vec();
        let told = match append(&mut disk, 4, b"new line\n") {
            Ok(()) => "written",
            Err(Failed { undone: true, .. }) => "undone",
            Err(Failed { undone: false, .. }) => "left",
        };
        (String::from_utf8(disk.content).expect("text"), told)
    }

    #[test]
    fn a_write_is_whole_or_taken_back() {
        let small = |room| Small { room, ..Small::default() };
        assert_eq!(appended(small(9)), ("old\nnew line\n".to_owned(), "written"));
        for room in 0..9 {
            assert_eq!(appended(small(room)), ("old\n".to_owned(), "undone"), "{room}");
        }
    }

    #[test]
    fn a_write_that_cannot_be_taken_back_is_said_to_be_there() {
        let stuck = Small { room: 5, cannot_shorten: true, ..Small::default() };
        assert_eq!(appended(stuck), ("old\nnew l".to_owned(), "left"));
        let stuck = Small { room: 0, cannot_shorten: true, ..Small::default() };
        assert_eq!(appended(stuck), ("old\n".to_owned(), "undone"));
    }

    #[test]
    fn what_another_program_wrote_in_between_is_not_taken_back() {
        for between in [b"theirs\n".as_slice(), b"x", b" their long line\n"] {
            let shared = Small { room: 5, between, ..Small::default() };
            let (content, told) = appended(shared);
            assert!(told == "left" && content.contains(std::str::from_utf8(between).expect("text")), "{content}");
        }
    }
}
