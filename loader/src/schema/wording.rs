//! What does not fit, in words: the place as a person writes it, what is expected there, what was found.
//!
//! Decision: not the validator's words, which show the value itself: a configuration may hold secrets, and these words go
//! into logs and answers. Numbers and short texts are shown, because they are what a slip is seen by.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::ConfigFault;
use crate::text::{on_one_line, short};

/// The longest text of a configuration that is shown, in characters.
const SHOWN: usize = 20;

/// How many names or values are listed.
const LISTED: usize = 10;

/// How far a key may be from one that is known to be taken for it.
const SLIP: usize = 2;

/// The faults an error of the validator's stands for, in the configuration at `root`.
pub(super) fn faults(error: &ValidationError<'_>, schema: &Value, (root, config): (&str, &Value)) -> Vec<ConfigFault> {
    let at = error.instance_path().as_str();
    let place = place(root, config, at);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = known_keys(schema, error.schema_path().as_str());
            unexpected.iter().map(|key| no_such_key(&place, key, &known)).collect()
        }
        ValidationErrorKind::Required { property } => {
            let place = format!("{place}{}", step(property.as_str().unwrap_or_default()));
            vec![ConfigFault { place, expected: "a value".to_owned(), found: "none".to_owned() }]
        }
        kind => vec![ConfigFault { place, expected: expected(kind, error), found: found(kind, error.instance()) }],
    }
}

/// The place a JSON pointer into `config` names, such as `root.a[2]["odd key"]`.
fn place(root: &str, config: &Value, pointer: &str) -> String {
    let mut place = root.to_owned();
    let mut here = Some(config);
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        place.push_str(&match here {
            Some(Value::Array(_)) => format!("[{key}]"),
            _ => step(&key),
        });
        here = here.and_then(|value| match value {
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            value => value.get(&key),
        });
    }
    place
}

/// One key more.
fn step(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    match !key.is_empty() && key.chars().all(plain) {
        true => format!(".{}", short(key)),
        false => format!("[{}]", short(&Value::from(key).to_string())),
    }
}

/// The keys an object may have, beside the keyword at `pointer` that refuses others.
fn known_keys(schema: &Value, pointer: &str) -> Vec<String> {
    let above = pointer.rsplit_once('/').map_or("", |(above, _)| above);
    let properties = schema.pointer(above).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

fn no_such_key(place: &str, key: &str, known: &[String]) -> ConfigFault {
    let near = |known: &&String| strsim::damerau_levenshtein(known, &short(key)) <= SLIP;
    let found = known.iter().find(near).map_or_else(
        || "one it does not know; remove it".to_owned(),
        |meant| format!("one it does not know; did you mean {}?", short(meant)),
    );
    let expected = match known {
        [] => "no further key".to_owned(),
        known => format!("one of the keys {}", list(known.iter().map(|key| short(key)), ", ")),
    };
    ConfigFault { place: format!("{place}{}", step(key)), expected, found }
}

/// What the schema asks for.
fn expected(kind: &ValidationErrorKind, error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind: TypeKind::Single(one) } => name(*one).to_owned(),
        Kind::Type { kind: TypeKind::Multiple(several) } => {
            list(several.iter().map(|one| name(one).to_owned()), " or ")
        }
        Kind::Enum { options } => list(options.as_array().into_iter().flatten().map(shown), " or "),
        Kind::Constant { expected_value } => shown(expected_value),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::UnevaluatedItems { .. } => "no further items".to_owned(),
        Kind::MinProperties { limit } => format!("at least {limit} keys"),
        Kind::MaxProperties { limit } => format!("at most {limit} keys"),
        Kind::UniqueItems => "items that differ".to_owned(),
        Kind::Contains => "an item of another kind among them".to_owned(),
        Kind::Pattern { pattern } => format!("a text that matches {}", short(pattern)),
        Kind::Format { format } => format!("a text in the format {}", short(format)),
        Kind::FalseSchema => "nothing".to_owned(),
        Kind::Not { .. } => "something else".to_owned(),
        Kind::PropertyNames { error } => format!("keys that are {}", expected(error.kind(), error)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(context, error),
        Kind::OneOfMultipleValid { context } => {
            format!("something that fits one of the {} ways to write it alone", context.len())
        }
        _ => format!("what `{}` of the plugin's schema says", short(kind.keyword())),
    }
}

/// What each alternative asks for, where that is one thing about the value itself.
fn alternatives(context: &[Vec<ValidationError<'static>>], error: &ValidationError<'_>) -> String {
    let here = error.instance_path().as_str();
    let mut ways: Vec<String> = Vec::new();
    for errors in context {
        let way = match errors.as_slice() {
            [one] if one.instance_path().as_str() == here => expected(one.kind(), one),
            _ => return format!("one of the {} ways the plugin's schema has to write it", context.len()),
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    list(ways.into_iter(), " or ")
}

/// What is there.
fn found(kind: &ValidationErrorKind, value: &Value) -> String {
    use ValidationErrorKind as Kind;
    match (kind, value) {
        (Kind::MinLength { .. } | Kind::MaxLength { .. }, Value::String(text)) => text.chars().count().to_string(),
        (Kind::Pattern { .. } | Kind::Format { .. }, Value::String(_)) => "another".to_owned(),
        (Kind::UniqueItems, _) => "two that are the same".to_owned(),
        (Kind::MinProperties { .. } | Kind::MaxProperties { .. }, Value::Object(map)) => map.len().to_string(),
        (Kind::Contains, _) => "none".to_owned(),
        (_, value) => shown(value),
    }
}

/// A value, as far as it is nobody's secret.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() <= SHOWN => on_one_line(&value.to_string()),
        Value::String(text) => format!("a text of {} characters", text.chars().count()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::Number(number) => short(&number.to_string()),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

fn name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a text",
    }
}

fn list(items: impl Iterator<Item = String>, between: &str) -> String {
    let items: Vec<String> = items.collect();
    match items.len().checked_sub(LISTED) {
        None | Some(0) => items.join(between),
        Some(more) => format!("{} or {more} more", items[..LISTED].join(", ")),
    }
}
