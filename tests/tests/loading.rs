//! Several plugins in one host: which one answers, and what happens when two claim the same name.
//!
//! Decision: a person who dropped in two files must never be served by the one they did not mean. Where order says which
//! one is meant it wins, and everywhere else neither is used; the refused one always names the other.
#![forbid(unsafe_code)]

use std::env::consts::DLL_SUFFIX;
use std::fs;
use std::path::Path;

use context_engine_loader::{Creation, Problem, Step};
use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::host::TestHost;
use context_engine_tests::record::with_record;
use context_engine_tests::session::answer;
use serde_json::{Value, json};

fn read(name: &str) -> Vec<u8> {
    fs::read(plugin(name)).expect("a built plugin")
}

/// A library's file name without the prefix builds have.
fn so(name: &str) -> String {
    format!("{name}{DLL_SUFFIX}")
}

/// Writes a plugin folder with one library for this machine.
fn put_folder(host: &TestHost, folder: &str, id: &str, library: &[u8]) {
    let manifest = json!({
        "id": id,
        "version": "0.1.0",
        "libraries": { context_engine_loader::platform::TARGET: "lib/engine.bin", "z80-none": "lib/other.bin" },
    });
    host.put(&format!("{folder}/plugin.json"), manifest.to_string());
    host.put(&format!("{folder}/lib/engine.bin"), library);
}

/// The verdict on each thing in the plugins directory: its name, then the engine's id or the reason.
fn verdicts(host: &TestHost) -> Vec<String> {
    let root = host.plugins().display().to_string();
    let said = host.verdicts().into_iter().map(|(name, verdict)| match verdict {
        Ok(plugin) => format!("{name}: {}", plugin.info().id),
        Err(error) => format!("{name}: {}", error.problem.to_string().replace(&root, "PLUGINS")),
    });
    said.collect()
}

/// Report H12: two plugins export the same helper symbol.
#[test]
fn two_plugins_of_one_module_type_answer_as_themselves() {
    let host = TestHost::with(&["alpha", "beta"]);
    let (alpha, beta) = (host.engine("alpha", Value::Null), host.engine("beta", Value::Null));
    for _ in 0..2 {
        assert_eq!(answer(&alpha), "alpha | alpha with the helper of alpha + one | uno | two | dos | three");
        assert_eq!(answer(&beta), "beta | beta with the helper of beta + one | uno | two | dos | three");
    }
    assert_eq!((alpha.info().id.as_str(), alpha.why()), ("alpha", None));
}

#[test]
fn two_instances_of_one_plugin_are_two() {
    let host = TestHost::with(&["panics"]);
    let broken = host.engine("panics", json!({ "in": "assemble" }));
    let sound = host.engine("panics", json!({}));
    assert!(answer(&broken).starts_with("legacy"));
    assert!(answer(&sound).starts_with("panics"), "one instance's panic must not poison another");
}

/// Report H1: replaced library, old code still answers.
#[test]
fn a_replaced_file_is_loaded_as_the_new_code_not_the_old() {
    let host = TestHost::new();
    let name = library_name("engine");
    host.put(&name, read("alpha"));
    let old = host.engine("alpha", Value::Null);
    host.put(&name, read("beta"));
    let new = host.engine("beta", Value::Null);
    assert!(answer(&new).starts_with("beta | beta with the helper of beta"));
    assert!(answer(&old).starts_with("alpha | alpha with the helper of alpha"));
}

#[test]
fn a_plugin_folder_is_loaded_by_its_manifest_whatever_it_is_called() {
    let host = TestHost::new();
    put_folder(&host, "a third name", "alpha", &read("alpha"));
    assert_eq!(verdicts(&host), ["a third name: alpha"]);
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
}

