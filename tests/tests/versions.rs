//! Engines and hosts of other times: what was written for an earlier interface works with today's, and the other way.
//!
//! Decision: what is compared is everything an engine does on its tour. An engine from then has to do in today's host what
//! it did when it was frozen; an engine of today has to do in the host of then what it does in today's. What no engine
//! here uses yet is held by the snapshot of the layout.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use context_engine_tests::build::{example, plugin};
use context_engine_tests::host::TestHost;
use context_engine_tests::tour::tour;
use context_engine_tests::{append_only, frozen, layout};
use serde_json::Value;

/// What the engine `id` does in today's host.
fn today(id: &str, library: &Path) -> Value {
    let host = TestHost::new();
    host.take(library);
    tour(host.root(), id)
}

#[track_caller]
fn assert_same(expected: &Value, found: &Value, place: &str) {
    assert!(expected == found, "{place}: {}", difference(expected, found).unwrap_or_default());
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
            assert_same(&then[id], &today(id, library), &format!("{id} of {}", frozen.version));
        }
    }
}

/// The engines of today that are taken to older hosts.
fn todays() -> BTreeMap<String, PathBuf> {
    let own = ["alpha", "everything", "faulty", "strict"].map(|id| (id.to_owned(), plugin(id)));
    let examples = ["sliding-window", "strict-v0"].map(|id| (id.to_owned(), example(id)));
    own.into_iter().chain(examples).collect()
}

#[test]
fn engines_of_today_do_in_hosts_of_other_times_what_they_do_in_todays() {
    for frozen in frozen::all() {
        let host_then = frozen.host();
        for (when, engines) in [("today", todays()), ("then", frozen.engines())] {
            let home = TestHost::new();
            engines.values().for_each(|library| drop(home.take(library)));
            let ids: Vec<&str> = engines.keys().map(String::as_str).collect();
            let tours = host_then.tours(home.root(), &ids);
            for (id, library) in &engines {
                let (expected, place) =
                    (today(id, library), format!("{id} of {when} in the host of {}", frozen.version));
                assert_eq!(expected.get("refused"), None, "{place}");
                assert_same(&expected, &tours[id], &place);
            }
        }
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn todays_layout_only_adds_to_every_earlier_one() {
    for frozen in frozen::all() {
        let broken = append_only::broken(&frozen.layout(), &layout::of_interface());
        assert!(
            broken.is_empty(),
            "engines built with interface {} would not work any more; undo this, or make it an addition (docs/abi.md, \
             rule 1):\n{}",
            frozen.version,
            broken.join("\n")
        );
    }
}
