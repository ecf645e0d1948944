//! Everything that can lie in a plugins directory and is no engine: each is refused with its own reason.
//!
//! Decision: every file stands in the directory beside a good plugin, and all of them at once, as they do where it
//! hurts. What counts is that the good one loads, that the host lives, that nothing waits for ever, and that the line a
//! person reads says what to do. Public reports behind it: half a copy ends the process inside `dlopen`, a pipe makes it
//! wait for ever, and the system's own words help nobody.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::time::Duration;

use context_engine_loader::{LoaderError, Plugin, Problem};
use context_engine_tests::build::{library_name, plain, plugin};
use context_engine_tests::host::TestHost;
use context_engine_tests::record::{record_len, with_frame, with_record};
use context_engine_tests::session::answer;
use serde_json::Value;

/// Where an ELF header says what it is for.
const CLASS: usize = 4;
const TYPE: usize = 16;
const MACHINE: usize = 18;

fn alpha() -> Vec<u8> {
    fs::read(plugin("alpha")).expect("a built plugin")
}

/// The bytes of `alpha` with one of them changed.
fn changed(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = alpha();
    bytes[at] = byte;
    bytes
}

/// Scans with a limit that only a hang reaches.
fn scan(host: &TestHost) -> Vec<(String, Result<Plugin, LoaderError>)> {
    let (loader, (send, receive)) = (host.loader(), mpsc::channel());
    std::thread::spawn(move || send.send(loader.scan()));
    let found = receive.recv_timeout(Duration::from_secs(120)).expect("scanning must not wait for anything");
    let named = |found: Result<Plugin, LoaderError>| {
        let path = found.as_ref().map_or_else(|error| &error.path, |plugin| &plugin.candidate().path);
        (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), found)
    };
    found.into_iter().map(named).collect()
}

/// Puts the files beside a good plugin and checks that each is refused with its reason, in one line, and the good one
/// answers.
#[track_caller]
fn refused(files: &[(&str, Vec<u8>, String)]) {
    let host = TestHost::with(&["beta"]);
    for (name, bytes, _) in files {
        host.put(name, bytes);
    }
    check(&host, &files.iter().map(|(name, _, reason)| (*name, reason.clone())).collect::<Vec<_>>());
}

#[track_caller]
fn check(host: &TestHost, expected: &[(&str, String)]) {
    let found = scan(host);
    let reasons = found.iter().filter_map(|(name, verdict)| Some((name.as_str(), verdict.as_ref().err()?)));
    let reasons: Vec<(&str, String)> = reasons.map(|(name, error)| (name, error.problem.to_string())).collect();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(reasons, expected);
    assert!(reasons.iter().all(|(_, reason)| !reason.contains('\n')), "{reasons:#?}");
    assert!(answer(&host.engine("beta", Value::Null)).starts_with("beta | beta with"), "the good one must still load");
    for (name, _) in expected {
        let stem = name.trim_end_matches(".so");
        let handle = host.engine(stem, Value::Null);
        assert!(handle.why().is_some(), "{stem} must not be used");
        assert!(answer(&handle).starts_with("legacy | one"), "{stem}");
    }
}

fn not_a_library(found: &str) -> String {
    format!("expected a shared library, found {found}; build the engine as a `cdylib`")
}

fn wrong_machine(found: &str) -> String {
    let this = std::env::consts::ARCH;
    format!("built for {found}, this host is {this} linux; build the engine for this machine")
}

#[test]
fn a_file_cut_off_anywhere_says_how_much_is_missing() {
    let whole = alpha();
    let cut = |len: usize| whole[..len].to_vec();
    let missing = |needs: usize, has: usize| {
        format!("the file is cut off: it needs {needs} bytes and has {has}; copy the library again")
    };
    let (all, half) = (whole.len(), whole.len() / 2);
    let empty = "the file is empty; copy the library again".to_owned();
    refused(&[
        ("cut-0.so", cut(0), empty),
        ("cut-5.so", cut(5), missing(64, 5)),
        ("cut-63.so", cut(63), missing(64, 63)),
        ("cut-64.so", cut(64), missing(all, 64)),
        ("cut-4096.so", cut(4096), missing(all, 4096)),
        ("cut-half.so", cut(half), missing(all, half)),
        ("cut-last.so", cut(all - 1), missing(all, all - 1)),
    ]);
}