#[test]
fn a_manifest_that_cannot_be_used_says_why() {
    let host = TestHost::new();
    let target = context_engine_loader::platform::TARGET;
    let manifests = [
        ("cut", r#"{"id": "a"#.to_owned(), "plugin.json: EOF while parsing a string at line 1 column 9"),
        (
            "elsewhere",
            json!({ "id": "a", "version": "1.0.0", "libraries": { target: "../b.so" } }).to_string(),
            "plugin.json: the library path \"../b.so\" leaves the folder; use a path inside it",
        ),
        (
            "missing",
            json!({ "id": "a", "version": "1.0.0", "libraries": { target: "no.so" } }).to_string(),
            "looking at the file: No such file or directory (os error 2); check that the file exists and can be read",
        ),
        (
            "other-machine",
            json!({ "id": "a", "version": "1.0.0", "libraries": { "z80-none": "a.so" } }).to_string(),
            &format!("plugin.json: `libraries` has none for {target}; it has z80-none"),
        ),
        (
            "version",
            json!({ "id": "a", "version": "new", "libraries": {} }).to_string(),
            "plugin.json: unexpected character 'n' while parsing major version number at line 1 column 25",
        ),
    ];
    for (folder, manifest, _) in &manifests {
        host.put(&format!("{folder}/plugin.json"), manifest);
    }
    let expected: Vec<String> = manifests.iter().map(|(folder, _, reason)| format!("{folder}: {reason}")).collect();
    assert_eq!(verdicts(&host), expected);
}

/// Report H17: the id in the manifest differs from the one the library exports.
#[test]
fn a_manifest_with_another_id_than_the_library_is_refused() {
    let host = TestHost::with(&["beta"]);
    put_folder(&host, "mine", "a-engine", &read("alpha"));
    assert_eq!(
        verdicts(&host),
        [format!("{}: beta", library_name("beta")), mismatch("mine: the plugin.json", "a-engine", "library", "alpha")]
    );
    for id in ["alpha", "a-engine"] {
        let Err(error) = host.loader().find(id) else { panic!("refused plugins are not found") };
        assert!(matches!(error.problem, Problem::Identity { .. }), "{id} is in the folder, and refused: {error}");
    }
    assert!(host.engine("alpha", Value::Null).why().is_some());
}

fn mismatch(left_name: &str, left: &str, right_name: &str, right: &str) -> String {
    format!("{left_name} says \"{left}\", the {right_name} says \"{right}\"; write \"id\": \"{right}\" in plugin.json")
}

#[test]
fn a_record_that_is_not_the_running_librarys_own_is_refused_when_opened() {
    let host = TestHost::new();
    host.put(&library_name("alpha"), with_record(&read("alpha"), |record| record["engine"]["id"] = "alph".into()));
    let handle = host.engine("alph", Value::Null);
    let why = handle.why().expect("refused");
    assert!(why.contains("open: the record in the file says \"alph\", the running library says"), "{why}");
    assert!(answer(&handle).starts_with("legacy | one"));
}

#[test]
fn an_id_that_breaks_the_rules_is_refused_by_the_rule_it_breaks() {
    let characters = "lower-case letters, digits, `-`, `_` and `.` only";
    let reserved = "the name is reserved for the built-in engine";
    for (id, rule) in [
        ("", "1 to 64 characters"),
        ("a/b", characters),
        ("a b", characters),
        ("Alpha", characters),
        ("a\u{0}", characters),
        ("\u{1f980}", characters),
        ("..", "it starts with a letter or a digit"),
        ("ALPHA", characters),
        ("none", reserved),
        ("legacy", reserved),
    ] {
        let host = TestHost::new();
        let library = with_record(&read("alpha"), |record| {
            record["engine"]["id"] = id.into();
            record["engine"]["name"] = "".into();
        });
        host.put(&library_name("alpha"), library);
        let (_, verdict) = host.verdicts().remove(0);
        let error = verdict.expect_err("refused");
        let expected = format!("the engine id {id:?} is not allowed: {rule}; change it in `export_engine!`");
        assert_eq!(error.problem.to_string(), expected);
        assert_eq!(error.step, Step::Inspect);
    }
}

#[test]
fn legacy_stays_the_built_in_engine_whatever_a_plugin_calls_itself() {
    let host = TestHost::new();
    let library = with_record(&read("alpha"), |record| {
        record["engine"]["id"] = "legacy".into();
        record["engine"]["name"] = "".into();
    });
    host.put(&library_name("legacy"), library);
    for id in ["legacy", "", "none", " legacy "] {
        let handle = host.engine(id, Value::Null);
        assert_eq!(handle.why(), None, "{id:?}");
        assert!(answer(&handle).starts_with("legacy | one"), "{id:?}");
    }
}

/// Report H16: the same engine id from two files; unclear which one runs.
#[test]
fn one_id_twice_in_one_directory_refuses_both() {
    let host = TestHost::new();
    host.put(&so("a"), read("alpha"));
    // Another build of the same engine.
    host.put(&so("b"), with_record(&read("alpha"), |record| record["engine"]["version"] = "9".into()));
    host.drop_in("beta");
    assert_eq!(
        verdicts(&host),
        [
            format!("{}: the id \"alpha\" is also that of PLUGINS/{}; remove one of the two", so("a"), so("b")),
            format!("{}: the id \"alpha\" is also that of PLUGINS/{}; remove one of the two", so("b"), so("a")),
            format!("{}: beta", library_name("beta")),
        ]
    );
    let handle = host.engine("alpha", Value::Null);
    assert!(handle.why().expect("a reason").contains("remove one of the two"));
    assert!(answer(&handle).starts_with("legacy"));
}

#[test]
fn a_plain_copy_under_two_names_is_one_plugin() {
    let host = TestHost::new();
    for name in ["b", "a", "c"] {
        host.put(&so(name), read("alpha"));
    }
    let copy = |name: &str| {
        let winner = so("a");
        format!("{}: it is a copy of PLUGINS/{winner}, which is used as \"alpha\"; remove one of the two", so(name))
    };
    assert_eq!(verdicts(&host), [format!("{}: alpha", so("a")), copy("b"), copy("c")]);
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
    // With another build beside them nothing says which was meant.
    host.put(&so("d"), with_record(&read("alpha"), |record| record["engine"]["version"] = "9".into()));
    assert!(host.verdicts().iter().all(|(_, verdict)| {
        verdict.as_ref().is_err_and(|error| matches!(error.problem, Problem::DuplicateId { .. }))
    }));
}

/// Report G1: loaded and enabled, yet the slot says it is not there.
#[test]
fn a_slot_is_answered_with_the_reason_of_the_plugin_that_has_the_id_whatever_its_file_is_called() {
    let host = TestHost::new();
    // Its file is called like another engine.
    let newer = with_record(&read("alpha"), |record| record["schemaVersion"] = 9.into());
    host.put(&so("libbeta"), newer);
    let find = |id| host.loader().find(id).expect_err("refused");
    let error = find("alpha");
    assert_eq!((error.engine.as_deref(), error.step), (Some("alpha"), Step::Inspect));
    assert!(matches!(error.problem, Problem::Schema { .. }), "{error}");
    assert!(matches!(find("beta").problem, Problem::NotFound { .. }), "the file says that it is alpha");
    // A file that says nothing about itself is meant by its name.
    host.put(&so("libgamma_ray"), &read("alpha")[..5_000]);
    assert!(matches!(find("gamma-ray").problem, Problem::Truncated { .. }));
    assert!(find("alhpa").problem.to_string().contains("did you mean \"alpha\""), "refused ones are known too");
}

#[test]
fn an_illegal_id_in_a_manifest_is_refused_by_the_same_rule() {
    let long = "x".repeat(300);
    for (id, rule) in [
        ("", "1 to 64 characters"),
        (long.as_str(), "1 to 64 characters"),
        ("a/b", "lower-case letters"),
        ("a b", "lower-case letters"),
        ("Alpha", "lower-case letters"),
        ("a\u{0}", "lower-case letters"),
        ("a\nb", "lower-case letters"),
        ("\u{1f980}", "lower-case letters"),
        ("legacy", "reserved"),
    ] {
        let host = TestHost::new();
        put_folder(&host, "mine", id, &read("alpha"));
        let (_, verdict) = host.verdicts().remove(0);
        let reason = verdict.expect_err("refused").to_string();
        assert!(reason.contains(rule) && reason.ends_with("; change it in plugin.json"), "{reason}");
        assert!(reason.len() < 500 && !reason.contains(['\n', '\0']), "{reason}");
    }
}

#[test]
fn one_id_in_two_directories_is_the_first_ones() {
    let host = TestHost::with(&["alpha"]);
    let second = host.root().join("second");
    fs::create_dir(&second).expect("a folder");
    let other = with_record(&read("alpha"), |record| record["engine"]["version"] = "9".into());
    fs::write(second.join(so("alpha")), other).expect("written");
    let loader = host.loader_of(vec![host.plugins(), second.clone()]);
    let found = loader.scan();
    assert_eq!(found[0].as_ref().expect("the first").info().version, "0.1.0");
    let shadowed = found[1].as_ref().expect_err("the second").to_string();
    let winner = host.plugins().join(library_name("alpha"));
    assert_eq!(
        shadowed,
        format!(
            "{}: inspect: the id \"alpha\" is taken by {}, whose directory comes first",
            second.join(so("alpha")).display(),
            winner.display()
        )
    );
    let loader = host.loader_of(vec![second, host.plugins()]);
    assert_eq!(loader.find("alpha").expect("the other one").info().version, "9");
}

#[test]
fn one_file_by_two_paths_is_one_plugin() {
    let host = TestHost::with(&["alpha"]);
    #[cfg(unix)]
    std::os::unix::fs::symlink(library_name("alpha"), host.plugins().join(so("again"))).expect("a link");
    let found = host.loader_of(vec![host.plugins(), host.plugins(), host.plugins().join(".")]).scan();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].as_ref().expect("usable").info().id, "alpha");
}

