//! Replies in every shape: what came in, and what was made of it.

use context_engine_runtime::model::openai::OpenAiConfig;
use regex::Regex;
use tokio::runtime::{Builder, Runtime};

use crate::server::{Answer, Server};
use crate::{ask, config, question};

/// One event.
fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

/// One event with a piece of the first choice.
pub(crate) fn delta(piece: &str) -> String {
    data(&format!(r#"{{"object":"chat.completion.chunk","model":"asked","choices":[{{"index":0,"delta":{piece}}}]}}"#))
}

/// The end of the first choice.
pub(crate) fn finish(reason: &str) -> String {
    data(&format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":{reason}}}]}}"#))
}

pub(crate) const DONE: &str = "data: [DONE]\n\n";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Each case: events, and what comes of them. An id that was made up is shown as `made-up`.
#[track_caller]
pub(crate) fn check(cases: &[(&str, Vec<String>, &str)]) {
    let runtime = runtime();
    for (name, events, expected) in cases {
        let answer = events.iter().fold(Answer::stream(), |answer, event| answer.chunk(event)).end();
        expect(&runtime, name, answer, expected);
    }
}

#[track_caller]
fn expect(runtime: &Runtime, name: &str, answer: Answer, expected: &str) {
    let server = Server::new([answer]);
    let config = OpenAiConfig { max_retries: 0, ..config(&server) };
    let told = runtime.block_on(ask(config, &question()));
    let made_up = Regex::new("call_[0-9a-f]+_[0-9a-f]+").expect("a pattern");
    assert_eq!(made_up.replace_all(&told, "made-up"), expected, "{name}");
}

#[test]
fn text_and_reasoning() {
    check(&[
        (
            "as OpenAI sends it",
            vec![
                delta(r#"{"role":"assistant","content":"","refusal":null}"#),
                delta(r#"{"content":"Hel"}"#),
                delta(r#"{"content":"lo"}"#),
                finish(r#""stop""#),
                data(
                    r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":64}}}"#,
                ),
                DONE.into(),
            ],
            "+\"Hel\"\n+\"lo\"\nstop: [\"Hello\"] | 36+20 read 64 written 0",
        ),
        (
            "nulls everywhere",
            vec![
                data(
                    r#"{"id":null,"model":null,"error":null,"usage":null,"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":null,"function_call":null,"reasoning":null},"finish_reason":null,"logprobs":null}]}"#,
                ),
                delta(r#"{"content":"a"}"#),
                data(r#"{"choices":[{"index":0,"delta":null,"finish_reason":"stop"}],"usage":null}"#),
            ],
            "+\"a\"\nstop: [\"a\"]",
        ),
        (
            "reasoning in each of its names, said twice in one piece",
            vec![
                delta(r#"{"reasoning_content":"one "}"#),
                delta(r#"{"reasoning":"two ","reasoning_content":"two ","content":""}"#),
                delta(r#"{"reasoning":"three"}"#),
                delta(r#"{"content":"done"}"#),
                finish(r#""stop""#),
                DONE.into(),
            ],
            "~\"one \"\n~\"two \"\n~\"three\"\n+\"done\"\nstop: [~\"one two three\", \"done\"]",
        ),
        (
            "content as parts",
            vec![
                delta(r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#),
                delta(r#"{"content":[{"type":"text","text":"yes"}]}"#),
                finish(r#""stop""#),
            ],
            "~\"hm\"\n+\"yes\"\nstop: [~\"hm\", \"yes\"]",
        ),
        (
            "usage in every piece, and in the choice",
            vec![
                data(r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#),
                data(
                    r#"{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":7}}]}"#,
                ),
            ],
            "+\"a\"\nstop: [\"a\"] | 9+7 read 0 written 0",
        ),
        (
            "another model answers",
            vec![data(r#"{"model":"asked-2026","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#)],
            "+\"a\"\nstop: [\"a\"] | by asked-2026",
        ),
        ("nothing said", vec![delta(r#"{"role":"assistant"}"#), finish(r#""stop""#), DONE.into()], "stop: []"),
    ]);
}

#[test]
fn ends() {
    let said = || delta(r#"{"content":"a"}"#);
    check(&[
        ("[DONE] alone", vec![said(), DONE.into()], "+\"a\"\nstop: [\"a\"]"),
        ("a reason alone", vec![said(), finish(r#""stop""#)], "+\"a\"\nstop: [\"a\"]"),
        ("another word for it", vec![said(), finish(r#""eos""#)], "+\"a\"\nstop: [\"a\"]"),
        ("length", vec![said(), finish(r#""length""#), DONE.into()], "+\"a\"\nlength: [\"a\"]"),
        (
            "neither: a stream that was cut",
            vec![said()],
            "+\"a\"\nInterrupted: the stream ended before the reply did | [\"a\"]",
        ),
        ("nothing at all", vec![], "Interrupted: the stream ended before the reply did | []"),
        (
            "filtered",
            vec![said(), finish(r#""content_filter""#), DONE.into()],
            "+\"a\"\nRefused: the reply ended with \"content_filter\": the provider filters it | [\"a\"]",
        ),
        (
            "refused in words",
            vec![delta(r#"{"refusal":"I can't "}"#), delta(r#"{"refusal":"do that."}"#), finish(r#""stop""#)],
            "Refused: I can't do that. | []",
        ),
        (
            "an error as the reason",
            vec![said(), finish(r#""error""#)],
            "+\"a\"\nInterrupted: the reply ended with \"error\" | [\"a\"]",
        ),
        (
            "over the window, found out late",
            vec![
                data(r#"{"choices":[],"usage":{"prompt_tokens":9000}}"#),
                finish(r#""model_context_window_exceeded""#),
            ],
            "Overflow 9000: the reply ended with \"model_context_window_exceeded\" | []",
        ),
        (
            "the window was full in the middle of a reply",
            vec![said(), finish(r#""model_context_window_exceeded""#)],
            "+\"a\"\nlength: [\"a\"]",
        ),
        (
            "of several choices the first",
            vec![
                data(r#"{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}"#),
                data(r#"{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}"#),
                finish(r#""stop""#),
            ],
            "+\"yes\"\nstop: [\"yes\"]",
        ),
    ]);
}

#[test]
fn errors_in_the_middle() {
    let said = || delta(r#"{"content":"a"}"#);
    check(&[
        (
            "an error object",
            vec![said(), data(r#"{"error":{"code":502,"message":"Provider disconnected"}}"#)],
            "+\"a\"\nInterrupted: HTTP 502: Provider disconnected | [\"a\"]",
        ),
        (
            "an error object beside a choice",
            vec![
                said(),
                data(
                    r#"{"error":{"code":"server_error","message":"gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
                ),
            ],
            "+\"a\"\nInterrupted: gone | [\"a\"]",
        ),
        (
            "an overflow in place of a reply",
            vec![data(
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 5 maximum"}}"#,
            )],
            "Overflow 9: prompt is too long: 9 tokens > 5 maximum | []",
        ),
        (
            "an error that names itself so",
            vec![data(r#"{"object":"error","message":"odd","code":400}"#)],
            "Failed: HTTP 400: odd | []",
        ),
        (
            "an event of errors",
            vec![said(), "event: error\ndata: upstream overloaded\n\n".into()],
            "+\"a\"\nInterrupted: upstream overloaded | [\"a\"]",
        ),
        (
            "a list of errors",
            vec![data(r#"[{"error":{"code":429,"message":"Please retry in 3s","status":"RESOURCE_EXHAUSTED"}}]"#)],
            "RateLimited 3s: HTTP 429: Please retry in 3s | []",
        ),
        (
            "a piece that cannot be read",
            vec![said(), data(r#"{"choices":[{"del"#)],
            "+\"a\"\nFailed: a piece of the stream cannot be read: {\"choices\":[{\"del | [\"a\"]",
        ),
        (
            "a call is kept when it is whole",
            vec![
                delta(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"read","arguments":"{"}}]}"#,
                ),
                data(r#"{"error":{"code":502,"message":"gone"}}"#),
            ],
            "Unavailable: HTTP 502: gone | [a read {}]",
        ),
    ]);
}

#[test]
fn framing() {
    let runtime = runtime();
    let plain = format!("{}{}{}{DONE}", delta(r#"{"content":"a€"}"#), delta(r#"{"content":"ñ"}"#), finish(r#""stop""#));
    let expected = "+\"a€\"\n+\"ñ\"\nstop: [\"a€ñ\"]";
    let one = |bytes: &str| Answer::stream().chunk(bytes).end();
    let bytewise = plain.as_bytes().iter().fold(Answer::stream(), |answer, byte| answer.chunk([*byte])).end();
    let without_last_line = plain.replace(DONE, "").trim_end().to_owned();
    for (name, answer) in [
        ("in one chunk", one(&plain)),
        ("a byte at a time: characters are cut", bytewise),
        ("CRLF", one(&plain.replace('\n', "\r\n"))),
        ("CR", one(&plain.replace('\n', "\r"))),
        ("no space behind the colon", one(&plain.replace("data: ", "data:"))),
        ("a byte order mark", one(&format!("\u{feff}{plain}"))),
        ("signs of life", one(&format!(": working\n\n\n\n: still\n{}", plain.replace("\n\n", "\n\n: alive\n\n")))),
        ("signs of life under a name", one(&format!("event: ping\ndata: alive\n\ndata:\n\n{plain}"))),
        ("names and numbers of events", one(&plain.replace("data: ", "event: message\nid: 7\nretry: 3\ndata: "))),
        ("an event on several lines", one(&plain.replace("\"choices\"", "\ndata: \"choices\""))),
        ("no empty line behind the last event", one(&without_last_line)),
        (
            "another content type",
            Answer::raw(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{plain}",
                plain.len()
            )),
        ),
        ("until the connection closes", Answer::raw(format!("HTTP/1.1 200 OK\r\n\r\n{plain}"))),
        ("open after [DONE]", Answer::stream().chunk(&plain).until_closed()),
    ] {
        expect(&runtime, name, answer, expected);
    }
}

#[test]
fn servers_that_do_not_stream() {
    let runtime = runtime();
    let whole = r#"{"id":"x","object":"chat.completion","model":"asked","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{\"x\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
    let expected = "~\"hm\"\n+\"Hi\"\n!a read\ntoolUse: [~\"hm\", \"Hi\", a read {\"x\":1}] | 5+2 read 0 written 0";
    let (start, end) = whole.split_at(100);
    for (name, answer, expected) in [
        ("one body", Answer::json(whole), expected),
        ("white space and a mark before it", Answer::json(&format!("\u{feff} \r\n {whole}")), expected),
        ("called a stream", Answer::stream().chunk(start).chunk(end).end(), expected),
        (
            "no usage, no reason, null for a text",
            Answer::json(r#"{"choices":[{"message":{"role":"assistant","content":null}}]}"#),
            "stop: []",
        ),
        ("no choices", Answer::json(r#"{"choices":[]}"#), "Failed: the answer holds no reply: {\"choices\":[]} | []"),
        (
            "an error in it",
            Answer::json(r#"{"error":"model is loading, unavailable"}"#),
            "Unavailable: model is loading, unavailable | []",
        ),
        (
            "filtered",
            Answer::json(r#"{"choices":[{"message":{"content":"a"},"finish_reason":"content_filter"}]}"#),
            "+\"a\"\nRefused: the reply ended with \"content_filter\": the provider filters it | [\"a\"]",
        ),
        (
            "half of it",
            Answer::json(&whole[..40]),
            "Failed: the answer cannot be read: EOF while parsing a string at line 1 column 40: {\"id\":\"x\",\"object\":\"chat.completion\",\"mo | []",
        ),
        (
            "a web page",
            Answer::status(200, "Content-Type: text/html\r\n", "<!doctype html><p>Welcome"),
            "Failed: answered with a web page; baseUrl should be what stands before /chat/completions | []",
        ),
    ] {
        expect(&runtime, name, answer, expected);
    }
}

#[test]
fn a_connection_that_breaks() {
    let runtime = runtime();
    let said = delta(r#"{"content":"a"}"#);
    let broke = "the connection broke: error reading a body from connection: unexpected EOF during chunk size line";
    for (name, answer, expected) in [
        ("between chunks", Answer::stream().chunk(&said), format!("+\"a\"\nInterrupted: {broke} | [\"a\"]")),
        (
            "in a chunk",
            Answer::stream().chunk(&said).half_a_chunk(&said),
            format!(
                "+\"a\"\n+\"a\"\nInterrupted: {} | [\"aa\"]",
                broke.replace("unexpected EOF during chunk size line", "end of file before message length reached")
            ),
        ),
        (
            "before a body of known length is whole",
            Answer::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{said}")),
            format!(
                "+\"a\"\nInterrupted: {} | [\"a\"]",
                broke.replace("unexpected EOF during chunk size line", "end of file before message length reached")
            ),
        ),
    ] {
        expect(&runtime, name, answer, &expected);
    }
}
