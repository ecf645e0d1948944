//! Which host params an engine is sent, and the second call an older engine gets.
//!
//! Rules (contract §1.3, design "Older engines"): an engine that declares `acceptedHostParams` gets exactly those keys.
//! One that declares nothing gets all; when it refuses one of the six known keys, it is called again without it, at most
//! once per key, and the key is remembered for the build. Only the guard inside the plugin can refuse, and
//! it does before the engine's own code runs, so no side effect happens twice. No other error is retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use context_engine_interface::{EngineError, HOST_PARAMS};
use serde_json::{Map, Value};

/// What is done with a key the engine refuses, so that the next process knows it too.
pub(crate) type Remember = Box<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(crate) struct HostParamPolicy {
    accepted: Option<Vec<String>>,
    refused: Mutex<BTreeSet<String>>,
    remember: Option<Remember>,
}

/// The host params of one call, after projection.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    keys: BTreeSet<String>,
    /// As it crosses: empty for none.
    pub(super) json: Arc<str>,
}

impl HostParamPolicy {
    pub(crate) fn new(accepted: Option<Vec<String>>) -> HostParamPolicy {
        HostParamPolicy { accepted, ..HostParamPolicy::default() }
    }

    /// With what is known of the build already, and `remember` for what is learned from now on.
    #[must_use]
    pub(crate) fn knowing(self, refused: BTreeSet<String>, remember: Remember) -> HostParamPolicy {
        HostParamPolicy { refused: Mutex::new(refused), remember: Some(remember), ..self }
    }

    /// What of `host_params` the engine is sent.
    pub(super) fn project(&self, host_params: &Map<String, Value>) -> Sent {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = |key: &String| {
            self.accepted.as_ref().is_none_or(|accepted| accepted.contains(key)) && !refused.contains(key)
        };
        let sent: BTreeMap<&String, &Value> = host_params.iter().filter(|(key, _)| takes(key)).collect();
        let json = if sent.is_empty() { String::new() } else { serde_json::to_string(&sent).unwrap_or_default() };
        Sent { keys: sent.into_keys().cloned().collect(), json: json.into() }
    }

    /// Leaves out from now on the key that `error` refuses. `false` when there is none to leave out, so that the call is
    /// not tried again: a key that was not sent cannot be left out, so each round sends one less and this ends.
    pub(super) fn learn(&self, member: &str, sent: &Sent, error: &EngineError) -> bool {
        let Some(key) = refused_key(error).filter(|key| sent.keys.contains(key)) else { return false };
        // Another session's call may have learned it in the meantime.
        if self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            tracing::info!(member, key, "the engine refuses this host param; it is called without it from now on");
            if let Some(remember) = &self.remember {
                remember(&key);
            }
        }
        true
    }
}

/// The key the error names, when it is one the host may leave out.
fn refused_key(error: &EngineError) -> Option<String> {
    let details: Value = serde_json::from_str(&error.details_json).ok()?;
    let key = details.get("key")?.as_str()?;
    HOST_PARAMS.contains(&key).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use context_engine_interface::ErrorCode;

    use super::*;

    fn params() -> Map<String, Value> {
        ["sessionKey", "prompt", "runtimeSettings"].map(|key| (key.to_owned(), Value::from(1))).into_iter().collect()
    }

    fn refusal(key: &str) -> EngineError {
        EngineError::new(ErrorCode::UNKNOWN_HOST_PARAM, "unknown").with_details(&serde_json::json!({ "key": key }))
    }

    /// Calls once with an engine that refuses `refuses`; returns what it was sent, call by call.
    fn sent(policy: &HostParamPolicy, refuses: &[&str]) -> Vec<String> {
        let mut calls = Vec::new();
        loop {
            let sent = policy.project(&params());
            calls.push(sent.json.to_string());
            let refused = refuses.iter().find(|key| sent.json.contains(**key));
            if !refused.is_some_and(|key| policy.learn("assemble", &sent, &refusal(key))) {
                return calls;
            }
        }
    }

    #[test]
    fn a_refused_key_is_left_out_once_and_for_all() {
        let policy = HostParamPolicy::default();
        assert_eq!(
            sent(&policy, &["runtimeSettings"]),
            [r#"{"prompt":1,"runtimeSettings":1,"sessionKey":1}"#, r#"{"prompt":1,"sessionKey":1}"#]
        );
        assert_eq!(sent(&policy, &["runtimeSettings"]), [r#"{"prompt":1,"sessionKey":1}"#]);
        assert_eq!(sent(&policy, &["prompt"]), [r#"{"prompt":1,"sessionKey":1}"#, r#"{"sessionKey":1}"#]);
    }

    #[test]
    fn declared_keys_are_the_only_ones_sent() {
        assert_eq!(sent(&HostParamPolicy::new(Some(vec!["prompt".into(), "never".into()])), &[]), [r#"{"prompt":1}"#]);
        assert_eq!(sent(&HostParamPolicy::new(Some(vec![])), &[]), [""]);
    }

    #[test]
    fn a_key_the_host_does_not_own_is_no_reason_to_call_again() {
        let policy = HostParamPolicy::default();
        assert!(!policy.learn("assemble", &policy.project(&params()), &refusal("foo")));
    }

    #[test]
    fn a_key_that_was_not_sent_is_no_reason_to_call_again() {
        let policy = HostParamPolicy::default();
        let none = policy.project(&Map::new());
        assert!(!policy.learn("assemble", &none, &refusal("prompt")));
    }

    #[test]
    fn what_a_build_refuses_is_handed_on() {
        let remembered = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&remembered);
        let policy = HostParamPolicy::default().knowing(
            ["prompt".to_owned()].into(),
            Box::new(move |key| into.lock().expect("a lock").push(key.to_owned())),
        );
        assert_eq!(sent(&policy, &["runtimeSettings"]).last().expect("a call"), r#"{"sessionKey":1}"#);
        assert_eq!(*remembered.lock().expect("a lock"), ["runtimeSettings"]);
    }
}