#[test]
fn an_unknown_id_names_the_closest_one() {
    let host = TestHost::with(&["alpha", "everything"]);
    let loader = host.loader();
    let problem = |id| loader.find(id).expect_err("unknown").problem.to_string();
    let unknown = |id, rest| assert_eq!(problem(id), format!("no plugin has the id \"{id}\"; {rest}"));
    unknown("alhpa", "did you mean \"alpha\"? Known: alpha, legacy, everything");
    unknown("Alpha", "did you mean \"alpha\"? Known: alpha, legacy, everything");
    unknown("evrything", "did you mean \"everything\"? Known: everything, alpha, legacy");
    unknown("legcy", "did you mean \"legacy\"? Known: legacy, alpha, everything");
    unknown("zzzzzz", "known: alpha, legacy, everything");
    let long = problem("x\ny".repeat(200).as_str());
    assert!(long.len() < 400 && !long.contains('\n'), "{long}");
}

#[test]
fn what_an_engine_is_created_with_reaches_it() {
    let host = TestHost::with(&["everything"]);
    let creation = Creation {
        config: Some(json!({ "keep": 3 })),
        agent_dir: Some(Path::new("/agents/main").to_owned()),
        workspace_dir: None,
        counter: None,
        ..Creation::default()
    };
    let loader = host.loader();
    loader.engine("everything", &creation).expect("a handle");
    let mut given = json!({ "config": { "keep": 3 }, "agentDir": "/agents/main", "workspaceDir": null, "tokens": 4 });
    assert_eq!(host.given("everything", "create"), given);
    let creation = Creation { agent_dir: None, workspace_dir: Some("/srv/größe 漢".into()), ..creation };
    loader.engine("everything", &creation).expect("a handle");
    (given["agentDir"], given["workspaceDir"]) = (Value::Null, "/srv/größe 漢".into());
    assert_eq!(host.given("everything", "create"), given);
}

