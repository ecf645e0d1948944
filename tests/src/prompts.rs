//! The rules every prompt keeps, said a second time.
//!
//! Decision: a port of `checker/check_prompts.py`, which reads prompts as a provider would, and on purpose no use of the
//! host's own rules: what checks and what is checked must not share a mistake. The token count is the project's own, as
//! the budget is meant in it, without the frames it adds to messages.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use context_engine_transcript::TokenCounter;
use serde_json::Value;

/// A picture's cost, whatever its size.
const IMAGE_TOKENS: u64 = 2_000;

/// What is wrong with a dumped prompt (`{"system": …, "messages": […]}`), one line each; messages are counted from 0.
pub fn check_prompt(prompt: &Value, budget: u64) -> Vec<String> {
    let Some(messages) = prompt["messages"].as_array() else {
        return vec!["not an object with a `messages` list".into()];
    };
    let mut found = Vec::new();
    if messages.is_empty() {
        found.push("no messages".into());
    }
    if !matches!(prompt["system"], Value::Null | Value::String(_) | Value::Array(_)) {
        found.push("`system` is neither text nor a list of blocks".into());
    }
    for (at, message) in messages.iter().enumerate() {
        found.extend(check_message(message).into_iter().map(|text| format!("message {at}: {text}")));
    }
    check_sequence(messages, &mut found);
    let tokens = prompt_tokens(prompt, messages);
    if tokens > budget {
        found.push(format!("{tokens} tokens, budget {budget}"));
    }
    found
}

/// The content as a list of blocks; `None` when it is neither text nor a list of objects.
fn blocks_of(content: &Value) -> Option<Cow<'_, [Value]>> {
    match content {
        Value::String(text) => Some(vec![serde_json::json!({ "type": "text", "text": text })].into()),
        Value::Array(blocks) if blocks.iter().all(Value::is_object) => Some(blocks.as_slice().into()),
        _ => None,
    }
}

/// What is wrong with one message on its own.
fn check_message(message: &Value) -> Vec<String> {
    if !message.is_object() {
        return vec!["not an object".into()];
    }
    let mut found = Vec::new();
    let role = message["role"].as_str().unwrap_or_default();
    if !["user", "assistant", "toolResult"].contains(&role) {
        found.push(format!("unknown role {}", message["role"]));
    }
    let Some(blocks) = blocks_of(&message["content"]) else {
        found.push("content is neither text nor a list of blocks".into());
        return found;
    };
    if blocks.is_empty() || (role != "toolResult" && blocks.iter().all(is_blank)) {
        found.push(format!("{role} message without content"));
    }
    for block in blocks.iter().filter(|block| block["type"] == "toolCall") {
        if role != "assistant" {
            found.push(format!("{role} message holds a tool call"));
        }
        let named = |key: &str| block[key].as_str().is_some_and(|text| !text.is_empty());
        if !named("id") {
            found.push("tool call without an id".into());
        }
        if !named("name") {
            found.push(format!("tool call {} without a name", block["id"]));
        }
        if !block["arguments"].is_object() {
            found.push(format!("tool call {} without an arguments object", block["id"]));
        }
    }
    if role == "toolResult" && !message["toolCallId"].is_string() {
        found.push("tool result without a toolCallId".into());
    }
    found
}

fn is_blank(block: &Value) -> bool {
    let kind = block["type"].as_str().unwrap_or_default();
    matches!(kind, "text" | "thinking") && block[kind].as_str().unwrap_or_default().trim().is_empty()
}

