//! The commands that change which plugins there are and which is used, driven as a person drives them.
//!
//! Decision: after each command the doctor is asked, because that is what a person looks at: what it says has to be what
//! the command said. Broken inputs must leave home and configuration byte for byte as they were.
#![forbid(unsafe_code)]

use std::fs;

use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::commands::{config, configure, doctor, files, library, names, other_build, plugins, says};
use context_engine_tests::host::TestHost;
use serde_json::Value;

const COMMENTED: &str = "\
// mine
{
  plugins: {
    slots: { contextEngine: 'legacy' }, // the default
    entries: {
      // kept although nobody has it
      gone: { config: { a: 1 } },
    },
  },
}
";

/// Report G1: what doctor says after each command is what the command said.
#[test]
fn an_engine_is_selected_switched_off_and_on_and_doctor_agrees() {
    let host = TestHost::with(&["alpha"]);
    configure(&host, COMMENTED);
    says(
        &plugins(&host, "select alpha"),
        0,
        &["selected  alpha, before legacy", "hosts that watch heed it with their next turn"],
    );
    assert_eq!(config(&host), COMMENTED.replace("'legacy'", "'alpha'"));
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    says(&plugins(&host, "select alpha"), 0, &["in the slot already"]);
    says(&plugins(&host, "disable alpha"), 0, &["disabled", "legacy answers", "plugins select legacy"]);
    let off = "      gone: { config: { a: 1 } },\n      alpha: { enabled: false },\n";
    assert!(config(&host).contains(off) && config(&host).contains("// kept although"), "{}", config(&host));
    assert_eq!(doctor(&host), ("legacy".into(), "plugins.entries.alpha.enabled is false".into()));
    says(&host.run(["doctor"]), 1, &["`context-engine plugins enable alpha` lets it be used again"]);
    says(&plugins(&host, "disable alpha"), 0, &["disabled already"]);
    says(
        &plugins(&host, "select alpha"),
        2,
        &["was not selected", "plugins.entries.alpha.enabled is false", "--force"],
    );
    says(&plugins(&host, "enable alpha"), 0, &["enabled   alpha"]);
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    says(&plugins(&host, "select legacy"), 0, &["selected  legacy, before alpha"]);
    assert_eq!(doctor(&host), ("legacy".into(), String::new()));
    says(&plugins(&host, "enable gone"), 0, &["enabled already"]);
}

#[test]
fn what_cannot_serve_is_not_selected_unless_it_is_forced() {
    let host = TestHost::with(&["alpha", "panics"]);
    configure(&host, "{plugins: {entries: {panics: {config: {in: 'create'}}}}}");
    let before = files(host.root());
    says(&plugins(&host, "select alhpa"), 2, &["did you mean \"alpha\"?", "Known: "]);
    says(&plugins(&host, "select panics"), 2, &["was not selected", "boom"]);
    assert_eq!(files(host.root()), before, "nothing was written");
    says(&plugins(&host, "select panics --force"), 1, &["selected  panics", "legacy answers, because"]);
    assert_eq!(doctor(&host).0, "legacy");
    let json = plugins(&host, "select nobody --force --json");
    assert_eq!(json.code, 1, "{json:#?}");
    assert_eq!((&json.json()["id"], &json.json()["before"]), (&Value::from("nobody"), &Value::from("panics")));
    assert!(json.json()["why"].as_str().is_some_and(|why| why.contains("no plugin has the id")), "{json:#?}");
}

#[test]
fn a_switch_says_which_other_key_still_blocks_and_refuses_what_nobody_has() {
    let host = TestHost::with(&["alpha"]);
    configure(&host, "{plugins: {deny: ['alpha'], entries: {alpha: {enabled: false}}}}");
    says(&plugins(&host, "enable alpha"), 1, &["not used all the same: plugins.deny names \"alpha\"", "config.json5"]);
    says(&plugins(&host, "enable alpah"), 2, &["no plugin has the id \"alpah\"; did you mean \"alpha\"?"]);
    says(&plugins(&host, "disable legacy"), 2, &["built-in engine legacy"]);
    configure(&host, "{plugins: {\n deny: [ } }");
    let before = files(host.root());
    says(&plugins(&host, "disable alpha"), 2, &["config.json5", "line 2"]);
    assert_eq!(files(host.root()), before);
}

