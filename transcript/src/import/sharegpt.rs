//! ShareGPT dialogues (`conversations` of `from` and `value`) and ChatML text (`<|im_start|>role … <|im_end|>`).
//!
//! Decision: both are chat messages under other names, and go through the importer of those. A tool's answer is a
//! result only when a call that can be read came before it; else it stays what the model saw: text from the other side.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::openai::Sessions;
use super::shape::{member, take_text};

const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";
const LISTS: [&str; 2] = ["conversations", "conversation"];
const LOOKED_AT: usize = 8;

fn is_turn(json: &Value) -> bool {
    json.get("from").is_some_and(Value::is_string) && json.get("value").is_some()
}

fn turns(json: &Value) -> Option<&'static str> {
    let holds = |list: &Vec<Value>| list.iter().take(LOOKED_AT).any(is_turn);
    LISTS.into_iter().find(|key| json.get(*key).and_then(Value::as_array).is_some_and(holds))
}

fn is_marked_up(json: &Value) -> bool {
    json.get("text").and_then(Value::as_str).is_some_and(is_chatml)
}

/// Whether a text is ChatML.
pub(super) fn is_chatml(text: &str) -> bool {
    text.trim_start().starts_with(START)
}

/// Whether a line is a dialogue, or one turn of it.
pub(super) fn recognises_line(json: &Value) -> bool {
    turns(json).is_some() || is_marked_up(json)
}

pub(super) fn recognises_document(json: &Value) -> bool {
    let holds = |list: &Vec<Value>| list.iter().take(LOOKED_AT).any(|item| recognises_line(item) || is_turn(item));
    recognises_line(json) || json.as_array().is_some_and(holds)
}

/// Adds the dialogues of a document or line.
pub(super) fn import(sessions: &mut Sessions<'_>, json: Value) {
    match json {
        Value::Array(items) if items.iter().take(LOOKED_AT).any(is_turn) => dialogue(sessions, items, Map::new()),
        Value::Array(items) => items.into_iter().for_each(|item| import(sessions, item)),
        json => {
            let key = turns(&json);
            let Value::Object(mut map) = json else { return sessions.lost += 1 };
            match (key.and_then(|key| map.shift_remove(key)), take_text(&mut map, "text")) {
                (Some(Value::Array(turns)), text) => {
                    map.extend(text.map(|text| ("text".to_owned(), text.into())));
                    dialogue(sessions, turns, map);
                }
                (_, Some(text)) if is_chatml(&text) => chatml(sessions, &text, &map),
                _ => sessions.lost += 1,
            }
        }
    }
}

fn dialogue(sessions: &mut Sessions<'_>, turns: Vec<Value>, mut meta: Map<String, Value>) {
    let mut calls = Calls::default();
    let system = take_text(&mut meta, "system").filter(|text| !text.is_empty());
    let mut messages: Vec<Value> = Vec::with_capacity(turns.len() + 1);
    for turn in turns {
        let Value::Object(mut map) = turn else {
            messages.push(turn);
            continue;
        };
        match (take_text(&mut map, "from"), map.shift_remove("value")) {
            (Some(from), Some(value)) => messages.push(calls.message(&from, value, map)),
            (from, value) => {
                map.extend(from.map(|from| ("from".to_owned(), from.into())));
                map.extend(value.map(|value| ("value".to_owned(), value)));
                messages.push(Value::Object(map));
            }
        }
    }
    sessions.session(messages, meta);
    // Beside the turns it is no record of its own.
    if let (Some(system), Some(session)) = (system, sessions.done.last_mut()) {
        session.system = Some(session.system.take().map_or(system.clone(), |said| format!("{system}\n\n{said}")));
    }
}

/// The dialogues of a text; a system message that is not the first begins another.
pub(super) fn chatml(sessions: &mut Sessions<'_>, text: &str, meta: &Map<String, Value>) {
    let mut calls = Calls::default();
    let mut messages = Vec::new();
    let mut lost = 0;
    for (i, part) in text.split(START).enumerate() {
        if i == 0 {
            lost += u64::from(!part.trim().is_empty());
            continue;
        }
        let (head, body) = part.split_once('\n').unwrap_or((part, ""));
        let (role, name) = head.trim().split_once(' ').unwrap_or((head.trim(), ""));
        let (content, is_whole) = match body.split_once(END) {
            Some((content, _)) => (content, true),
            None => (body, false),
        };
        let role = role.trim_end_matches(END);
        // The start of a reply that was asked for.
        if !is_whole && content.trim().is_empty() {
            continue;
        }
        if role == "system" && !messages.is_empty() {
            sessions.session(std::mem::take(&mut messages), meta.clone());
            calls = Calls::default();
        }
        let mut beside = Map::new();
        if let Some(name) = name.strip_prefix("name=") {
            beside.insert("name".to_owned(), name.into());
        }
        messages.push(calls.message(role, content.trim_matches('\n').into(), beside));
    }
    sessions.session(messages, meta.clone());
    sessions.lost += lost;
}

