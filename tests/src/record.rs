//! Plugins whose file says something else than its author meant: the record's JSON, changed in the bytes.
//!
//! Decision: the bytes are changed instead of building such plugins. `export_engine!` does not let an author write most of
//! these records, a damaged or malicious file can hold any of them, and no build is faster than none.

use context_engine_interface::record::{HEADER_LEN, MAGIC, SECTION};
use object::{Object, ObjectSection};
use serde_json::Value;

/// The bytes of a plugin with its record changed by `edit`. The new JSON must not be longer than the old one.
#[track_caller]
pub fn with_record(library: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (start, len) = place(library);
    let json = &library[start + HEADER_LEN..start + len];
    let mut record: Value = serde_json::from_slice(json).expect("the record is JSON");
    edit(&mut record);
    let text = record.to_string();
    assert!(text.len() + HEADER_LEN <= len, "the changed record does not fit: {text}");
    let mut bytes = library.to_vec();
    bytes[start + 12..start + HEADER_LEN].copy_from_slice(&(text.len() as u32).to_le_bytes());
    bytes[start + HEADER_LEN..start + len].fill(0);
    bytes[start + HEADER_LEN..start + HEADER_LEN + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// The bytes of a plugin with bytes of the record's frame changed.
pub fn with_frame(library: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = library.to_vec();
    bytes[place(library).0 + at] = byte;
    bytes
}

/// The bytes of a plugin without its record: the section is there, under a name nobody looks for.
#[track_caller]
pub fn without_record(library: &[u8]) -> Vec<u8> {
    let mut bytes = library.to_vec();
    let named = format!("\0{SECTION}\0").into_bytes();
    let at = bytes.windows(named.len()).rposition(|window| window == named).expect("the section's name");
    bytes[at + named.len() - 2] = b'?';
    bytes
}

/// Length of the record's JSON in bytes.
pub fn record_len(library: &[u8]) -> usize {
    place(library).1 - HEADER_LEN
}

/// Where the record stands, and how long it is, header included.
fn place(library: &[u8]) -> (usize, usize) {
    let file = object::File::parse(library).expect("a library");
    let section = file.section_by_name(SECTION).expect("a record");
    let (start, _) = section.file_range().expect("a section with bytes");
    let start = start as usize;
    assert_eq!(library[start..start + 8], MAGIC);
    let length: [u8; 4] = library[start + 12..start + HEADER_LEN].try_into().expect("four bytes");
    (start, HEADER_LEN + u32::from_le_bytes(length) as usize)
}
