//! OpenAI chat messages: a list of messages, an object around one, a list of dialogues, or any of these by line.
use serde_json::Value;
pub(super) fn recognises_document(_json: &Value) -> bool {
    false
}
pub(super) fn recognises_line(_json: &Value) -> bool {
    false
}
