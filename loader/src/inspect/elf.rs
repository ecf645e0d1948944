//! ELF: machine, type and extents.
//!
//! The extents matter most: glibc maps what the program headers say and dies with SIGBUS inside `dlopen` when the file is
//! shorter; a file that lacks only its last bytes loads without complaint.

use object::elf::{DF_1_PIE, DT_FLAGS_1, DT_NEEDED, ET_DYN, ET_EXEC, ET_REL, FileHeader64, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef, StringTable};

use crate::error::Problem;

/// The machine an ELF header names, as people call it. `head` holds at least 20 bytes.
pub(super) fn machine(head: &[u8]) -> String {
    let bits = if head.get(4) == Some(&1) { "32-bit " } else { "" };
    let big_endian = head.get(5) == Some(&2);
    let number = match head.get(18..20) {
        Some(&[a, b]) if big_endian => u16::from_be_bytes([a, b]),
        Some(&[a, b]) => u16::from_le_bytes([a, b]),
        _ => 0,
    };
    let name = match number {
        3 => "x86",
        8 => "mips",
        20 | 21 => "powerpc64",
        22 => "s390x",
        40 => "arm",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        258 => "loongarch64",
        other => return format!("{bits}machine number {other}"),
    };
    format!("{bits}{name}{}", if big_endian && number != 22 { " (big endian)" } else { "" })
}

/// Refuses what is no whole shared object; returns the libraries it needs.
pub(super) fn check<'data, R: ReadRef<'data>>(data: R, bytes: u64) -> Result<Vec<String>, Problem> {
    let malformed = |error: object::Error| Problem::Malformed { reason: error.to_string() };
    let header = FileHeader64::<Endianness>::parse(data).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    match header.e_type(endian) {
        ET_DYN => {}
        ET_REL => return Err(Problem::NotALibrary { found: "an object file".into() }),
        ET_EXEC => return Err(Problem::NotALibrary { found: "an executable".into() }),
        other => return Err(Problem::NotALibrary { found: format!("an ELF file of type {other}") }),
    }
    let table = |offset: u64, count: u16, size: u16| offset.saturating_add(u64::from(count) * u64::from(size));
    let programs = table(header.e_phoff(endian), header.e_phnum(endian), header.e_phentsize(endian));
    let sections = table(header.e_shoff(endian), header.e_shnum(endian), header.e_shentsize(endian));
    whole(programs.max(sections), bytes)?;

    let segments = header.program_headers(endian, data).map_err(malformed)?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let ends = loaded.map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian)));
    whole(ends.max().unwrap_or(0), bytes)?;
    let table = header.sections(endian, data).map_err(malformed)?;
    let stored = table.iter().filter_map(|section| section.file_range(endian));
    whole(stored.map(|(offset, size)| offset.saturating_add(size)).max().unwrap_or(0), bytes)?;

    dynamic(header, endian, data)
}

fn whole(expected: u64, found: u64) -> Result<(), Problem> {
    if expected > found { Err(Problem::Truncated { expected, found }) } else { Ok(()) }
}

fn dynamic<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> Result<Vec<String>, Problem> {
    let malformed = |error: object::Error| Problem::Malformed { reason: error.to_string() };
    let sections = header.sections(endian, data).map_err(malformed)?;
    let Some((entries, strings)) = sections.dynamic(endian, data).map_err(malformed)? else {
        return Err(Problem::NotALibrary { found: "an ELF file without dynamic section".into() });
    };
    let strings = sections.strings(endian, data, strings).unwrap_or_else(|_| StringTable::default());
    let mut needs = Vec::new();
    for entry in entries {
        match entry.tag(endian) {
            DT_FLAGS_1 if entry.d_val(endian) & DF_1_PIE.0 != 0 => {
                return Err(Problem::NotALibrary { found: "an executable".into() });
            }
            DT_NEEDED => {
                if let Ok(name) = entry.string(endian, strings) {
                    needs.push(String::from_utf8_lossy(name).into_owned());
                }
            }
            _ => {}
        }
    }
    Ok(needs)
}
