//! Text cut in the middle, with a mark that says how much is gone and where it still is.
//!
//! Decision: head and tail stay, because a file's start says what it is and an output's end says how it went. A cut falls
//! between grapheme clusters: half an emoji is a character nobody wrote (public reports C4, D5).
//!
//! Invariant: what comes out is never longer than asked for, mark included.

use unicode_segmentation::GraphemeCursor;

/// `text` in at most `max` characters; all of it when it fits. `entry` is where the whole text is kept.
pub(crate) fn cut_to_chars(text: &str, max: usize, entry: &str) -> String {
    let total = if text.len() > max { text.chars().count() } else { 0 };
    if total <= max {
        return text.to_owned();
    }
    let mark = mark(total, total, entry);
    let Some(room) = max.checked_sub(mark.chars().count()).filter(|room| *room > 0) else {
        // No room for the mark: an ellipsis is still a visible cut.
        return match max.checked_sub(1) {
            Some(room) => format!("{}…", head(text, room)),
            None => String::new(),
        };
    };
    let head = head(text, room - room / 3);
    let tail = tail(text, room / 3);
    let left_out = total - head.chars().count() - tail.chars().count();
    format!("{head}{}{tail}", self::mark(left_out, total, entry))
}

/// `text` in at most `max` tokens as `count` counts them; all of it when it fits.
///
/// Counts no more text than could fit, however long `text` is. Empty when not even an ellipsis fits.
pub(crate) fn cut_to_tokens(text: &str, max: u64, entry: &str, count: &dyn Fn(&str) -> u64) -> String {
    // A token is at most a few dozen bytes; what is far beyond that need not be counted to know that it does not fit.
    let could_fit = (text.len() as u64) <= max.saturating_mul(64);
    if could_fit && count(text) <= max {
        return text.to_owned();
    }
    let mut chars = usize::try_from(max.saturating_mul(4)).unwrap_or(usize::MAX);
    if could_fit {
        chars = chars.min(text.chars().count().saturating_sub(1));
    }
    while chars > 0 {
        let cut = cut_to_chars(text, chars, entry);
        let tokens = count(&cut);
        if tokens <= max {
            return cut;
        }
        let scaled = (chars as u64).saturating_mul(max) / tokens.max(1);
        chars = usize::try_from(scaled).unwrap_or(chars).min(chars - chars.div_ceil(20));
    }
    String::new()
}

fn mark(left_out: usize, total: usize, entry: &str) -> String {
    format!("\n[… {left_out} of {total} characters left out; the whole text is in transcript entry {entry} …]\n")
}

/// At most `chars` characters from the start.
fn head(text: &str, chars: usize) -> &str {
    let at = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    &text[..cluster_start(text, at)]
}

/// At most `chars` characters from the end.
fn tail(text: &str, chars: usize) -> &str {
    let at = match chars {
        0 => text.len(),
        _ => text.char_indices().rev().nth(chars - 1).map_or(0, |(at, _)| at),
    };
    if cluster_start(text, at) == at {
        return &text[at..];
    }
    // The cluster began before: the rest of it is left out as well.
    match GraphemeCursor::new(at, text.len(), true).next_boundary(text, 0) {
        Ok(Some(next)) => &text[next..],
        _ => &text[at..],
    }
}

/// The start of the grapheme cluster that `at` lies in; `at` itself when it is one.
fn cluster_start(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    match cursor.is_boundary(text, 0) {
        Ok(false) => cursor.prev_boundary(text, 0).ok().flatten().unwrap_or(at),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_head_and_tail_stay_and_the_mark_says_what_is_gone() {
        let text = format!("{}{}", "a".repeat(3_000), "z".repeat(3_000));
        let cut = cut_to_chars(&text, 300, "e7");
        assert_eq!(cut.chars().count(), 300);
        assert!(cut.starts_with("aaa") && cut.ends_with("zzz"));
        assert!(cut.contains("of 6000 characters left out; the whole text is in transcript entry e7"), "{cut}");
    }

    #[test]
    fn d5_no_cut_inside_an_emoji_and_none_over_the_limit() {
        let emoji = ["🎉", "🇧🇷", "👨‍👩‍👧‍👦", "e\u{301}", "𠜎"];
        for (emoji, limit) in emoji.iter().flat_map(|e| (0..160).map(move |limit| (e, limit))) {
            for text in [emoji.repeat(200), format!("{}{emoji}{}", "a".repeat(limit), "b".repeat(300))] {
                let cut = cut_to_chars(&text, limit, "e1");
                assert!(cut.chars().count() <= limit);
                let clusters = unicode_segmentation::UnicodeSegmentation::graphemes(cut.as_str(), true);
                let broken =
                    clusters.filter(|c| c.chars().any(|c| !c.is_ascii() && emoji.contains(c)) && c != emoji).count();
                assert_eq!(broken, 0, "{cut}");
            }
        }
    }

    #[test]
    fn tokens_of_what_was_cut_are_within_the_limit() {
        let by_four = |text: &str| (text.chars().count() as u64).div_ceil(4);
        let by_byte = |text: &str| text.len() as u64;
        let text = "日本語のテキスト and some English, line after line\n".repeat(500);
        for max in [0, 1, 7, 40, 100, 1_000, 9_000] {
            assert!(by_four(&cut_to_tokens(&text, max, "e1", &by_four)) <= max);
            assert!(by_byte(&cut_to_tokens(&text, max, "e1", &by_byte)) <= max);
        }
        assert_eq!(cut_to_tokens(&text, u64::MAX, "e1", &by_four), text);
    }
}
