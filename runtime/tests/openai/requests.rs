//! What is sent.

use std::path::Path;
use std::sync::Arc;

use context_engine_legacy::pipeline::{self, PipelineOptions};
use context_engine_runtime::config::{Compat, MaxTokensField};
use context_engine_runtime::model::openai::OpenAiConfig;
use context_engine_runtime::model::{ModelRequest, ToolSpec};
use context_engine_runtime::{Config, Secret};
use context_engine_transcript::{HistoryOptions, load};
use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::{ask, config, message, question};

fn server() -> Server {
    Server::new([Answer::json(r#"{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}"#)])
}

/// The messages that are sent for these.
async fn sent(messages: Value) -> Value {
    let server = server();
    let Value::Array(messages) = messages else { panic!("no list: {messages}") };
    let messages = messages.into_iter().map(message).collect();
    ask(config(&server), &ModelRequest { messages, ..ModelRequest::default() }).await;
    server.asked().remove(0).body["messages"].clone()
}

#[tokio::test]
async fn every_setting_is_in_the_request() {
    let server = server();
    let mut config = config(&server);
    config.base_url.push('/');
    config.api_key = Some(Secret::new("sk-1"));
    config.headers.insert("X-Team".to_owned(), Secret::new("b"));
    config.max_output_tokens = Some(500);
    let tool = ToolSpec { name: "read".into(), description: "Reads.".into(), parameters: json!({ "type": "object" }) };
    let request = ModelRequest {
        system: Some("Be brief.".into()),
        tools: Arc::new([tool]),
        max_output_tokens: Some(900),
        temperature: Some(0.5),
        ..question()
    };
    assert_eq!(ask(config, &request).await, "+\"fine\"\nstop: [\"fine\"]");
    let asked = server.asked().remove(0);
    assert_eq!(asked.line, "POST /v1/chat/completions");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-1"));
    assert_eq!((asked.header("x-team"), asked.header("content-type")), (Some("b"), Some("application/json")));
    assert!(asked.header("user-agent").is_some_and(|agent| agent.starts_with("context-engine/")));
    assert_eq!(
        asked.body,
        json!({
            "model": "asked",
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "question" },
            ],
            "stream": true,
            "stream_options": { "include_usage": true },
            "tools": [{ "type": "function",
                        "function": { "name": "read", "description": "Reads.", "parameters": { "type": "object" } } }],
            "max_tokens": 500,
            "temperature": 0.5,
        })
    );
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let server = server();
    let compat = Compat { supports_usage_in_streaming: Some(false), ..Compat::default() };
    ask(OpenAiConfig { compat, ..config(&server) }, &question()).await;
    let asked = server.asked().remove(0);
    let messages = json!([{ "role": "user", "content": "question" }]);
    assert_eq!(asked.body, json!({ "model": "asked", "messages": messages, "stream": true }));
    assert_eq!(asked.header("authorization"), None);
}

#[tokio::test]
async fn the_limit_of_a_reply_is_sent_under_the_configured_name() {
    let server = server();
    let compat = Compat { max_tokens_field: Some(MaxTokensField::MaxCompletionTokens), ..Compat::default() };
    let request = ModelRequest { max_output_tokens: Some(7), ..question() };
    ask(OpenAiConfig { compat, ..config(&server) }, &request).await;
    let body = server.asked().remove(0).body;
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(7), &Value::Null));
}

#[tokio::test]
async fn messages_in_openais_shape() {
    let given = json!([
        { "role": "user", "content": [{ "type": "text", "text": "one" }, { "type": "text", "text": "two" }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "private", "thinkingSignature": "S" },
            { "type": "text", "text": "Reading." },
            { "type": "toolCall", "id": "c1", "name": "read", "arguments": { "b": 1.50, "a": [1e3, null], "€": "ñ\n" } },
            { "type": "toolCall", "id": "c2", "name": "fs.read:all", "arguments": "{\"kept\":  1}" },
            { "type": "toolCall", "id": "c3", "name": "now" },
        ] },
        { "role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": true, "content": "no such file" },
        { "role": "toolResult", "toolCallId": "c2", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
        { "role": "toolResult", "toolCallId": "c3", "content": [] },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "nothing else" }] },
        { "role": "user", "content": [{ "type": "audio", "seconds": 3 }] },
    ]);
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let expected = json!([
        { "role": "user", "content": "one\ntwo" },
        { "role": "assistant", "content": "Reading.", "tool_calls": [
            call("c1", "read", r#"{"b":1.5,"a":[1000.0,null],"€":"ñ\n"}"#),
            call("c2", "fs_read_all", r#"{"kept":  1}"#),
            call("c3", "now", "{}"),
        ] },
        { "role": "tool", "tool_call_id": "c1", "content": "no such file" },
        { "role": "tool", "tool_call_id": "c2", "content": "a\nb" },
        { "role": "tool", "tool_call_id": "c3", "content": "(no output)" },
        { "role": "assistant", "content": "(no output)" },
        { "role": "user", "content": r#"{"type":"audio","seconds":3}"# },
    ]);
    assert_eq!(sent(given).await, expected);
}

/// Report B6: a picture in a tool's result was sent as text, or not at all.
#[tokio::test]
async fn pictures_are_sent_as_pictures_and_those_of_results_behind_them() {
    let data = "iVBORw0KGgo=";
    let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let part = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    let png = part(&format!("data:image/png;base64,{data}"));
    let given = json!([
        { "role": "user", "content": [{ "type": "text", "text": "see" }, image, { "type": "image", "url": "https://h/a.png" }] },
        { "role": "assistant", "content": [
            { "type": "toolCall", "id": "c1", "name": "shot", "arguments": {} },
            { "type": "toolCall", "id": "c2", "name": "read", "arguments": {} },
        ] },
        { "role": "toolResult", "toolCallId": "c1", "content": [image] },
        { "role": "toolResult", "toolCallId": "c2", "content": [] },
        { "role": "assistant", "content": [image, { "type": "toolCall", "id": "c3", "name": "shot", "arguments": {} }] },
        { "role": "toolResult", "toolCallId": "c3", "content": [{ "type": "text", "text": "done" }, { "type": "image", "data": "/9j/AAAA" }] },
        { "role": "user", "content": [{ "type": "text", "text": "and?" }, { "type": "image", "url": "file:///a.png" }] },
    ]);
    let calls = |ids: &[(&str, &str)]| -> Value {
        let call = |(id, name): &(&str, &str)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } });
        ids.iter().map(call).collect()
    };
    let label = json!({ "type": "text", "text": "[pictures of the tool results above]" });
    let left_out = "[picture left out: it cannot be sent from here]";
    let expected = json!([
        { "role": "user", "content": [{ "type": "text", "text": "see" }, png, part("https://h/a.png")] },
        { "role": "assistant", "content": null, "tool_calls": calls(&[("c1", "shot"), ("c2", "read")]) },
        { "role": "tool", "tool_call_id": "c1", "content": "(the picture follows)" },
        { "role": "tool", "tool_call_id": "c2", "content": "(no output)" },
        { "role": "user", "content": [label, png] },
        { "role": "assistant", "content": left_out, "tool_calls": calls(&[("c3", "shot")]) },
        { "role": "tool", "tool_call_id": "c3", "content": "done" },
        { "role": "user", "content": [
            label, part("data:image/jpeg;base64,/9j/AAAA"), { "type": "text", "text": "and?" },
            { "type": "text", "text": left_out },
        ] },
    ]);
    assert_eq!(sent(given).await, expected);
}

