//! OpenHands before its SDK: a list of actions and of observations, which name the action that caused them.

use serde_json::{Map, Value};

use super::Run;
use crate::import::draft::{At, Up};
use crate::import::shape::{self, member, take_text};

pub(super) fn recognises(json: &Value) -> bool {
    let is_text = |key: &str| json.get(key).is_some_and(Value::is_string);
    let action = is_text("action") && json.get("args").is_some_and(Value::is_object);
    let observation = is_text("observation") && ["extras", "cause"].iter().any(|key| json.get(key).is_some());
    (action || observation) && json.get("kind").is_none()
}

impl Run {
    pub(super) fn older_event(&mut self, at: At, map: Map<String, Value>) {
        match (member(&map, "action").map(str::to_owned), member(&map, "observation").map(str::to_owned)) {
            (Some(action), _) => self.older_action(at, &action, map),
            (None, Some(observation)) => self.older_observation(at, &observation, map),
            (None, None) => self.draft.other(at, "no message", map),
        }
    }

    fn older_action(&mut self, at: At, action: &str, mut map: Map<String, Value>) {
        let by_agent = member(&map, "source") == Some("agent");
        let mut args = match map.shift_remove("args") {
            Some(Value::Object(args)) => args,
            _ => Map::new(),
        };
        match action {
            "system" => {
                let text = take_text(&mut args, "content");
                map.insert("args".to_owned(), args.into());
                self.system(at, text, map);
            }
            "condensation" => {
                let number = |key: &str| args.get(key).and_then(Value::as_u64);
                let ids = args.get("forgotten_event_ids").and_then(Value::as_array).into_iter().flatten();
                let last = number("forgotten_events_end_id").or_else(|| ids.filter_map(Value::as_u64).max());
                let summary = member(&args, "summary").map(str::to_owned);
                map.insert("args".to_owned(), args.into());
                self.condensed(at, summary.as_deref(), last.map(|id| id.to_string()), map, "condensation");
            }
            _ if by_agent && map.get("tool_call_metadata").is_some_and(Value::is_object) => self.called(at, map),
            "message" => {
                let mut blocks = vec![shape::text(take_text(&mut args, "content").unwrap_or_default())];
                let images = args.get("image_urls").and_then(Value::as_array).into_iter().flatten();
                blocks.extend(images.filter_map(Value::as_str).map(shape::image_at));
                if by_agent {
                    self.draft.reply(at, None, shape::assistant(blocks), map);
                } else {
                    self.draft.say(at, shape::user(blocks), map, false);
                }
            }
            "change_agent_state" | "recall" | "null" | "agent_state_changed" | "condensation_request" => {
                map.insert("args".to_owned(), args.into());
                self.draft.other(at, action, map);
            }
            // Before calls had ids: the action is the call, under the event's id.
            _ if by_agent => {
                let thought = ["thought", "final_thought"].iter().find_map(|key| take_text(&mut args, key));
                let mut blocks: Vec<Value> = thought.filter(|t| !t.is_empty()).map(shape::text).into_iter().collect();
                let id = format!("call_{}", at.id.as_deref().unwrap_or_default());
                blocks.push(shape::call(&id, action, Some(args.into())));
                self.draft.reply(at, None, shape::assistant(blocks), map);
            }
            _ => {
                map.insert("args".to_owned(), args.into());
                self.draft.other(at, action, map);
            }
        }
    }

    /// An action with the response it came from: text once, then the call of this action.
    fn called(&mut self, at: At, mut map: Map<String, Value>) {
        let Some(Value::Object(meta)) = map.shift_remove("tool_call_metadata") else { return };
        let id = member(&meta, "tool_call_id").unwrap_or_default().to_owned();
        let name = member(&meta, "function_name").unwrap_or_default();
        let response = meta.get("model_response");
        let key = response.and_then(|r| r.get("id")).and_then(Value::as_str).map(str::to_owned);
        let said = response.and_then(|r| r.get("choices")?.get(0)?.get("message"));
        let mut blocks = Vec::new();
        if key.as_deref().is_none_or(|key| !self.draft.has_reply(key)) {
            let said_of = |key: &str| said.and_then(|said| said.get(key));
            if let Some(Value::Array(thinking)) = said_of("thinking_blocks") {
                blocks.extend(thinking.iter().filter_map(|b| Some(shape::thinking_part(b.as_object()?.clone()))));
            }
            let text = shape::blocks(said_of("content").cloned());
            blocks.extend(text.into_iter().filter(|block| block.get("text") != Some(&"".into())));
        }
        let calls = said.and_then(|said| said.get("tool_calls")).and_then(Value::as_array).into_iter().flatten();
        let function = calls
            .filter(|call| call.get("id").and_then(Value::as_str) == Some(id.as_str()))
            .find_map(|call| call.get("function"));
        let arguments = function.and_then(|function| function.get("arguments")).cloned();
        blocks.push(shape::call(&id, name, arguments));
        let mut message = shape::assistant(blocks);
        let model = response.and_then(|r| r.get("model")).and_then(Value::as_str);
        message.extend(model.map(|model| ("model".to_owned(), model.into())));
        self.draft.reply(at, key.as_deref(), message, map);
    }

    fn older_observation(&mut self, at: At, observation: &str, mut map: Map<String, Value>) {
        let meta = map.shift_remove("tool_call_metadata");
        let meta = meta.as_ref().and_then(Value::as_object);
        let cause = map.get("cause").map(|cause| match cause {
            Value::String(id) => format!("call_{id}"),
            id => format!("call_{id}"),
        });
        let id = meta.and_then(|meta| member(meta, "tool_call_id")).map(str::to_owned);
        let Some(id) = id.or_else(|| cause.filter(|call| self.draft.has_call(call))) else {
            return self.draft.other(at, observation, map);
        };
        let name = meta.and_then(|meta| member(meta, "function_name")).unwrap_or_default().to_owned();
        let mut blocks = shape::blocks(map.shift_remove("content"));
        let images = map.get("extras").and_then(|extras| extras.get("image_urls")).and_then(Value::as_array);
        blocks.extend(images.into_iter().flatten().filter_map(Value::as_str).map(shape::image_at));
        let at = At { up: Up::Previous, ..at };
        self.draft.result(at, shape::result(&id, &name, blocks, observation == "error"), map);
    }
}
