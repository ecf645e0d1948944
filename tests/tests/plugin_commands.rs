//! The commands that change which plugins there are and which is used, driven as a person drives them.
//!
//! Decision: after each command the doctor is asked, because that is what a person looks at: what it says has to be what
//! the command said. Broken inputs must leave home and configuration byte for byte as they were.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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
    says(&plugins(&host, "select alpha"), 0, &["selected  alpha, before legacy", "the next session uses it"]);
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
    for command in ["select", "enable", "disable"] {
        says(&plugins(&host, &format!("{command} --help")), 0, &["Examples:", "Exit codes:", "--json"]);
    }
}