#[test]
fn an_engine_that_cannot_be_created_is_answered_for_with_its_own_words() {
    let host = TestHost::with(&["errs"]);
    let handle = host.engine("errs", json!({ "in": "create", "code": 1 }));
    let why = handle.why().expect("a reason");
    assert!(
        why.ends_with(
            "open: the engine could not be created: create errs on purpose; look at plugins.entries.<id>.config"
        ),
        "{why}"
    );
    assert_eq!(handle.info().id, "legacy");
    assert!(answer(&handle).starts_with("legacy | one"));
}

/// Report H9: needs a library that is not installed.
#[cfg(target_os = "linux")]
#[test]
fn a_library_that_is_not_installed_is_named_when_the_engine_is_opened() {
    let host = TestHost::new();
    let mut bytes = read("alpha");
    let (there, nowhere) = (b"libgcc_s.so.1\0", b"libnope_.so.9\0");
    let at = bytes.windows(there.len()).position(|name| name == there).expect("a needed library");
    bytes[at..at + nowhere.len()].copy_from_slice(nowhere);
    host.put(&library_name("alpha"), bytes);
    let plugin = host.loader().find("alpha").expect("nothing is wrong with the file");
    assert!(plugin.inspection().needs.contains(&"libnope_.so.9".to_owned()), "{:?}", plugin.inspection().needs);
    let handle = host.engine("alpha", Value::Null);
    let why = handle.why().expect("refused");
    assert!(why.contains("open: it needs libnope_.so.9, which this system does not have; install it"), "{why}");
    assert!(answer(&handle).starts_with("legacy | one"));
}
