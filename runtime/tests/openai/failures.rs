//! What is asked again and what is not, how long is waited, what a cancel does.

use std::net::TcpListener;
use std::task::Poll;
use std::time::{Duration, Instant};

use context_engine_runtime::Secret;
use context_engine_runtime::model::openai::{OpenAiConfig, OpenAiModel};
use context_engine_runtime::model::{Model, ModelErrorKind, ModelEvent};

use crate::server::{Answer, Server};
use crate::{ask, config, question};

const HELLO: &str = r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}"#;

fn said(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

#[tokio::test]
async fn what_passes_is_asked_again_until_it_answers() {
    for (name, answers, expected) in [
        ("429", vec![Answer::status(429, "", "slow down")], "retry 1 (HTTP 429: slow down)"),
        ("500", vec![Answer::status(500, "", "oops")], "retry 1 (HTTP 500: oops)"),
        ("502", vec![Answer::status(502, "", "<title>Bad Gateway</title>")], "retry 1 (HTTP 502: Bad Gateway)"),
        ("503", vec![Answer::status(503, "", "")], "retry 1 (HTTP 503: the provider says no more)"),
        ("504", vec![Answer::status(504, "", "late")], "retry 1 (HTTP 504: late)"),
        ("529", vec![Answer::status(529, "", "overloaded")], "retry 1 (HTTP 529: overloaded)"),
        (
            "three in a row",
            vec![Answer::status(500, "", "a"), Answer::status(503, "", "b"), Answer::status(429, "", "c")],
            "retry 1 (HTTP 500: a)\nretry 2 (HTTP 503: b)\nretry 3 (HTTP 429: c)",
        ),
        (
            "a stream that says nothing",
            vec![Answer::stream().chunk(": alive\n\n").end()],
            "retry 1 (the stream ended before the reply did)",
        ),
        (
            "an error in place of a stream",
            vec![Answer::stream().chunk("data: {\"error\":{\"code\":503,\"message\":\"busy\"}}\n\n").end()],
            "retry 1 (HTTP 503: busy)",
        ),
    ] {
        let server = Server::new(answers.into_iter().chain([Answer::json(HELLO)]));
        let told = ask(config(&server), &question()).await;
        assert_eq!(told, format!("{expected}\n+\"hello\"\nstop: [\"hello\"]"), "{name}");
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_without_an_answer_is_made_again() {
    let server = Server::new([Answer::raw(""), Answer::json(HELLO)]);
    let told = ask(config(&server), &question()).await;
    assert!(told.starts_with("retry 1 (127.0.0.1: ") && told.ends_with("stop: [\"hello\"]"), "{told}");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn nobody_listens() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let config = OpenAiConfig {
        max_retries: 2,
        backoff: Duration::from_millis(1),
        ..OpenAiConfig::new(format!("http://{address}"), "m")
    };
    let told = ask(config, &question()).await;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[1].starts_with("retry 2 (127.0.0.1: ") && lines[1].contains("refused"), "{told}");
    assert!(lines[2].starts_with("Unavailable: 127.0.0.1: ") && lines[2].contains("refused"), "{told}");
}

#[tokio::test]
async fn what_does_not_pass_is_asked_once() {
    for (status, body, expected) in [
        (400, r#"{"error":{"message":"no such field"}}"#, "Failed: HTTP 400: no such field | []"),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 5 tokens. However, your messages resulted in 9 tokens."}}"#,
            "Overflow 9: HTTP 400: This model's maximum context length is 5 tokens. However, your messages resulted in 9 tokens. | []",
        ),
        (401, "", "Unauthorized: HTTP 401: the provider says no more | []"),
        (402, "pay", "Unauthorized: HTTP 402: pay | []"),
        (403, "no", "Unauthorized: HTTP 403: no | []"),
        (404, "what", "Failed: HTTP 404: what | []"),
        (413, "big", "RequestTooLarge: HTTP 413: big | []"),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}"#,
            "Unauthorized: HTTP 429: You exceeded your current quota. | []",
        ),
        (
            429,
            r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 30000, Requested 34307.","type":"tokens","code":"rate_limit_exceeded"}}"#,
            "RequestTooLarge: HTTP 429: Request too large for m on tokens per min (TPM): Limit 30000, Requested 34307. | []",
        ),
        (501, "never", "Failed: HTTP 501: never | []"),
    ] {
        let server = Server::new([Answer::status(status, "", body)]);
        assert_eq!(ask(config(&server), &question()).await, expected, "{status} {body}");
        assert_eq!(server.asked().len(), 1, "{status} {body}");
    }
}

#[tokio::test]
async fn it_is_asked_no_more_often_than_configured() {
    for retries in [0, 1, 3] {
        let server = Server::new([Answer::status(503, "", "down")]);
        let told = ask(OpenAiConfig { max_retries: retries, ..config(&server) }, &question()).await;
        assert!(told.ends_with("Unavailable: HTTP 503: down | []"), "{told}");
        assert_eq!(server.asked().len(), 1 + retries as usize);
    }
    assert_eq!(OpenAiConfig::new("http://h", "m").max_retries, 4);
}

