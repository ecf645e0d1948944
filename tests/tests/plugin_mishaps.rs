//! What happens to plugins when commands meet each other, a host, a full stop, or a home that is not as usual.
//!
//! Decision: whatever happens, what the exit code says is so, and there is one engine or none as the person asked; never
//! two that keep each other out.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use context_engine_loader::hosts;
use context_engine_loader::quarantine::ProcessStamp;
use context_engine_tests::build::{command, library_name, plugin};
use context_engine_tests::commands::{
    config, configure, doctor, files, library, names, other_build, plugins, says, within,
};
use context_engine_tests::host::TestHost;
use serde_json::json;

/// Starts `plugins …`, and does not wait for it.
fn start(host: &TestHost, args: &[&str]) -> Child {
    let mut command = Command::new(command());
    command.arg("plugins").args(args).env("CONTEXT_ENGINE_HOME", host.root());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command can be run")
}

/// A plugin folder with `alpha` in it, elsewhere.
fn folder(author: &TestHost) -> PathBuf {
    author.drop_in_folder("alpha", "topic");
    author.plugins().join("topic")
}

/// Report "two commands at once": of two installs of one id the last one counts, and neither keeps the other out.
#[test]
fn two_commands_at_once_leave_one_engine() {
    let author = TestHost::new();
    let folder = folder(&author);
    for _ in 0..4 {
        let host = TestHost::new();
        let other = other_build(&host, "alpha");
        let both = [start(&host, &["install", folder.to_str().expect("text")]), start(&host, &["install", &other])];
        for mut one in both {
            assert!(one.wait().expect("it ended").success());
        }
        assert_eq!(names(&host.plugins()).len(), 1, "{:?}", names(&host.plugins()));
        says(&plugins(&host, "list"), 0, &["alpha"]);
        // A pin is of the build that is there, whoever came first.
        let (first, second) = (library("alpha"), other);
        for mut one in [start(&host, &["install", &first, "--pin"]), start(&host, &["install", &second])] {
            one.wait().expect("it ended");
        }
        says(&plugins(&host, "list"), 0, &["alpha"]);
    }
}

/// Report "kill between the renames": what a command left that was killed is shown, and goes when it is old.
#[test]
fn what_a_killed_command_left_is_shown_and_cleared_away() {
    let host = TestHost::with(&["alpha"]);
    let old = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    for name in [".installing-old", ".removed-old", ".installing-new"] {
        host.put(&format!("{name}/made/plugin.json"), "{}");
        if name.ends_with("old") {
            let folder = fs::File::open(host.plugins().join(name)).expect("opened");
            folder.set_modified(old).expect("made old");
        }
    }
    // Moved aside for a moment that never ended.
    fs::create_dir(host.plugins().join(".aside-1")).expect("a folder");
    let alpha = library_name("alpha");
    fs::rename(host.plugins().join(&alpha), host.plugins().join(".aside-1").join(&alpha)).expect("moved");
    says(
        &host.run(["doctor", "--no-probe"]),
        0,
        &["leftover  ", ".installing-old", ".removed-old", ".aside-1", "clears"],
    );
    let report = host.run(["doctor", "--no-probe", "--json"]).json();
    assert_eq!(report["leftovers"].as_array().map(Vec::len), Some(4));
    says(&plugins(&host, &format!("install {}", library("beta"))), 0, &["installed beta"]);
    assert_eq!(names(&host.plugins()), [".installing-new", "beta.so", alpha.as_str()]);
    says(&plugins(&host, "list"), 0, &["alpha"]);
}

/// Exit code 2 says that nothing was changed: what cannot be written is found out before the first change.
#[test]
fn what_cannot_be_written_stops_a_command_before_it_changes_anything() {
    let host = TestHost::with(&["alpha"]);
    configure(&host, "{plugins: {slots: {contextEngine: 'alpha'}, deny: ['alpha']}}");
    let beta = host.root().join("state/beta.so");
    fs::create_dir(beta.parent().expect("a folder")).expect("a folder");
    fs::copy(plugin("beta"), &beta).expect("copied");
    let before = files(host.root());
    let commands = [format!("install {} --pin", beta.display()), "uninstall alpha".to_owned()];
    // No command can lock what is no file, whoever runs it.
    for place in [".config.json5.lock", "plugins/.lock"] {
        let _ = fs::remove_file(host.root().join(place));
        fs::create_dir(host.root().join(place)).expect("in the way");
        for command in &commands {
            says(&plugins(&host, command), 2, &["expected a regular file"]);
            assert_eq!(files(host.root()), before, "{command}, without {place}");
        }
        fs::remove_dir(host.root().join(place)).expect("out of the way");
    }
    says(&plugins(&host, "uninstall alpha"), 0, &["is legacy again", "removed   "]);
}

