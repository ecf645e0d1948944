//! That checking against a schema comes to an end, known before it begins.
//!
//! Decision: counted, not timed. A schema that names one part twice, which names another twice, and so on, is short and
//! takes for ever; one that refers to itself does with a configuration of the right shape. So references are followed here
//! first, to parts of this document alone, and what they come to is counted.

use std::collections::HashMap;

use serde_json::Value;

use crate::text::short;

/// How many places a schema may come to, references followed.
const MAX_PLACES: u64 = 20_000;

/// How deep, references followed.
const MAX_DEPTH: usize = 128;

/// Keywords whose members are schemas by a name of the schema's own.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Keywords that hold no schema.
const DATA: [&str; 5] = ["enum", "const", "default", "examples", "required"];

/// References that the target of depends on more than the document.
const DYNAMIC: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Refuses a schema that may take for ever.
///
/// # Errors
/// The place, and what is expected of it.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    Walk { root: schema, known: HashMap::new() }.schema(schema, "", 0).map(drop)
}

/// What a schema comes to.
#[derive(Clone, Copy)]
struct Size {
    places: u64,
    /// Levels, its own included.
    height: usize,
}

struct Walk<'a> {
    root: &'a Value,
    /// What a reference comes to; nothing yet while it is followed.
    known: HashMap<&'a str, Option<Size>>,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, place: &str, depth: usize) -> Result<Size, String> {
        let mut size = Size { places: 1, height: 1 };
        let parts: Vec<(String, &'a Value)> = match schema {
            Value::Array(schemas) => {
                schemas.iter().enumerate().map(|(at, schema)| (format!("{place}/{at}"), schema)).collect()
            }
            Value::Object(members) => {
                let mut parts = Vec::new();
                for (key, value) in members {
                    let place = format!("{place}/{key}");
                    match (key.as_str(), value) {
                        ("$ref", Value::String(target)) => {
                            let part = self.reference(target, &place, depth)?;
                            size.add(part, &place, depth)?;
                        }
                        ("$id", Value::String(_)) if depth > 0 => {
                            return Err(refuse(&place, "only the whole schema may have an `$id`; leave it out"));
                        }
                        (key, Value::String(_)) if DYNAMIC.contains(&key) => {
                            return Err(refuse(&place, "expected `$ref` with `#/…`"));
                        }
                        (key, Value::Object(named)) if NAMED.contains(&key) => {
                            parts.extend(named.iter().map(|(name, schema)| (format!("{place}/{name}"), schema)));
                        }
                        (key, _) if DATA.contains(&key) => {}
                        (_, value) => parts.push((place, value)),
                    }
                }
                parts
            }
            _ => vec![],
        };
        for (place, part) in parts {
            if depth >= MAX_DEPTH {
                return Err(too_deep(&place));
            }
            let part = self.schema(part, &place, depth + 1)?;
            size.add(part, &place, depth)?;
        }
        Ok(size)
    }

    fn reference(&mut self, target: &'a str, place: &str, depth: usize) -> Result<Size, String> {
        let Some(pointer) = target.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            return Err(refuse(
                place,
                &format!("expected a part of this schema such as `#/$defs/x`, found {target:?}"),
            ));
        };
        match self.known.get(target) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                return Err(refuse(place, &format!("{target:?} leads back to itself; write out how deep it goes")));
            }
            None => {}
        }
        let Some(part) = self.root.pointer(pointer) else {
            return Err(refuse(place, &format!("nothing stands at {target:?}")));
        };
        if depth >= MAX_DEPTH {
            return Err(too_deep(place));
        }
        self.known.insert(target, None);
        let size = self.schema(part, pointer, depth + 1)?;
        self.known.insert(target, Some(size));
        Ok(size)
    }
}

impl Size {
    /// With one part more, at `place`, whose parent is `depth` levels down. A part that was followed before may have been
    /// followed from higher up.
    fn add(&mut self, part: Size, place: &str, depth: usize) -> Result<(), String> {
        self.places = self.places.saturating_add(part.places);
        self.height = self.height.max(part.height + 1);
        if depth + self.height > MAX_DEPTH {
            return Err(too_deep(place));
        }
        match self.places {
            0..=MAX_PLACES => Ok(()),
            _ => Err(refuse(
                place,
                &format!("it comes to more than {MAX_PLACES} places, references followed; shorten it"),
            )),
        }
    }
}

fn too_deep(place: &str) -> String {
    refuse(place, &format!("it is deeper than {MAX_DEPTH} levels, references followed; flatten it"))
}

fn refuse(place: &str, what: &str) -> String {
    format!("configSchema{}: {}", short(place), short(what))
}