#[tokio::test]
async fn a_tool_whose_name_cannot_be_sent_is_called_by_its_own() {
    let body =
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"fs_read","arguments":"{}"}}]}}]}"#;
    let server = Server::new([Answer::json(body)]);
    let tool = ToolSpec { name: "fs.read".into(), description: String::new(), parameters: json!({}) };
    let request = ModelRequest { tools: Arc::new([tool]), ..question() };
    assert_eq!(ask(config(&server), &request).await, "!a fs.read\ntoolUse: [a fs.read {}]");
    assert_eq!(server.asked()[0].body["tools"][0]["function"]["name"], "fs_read");
}

#[tokio::test]
async fn a_configured_model_is_asked_as_configured() {
    let server = server();
    let file = std::env::temp_dir().join(format!("context-engine-models-{}.json5", std::process::id()));
    let text = format!(
        "{{ models: {{ providers: {{ home: {{ baseUrl: '{}', headers: {{ 'X-A': 'b' }}, timeoutSeconds: 7, \
         models: [{{ id: 'small', contextWindow: 32768, maxTokens: 99 }}] }} }} }}, agents: {{ defaults: {{ model: 'home/small' }} }} }}",
        server.url()
    );
    std::fs::write(&file, text).expect("a file");
    let config = Config::read(&file);
    std::fs::remove_file(&file).expect("removed");
    let found = config.expect("read").model(None).expect("no mistake").expect("a model");
    assert_eq!(OpenAiConfig::from(&found).timeout.as_secs(), 7);
    let model = found.open().expect("a client");
    assert_eq!((model.info().provider.as_str(), model.info().context_window), ("home", Some(32_768)));
    assert!(model.respond(&question(), &mut |_| {}).await.is_ok());
    let asked = server.asked().remove(0);
    assert_eq!((&asked.body["model"], &asked.body["max_tokens"]), (&json!("small"), &json!(99)));
    assert_eq!(asked.header("x-a"), Some("b"));
}

/// What is sent of whole recorded sessions: pairs are whole, speakers alternate, arguments are JSON.
#[tokio::test]
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
async fn recorded_sessions_are_sent_in_good_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "{}: expected the recorded sessions", folder.display());
        eprintln!("skipped: no folder {}", folder.display());
        return;
    }
    for (name, calls) in
        [("openclaw-v3-shape.jsonl", 10), ("pi-large-session.jsonl", 100), ("entire-cc-parallel.jsonl", 10)]
    {
        let imported = load(&folder.join(name)).expect(name);
        let history = imported.sessions[0].history(HistoryOptions::default());
        let (messages, _) = pipeline::run(history.messages, &PipelineOptions::default());
        let server = server();
        let request = ModelRequest { messages: pipeline::render(&messages).0, ..ModelRequest::default() };
        ask(config(&server), &request).await;
        let body = server.asked().remove(0).body;
        let (mut open, mut before, mut seen) = (Vec::<Value>::new(), Value::Null, 0);
        for message in body["messages"].as_array().expect("a list") {
            let role = &message["role"];
            if role == "tool" {
                let at = open.iter().position(|id| *id == message["tool_call_id"]);
                open.remove(at.unwrap_or_else(|| panic!("{name}: {message}")));
                assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{name}: {message}");
            } else {
                assert!(open.is_empty() && *role != before, "{name}: {message}");
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let arguments = call["function"]["arguments"].as_str().expect("a text");
                    assert!(serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()), "{call}");
                    open.push(call["id"].clone());
                    seen += 1;
                }
            }
            before = role.clone();
        }
        assert!(open.is_empty() && seen >= calls, "{name}: {seen} calls");
    }
}
