//! The configuration as people write it.

use context_engine_loader::supervise::DEFAULT_DEADLINES;

use super::*;

fn config(text: &str) -> Config {
    json5::from_str(text).expect("a configuration")
}

#[test]
fn comments_and_keys_of_others_are_fine() {
    let config = config(
        "// mine\n{ plugins: { slots: { contextEngine: 'sliding-window', memory: 'x' }, load: { paths: ['/p'] } }, gateway: {} }",
    );
    assert_eq!(config.plugins.slots.context_engine.as_deref(), Some("sliding-window"));
    assert_eq!(config.plugins.load.paths, [PathBuf::from("/p")]);
}

#[test]
fn deny_wins_over_allow() {
    let config = config("{plugins: {allow: ['a', 'b'], deny: ['a'], entries: {b: {enabled: false}}}}");
    let policy = config.trust_policy();
    assert_eq!(policy.forbids("a").as_deref(), Some("plugins.deny names \"a\""));
    assert_eq!(policy.forbids("b").as_deref(), Some("plugins.entries.b.enabled is false"));
    assert_eq!(policy.forbids("c").as_deref(), Some("plugins.allow does not name \"c\""));
    assert_eq!(Config::default().trust_policy(), TrustPolicy::default());
    let off = self::config("{plugins: {enabled: false}}").trust_policy();
    assert_eq!(off.forbids("a").as_deref(), Some("plugins.enabled is false"));
}

#[test]
fn the_template_changes_nothing() {
    let template = config(include_str!("../../../cli/config.template.json5"));
    assert_eq!(template.trust_policy(), TrustPolicy::default());
    let deadlines = template.deadlines("any").expect("members");
    for (member, default) in DEFAULT_DEADLINES {
        assert_eq!(deadlines.of(member), default, "{member}");
    }
    assert_eq!(template.on_failure(), OnFailure::Legacy);
}

#[test]
fn timeouts_are_read_per_engine_and_the_entry_wins() {
    let config = config(
        "{plugins: {entries: {a: {timeoutsMs: {assemble: 200, compact: 5}}}}, agents: {defaults: {compaction: {timeoutSeconds: 7}}}}",
    );
    let (a, b) = (config.deadlines("a").expect("members"), config.deadlines("b").expect("members"));
    assert_eq!([a.of("assemble"), a.of("compact")], [Duration::from_millis(200), Duration::from_millis(5)]);
    assert_eq!([b.of("assemble"), b.of("compact")], [Duration::from_secs(10), Duration::from_secs(7)]);
}

#[test]
fn a_policy_nobody_knows_is_refused() {
    assert_eq!(config("{plugins: {contextEnginePolicy: 'strict'}}").on_failure(), OnFailure::Stop);
    assert!(json5::from_str::<Config>("{plugins: {contextEnginePolicy: 'stirct'}}").is_err());
}

#[test]
fn the_pin_of_an_entry_is_read() {
    let policy = config("{plugins: {entries: {a: {pin: 'sha256:00'}, b: {}}}}").trust_policy();
    assert_eq!(policy.pins, BTreeMap::from([("a".to_owned(), "sha256:00".to_owned())]));
}

#[test]
fn a_slip_is_found_and_keys_of_others_are_left_alone() {
    let said = |text: &str| {
        let mut found = Vec::new();
        slips::look_for(&json5::from_str(text).expect("JSON5"), "", "", &mut found);
        found.into_iter().map(|(place, meant)| format!("{place} → {meant}")).collect::<Vec<_>>()
    };
    assert_eq!(
        said("{plugin: {}, gateway: {slot: 1}, plugins: {slot: {}, entries: {a: {timeoutMs: {}, config: {pins: 1}}}}}"),
        ["plugin → plugins", "plugins.slot → slots", "plugins.entries.a.timeoutMs → timeoutsMs"]
    );
    assert_eq!(
        said(
            "{models: {mode: 'merge', provider: {}, providers: {x: {baseURL: '', apikey: '', auth: '', headers: {api: 1}, \
             models: [{id: 'a', name: 'A'}, {id: 'b', contextwindow: 1, compat: {maxTokenField: ''}}]}}}, \
             agents: {defaults: {modle: '', models: {}, contextToken: 1}}}"
        ),
        [
            "models.provider → providers",
            "models.providers.x.baseURL → baseUrl",
            "models.providers.x.apikey → apiKey",
            "models.providers.x.models[1].contextwindow → contextWindow",
            "models.providers.x.models[1].compat.maxTokenField → maxTokensField",
            "agents.defaults.modle → model",
            "agents.defaults.contextToken → contextTokens",
        ]
    );
    assert_eq!(said(include_str!("../../../cli/config.template.json5")), Vec::<String>::new());
}

#[test]
fn a_mistake_names_its_place() {
    let file = std::env::temp_dir().join(format!("context-engine-config-{}.json5", std::process::id()));
    std::fs::write(&file, "{ plugins: { deny: 7 } }").expect("a file");
    let error = Config::read(&file).expect_err("refused").to_string();
    std::fs::remove_file(&file).expect("removed");
    assert!(error.contains("line 1"), "{error}");
    std::fs::write(&file, "{ plugins: { entries: { a: { timeoutsMs: { asemble: 7 } } } } }").expect("a file");
    let error = Config::read(&file).expect_err("refused").to_string();
    std::fs::remove_file(&file).expect("removed");
    assert!(error.contains("plugins.entries.a.timeoutsMs: \"asemble\" is no member with a timeout"), "{error}");
    assert_eq!(Config::read(&file).expect("defaults"), Config::default());
}