#[test]
fn a_file_with_a_hole_where_its_end_should_be_is_refused() {
    // What is left when the machine goes down while a copy runs: the length is right, the rest was never written.
    let mut bytes = alpha();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    let host = TestHost::with(&["beta"]);
    host.put("hole.so", bytes);
    let (_, verdict) = scan(&host).into_iter().find(|(name, _)| name == "hole.so").expect("seen");
    let reason = verdict.expect_err("refused").to_string();
    assert!(!reason.contains('\n'), "{reason}");
    assert!(answer(&host.engine("beta", Value::Null)).starts_with("beta"));
}

#[test]
fn a_file_that_is_no_library_says_what_it_is() {
    let mut object = alpha();
    object[TYPE] = 1;
    let mut fixed_address = alpha();
    fixed_address[TYPE] = 2;
    let mut core = alpha();
    core[TYPE] = 4;
    refused(&[
        ("archive.so", fs::read(plain("libplain.a")).expect("built"), not_a_library("a static archive")),
        ("core.so", core, not_a_library("an ELF file of type 4")),
        ("executable.so", fixed_address, not_a_library("an executable")),
        (
            "noise.so",
            vec![0xff, 0xd8, 0xff, 0xe0, 9, 9],
            not_a_library("an unknown kind of file (first bytes ff d8 ff e0)"),
        ),
        ("object.so", object, not_a_library("an object file")),
        ("pie.so", fs::read(plain("plain")).expect("built"), not_a_library("an executable")),
        ("script.so", b"#!/bin/sh\necho engine\n".to_vec(), not_a_library("a script")),
        ("text.so", b"INPUT(libalpha.so)\n".to_vec(), not_a_library("a text file")),
        ("zeros.so", vec![0; 5_000], not_a_library("nothing but zero bytes")),
    ]);
}

#[test]
fn a_library_for_another_machine_names_both() {
    let mut aarch64 = alpha();
    aarch64[MACHINE..MACHINE + 2].copy_from_slice(&183_u16.to_le_bytes());
    let mut unknown = alpha();
    unknown[MACHINE..MACHINE + 2].copy_from_slice(&999_u16.to_le_bytes());
    let mut bits = changed(CLASS, 1);
    bits[MACHINE..MACHINE + 2].copy_from_slice(&3_u16.to_le_bytes());
    let mut windows = vec![0; 0x200];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x80;
    windows[0x80..0x84].copy_from_slice(b"PE\0\0");
    windows[0x84..0x86].copy_from_slice(&0x8664_u16.to_le_bytes());
    windows[0x98..0x9a].copy_from_slice(&0x20b_u16.to_le_bytes());
    let mut macos = vec![0; 0x200];
    macos[..4].copy_from_slice(&0xfeed_facf_u32.to_le_bytes());
    macos[4..8].copy_from_slice(&0x0100_000c_u32.to_le_bytes());
    refused(&[
        ("aarch64.so", aarch64, wrong_machine("aarch64")),
        ("i386.so", bits, wrong_machine("32-bit x86")),
        ("macos.so", macos, wrong_machine("macOS")),
        ("unknown.so", unknown, wrong_machine("machine number 999")),
        ("windows.so", windows, wrong_machine("Windows")),
    ]);
}

#[test]
fn a_library_that_is_no_engine_is_refused_before_it_is_opened() {
    let framed = |at, byte| with_frame(&alpha(), at, byte);
    let with = |edit: fn(&mut Value)| with_record(&alpha(), edit);
    let released = "build the engine with a released interface crate";
    let no_record = "the library has no context-engine record; export the engine with `export_engine!`";
    refused(&[
        ("plain.so", fs::read(plugin("plain")).expect("built"), no_record.to_owned()),
        ("magic.so", framed(0, b'X'), format!("record does not start with its magic bytes; {released}")),
        ("format.so", framed(8, 7), format!("record format 7: this host reads format 1; {released}")),
        (
            "length.so",
            framed(14, 0xff),
            format!("record of {} bytes: at most 65536 are read; {released}", record_len(&alpha()) + 0xff_0000),
        ),
        (
            "newer.so",
            with(|record| record["schemaVersion"] = 2.into()),
            "schema version 2, this host speaks 1; upgrade the host".to_owned(),
        ),
        (
            "older.so",
            with(|record| record["schemaVersion"] = 0.into()),
            "schema version 0, this host speaks 1; build the engine with a newer interface".to_owned(),
        ),
        (
            "aborts.so",
            with(|record| record["panic"] = "abort".into()),
            "built with panic = \"abort\", expected \"unwind\": a panic would end the host; change the profile"
                .to_owned(),
        ),
    ]);
}