#[tokio::test]
async fn after_the_first_words_nothing_is_asked_again() {
    for (name, answer) in [
        ("broken", Answer::stream().chunk(said("a"))),
        ("ended", Answer::stream().chunk(said("a")).end()),
        (
            "refused",
            Answer::stream().chunk(said("a")).chunk("data: {\"error\":{\"code\":503,\"message\":\"x\"}}\n\n").end(),
        ),
    ] {
        let server = Server::new([answer, Answer::json(HELLO)]);
        let told = ask(config(&server), &question()).await;
        assert!(told.starts_with("+\"a\"\nInterrupted: ") && told.ends_with(" | [\"a\"]"), "{name}: {told}");
        assert_eq!(server.asked().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_provider_that_says_when_is_asked_then() {
    let server = Server::new([Answer::status(429, "Retry-After-Ms: 150\r\n", "slow"), Answer::json(HELLO)]);
    let begun = Instant::now();
    assert!(ask(config(&server), &question()).await.ends_with("stop: [\"hello\"]"));
    assert!(begun.elapsed() >= Duration::from_millis(150));

    // Later than a minute, or than the reply may take: the person is told now.
    for wait in ["3600", "30"] {
        let server = Server::new([Answer::status(429, &format!("Retry-After: {wait}\r\n"), "slow")]);
        let told = ask(config(&server), &question()).await;
        assert_eq!(told, format!("RateLimited {wait}s: HTTP 429: slow | []"));
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn silence_and_slowness_end_in_a_timeout() {
    let brief = Duration::from_millis(150);
    for (name, idle, whole, answer, expected) in [
        (
            "silence before anything",
            brief,
            brief * 20,
            Answer::raw("").until_closed(),
            "Timeout: nothing came in for 0.15 s | []",
        ),
        (
            "silence in the middle",
            brief,
            brief * 20,
            Answer::stream().chunk(said("a")).until_closed(),
            "+\"a\"\nTimeout: nothing came in for 0.15 s | [\"a\"]",
        ),
        (
            "words, and no end",
            brief * 20,
            brief,
            Answer::stream().chunk(said("a")).until_closed(),
            "+\"a\"\nTimeout: no whole reply within 0.15 s | [\"a\"]",
        ),
    ] {
        let server = Server::new([answer]);
        let config = OpenAiConfig { idle_timeout: idle, timeout: whole, ..config(&server) };
        assert_eq!(ask(config, &question()).await, expected, "{name}");
        assert_eq!(server.asked().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_shows_signs_of_life_may_take_its_time() {
    let alive = (0..10).fold(Answer::stream(), |answer, _| answer.chunk(": working\n\n").pause(40));
    let server = Server::new([alive.chunk(said("a")).chunk("data: [DONE]\n\n").end()]);
    let config = OpenAiConfig { idle_timeout: Duration::from_millis(250), ..config(&server) };
    assert_eq!(ask(config, &question()).await, "+\"a\"\nstop: [\"a\"]");
}

#[tokio::test]
async fn a_turn_that_is_taken_back_closes_the_connection() {
    for answer in [Answer::raw("").until_closed(), Answer::stream().chunk(said("a")).until_closed()] {
        let server = Server::new([answer]);
        let model = OpenAiModel::new(config(&server)).expect("a client");
        let request = question();
        let mut events = |_: ModelEvent<'_>| {};
        let reply = model.respond(&request, &mut events);
        assert!(tokio::time::timeout(Duration::from_millis(150), reply).await.is_err(), "it has not answered");
        let closed = tokio::task::spawn_blocking(move || server.was_closed(Duration::from_secs(3))).await;
        assert!(closed.expect("no panic"));
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let done = Answer::stream().chunk(said("a")).chunk("data: [DONE]\n\n").end().keep();
    let server = Server::new([done.clone(), done, Answer::json(HELLO).keep()]);
    let model = OpenAiModel::new(config(&server)).expect("a client");
    for _ in 0..3 {
        assert!(model.respond(&question(), &mut |_| {}).await.is_ok());
    }
    assert_eq!((server.asked().len(), server.connections()), (3, 1));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::new([Answer::json(HELLO)]);
    let location = format!("Location: {}\r\n", other.url());
    let server = Server::new([Answer::status(307, &location, "")]);
    let told = ask(config(&server), &question()).await;
    assert_eq!(told, format!("Failed: HTTP 307: sent on to {}; if that is right, set baseUrl to it | []", other.url()));
    assert_eq!((server.asked().len(), other.asked().len()), (1, 0));
}

#[tokio::test]
async fn a_key_that_the_provider_tells_back_is_hidden() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-secret-key, team secret-team."}}"#;
    let server = Server::new([Answer::status(401, "", body)]);
    let mut config = config(&server);
    config.api_key = Some(Secret::new("sk-secret-key"));
    config.headers.insert("X-Team".to_owned(), Secret::new("secret-team"));
    let told = ask(config, &question()).await;
    assert_eq!(told, "Unauthorized: HTTP 401: Incorrect API key provided: ***, team ***. | []");
}

#[tokio::test]
async fn a_server_without_encryption_where_some_is_expected() {
    let server = Server::new([Answer::json(HELLO)]);
    let mut config = OpenAiConfig { max_retries: 1, ..config(&server) };
    config.base_url = server.url().replace("http://", "https://");
    let model = OpenAiModel::new(config);
    // A machine without certificates says so, and asks nobody.
    let Ok(model) = model else {
        assert!(model.expect_err("refused").to_string().contains("TLS: "));
        return;
    };
    let error = model.respond(&question(), &mut |_| {}).await.expect_err("no handshake");
    assert_eq!(error.kind, ModelErrorKind::Unavailable, "{error}");
}

#[test]
fn outside_of_a_runtime_it_says_what_is_missing() {
    let server = Server::new([Answer::json(HELLO)]);
    let model = OpenAiModel::new(config(&server)).expect("a client");
    let request = question();
    let mut events = |_: ModelEvent<'_>| {};
    let mut reply = model.respond(&request, &mut events);
    let Poll::Ready(outcome) = reply.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    else {
        panic!("it waits")
    };
    let error = outcome.expect_err("no runtime");
    assert!(error.text.contains("Tokio runtime"), "{error}");
}
