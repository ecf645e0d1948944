//! Old and new, fast and slow, near and far: which builds of engine and host work together.
//!
//! Decision: real builds, no simulated layouts. What an author's machine does differently (optimisation, field order of
//! plain Rust types, another folder) must not matter at all. What a later interface appends must not matter in either
//! direction: an old engine in a new host, a new engine in an old host. Everything else must be refused in words, before
//! a byte is read through the wrong layout. All in one test program, because the builds share one folder.
#![forbid(unsafe_code)]

mod appended;
mod breaking;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use context_engine_loader::{Problem, Step};
use context_engine_tests::build::{Build, example, library_name, plugin, toolchain, workspace};
use context_engine_tests::changed::Changed;
use context_engine_tests::host::TestHost;
use context_engine_tests::session::answer;
use context_engine_tests::{append_only, boundary, layout};
use serde_json::{Value, json};

use crate::appended::APPENDED;
use crate::breaking::{BREAKING, Breaking, CARELESS};

/// The answers of `alpha` and `everything` from `folder`, and what `everything` was given.
fn answers(folder: &Path) -> [Value; 3] {
    let host = TestHost::new();
    for name in ["alpha", "everything"] {
        fs::copy(folder.join(library_name(name)), host.plugins().join(library_name(name))).expect("copied");
    }
    let (alpha, everything) = (host.engine("alpha", Value::Null), host.engine("everything", json!({ "a": 1 })));
    assert_eq!((alpha.why(), everything.why()), (None, None));
    let answers = [&alpha, &everything].map(|handle| Value::from(answer(handle)));
    let given: Value = host.journal("everything").into_iter().map(|(member, params)| json!([member, params])).collect();
    [answers[0].clone(), answers[1].clone(), given]
}

fn folder_of(plugin: &Path) -> &Path {
    plugin.parent().expect("a folder")
}

#[test]
fn an_engine_built_with_other_optimisation_answers_the_same() {
    let build = Build::engines("test-plugins").arg("--package=alpha").arg("--package=everything");
    assert_eq!(answers(&build.profile("release").run()), answers(folder_of(&plugin("alpha"))));
}

#[test]
fn an_engine_whose_own_types_are_laid_out_otherwise_answers_the_same() {
    let build = Build::engines("test-plugins-randomised").arg("--package=alpha").arg("--package=everything");
    let build = build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zrandomize-layout");
    assert_eq!(answers(&build.run()), answers(folder_of(&plugin("alpha"))));
}

/// The version in the `compiler` a library's record names.
fn compiler(library: &Path) -> String {
    let record = context_engine_loader::inspect::inspect(library).expect("a library").record;
    record.compiler.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// By a compiler from after this one and by the oldest that is promised, and optimised differently at that.
#[test]
#[allow(clippy::print_stderr, reason = "the person who runs the tests should know")]
fn an_engine_built_by_another_compiler_answers_the_same() {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).expect("a manifest");
    let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("an oldest compiler");
    let mut tried = 0;
    for (wanted, optimisation) in [("nightly", "1"), (oldest.trim_matches('"'), "0")] {
        let toolchain = match toolchain(wanted) {
            Ok(toolchain) => toolchain,
            Err(why) => {
                eprintln!("engines built by {wanted}: skipped, {why}");
                continue;
            }
        };
        // Folders of their own: `alpha` from here must not lie where the other tests look for theirs.
        let build =
            Build::engines(&format!("test-plugins-{wanted}")).arg("--package=alpha").arg("--package=everything");
        let folder = build.by(&toolchain).env("CARGO_PROFILE_DEV_OPT_LEVEL", optimisation).run();
        let (theirs, ours) = (compiler(&folder.join(library_name("alpha"))), compiler(&plugin("alpha")));
        assert!(
            theirs.contains(wanted) && (wanted != "nightly" || theirs != ours),
            "{wanted}: built by {theirs}, not {ours}"
        );
        assert_eq!(answers(&folder), answers(folder_of(&plugin("alpha"))), "{wanted}");
        tried += 1;
    }
    eprintln!("engines built by {tried} other compilers");
}

#[test]
fn the_readmes_first_engine_builds_outside_the_project_and_answers() {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("a readme");
    let code = |language: &str| {
        let (_, rest) = readme.split_once(&format!("```{language}\n")).expect("a piece of code");
        rest.split_once("```").expect("its end").0.to_owned()
    };
    let interface = workspace().join("interface");
    let manifest =
        code("toml").replace("../context-engine/interface", interface.to_str().expect("a path that is text"));
    assert!(manifest.contains(env!("CARGO_MANIFEST_DIR").trim_end_matches("tests")), "{manifest}");
    let crate_folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(crate_folder.path().join(name), text).expect("written");
    fs::create_dir(crate_folder.path().join("src")).expect("a folder");
    // The profile of the other test plugins, so that nothing but this crate is built.
    write("Cargo.toml", &format!("{manifest}\n[workspace]\n\n[profile.dev]\ndebug = false\n"));
    write("src/lib.rs", &code("rust"));
    fs::copy(workspace().join("tests/engines/Cargo.lock"), crate_folder.path().join("Cargo.lock")).expect("copied");

    let built = Build::by_author(&crate_folder.path().join("Cargo.toml"), "test-plugins").run();
    let host = TestHost::new();
    fs::copy(built.join(library_name("newest-turns")), host.plugins().join(library_name("x"))).expect("copied");
    assert_eq!(answer(&host.engine("newest-turns", Value::Null)), "newest-turns | one | uno | two | dos | three");
}