/// A drive that is not mounted holds what it holds; only a library is a plugin by its name.
#[test]
fn a_directory_that_is_not_there_now_stays_in_the_configuration() {
    let host = TestHost::with(&["alpha"]);
    let so = format!("/nowhere/mnt/{}", library_name("alpha"));
    configure(&host, &format!("{{plugins: {{load: {{paths: ['/nowhere/mnt/alpha', '{so}']}}}}}}"));
    says(&plugins(&host, "uninstall alpha"), 0, &["no longer has /nowhere/mnt/lib", "kept      /nowhere/mnt/alpha"]);
    assert_eq!(config(&host), "{plugins: {load: {paths: ['/nowhere/mnt/alpha']}}}");
}

#[test]
fn what_is_stored_is_not_removed_under_a_host_that_uses_it() {
    let host = TestHost::with(&["alpha"]);
    fs::create_dir_all(host.root().join("state/engines/alpha")).expect("folders");
    let ProcessStamp { pid, start } = ProcessStamp::current();
    let announce = |digest: Option<&str>| {
        let engines = json!([{ "id": "alpha", "digest": digest, "sinceMs": 0, "why": null }]);
        let said = json!({
            "pid": pid, "start": start, "system": hosts::system(), "label": "the bot", "engines": engines, "swaps": 0, "retiredCopies": 0,
            "retiredBytes": 0, "mapped": [], "lastReload": null,
        });
        fs::create_dir_all(host.root().join("state/hosts")).expect("folders");
        fs::write(host.root().join(format!("state/hosts/{pid}.json")), said.to_string()).expect("written");
    };
    announce(Some("ab"));
    let before = files(host.root());
    let words = [&format!("the host {pid} (the bot) uses it"), "without --purge first"];
    says(&plugins(&host, "uninstall alpha --purge"), 2, &words);
    assert_eq!(files(host.root()), before);
    says(&plugins(&host, "uninstall alpha"), 0, &["removed   "]);
    announce(None);
    says(&plugins(&host, "uninstall alpha --purge"), 0, &["what the engine had stored"]);
    assert!(!host.root().join("state/engines/alpha").exists());
}

/// The policy reads path and digest, and so does `--remove`; however somebody wrote them.
#[test]
fn what_was_trusted_by_hand_is_listed_and_forgotten() {
    let (host, workspace) = (TestHost::new(), TestHost::new());
    let file = workspace.root().join(".context-engine/plugins").join(library_name("alpha"));
    fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
    fs::copy(plugin("alpha"), &file).expect("copied");
    // What is called like the id is not meant by it.
    fs::create_dir(workspace.root().join("alpha")).expect("a folder");
    let run = |args: &str| within(&host, workspace.root(), args);
    let trusted = run("plugins trust alpha --json").json();
    let (path, digest) = (trusted["trusted"][0]["path"].clone(), trusted["trusted"][0]["sha256"].clone());
    let digest = digest.as_str().expect("a digest").to_owned();
    for written in [digest.clone(), format!("sha256:{digest}"), digest.to_uppercase()] {
        configure(&host, &format!("{{plugins: {{trusted: [{{path: {path}, sha256: '{written}', note: 'mine'}}]}}}}"));
        let before = config(&host);
        let listed = run("plugins trust --list");
        says(&listed, 0, &["trusted   "]);
        assert!(!listed.out.contains("sha256:sha256:"), "{listed:?}");
        says(&run("plugins trust alpha"), 0, &["trusted already"]);
        assert_eq!(config(&host), before);
        says(&run("plugins trust --remove alpha"), 0, &["forgotten"]);
        assert_eq!(config(&host), "{plugins: {trusted: []}}");
        says(&run("plugins list"), 1, &["not used unasked"]);
    }
    // An old digest goes, whatever stands beside it.
    configure(&host, &format!("{{plugins: {{trusted: [{{path: {path}, sha256: '{}', note: 1}}]}}}}", "0".repeat(64)));
    says(&run("plugins trust alpha"), 0, &["trusted   alpha"]);
    assert_eq!(run("plugins trust --list --json").json()["trusted"].as_array().map(Vec::len), Some(1));
    says(&run("plugins trust ./alpha"), 2, &["lies in no workspace"]);
    says(&run("plugins trust --remove ./alpha"), 2, &["nothing there is trusted"]);
    says(&run("plugins trust --remove ."), 0, &["forgotten"]);
}

