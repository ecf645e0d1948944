//! The schema a plugin has for its configuration (`configSchema` of `plugin.json`), and what of a configuration does not fit.
//!
//! Decision: asked before the engine is created, and without running anything of it, so that a slip in `config.json5` is
//! told with its place and not in an engine's words. JSON Schema draft 7 and 2020-12. Defaults in it are not filled in: an
//! engine has its own, and what it is given is what the person wrote.
//!
//! Decision: the schema is a stranger's text that is read by commands which promise to run nothing, so checking it has to
//! end. It refers to itself only, by `#/…`, and never in a circle, and what it comes to is bounded ([`bounds`]). Nothing is
//! fetched.

mod bounds;
mod wording;

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::text::short;

/// How often a pattern may try again, and how long it may be compiled, in bytes.
const BACKTRACKS: usize = 100_000;
const PATTERN_SIZE: usize = 1 << 20;

/// Schemas of these drafts are read, by their `$schema`; one without it is of the last.
const DRAFTS: [(&str, Draft); 2] = [
    ("http://json-schema.org/draft-07/schema", Draft::Draft7),
    ("https://json-schema.org/draft/2020-12/schema", Draft::Draft202012),
];

/// A place of a configuration that does not fit the plugin's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Where in the configuration, such as `plugins.entries.topic-memory.config.keepTurns`.
    pub place: String,
    /// What the schema asks for there.
    pub expected: String,
    /// What is there. Longer texts are not shown: a configuration may hold secrets.
    pub found: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.place, self.expected, self.found)
    }
}

/// Whether the schema can be read.
///
/// # Errors
/// Where it cannot, and why.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

/// Everything in `config` that does not fit, by place. A missing configuration counts as an empty one.
///
/// # Errors
/// As [`check`].
pub(crate) fn faults(schema: &Value, id: &str, config: Option<&Value>) -> Result<Vec<ConfigFault>, String> {
    let empty = Value::Object(serde_json::Map::new());
    let config = config.unwrap_or(&empty);
    let validator = compile(schema)?;
    let root = format!("plugins.entries.{id}.config");
    let told = validator.iter_errors(config).flat_map(|error| wording::faults(&error, schema, (&root, config)));
    let mut faults: Vec<ConfigFault> = told.collect();
    faults.sort_by(|one, other| (&one.place, &one.expected).cmp(&(&other.place, &other.expected)));
    faults.dedup();
    Ok(faults)
}

/// How many faults of a configuration stand in one line.
const MOST_FAULTS: usize = 20;

/// The faults of a configuration in one line.
pub(crate) fn in_one_line(faults: &[ConfigFault]) -> String {
    let said: Vec<String> = faults.iter().take(MOST_FAULTS).map(ConfigFault::to_string).collect();
    match faults.len().saturating_sub(MOST_FAULTS) {
        0 => said.join("; "),
        more => format!("{}; and {more} more", said.join("; ")),
    }
}

fn compile(schema: &Value) -> Result<Validator, String> {
    let draft = draft(schema)?;
    bounds::check(schema)?;
    let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS).size_limit(PATTERN_SIZE);
    let options = jsonschema::options().with_draft(draft).with_pattern_options(patterns).offline();
    options.build(schema).map_err(|error| {
        format!("configSchema{}: {}", short(error.instance_path().as_str()), short(&error.to_string()))
    })
}

fn draft(schema: &Value) -> Result<Draft, String> {
    let Some(said) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let uri = said.as_str().unwrap_or_default().trim_end_matches('#');
    let known = DRAFTS.iter().find(|(known, _)| *known == uri).map(|(_, draft)| *draft);
    known.ok_or_else(|| {
        let (expected, found) = (DRAFTS.map(|(uri, _)| uri).join(" or "), short(&said.to_string()));
        format!("configSchema/$schema: expected {expected}, found {found}")
    })
}

#[cfg(test)]
mod tests;
