//! What is read of a message, in recorded histories and in prompts alike.
//!
//! Decision: what a model is shown in words, and nothing else: texts, the strings in tool-call arguments, tool results, a
//! person's commands. Reasoning is not read: it is rarely sent again, and whether it is says nothing about an engine.

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::Message;
use context_engine_transcript::content::retold;
use serde_json::Value;

use super::things::is_cjk;

/// The parts of a message, blanks normalised: each line without blanks around it, and one blank where there were more.
pub(crate) fn parts(message: &Message) -> Vec<String> {
    if message.flags.contains(MessageFlags::EXCLUDED) {
        return Vec::new();
    }
    let mut parts = Vec::new();
    if message.role == Role::BASH_EXECUTION {
        let map = message.to_map().unwrap_or_default();
        let members = ["command", "output"].into_iter().filter_map(|name| map.get(name)?.as_str());
        parts.extend(members.map(normal));
    }
    for block in &message.blocks {
        if let Some(text) = retold(message.role, block.kind, message.raw(block)) {
            parts.push(normal(&text));
            continue;
        }
        match block.kind {
            BlockKind::TEXT => parts.push(normal(&block.text)),
            BlockKind::TOOL_CALL => arguments(&block.text, &mut parts),
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Each string of a call's arguments is a part: escapes of JSON are no words.
fn arguments(json: &str, parts: &mut Vec<String>) {
    match serde_json::from_str::<Value>(json) {
        Ok(value) => strings(&value, parts),
        Err(_) => parts.push(normal(json)),
    }
}

/// Recursion is bounded: the parser refuses more than 128 levels.
fn strings(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::String(text) => parts.push(normal(text)),
        Value::Number(number) => parts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, parts)),
        Value::Object(map) => map.values().for_each(|item| strings(item, parts)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The text with its blanks normalised.
pub(crate) fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let start = out.len();
        for word in line.split_whitespace() {
            if out.len() > start {
                out.push(' ');
            }
            out.push_str(word);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end_matches('\n').len());
    out
}

/// Where the words of a text stand, in bytes: runs of letters, digits and `_`; of a script without spaces each character.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut chars = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = chars.find(|(_, c)| is_word(*c))?;
        let mut end = start + first.len_utf8();
        while let Some((at, c)) = chars.next_if(|(_, c)| is_word(*c) && !is_cjk(*c) && !is_cjk(first)) {
            end = at + c.len_utf8();
        }
        Some((start, end))
    })
}

/// Whether the character is part of a word.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_results_and_the_strings_of_arguments_are_read_and_reasoning_is_not() {
        let message = json!({ "role": "assistant", "content": [
            { "type": "thinking", "thinking": "hm" },
            { "type": "text", "text": "  two   blanks\n\tand a tab  " },
            { "type": "toolCall", "id": "c", "name": "read", "arguments": { "path": "a/b", "lines": [1, "two\nlines"] } },
        ] });
        let Value::Object(map) = message else { panic!("an object") };
        let message = Message::from_map("m", map).expect("a message");
        assert_eq!(parts(&message), ["two blanks\nand a tab", "a/b", "1", "two\nlines"]);
    }

    #[test]
    fn a_word_is_a_run_of_letters_digits_and_underscores() {
        let text = "Don't open src/a_b.rs 漢字x!";
        let words: Vec<&str> = words(text).map(|(start, end)| &text[start..end]).collect();
        assert_eq!(words, ["Don", "t", "open", "src", "a_b", "rs", "漢", "字", "x"]);
    }
}