/// An engine may come with programs of its own. They stay programs, for their owner alone.
#[cfg(unix)]
#[test]
fn a_helper_program_can_still_be_run_where_it_is_installed() {
    use std::os::unix::fs::PermissionsExt;
    let (author, host) = (TestHost::new(), TestHost::new());
    let folder = folder(&author);
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    for (name, mode) in [("index", 0o4755), ("notes.md", 0o644)] {
        fs::write(folder.join(name), "#!/bin/sh\n").expect("written");
        set(&folder.join(name), mode);
    }
    set(&folder.join("lib/engine.so"), 0o755);
    let archive = host.root().join("alpha.tar.gz").display().to_string();
    says(&plugins(&host, &format!("pack {} --out {archive}", folder.display())), 0, &["packed"]);
    for source in [folder.display().to_string(), archive] {
        says(&plugins(&host, &format!("install {source}")), 0, &["installed alpha"]);
        let mode = |name: &str| {
            fs::metadata(host.plugins().join("alpha").join(name)).expect(name).permissions().mode() & 0o7777
        };
        let modes = ["index", "notes.md", "lib/engine.so", "plugin.json"].map(mode);
        assert_eq!(modes, [0o700, 0o600, 0o600, 0o600], "{source}");
    }
}

/// Whoever installs an archive cannot mend it: what its `plugin.json` names is in it.
#[test]
fn an_archive_has_every_library_it_names() {
    let (author, host) = (TestHost::new(), TestHost::new());
    let folder = folder(&author);
    let out = host.root().join("a.tar.gz");
    let own = context_engine_loader::platform::TARGET;
    fs::create_dir(folder.join(".lib")).expect("a folder");
    fs::copy(plugin("alpha"), folder.join(".lib/x.so")).expect("copied");
    fs::copy(plugin("alpha"), author.plugins().join("x.so")).expect("copied");
    for path in [".lib/x.so", "../x.so", "lib/../../x.so"] {
        let manifest = json!({ "id": "alpha", "version": "0.1.0", "libraries": { own: path } });
        fs::write(folder.join("plugin.json"), manifest.to_string()).expect("written");
        says(
            &plugins(&host, &format!("pack {} --out {}", folder.display(), out.display())),
            2,
            &["which is not packed", path],
        );
        assert!(!out.exists());
    }
}

/// Building runs code: what will be refused anyway is refused before.
#[test]
fn a_crate_that_cannot_be_linked_is_not_built_first() {
    let host = TestHost::new();
    let install = ["plugins", "install", "--link", "--crate", "some-engine@1.0.0"];
    says(&host.run_with(install, &[("CARGO", Path::new("/nowhere/cargo"))]), 2, &["cannot be linked"]);
}

/// A build and a link to it are one plugin. They are replaced and removed as one.
#[cfg(unix)]
#[test]
fn a_link_to_a_build_goes_with_it() {
    let host = TestHost::with(&["alpha", "beta"]);
    std::os::unix::fs::symlink(library_name("alpha"), host.plugins().join("a.so")).expect("linked");
    std::os::unix::fs::symlink(library_name("beta"), host.plugins().join("b.so")).expect("linked");
    says(&plugins(&host, &format!("install {}", other_build(&host, "alpha"))), 0, &["in place of", "a.so, which had"]);
    assert_eq!(names(&host.plugins()), ["alpha.so", "b.so", library_name("beta").as_str()]);
    says(&plugins(&host, "list"), 0, &["alpha", "beta"]);
    says(&plugins(&host, "uninstall beta"), 0, &["b.so", &library_name("beta")]);
    assert_eq!(names(&host.plugins()), ["alpha.so"]);
}

/// Report H19: state, plugins and the home itself may be links to another disk.
#[cfg(unix)]
#[test]
fn a_home_of_links_is_a_home() {
    use std::os::unix::fs::symlink;
    let (real, host) = (TestHost::new(), TestHost::new());
    fs::remove_dir(host.plugins()).expect("removed");
    for folder in ["state", "plugins"] {
        fs::create_dir_all(real.root().join("disk").join(folder)).expect("folders");
        symlink(real.root().join("disk").join(folder), host.root().join(folder)).expect("linked");
    }
    let link = real.root().join("home");
    symlink(host.root(), &link).expect("linked");
    let run = |args: &str| host.run_with(args.split(' '), &[("CONTEXT_ENGINE_HOME", &link)]);
    says(&run(&format!("plugins install {} --select --pin", library("alpha"))), 0, &["pinned", "selected  alpha"]);
    assert_eq!(names(&real.root().join("disk/plugins")), ["alpha.so"]);
    assert_eq!(doctor(&host), ("alpha".into(), String::new()));
    says(&run("doctor"), 0, &["serves    alpha"]);
    let author = TestHost::new();
    says(&run(&format!("plugins install {} --pin", folder(&author).display())), 0, &["which had the same id"]);
    fs::create_dir_all(host.root().join("state/engines/alpha")).expect("folders");
    says(&run("plugins uninstall alpha --purge"), 0, &["is legacy again", "what the engine had stored"]);
    assert_eq!(names(&real.root().join("disk/plugins")), Vec::<String>::new());
    assert!(host.root().join("state").symlink_metadata().is_ok_and(|meta| meta.is_symlink()));
}

