//! Looking at a plugin runs nothing of it.
//!
//! Decision: a library with a constructor is the witness. `dlopen` runs constructors, so whatever opened the library, for
//! however short a time, leaves the file behind that the constructor writes. That it does write it is checked too.
#![forbid(unsafe_code)]

use context_engine_tests::build::{example, library_name, plugin, workspace};
use context_engine_tests::host::TestHost;

/// Runs the command; says whether the constructor of a library was run.
fn constructor_ran(host: &TestHost, args: &[&str], code: i32) -> bool {
    let marker = host.root().join("marker");
    let ran = host.run_with(args, &[("CONTEXT_ENGINE_TEST_MARKER", &marker)]);
    assert_eq!(ran.code, code, "{args:?}: {ran:#?}");
    marker.exists()
}

#[test]
fn inspect_list_and_doctor_run_no_constructor() {
    let host = TestHost::with(&["constructor"]);
    std::fs::write(host.root().join("config.json5"), "{plugins: {slots: {contextEngine: 'constructor'}}}")
        .expect("written");
    let library = host.plugins().join(library_name("constructor"));
    let library = library.to_str().expect("a path that is text");
    for args in [
        &["plugins", "inspect", library][..],
        &["plugins", "inspect", library, "--json"],
        &["plugins", "list"],
        &["plugins", "list", "--json"],
        &["doctor", "--no-probe"],
        &["doctor", "--no-probe", "--json"],
    ] {
        assert!(!constructor_ran(&host, args, 0), "{args:?} opened the library");
    }
    let session = workspace().join("cli/demo/session.jsonl");
    let session = session.to_str().expect("a path that is text");
    assert!(!constructor_ran(&host, &["replay", session, "--engine", "legacy", "--turns", "1"], 0));
    assert!(!constructor_ran(&host, &["replay", session, "--engine", "constructr", "--turns", "1"], 2));
    assert!(constructor_ran(&host, &["replay", session, "--turns", "1"], 0), "the witness must be able to speak");
}

#[test]
fn a_plugin_that_is_not_trusted_runs_no_constructor_in_any_process() {
    let host = TestHost::with(&["constructor"]);
    std::fs::write(host.root().join("config.json5"), "{plugins: {deny: ['constructor']}}").expect("written");
    assert!(!constructor_ran(&host, &["doctor"], 0));
    std::fs::write(host.root().join("config.json5"), "{}").expect("written");
    assert!(constructor_ran(&host, &["doctor"], 0), "the probe tries what is trusted");
}

#[test]
fn a_refused_library_never_runs_its_constructor() {
    let host = TestHost::new();
    let bytes = std::fs::read(plugin("constructor")).expect("built");
    let newer = context_engine_tests::record::with_record(&bytes, |record| record["schemaVersion"] = 9.into());
    host.put(&library_name("constructor"), newer);
    let session = workspace().join("cli/demo/session.jsonl");
    let session = session.to_str().expect("a path that is text");
    let replay = ["replay", session, "--engine", "constructor", "--turns", "1"];
    assert!(!constructor_ran(&host, &replay, 1));
}

#[test]
fn inspect_says_what_a_library_is() {
    let host = TestHost::new();
    let library = example("sliding-window");
    let ran = host.run(["plugins".as_ref(), "inspect".as_ref(), library.as_os_str()]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let says = |words: &[&str]| assert!(lines.iter().any(|line| line.starts_with(words)), "{words:?}: {}", ran.out);
    says(&["usable:"]);
    says(&["id", "sliding-window"]);
    says(&["owns", "compaction", "no"]);
    says(&["host", "params", "all"]);
    says(&["extensions", "none"]);
    says(&["schema", "1"]);
    says(&["panic", "unwind"]);
    says(&["target", context_engine_loader::platform::TARGET]);
    says(&["digest"]);
    says(&["nothing", "of", "the", "file", "was", "run"]);
}

#[test]
fn a_path_that_names_nothing_is_no_verdict() {
    let host = TestHost::new();
    let ran = host.run(["plugins".as_ref(), "inspect".as_ref(), host.plugins().join("nothing.so").as_os_str()]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("looking at the file: No such file or directory"), "{ran:#?}");
}

#[test]
fn inspect_refuses_with_path_step_and_reason() {
    let host = TestHost::new();
    let notes = host.put("notes.so", "just notes");
    for (path, expected) in [
        (notes.as_path(), "inspect: expected a shared library, found a text file; build the engine as a `cdylib`"),
        (
            &host.plugins(),
            "find: expected a library file, found a directory without a plugin.json; name the library itself, \
             or a folder with its plugin.json, and move this away if it lies in a plugins directory",
        ),
    ] {
        let ran = host.run(["plugins".as_ref(), "inspect".as_ref(), path.as_os_str()]);
        assert_eq!((ran.code, ran.out), (1, format!("refused: {}: {expected}\n", path.display())));
        let ran = host.run(["plugins".as_ref(), "inspect".as_ref(), path.as_os_str(), "--json".as_ref()]);
        assert_eq!(ran.code, 1);
        let verdict = ran.json();
        assert_eq!(verdict["usable"], false);
        assert_eq!(
            format!("{}: {}", verdict["step"].as_str().unwrap_or(""), verdict["reason"].as_str().unwrap_or("")),
            expected
        );
    }
}

/// The bytes of a plugin that asks for a version of glibc nobody has.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn from_the_future() -> Vec<u8> {
    let mut bytes = std::fs::read(plugin("alpha")).expect("built");
    let is_version = |name: &[u8]| name.starts_with(b"GLIBC_2.") && name[8..10].iter().all(u8::is_ascii_digit);
    let at = bytes.windows(11).position(|name| is_version(name) && name[10] == 0).expect("needs some glibc");
    bytes[at..at + 10].copy_from_slice(b"GLIBC_9.99");
    bytes
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn an_engine_that_needs_a_newer_glibc_names_both_versions() {
    let host = TestHost::with(&["beta"]);
    host.put("future.so", from_the_future());
    let verdicts = host.verdicts();
    let error = verdicts.iter().find_map(|(_, found)| found.as_ref().err()).expect("refused");
    assert_eq!(error.engine.as_deref(), Some("alpha"));
    let reason = error.to_string();
    let rest = reason.split_once("inspect: needs GLIBC_9.99, this machine has ").expect(&reason).1;
    let (here, advice) = rest.split_once(';').expect("advice");
    assert!(here.split('.').all(|number| number.parse::<u32>().is_ok()), "{reason}");
    assert_eq!(advice, " build the engine on an older system, or upgrade this one");
    let usable = verdicts.iter().find_map(|(_, found)| found.as_ref().ok()).expect("the other one");
    assert!(usable.inspection().glibc.as_deref().is_some_and(|version| version.starts_with("2.")));
    assert!(host.engine("alpha", serde_json::Value::Null).why().expect("why").contains("GLIBC_9.99"));
}
