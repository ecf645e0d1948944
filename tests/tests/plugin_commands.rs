//! The commands that change which plugins there are and which is used, driven as a person drives them.
//!
//! Decision: after each command the doctor is asked, because that is what a person looks at: what it says has to be what
//! the command said. Broken inputs must leave home and configuration byte for byte as they were.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use context_engine_loader::platform::TARGET;
use context_engine_tests::build::{command, library_name, plugin};
use context_engine_tests::host::{Ran, TestHost};
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

fn configure(host: &TestHost, text: &str) {
    fs::write(host.root().join("config.json5"), text).expect("written");
}

fn config(host: &TestHost) -> String {
    fs::read_to_string(host.root().join("config.json5")).unwrap_or_default()
}

/// Runs `plugins …` with blanks between the arguments.
fn plugins(host: &TestHost, args: &str) -> Ran {
    host.run(["plugins"].into_iter().chain(args.split(' ')))
}

/// A command that has to end with this code and say this; the whole of what it said.
#[track_caller]
fn says(ran: &Ran, code: i32, words: &[&str]) {
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, code, "{ran:#?}");
    for word in words {
        assert!(said.contains(word), "expected {word:?} in {ran:#?}");
    }
    assert!(!said.contains("thread '"), "{ran:#?}");
}

/// Who serves, and why it is not the one asked for.
fn doctor(host: &TestHost) -> (String, String) {
    let report = host.run(["doctor", "--json"]).json();
    let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
    (text("serves"), text("why"))
}

/// Every file below the home that is the person's, with its bytes.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").display().to_string();
            match entry.file_type().expect("a kind").is_dir() {
                true if name != "state" => folders.push(path),
                false if !name.ends_with(".lock") => drop(found.insert(name, fs::read(&path).expect("read"))),
                _ => {}
            }
        }
    }
    found
}

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

/// The library of an engine of `engines/`, as text.
fn library(name: &str) -> String {
    plugin(name).to_str().expect("a path that is text").to_owned()
}

/// Another build of the same engine: a byte behind the end changes nothing but the digest.
fn other_build(host: &TestHost, name: &str) -> String {
    let path = host.root().join("other").join(library_name(name));
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, [fs::read(plugin(name)).expect("built"), vec![0]].concat()).expect("written");
    path.to_str().expect("text").to_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
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