fn call_ids(message: &Value) -> Vec<String> {
    if message["role"] != "assistant" {
        return Vec::new();
    }
    let blocks = blocks_of(&message["content"]).unwrap_or_default();
    let calls = blocks.iter().filter(|block| block["type"] == "toolCall");
    calls.map(|block| block["id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Pairs, repeats and the end of a prompt.
fn check_sequence(messages: &[Value], found: &mut Vec<String>) {
    let (mut called, mut answered) = (BTreeSet::new(), BTreeSet::new());
    // Calls of the assistant message before that are not answered yet.
    let (mut waiting, mut asked_at): (Vec<String>, usize) = (Vec::new(), 0);
    let unanswered = |waiting: &[String], at: usize| {
        (!waiting.is_empty()).then(|| format!("message {at}: calls without a result directly after: {waiting:?}"))
    };
    for (at, message) in messages.iter().enumerate() {
        if at > 0 && *message == messages[at - 1] {
            found.push(format!("message {at}: same as the message before"));
        }
        if message["role"] == "toolResult" {
            let call = message["toolCallId"].as_str().unwrap_or_default().to_owned();
            let expected = waiting.iter().position(|id| *id == call).map(|at| waiting.remove(at)).is_some();
            if answered.contains(&call) {
                found.push(format!("message {at}: second result for call {call:?}"));
            } else if !expected && called.contains(&call) {
                found.push(format!("message {at}: result for call {call:?} does not follow it directly"));
            } else if !expected {
                found.push(format!("message {at}: result for call {call:?}, which is not before it"));
            }
            answered.insert(call);
            continue;
        }
        found.extend(unanswered(&waiting, asked_at));
        (waiting, asked_at) = (call_ids(message), at);
        for call in &waiting {
            if !called.insert(call.clone()) {
                found.push(format!("message {at}: call id {call:?} a second time"));
            }
        }
    }
    found.extend(unanswered(&waiting, asked_at));
    if messages.last().is_some_and(|last| last["role"] == "assistant") {
        found.push("ends in an assistant message".into());
    }
}

fn prompt_tokens(prompt: &Value, messages: &[Value]) -> u64 {
    let contents = [&prompt["system"]].into_iter().chain(messages.iter().map(|message| &message["content"]));
    contents.filter_map(blocks_of).map(|blocks| blocks.iter().map(block_tokens).sum::<u64>()).sum()
}

fn block_tokens(block: &Value) -> u64 {
    let text = |key: &str| count(block[key].as_str().unwrap_or_default());
    match block["type"].as_str().unwrap_or_default() {
        "image" => IMAGE_TOKENS,
        "toolCall" => text("name") + count(&block["arguments"].to_string()),
        kind @ ("text" | "thinking") => text(kind),
        _ => count(&block.to_string()),
    }
}

/// Tokens of `text`. Remembered: the prompts of a session repeat most of their texts.
fn count(text: &str) -> u64 {
    thread_local! {
        static COUNTED: RefCell<HashMap<String, u64>> = RefCell::default();
    }
    COUNTED.with_borrow_mut(|counted| match counted.get(text) {
        Some(&tokens) => tokens,
        None => *counted.entry(text.to_owned()).or_insert(TokenCounter::for_model(None).text(text)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Messages from words: `u` and `a` texts, `a:c1,c2` calls, `r:c1` a result.
    fn prompt(words: &str) -> Value {
        let message = |(number, word): (usize, &str)| match word.split_once(':') {
            Some(("a", ids)) => {
                let call = |id| json!({ "type": "toolCall", "id": id, "name": "read", "arguments": {} });
                json!({ "role": "assistant", "content": ids.split(',').map(call).collect::<Vec<_>>() })
            }
            Some(("r", id)) => json!({ "role": "toolResult", "toolCallId": id, "content": format!("result {number}") }),
            _ if word == "a" => json!({ "role": "assistant", "content": format!("reply {number}") }),
            _ if word == "u" => json!({ "role": "user", "content": format!("text {number}") }),
            _ => json!({ "role": "user", "content": word }),
        };
        let messages: Vec<Value> = words.split_whitespace().enumerate().map(message).collect();
        json!({ "system": "You help.", "messages": messages })
    }

    #[track_caller]
    fn check(words: &str, expected: &[&str]) {
        assert_eq!(check_prompt(&prompt(words), 1_000), expected, "{words}");
    }

    #[test]
    fn a_whole_prompt_is_not_complained_about() {
        check("u a:c1,c2 r:c2 r:c1 a u", &[]);
        check("u a:c1 r:c1", &[]);
    }

    #[test]
    fn each_broken_rule_is_named() {
        check("", &["no messages"]);
        check("u a", &["ends in an assistant message"]);
        check("u u same same", &["message 3: same as the message before"]);
        check("u r:c1", &["message 1: result for call \"c1\", which is not before it"]);
        check("u a:c1 u", &["message 1: calls without a result directly after: [\"c1\"]"]);
        check("u a:c1 r:c1 r:c1", &["message 3: second result for call \"c1\""]);
        check(
            "u a:c1 r:c1 a:c1 r:c1",
            &["message 3: call id \"c1\" a second time", "message 4: second result for call \"c1\""],
        );
        check(
            "u a:c1 u r:c1",
            &[
                "message 1: calls without a result directly after: [\"c1\"]",
                "message 3: result for call \"c1\" does not follow it directly",
            ],
        );
    }

    #[test]
    fn content_that_a_provider_refuses_is_named() {
        let check = |message: Value, expected: &str| {
            let found = check_prompt(&json!({ "messages": [message, { "role": "user", "content": "x" }] }), 1_000);
            assert_eq!(found, [expected]);
        };
        check(json!({ "role": "system", "content": "x" }), "message 0: unknown role \"system\"");
        check(json!({ "role": "user", "content": " " }), "message 0: user message without content");
        check(json!({ "role": "user", "content": 7 }), "message 0: content is neither text nor a list of blocks");
        check(json!("text"), "message 0: not an object");
        assert_eq!(check_prompt(&json!([]), 1), ["not an object with a `messages` list"]);
        assert_eq!(check_prompt(&prompt("u"), 3), ["6 tokens, budget 3"]);
    }
}