/// Report "a denied engine that can be used again": what keeps a file out stays as long as the file does.
#[test]
fn an_uninstall_lets_nothing_in_that_was_kept_out() {
    let (host, elsewhere) = (TestHost::with(&["alpha"]), TestHost::with(&["alpha"]));
    let pin = format!("sha256:{}", "0".repeat(64));
    let kept_out = format!("deny: ['alpha'], entries: {{alpha: {{pin: '{pin}', enabled: false}}}}");
    let with_more = kept_out.replace("{pin", "{config: {a: 1}, pin");
    configure(&host, &format!("{{plugins: {{{with_more}}}}}"));
    let kept =
        ["kept      plugins.entries.alpha.pin", "plugins.entries.alpha.enabled", "plugins.deny", "is still there"];
    says(&plugins(&host, "uninstall alpha --keep-files"), 0, &kept);
    assert_eq!(config(&host), format!("{{plugins: {{{kept_out}}}}}"));
    says(&plugins(&host, "uninstall alpha"), 0, &["plugins.deny no longer names it", "plugins.entries.alpha is gone"]);
    let load = format!("load: {{paths: ['{}']}}", elsewhere.plugins().display());
    configure(&host, &format!("{{plugins: {{{load}, {kept_out}}}}}"));
    says(&plugins(&host, "uninstall alpha"), 1, &["not ours  ", "kept      plugins.entries.alpha.pin"]);
    assert_eq!(config(&host), format!("{{plugins: {{{load}, {kept_out}}}}}"));
}

/// What waits says for what; and what somebody did meanwhile is not claimed to be undone.
#[test]
fn a_command_that_waits_says_so_and_then_says_what_is_so() {
    use std::io::{BufRead, BufReader, Read};
    let host = TestHost::with(&["alpha", "beta"]);
    configure(&host, "{plugins: {slots: {contextEngine: 'alpha'}}}");
    let path = host.root().join(".config.json5.lock");
    let lock = fs::File::create(&path).expect("a lock");
    lock.lock().expect("locked");
    let mut command = Command::new(command());
    command.args(["plugins", "uninstall", "alpha"]).env("CONTEXT_ENGINE_HOME", host.root());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be run");
    let mut said = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut said).expect("a line");
    assert!(said.contains("waiting up to 10 s for another command") && said.contains(".config.json5.lock"), "{said}");
    configure(&host, "{plugins: {slots: {contextEngine: 'beta'}}}");
    drop(lock);
    let mut out = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    assert!(child.wait().expect("it ended").success());
    assert!(out.contains("kept      plugins.slots.contextEngine at beta") && !out.contains("legacy again"), "{out}");
    assert_eq!(config(&host), "{plugins: {slots: {contextEngine: 'beta'}}}");
}

/// Report "killed between copy and pin": the next command and the doctor say that the pin is missing.
#[test]
fn a_pin_that_was_broken_off_is_said_until_somebody_decides() {
    let host = TestHost::with(&["alpha"]);
    let install = format!("install {}", library("alpha"));
    for decision in [format!("{install} --pin"), install, "uninstall alpha".to_owned()] {
        let mark = host.put(".pinning-alpha", "");
        says(&host.run(["doctor", "--no-probe"]), 0, &["leftover  ", "`install --pin` of \"alpha\" was broken off"]);
        assert_eq!(host.run(["doctor", "--no-probe", "--json"]).json()["unpinned"], json!(["alpha"]));
        says(&plugins(&host, &format!("install {}", library("beta"))), 0, &["was broken off", "installed"]);
        assert!(mark.exists(), "another engine's installation decides nothing");
        says(&plugins(&host, &decision), 0, &["alpha"]);
        assert!(!mark.exists(), "{decision}");
    }
}
