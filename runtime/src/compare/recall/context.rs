//! Whether a thing came with what was said about it.
//!
//! Decision: words, not meaning: of the words that stood around the thing where it was said, so many have to stand around it
//! in the prompt. Words that belong to identifiers do not count, so a list of identifiers carries no context, in whatever
//! order; and where nothing but identifiers stands around a thing, nothing can be asked for.

use std::collections::HashMap;
use std::ops::Range;

use super::text::words;
use super::things;

/// A line with more words than this is not taken whole.
const LONG_LINE: usize = 25;
/// How many words on each side are taken of a long line, and of a short one that says too little.
const AROUND: usize = 12;
/// The fewest different words that make a context.
const LEAST: usize = 4;

/// Numbers for words, so that they compare fast. Letters' case does not count.
#[derive(Debug, Default)]
pub(crate) struct Words {
    known: HashMap<String, u32>,
}

/// The number of a word that was never said in the session.
const UNKNOWN: u32 = u32::MAX;

impl Words {
    pub(crate) fn learn(&mut self, text: &str) {
        for (start, end) in words(text) {
            let word = text[start..end].to_lowercase();
            let next = self.known.len() as u32;
            self.known.entry(word).or_insert(next);
        }
    }

    fn number(&self, word: &str, lower: &mut String) -> u32 {
        if !word.chars().any(char::is_uppercase) {
            return self.known.get(word).copied().unwrap_or(UNKNOWN);
        }
        lower.clear();
        lower.extend(word.chars().flat_map(char::to_lowercase));
        self.known.get(lower.as_str()).copied().unwrap_or(UNKNOWN)
    }
}

/// The words of a text, by number.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// Where each stands, in bytes.
    places: Vec<(u32, u32)>,
    numbers: Vec<u32>,
}

impl Numbered {
    pub(crate) fn read(text: &str, known: &Words) -> Numbered {
        let mut lower = String::new();
        let (mut places, mut numbers) = (Vec::new(), Vec::new());
        for (start, end) in words(text) {
            places.push((start as u32, end as u32));
            numbers.push(known.number(&text[start..end], &mut lower));
        }
        Numbered { places, numbers }
    }

    /// The words that `bytes` touches.
    pub(crate) fn touched(&self, bytes: Range<usize>) -> Range<usize> {
        let first = self.places.partition_point(|(_, end)| (*end as usize) <= bytes.start);
        let end = self.places.partition_point(|(start, _)| (*start as usize) < bytes.end);
        first..end.max(first)
    }

    pub(crate) fn into_numbers(self) -> Box<[u32]> {
        self.numbers.into()
    }
}

/// The words around a thing where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    /// Different, ascending.
    words: Box<[u32]>,
    /// How many words on each side of the thing they may be found in.
    reach: u32,
}

impl Context {
    /// The context of the thing at `bytes`, in a text with these words of which `named` belong to identifiers. `None` when
    /// nothing but identifiers stands around it.
    pub(crate) fn of(text: &str, numbered: &Numbered, named: &[bool], bytes: Range<usize>) -> Option<Context> {
        let thing = numbered.touched(bytes.clone());
        let line = numbered.touched(line_around(text, bytes));
        let within = |range: &Range<usize>| {
            let start = thing.start.saturating_sub(AROUND).max(range.start);
            start..(thing.end + AROUND).min(range.end)
        };
        let near = if line.len() - thing.len().min(line.len()) > LONG_LINE { within(&line) } else { line };
        let context = |range: Range<usize>| {
            let said = range.clone().filter(|at| !thing.contains(at) && !named[*at]);
            let mut words: Vec<u32> = said.map(|at| numbered.numbers[at]).collect();
            words.sort_unstable();
            words.dedup();
            let reach = (range.len() * 3).div_ceil(2) as u32;
            (words.len() >= LEAST).then(|| Context { words: words.into(), reach })
        };
        context(near).or_else(|| context(within(&(0..numbered.numbers.len()))))
    }

