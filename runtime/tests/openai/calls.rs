//! Tool calls in every shape: the pieces, and the calls they make.

use crate::streams::{DONE, check, delta, finish};

#[test]
fn calls_are_put_together_from_whatever_a_server_sends() {
    let done = || finish(r#""tool_calls""#);
    check(&[
        (
            "in pieces, two at once",
            vec![
                delta(r#"{"content":"Reading."}"#),
                delta(
                    r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}]}"#,
                ),
                delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]}"#),
                delta(
                    r#"{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"list","arguments":"{}"}}]}"#,
                ),
                delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"p\"}"}}]}"#),
                done(),
            ],
            "+\"Reading.\"\n!a read\n!b list\ntoolUse: [\"Reading.\", a read {\"path\":\"p\"}, b list {}]",
        ),
        (
            "without an index",
            vec![
                delta(r#"{"tool_calls":[{"id":"a","function":{"name":"read","arguments":"{\"x\""}}]}"#),
                delta(r#"{"tool_calls":[{"function":{"arguments":":1}"}}]}"#),
                delta(r#"{"tool_calls":[{"id":"b","function":{"name":"read","arguments":"{}"}}]}"#),
                done(),
            ],
            "!a read\n!b read\ntoolUse: [a read {\"x\":1}, b read {}]",
        ),
        (
            "without an id",
            vec![
                delta(r#"{"tool_calls":[{"index":0,"function":{"name":"read","arguments":"{}"}}]}"#),
                delta(r#"{"tool_calls":[{"index":1,"id":"","function":{"name":"list","arguments":"{}"}}]}"#),
                done(),
            ],
            "!made-up read\n!made-up list\ntoolUse: [made-up read {}, made-up list {}]",
        ),
        (
            "with neither, and the name again in each piece",
            vec![
                delta(r#"{"tool_calls":[{"function":{"name":"read","arguments":"{\"x\""}}]}"#),
                delta(r#"{"tool_calls":[{"function":{"name":"read","arguments":":1}"}}]}"#),
                delta(r#"{"tool_calls":[{"function":{"name":"read","arguments":"{\"x\":2}"}}]}"#),
                delta(r#"{"tool_calls":[{"function":{"name":"list"}}]}"#),
                done(),
            ],
            "!made-up read\n!made-up read\n!made-up list\ntoolUse: [made-up read {\"x\":1}, made-up read {\"x\":2}, made-up list {}]",
        ),
        (
            "all under index 0, each in one piece",
            vec![
                delta(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"x\":1}"}},{"index":0,"id":"b","function":{"name":"read","arguments":"{\"x\":2}"}}]}"#,
                ),
                delta(r#"{"tool_calls":[{"index":0,"function":{"name":"list","arguments":"{}"}}]}"#),
                done(),
            ],
            "!a read\n!b read\n!made-up list\ntoolUse: [a read {\"x\":1}, b read {\"x\":2}, made-up list {}]",
        ),
        (
            "one id for two calls",
            vec![
                delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#),
                delta(r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#),
                done(),
            ],
            "!a read\n!made-up read\ntoolUse: [a read {}, made-up read {}]",
        ),
        (
            "arguments as an object, as a text in a text, as nothing, as half of one",
            vec![
                delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]}"#),
                delta(
                    r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"f","arguments":"\"{\\\"x\\\":2}\""}}]}"#,
                ),
                delta(r#"{"tool_calls":[{"index":2,"id":"c","function":{"name":"f","arguments":null}}]}"#),
                delta(r#"{"tool_calls":[{"index":3,"id":"d","function":{"name":"f","arguments":"{\"x\":"}}]}"#),
                finish(r#""length""#),
            ],
            "!a f\n!b f\n!c f\n!d f\nlength: [a f {\"x\":1}, b f {\"x\":2}, c f {}, d f {\"_raw\":\"{\\\"x\\\":\"}]",
        ),
        (
            "an empty piece at the end",
            vec![
                delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#),
                delta(r#"{"tool_calls":[{"index":1,"function":{"arguments":""}}]}"#),
                done(),
            ],
            "!a read\ntoolUse: [a read {}]",
        ),
        (
            "as functions were called before there were tools",
            vec![
                delta(r#"{"function_call":{"name":"read","arguments":"{\"x\""}}"#),
                delta(r#"{"function_call":{"arguments":":1}"}}"#),
                finish(r#""function_call""#),
            ],
            "!made-up read\ntoolUse: [made-up read {\"x\":1}]",
        ),
        (
            "ended with stop",
            vec![
                delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#),
                finish(r#""stop""#),
                DONE.into(),
            ],
            "!a read\ntoolUse: [a read {}]",
        ),
    ]);
}