#[test]
fn a_folder_is_copied_whole_and_links_in_it_are_refused() {
    let (author, host) = (TestHost::new(), TestHost::new());
    author.drop_in_folder_with("alpha", "topic", serde_json::json!({ "configSchema": { "type": "object" } }));
    author.put("topic/notes.md", "mine");
    let folder = author.plugins().join("topic");
    let install = format!("install {}", folder.display());
    says(&plugins(&host, &install), 0, &["installed alpha"]);
    assert_eq!(names(&host.plugins()), ["alpha"]);
    assert_eq!(names(&host.plugins().join("alpha")), ["lib", "notes.md", "plugin.json"]);
    // The same engine as a library takes the folder's place: of two in one directory neither would be used.
    says(
        &plugins(&host, &format!("install {}", other_build(&host, "alpha"))),
        0,
        &["in place of", "which had the same id"],
    );
    assert_eq!(names(&host.plugins()), ["alpha.so"]);
    says(&plugins(&host, &install), 0, &["removed   "]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc/passwd", folder.join("passwd")).expect("linked");
        let before = files(host.root());
        says(&plugins(&host, &install), 2, &["passwd is no file and no folder"]);
        assert_eq!(files(host.root()), before);
    }
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

#[test]
fn an_engine_is_packed_and_its_archive_installed() {
    let host = TestHost::new();
    let out = host.root().join("alpha.tar.gz");
    let pack = format!("pack {} --out {}", library("alpha"), out.display());
    says(&plugins(&host, &pack), 0, &["packed    alpha 0.1.0 for ", TARGET, "plugins install"]);
    let first = fs::read(&out).expect("packed");
    says(&plugins(&host, &pack), 2, &["the file exists", "--force"]);
    says(&plugins(&host, &format!("{pack} --force")), 0, &["packed"]);
    assert_eq!(fs::read(&out).expect("packed"), first, "the same bytes");
    says(
        &plugins(&host, &format!("install {} --select --pin", out.display())),
        0,
        &["installed alpha", "selected  alpha"],
    );
    assert_eq!(names(&host.plugins()), ["alpha"]);
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    says(&plugins(&host, &format!("install -l {}", out.display())), 2, &["cannot be linked"]);
    // The folder that was installed can be packed, too.
    let again =
        format!("pack {} --out {}", host.plugins().join("alpha").display(), host.root().join("b.tar.gz").display());
    says(&plugins(&host, &again), 0, &["packed    alpha"]);
}

#[test]
fn archives_that_are_broken_or_for_others_are_refused_and_leave_nothing() {
    let host = TestHost::new();
    let out = host.root().join("a.tar.gz");
    says(&plugins(&host, &format!("pack {} --out {}", library("alpha"), out.display())), 0, &["packed"]);
    let whole = fs::read(&out).expect("packed");
    fs::write(&out, &whole[..whole.len() / 2]).expect("cut");
    // What is packed must be one engine, whole, and what its folder says.
    let (alpha, beta) = (library("alpha"), library("beta"));
    let folder = TestHost::new();
    folder.drop_in_folder_with("alpha", "f", serde_json::json!({ "version": "9.0.0" }));
    let elsewhere = host.root().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::write(
        elsewhere.join("plugin.json"),
        r#"{"id": "alpha", "version": "0.1.0", "libraries": {"riscv64gc-unknown-none": "x.so"}}"#,
    )
    .expect("written");
    let before = files(host.root());
    let to = host.root().join("new.tar.gz").display().to_string();
    for (args, words) in [
        (format!("install {}", out.display()), "cannot be read"),
        (format!("install {}", elsewhere.display()), "it has riscv64gc-unknown-none"),
        (format!("pack {alpha} {beta} --out {to}"), "pack one version of one engine"),
        (format!("pack {alpha} {alpha} --out {to}"), "one library per platform"),
        (
            format!("pack {} --out {to}", folder.plugins().join("f").display()),
            "the version \"9.0.0\", the library \"0.1.0\"",
        ),
        (format!("pack {} --out {to}", host.root().display()), "has no plugin.json"),
        (format!("pack {} --out {to}", out.display()), "expected"),
        (format!("pack {alpha} --out {}/no/folder.tar.gz", host.root().display()), "writing the archive"),
    ] {
        says(&plugins(&host, &args), 2, &[words]);
    }
    assert_eq!(files(host.root()), before, "nothing is left");
}

/// Runs the command in this home from within `folder`.
fn within(host: &TestHost, folder: &Path, args: &str) -> Ran {
    let mut command = Command::new(command());
    let output = command.args(args.split(' ')).env("CONTEXT_ENGINE_HOME", host.root()).current_dir(folder).output();
    let output = output.expect("the command can be run");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_workspaces_plugin_is_trusted_by_path_and_digest_until_it_changes() {
    let (host, workspace) = (TestHost::new(), TestHost::new());
    let folder = workspace.root().join(".context-engine/plugins");
    fs::create_dir_all(&folder).expect("folders");
    let file = folder.join(library_name("alpha"));
    fs::copy(plugin("alpha"), &file).expect("copied");
    let run = |args: &str| within(&host, workspace.root(), args);
    says(&run("plugins list"), 1, &["blocked", "not used unasked", "context-engine plugins trust alpha"]);
    says(&run("plugins select alpha"), 2, &["was not selected", "not used unasked"]);
    says(&run("plugins trust alpha"), 0, &["trusted   alpha 0.1.0", "sha256:", "plugins select alpha"]);
    says(&run("plugins trust ."), 0, &["trusted already"]);
    says(&run("plugins trust --list"), 0, &["trusted   ", "alpha"]);
    says(&run("plugins select alpha"), 0, &["selected  alpha"]);
    assert_eq!(run("doctor --json").json()["serves"], "alpha");
    // The same file in another workspace is another question.
    let other = TestHost::new();
    fs::create_dir_all(other.root().join(".context-engine/plugins")).expect("folders");
    fs::copy(&file, other.root().join(".context-engine/plugins/alpha.so")).expect("copied");
    says(&within(&host, other.root(), "plugins list"), 1, &["not used unasked"]);
    // A pull brings another build.
    fs::copy(other_build(&host, "alpha"), &file).expect("changed");
    says(&run("plugins list"), 1, &["blocked", "changed since it was trusted", "plugins trust /"]);
    says(&run("doctor"), 1, &["serves    legacy, because", "changed since it was trusted"]);
    says(&run("plugins trust --list"), 1, &["changed   "]);
    says(&run(&format!("plugins trust {}", workspace.root().display())), 0, &["trusted   alpha"]);
    assert_eq!(run("plugins list").code, 0);
    assert_eq!(
        run("plugins trust --list --json").json()["trusted"].as_array().map(Vec::len),
        Some(1),
        "the old digest is gone"
    );
    says(&run("plugins trust --remove ."), 0, &["forgotten", "not used any more"]);
    says(&run("plugins list"), 1, &["not used unasked"]);
    says(&run("plugins trust --remove ."), 2, &["nothing there is trusted"]);
    says(&run("plugins trust nobody"), 2, &["no plugin has the id \"nobody\""]);
    fs::write(&file, b"cut").expect("written");
    says(&run("plugins trust ."), 2, &["inspect"]);
}

/// Without an engine in it: what cargo does with an engine is the same, and takes half a minute.
#[test]
fn a_crate_is_built_and_what_it_builds_is_inspected() {
    let host = TestHost::new();
    let package = |name: &str, lib: &str, code: &str| {
        let folder = host.root().join("crates").join(name);
        fs::create_dir_all(folder.join("src")).expect("folders");
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\n{lib}\n[workspace]\n"
        );
        fs::write(folder.join("Cargo.toml"), manifest).expect("written");
        fs::write(folder.join("src/lib.rs"), code).expect("written");
        folder.display().to_string()
    };
    let cdylib = "crate-type = [\"cdylib\"]";
    let no_engine = package("no-engine", cdylib, "pub fn nothing() {}");
    let install = |what: &str| {
        let target = host.root().join("target");
        host.run_with(["plugins", "install", "--crate", what, "--json"], &[("CARGO_TARGET_DIR", &target)])
    };
    let ran = install(&no_engine);
    says(&ran, 2, &["cargo build", "no_engine", "has no context-engine record"]);
    assert_eq!(ran.out, "", "cargo's messages are not results");
    says(&install(&package("no-library", "", "")), 2, &["crate-type = [\"cdylib\"]"]);
    says(&install(&package("broken", cdylib, "fn")), 2, &["was not installed", "`cargo build` failed"]);
    says(&install("./nowhere"), 2, &["has no Cargo.toml"]);
    says(&install("a b"), 2, &["NAME@VERSION"]);
    let missing =
        host.run_with(["plugins", "install", "--crate", &no_engine], &[("CARGO", Path::new("/nowhere/cargo"))]);
    says(&missing, 2, &["cargo cannot be run", "install Rust"]);
    says(&plugins(&host, &format!("install --crate {no_engine} x.so")), 2, &["cannot be used with"]);
    assert_eq!(names(&host.plugins()), Vec::<String>::new());
}
