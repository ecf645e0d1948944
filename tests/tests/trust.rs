//! Who may be trusted: what the configuration says, where a plugin came from, and who could have changed it.
//!
//! Decision: every refusal is read as a person reads it, and where it names a command the command is run: it has to be
//! the one that makes the plugin usable. Public report behind it: a plugin blocked for its owner, said three times, while
//! other lines said that it did not exist.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use context_engine_loader::{LoaderError, Origin, Plugin, PluginDirectory, Problem, Step, TrustPolicy};
use context_engine_tests::build::{command, library_name, plugin, workspace};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::answer;
use serde_json::Value;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// A home with `alpha` as a plugin folder.
fn with_folder() -> TestHost {
    let host = TestHost::new();
    host.drop_in_folder("alpha", "mine");
    host
}

/// The only verdict there is.
#[track_caller]
fn only(host: &TestHost) -> Result<Plugin, LoaderError> {
    let mut verdicts = host.verdicts();
    assert_eq!(verdicts.len(), 1, "one plugin, one verdict: {verdicts:#?}");
    verdicts.remove(0).1
}

/// The reason why the only plugin is refused, with the home's path taken out.
#[track_caller]
fn reason(host: &TestHost) -> String {
    let root = fs::canonicalize(host.root()).expect("a home");
    only(host).expect_err("refused").problem.to_string().replace(&root.display().to_string(), "HOME")
}

/// Runs the command a refusal names.
#[track_caller]
fn run_advice(host: &TestHost) {
    let error = only(host).expect_err("refused");
    let Problem::Permissions { faults } = &error.problem else { panic!("{error}") };
    for fault in faults {
        assert!(error.to_string().contains(&fault.run), "{error}");
        let done = Command::new("sh").args(["-c", &fault.run]).status().expect("a shell");
        assert!(done.success(), "{}", fault.run);
    }
}

/// Report H18: a good check, in misleading words, three times.
#[test]
fn a_plugin_others_may_write_is_blocked_once_with_the_command_that_helps() {
    let library = library_name("alpha");
    let cases: [(&str, u32, &str); 6] = [
        ("plugins/mine/lib/engine.so", 0o666, "HOME/plugins/mine/lib/engine.so has mode 0666 (others may write it)"),
        ("plugins/mine/lib", 0o777, "HOME/plugins/mine/lib has mode 0777 (others may write it)"),
        ("plugins/mine/plugin.json", 0o646, "HOME/plugins/mine/plugin.json has mode 0646 (others may write it)"),
        ("plugins/mine", 0o757, "HOME/plugins/mine has mode 0757 (others may write it)"),
        ("plugins", 0o1777, "HOME/plugins has mode 1777 (others may write it)"),
        ("", 0o777, "HOME has mode 0777 (others may replace what lies in it)"),
    ];
    for (path, mode, found) in cases {
        let host = with_folder();
        chmod(&host.root().join(path), mode);
        let error = only(&host).expect_err("refused");
        assert_eq!((error.step, error.engine.as_deref()), (Step::Trust, Some("alpha")));
        let reason = reason(&host);
        assert!(reason.starts_with(found) && reason.contains("; run `chmod "), "{reason}");
        let why = host.engine("alpha", Value::Null).why().expect("legacy answers").to_owned();
        assert!(why.contains("trust: ") && !why.contains("no plugin"), "{why}");
        run_advice(&host);
        assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"), "{path}: the advice must help");
    }
    let host = TestHost::with(&["alpha"]);
    chmod(&host.plugins().join(&library), 0o606);
    assert_eq!(
        reason(&host),
        format!(
            "HOME/plugins/{library} has mode 0606 (others may write it), expected 0604; run `chmod o-w HOME/plugins/{library}`"
        )
    );
}