#[test]
fn what_is_no_regular_file_is_named_and_never_opened() {
    let host = TestHost::with(&["beta"]);
    let at = |name: &str| host.plugins().join(name);
    fs::create_dir(at("folder.so")).expect("a folder");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe.so"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.so")).expect("a socket");
    symlink("/dev/zero", at("device.so")).expect("a link");
    symlink("pipe.so", at("to-pipe.so")).expect("a link");
    symlink("round.so", at("about.so")).expect("a link");
    symlink("about.so", at("round.so")).expect("a link");
    symlink("nowhere.so", at("dangling.so")).expect("a link");
    let not_a_file = |found| {
        format!(
            "expected a library file, found a {found}; name the library itself, or a folder with its plugin.json, and move \
             this away if it lies in a plugins directory"
        )
    };
    let broken =
        |reason| format!("the symbolic link cannot be followed ({reason}); remove it or point it at the library");
    let circle = broken("Too many levels of symbolic links (os error 40)");
    check(
        &host,
        &[
            ("about.so", circle.clone()),
            ("dangling.so", broken("No such file or directory (os error 2)")),
            ("device.so", not_a_file("device")),
            ("folder.so", not_a_file("directory without a plugin.json")),
            ("pipe.so", not_a_file("named pipe")),
            ("round.so", circle),
            ("socket.so", not_a_file("socket")),
            ("to-pipe.so", not_a_file("named pipe")),
        ],
    );
}

/// Report H8: a file that is no usable library.
#[test]
fn nine_kinds_of_wrong_file_have_nine_reasons_with_what_to_do() {
    let host = TestHost::with(&["beta"]);
    let header = |class: u8, machine: u16| {
        let mut bytes = alpha();
        bytes[CLASS] = class;
        bytes[MACHINE..MACHINE + 2].copy_from_slice(&machine.to_le_bytes());
        bytes
    };
    host.put("aarch64.so", header(2, 183));
    host.put("i386.so", header(1, 3));
    host.put("archive.so", fs::read(plain("libplain.a")).expect("built"));
    host.put("script.so", "#!/bin/sh\n");
    host.put("empty.so", "");
    fs::create_dir(host.plugins().join("directory.so")).expect("a folder");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = host.plugins().join("pipe.so");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let mut dll = vec![0; 0x200];
    dll[..2].copy_from_slice(b"MZ");
    dll[0x3c] = 0x80;
    dll[0x80..0x84].copy_from_slice(b"PE\0\0");
    dll[0x98..0x9a].copy_from_slice(&0x20b_u16.to_le_bytes());
    host.put("windows.so", dll);
    host.put("program.so", fs::read(plain("plain")).expect("built"));

    let found = scan(&host);
    let reasons: std::collections::BTreeSet<String> =
        found.iter().filter_map(|(_, found)| Some(found.as_ref().err()?.problem.to_string())).collect();
    assert_eq!(reasons.len(), 9, "{reasons:#?}");
    for reason in &reasons {
        let advice = reason.rsplit_once("; ").map(|(_, advice)| advice);
        assert!(advice.is_some_and(|advice| advice.split(' ').count() > 3) && !reason.contains('\n'), "{reason}");
    }
    assert_eq!(found.iter().filter(|(_, found)| found.is_ok()).count(), 1, "the good one among them loads");
}

/// Report H5: upgrading by overwriting the mapped file kills the running host.
#[test]
fn overwriting_the_dropped_file_does_not_disturb_the_running_engine() {
    let host = TestHost::with(&["alpha"]);
    let handle = host.engine("alpha", Value::Null);
    let before = answer(&handle);
    // As `cp` does it: the same inode, truncated and written again.
    let dropped = host.plugins().join(plugin("alpha").file_name().expect("a name"));
    fs::write(&dropped, vec![0xcc; 10_000]).expect("overwritten");
    assert_eq!(answer(&handle), before);
    fs::write(&dropped, "").expect("truncated");
    assert_eq!(answer(&handle), before);
    fs::remove_file(&dropped).expect("removed");
    assert_eq!(answer(&handle), before);
}

#[test]
fn a_private_copy_that_somebody_damaged_is_made_again() {
    let host = TestHost::with(&["alpha"]);
    let staged = host.loader().find("alpha").expect("usable").staged().path.clone();
    fs::write(&staged, "damaged").expect("written");
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
}

