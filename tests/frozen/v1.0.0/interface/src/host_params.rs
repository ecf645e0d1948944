//! Typed reading of the host params (OpenClaw contract §1.3 to §1.5).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{EngineError, HostParams, RUNTIME_SETTINGS_SCHEMA_VERSION};

/// Names of the host params this version knows. A host calls again without one of these when an older engine refuses
/// it.
pub const HOST_PARAMS: [&str; 6] =
    ["sessionKey", "prompt", "runtimeSettings", "sessionTarget", "runtimeContext", "abortSignal"];

/// The host params as values. Members that are missing were not sent; members without a place here stand in `other`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostParamValues {
    /// The session's key, such as `agent:main:main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The text the turn answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What the host runs and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_settings: Option<RuntimeSettings>,
    /// Identity and store of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_target: Option<Value>,
    /// Open record of the host's (contract §1.5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_context: Option<Value>,
    /// What a newer host sends.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// `runtimeSettings` (contract §1.4). What may be unknown is `None`, written as `null`; a closed word of a newer host
/// arrives as it was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the names are the contract's")]
pub struct RuntimeSettings {
    pub schema_version: u32,
    pub runtime: RuntimeIdentity,
    pub model: ModelIdentity,
    pub context_engine_selection: ContextEngineSelection,
    pub execution_host: ExecutionHost,
    pub limits: Limits,
    pub diagnostics: Diagnostics,
}

impl RuntimeSettings {
    /// Settings of this schema version with nothing known.
    pub fn new() -> RuntimeSettings {
        RuntimeSettings { schema_version: RUNTIME_SETTINGS_SCHEMA_VERSION, ..RuntimeSettings::default() }
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(missing_docs, reason = "the names are the contract's")]
        pub struct $name {
            $(pub $field: $type,)+
        }
    )+};
}

settings! {
    /// Which host runs, and how: `mode` is `normal`, `fallback` or `degraded`.
    RuntimeIdentity { host: String, mode: String, harness_id: Option<String>, runtime_id: Option<String> }
    /// Which model answers.
    ModelIdentity {
        requested: Option<String>, resolved: Option<String>, provider: Option<String>, family: Option<String>,
    }
    /// Which engine was chosen; `source` is `configured`, `default` or `unknown`.
    ContextEngineSelection { selected_id: Option<String>, source: String }
    /// Which surface calls.
    ExecutionHost { id: Option<String>, label: Option<String> }
    /// Tokens of prompt and answer.
    Limits { prompt_token_budget: Option<u64>, max_output_tokens: Option<u64> }
    /// Closed reason codes.
    Diagnostics { fallback_reason: Option<String>, degraded_reason: Option<String> }
}

impl HostParams<'_> {
    /// The host params as values.
    ///
    /// # Errors
    /// `Failed` when they are no JSON object, or a member has another type than the contract says.
    pub fn read(&self) -> Result<HostParamValues, EngineError> {
        if self.json().is_empty() {
            return Ok(HostParamValues::default());
        }
        serde_json::from_str(self.json()).map_err(|error| {
            EngineError::failed(format!("host params: {error}; the host should send them as documented"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_members_have_types_and_others_travel() {
        let json = r#"{"sessionKey":"agent:main:x","runtimeSettings":{"schemaVersion":1,"runtime":{"host":"h","mode":"normal",
            "harnessId":null},"limits":{"promptTokenBudget":40675}},"later":{"a":1}}"#;
        let values = HostParams::from_json(json).read().expect("values");
        assert_eq!(values.session_key.as_deref(), Some("agent:main:x"));
        assert_eq!(values.runtime_settings.expect("settings").limits.prompt_token_budget, Some(40675));
        assert_eq!(values.other["later"]["a"], 1);
    }

    #[test]
    fn no_host_params_are_not_an_error() {
        assert_eq!(HostParams::NONE.read().expect("values"), HostParamValues::default());
        assert!(HostParams::from_json("[]").read().is_err());
    }
}