    /// Whether 60 % of the context stands around the words `thing` of a part.
    pub(crate) fn is_near(&self, part: &[u32], thing: Range<usize>, scratch: &mut Vec<u32>) -> bool {
        let reach = self.reach as usize;
        let (start, end) = (thing.start.saturating_sub(reach), (thing.end + reach).min(part.len()));
        scratch.clear();
        scratch.extend_from_slice(&part[start..thing.start.min(end)]);
        scratch.extend_from_slice(&part[thing.end.min(end)..end]);
        scratch.sort_unstable();
        let found = self.words.iter().filter(|word| scratch.binary_search(word).is_ok()).count();
        found * 10 >= self.words.len() * 6
    }
}

/// The words of a text that belong to identifiers.
pub(crate) fn named(text: &str, numbered: &Numbered) -> Vec<bool> {
    let mut named = vec![false; numbered.numbers.len()];
    let mut start = 0;
    for line in text.split('\n') {
        for found in things::find(line) {
            named[numbered.touched(start + found.range.start..start + found.range.end)].fill(true);
        }
        start += line.len() + 1;
    }
    named
}

/// The line that holds `bytes`.
pub(crate) fn line_around(text: &str, bytes: Range<usize>) -> Range<usize> {
    let start = text[..bytes.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[bytes.end..].find('\n').map_or(text.len(), |at| bytes.end + at);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the context of `thing` in `source` is near it in `prompt`; `None` without a context.
    fn came_along(thing: &str, source: &str, prompt: &str) -> Option<bool> {
        let mut known = Words::default();
        known.learn(source);
        let place = |text: &str| text.find(thing).map(|at| at..at + thing.len()).expect("the thing");
        let numbered = Numbered::read(source, &known);
        let context = Context::of(source, &numbered, &named(source, &numbered), place(source))?;
        let prompt_words = Numbered::read(prompt, &known);
        let thing = prompt_words.touched(place(prompt));
        Some(context.is_near(&prompt_words.into_numbers(), thing, &mut Vec::new()))
    }

    #[test]
    fn six_words_of_ten_are_enough_and_five_are_not() {
        let source = "one two three four five src/a.rs six seven eight nine ten";
        assert_eq!(came_along("src/a.rs", source, "Six, seven; one TWO three four: src/a.rs"), Some(true));
        assert_eq!(came_along("src/a.rs", source, "seven one two three four src/a.rs and more"), Some(false));
        assert_eq!(came_along("src/a.rs", source, source), Some(true));
    }

    #[test]
    fn words_far_from_the_thing_are_not_near_it() {
        let source = "alpha beta gamma delta src/a.rs";
        let far = format!("src/a.rs {} alpha beta gamma delta", "filler ".repeat(40));
        assert_eq!(came_along("src/a.rs", source, &far), Some(false));
    }

    #[test]
    fn of_a_long_line_twelve_words_on_each_side_count() {
        let far: Vec<String> = (0..40).map(|n| format!("f{}", "x".repeat(n + 1))).collect();
        let near = "a b c d e f g h i j k l";
        let source = format!("{} {near} src/a.rs {near} {}", far.join(" "), far.join(" "));
        assert_eq!(came_along("src/a.rs", &source, &format!("{near} src/a.rs")), Some(true));
        assert_eq!(came_along("src/a.rs", &source, &format!("{} src/a.rs", far.join(" "))), Some(false));
    }

    #[test]
    fn other_identifiers_are_no_context() {
        assert_eq!(
            came_along("src/a.rs", "src/a.rs src/b.rs fooBar max_len", "src/a.rs src/b.rs fooBar max_len"),
            None
        );
        let source = "files:\nsrc/a.rs\nsrc/b.rs\nthese hold the whole scheduler";
        assert_eq!(came_along("src/a.rs", source, "src/a.rs src/b.rs"), Some(false));
        assert_eq!(came_along("src/a.rs", source, source), Some(true));
    }
}