#[test]
fn everything_that_is_open_stands_in_one_message() {
    let host = with_folder();
    chmod(&host.plugins(), 0o777);
    chmod(&host.plugins().join("mine/lib/engine.so"), 0o666);
    let reason = reason(&host);
    assert_eq!(reason.matches("; run `chmod ").count(), 2, "{reason}");
    run_advice(&host);
    assert!(only(&host).is_ok());
    let ran = host.run(["plugins", "list"]);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 2), "{ran:?}");
}

#[test]
fn a_sticky_folder_above_the_plugins_directory_is_fine() {
    let host = TestHost::with(&["alpha"]);
    chmod(host.root(), 0o1777);
    assert!(only(&host).is_ok());
    // A library that was named itself may lie in one.
    let library = host.root().join("alone.so");
    fs::copy(plugin("alpha"), &library).expect("copied");
    assert!(host.loader_of(vec![library.clone()]).find("alpha").is_ok());
    assert!(host.loader().inspect(&library).is_ok());
    chmod(host.root(), 0o777);
    assert!(host.loader_of(vec![library]).find("alpha").is_err());
}

#[test]
fn a_plugin_with_a_name_a_shell_would_split_gets_a_command_that_works() {
    let host = TestHost::new();
    let library = host.put("it's a $(plugin).so", fs::read(plugin("alpha")).expect("built"));
    chmod(&library, 0o777);
    run_advice(&host);
    assert!(only(&host).is_ok());
}

/// Whether the tests are run by root, or not, as a test needs it; says so where that test cannot be run.
#[allow(clippy::print_stderr, reason = "a test that did not run says so")]
fn run_by_root(needed: bool) -> bool {
    let root = rustix::process::geteuid().is_root();
    if root != needed {
        eprintln!("not run: only root can change owners, and root can read every file");
    }
    root == needed
}

#[test]
fn a_plugin_of_somebody_else_names_both_and_the_chown_to_run() {
    if !run_by_root(true) {
        return;
    }
    for path in ["plugins", "plugins/mine/lib/engine.so", "plugins/mine/plugin.json"] {
        let host = with_folder();
        std::os::unix::fs::chown(host.root().join(path), Some(54_321), None).expect("given away");
        assert_eq!(
            reason(&host),
            format!("HOME/{path} belongs to uid 54321, expected root; run `chown root HOME/{path}`")
        );
        run_advice(&host);
        assert!(only(&host).is_ok());
    }
}

#[test]
fn a_group_nobody_knows_may_not_write() {
    if !run_by_root(true) {
        return;
    }
    let host = TestHost::with(&["alpha"]);
    let library = host.plugins().join(library_name("alpha"));
    std::os::unix::fs::chown(&library, None, Some(54_321)).expect("given away");
    assert!(only(&host).is_ok(), "a group that may only read does not matter");
    chmod(&library, 0o664);
    let reason = reason(&host);
    assert!(reason.contains("has mode 0664 (group 54321, which /etc/group does not have, may write it)"), "{reason}");
    run_advice(&host);
    assert_eq!(fs::metadata(&library).expect("there").mode() & 0o777, 0o644);
    assert!(only(&host).is_ok());
}

#[test]
fn a_file_that_cannot_be_read_says_so_with_its_path() {
    if !run_by_root(false) {
        return;
    }
    let host = TestHost::with(&["alpha"]);
    chmod(&host.plugins().join(library_name("alpha")), 0);
    let error = only(&host).expect_err("refused");
    assert!(matches!(error.problem, Problem::Io { .. }) && error.to_string().contains("alpha"), "{error}");
}

fn policy(edit: impl FnOnce(&mut TrustPolicy)) -> TrustPolicy {
    let mut policy = TrustPolicy::default();
    edit(&mut policy);
    policy
}

