//! Libraries whose bytes somebody chose: inspection answers each, in one line, and comes back.
//!
//! Decision: mutations of a real library, made in place and undone, from a fixed seed, so that a failure can be repeated
//! and thousands of them take seconds. `CONTEXT_ENGINE_FUZZ=100000` runs more of them.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use context_engine_interface::record::{HEADER_LEN, MAX_JSON_LEN, SECTION};
use context_engine_loader::inspect::inspect;
use context_engine_tests::build::plugin;
use object::{Object, ObjectSection};
use serde_json::json;

/// Where an ELF header says where its section headers are, how many, and which of them holds the names.
const SECTIONS_AT: usize = 0x28;
const PROGRAM_COUNT: usize = 0x38;
const SECTION_COUNT: usize = 0x3c;

fn alpha() -> Vec<u8> {
    fs::read(plugin("alpha")).expect("a built plugin")
}

/// Deterministic numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// The verdict in words, checked to be fit for a terminal.
#[track_caller]
fn verdict(path: &Path) -> Result<String, String> {
    let verdict = inspect(path).map(|found| found.record.engine.id).map_err(|error| error.problem.to_string());
    if let Err(reason) = &verdict {
        assert!(reason.len() < 1_500 && !reason.contains(|c: char| c.is_control()), "{reason}");
    }
    verdict
}

/// Fails instead of waiting for ever.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let result = wait.recv_timeout(Duration::from_secs(600));
    assert_ne!(result, Err(mpsc::RecvTimeoutError::Timeout), "inspection hangs");
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

fn range_of(bytes: &[u8], name: &str) -> Range<usize> {
    let file = object::File::parse(bytes).expect("a library");
    let (start, size) = file.section_by_name(name).and_then(|section| section.file_range()).expect("a section");
    start as usize..(start + size) as usize
}

#[test]
fn thousands_of_changed_libraries_are_all_answered() {
    let rounds = std::env::var("CONTEXT_ENGINE_FUZZ").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3_000);
    in_time(move || {
        let whole = alpha();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("changed.so");
        fs::write(&path, &whole).expect("written");
        let file = File::options().write(true).open(&path).expect("open");
        let headers = u64::from_le_bytes(whole[SECTIONS_AT..SECTIONS_AT + 8].try_into().expect("eight bytes")) as usize;
        let regions = [
            0..64,
            0..4_096,
            headers..whole.len(),
            range_of(&whole, SECTION),
            range_of(&whole, ".dynamic"),
            range_of(&whole, ".gnu.version_r"),
        ];
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let (mut usable, mut refused) = (0, 0);
        for round in 0..rounds {
            let mut changed = Vec::new();
            for _ in 0..1 + numbers.below(4) {
                let region = &regions[numbers.below(regions.len())];
                let at = region.start + numbers.below(region.len());
                let old = &whole[at..whole.len().min(at + 8)];
                let new: Vec<u8> = match numbers.below(4) {
                    0 => vec![old[0] ^ (1 << numbers.below(8))],
                    1 => vec![numbers.next() as u8],
                    2 => [0, 1, 0x7fff_ffff_ffff_ffff, u64::MAX, u64::from(u32::MAX)][numbers.below(5)].to_le_bytes()
                        [..old.len()]
                        .to_vec(),
                    _ => numbers.next().to_le_bytes()[..old.len()].to_vec(),
                };
                file.write_all_at(&new, at as u64).expect("written");
                changed.push(at);
            }
            // Now and then cut off as well: a number of the headers may be what hides it.
            let cut = (round % 20 == 0).then(|| numbers.below(whole.len()));
            if let Some(cut) = cut {
                file.set_len(cut as u64).expect("cut");
            }
            match verdict(&path) {
                Ok(_) => usable += 1,
                Err(_) => refused += 1,
            }
            if let Some(cut) = cut {
                file.write_all_at(&whole[cut..], cut as u64).expect("restored");
            }
            for at in changed {
                let end = whole.len().min(at + 8);
                file.write_all_at(&whole[at..end], at as u64).expect("restored");
            }
        }
        assert!(usable > 0 && refused > usable / 10, "{usable} usable, {refused} refused: changes must matter");
        assert_eq!(verdict(&path).as_deref(), Ok("alpha"), "every change was undone");
    });
}

