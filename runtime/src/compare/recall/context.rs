//! Whether a thing came with what was said about it.
//!
//! Decision: words, not meaning: of the words that stood around the thing where it was said, so many have to stand around it
//! in the prompt, as close and in the same order. Words of identifiers do not count, neither there nor here, and an
//! identifier is whatever looks like one anywhere in the session: so a list of identifiers, in whatever order, carries
//! nothing. Words that are said all the time do not count either: anybody can put them around a list.

use std::collections::HashMap;
use std::ops::Range;

use super::text::words;

/// A line with more words than this is not taken whole.
const LONG_LINE: usize = 25;
/// How many words on each side are taken of a long line, and of a short one that says too little.
const AROUND: usize = 12;
/// The fewest different words that make a context, and the fewest that have to come along.
const LEAST: usize = 5;

/// Numbers for words, so that they compare fast. Letters' case does not count.
#[derive(Debug, Default)]
pub(crate) struct Words {
    known: HashMap<String, u32>,
    /// For each word, in how many texts it stands, and the last of them.
    said: Vec<(usize, usize)>,
    common: Vec<bool>,
}

/// Stands for a word that says nothing about a thing: a common one, one of an identifier, or one that was never said in the
/// session.
const SAYS_NOTHING: u32 = u32::MAX;

impl Words {
    /// Takes the words of a text of message `message`; messages come in ascending order.
    pub(crate) fn learn(&mut self, message: usize, text: &str) {
        for (start, end) in words(text) {
            let word = text[start..end].to_lowercase();
            let next = self.said.len() as u32;
            let number = *self.known.entry(word).or_insert(next);
            if number == next {
                self.said.push((0, usize::MAX));
            }
            let (count, last) = &mut self.said[number as usize];
            if *last != message {
                (*count, *last) = (*count + 1, message);
            }
        }
    }

    /// Words that stand in more than `many` messages are common from here on.
    pub(crate) fn leave_out_common(&mut self, many: usize) {
        self.common = self.said.iter().map(|(count, _)| *count > many).collect();
    }

    fn number(&self, word: &str, lower: &mut String) -> u32 {
        let known = if word.chars().any(char::is_uppercase) {
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            self.known.get(lower.as_str())
        } else {
            self.known.get(word)
        };
        let says = known.filter(|number| !self.common.get(**number as usize).is_some_and(|common| *common));
        says.copied().unwrap_or(SAYS_NOTHING)
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

    /// The words at `bytes` belong to an identifier, and say nothing.
    pub(crate) fn silence(&mut self, bytes: Range<usize>) {
        let words = self.touched(bytes);
        self.numbers[words].fill(SAYS_NOTHING);
    }

    pub(crate) fn into_numbers(self) -> Box<[u32]> {
        self.numbers.into()
    }
}

/// The words around a thing where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    /// Those that say something, in their order. At most twice [`AROUND`] or [`LONG_LINE`].
    words: Box<[u32]>,
    /// How many words before the thing, and behind it, they may be found in.
    reach: (u32, u32),
}

impl Context {
    /// The context of the thing at `bytes`. `None` when too little is said about it.
    pub(crate) fn of(text: &str, numbered: &Numbered, bytes: Range<usize>) -> Option<Context> {
        let thing = numbered.touched(bytes.clone());
        let line = numbered.touched(line_around(text, bytes));
        let within = |range: &Range<usize>| {
            let start = thing.start.saturating_sub(AROUND).max(range.start);
            start..(thing.end + AROUND).min(range.end)
        };
        let near = if line.len() - thing.len().min(line.len()) > LONG_LINE { within(&line) } else { line };
        let context = |range: Range<usize>| {
            let around = range.clone().filter(|at| !thing.contains(at)).map(|at| numbered.numbers[at]);
            let words: Box<[u32]> = around.filter(|word| *word != SAYS_NOTHING).collect();
            let mut different = words.to_vec();
            different.sort_unstable();
            different.dedup();
            let (before, behind) = (thing.start.saturating_sub(range.start), range.end.saturating_sub(thing.end));
            let slack = (before + behind).div_ceil(4);
            let reach = ((before + slack) as u32, (behind + slack) as u32);
            (different.len() >= LEAST).then_some(Context { words, reach })
        };
        context(near).or_else(|| context(within(&(0..numbered.numbers.len()))))
    }

    /// Whether 60 % of the context stands in its order around the words `thing` of a part.
    pub(crate) fn is_near(&self, part: &[u32], thing: Range<usize>) -> bool {
        let start = thing.start.saturating_sub(self.reach.0 as usize);
        let end = (thing.end + self.reach.1 as usize).min(part.len());
        let before = part.get(start..thing.start).unwrap_or_default();
        let behind = part.get(thing.end..end).unwrap_or_default();
        let near = before.iter().chain(behind).filter(|word| **word != SAYS_NOTHING);
        let found = longest_common(&self.words, near);
        found >= LEAST && found * 10 >= self.words.len() * 6
    }
}

