//! Which host params an engine is sent, and the second call an older engine gets.
//!
//! Rules (contract §1.3, design "Older engines"): an engine that declares `acceptedHostParams` gets exactly those keys.
//! One that declares nothing gets all; when it refuses one of the six known keys, it is called again without it, at most
//! once per key, and the key is remembered for the instance's life. Only the guard inside the plugin can refuse, and
//! it does before the engine's own code runs, so no side effect happens twice. No other error is retried.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use context_engine_interface::{EngineError, ErrorCode, HOST_PARAMS};
use serde_json::{Map, Value};

#[derive(Debug, Default)]
pub(super) struct HostParamPolicy {
    accepted: Option<Vec<String>>,
    refused: Mutex<BTreeSet<String>>,
}

impl HostParamPolicy {
    pub(super) fn new(accepted: Option<Vec<String>>) -> HostParamPolicy {
        HostParamPolicy { accepted, refused: Mutex::default() }
    }

    /// Calls `member` with the host params it takes, as JSON.
    pub(super) fn call<R>(
        &self,
        member: &str,
        host_params: &Map<String, Value>,
        call: impl Fn(&str) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        loop {
            let sent = self.project(host_params);
            let json = if sent.is_empty() { String::new() } else { Value::Object(sent.clone()).to_string() };
            let error = match call(&json) {
                Err(error) if error.code == ErrorCode::UNKNOWN_HOST_PARAM => error,
                answer => return answer,
            };
            // A key that was not sent cannot be left out: each round sends one key less, so this ends.
            let Some(key) = refused_key(&error).filter(|key| sent.contains_key(key)) else { return Err(error) };
            // Another session's call may have learned it in the meantime.
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
            tracing::info!(member, key, "the engine refuses this host param; it is called without it from now on");
        }
    }

    fn project(&self, host_params: &Map<String, Value>) -> Map<String, Value> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = |key: &String| {
            self.accepted.as_ref().is_none_or(|accepted| accepted.contains(key)) && !refused.contains(key)
        };
        host_params.iter().filter(|(key, _)| takes(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
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
    use std::cell::RefCell;

    use super::*;

    fn params() -> Map<String, Value> {
        ["sessionKey", "prompt", "runtimeSettings"].map(|key| (key.to_owned(), Value::from(1))).into_iter().collect()
    }

    fn refusal(key: &str) -> EngineError {
        EngineError::new(ErrorCode::UNKNOWN_HOST_PARAM, "unknown").with_details(&serde_json::json!({ "key": key }))
    }

    /// Calls once with an engine that refuses `refuses`; returns what it was sent, call by call.
    fn sent(policy: &HostParamPolicy, refuses: &[&str]) -> Vec<String> {
        let sent = RefCell::new(Vec::new());
        let _ = policy.call("assemble", &params(), |json| {
            sent.borrow_mut().push(json.to_owned());
            let refused = refuses.iter().find(|key| json.contains(*key));
            refused.map_or(Ok(()), |key| Err(refusal(key)))
        });
        sent.into_inner()
    }

    #[test]
    fn a_refused_key_is_left_out_once_and_for_all() {
        let policy = HostParamPolicy::default();
        assert_eq!(
            sent(&policy, &["runtimeSettings"]),
            [r#"{"sessionKey":1,"prompt":1,"runtimeSettings":1}"#, r#"{"sessionKey":1,"prompt":1}"#]
        );
        assert_eq!(sent(&policy, &["runtimeSettings"]), [r#"{"sessionKey":1,"prompt":1}"#]);
        assert_eq!(sent(&policy, &["prompt"]), [r#"{"sessionKey":1,"prompt":1}"#, r#"{"sessionKey":1}"#]);
    }

    #[test]
    fn declared_keys_are_the_only_ones_sent() {
        assert_eq!(sent(&HostParamPolicy::new(Some(vec!["prompt".into(), "never".into()])), &[]), [r#"{"prompt":1}"#]);
        assert_eq!(sent(&HostParamPolicy::new(Some(vec![])), &[]), [""]);
    }

    #[test]
    fn a_key_the_host_does_not_own_is_no_reason_to_call_again() {
        let policy = HostParamPolicy::default();
        let calls = RefCell::new(0);
        let answer = policy.call("assemble", &params(), |_| {
            *calls.borrow_mut() += 1;
            Err::<(), _>(refusal("foo"))
        });
        assert!(answer.is_err());
        assert_eq!(*calls.borrow(), 1);
    }
}
