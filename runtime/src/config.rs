//! The configuration: the keys of OpenClaw's `openclaw.json` that are read here, from `config.json5`.
//!
//! Unknown keys are left alone: a person may keep keys of other tools, or of a later version, in the same file.

mod models;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use context_engine_loader::find::read_text;
use context_engine_loader::{Deadlines, OnFailure, TrustPolicy};
use serde::Deserialize;
use serde_json::Value;

pub use self::models::{
    ApiKey, Compat, ConfiguredModel, MaxTokensField, ModelChoice, Models, OPENAI_COMPLETIONS, Provider, ProviderModel,
};
use crate::RuntimeError;

/// The longest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 16 << 20;

/// What the file says. Every member has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Which engines may be used, and with what.
    pub plugins: Plugins,
    /// How agents run.
    pub agents: Agents,
    /// Who serves models.
    pub models: Models,
}

/// `plugins`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Plugins {
    /// `false`: no plugin is used, `legacy` answers.
    pub enabled: Option<bool>,
    /// When given, only these ids are used.
    pub allow: Option<Vec<String>>,
    /// These ids are not used, whatever `allow` says.
    pub deny: Vec<String>,
    /// Which engine is used.
    pub slots: Slots,
    /// What happens when it does not answer.
    pub context_engine_policy: Policy,
    /// Where else to look.
    pub load: Load,
    /// Per engine id.
    pub entries: BTreeMap<String, PluginEntry>,
}

/// `plugins.contextEnginePolicy`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `legacy` answers.
    #[default]
    Fallback,
    /// The run stops.
    Strict,
}

/// `plugins.slots`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Slots {
    /// Id of the engine to use; `legacy` when absent.
    pub context_engine: Option<String>,
}

/// `plugins.load`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Load {
    /// More plugins directories, looked through before the one in the home folder.
    pub paths: Vec<PathBuf>,
}

/// `plugins.entries.<id>`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginEntry {
    /// `false`: not used.
    pub enabled: Option<bool>,
    /// SHA-256 of the only library that is used for it.
    pub pin: Option<String>,
    /// What the engine is created with.
    pub config: Option<Value>,
    /// How long it may take, by member, in milliseconds.
    pub timeouts_ms: BTreeMap<String, u64>,
}

/// `agents`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Agents {
    /// For every agent.
    pub defaults: AgentDefaults,
}

/// `agents.defaults`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentDefaults {
    /// How history is compacted.
    pub compaction: Compaction,
    /// The model that answers.
    pub model: Option<ModelChoice>,
    /// At most so many tokens of a model's window are used.
    pub context_tokens: Option<u64>,
}

/// `agents.defaults.compaction`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Compaction {
    /// How many tokens of recent history a compaction keeps; 20,000 when absent, never more than half the budget.
    pub keep_recent_tokens: Option<u64>,
    /// How long an engine's `compact` may take.
    pub timeout_seconds: Option<u64>,
}

impl Config {
    /// Reads `path`; a file that does not exist is an empty configuration.
    ///
    /// # Errors
    /// [`RuntimeError::Config`] with the place of the mistake.
    pub fn read(path: &Path) -> Result<Config, RuntimeError> {
        let refuse = |doing, reason: String| RuntimeError::Config { path: path.to_owned(), doing, reason };
        let text = match read_text(path, MAX_CONFIG) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) => return Err(refuse("reading the configuration", error.to_string())),
        };
        if text.trim().is_empty() {
            return Ok(Config::default());
        }
        let config: Config =
            json5::from_str(&text).map_err(|error| refuse("reading the configuration", error.to_string()))?;
        for id in config.plugins.entries.keys() {
            let wrong = |reason: String| {
                refuse("reading the configuration", format!("plugins.entries.{id}.timeoutsMs: {reason}"))
            };
            config.deadlines(id).map_err(wrong)?;
        }
        Ok(config)
    }

    /// Keys of `path` that look like one that is read and are none: a slip of the keyboard, which is otherwise left alone
    /// like every key of other tools. Each with its place and the key that was meant.
    pub fn misspelt(path: &Path) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        let value = read_text(path, MAX_CONFIG).ok().and_then(|text| json5::from_str::<Value>(&text).ok());
        if let Some(value) = value {
            look_for_slips(&value, "", "", &mut found);
        }
        found
    }

    /// How long the engine `id` may take.
    ///
    /// # Errors
    /// The name under `timeoutsMs` that is no member.
    pub fn deadlines(&self, id: &str) -> Result<Deadlines, String> {
        let compact = self.agents.defaults.compaction.timeout_seconds.map(Duration::from_secs);
        let own = self.plugins.entries.get(id).map(|entry| &entry.timeouts_ms);
        let own = own.into_iter().flatten().map(|(member, ms)| (member.clone(), Duration::from_millis(*ms)));
        Deadlines::with(compact.map(|limit| ("compact".to_owned(), limit)).into_iter().chain(own))
    }

    /// What happens when the engine asked for does not answer.
    pub fn on_failure(&self) -> OnFailure {
        match self.plugins.context_engine_policy {
            Policy::Fallback => OnFailure::Legacy,
            Policy::Strict => OnFailure::Stop,
        }
    }

    /// Which plugins may be used.
    pub fn trust_policy(&self) -> TrustPolicy {
        let plugins = &self.plugins;
        let off = plugins.entries.iter().filter(|(_, entry)| entry.enabled == Some(false));
        let pinned = plugins.entries.iter().filter_map(|(id, entry)| Some((id.clone(), entry.pin.clone()?)));
        TrustPolicy {
            enabled: plugins.enabled != Some(false),
            allow: plugins.allow.clone(),
            deny: plugins.deny.clone(),
            disabled: off.map(|(id, _)| id.clone()).collect(),
            pins: pinned.collect(),
        }
    }
}

