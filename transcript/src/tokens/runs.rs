//! Cuts a text into slices that can be counted one by one.
//!
//! Decision: the tokeniser first splits a text into words, numbers, signs and spaces, then merges bytes inside each.
//! Its time and stack grow faster than the length of one such piece: a megabyte of spaces overflows its stack. So no
//! piece may grow beyond [`RUN`] bytes. Ordinary text has no such run and is only cut where the tokeniser cuts anyway,
//! so its count is exact.

/// Longest run of one kind of character, in bytes, that is counted in one go.
const RUN: usize = 1024;
/// A slice ends at the first safe place after this many bytes.
const SLICE: usize = 16 * 1024;
/// A slice ends here at the latest, safe or not.
const SLICE_MAX: usize = 4 * SLICE;

/// The slices, in order; joined they are `text`.
pub(super) fn slices(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (slice, tail) = rest.split_at_checked(slice_len(rest)).unwrap_or((rest, ""));
        rest = tail;
        Some(slice)
    })
}

/// What the tokenisers' patterns can join a character with.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Letter,
    Space,
    /// Joins at most three of its kind.
    Digit,
    Sign,
    /// Not ASCII, and a sign or a combining mark: can go on a run of letters or of signs.
    Either,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        ' ' | '\t'..='\r' => Class::Space,
        '0'..='9' => Class::Digit,
        '\0'..='\x7f' => Class::Sign,
        // Punctuation of the scripts that are written without spaces: were it taken for a possible mark, a whole
        // paragraph of Chinese would be one run.
        '\u{2010}'..='\u{2027}' | '\u{3001}'..='\u{3020}' | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff1f}' => {
            Class::Sign
        }
        c if c.is_alphabetic() => Class::Letter,
        c if c.is_numeric() => Class::Digit,
        c if c.is_whitespace() => Class::Space,
        _ => Class::Either,
    }
}

/// Length of the first slice of a text, at least one character.
fn slice_len(text: &str) -> usize {
    let (mut letters, mut signs, mut spaces) = (0, 0, 0);
    let mut before = Class::Space;
    for (at, c) in text.char_indices() {
        let (class, len) = (class(c), c.len_utf8());
        // A word, number or sign never reaches into the space or tab after it.
        let safe = matches!(c, ' ' | '\t') && before != Class::Space;
        if at > 0 && ((safe && at >= SLICE) || at + len > SLICE_MAX) {
            return at;
        }
        letters = if matches!(class, Class::Letter | Class::Either) { letters + len } else { 0 };
        signs = if matches!(class, Class::Sign | Class::Either) { signs + len } else { 0 };
        spaces = if class == Class::Space { spaces + len } else { 0 };
        if letters.max(signs).max(spaces) > RUN {
            return at;
        }
        before = class;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{RUN, SLICE_MAX, slices};

    #[test]
    fn slices_join_to_the_text_and_are_bounded() {
        let mixed = "word 12 — 名前を決めよう。\n".repeat(5_000);
        for text in ["", "a", &"a".repeat(1 << 20), &" ".repeat(1 << 20), &"é".repeat(99_999), &mixed] {
            assert_eq!(slices(text).collect::<String>(), *text);
            assert!(slices(text).all(|s| !s.is_empty() && s.len() <= SLICE_MAX));
        }
    }

    #[test]
    fn a_run_is_cut_at_its_bound_and_ordinary_text_at_a_space() {
        assert!(slices(&"a".repeat(10_000)).all(|s| s.len() <= RUN));
        let prose = "some words, and more: ".repeat(4_000);
        assert!(slices(&prose).skip(1).all(|s| s.starts_with(' ')));
        let chinese = "我们需要先确认配置文件是否存在，然后再继续。".repeat(60);
        assert_eq!(slices(&chinese).count(), 1);
    }
}