#[test]
fn file_names_nobody_can_read_do_not_keep_a_plugin_from_loading() {
    let host = TestHost::new();
    let name = OsStr::from_bytes(b"lib\xff\xfe.so");
    fs::copy(plugin("alpha"), host.plugins().join(name)).expect("copied");
    fs::write(host.plugins().join(OsStr::from_bytes(b"\xc3.so")), "notes").expect("written");
    let found = host.loader().scan();
    assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1);
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
    for args in [&["plugins", "list"][..], &["plugins", "list", "--json"], &["doctor"], &["doctor", "--json"]] {
        let ran = host.run(args);
        assert_eq!(ran.code, 1, "{args:?}: {ran:#?}");
        assert!(ran.out.contains("alpha") && ran.out.contains("a text file"), "{args:?}: {ran:#?}");
    }
    let path = host.plugins().join(name);
    assert_eq!(
        host.run([OsStr::new("plugins"), OsStr::new("inspect"), path.as_os_str(), OsStr::new("--json")]).code,
        0
    );
}

#[test]
fn a_name_with_line_breaks_and_escapes_stays_on_its_line() {
    let host = TestHost::new();
    host.put("two\nlines.so", "notes");
    host.put("\u{1b}[31mred.so", with_record(&alpha(), |record| record["engine"]["version"] = "1\n2".into()));
    let ran = host.run(["plugins", "list"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out.lines().count(), 3, "one for legacy, one per file: {}", ran.out);
    for args in [["plugins", "list"], ["plugins", "inspect"], ["doctor", "-v"]] {
        let path = host.plugins().join("\u{1b}[31mred.so");
        let inspected = (args[1] == "inspect").then_some(path.into_os_string());
        let ran = host.run(args.map(Into::into).into_iter().chain(inspected));
        assert!(!ran.out.contains('\u{1b}') && !ran.out.contains("\n2"), "{args:?}: {}", ran.out);
        assert!(ran.out.contains("1\\n2"), "{args:?}: {}", ran.out);
    }
}

#[test]
fn other_files_in_the_directory_are_passed_over() {
    let host = TestHost::with(&["alpha"]);
    host.put("README.md", "notes");
    host.put("libalpha.so.bak", alpha());
    host.put(".hidden.so", "half a copy");
    host.put("libalpha.part", alpha());
    host.put("folder/notes.txt", "no manifest, no plugin");
    let found = scan(&host);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.is_ok());
}

/// Report H4: a watcher fires while the file is still being copied.
#[test]
fn a_growing_file_is_not_used_before_its_last_piece() {
    let host = TestHost::new();
    let whole = alpha();
    let path = host.plugins().join(library_name("alpha"));
    let pieces: Vec<Vec<u8>> = whole.chunks(whole.len().div_ceil(10)).map(<[u8]>::to_vec).collect();
    let (writing, written) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        let mut file = fs::File::create(path).expect("created");
        for piece in pieces {
            file.write_all(&piece).expect("written");
            std::thread::sleep(Duration::from_millis(100));
        }
        writing.send(()).expect("somebody waits");
    });
    let mut refused = 0;
    while written.try_recv().is_err() {
        match host.verdicts().pop() {
            None => {}
            Some((_, Ok(plugin))) => {
                assert_eq!(fs::read(&plugin.staged().path).expect("staged"), whole, "half a library was accepted");
            }
            Some((_, Err(error))) => {
                refused += 1;
                assert!(
                    matches!(error.problem, Problem::Empty | Problem::Truncated { .. } | Problem::Unstable { .. }),
                    "{error}"
                );
            }
        }
    }
    writer.join().expect("written");
    assert!(refused > 0, "it must have been looked at while it grew");
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
}

#[test]
fn a_file_replaced_by_another_build_of_the_same_length_and_time_is_noticed() {
    let host = TestHost::with(&["alpha"]);
    let path = host.plugins().join(library_name("alpha"));
    let loader = host.loader();
    let digest = || loader.clone().find("alpha").expect("usable").staged().digest;
    // Long enough for the loader to remember what it saw.
    std::thread::sleep(Duration::from_millis(2_100));
    let first = digest();
    assert_eq!(digest(), first);
    let whole = fs::read(&path).expect("read");
    let other = with_record(&whole, |record| record["engine"]["version"] = "9".into());
    assert_eq!(other.len(), whole.len());
    let part = host.put("alpha.part", other);
    let modified = fs::metadata(&path).and_then(|meta| meta.modified()).expect("a time");
    fs::File::options().append(true).open(&part).and_then(|file| file.set_modified(modified)).expect("set");
    fs::rename(part, &path).expect("renamed");
    assert_ne!(digest(), first);
    assert_eq!(loader.find("alpha").expect("usable").info().version, "9");
}
