//! What a session's replies rely on, and where it was said. Made once per session, shared by all engines and budgets.
//!
//! Decision: the things of all replies are known before the first prompt, so one automaton finds them all in one pass over
//! a text; a history of megabytes takes a fraction of a second, and so does each message that an engine writes anew.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use context_engine_interface::Role;
use context_engine_transcript::Message;

use super::context::{Context, Numbered, Words, line_around};
use super::text::{is_word, normal, parts};
use super::things::{self, Kind, is_cjk};

/// A thing or a word in more messages than this, and in more than [`EVERYWHERE_PERCENT`] of them, stands everywhere.
const EVERYWHERE: usize = 10;
const EVERYWHERE_PERCENT: usize = 10;
/// How much of a source line is shown.
const SHOWN: usize = 240;

/// The things of a session.
#[derive(Debug)]
pub(crate) struct SessionIndex {
    finder: Finder,
    pub(crate) things: Vec<Thing>,
    /// For each message what it relies on, when it is a reply: indices into `things`, ascending.
    relied_on: Vec<Vec<u32>>,
}

/// Something that replies rely on.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// The messages it stands in, ascending.
    said_in: Vec<u32>,
    /// Places with a context, in the order of the messages.
    sources: Vec<Source>,
}

/// A place where a thing was said.
#[derive(Debug)]
pub(crate) struct Source {
    /// Index of the message.
    pub(crate) message: usize,
    pub(crate) context: Context,
    /// The line, shortened around the thing.
    pub(crate) line: String,
}

/// Finds known things in texts: those that replies rely on first, and behind them everything that looks like one.
#[derive(Debug)]
struct Finder {
    words: Words,
    /// How many things replies rely on.
    relied_on: u32,
    /// `None` when there is nothing to find.
    automaton: Option<AhoCorasick>,
}

/// What a message of a prompt holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    parts: Vec<Box<[u32]>>,
    /// Thing, part, words of the part; ascending.
    found: Vec<(u32, u32, Range<usize>)>,
}

impl SessionIndex {
    /// Reads the raw messages of a session.
    pub(crate) fn read(messages: &[Arc<Message>], system: Option<&str>) -> SessionIndex {
        let texts: Vec<Vec<String>> = messages.iter().map(|message| parts(message)).collect();
        let mut things: Vec<Thing> = Vec::new();
        let mut relied_on = collect(messages, &texts, &mut things);
        let many = EVERYWHERE.max(messages.len() * EVERYWHERE_PERCENT / 100);
        let finder = Finder::new(&texts, &things, many);

        let mut places: Vec<(usize, usize, u32, Range<usize>)> = Vec::new();
        for (at, part, text) in numbered_parts(&texts) {
            finder.each(text, |thing, range| {
                let Some(Thing { said_in, .. }) = things.get_mut(thing as usize) else { return };
                if said_in.last() != Some(&(at as u32)) {
                    said_in.push(at as u32);
                }
                places.push((at, part, thing, range));
            });
        }
        let mut left_out: HashSet<u32> = HashSet::new();
        left_out.extend((0..).zip(&things).filter(|(_, thing)| thing.said_in.len() > many).map(|(id, _)| id));
        if let Some(system) = system {
            finder.each(&normal(system), |thing, _| _ = left_out.insert(thing));
        }
        relied_on.iter_mut().for_each(|things| things.retain(|id| !left_out.contains(id)));

        // Only what a later reply relies on needs its context.
        let mut last_use: HashMap<u32, usize> = HashMap::new();
        for (at, ids) in relied_on.iter().enumerate() {
            last_use.extend(ids.iter().map(|id| (*id, at)));
        }
        places.retain(|(at, _, thing, _)| last_use.get(thing).is_some_and(|last| last > at));
        for same_part in places.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (message, part) = (same_part[0].0, same_part[0].1);
            let text = &texts[message][part];
            let numbered = finder.read(text, |_, _| {});
            for (_, _, thing, range) in same_part {
                let Some(context) = Context::of(text, &numbered, range.clone()) else { continue };
                let sources = &mut things[*thing as usize].sources;
                let mut of_message = sources.iter().rev().take_while(|source| source.message == message);
                if !of_message.any(|source| source.context == context) {
                    sources.push(Source { message, context, line: shown(text, range.clone()) });
                }
            }
        }
        SessionIndex { finder, things, relied_on }
    }

    /// The cases of the reply `reply` beyond a window that starts at message `window`: things that were said before the
    /// window, with a context, and neither in it nor since.
    pub(crate) fn cases(&self, reply: usize, window: usize) -> impl Iterator<Item = (u32, &Thing)> {
        let ids = self.relied_on.get(reply).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(move |id| {
            let thing = self.things.get(*id as usize)?;
            let before = thing.said_in.partition_point(|at| (*at as usize) < reply);
            let last = *thing.said_in.get(before.checked_sub(1)?)? as usize;
            (last < window && !thing.sources_before(window).is_empty()).then_some((*id, thing))
        })
    }

    /// What a message of a prompt holds.
    pub(crate) fn scan(&self, message: &Message) -> Holds {
        self.scan_parts(&parts(message))
    }

    /// What a system prompt holds.
    pub(crate) fn scan_text(&self, text: &str) -> Holds {
        self.scan_parts(&[normal(text)])
    }

    fn scan_parts(&self, texts: &[String]) -> Holds {
        let mut holds = Holds::default();
        for text in texts {
            let mut ranges = Vec::new();
            let numbered = self.finder.read(text, |thing, range| ranges.push((thing, range)));
            if ranges.is_empty() {
                continue;
            }
            let part = holds.parts.len() as u32;
            holds.found.extend(ranges.into_iter().map(|(thing, range)| (thing, part, numbered.touched(range))));
            holds.parts.push(numbered.into_numbers());
        }
        holds.found.sort_unstable_by_key(|(thing, part, words)| (*thing, *part, words.start, words.end));
        holds
    }
}

