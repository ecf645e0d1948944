//! Engines and hosts of other times: what was written for an earlier interface works with today's, and the other way.
//!
//! Decision: what is compared is everything an engine does on its tour. An engine from then has to do in today's host what
//! it did when it was frozen.
#![forbid(unsafe_code)]

use std::path::Path;

use context_engine_tests::frozen;
use context_engine_tests::host::TestHost;
use context_engine_tests::tour::tour;
use serde_json::Value;

/// What the engine `id` does in today's host.
fn today(id: &str, library: &Path) -> Value {
    let host = TestHost::new();
    host.take(library);
    tour(host.root(), id)
}

/// Where two values differ first, for people.
fn difference(expected: &Value, found: &Value) -> Option<String> {
    let inside = |key: &str, place: Option<String>| place.map(|place| format!("{key} › {place}"));
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            let more = right.keys().find(|key| !left.contains_key(*key)).map(|key| format!("unexpected {key}"));
            let of = |key| right.get(key).unwrap_or(&Value::Null);
            left.iter().find_map(|(key, value)| inside(key, difference(value, of(key)))).or(more)
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(at, (left, right))| inside(&at.to_string(), difference(left, right)))
        }
        _ => (expected != found).then(|| format!("expected {expected}, found {found}")),
    }
}

#[test]
fn engines_of_other_times_do_in_todays_host_what_they_did_then() {
    for frozen in frozen::all() {
        let (engines, then) = (frozen.engines(), frozen.tours());
        let ids: Vec<&str> = engines.keys().map(String::as_str).collect();
        let mut kept: Vec<&str> = then.as_object().expect("a tour each").keys().map(String::as_str).collect();
        kept.sort_unstable();
        assert_eq!(ids, kept, "{}", frozen.version);
        for (id, library) in &engines {
            assert_eq!(difference(&then[id], &today(id, library)), None, "{id} of {}", frozen.version);
        }
    }
}
