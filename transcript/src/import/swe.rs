//! SWE-agent's `.traj` files and mini-swe-agent's: chat messages beside a record of the run.
//!
//! Decision: the messages are in `history` (`messages` for mini-swe-agent). `trajectory` tells the same steps once more,
//! each with all that was sent for it, and is only counted.

use serde_json::{Map, Value};

use super::Format;
use super::openai::{self, Sessions};
use super::shape::member;

fn holds_messages(json: &Value, key: &str) -> bool {
    let messages = json.get(key).and_then(Value::as_array);
    messages.is_some_and(|list| list.iter().take(openai::LOOKED_AT).any(openai::is_message))
}

fn is_mini(json: &Value) -> bool {
    let info = json.get("info");
    let of_info = ["mini_version", "exit_status"].iter().any(|key| info.is_some_and(|info| info.get(*key).is_some()));
    holds_messages(json, "messages") && (of_info || json.get("trajectory_format").is_some())
}

fn is_agent(json: &Value) -> bool {
    let says = |json: &Value, keys: &[&str]| keys.iter().any(|key| json.get(*key).is_some());
    let messages = json.get("history").and_then(Value::as_array).into_iter().flatten().take(openai::LOOKED_AT);
    let of_messages = messages.into_iter().any(|m| says(m, &["agent", "message_type", "tool_call_ids"]));
    holds_messages(json, "history") && (of_messages || says(json, &["trajectory", "info"]))
}

pub(super) fn recognises(json: &Value) -> bool {
    is_mini(json) || is_agent(json)
}

pub(super) fn import(sessions: &mut Sessions<'_>, json: Value) -> Format {
    let format = if is_agent(&json) { Format::SweAgent } else { Format::MiniSweAgent };
    let Value::Object(mut map) = json else {
        sessions.lost += 1;
        return format;
    };
    let key = if format == Format::SweAgent { "history" } else { "messages" };
    let messages = match map.shift_remove(key) {
        Some(Value::Array(messages)) => messages,
        _ => Vec::new(),
    };
    let repeated: Vec<(&str, u64)> = ["trajectory", "attempts"]
        .into_iter()
        .filter_map(|key| Some((key, map.shift_remove(key)?.as_array()?.len() as u64)))
        .collect();
    sessions.session(messages.into_iter().map(message).collect(), map);
    if let Some(session) = sessions.done.last_mut() {
        for (kind, count) in repeated {
            (0..count).for_each(|_| session.counts.skip(kind));
        }
    }
    format
}

/// SWE-agent names the calls an observation answers in a list.
fn message(message: Value) -> Value {
    let Value::Object(mut map) = message else { return message };
    if member(&map, "role") == Some("tool") && !map.contains_key("tool_call_id") {
        let id = map.get("tool_call_ids").and_then(|ids| ids.get(0)).and_then(Value::as_str).map(str::to_owned);
        map.extend(id.map(|id| ("tool_call_id".to_owned(), id.into())));
    }
    drop_empty(&mut map);
    Value::Object(map)
}

/// `tool_calls: null` says what its absence says.
fn drop_empty(map: &mut Map<String, Value>) {
    map.retain(|key, value| !(value.is_null() && matches!(key.as_str(), "tool_calls" | "tool_call_ids")));
}

#[cfg(test)]
mod tests {
    use crate::{Format, load_bytes};

    #[test]
    fn a_trajectory_is_its_history_and_the_steps_are_counted() {
        let text = r#"{
            "trajectory": [{"action": "ls", "observation": "a", "query": [{"role": "user", "content": "fix"}]}],
            "history": [
                {"role": "system", "content": "S", "agent": "main", "message_type": "system_prompt"},
                {"role": "user", "content": [{"type": "text", "text": "fix"}], "agent": "main"},
                {"role": "assistant", "content": "look", "thought": "look", "action": "ls", "tool_calls":
                    [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}}],
                    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
                {"role": "tool", "content": "a", "tool_call_ids": ["c1"]},
                {"role": "assistant", "content": "done", "tool_calls": null}],
            "info": {"exit_status": "submitted"}}"#;
        let imported = load_bytes("x.traj", text.as_bytes()).expect("a trajectory");
        assert_eq!(imported.format, Format::SweAgent);
        let session = &imported.sessions[0];
        assert_eq!(session.system.as_deref(), Some("S"));
        let told: Vec<&str> = session.entries.iter().filter_map(|e| e.message()).map(|m| m.json.as_str()).collect();
        assert_eq!(
            told,
            [
                r#"{"role":"user","content":[{"type":"text","text":"fix"}],"agent":"main"}"#,
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"text","text":"look"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}],"thought":"look","action":"ls"}"#,
                r#"{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"type":"text","text":"a"}],"isError":false,"tool_call_ids":["c1"]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}"#,
            ]
        );
        assert_eq!(format!("{:?}", session.counts.skipped), r#"{"system": 1, "trajectory": 1}"#);
        assert_eq!((session.counts.records, session.meta.contains_key("trajectory")), (6, false));
    }

    #[test]
    fn a_history_alone_is_enough() {
        let text = r#"{"history": [{"role": "user", "content": "a", "agent": "main"}]}"#;
        assert_eq!(load_bytes("x.traj", text.as_bytes()).expect("a history").format, Format::SweAgent);
        let text = r#"{"history": [{"role": "user", "content": "a"}]}"#;
        assert_eq!(load_bytes("x.json", text.as_bytes()).expect("a history").format, Format::Chat);
    }

    #[test]
    fn the_small_agents_messages_are_read_and_its_exit_is_none() {
        let text = r#"{"info": {"exit_status": "Submitted", "submission": "d"}, "trajectory_format": "mini-swe-agent-1.1",
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "fix"},
                {"role": "assistant", "content": "```bash\nls\n```", "extra": {"cost": 1}},
                {"role": "user", "content": "a"}, {"role": "exit", "content": "d"}]}"#;
        for text in [text.to_owned(), text.replace('\n', " ")] {
            let imported = load_bytes("run.traj.json", text.as_bytes()).expect("a trajectory");
            assert_eq!(imported.format, Format::MiniSweAgent);
            let counts = &imported.sessions[0].counts;
            assert_eq!(
                format!("{:?} {:?}", counts.messages, counts.skipped),
                r#"{"assistant": 1, "user": 2} {"exit": 1, "system": 1}"#
            );
        }
    }
}
