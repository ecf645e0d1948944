//! What is quarantined: a build of an engine together with its configuration.
//!
//! Decision: the key is a digest over both. A new build and a changed configuration have other keys and start clean, so an
//! operator who repairs something never has to lift anything.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::stage::Digest;

/// Names one build of an engine with one configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuarantineKey([u8; 32]);

impl QuarantineKey {
    /// The key of the library with this digest, created with this configuration. The order of its keys does not matter.
    pub fn of(digest: &Digest, config: Option<&Value>) -> QuarantineKey {
        QuarantineKey::of_text(&digest.to_string(), config)
    }

    pub(crate) fn of_text(digest: &str, config: Option<&Value>) -> QuarantineKey {
        let mut text = format!("{digest}\n");
        if let Some(config) = config {
            canonical(config, &mut text);
        }
        QuarantineKey(Sha256::digest(text.as_bytes()).into())
    }

    /// The first 16 hexadecimal digits: enough to name a file.
    pub fn short(&self) -> String {
        hex(&self.0[..8])
    }

    pub(super) fn bytes(&self) -> [u8; 32] {
        self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> QuarantineKey {
        QuarantineKey(bytes)
    }
}

impl fmt::Display for QuarantineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for QuarantineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for QuarantineKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QuarantineKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QuarantineKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = from_hex(&text).ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))?;
        Ok(QuarantineKey(bytes))
    }
}

/// Whom a fault or a crash mark is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The engine's id.
    pub engine: String,
    /// SHA-256 of its library, in hexadecimal digits.
    pub digest: String,
    /// Digest and configuration.
    pub key: QuarantineKey,
    /// The plugin, as it was found.
    pub path: PathBuf,
}

/// Hexadecimal digits of `bytes`.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of 64 hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok()).flatten()
}

/// JSON with the members of each object sorted.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            out.push('{');
            for (name, member) in sorted {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                canonical(member, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_key_is_the_build_and_the_configuration_whatever_its_order() {
        let key = |digest: &str, config: Value| QuarantineKey::of_text(digest, Some(&config));
        let known = key("aa", json!({"a": 1, "b": [{"c": 2, "d": "x"}]}));
        assert_eq!(known, key("aa", json!({"b": [{"d": "x", "c": 2}], "a": 1})));
        for (digest, config) in [
            ("ab", json!({"a": 1, "b": [{"c": 2, "d": "x"}]})),
            ("aa", json!({"a": 2, "b": [{"c": 2, "d": "x"}]})),
            ("aa", json!({"a": 1, "b": [{"c": 2}, {"d": "x"}]})),
            ("aa", json!({})),
        ] {
            assert_ne!(known, key(digest, config.clone()), "{digest} {config}");
        }
        assert_ne!(QuarantineKey::of_text("aa", None), key("aa", Value::Null));
    }

    #[test]
    fn a_key_survives_a_file() {
        let key = QuarantineKey::of_text("aa", None);
        let text = serde_json::to_string(&key).expect("text");
        assert_eq!(serde_json::from_str::<QuarantineKey>(&text).expect("a key"), key);
        assert!(key.to_string().starts_with(&key.short()) && key.short().len() == 16);
        for wrong in ["\"\"", "\"zz\"", "\"é\"", "7"] {
            assert!(serde_json::from_str::<QuarantineKey>(wrong).is_err(), "{wrong}");
        }
    }
}