/// Calls of a dialogue that were not answered; neither format has ids.
#[derive(Default)]
struct Calls {
    made: u64,
    open: VecDeque<String>,
}

impl Calls {
    /// A turn as a chat message.
    fn message(&mut self, from: &str, value: Value, mut beside: Map<String, Value>) -> Value {
        let role = match from {
            "human" | "user" => "user",
            "system" => "system",
            "function_call" | "tool_call" => return self.call(from, value, beside),
            "tool" | "observation" | "function_response" | "tool_response" | "ipython" | "function" => {
                match self.open.pop_front() {
                    Some(id) => {
                        beside.insert("tool_call_id".to_owned(), id.into());
                        "tool"
                    }
                    None => {
                        beside.insert("from".to_owned(), from.into());
                        "user"
                    }
                }
            }
            "gpt" | "chatgpt" | "bing" | "bard" | "assistant" | "model" | "chatbot" => "assistant",
            other => other,
        };
        finish(role, value, beside)
    }

    fn call(&mut self, from: &str, value: Value, mut beside: Map<String, Value>) -> Value {
        let parsed = match &value {
            Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
            other => other.clone(),
        };
        let list = match parsed {
            Value::Array(calls) => calls,
            one => vec![one],
        };
        let named: Option<Vec<Value>> = list
            .into_iter()
            .map(|call| {
                let Value::Object(call) = call else { return None };
                let name = member(&call, "name")?.to_owned();
                self.made += 1;
                let id = format!("call_{}", self.made);
                let arguments = call.get("arguments").or_else(|| call.get("parameters")).cloned();
                Some(json!({ "id": id, "function": { "name": name, "arguments": arguments } }))
            })
            .collect();
        match named {
            Some(calls) => {
                let ids = calls.iter().filter_map(|call| Some(call.get("id")?.as_str()?.to_owned()));
                self.open.extend(ids);
                beside.insert("tool_calls".to_owned(), calls.into());
                finish("assistant", "".into(), beside)
            }
            None => {
                beside.insert("from".to_owned(), from.into());
                finish("assistant", value, beside)
            }
        }
    }
}

fn finish(role: &str, content: Value, beside: Map<String, Value>) -> Value {
    let mut map = Map::from_iter([("role".to_owned(), role.into()), ("content".to_owned(), content)]);
    for (key, value) in beside {
        map.entry(key).or_insert(value);
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use crate::{Format, RecordedSession, load_bytes};

    fn told(session: &RecordedSession) -> String {
        let messages = session.entries.iter().filter_map(|e| e.message());
        messages.map(|m| format!("{} {}\n", m.role_name(), m.text())).collect()
    }

    #[test]
    fn turns_are_messages_and_a_call_gets_its_answer() {
        let text = r#"[{"id": "d1", "system": "S", "conversations": [
            {"from": "human", "value": "weather?"}, {"from": "function_call", "value": "{\"name\":\"w\",\"arguments\":{}}"},
            {"from": "observation", "value": "sun"}, {"from": "gpt", "value": "Sun."}]},
            {"conversations": [{"from": "system", "value": "T"}, {"from": "human", "value": "a"}, {"from": "tool", "value": "b"}]}]"#;
        let imported = load_bytes("x.json", text.as_bytes()).expect("dialogues");
        assert_eq!((imported.format, imported.sessions.len()), (Format::ShareGpt, 2));
        let first = &imported.sessions[0];
        assert_eq!((first.id.as_str(), first.system.as_deref()), ("d1", Some("S")));
        assert_eq!(told(first), "user weather?\nassistant \ntoolResult sun\nassistant Sun.\n");
        let result = first.entries[2].message().expect("a result");
        assert_eq!((result.tool_call_id.as_str(), result.tool_name.as_str()), ("call_1", "w"));
        assert_eq!(imported.sessions[1].system.as_deref(), Some("T"));
        assert_eq!(told(&imported.sessions[1]), "user a\nuser b\n");
    }

    #[test]
    fn marked_up_text_is_read_up_to_its_end() {
        let text = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi\nyou<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n<|im_start|>system\nT<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n";
        let imported = load_bytes("x.txt", text.as_bytes()).expect("dialogues");
        assert_eq!((imported.format, imported.sessions.len()), (Format::ChatMl, 2));
        assert_eq!(told(&imported.sessions[0]), "user hi\nyou\nassistant hello\n");
        assert_eq!(
            (told(&imported.sessions[1]).as_str(), imported.sessions[1].system.as_deref()),
            ("user b\n", Some("T"))
        );

        let line = serde_json::json!({ "text": "<|im_start|>user\na<|im_end|>" }).to_string();
        let imported = load_bytes("x.jsonl", format!("{line}\n{line}\n").as_bytes()).expect("dialogues");
        assert_eq!((imported.format, imported.sessions.len()), (Format::ShareGpt, 2));
    }
}
