//! Schemas and configurations as text in, faults as text out.

use super::*;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// What is said of the configuration, line by line.
#[track_caller]
fn check(schema: &str, config: &str, expected: &[&str]) {
    let faults = faults(&json(schema), "x", Some(&json(config))).expect("a schema");
    let lines: Vec<String> =
        faults.iter().map(|fault| fault.to_string().replace("plugins.entries.x.config", "@")).collect();
    assert_eq!(lines, expected, "{config}");
}

const WINDOW: &str = r#"{
    "type": "object", "additionalProperties": false, "required": ["mode"],
    "properties": {
        "mode": { "enum": ["fast", "careful", 3] },
        "keepTurns": { "type": "integer", "minimum": 1, "default": 12 },
        "share": { "type": "number", "exclusiveMaximum": 1 },
        "apiKey": { "type": "string", "pattern": "^sk-" },
        "paths": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
        "odd key": { "type": ["boolean", "null"] },
        "limit": { "anyOf": [{ "type": "integer" }, { "const": "none" }] }
    }
}"#;

#[test]
fn what_fits_is_fine() {
    check(WINDOW, r#"{"mode":"fast"}"#, &[]);
    let all = r#"{"mode":3,"keepTurns":1,"share":0.5,"apiKey":"sk-1","paths":["a","b"],"odd key":null,"limit":"none"}"#;
    check(WINDOW, all, &[]);
    check("{}", r#"{"anything":[1]}"#, &[]);
    check("true", "[]", &[]);
}

#[test]
fn every_fault_is_named_with_its_place() {
    check(
        WINDOW,
        r#"{"keepTurns":0,"keepTurn":3,"share":"half","apiKey":"a secret nobody may read","paths":["a",3],"odd key":1,"limit":[]}"#,
        &[
            "@.apiKey: expected a text that matches ^sk-, found another",
            "@.keepTurn: expected one of the keys mode, keepTurns, share, apiKey, paths, odd key, limit, found one it does \
             not know; did you mean keepTurns?",
            "@.keepTurns: expected at least 1, found 0",
            "@.limit: expected an integer or \"none\", found a list of 0",
            "@.mode: expected a value, found none",
            "@.paths[1]: expected a text, found 3",
            "@.share: expected a number, found \"half\"",
            "@[\"odd key\"]: expected null or true or false, found 1",
        ],
    );
    check(WINDOW, "7", &["@: expected an object, found 7"]);
    check(
        WINDOW,
        r#"{"mode":"slow","paths":["a","a"],"keepTurns":1.5}"#,
        &[
            "@.keepTurns: expected an integer, found 1.5",
            "@.mode: expected \"fast\" or \"careful\" or 3, found \"slow\"",
            "@.paths: expected items that differ, found two that are the same",
        ],
    );
    check("false", "{}", &["@: expected nothing, found an object"]);
    let two = r#"{"oneOf":[{"required":["a"]},{"properties":{"b":{"type":"null"}}}]}"#;
    check(two, r#"{"b":1}"#, &["@: expected one of the 2 ways the plugin's schema has to write it, found an object"]);
}

#[test]
fn a_missing_configuration_counts_as_an_empty_one() {
    let faults = faults(&json(WINDOW), "x", None).expect("a schema");
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].place, "plugins.entries.x.config.mode");
}

#[test]
fn a_long_text_and_one_that_steers_a_terminal_are_not_shown() {
    let long = json(r#"{"properties":{"a":{"type":"integer"}}}"#);
    let fault =
        |text: &str| faults(&long, "x", Some(&serde_json::json!({ "a": text }))).expect("a schema")[0].found.clone();
    assert_eq!(fault("sk-0123456789abcdef0123"), "a text of 23 characters");
    assert_eq!(fault("\u{202e}12"), "\"\\u{202e}12\"");
}

#[test]
fn both_drafts_are_read_as_they_are_meant() {
    let of = |draft: &str, rest: &str| format!(r#"{{"$schema":"{draft}",{rest}}}"#);
    let seven = "http://json-schema.org/draft-07/schema#";
    let tuple = r#""properties":{"a":{"items":[{"type":"string"}],"additionalItems":false}}"#;
    check(
        &of(seven, tuple),
        r#"{"a":[1,2]}"#,
        &["@.a: expected at most 1 items, found a list of 2", "@.a[0]: expected a text, found 1"],
    );
    let newest = "https://json-schema.org/draft/2020-12/schema";
    let tuple = r#""properties":{"a":{"prefixItems":[{"type":"string"}]}}"#;
    check(&of(newest, tuple), r#"{"a":[1,2]}"#, &["@.a[0]: expected a text, found 1"]);
    check(
        r##"{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"},"b":{"$ref":"#/$defs/n"}}}"##,
        r#"{"a":"1","b":2}"#,
        &["@.a: expected an integer, found \"1\""],
    );
}

#[track_caller]
fn refused(schema: &str, expected: &str) {
    assert_eq!(super::check(&json(schema)).expect_err("refused"), expected, "{schema}");
}

#[test]
fn a_schema_that_is_none_is_refused_with_the_place() {
    refused(
        r#"{"properties":{"keepTurns":{"type":"whole number"}}}"#,
        "configSchema/properties/keepTurns/type: \"whole number\" is not valid under any of the schemas listed in the \
         'anyOf' keyword",
    );
    refused(r#"{"properties":{"a":{"pattern":"("}}}"#, "configSchema/properties/a/pattern: \"(\" is not a \"regex\"");
    refused("[]", "configSchema: [] is not of types \"boolean\", \"object\"");
    refused(
        r#"{"$schema":"http://json-schema.org/draft-04/schema#"}"#,
        "configSchema/$schema: expected http://json-schema.org/draft-07/schema or \
         https://json-schema.org/draft/2020-12/schema, found \"http://json-schema.org/draft-04/schema#\"",
    );
}

#[test]
fn nothing_is_fetched_and_nothing_leads_back_to_itself() {
    for elsewhere in ["https://host.example/schema.json", "file:///etc/passwd", "other.json#/a", "#anchor"] {
        refused(
            &format!(r##"{{"properties":{{"a":{{"$ref":"{elsewhere}"}}}}}}"##),
            &format!(
                "configSchema/properties/a/$ref: expected a part of this schema such as `#/$defs/x`, found \
                 \"{elsewhere}\""
            ),
        );
    }
    refused(r##"{"$ref":"#/$defs/a"}"##, "configSchema/$ref: nothing stands at \"#/$defs/a\"");
    let circle = "\"#\" leads back to itself; write out how deep it goes";
    refused(r##"{"properties":{"a":{"$ref":"#"}}}"##, &format!("configSchema/properties/a/$ref: {circle}"));
    refused(r##"{"$dynamicRef":"#a"}"##, "configSchema/$dynamicRef: expected `$ref` with `#/…`");
    refused(
        r##"{"properties":{"a":{"$id":"https://host.example/b"}}}"##,
        "configSchema/properties/a/$id: only the whole schema may have an `$id`; leave it out",
    );
    check(r##"{"properties":{"$ref":{"type":"string"},"$id":{"enum":[{"$ref":"x"}]}}}"##, r#"{"$ref":"a"}"#, &[]);
}

#[test]
fn a_short_schema_that_would_take_for_ever_is_refused() {
    let twice = |next: &str| format!(r##"{{"allOf":[{{"$ref":"#/$defs/{next}"}},{{"$ref":"#/$defs/{next}"}}]}}"##);
    let parts: Vec<String> = (0..40).map(|n| format!(r#""a{n}":{}"#, twice(&format!("a{}", n + 1)))).collect();
    let schema = format!(r##"{{"$ref":"#/$defs/a0","$defs":{{{},"a40":{{}}}}}}"##, parts.join(","));
    let said = super::check(&json(&schema)).expect_err("refused");
    assert!(said.ends_with("it comes to more than 20000 places, references followed; shorten it"), "{said}");
    // In a part that looks like data, too.
    let hidden = schema.replacen("$defs", "properties", 1).replace("$defs", "properties").replace("a0", "enum");
    assert!(super::check(&json(&hidden)).is_err());
    let links = || (0..200).map(|n| format!(r##""a{n}":{{"$ref":"#/$defs/a{}"}}"##, n + 1));
    // Whether its end is looked at first or last.
    for chain in [links().collect::<Vec<String>>(), links().rev().collect()] {
        let schema = format!(r##"{{"$defs":{{"a200":{{}},{}}}}}"##, chain.join(","));
        let said = super::check(&json(&schema)).expect_err("refused");
        assert!(said.ends_with("it is deeper than 128 levels, references followed; flatten it"), "{said}");
    }
    // A pattern that tries again and again gives up.
    let pattern = r#"{"properties":{"a":{"pattern":"^(?=(a+)+$)(a|aa)+\\1b$"}}}"#;
    let config = format!(r#"{{"a":"{}"}}"#, "a".repeat(60));
    assert_eq!(faults(&json(pattern), "x", Some(&json(&config))).expect("a schema").len(), 1);
}