fn appended() -> &'static Changed {
    static BUILT: OnceLock<Changed> = OnceLock::new();
    BUILT.get_or_init(|| Changed::build("appended", APPENDED, true))
}

#[test]
fn a_new_engine_works_in_an_old_host() {
    let host = TestHost::new();
    fs::copy(&appended().engine, host.plugins().join(library_name("changed"))).expect("copied");
    let found = host.loader().find("changed").expect("usable");
    assert_eq!(found.inspection().record.interface_version, "1.1.0");
    // What the host has never heard of: no parameter, and the engine's own default bodies.
    let text = "changed answers: param None, call 7, host 70";
    assert_eq!(
        answer(&host.engine("changed", Value::Null)),
        format!("changed | {text} + one | uno | two | dos | three")
    );
    let module = boundary::module(&host, "changed");
    let table = module.extension()("later".into(), 1).into_option().expect("a table");
    assert!(table.clone().into_enum().is_err(), "a variant the host does not know is no value, and no crash");
    assert!(!format!("{table:?}").is_empty());
    assert!(module.extension()("tools".into(), 1).into_option().is_none());
}

#[test]
fn an_old_engine_works_in_a_new_host() {
    let seen = |plugin: &Path| appended().host_sees(plugin);
    let alpha = seen(&plugin("alpha"));
    let text = r#"{"role":"user","content":[{"type":"text","text":"alpha with the helper of alpha"}]}"#;
    let old = |inserted: Option<&str>| {
        // The host's own default body answers for the engine; the function and the variant are not there.
        json!({ "inserted": inserted, "kept": 2, "engine": 1001, "module": null, "extension": null })
    };
    assert_eq!(alpha, old(Some(text)));
    assert_eq!(seen(&example("sliding-window")), old(None));
    assert_eq!(seen(&plugin("everything"))["kept"], 2);
}

#[test]
fn a_new_engine_in_a_new_host_has_it_all() {
    let seen = appended().host_sees(&appended().engine);
    let text = "changed answers: param Some(42), call 8, host 80";
    let inserted: Value = serde_json::from_str(seen["inserted"].as_str().expect("a message")).expect("JSON");
    assert_eq!(inserted["content"][0]["text"], text);
    assert_eq!((&seen["engine"], &seen["module"]), (&json!(2), &json!(9)));
    assert_eq!(seen["extension"], "Some(Later(5))");
}

/// Report H7: the layout changed but the version number did not.
#[test]
fn a_breaking_change_is_refused_both_ways_and_the_host_lives() {
    for Breaking { name, edits, refusal, layout: broken } in BREAKING {
        let changed = Changed::build(name, edits, false);
        let host = TestHost::with(&["alpha"]);
        host.take(&changed.engine);
        let found = host.loader().find("changed").expect("nothing to see in the bytes");
        let Err(error) = found.open() else { panic!("{name} was opened") };
        assert_eq!(error.step, Step::Open, "{name}");
        let Problem::Layout { expected, reason } = &error.problem else { panic!("{name}: {error}") };
        assert_eq!((expected.as_str(), reason.as_str()), ("1.0.0", refusal), "{name}");
        let handle = host.engine("changed", Value::Null);
        assert!(handle.why().expect("a reason").contains("built against another interface"), "{name}");
        assert!(answer(&handle).starts_with("legacy | one"), "{name}");
        assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"), "{name}: the host goes on");

        let seen = changed.host_sees(&plugin("alpha"));
        let refused = seen["refused"].as_str().unwrap_or_else(|| panic!("{name}: {seen}"));
        assert!(refused.starts_with("Layout {"), "{name}: {refused}");
        let own = changed.host_sees(&changed.engine);
        assert_eq!(own["kept"], 2, "{name}: engine and host of one interface work");
        assert_eq!(append_only::broken(&layout::of_interface(), &changed.layout()), broken, "{name}");
    }
}

/// What is opened, because nothing in it has moved, and still breaks engines people have.
#[test]
fn a_change_no_host_can_see_is_seen_in_the_snapshot_of_the_layout() {
    let (edits, expected) = CARELESS;
    let changed = Changed::build("careless", edits, false);
    assert_eq!(changed.host_sees(&plugin("alpha"))["kept"], 2, "opened and used");
    assert_eq!(append_only::broken(&layout::of_interface(), &changed.layout()), expected);
}

#[test]
fn what_may_be_appended_breaks_no_layout() {
    let (today, later) = (layout::of_interface(), appended().layout());
    assert_eq!(append_only::broken(&today, &later), [""; 0]);
    let back = append_only::broken(&later, &today);
    assert_eq!(back.len(), 6, "and taking it away again breaks each of them: {back:#?}");
}