/// The verdict on `alpha` after `edit`.
fn edited(edit: impl FnOnce(&mut Vec<u8>)) -> Result<String, String> {
    let mut bytes = alpha();
    edit(&mut bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("edited.so");
    fs::write(&path, bytes).expect("written");
    verdict(&path)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Where the header of section `number` is.
fn header_at(bytes: &[u8], number: usize) -> usize {
    u64::from_le_bytes(bytes[SECTIONS_AT..SECTIONS_AT + 8].try_into().expect("eight bytes")) as usize + number * 64
}

#[test]
fn headers_that_lie_are_answered() {
    in_time(|| {
        let refused = |edit: fn(&mut Vec<u8>), words: &str| {
            let reason = edited(edit).expect_err(words);
            assert!(reason.contains(words), "expected {words:?}, found {reason}");
        };
        refused(|bytes| put(bytes, PROGRAM_COUNT, &[0xff, 0xff]), "cut off");
        refused(|bytes| put(bytes, PROGRAM_COUNT, &[0xfe, 0xff]), "cut off");
        // Extended numbering: the count stands in the first section header.
        let extended = |bytes: &mut Vec<u8>, count: u64| {
            put(bytes, SECTION_COUNT, &[0, 0]);
            let at = header_at(bytes, 0) + 32;
            put(bytes, at, &count.to_le_bytes());
        };
        for count in [u64::MAX, u64::from(u32::MAX), 1 << 20, 65_536] {
            let reason = edited(|bytes| extended(bytes, count)).expect_err("refused");
            assert!(reason.contains("headers cannot be read") || reason.contains("cut off"), "{count}: {reason}");
        }
        assert_eq!(
            edited(|bytes| {
                let count = u64::from(u16::from_le_bytes([bytes[SECTION_COUNT], bytes[SECTION_COUNT + 1]]));
                extended(bytes, count);
            })
            .as_deref(),
            Ok("alpha"),
            "extended numbering is legal"
        );
        refused(|bytes| extended_none(bytes), "dynamic section");
        refused(|bytes| put(bytes, SECTIONS_AT, &u64::MAX.to_le_bytes()), "cut off");
        refused(|bytes| put(bytes, SECTIONS_AT, &0_u64.to_le_bytes()), "dynamic section");
    });
}

/// No section headers at all.
fn extended_none(bytes: &mut [u8]) {
    put(bytes, SECTION_COUNT, &[0, 0]);
    let at = header_at(bytes, 0) + 32;
    put(bytes, at, &0_u64.to_le_bytes());
}

#[test]
fn a_record_section_that_lies_about_its_place_is_answered() {
    in_time(|| {
        let bytes = alpha();
        let start = range_of(&bytes, SECTION).start as u64;
        let count = u16::from_le_bytes([bytes[SECTION_COUNT], bytes[SECTION_COUNT + 1]]) as usize;
        let offset_of = |number: usize| header_at(&bytes, number) + 24;
        let header = (0..count).map(offset_of).find(|&at| bytes[at..at + 8] == start.to_le_bytes()).expect("a header");
        let lying = |offset: u64, size: u64| {
            edited(|bytes| {
                put(bytes, header, &offset.to_le_bytes());
                put(bytes, header + 8, &size.to_le_bytes());
            })
        };
        for (offset, size, words) in [
            (start, 0, "record is cut off: expected 16 bytes, found 0"),
            (start, 15, "record is cut off: expected 16 bytes, found 15"),
            (start, 20, "record is cut off"),
            (start + 1, 400, "record does not start with its magic bytes"),
            (0, 400, "record does not start with its magic bytes"),
            (u64::MAX, 400, "the file is cut off"),
            (start, u64::MAX, "the file is cut off"),
            (bytes.len() as u64, 1, "the file is cut off"),
        ] {
            let reason = lying(offset, size).expect_err(words);
            assert!(reason.contains(words), "{offset} {size}: {reason}");
        }
    });
}

/// `alpha` with other bytes in place of its record, made longer than the file when need be.
fn with_json(json: &[u8]) -> Result<String, String> {
    let bytes = alpha();
    let start = range_of(&bytes, SECTION).start as u64;
    let count = u16::from_le_bytes([bytes[SECTION_COUNT], bytes[SECTION_COUNT + 1]]) as usize;
    let at = (0..count).map(|number| header_at(&bytes, number) + 24);
    let header = at.into_iter().find(|&at| bytes[at..at + 8] == start.to_le_bytes()).expect("a header");
    edited(|bytes| {
        let frame = bytes[start as usize..start as usize + 12].to_vec();
        let place = bytes.len() as u64;
        put(bytes, header, &place.to_le_bytes());
        put(bytes, header + 8, &((HEADER_LEN + json.len()) as u64).to_le_bytes());
        bytes.extend(frame);
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(json);
    })
}

#[test]
fn a_record_with_hostile_json_is_refused_in_one_short_line() {
    in_time(|| {
        let good = json!({
            "schemaVersion": 1, "interfaceVersion": "1.0.0", "panic": "unwind", "target": "t", "compiler": "c",
            "engine": { "id": "hostile", "name": "n", "version": "1" },
        });
        assert_eq!(with_json(good.to_string().as_bytes()).as_deref(), Ok("hostile"), "the method works");
        let with = |key: &str, value: serde_json::Value| {
            let mut record = good.clone();
            record[key] = value;
            record.to_string().into_bytes()
        };
        let mut nested = vec![b'['; MAX_JSON_LEN / 2];
        nested.extend(vec![b']'; MAX_JSON_LEN / 2]);
        let mut twice = good.to_string().into_bytes();
        twice.splice(1..1, *b"\"panic\":\"abort\",");
        let mut invalid = with("target", "\u{fe}\u{fe}".into());
        let at = invalid.windows(2).position(|pair| pair == "\u{fe}".as_bytes()).expect("there");
        invalid[at] = 0xff;
        let huge = good.to_string().replacen(":1,", ":123456789012345678901234567890,", 1);
        let long = "x".repeat(60_000);
        for (json, words) in [
            (nested, "record is no valid JSON record"),
            (twice, "duplicate field `panic`"),
            (invalid, "record is no valid JSON record"),
            (huge.into_bytes(), "record is no valid JSON record"),
            (good.to_string().replacen(":1,", ":1e999,", 1).into_bytes(), "record is no valid JSON record"),
            (vec![b' '; MAX_JSON_LEN], "record is no valid JSON record"),
            (vec![b' '; MAX_JSON_LEN + 1], "record of 65537 bytes"),
            (Vec::new(), "record is no valid JSON record"),
            (with("schemaVersion", long.clone().into()), "record is no valid JSON record"),
            (with("schemaVersion", "\u{1b}[2J\n".into()), "record is no valid JSON record"),
            (with("panic", format!("\u{1b}[2J\n{long}").into()), "built with panic = \"\\u{1b}[2J\\n"),
            (with("engine", json!({ "id": long, "name": "", "version": "" })), "1 to 64 characters"),
        ] {
            let reason = with_json(&json).expect_err(words);
            assert!(reason.contains(words), "expected {words:?}, found {reason}");
        }
        // What is said about an engine may be as long as a record; nothing of it is needed to refuse or to list it.
        let longest = with("compiler", "y".repeat(60_000).into());
        assert_eq!(with_json(&longest).as_deref(), Ok("hostile"));
    });
}