/// The keys that are read, by place; `*` is any key.
const KEYS: [(&str, &[&str]); 12] = [
    ("", &["plugins", "agents", "models"]),
    ("plugins.", &["enabled", "allow", "deny", "slots", "contextEnginePolicy", "load", "entries"]),
    ("plugins.slots.", &["contextEngine"]),
    ("plugins.load.", &["paths"]),
    ("plugins.entries.*.", &["enabled", "pin", "config", "timeoutsMs"]),
    ("agents.", &["defaults"]),
    // `models` is OpenClaw's and not read here; it is no slip of `model`.
    ("agents.defaults.", &["compaction", "model", "contextTokens", "models"]),
    ("agents.defaults.compaction.", &["keepRecentTokens", "timeoutSeconds"]),
    ("models.", &["providers"]),
    (
        "models.providers.*.",
        &["baseUrl", "apiKey", "api", "headers", "timeoutSeconds", "idleTimeoutSeconds", "maxRetries", "models"],
    ),
    ("models.providers.*.models.*.", &["id", "contextWindow", "maxTokens", "compat"]),
    ("models.providers.*.models.*.compat.", &["maxTokensField", "supportsUsageInStreaming"]),
];

/// Places below which stand names.
const NAMED: [&str; 2] = ["plugins.entries.", "models.providers."];

/// How far a key may be from one that is read to be taken for it.
const SLIP: usize = 2;

/// Looks through the object, or the list of objects, at `place`, which stands in `KEYS` as `pattern`.
fn look_for_slips(value: &Value, place: &str, pattern: &str, found: &mut Vec<(String, &'static str)>) {
    let map = match value {
        Value::Object(map) => map,
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let place = format!("{}[{at}].", place.trim_end_matches('.'));
                look_for_slips(item, &place, &format!("{pattern}*."), found);
            }
            return;
        }
        _ => return,
    };
    let known = KEYS.iter().find(|(of, _)| *of == pattern).map(|(_, keys)| *keys);
    for (key, value) in map {
        match known {
            Some(keys) if !keys.contains(&key.as_str()) => {
                let near = |meant: &&&str| strsim::damerau_levenshtein(meant, key) <= SLIP;
                found.extend(keys.iter().find(near).map(|meant| (format!("{place}{key}"), *meant)));
            }
            // Below an id, what is known has only the engine's or the provider's own below it.
            _ => {
                let step = if NAMED.contains(&pattern) { "*" } else { key.as_str() };
                look_for_slips(value, &format!("{place}{key}."), &format!("{pattern}{step}."), found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let template = config(include_str!("../../cli/config.template.json5"));
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
        let slips = |text: &str| {
            let mut found = Vec::new();
            look_for_slips(&json5::from_str(text).expect("JSON5"), "", "", &mut found);
            found.into_iter().map(|(place, meant)| format!("{place} → {meant}")).collect::<Vec<_>>()
        };
        assert_eq!(
            slips(
                "{plugin: {}, gateway: {slot: 1}, plugins: {slot: {}, entries: {a: {timeoutMs: {}, config: {pins: 1}}}}}"
            ),
            ["plugin → plugins", "plugins.slot → slots", "plugins.entries.a.timeoutMs → timeoutsMs"]
        );
        assert_eq!(
            slips(
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
        assert_eq!(slips(include_str!("../../cli/config.template.json5")), Vec::<String>::new());
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
}
