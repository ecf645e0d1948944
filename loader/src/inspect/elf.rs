//! ELF: machine, type, extents, what it needs of this machine, and where the record is.
//!
//! The extents matter most: glibc maps what the program headers say and dies with SIGBUS inside `dlopen` when the file is
//! shorter; a file that lacks only its last bytes loads without complaint.

use context_engine_interface::record::SECTION;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, ET_DYN, ET_EXEC, ET_REL, FileHeader64, PT_LOAD, SHT_DYNAMIC, SHT_GNU_VERNEED,
    SectionHeader64, SectionType, VER_FLG_WEAK,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, ReadRef, StringTable};

use super::Library;
use crate::error::Problem;

/// The most section or program headers that are read.
const MAX_HEADERS: u32 = 65_535;
/// The longest dynamic section or table of symbol versions that is read, in bytes.
const MAX_SECTION: u64 = 1 << 20;
/// The most needed libraries that are read.
const MAX_NEEDED: usize = 1_024;
/// The most symbol versions that are read.
const MAX_VERSIONS: usize = 16_384;

type Sections<'data, R> = SectionTable<'data, FileHeader64<Endianness>, R>;

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

/// Refuses what is no whole shared object; returns what its headers say.
pub(super) fn check<'data, R: ReadRef<'data>>(data: R, bytes: u64) -> Result<Library, Problem> {
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
    // Files with more headers than the header can count are legal, and none of them is an engine.
    if header.phnum(endian, data).map_err(malformed)?.max(header.shnum(endian, data).map_err(malformed)?) > MAX_HEADERS
    {
        return Err(Problem::Malformed { reason: format!("more than {MAX_HEADERS} headers") });
    }

    let segments = header.program_headers(endian, data).map_err(malformed)?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let ends = loaded.map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian)));
    whole(ends.max().unwrap_or(0), bytes)?;
    let sections = header.sections(endian, data).map_err(malformed)?;
    let stored = sections.iter().filter_map(|section| section.file_range(endian));
    whole(stored.map(|(offset, size)| offset.saturating_add(size)).max().unwrap_or(0), bytes)?;

    let needs = needs(&sections, endian, data)?;
    let glibc = glibc(&sections, endian, data)?;
    let record = sections.section_by_name(endian, SECTION.as_bytes());
    let record = record.and_then(|(_, section)| section.file_range(endian));
    Ok(Library { needs, glibc, record })
}

/// A version as people write it.
pub(super) fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn whole(expected: u64, found: u64) -> Result<(), Problem> {
    if expected > found { Err(Problem::Truncated { expected, found }) } else { Ok(()) }
}

fn malformed(error: object::Error) -> Problem {
    Problem::Malformed { reason: error.to_string() }
}

/// A section of a type there is one of, when it is not too long to be read.
fn one<'data>(
    sections: &Sections<'data, impl ReadRef<'data>>,
    endian: Endianness,
    kind: SectionType,
) -> Result<Option<&'data SectionHeader64<Endianness>>, Problem> {
    let found = sections.iter().find(|section| section.sh_type(endian) == kind);
    match found.map(|section| section.sh_size(endian)) {
        Some(size) if size > MAX_SECTION => {
            Err(Problem::Malformed { reason: format!("a table of {size} bytes, expected at most {MAX_SECTION}") })
        }
        _ => Ok(found),
    }
}

/// The libraries it needs. Refuses executables, which are shared objects too.
fn needs<'data, R: ReadRef<'data>>(
    sections: &Sections<'data, R>,
    endian: Endianness,
    data: R,
) -> Result<Vec<String>, Problem> {
    let dynamic = one(sections, endian, SHT_DYNAMIC)?;
    let dynamic = dynamic.map(|section| section.dynamic(endian, data)).transpose().map_err(malformed)?.flatten();
    let Some((entries, strings)) = dynamic else {
        return Err(Problem::NotALibrary { found: "an ELF file without dynamic section".into() });
    };
    let strings = sections.strings(endian, data, strings).unwrap_or_else(|_| StringTable::default());
    let mut needs = Vec::new();
    for entry in entries {
        match entry.tag(endian) {
            DT_FLAGS_1 if entry.d_val(endian) & DF_1_PIE.0 != 0 => {
                return Err(Problem::NotALibrary { found: "an executable".into() });
            }
            DT_NEEDED if needs.len() == MAX_NEEDED => {
                return Err(Problem::Malformed { reason: format!("needs more than {MAX_NEEDED} libraries") });
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

/// The newest version of glibc that it cannot do without.
fn glibc<'data, R: ReadRef<'data>>(
    sections: &Sections<'data, R>,
    endian: Endianness,
    data: R,
) -> Result<Option<(u32, u32)>, Problem> {
    let needed = one(sections, endian, SHT_GNU_VERNEED)?;
    let needed = needed.map(|section| section.gnu_verneed(endian, data)).transpose().map_err(malformed)?.flatten();
    let Some((files, strings)) = needed else { return Ok(None) };
    let strings = sections.strings(endian, data, strings).map_err(malformed)?;
    let mut newest = None;
    let mut read = 0;
    for file in files {
        for version in file.map_err(malformed)?.1 {
            let version = version.map_err(malformed)?;
            // Entries may overlap: a short table can hold very many.
            read += 1;
            if read > MAX_VERSIONS {
                return Err(Problem::Malformed { reason: format!("needs more than {MAX_VERSIONS} symbol versions") });
            }
            // The system only warns when a weak one is missing.
            if version.vna_flags.get(endian).0 & VER_FLG_WEAK.0 == 0 {
                let name = version.name(endian, strings).map_err(malformed)?;
                newest = newest.max(glibc_number(name));
            }
        }
    }
    Ok(newest)
}

/// `GLIBC_2.34` as two numbers; `None` for other names, such as `GLIBC_PRIVATE`.
fn glibc_number(name: &[u8]) -> Option<(u32, u32)> {
    let mut parts = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_and_other_names_are_none() {
        assert_eq!(glibc_number(b"GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc_number(b"GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc_number(b"GLIBC_2.9") < glibc_number(b"GLIBC_2.34"), "not compared as text");
        for name in [&b"GLIBC_PRIVATE"[..], b"GLIBC_ABI_DT_RELR", b"GCC_3.0", b"GLIBC_2", b"GLIBC_\xff.1"] {
            assert_eq!(glibc_number(name), None, "{name:?}");
        }
    }
}
