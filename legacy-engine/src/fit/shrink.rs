//! A message made smaller without changing what it is.
//!
//! Decision: the order of what goes is fixed: pictures become a line of text, long texts lose their middle, then an
//! assistant's thinking goes (whole: a signature covers all of it), then long strings in a call's arguments lose their middle.
//! Calls, ids, names and the pairing stay to the last (public reports C4, A10, A13).

use context_engine_interface::{BlockKind, BlockView, MessageView};
use context_engine_transcript::content::retold;
use context_engine_transcript::tokens::{BLOCK_OVERHEAD, IMAGE_TOKENS, call_cost};
use serde_json::{Map, Value, json};

use super::cost::{self, Count};
use super::cut::{cut_to_chars, cut_to_tokens};

/// A message in fewer tokens.
#[derive(Debug)]
pub(crate) struct Shrunk {
    /// Its JSON.
    pub(crate) json: String,
    /// What it costs.
    pub(crate) tokens: u64,
}

/// Tokens a text keeps when there is room at all: less is only a mark.
const LEAST_TEXT: u64 = 8;

/// The least the message can be shrunk to by [`text`], roughly: its frames and a few words for each block.
pub(crate) fn least(view: &MessageView<'_>, count: Count<'_>) -> u64 {
    cost::frame(view, count) + (BLOCK_OVERHEAD + LEAST_TEXT) * view.blocks.len() as u64
}

/// A user message or tool result in at most `max` tokens: texts share the room, short ones whole; pictures stay only where
/// they leave half of it. `None` when not even a word of each block fits, or there is nothing to cut.
pub(crate) fn text(view: &MessageView<'_>, max: u64, count: Count<'_>) -> Option<Shrunk> {
    if view.blocks.is_empty() {
        return None;
    }
    let mut left = max.checked_sub(cost::frame(view, count) + BLOCK_OVERHEAD * view.blocks.len() as u64)?;
    let pictures = view.blocks.iter().filter(|b| b.kind == BlockKind::IMAGE).count() as u64;
    let keep_pictures = pictures * IMAGE_TOKENS <= left / 2;
    let mut parts: Vec<Piece<'_>> = Vec::with_capacity(view.blocks.len());
    for block in view.blocks.iter() {
        let (whole, text) = match block.kind {
            BlockKind::TEXT => (count(block.text.as_str()), Some(block.text.to_string())),
            BlockKind::IMAGE if keep_pictures => (IMAGE_TOKENS, None),
            BlockKind::IMAGE => {
                let note = picture_note(block);
                (count(&note), Some(note))
            }
            kind => {
                // Thinking has no text that is sent here.
                let text = retold(view.role, kind, block.raw.as_str()).unwrap_or_default();
                (count(&text), Some(text.into_owned()))
            }
        };
        parts.push(Piece { block, whole, text, given: 0 });
    }
    for part in parts.iter_mut().filter(|part| part.text.is_none()) {
        part.given = part.whole;
        left = left.checked_sub(part.whole)?;
    }
    share(left, parts.iter_mut().filter(|part| part.text.is_some()));
    let mut tokens = cost::frame(view, count);
    let mut content: Vec<Value> = Vec::with_capacity(parts.len());
    for part in &parts {
        tokens += BLOCK_OVERHEAD;
        match &part.text {
            None => {
                tokens += part.whole;
                content.push(serde_json::from_str(part.block.raw.as_str()).ok()?);
            }
            Some(text) => {
                let cut = cut_to_tokens(text, part.given, view.id.as_str(), count);
                if cut.trim().is_empty() && !text.trim().is_empty() {
                    return None;
                }
                tokens += count(&cut);
                content.push(json!({ "type": "text", "text": cut }));
            }
        }
    }
    let mut message = object(view.json.as_str())?;
    message.insert("content".into(), Value::Array(content));
    let json = Value::Object(message).to_string();
    (tokens <= max).then_some(Shrunk { json, tokens })
}

/// A command a person ran in at most `max` tokens: its output loses its middle.
pub(crate) fn command(view: &MessageView<'_>, max: u64, count: Count<'_>) -> Option<Shrunk> {
    let mut message = object(view.json.as_str())?;
    let text = |message: &Map<String, Value>, name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
    let output = text(&message, "output")?;
    let fixed = cost::command(text(&message, "command").as_deref().unwrap_or(""), count);
    let cut = cut_to_tokens(&output, max.checked_sub(fixed)?, view.id.as_str(), count);
    let tokens = fixed + count(&cut);
    message.insert("output".into(), cut.into());
    (tokens <= max).then(|| Shrunk { json: Value::Object(message).to_string(), tokens })
}