/// How many of `words` stand in `others` in the same order: the longest common subsequence, one bit for each word.
fn longest_common<'a>(words: &[u32], others: impl Iterator<Item = &'a u32>) -> usize {
    debug_assert!(words.len() <= 64);
    let mut open = u64::MAX;
    for other in others {
        let same = (0..).zip(words).filter(|(_, word)| *word == other).fold(0, |bits, (at, _)| bits | 1_u64 << at);
        let met = open & same;
        open = open.wrapping_add(met) | (open - met);
    }
    (0..words.len()).filter(|at| open >> at & 1 == 0).count()
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
        came_along_in(&[], thing, source, prompt)
    }

    /// The same, in a session that has these things, too.
    fn came_along_in(things: &[&str], thing: &str, source: &str, prompt: &str) -> Option<bool> {
        let mut known = Words::default();
        known.learn(0, source);
        let place = |text: &str| text.find(thing).map(|at| at..at + thing.len()).expect("the thing");
        let read = |text: &str| {
            let mut numbered = Numbered::read(text, &known);
            for thing in things.iter().chain([&thing]) {
                text.match_indices(thing).for_each(|(at, _)| numbered.silence(at..at + thing.len()));
            }
            numbered
        };
        let context = Context::of(source, &read(source), place(source))?;
        let prompt_words = read(prompt);
        let thing = prompt_words.touched(place(prompt));
        Some(context.is_near(&prompt_words.into_numbers(), thing))
    }

    #[test]
    fn six_words_of_ten_are_enough_and_five_are_not() {
        let source = "one two three four five src/a.rs six seven eight nine ten";
        assert_eq!(came_along("src/a.rs", source, "One, TWO; three four: src/a.rs six seven"), Some(true));
        assert_eq!(came_along("src/a.rs", source, "one two three src/a.rs six seven and more"), Some(false));
        assert_eq!(came_along("src/a.rs", source, source), Some(true));
    }

    #[test]
    fn words_in_another_order_are_not_what_was_said() {
        let source = "one two three four five src/a.rs six seven eight nine ten";
        assert_eq!(
            came_along("src/a.rs", source, "ten nine eight seven six src/a.rs five four three two one"),
            Some(false)
        );
    }

    #[test]
    fn of_a_short_context_five_words_have_to_come_along() {
        let source = "one two three four five six src/a.rs";
        assert_eq!(came_along("src/a.rs", source, "one two three four src/a.rs"), Some(false));
        assert_eq!(came_along("src/a.rs", source, "one two three four five src/a.rs"), Some(true));
        assert_eq!(came_along("src/a.rs", "one two three four src/a.rs", source), None);
    }

    #[test]
    fn words_of_a_thing_of_the_session_say_nothing_there_or_here() {
        let source = "one two three four five six seven src/a.rs";
        let listed = "two three four five six\nsrc/a.rs";
        assert_eq!(came_along("src/a.rs", source, listed), Some(true));
        assert_eq!(came_along_in(&["three four"], "src/a.rs", source, listed), Some(false));
        assert_eq!(came_along_in(&["three four"], "src/a.rs", source, source), Some(true));
        assert_eq!(came_along_in(&["three four five"], "src/a.rs", source, source), None);
    }

    #[test]
    fn words_of_too_many_messages_say_nothing() {
        let mut known = Words::default();
        (0..3).for_each(|message| known.learn(message, "the the harbour"));
        known.learn(3, "the crane");
        known.leave_out_common(3);
        let says =
            |text| Numbered::read(text, &known).into_numbers().iter().map(|n| *n != SAYS_NOTHING).collect::<Vec<_>>();
        assert_eq!(says("The harbour crane sings"), [false, true, true, false]);
    }

    #[test]
    fn words_far_from_the_thing_are_not_near_it() {
        let source = "alpha beta gamma delta epsilon src/a.rs";
        let far = format!("src/a.rs {} alpha beta gamma delta epsilon", "filler ".repeat(40));
        assert_eq!(came_along("src/a.rs", source, &far), Some(false));
    }

    #[test]
    fn of_a_long_line_twelve_words_on_each_side_count() {
        let far: Vec<String> = (0..40).map(|n| format!("f{}", "x".repeat(n + 1))).collect();
        let near = "a b c d e f g h i j k l";
        let source = format!("{} {near} src/a.rs {near} {}", far.join(" "), far.join(" "));
        assert_eq!(came_along("src/a.rs", &source, &format!("{near} src/a.rs {near}")), Some(true));
        assert_eq!(came_along("src/a.rs", &source, &format!("{} src/a.rs", far.join(" "))), Some(false));
    }

    #[test]
    fn other_identifiers_are_no_context() {
        let list = "src/a.rs src/b.rs fooBar max_len first.go last.go";
        let things = ["src/b.rs", "fooBar", "max_len", "first.go", "last.go"];
        assert_eq!(came_along_in(&things, "src/a.rs", list, list), None);
        let source = "files:\nsrc/a.rs\nsrc/b.rs\nthese hold the whole scheduler";
        assert_eq!(came_along("src/a.rs", source, "src/a.rs src/b.rs"), Some(false));
        assert_eq!(came_along("src/a.rs", source, source), Some(true));
    }
}