#[test]
fn what_the_configuration_forbids_is_blocked_and_not_missing() {
    let host = TestHost::with(&["alpha", "beta"]);
    for (policy, reason) in [
        (policy(|policy| policy.deny = vec!["alpha".into()]), "plugins.deny names \"alpha\""),
        (policy(|policy| policy.allow = Some(vec!["beta".into()])), "plugins.allow does not name \"alpha\""),
        (policy(|policy| policy.disabled = ["alpha".into()].into()), "plugins.entries.alpha.enabled is false"),
    ] {
        let loader = host.loader_with(vec![host.plugins().into()], policy);
        let error = loader.find("alpha").expect_err("blocked");
        assert_eq!((error.step, error.engine.as_deref()), (Step::Trust, Some("alpha")));
        assert_eq!(
            error.problem.to_string(),
            format!("blocked by the configuration: {reason}; change config.json5 to use it")
        );
        assert!(loader.find("beta").is_ok());
        let handle = loader.engine("alpha", &Default::default()).expect("a handle");
        assert!(answer(&handle).starts_with("legacy | one") && handle.why().expect("why").contains(reason));
    }
    let off = host.loader_with(vec![host.plugins().into()], policy(|policy| policy.enabled = false));
    assert!(off.scan().iter().all(|found| found.is_err()));
}