#[test]
fn the_first_change_makes_the_configuration_with_its_explanations() {
    let host = TestHost::with(&["alpha"]);
    says(&plugins(&host, "select alpha"), 0, &["selected"]);
    let text = config(&host);
    assert!(text.contains("contextEngine: \"alpha\",") && text.contains("// Plugin ids that never load."), "{text}");
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    for command in ["select", "enable", "disable", "install", "uninstall", "pack", "trust"] {
        says(&plugins(&host, &format!("{command} --help")), 0, &["Examples:", "Exit codes:", "--json"]);
    }
}

/// Report H5: an upgrade is a rename, never a write into the file that is there.
#[test]
fn a_library_is_installed_selected_upgraded_and_uninstalled() {
    let host = TestHost::new();
    configure(&host, COMMENTED);
    let installed = plugins(&host, &format!("install {}", library("alpha")));
    says(&installed, 0, &["installed alpha 0.1.0 (sha256:", "plugins select alpha"]);
    assert_eq!(names(&host.plugins()), ["alpha.so"]);
    says(
        &plugins(&host, &format!("install {} --select", library("alpha"))),
        0,
        &["nothing was copied", "selected  alpha"],
    );
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    let open = fs::File::open(host.plugins().join("alpha.so")).expect("opened");
    let upgraded = plugins(&host, &format!("install {}", other_build(&host, "alpha")));
    says(&upgraded, 0, &["in place of 0.1.0 (sha256:", "it is in the slot; hosts that watch heed it"]);
    assert_eq!(open.metadata().expect("still there").len(), fs::metadata(plugin("alpha")).expect("built").len());
    assert_eq!(names(&host.plugins()), ["alpha.so"], "nothing is left of the work");
    let before = files(host.root());
    says(&plugins(&host, "uninstall alpha --dry-run"), 0, &["would be changed", "would be", "alpha.so"]);
    assert_eq!(files(host.root()), before);
    says(&plugins(&host, "uninstall alpha"), 0, &["slots.contextEngine is legacy again", "removed   ", "alpha.so"]);
    assert_eq!((names(&host.plugins()), config(&host)), (vec![], COMMENTED.to_owned()), "every comment is there");
    assert_eq!(doctor(&host), ("legacy".into(), String::new()));
    says(&plugins(&host, "uninstall alpha"), 2, &["no plugin has the id \"alpha\""]);
}

#[test]
fn a_pin_is_written_and_keeps_other_builds_out() {
    let host = TestHost::new();
    says(&plugins(&host, &format!("install {} --pin", library("alpha"))), 0, &["pinned    alpha"]);
    let other = other_build(&host, "alpha");
    let before = files(host.root());
    says(
        &plugins(&host, &format!("install {other}")),
        2,
        &["plugins.entries.alpha.pin asks for sha256:", "--pin pins"],
    );
    assert_eq!(files(host.root()), before);
    let json = plugins(&host, &format!("install {other} --pin --json")).json();
    assert!(config(&host).contains(json["digest"].as_str().expect("a digest")), "{json}");
    assert_eq!(plugins(&host, "list").code, 0, "the pinned build is used");
}

#[test]
fn what_is_refused_is_not_installed_and_nothing_is_half_there() {
    let host = TestHost::new();
    let whole = fs::read(plugin("alpha")).expect("built");
    let outside = host.root().join("in");
    fs::create_dir(&outside).expect("a folder");
    fs::create_dir_all(outside.join("crate")).expect("a folder");
    for (name, bytes) in
        [("cut.so", &whole[..4096]), ("empty.so", b""), ("text.so", b"hello"), ("crate/Cargo.toml", b"[package]")]
    {
        fs::write(outside.join(name), bytes).expect("written");
    }
    let before = files(host.root());
    for (path, words) in [
        ("cut.so", "cut off"),
        ("empty.so", "empty"),
        ("text.so", "expected a shared library"),
        ("gone.so", "gone.so"),
        ("crate", "it is a crate"),
        ("", "directory without a plugin.json"),
    ] {
        let ran = host.run(["plugins", "install", outside.join(path).to_str().expect("text"), "--pin", "--select"]);
        says(&ran, 2, &[words]);
        assert_eq!(ran.out, "");
    }
    assert_eq!(files(host.root()), before);
}

