//! Which kind of file it is, told by its first bytes, and whether this host loads that kind.

use context_engine_interface::record::SECTION;
use object::{BinaryFormat, FileKind, Object, ObjectSection, ReadRef};

use super::{Library, elf};
use crate::error::Problem;
use crate::platform::{FORMAT, MACHINE};

/// Refuses what is no whole shared library for this machine; returns what its headers say.
pub(super) fn check<'data, R: ReadRef<'data>>(data: R, bytes: u64) -> Result<Library, Problem> {
    if bytes == 0 {
        return Err(Problem::Empty);
    }
    let head = data.read_bytes_at(0, bytes.min(64)).map_err(|()| Problem::Truncated { expected: 64, found: 0 })?;
    let elf_magic = head.starts_with(b"\x7fELF");
    if elf_magic && bytes < 64 {
        return Err(Problem::Truncated { expected: 64, found: bytes });
    }
    let kind = FileKind::parse(data).map_err(|_| Problem::NotALibrary { found: describe(head) })?;
    let (format, machine) = match kind {
        FileKind::Elf32 | FileKind::Elf64 => (BinaryFormat::Elf, elf::machine(head)),
        FileKind::MachO32 | FileKind::MachO64 | FileKind::MachOFat32 | FileKind::MachOFat64 => {
            (BinaryFormat::MachO, "macOS".to_owned())
        }
        FileKind::Pe32 | FileKind::Pe64 => (BinaryFormat::Pe, "Windows".to_owned()),
        _ => return Err(Problem::NotALibrary { found: describe(head) }),
    };
    if format != FORMAT {
        return Err(Problem::WrongMachine { expected: this_host(), found: machine });
    }
    if format != BinaryFormat::Elf {
        // The extents of Mach-O and PE files are checked by the parser alone: no such host was at hand to test more.
        let malformed = |error: object::Error| Problem::Malformed { reason: error.to_string() };
        let file = object::File::parse(data).map_err(malformed)?;
        let record = file.section_by_name(SECTION).and_then(|section| section.file_range());
        return Ok(Library { needs: Vec::new(), glibc: None, record });
    }
    if kind == FileKind::Elf32 || machine != MACHINE {
        return Err(Problem::WrongMachine { expected: this_host(), found: machine });
    }
    elf::check(data, bytes)
}

fn this_host() -> String {
    format!("{MACHINE} {}", std::env::consts::OS)
}

fn describe(head: &[u8]) -> String {
    if head.starts_with(b"!<arch>\n") || head.starts_with(b"!<thin>\n") {
        return "a static archive".to_owned();
    }
    if head.starts_with(b"#!") {
        return "a script".to_owned();
    }
    if head.iter().all(|&byte| byte == 0) {
        return "nothing but zero bytes".to_owned();
    }
    match std::str::from_utf8(head) {
        Ok(_) => "a text file".to_owned(),
        // A cut inside a character is still text.
        Err(error) if error.error_len().is_none() => "a text file".to_owned(),
        Err(_) => {
            let first: Vec<String> = head.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            format!("an unknown kind of file (first bytes {})", first.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(bytes: &[u8], expected: &str) {
        let error = check(bytes, bytes.len() as u64).expect_err("refused");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn each_kind_of_file_has_its_own_reason() {
        let not = |found| format!("expected a shared library, found {found}; build the engine as a `cdylib`");
        refused(b"", "the file is empty; copy the library again");
        refused(b"#!/bin/sh\necho hi\n", &not("a script"));
        refused(b"just some notes", &not("a text file"));
        refused("größe".as_bytes(), &not("a text file"));
        refused(&[0; 300], &not("nothing but zero bytes"));
        refused(b"!<arch>\nlib.o/  ", &not("a static archive"));
        refused(&[0xff, 0xfe, 1, 2, 3], &not("an unknown kind of file (first bytes ff fe 01 02)"));
        refused(b"\x7fELF\x02\x01\x01", "the file is cut off: it needs 64 bytes and has 7; copy the library again");
    }
}
