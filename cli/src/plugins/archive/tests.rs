//! Archives as nobody's tool makes them: headers by hand.

use super::*;

const MANIFEST: (&str, EntryType, &[u8]) = ("plugin.json", EntryType::Regular, b"{}");

/// A tar file of these entries. Names go into the header as they are: the crate itself would refuse some.
fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut out = vec![];
    for (name, kind, bytes) in entries {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o777);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        out.extend(header.as_bytes());
        out.extend(*bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().write(vec![], Compression::fast());
    encoder.write_all(bytes).expect("packed");
    encoder.finish().expect("packed")
}

/// Unpacks into a folder whose neighbour must stay as it is.
fn unpacked(packed: &[u8]) -> Result<Vec<String>, String> {
    let root = tempfile::tempdir().expect("a folder");
    let to = root.path().join("a/b/c");
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("folders");
    let result = unpack_from(packed, packed.len() as u64, &to);
    let mut found = vec![];
    let mut folders = vec![root.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            match entry.file_type().expect("a kind").is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    assert!(found.iter().all(|path| path.starts_with(&to)), "left the folder: {found:?}");
    let mut names: Vec<String> =
        found.iter().map(|path| path.strip_prefix(&to).expect("below").display().to_string()).collect();
    names.sort();
    result.map(|()| names)
}

#[track_caller]
fn refused(entries: &[(&str, EntryType, &[u8])], words: &str) {
    let error = unpacked(&gzip(&tar(&[&[MANIFEST], entries].concat()))).expect_err("refused");
    assert!(error.contains(words), "expected {words:?} in {error:?}");
}

#[test]
fn a_plain_archive_is_unpacked_with_its_folders() {
    let entries: [(&str, EntryType, &[u8]); 5] = [
        ("./", EntryType::Directory, b""),
        ("./lib/", EntryType::Directory, b""),
        ("./lib/x.so", EntryType::Regular, b"bytes"),
        ("inner.tar.gz", EntryType::Regular, b"an archive in it is a file"),
        MANIFEST,
    ];
    assert_eq!(unpacked(&gzip(&tar(&entries))).expect("unpacked"), ["inner.tar.gz", "lib/x.so", "plugin.json"]);
}

/// Report H19: names and links that lead out.
#[test]
fn what_leads_out_is_refused_and_nothing_is_outside() {
    for name in ["../evil", "lib/../../evil", "/tmp/evil", "a//b", "..", "a\\..\\b", "C:evil", "a\nb", "a/./../b"] {
        refused(&[(name, EntryType::Regular, b"x")], "expected a path inside it");
    }
    for (kind, words) in [
        (EntryType::Symlink, "a link"),
        (EntryType::Link, "a link"),
        (EntryType::Char, "a device or pipe"),
        (EntryType::Block, "a device or pipe"),
        (EntryType::Fifo, "a device or pipe"),
        (EntryType::GNUSparse, "an unknown kind"),
        (EntryType::GNULongName, "an extended header"),
        (EntryType::XHeader, "an extended header"),
    ] {
        refused(&[("lib", kind, b"")], words);
    }
    let mut name = tar(&[MANIFEST, ("bad?", EntryType::Regular, b"")]);
    let at = 1024 + 3;
    name[at] = 0xff;
    let mut header = Header::from_byte_slice(&name[1024..1536]).clone();
    header.set_cksum();
    name[1024..1536].copy_from_slice(header.as_bytes());
    assert!(unpacked(&gzip(&name)).is_err_and(|error| error.contains("expected a path inside it")));
}

#[test]
fn names_that_are_one_name_are_refused() {
    refused(&[("x", EntryType::Regular, b"1"), ("x", EntryType::Regular, b"2")], "twice");
    refused(&[("Plugin.json", EntryType::Regular, b"{}")], "twice");
    for (file, inner) in [("lib", "lib/x"), ("lib", "Lib/x"), ("a/lib", "a/lib/b/c")] {
        let clash = "as a file and as a folder";
        refused(&[(file, EntryType::Regular, b""), (inner, EntryType::Regular, b"")], clash);
        refused(&[(inner, EntryType::Regular, b""), (file, EntryType::Regular, b"")], clash);
    }
}

#[test]
fn bombs_go_off_in_no_ones_folder() {
    let zeros = vec![0; 64 << 20];
    refused(&[("zeros", EntryType::Regular, &zeros)], "unpacks to more than");
    let many: Vec<String> = (0..1_001).map(|at| format!("f{at}")).collect();
    let many: Vec<(&str, EntryType, &[u8])> =
        many.iter().map(|name| (name.as_str(), EntryType::Regular, b"".as_slice())).collect();
    refused(&many, "more than 1000 files and folders");
    // Folders without entries: few names, many folders.
    let deep: Vec<String> = (0..50).map(|at| format!("{at}{}/f", "/d".repeat(24))).collect();
    let deep: Vec<(&str, EntryType, &[u8])> =
        deep.iter().map(|name| (name.as_str(), EntryType::Regular, b"".as_slice())).collect();
    refused(&deep, "more than 1000 files and folders");
    refused(&[(&"d/".repeat(45), EntryType::Directory, b"")], "more than 32 deep");
    // A size that is not there.
    let mut liar = Header::new_ustar();
    liar.as_old_mut().name[..4].copy_from_slice(b"huge");
    liar.set_entry_type(EntryType::Regular);
    liar.set_size(1 << 60);
    liar.set_cksum();
    assert!(unpacked(&gzip(liar.as_bytes())).is_err());
    // Zeros behind the end.
    let behind = [tar(&[MANIFEST]), zeros].concat();
    let error = unpacked(&gzip(&behind)).expect_err("refused");
    assert!(error.contains("unpacks to more than") && error.ends_with("that is no plugin"), "{error}");
}

#[test]
fn what_is_cut_off_or_no_archive_is_refused() {
    let noise: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let whole = gzip(&tar(&[MANIFEST, ("lib/x.so", EntryType::Regular, &noise)]));
    assert!(unpacked(&whole).is_ok());
    for end in [0, 5, 60, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        assert!(unpacked(&whole[..end]).is_err(), "cut at {end}");
    }
    let mut flipped = whole.clone();
    let last = flipped.len() - 6;
    flipped[last] ^= 1;
    assert!(unpacked(&flipped).is_err(), "a wrong checksum");
    assert!(unpacked(b"PK\x03\x04").is_err());
    for (packed, words) in
        [(whole.as_slice(), "compressed twice"), (&noise, "is no tar file"), (b"hi", "is no tar file")]
    {
        let error = unpacked(&gzip(packed)).expect_err("refused");
        assert!(error.contains(words) && error.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{error}");
    }
    // A header that is damaged behind one that is whole.
    let mut damaged = tar(&[MANIFEST, ("lib/x.so", EntryType::Regular, b"x")]);
    damaged[1024..1536].fill(0x9b);
    let error = unpacked(&gzip(&damaged)).expect_err("refused");
    assert_eq!(error, "the archive cannot be read: one of its headers is damaged; get it again");
    let none = unpacked(&gzip(&tar(&[("lib/plugin.json", EntryType::Regular, b"{}")])));
    assert!(none.is_err_and(|error| error.contains("no plugin.json at its top")));
}

#[test]
fn the_same_files_are_the_same_bytes_in_whatever_order() {
    let root = tempfile::tempdir().expect("a folder");
    let files: Vec<Packed> = ["b.so", "a/x.so"]
        .map(|name| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            std::fs::write(&path, name).expect("written");
            Packed { name: name.to_owned(), path, executable: name == "b.so" }
        })
        .into();
    let packed = |files: &[Packed]| {
        let mut out = vec![];
        pack(files, Some(b"{}"), &mut out).expect("packed");
        out
    };
    let first = packed(&files);
    let backwards: Vec<Packed> = files.into_iter().rev().collect();
    assert_eq!(packed(&backwards), first);
    assert_eq!(unpacked(&first).expect("unpacked"), ["a/x.so", "b.so", "plugin.json"]);
}

/// A helper program comes with its engine, and nothing that runs as somebody else.
#[cfg(unix)]
#[test]
fn of_a_files_mode_the_archive_keeps_whether_its_owner_may_run_it() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().expect("a folder");
    for (mode, expected) in [(0o4755, 0o700), (0o777, 0o700), (0o100, 0o700), (0o644, 0o600), (0o6011, 0o600)] {
        let mut packed = tar(&[MANIFEST]);
        let mut header = Header::from_byte_slice(&packed[..512]).clone();
        header.set_mode(mode);
        header.set_cksum();
        packed[..512].copy_from_slice(header.as_bytes());
        let (packed, to) = (gzip(&packed), root.path().join(mode.to_string()));
        unpack_from(packed.as_slice(), packed.len() as u64, &to).expect("unpacked");
        let found = std::fs::metadata(to.join("plugin.json")).expect("a file").permissions().mode();
        assert_eq!(found & 0o7777, expected, "{mode:o}");
    }
}