#[test]
fn the_list_says_blocked_and_what_a_person_blocked_is_no_finding() {
    let host = TestHost::with(&["alpha", "beta"]);
    fs::write(host.root().join("config.json5"), "{plugins: {deny: ['alpha']}}").expect("written");
    let ran = host.run(["plugins", "list"]);
    let line = ran.out.lines().find(|line| line.starts_with("alpha")).expect("listed");
    assert!(line.contains(" blocked ") && line.contains("plugins.deny names \"alpha\""), "{line}");
    assert_eq!(ran.code, 0, "{ran:?}");
    let session = workspace().join("cli/demo/session.jsonl");
    let session = session.to_str().expect("text");
    let ran = host.run(["replay", session, "--engine", "alpha", "--turns", "1"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("the engine \"alpha\" may not be used: plugins.deny names \"alpha\""), "{}", ran.err);
    let slot = "{plugins: {deny: ['alpha'], slots: {contextEngine: 'alpha'}}}";
    fs::write(host.root().join("config.json5"), slot).expect("written");
    let ran = host.run(["replay", session, "--turns", "1"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("the slot names alpha, which is not used: plugins.deny names"), "{}", ran.err);
    let strict = slot.replace("{plugins: {", "{plugins: {contextEnginePolicy: 'strict', ");
    fs::write(host.root().join("config.json5"), strict).expect("written");
    assert_eq!(host.run(["replay", session, "--turns", "1"]).code, 2, "strict is for those who want to be told");
}

#[test]
fn a_pinned_plugin_is_used_in_the_pinned_build_only() {
    let host = TestHost::with(&["alpha", "beta"]);
    let digest = host.loader().find("alpha").expect("usable").staged().digest.to_string();
    let pinned = |pin: &str| {
        let policy = policy(|policy| policy.pins = [("alpha".to_owned(), pin.to_owned())].into());
        host.loader_with(vec![host.plugins().into()], policy).find("alpha")
    };
    for pin in [digest.clone(), format!("sha256:{digest}"), digest.to_uppercase()] {
        assert!(pinned(&pin).is_ok(), "{pin}");
    }
    let other = "0".repeat(64);
    for pin in [other.as_str(), "", "sha256:", &digest[..63], "md5:12"] {
        let error = pinned(pin).expect_err("another build");
        assert_eq!(
            error.problem.to_string(),
            format!(
                "plugins.entries.alpha.pin asks for the digest {pin}, found sha256:{digest}; put the pinned build back, or \
                 pin this one: `context-engine plugins install PATH --pin`"
            )
        );
    }
    let config = format!("{{plugins: {{entries: {{alpha: {{pin: 'sha256:{other}'}}}}}}}}");
    fs::write(host.root().join("config.json5"), config).expect("written");
    let ran = host.run(["plugins", "list"]);
    assert!(ran.code == 1 && ran.out.contains("blocked") && ran.out.contains("trust: plugins.entries.alpha.pin"));
}

#[test]
fn a_plugin_of_the_workspace_is_listed_and_not_used_until_it_is_named() {
    let host = TestHost::with(&["beta"]);
    let project = host.root().join("project");
    let plugins = project.join(".context-engine/plugins");
    fs::create_dir_all(&plugins).expect("folders");
    fs::copy(plugin("alpha"), plugins.join(library_name("alpha"))).expect("copied");
    let directories = || -> Vec<PluginDirectory> {
        vec![host.plugins().into(), PluginDirectory { path: plugins.clone(), origin: Origin::Workspace }]
    };
    let error = host.loader_with(directories(), TrustPolicy::default()).find("alpha").expect_err("not asked for");
    assert_eq!(
        error.problem.to_string(),
        "it lies in the workspace and is not used unasked; if you trust it, run `context-engine plugins trust alpha` there, \
         or name \"alpha\" in plugins.allow (which then \
         has to name every plugin)"
    );
    let allowed = policy(|policy| policy.allow = Some(vec!["alpha".into()]));
    assert!(host.loader_with(directories(), allowed).find("alpha").is_ok());

    let run = |args: &[&str]| {
        let mut command = Command::new(command());
        command.args(args).current_dir(&project).env("CONTEXT_ENGINE_HOME", host.root());
        let output = command.output().expect("the command runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, out) = run(&["plugins", "list"]);
    assert!(code == Some(1) && out.contains("alpha ") && out.contains("blocked") && out.contains("workspace"), "{out}");
    let beta = host.plugins();
    let (code, out) = run(&["plugins", "list", "--plugins", beta.to_str().expect("text")]);
    assert!(code == Some(0) && !out.contains("alpha"), "{out}");
    fs::write(host.root().join("config.json5"), "{plugins: {allow: ['alpha', 'beta']}}").expect("written");
    let (code, out) = run(&["plugins", "list"]);
    assert!(code == Some(0) && out.lines().last().expect("lines").starts_with("alpha"), "{out}");
}

#[test]
fn a_workspace_does_not_step_in_for_a_plugin_of_the_operator_that_is_refused() {
    let host = TestHost::with(&["alpha"]);
    chmod(&host.plugins().join(library_name("alpha")), 0o666);
    let workspace = host.root().join("workspace");
    fs::create_dir(&workspace).expect("a folder");
    fs::copy(plugin("alpha"), workspace.join("other.so")).expect("copied");
    let directories = vec![host.plugins().into(), PluginDirectory { path: workspace, origin: Origin::Workspace }];
    let allowed = policy(|policy| policy.allow = Some(vec!["alpha".into()]));
    let loader = host.loader_with(directories, allowed);
    assert!(matches!(loader.find("alpha").expect_err("refused").problem, Problem::Permissions { .. }));
    let found = loader.scan();
    let second = &found[1].as_ref().expect_err("kept back").problem;
    assert!(matches!(second, Problem::Shadowed { winner, .. } if winner.starts_with(host.plugins())), "{second}");
    run_advice(&host);
    assert!(loader.find("alpha").is_ok());
}

#[test]
fn a_folder_for_private_copies_that_others_may_write_is_not_used() {
    let host = TestHost::with(&["alpha"]);
    assert!(only(&host).is_ok());
    let stages = host.root().join("state/stages");
    chmod(&stages, 0o777);
    let error = only(&host).expect_err("refused");
    assert!(matches!(error.problem, Problem::State { .. }), "{error}");
    assert!(error.to_string().contains("has mode 0777, expected uid"), "{error}");
    chmod(&stages, 0o700);
    assert!(only(&host).is_ok());
}

#[test]
fn a_home_that_is_the_workspace_too_is_looked_through_once_as_the_home() {
    let host = TestHost::with(&["alpha"]);
    host.put("notes.so", "notes");
    let workspace = PluginDirectory { path: host.plugins().join("../plugins"), origin: Origin::Workspace };
    let found = host.loader_with(vec![host.plugins().into(), workspace], TrustPolicy::default()).scan();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].is_ok());
}
