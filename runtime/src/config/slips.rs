//! Keys that look like one that is read and are none.
//!
//! Decision: a key nobody reads is left alone, because other tools keep theirs in the same file; only one that is a slip of
//! the keyboard away from a key that is read is said.

use serde_json::Value;

/// The keys that are read, by place; `*` is any key.
const KEYS: [(&str, &[&str]); 13] = [
    ("", &["plugins", "agents", "models"]),
    ("plugins.", &["enabled", "allow", "deny", "slots", "contextEnginePolicy", "load", "entries", "trusted"]),
    ("plugins.slots.", &["contextEngine"]),
    ("plugins.load.", &["paths"]),
    ("plugins.trusted.*.", &["path", "sha256"]),
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
pub(super) fn look_for(value: &Value, place: &str, pattern: &str, found: &mut Vec<(String, &'static str)>) {
    let map = match value {
        Value::Object(map) => map,
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let place = format!("{}[{at}].", place.trim_end_matches('.'));
                look_for(item, &place, &format!("{pattern}*."), found);
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
                look_for(value, &format!("{place}{key}."), &format!("{pattern}{step}."), found);
            }
        }
    }
}
