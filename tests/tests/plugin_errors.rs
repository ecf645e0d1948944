//! What the commands answer when something is not done, or not as asked: exit codes, `--json`, and the words.
//!
//! Decision: a message is tested for what it must name (the thing, what was expected, what to do) and for what it must not
//! say, because a wrong advice costs more than none.
#![forbid(unsafe_code)]

use std::fs;
use std::process::{Command, Stdio};

use context_engine_tests::build::{command, library_name, plugin};
use context_engine_tests::commands::{config, configure, files, library, names, plugins, says};
use context_engine_tests::host::{Ran, TestHost};

/// Runs the command in this home with a standard output that cannot be written.
#[cfg(target_os = "linux")]
fn into_nothing(host: &TestHost, args: &str) -> Ran {
    let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut command = Command::new(command());
    command.args(args.split(' ')).env("CONTEXT_ENGINE_HOME", host.root()).stdout(Stdio::from(full));
    let output = command.output().expect("the command can be run");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: String::new(), err }
}

/// Report A: whoever asks for `--json` gets one object, also where nothing was done.
#[test]
fn what_is_not_done_is_one_object_for_scripts_and_prose_for_people() {
    let host = TestHost::with(&["alpha"]);
    let nowhere = host.root().join("nowhere").display().to_string();
    for (args, about_a_path) in [
        (format!("plugins install {nowhere} --json"), true),
        ("plugins uninstall nobody --json".to_owned(), false),
        ("plugins select nobody --json".to_owned(), false),
        ("plugins disable legacy --json".to_owned(), false),
        (format!("plugins trust {nowhere} --json"), true),
        (format!("plugins pack {nowhere} --out {nowhere}.tgz --json"), true),
        (format!("plugins inspect {nowhere} --json"), true),
        (format!("replay {nowhere} --json"), true),
        (format!("compare {nowhere} --json"), true),
        (format!("sessions show {nowhere}.jsonl --json"), true),
        ("quarantine why nobody --json".to_owned(), false),
    ] {
        let ran = host.run(args.split(' '));
        assert_eq!(ran.code, 2, "{args}: {ran:#?}");
        let error = &ran.json()["error"];
        let message = error["message"].as_str().expect("a message");
        assert!(ran.err.ends_with(&format!("context-engine: {message}\n")), "{args}: {ran:#?}");
        assert_eq!(error["path"].is_string(), about_a_path, "{args}: {error}");
        let args: Vec<&str> = args.split(' ').filter(|arg| *arg != "--json").collect();
        let ran = host.run(&args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:#?}");
    }
    configure(&host, "{");
    for args in ["plugins list", "plugins reload", "doctor"] {
        let ran = host.run(args.split(' ').chain(["--json"]));
        assert_eq!((ran.code, ran.json()["error"]["path"].is_string()), (2, true), "{ran:#?}");
    }
    // A command line that cannot be read asks for nothing.
    let ran = host.run(["plugins", "select", "--json"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:#?}");
}

/// Report E: what is done stays done, and its exit code does not say otherwise.
#[cfg(target_os = "linux")]
#[test]
fn what_was_done_and_cannot_be_said_is_said_on_standard_error() {
    let host = TestHost::new();
    let install = format!("plugins install {}", library("alpha"));
    let lost = "No space left on device (os error 28); what was done stays done";
    let ran = into_nothing(&host, &install);
    assert_eq!(names(&host.plugins()), ["alpha.so"]);
    says(&ran, 1, &[lost, "installed alpha 0.1.0", "plugins select alpha"]);
    says(&into_nothing(&host, "plugins select alpha --json"), 1, &[lost, "\"changed\":true"]);
    says(&into_nothing(&host, "plugins uninstall alpha --dry-run"), 2, &["writing the output"]);
    says(&into_nothing(&host, "plugins list"), 2, &["writing the output"]);
    assert!(host.plugins().join("alpha.so").exists() && !host.plugins().join(library_name("alpha")).exists());
}

/// Report C: a person's folder is not deleted, and what `--force` replaces is said.
#[test]
fn what_force_replaces_is_said_and_a_folder_is_not_deleted() {
    let host = TestHost::new();
    let install = format!("install {} --force", library("alpha"));
    host.put("alpha.so/sub/x", "mine");
    says(
        &plugins(&host, &install),
        2,
        &["alpha.so is a folder and no plugin", "not even with --force", "move it away"],
    );
    assert_eq!(fs::read_to_string(host.plugins().join("alpha.so/sub/x")).expect("still there"), "mine");
    fs::remove_dir_all(host.plugins().join("alpha.so")).expect("removed");
    for (bytes, what) in [
        (fs::read(plugin("beta")).expect("built"), "not \"alpha\" but \"beta\" 0.1.0"),
        (b"cut".to_vec(), "as far as can be told"),
    ] {
        host.put("alpha.so", bytes);
        says(&plugins(&host, &install.replace(" --force", "")), 2, &["is there already", what, "--force replaces it"]);
        let ran = plugins(&host, &install);
        says(&ran, 0, &["installed alpha", "replaced  ", what, "because of --force"]);
        assert!(!plugins(&host, &install).out.contains("replaced"), "the second time it is the same engine");
    }
}

/// Report D: the built-in engine is known, and an id that is empty is nobody's.
#[test]
fn of_legacy_there_is_nothing_to_reload_and_an_empty_id_is_a_slip() {
    let host = TestHost::with(&["alpha"]);
    configure(&host, "{plugins: {slots: {contextEngine: 'alpha'}}}");
    says(&plugins(&host, "reload legacy"), 0, &["legacy is built in", "nothing to reload"]);
    let told = plugins(&host, "reload legacy --json");
    assert_eq!((told.code, &told.json()["missing"]), (0, &serde_json::Value::Null));
    for command in ["select", "enable", "disable", "uninstall", "trust", "reload"] {
        for id in ["", " "] {
            says(&host.run(["plugins", command, id]), 2, &["expected an id, found an empty text"]);
        }
    }
    assert_eq!(config(&host), "{plugins: {slots: {contextEngine: 'alpha'}}}");
}

/// Report G: a link follows the build, so it has no pin; it is one path, and what it puts out of use is said.
#[test]
fn a_link_says_what_it_puts_out_of_use_and_is_one_path() {
    let host = TestHost::new();
    let build = host.root().join("build/x.so");
    fs::create_dir_all(host.root().join("build/sub")).expect("folders");
    fs::copy(plugin("alpha"), &build).expect("copied");
    let link = format!("install -l {}", build.display());
    says(&plugins(&host, &format!("{link} --pin")), 2, &["cannot be used with"]);
    says(&plugins(&host, &link), 0, &["linked    alpha"]);
    let before = config(&host);
    for other in ["build/sub/../x.so", "./build/./x.so"] {
        let other = host.root().join(other);
        says(&plugins(&host, &format!("install -l {}", other.display())), 0, &["linked already"]);
    }
    assert_eq!(config(&host), before);
    says(&plugins(&host, "uninstall alpha"), 0, &["no longer has"]);
    let detour = host.root().join("build/sub/../x.so");
    says(&plugins(&host, &format!("install -l {}", detour.display())), 0, &["linked    alpha"]);
    assert_eq!(config(&host), before);
    says(&plugins(&host, "uninstall alpha"), 0, &["no longer has"]);

    says(&plugins(&host, &format!("install {} --pin", library("alpha"))), 0, &["installed alpha"]);
    let again = plugins(&host, &format!("install {} --json", library("alpha"))).json();
    assert_eq!(again["pinned"], true, "{again}");
    says(&plugins(&host, &link), 1, &["linked    alpha", "not used  ", "alpha.so, which has this id, too"]);
    assert_eq!(plugins(&host, "list").code, 1);
    says(&plugins(&host, &link), 1, &["linked already", "not used  "]);
}

/// Report F: each thing that is no plugin is refused for what it is.
#[cfg(unix)]
#[test]
fn what_is_no_plugin_is_refused_for_what_it_is() {
    let host = TestHost::new();
    let work = host.root().join("w");
    let make = |name: &str, bytes: &[u8]| {
        let path = work.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, bytes).expect("written");
    };
    fs::create_dir_all(work.join("empty")).expect("folders");
    let manifest = |library: &str| {
        let libraries = serde_json::json!({ context_engine_loader::platform::TARGET: library });
        serde_json::json!({ "id": "alpha", "version": "0.1.0", "libraries": libraries }).to_string()
    };
    for (folder, library) in [("folder", "lib/x.so"), ("missing", "lib/gone.so")] {
        make(&format!("{folder}/plugin.json"), manifest(library).as_bytes());
        make(&format!("{folder}/lib/x.so/y"), b"");
    }
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    make("plain.tar", &tar);
    make("other.zip", b"PK\x03\x04zip");
    let expected = "expected a library, a folder with a plugin.json or an archive";
    let before = files(host.root());
    for (path, words) in [
        ("/dev/zero", [expected, "found a device"]),
        ("/", [expected, "found a directory without a plugin.json"]),
        ("empty", [expected, "name one of these"]),
        ("folder", ["plugin.json names the library \"lib/x.so\", which is no file", "put the file itself there"]),
        ("missing", ["plugin.json names the library \"lib/gone.so\"", "No such file or directory"]),
        ("plain.tar", ["a tar file that is not compressed", "plugins pack"]),
        ("other.zip", ["a zip file", "plugins pack"]),
    ] {
        let ran = host.run(["plugins".into(), "install".into(), work.join(path)]);
        says(&ran, 2, &words);
        assert!(!ran.err.contains("move it out") && !ran.err.contains("cdylib"), "{ran:#?}");
    }
    assert_eq!(files(host.root()), before);
    // What an archive holds is said of the archive, by its name in it.
    let packed = |folder: &str| {
        let out = work.join(format!("{folder}.tgz"));
        let mut tar = Command::new("tar");
        tar.args(["--format=ustar", "-czf"]).arg(&out).arg("-C").arg(work.join(folder)).arg(".");
        assert!(tar.status().expect("tar can be run").success());
        out.display().to_string()
    };
    for (folder, words) in
        [("folder", "\"lib/x.so\", which is no file"), ("missing", "\"lib/gone.so\", which cannot be read")]
    {
        let archive = packed(folder);
        let ran = plugins(&host, &format!("install {archive}"));
        says(&ran, 2, &[&archive, words]);
        assert!(!ran.err.contains("unpacked"), "{ran:#?}");
    }
    let alpha = library("alpha");
    let out = work.join("out.tgz");
    says(
        &plugins(&host, &format!("pack {} {alpha} --out {}", work.join("folder").display(), out.display())),
        2,
        &["it is a folder, and was named beside others"],
    );
    // The plugins directory itself.
    fs::remove_dir_all(host.plugins()).expect("removed");
    fs::write(host.plugins(), "").expect("a file");
    let install = format!("install {alpha}");
    says(&plugins(&host, &install), 2, &["/plugins: ", "expected a folder, found a file", "move it away"]);
    fs::remove_file(host.plugins()).expect("removed");
    std::os::unix::fs::symlink("/nowhere/at/all", host.plugins()).expect("linked");
    says(&plugins(&host, &install), 2, &["expected a folder, found a link that leads nowhere", "move it away"]);
}

/// Report H: what can be packed can be installed, and what is said can be run.
#[test]
fn what_is_packed_is_whole_fits_and_can_be_installed() {
    let (author, host) = (TestHost::new(), TestHost::new());
    author.drop_in_folder("alpha", "topic");
    let folder = author.plugins().join("topic");
    let out = folder.join("self.tgz");
    let pack = format!("pack {} --out {}", folder.display(), out.display());
    says(&plugins(&host, &pack), 0, &["packed    alpha"]);
    let first = fs::read(&out).expect("packed");
    says(&plugins(&host, &format!("{pack} --force")), 0, &["packed    alpha"]);
    assert_eq!(fs::read(&out).expect("packed"), first, "the old archive is not in the new one");
    fs::remove_file(&out).expect("removed");
    // plugin.json, lib and what is in it are three of a thousand.
    for at in 0..997 {
        author.put(&format!("topic/data-{at}"), "");
    }
    let elsewhere = host.root().join("my archives/a b.tgz");
    fs::create_dir(elsewhere.parent().expect("a folder")).expect("a folder");
    let pack = |folder: &std::path::Path| {
        let args: [&std::ffi::OsStr; 6] = [
            "plugins".as_ref(),
            "pack".as_ref(),
            folder.as_ref(),
            "--out".as_ref(),
            elsewhere.as_ref(),
            "--force".as_ref(),
        ];
        host.run(args)
    };
    says(&pack(&folder), 0, &[&format!("plugins install '{}'`", elsewhere.display())]);
    says(&host.run(["plugins".as_ref(), "install".as_ref(), elsewhere.as_os_str()]), 0, &["installed alpha"]);
    author.put("topic/one-more", "");
    says(&pack(&folder), 2, &["more than 1000 files and folders"]);
    author.put(&format!("topic/{}", "n".repeat(120)), "");
    fs::remove_file(folder.join("one-more")).expect("removed");
    fs::remove_file(folder.join("data-0")).expect("removed");
    says(&pack(&folder), 2, &["too long for an archive", "100 bytes", "shorten it"]);
}