impl Thing {
    /// The places before message `window`.
    pub(crate) fn sources_before(&self, window: usize) -> &[Source] {
        &self.sources[..self.sources.partition_point(|source| source.message < window)]
    }
}

impl Holds {
    /// Whether the thing `id` stands here with the context of one of the sources.
    pub(crate) fn carries(&self, id: u32, sources: &[Source]) -> bool {
        let first = self.found.partition_point(|(thing, ..)| *thing < id);
        self.found[first..].iter().take_while(|(thing, ..)| *thing == id).any(|(_, part, words)| {
            let part = &self.parts[*part as usize];
            sources.iter().rev().any(|source| source.context.is_near(part, words.clone()))
        })
    }
}

impl Finder {
    /// Words in more than `many` messages count as common.
    fn new(texts: &[Vec<String>], relied_on: &[Thing], many: usize) -> Finder {
        let mut words = Words::default();
        let mut patterns: Vec<&str> = relied_on.iter().map(|thing| thing.text.as_str()).collect();
        let mut known: HashSet<&str> = patterns.iter().copied().collect();
        for (at, _, text) in numbered_parts(texts) {
            words.learn(at, text);
            for line in text.split('\n') {
                let found = things::find(line).into_iter().map(|found| &line[found.range]);
                patterns.extend(found.filter(|thing| known.insert(thing)));
            }
        }
        words.leave_out_common(many);
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&patterns).ok();
        Finder { words, relied_on: relied_on.len() as u32, automaton: automaton.filter(|_| !relied_on.is_empty()) }
    }

    /// The words of a text, those of things silenced. Calls `found` for each place of a thing that replies rely on.
    fn read(&self, text: &str, mut found: impl FnMut(u32, Range<usize>)) -> Numbered {
        let mut numbered = Numbered::read(text, &self.words);
        self.each(text, |thing, range| {
            numbered.silence(range.clone());
            if thing < self.relied_on {
                found(thing, range);
            }
        });
        numbered
    }

    /// Calls `found` for each place where a thing stands that is no part of a longer word.
    fn each(&self, text: &str, mut found: impl FnMut(u32, Range<usize>)) {
        let Some(automaton) = &self.automaton else { return };
        let goes_through = |at: usize| {
            let (before, behind) = text.split_at(at);
            // In scripts without spaces each character is a word of its own.
            let in_word = |c: char| is_word(c) && !is_cjk(c);
            before.chars().next_back().is_some_and(in_word) && behind.chars().next().is_some_and(in_word)
        };
        for place in automaton.find_overlapping_iter(text) {
            let (start, end) = (place.start(), place.end());
            if !goes_through(start) && !goes_through(end) {
                found(place.pattern().as_u32(), start..end);
            }
        }
    }
}

/// Fills `things` with what the replies name; gives for each message the things it names.
fn collect(messages: &[Arc<Message>], texts: &[Vec<String>], things: &mut Vec<Thing>) -> Vec<Vec<u32>> {
    let mut ids: HashMap<String, u32> = HashMap::new();
    let named = |(message, texts): (&Arc<Message>, &Vec<String>)| {
        let mut named = Vec::new();
        if message.role == Role::ASSISTANT {
            for line in texts.iter().flat_map(|text| text.split('\n')) {
                for found in things::find(line) {
                    let text = &line[found.range];
                    let id = ids.get(text).copied().unwrap_or_else(|| {
                        let id = things.len() as u32;
                        let (said_in, sources) = (Vec::new(), Vec::new());
                        things.push(Thing { text: text.to_owned(), kind: found.kind, said_in, sources });
                        ids.insert(text.to_owned(), id);
                        id
                    });
                    named.push(id);
                }
            }
        }
        named.sort_unstable();
        named.dedup();
        named
    };
    messages.iter().zip(texts).map(named).collect()
}

fn numbered_parts(texts: &[Vec<String>]) -> impl Iterator<Item = (usize, usize, &str)> {
    texts
        .iter()
        .enumerate()
        .flat_map(|(at, parts)| parts.iter().enumerate().map(move |(part, text)| (at, part, text.as_str())))
}

/// The line that holds `thing`; of a long one what stands around it.
fn shown(text: &str, thing: Range<usize>) -> String {
    let line = line_around(text, thing.clone());
    if line.len() <= SHOWN {
        return text[line].to_owned();
    }
    let around = SHOWN.saturating_sub(thing.len()) / 2;
    let mut start = thing.start.saturating_sub(around).max(line.start);
    let mut end = (thing.end + around).min(line.end);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    let dots = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", dots(start > line.start), &text[start..end], dots(end < line.end))
}