/// Report H16: which of several plugins with one id is used is said before anything is copied.
#[test]
fn an_id_another_directory_has_is_said_and_needs_force() {
    let host = TestHost::new();
    let linked = library("alpha");
    says(&plugins(&host, &format!("install -l {linked}")), 0, &["linked    alpha", "used in place", "plugins select"]);
    says(&plugins(&host, &format!("install --link {linked}")), 0, &["linked already"]);
    let other = other_build(&host, "alpha");
    says(
        &plugins(&host, &format!("install {other}")),
        2,
        &["is taken by", "comes first in plugins.load.paths", "--force"],
    );
    assert_eq!(names(&host.plugins()), Vec::<String>::new());
    says(&plugins(&host, &format!("install {other} --force")), 1, &["installed alpha", "comes first"]);
    assert_eq!(plugins(&host, "list").code, 1, "the second one is shown as shadowed");
    says(&plugins(&host, "uninstall alpha"), 0, &["plugins.load.paths no longer has", "alpha.so"]);
    assert!(names(&host.plugins()).is_empty() && plugin("alpha").exists(), "the build itself is not ours");
    fs::write(host.plugins().join("alpha.so"), fs::read(plugin("beta")).expect("built")).expect("written");
    says(&plugins(&host, &format!("install {other}")), 2, &["is there already and is not \"alpha\""]);
}

#[test]
fn a_linked_build_is_followed_when_it_is_built_again() {
    let host = TestHost::new();
    let build = host.root().join("target").join(library_name("alpha"));
    fs::create_dir(build.parent().expect("a folder")).expect("a folder");
    fs::copy(plugin("alpha"), &build).expect("built");
    says(&plugins(&host, &format!("install -l {} --select", build.display())), 0, &["selected  alpha"]);
    let digest = |host: &TestHost| plugins(host, "list --json").json()["plugins"][0]["digest"].clone();
    let first = digest(&host);
    fs::copy(other_build(&host, "alpha"), &build).expect("built again");
    assert_ne!(digest(&host), first);
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    fs::remove_file(&build).expect("cleaned");
    says(&plugins(&host, "uninstall alpha"), 0, &["is legacy again", "no longer has"]);
    assert_eq!(doctor(&host), ("legacy".into(), String::new()));
}

#[test]
fn uninstalling_keeps_what_was_stored_and_what_is_elsewhere() {
    let host = TestHost::with(&["alpha"]);
    let stored = host.root().join("state/engines/alpha");
    fs::create_dir_all(&stored).expect("a folder");
    fs::write(stored.join("db"), "memories").expect("written");
    configure(
        &host,
        "{plugins: {allow: ['alpha'], slots: {memory: 'alpha'}, // m\n entries: {alpha: {config: {}}, b: {}}}}",
    );
    says(
        &plugins(&host, "uninstall alpha --keep-files"),
        0,
        &["slots.memory is at its default", "kept      ", "--purge", "allow is empty now"],
    );
    assert_eq!(config(&host), "{plugins: {allow: [], slots: {}, // m\n entries: {b: {}}}}");
    assert!(stored.join("db").exists() && host.plugins().join(library_name("alpha")).exists());
    // A library nobody can read any more goes by its name.
    host.put(&library_name("alpha"), b"cut");
    says(&plugins(&host, "uninstall alpha --purge"), 0, &["removed   ", "what the engine had stored"]);
    assert!(!stored.exists() && names(&host.plugins()).is_empty());
    let json = plugins(&host, "uninstall b --json");
    assert_eq!((json.code, &json.json()["config"][0]), (0, &Value::from("plugins.entries.b is gone")));
    says(&plugins(&host, "uninstall ../../etc"), 2, &["no plugin has the id"]);
}

/// What nobody uninstalled, because the file was removed by hand.
#[test]
fn doctor_says_how_an_engine_that_is_not_there_comes_back() {
    let host = TestHost::new();
    configure(&host, "{plugins: {slots: {contextEngine: 'alpha'}}}");
    let words = ["serves    legacy", "`context-engine plugins install PATH` installs it", "plugins select legacy"];
    says(&host.run(["doctor"]), 1, &words);
}
