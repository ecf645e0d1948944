//! Cutting a message that is too long to keep whole and too new to leave out.
//!
//! Decision: head and tail are kept and the mark between them says how much is missing, because the model has to know
//! that it sees a part. Only text and images are cut: a tool call's arguments must stay valid, and signed thinking is
//! kept whole or left out.

use serde_json::{Value, json};

use crate::{MessageView, Role};

/// Text that stands for an image that was left out.
pub const IMAGE_LEFT_OUT: &str = "[image left out to fit the budget]";

/// `text` cut to at most `max_chars` characters, the mark included; unchanged when it is that short already.
///
/// Two thirds of what is kept come from the start. Cuts only between characters.
pub fn shorten_text(text: &str, max_chars: usize) -> String {
    let total = text.chars().count();
    if total <= max_chars {
        return text.to_owned();
    }
    let mark = |left_out: usize| format!("\n[… {left_out} of {total} characters left out …]\n");
    // The mark for everything is at least as long as the one for what is left out.
    let Some(room) = max_chars.checked_sub(mark(total).chars().count()) else {
        return text.chars().take(max_chars).collect();
    };
    let (head, tail) = (room - room / 3, room / 3);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(total - tail).collect();
    format!("{start}{}{end}", mark(total - head - tail))
}

/// The message's JSON with its text cut and its images replaced so that it costs at most about `max_tokens`.
///
/// `count` gives the tokens of a text. For user messages and tool results; anything else comes back as it is. Frames and
/// ids are not counted, so leave a few tokens for them.
pub fn shorten_message(message: &MessageView<'_>, max_tokens: u64, count: impl Fn(&str) -> u64) -> String {
    let unchanged = || message.json.as_str().to_owned();
    if !matches!(message.role, Role::USER | Role::TOOL_RESULT) {
        return unchanged();
    }
    let Ok(mut value) = serde_json::from_str::<Value>(message.json.as_str()) else { return unchanged() };
    let Some(Value::Array(blocks)) = value.get_mut("content") else { return unchanged() };
    for block in blocks.iter_mut().filter(|block| block.get("type").is_some_and(|kind| kind == "image")) {
        *block = json!({ "type": "text", "text": IMAGE_LEFT_OUT });
    }
    let texts: Vec<String> = blocks.iter().filter_map(|block| Some(block.get("text")?.as_str()?.to_owned())).collect();
    let lengths: Vec<usize> = texts.iter().map(|text| text.chars().count()).collect();
    let total: usize = lengths.iter().sum();
    let cost: u64 = texts.iter().map(|text| count(text)).sum();
    if cost > max_tokens {
        // Tokens are not spread evenly over a text: what is kept may cost more than its share, so it is measured.
        let mut chars = (total as u128 * u128::from(max_tokens) / u128::from(cost)) as usize;
        let cut = loop {
            let share = |length: usize| (chars as u128 * length as u128 / total.max(1) as u128) as usize;
            let cut: Vec<String> =
                texts.iter().zip(&lengths).map(|(text, &length)| shorten_text(text, share(length))).collect();
            if chars == 0 || cut.iter().map(|text| count(text)).sum::<u64>() <= max_tokens {
                break cut;
            }
            chars -= chars / 8 + 1;
        };
        let slots = blocks.iter_mut().filter_map(|block| block.get_mut("text").filter(|text| text.is_string()));
        for (slot, text) in slots.zip(cut) {
            *slot = Value::String(text);
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_says_what_is_missing_and_counts() {
        let text = format!("{}{}{}", "a".repeat(60), "b".repeat(80), "c".repeat(60));
        let expected = format!("{}\n[… 136 of 200 characters left out …]\n{}", "a".repeat(43), "c".repeat(21));
        assert_eq!(shorten_text(&text, 102), expected);
    }

    #[test]
    fn short_text_stays_and_tiny_limits_hold() {
        assert_eq!(shorten_text("hello", 5), "hello");
        assert_eq!(shorten_text("hello", 0), "");
        assert_eq!(shorten_text("a🎉b🇧🇷c", 3), "a🎉b");
        for limit in 0..80 {
            let text = "🎉".repeat(70) + "漢字";
            assert!(shorten_text(&text, limit).chars().count() <= limit, "{limit}");
        }
    }
}
