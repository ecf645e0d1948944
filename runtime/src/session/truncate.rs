//! Shortening long tool results in the transcript: what is tried before, or after, a compaction (contract §7.5, §7.12).
//!
//! Decision: the old entries stay in the file. A result is cut to head and tail with a mark that says how much is
//! missing, in a new entry, and pairs stay whole. The newest results are cut like the others: they are often what is
//! too long.

use std::sync::Arc;

use context_engine_interface::{BlockKind, Role, shorten_text};
use context_engine_transcript::Message;
use serde_json::{Map, Value, json};

use super::live::LiveSession;

/// What a shortened result keeps at least, in characters.
const MIN_KEPT: usize = 2_000;

/// Tool results that can be shortened, and what that frees.
#[derive(Debug, Default)]
pub(crate) struct Reducible {
    pub(crate) replacements: Vec<(String, Map<String, Value>)>,
    /// Tokens.
    pub(crate) tokens: u64,
}

/// The longest tool result in a window of this many tokens, in characters (contract §7.12).
pub(crate) fn longest_result(window: u64) -> usize {
    let by_window: u64 = match window {
        0..100_000 => 16_000,
        100_000..200_000 => 32_000,
        _ => 64_000,
    };
    let share = window.saturating_mul(3) / 10 * 4;
    usize::try_from(by_window.min(share)).unwrap_or(usize::MAX).max(MIN_KEPT)
}

/// What shortening the tool results of the session would free.
pub(crate) fn reducible(live: &LiveSession, window: u64) -> Reducible {
    let longest = longest_result(window);
    let state = live.state();
    let mut reducible = Reducible::default();
    for message in state.conversation.recorded().filter(|message| message.role == Role::TOOL_RESULT) {
        let Some(shorter) = shortened(message, longest) else { continue };
        let before = live.counter.message(message);
        let Ok(after) = message.with_map(shorter.clone()).map(|message| live.counter.message(&message)) else {
            continue;
        };
        if after < before {
            reducible.tokens += before - after;
            reducible.replacements.push((message.id.clone(), shorter));
        }
    }
    reducible
}

/// The message with its texts cut to `longest` characters together; `None` when they are that short.
fn shortened(message: &Arc<Message>, longest: usize) -> Option<Map<String, Value>> {
    let texts = || message.blocks.iter().filter(|block| block.kind == BlockKind::TEXT).map(|block| &block.text);
    let total: usize = texts().map(|text| text.chars().count()).sum();
    if total <= longest {
        return None;
    }
    let mut map = message.to_map()?;
    let blocks = map.get_mut("content")?.as_array_mut()?;
    for block in blocks {
        let Some(text) = block.get("text").and_then(Value::as_str).filter(|_| block["type"] == "text") else {
            continue;
        };
        let share = (text.chars().count() as u128 * longest as u128 / total as u128) as usize;
        let text = shorten_text(text, share);
        block["text"] = json!(text);
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(content: Value) -> Arc<Message> {
        let message = json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": content });
        let Value::Object(map) = message else { panic!("an object") };
        Arc::new(Message::from_map("r1", map).expect("a message"))
    }

    #[test]
    fn the_longest_result_grows_with_the_window_and_is_at_most_three_tenths_of_it() {
        let longest = |window| longest_result(window);
        assert_eq!(
            [longest(8_000), longest(64_000), longest(100_000), longest(200_000)],
            [9_600, 16_000, 32_000, 64_000]
        );
        assert_eq!(longest(0), MIN_KEPT);
    }

    #[test]
    fn texts_are_cut_together_and_what_is_beside_them_stays() {
        let text = |c: &str, n: usize| json!({ "type": "text", "text": c.repeat(n) });
        let picture = json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" });
        let long = result(json!([text("a", 30_000), picture, text("b", 10_000)]));
        let cut = shortened(&long, 4_000).expect("shorter");
        let lengths: Vec<usize> = cut["content"]
            .as_array()
            .expect("blocks")
            .iter()
            .filter_map(|b| b["text"].as_str())
            .map(str::len)
            .collect();
        assert!(lengths[0] <= 3_004 && lengths[1] <= 1_004, "{lengths:?}");
        assert_eq!((cut["content"][1]["type"].as_str(), cut["toolCallId"].as_str()), (Some("image"), Some("c1")));
        assert_eq!(shortened(&result(json!([text("a", 4_000)])), 4_000), None);
    }
}