/// An assistant message in at most `max` tokens; `None` when its calls cannot be made small enough.
pub(crate) fn assistant(view: &MessageView<'_>, max: u64, count: Count<'_>) -> Option<Shrunk> {
    // Characters left of a text and of a string in arguments, from mild to hard.
    [(usize::MAX, usize::MAX), (4_000, 1_000), (800, 300), (160, 160), (40, 20)].into_iter().find_map(
        |(text, argument)| {
            let shrunk = assistant_at(view, text, argument, count)?;
            (shrunk.tokens <= max).then_some(shrunk)
        },
    )
}

fn assistant_at(view: &MessageView<'_>, text: usize, argument: usize, count: Count<'_>) -> Option<Shrunk> {
    let mut tokens = cost::frame(view, count);
    let mut content: Vec<Value> = Vec::new();
    for block in view.blocks.iter().filter(|b| b.kind != BlockKind::THINKING) {
        tokens += BLOCK_OVERHEAD;
        match block.kind {
            BlockKind::TEXT => {
                let cut = cut_to_chars(block.text.as_str(), text, view.id.as_str());
                tokens += count(&cut);
                content.push(json!({ "type": "text", "text": cut }));
            }
            BlockKind::TOOL_CALL => {
                let mut call = object(block.raw.as_str())?;
                let mut arguments = call.remove("arguments").unwrap_or_else(|| Value::Object(Map::new()));
                if argument < usize::MAX {
                    cut_strings(&mut arguments, argument, view.id.as_str());
                }
                tokens += call_cost(block.id.as_str(), block.name.as_str(), &arguments.to_string(), count);
                call.insert("arguments".into(), arguments);
                content.push(Value::Object(call));
            }
            BlockKind::IMAGE if text == usize::MAX => {
                tokens += IMAGE_TOKENS;
                content.push(serde_json::from_str(block.raw.as_str()).ok()?);
            }
            kind => {
                let told = match retold(view.role, kind, block.raw.as_str()) {
                    Some(told) => cut_to_chars(&told, text, view.id.as_str()),
                    None => picture_note(block),
                };
                tokens += count(&told);
                content.push(json!({ "type": "text", "text": told }));
            }
        }
    }
    if content.is_empty() {
        return None;
    }
    let mut message = object(view.json.as_str())?;
    message.insert("content".into(), Value::Array(content));
    Some(Shrunk { json: Value::Object(message).to_string(), tokens })
}

/// Cuts the strings in a JSON value. Recursion is bounded: the parser that made the value refuses deep nesting.
fn cut_strings(value: &mut Value, max: usize, entry: &str) {
    match value {
        Value::String(text) => *text = cut_to_chars(text, max, entry),
        Value::Array(items) => items.iter_mut().for_each(|item| cut_strings(item, max, entry)),
        Value::Object(map) => map.values_mut().for_each(|item| cut_strings(item, max, entry)),
        _ => {}
    }
}

struct Piece<'a> {
    block: &'a BlockView<'a>,
    whole: u64,
    /// What may be cut; `None` for a block that is taken as it is.
    text: Option<String>,
    given: u64,
}

/// Gives each piece what it wants, as far as an equal share of what is left allows: short ones stay whole.
fn share<'a, 'b: 'a>(room: u64, pieces: impl Iterator<Item = &'a mut Piece<'b>>) {
    let mut pieces: Vec<&mut Piece<'b>> = pieces.collect();
    pieces.sort_by_key(|piece| piece.whole);
    let wants: Vec<u64> = pieces.iter().map(|piece| piece.whole).collect();
    for (piece, given) in pieces.into_iter().zip(shares(room, &wants)) {
        piece.given = given;
    }
}

/// Shares of `room` for ascending `wants`: none gets more than it wants, and those that get less get the same.
pub(crate) fn shares(room: u64, wants: &[u64]) -> Vec<u64> {
    let mut left = room;
    let count = wants.len() as u64;
    let give = |(n, want): (u64, &u64)| {
        let given = (*want).min(left / (count - n));
        left -= given;
        given
    };
    (0..).zip(wants).map(give).collect()
}

/// The line that stands for a picture.
fn picture_note(block: &BlockView<'_>) -> String {
    let name = if block.name.is_empty() { "image" } else { block.name.as_str() };
    format!("[{name} left out: it did not fit]")
}

fn object(json: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(json) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}
