//! Where plugins come from: folders, archives, crates, workspaces; driven as a person drives the commands.
//!
//! Decision: what is broken is tried with what is whole, and must leave home and configuration byte for byte as they were.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use context_engine_loader::platform::TARGET;
use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::commands::{doctor, files, library, names, other_build, plugins, says, within};
use context_engine_tests::host::TestHost;

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

/// Report B: exit code 0 means that a host in that workspace uses it, and what no host would find is not trusted.
#[cfg(unix)]
#[test]
fn what_trust_does_not_make_usable_is_not_called_trusted() {
    use std::os::unix::fs::symlink;
    let (host, workspace) = (TestHost::with(&["beta"]), TestHost::new());
    let folder = workspace.root().join(".context-engine/plugins");
    fs::create_dir_all(&folder).expect("folders");
    let outside = workspace.root().join("outside.so");
    fs::copy(plugin("alpha"), &outside).expect("copied");
    symlink(&outside, folder.join("a.so")).expect("linked");
    let run = |args: &str| within(&host, workspace.root(), args);
    let before = files(host.root());
    for path in [".context-engine/plugins/a.so", ".context-engine/plugins", ".", "alpha"] {
        let words = if path == "alpha" { "no plugin has the id" } else { "leads out of the plugins directory" };
        says(&run(&format!("plugins trust {path}")), 2, &[words]);
    }
    for path in [&outside, &workspace.plugins()] {
        says(&run(&format!("plugins trust {}", path.display())), 2, &["lies in no workspace"]);
    }
    let own = host.plugins().join(library_name("beta"));
    says(&run(&format!("plugins trust {}", own.display())), 2, &["lies in no workspace"]);
    assert_eq!(files(host.root()), before);
    // The home's own directory may be called as that of a workspace.
    let (at_home, engine_home) = (TestHost::new(), workspace.root().join("user/.context-engine"));
    fs::create_dir_all(engine_home.join("plugins")).expect("folders");
    fs::copy(plugin("alpha"), engine_home.join("plugins/alpha.so")).expect("copied");
    let trust = ["plugins", "trust"].map(Into::into).into_iter().chain([engine_home.join("plugins/alpha.so").into()]);
    let trust: Vec<std::ffi::OsString> = trust.collect();
    says(&at_home.run_with(trust, &[("CONTEXT_ENGINE_HOME", &engine_home)]), 2, &["needs no trust", "used unasked"]);
    // Trusted, and not used for another reason.
    fs::remove_file(folder.join("a.so")).expect("removed");
    fs::copy(plugin("beta"), folder.join("b.so")).expect("copied");
    says(
        &run("plugins trust ./.context-engine/plugins/b.so"),
        1,
        &["trusted   beta", "not used all the same", "copy of"],
    );
    says(&run("plugins list"), 1, &["b.so"]);
    says(&run("plugins trust --remove ."), 0, &["forgotten"]);
}

/// Report B: of a folder, the library is what is trusted, and that is said.
#[test]
fn of_a_folder_the_library_is_trusted_and_that_is_said() {
    let (host, workspace) = (TestHost::new(), TestHost::new());
    let folder = workspace.root().join(".context-engine");
    fs::create_dir(&folder).expect("a folder");
    workspace.drop_in_folder("alpha", "topic");
    fs::rename(workspace.plugins(), folder.join("plugins")).expect("moved");
    let run = |args: &str| within(&host, workspace.root(), args);
    let words =
        ["trusted   alpha", "its library is this very file", "plugin.json and other files of the folder may change"];
    says(&run("plugins trust .context-engine/plugins/topic"), 0, &words);
    fs::write(folder.join("plugins/topic/notes.md"), "new").expect("written");
    says(&run("plugins list"), 0, &["alpha"]);
    says(&run("plugins trust --help"), 0, &["Of a folder, only"]);
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
    assert!(ran.json()["error"]["message"].is_string(), "cargo's messages are not results");
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
