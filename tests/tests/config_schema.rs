//! A configuration is checked against its plugin's schema before anything of the plugin runs.
#![forbid(unsafe_code)]

use std::fs;

use context_engine_loader::{ConfigFault, Creation, Loader, LoaderOptions, OnFailure, Problem, Step};
use context_engine_tests::host::{Ran, TestHost};
use context_engine_tests::session::answer;
use serde_json::{Value, json};

/// A home with `everything` as a plugin folder that has this schema.
fn home(schema: Value) -> TestHost {
    let host = TestHost::new();
    host.drop_in_folder_with("everything", "everything", json!({ "configSchema": schema }));
    host
}

fn window() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "keepTurns": { "type": "integer", "minimum": 1, "default": 12 },
            "mode": { "enum": ["fast", "careful"] },
        },
    })
}

fn configure(host: &TestHost, config: Value) {
    let plugins =
        json!({ "slots": { "contextEngine": "everything" }, "entries": { "everything": { "config": config } } });
    fs::write(host.root().join("config.json5"), json!({ "plugins": plugins }).to_string()).expect("written");
}

const WRONG: &str = "plugins.entries.everything.config.keepTurns: expected at least 1, found 0; \
                     plugins.entries.everything.config.mod: expected one of the keys keepTurns, mode, found one it does \
                     not know; did you mean mode?; change config.json5";

#[test]
fn an_engine_is_not_created_with_a_configuration_that_does_not_fit() {
    let host = home(window());
    let handle = host.engine("everything", json!({ "keepTurns": 0, "mod": "fast" }));
    let path = host.plugins().join("everything");
    assert_eq!(handle.why(), Some(format!("{}: config: {WRONG}", path.display())));
    assert!(answer(&handle).starts_with("legacy | one"));
    assert_eq!(host.journal("everything"), [], "none of its code ran");

    let stop = LoaderOptions { on_failure: OnFailure::Stop, ..host.options() };
    let creation = Creation { config: Some(json!({ "keepTurns": 0 })), ..Creation::default() };
    let stopped = Loader::new(stop).engine("everything", &creation).expect_err("no handle");
    assert_eq!((stopped.step, stopped.engine.as_deref()), (Step::Config, Some("everything")));
    let fault = ConfigFault {
        place: "plugins.entries.everything.config.keepTurns".into(),
        expected: "at least 1".into(),
        found: "0".into(),
    };
    assert_eq!(stopped.problem, Problem::Config { faults: vec![fault] });
}

#[test]
fn nobody_is_set_aside_for_it_and_what_fits_arrives_as_it_was_written() {
    let host = home(window());
    let loader = host.loader();
    let open = |config: Value| {
        let creation = Creation { config: Some(config), ..Creation::default() };
        loader.engine("everything", &creation).expect("a handle")
    };
    assert!(open(json!({ "keepTurns": "3" })).why().is_some());
    assert_eq!(loader.quarantine().list().len(), 0);
    assert_eq!(open(json!({ "mode": "fast" })).why(), None);
    assert_eq!(
        host.given("everything", "create")["config"],
        json!({ "mode": "fast" }),
        "defaults are the engine's own"
    );
    let creation = Creation::default();
    assert_eq!(loader.engine("everything", &creation).expect("a handle").why(), None, "none counts as an empty one");
}

#[test]
fn a_plugin_without_a_schema_takes_what_it_is_given() {
    let host = TestHost::with(&["alpha"]);
    host.drop_in_folder("everything", "everything");
    for id in ["alpha", "everything"] {
        assert!(!host.loader().find(id).expect("usable").has_config_schema());
        assert_eq!(host.engine(id, json!({ "anything": [1] })).why(), None);
    }
}

#[test]
fn a_schema_that_is_none_is_refused_with_its_place() {
    for (schema, reason) in [
        (
            json!({ "properties": { "keepTurns": { "type": "whole" } } }),
            "configSchema/properties/keepTurns/type: \"whole\" is not valid under any of the schemas listed",
        ),
        (json!([]), "configSchema: [] is not of types \"boolean\", \"object\""),
        (
            json!({ "$ref": "https://host.example/schema.json" }),
            "configSchema/$ref: expected a part of this schema such as `#/$defs/x`, found",
        ),
    ] {
        let host = home(schema);
        let why = host.engine("everything", json!({})).why().expect("refused");
        assert!(why.contains(&format!("everything: find: plugin.json: {reason}")), "{why}");
        assert_eq!(host.journal("everything"), []);
    }
}

fn says(ran: &Ran, line: &str) {
    assert!(ran.out.lines().any(|found| found.trim_start() == line), "expected {line:?} in {}", ran.out);
}

#[test]
fn doctor_and_inspect_say_it_and_run_nothing() {
    let host = home(window());
    configure(&host, json!({ "keepTurns": 0, "mod": "fast" }));
    let doctor = host.run(["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    says(&doctor, &format!("config      {WRONG}"));
    says(&doctor, "passed      find, stage, inspect, trust");
    says(&doctor, &format!("serves    legacy, because {WRONG}"));
    let plugin = &host.run(["doctor", "--json"]).json()["plugins"][0];
    assert_eq!((&plugin["usable"], &plugin["step"], &plugin["probe"]), (&json!(false), &json!("config"), &Value::Null));

    let folder = host.plugins().join("everything");
    let inspect = host.run(["plugins".as_ref(), "inspect".as_ref(), folder.as_os_str()]);
    assert_eq!(inspect.code, 1, "{inspect:?}");
    says(&inspect, &format!("config           {WRONG}"));
    let json = host.run(["plugins".as_ref(), "inspect".as_ref(), folder.as_os_str(), "--json".as_ref()]).json();
    assert_eq!((&json["configSchema"], &json["configFaults"]), (&json!(true), &json!(WRONG)));

    configure(&host, json!({ "keepTurns": 3 }));
    let doctor = host.run(["doctor"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    says(&doctor, "serves    everything");
    let inspect = host.run(["plugins".as_ref(), "inspect".as_ref(), folder.as_os_str()]);
    assert_eq!(inspect.code, 0, "{inspect:?}");
    says(&inspect, "config           fits the plugin's schema");
    assert_eq!(host.journal("everything"), [], "the probe's is not its own");
}

/// Report H17, of the version: what is installed is what its manifest says.
#[test]
fn another_version_in_the_manifest_than_in_the_library_is_refused() {
    let host = TestHost::new();
    host.drop_in_folder_with("everything", "everything", json!({ "version": "0.2.0" }));
    let why = host.engine("everything", json!({})).why().expect("refused");
    let told = "everything: inspect: the version in plugin.json says \"0.2.0\", the version in the library says \
                \"0.1.0\"; write \"version\": \"0.1.0\" in plugin.json";
    assert!(why.ends_with(told), "{why}");
    let other = host.loader().engine("0.2.0", &Creation::default()).expect("a handle").why().expect("no such engine");
    assert!(other.contains("no plugin has the id \"0.2.0\""), "a version is no id: {other}");
}
