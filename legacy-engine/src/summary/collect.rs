//! One walk over the messages, noting what a summary is made of.
//!
//! Decision: people's words weigh most. Rules and asks are taken from user messages; an agent's text gives decisions and
//! open work; tool output gives failures only.

use std::collections::HashSet;

use context_engine_interface::{BlockKind, MessageFlags, MessageView, Role};
use serde::Deserialize;

use super::actions::Actions;
use super::cues::cues;
use super::identifiers::{AGENT, Identifiers, USER};
use super::sections::{Items, Section};
use super::text::{is_cjk, key, sentences, shorten, unmarked, worth_reading};

/// Longest sentence that is quoted whole; longer ones are shortened.
const SENTENCE_CHARS: usize = 280;
/// Longest ask that is quoted as the pending one (contract §7.4: 800).
const ASK_CHARS: usize = 800;
/// Identifiers a summary may list.
const MAX_IDENTIFIERS: usize = 60;
/// Sentences of one message that may go into one part, so that a pasted text does not fill it.
const PER_MESSAGE: usize = 6;

/// A turn under way.
#[derive(Debug, Default)]
struct Turn {
    ask: String,
    reply: String,
    /// Whether the last thing said was a reply without calls.
    answered: bool,
    interrupted: bool,
}

/// What was noted so far.
#[derive(Debug)]
pub(super) struct Collector {
    items: Items,
    earlier: Items,
    actions: Actions,
    identifiers: Identifiers,
    turn: Turn,
    asked: bool,
    /// Keys of what was ticked off.
    done: HashSet<String>,
}

#[derive(Deserialize)]
struct SummaryField {
    summary: Option<String>,
}

impl Collector {
    /// Starts with what an earlier summary holds.
    pub(super) fn new(previous: Option<&str>) -> Collector {
        let mut collector = Collector {
            items: Items::default(),
            earlier: Items::default(),
            actions: Actions::default(),
            identifiers: Identifiers::default(),
            turn: Turn::default(),
            asked: false,
            done: HashSet::new(),
        };
        if let Some(previous) = previous {
            collector.carry(previous);
        }
        collector
    }

    /// Takes the next message in.
    pub(super) fn message(&mut self, message: &MessageView<'_>) {
        if message.flags.contains(MessageFlags::SYNTHETIC) || message.flags.contains(MessageFlags::EXCLUDED) {
            return;
        }
        match message.role {
            // What a heartbeat brought up is told; that there was one is not.
            Role::USER if message.flags.contains(MessageFlags::HEARTBEAT) => self.close_turn(200, 240),
            Role::USER => self.user(message),
            Role::ASSISTANT => self.assistant(message),
            Role::TOOL_RESULT => self.actions.result(message, &mut self.items),
            Role::COMPACTION_SUMMARY => {
                if let Some(summary) = summary_of(message) {
                    self.carry(&summary);
                }
            }
            Role::BRANCH_SUMMARY => {
                for line in summary_of(message).unwrap_or_default().lines() {
                    self.items.push(Section::Earlier, shorten(unmarked(line), SENTENCE_CHARS));
                }
            }
            _ => self.other(message),
        }
    }

    fn carry(&mut self, summary: &str) {
        let carried = Items::parse(summary);
        for section in Section::ALL {
            for item in carried.of(section) {
                self.earlier.push(section, item.clone());
            }
        }
    }

    fn user(&mut self, message: &MessageView<'_>) {
        self.close_turn(200, 240);
        let mut ask = String::new();
        for text in texts(message) {
            ask.push_str(text);
            ask.push('\n');
        }
        self.asked = true;
        let mut rules = 0;
        for sentence in worth_reading(&ask).into_iter().flat_map(sentences) {
            let cues = cues(sentence);
            let long = sentence.chars().count() > 2 * SENTENCE_CHARS;
            if (cues.rule || cues.wish) && rules < PER_MESSAGE && !long && says_enough(sentence) {
                rules += 1;
                self.items.push(Section::Rules, shorten(sentence, SENTENCE_CHARS));
            }
            if cues.todo && !long {
                self.items.push(Section::Todos, shorten(sentence, SENTENCE_CHARS));
            }
            if cues.decision && !long {
                self.items.push(Section::Decisions, shorten(sentence, SENTENCE_CHARS));
            }
        }
        for part in worth_reading(&ask) {
            self.identifiers.read(part, USER);
        }
        if self.items.of(Section::Goal).is_empty() && says_enough(&ask) {
            self.items.push(Section::Goal, shorten(&ask, ASK_CHARS));
        }
        self.turn = Turn { ask, ..Turn::default() };
    }

    fn assistant(&mut self, message: &MessageView<'_>) {
        let (mut calls, mut said) = (false, false);
        for block in message.blocks.iter() {
            match block.kind {
                BlockKind::TOOL_CALL => {
                    calls = true;
                    self.actions.call(block, &mut self.identifiers);
                }
                BlockKind::TEXT => {
                    let text = block.text.as_str();
                    if text.trim() == "HEARTBEAT_OK" {
                        continue;
                    }
                    self.statements(text);
                    if !said {
                        self.turn.reply.clear();
                    }
                    said = true;
                    self.turn.reply.push_str(text);
                    self.turn.reply.push('\n');
                }
                _ => {}
            }
        }
        let failed = message.flags.contains(MessageFlags::ERRORED) || message.flags.contains(MessageFlags::ABORTED);
        self.turn.interrupted = failed;
        self.turn.answered = said && !calls && !failed;
        if self.turn.answered && !self.asked {
            // The summarised part begins with the answer to what the earlier summary still calls pending.
            for done in self.earlier.take(Section::Pending) {
                self.earlier.push(Section::Progress, done);
            }
        }
    }

    /// Notes what an agent's text decides or leaves open.
    fn statements(&mut self, text: &str) {
        let (mut decisions, mut todos) = (0, 0);
        // How many of the next sentences belong to a list whose heading stated open work.
        let mut listed = 0;
        for part in worth_reading(text) {
            self.identifiers.read(part, AGENT);
            for sentence in sentences(part) {
                let done = sentence.strip_prefix("[x]").or_else(|| sentence.strip_prefix("[X]"));
                if let Some(done) = done {
                    self.done.insert(key(done));
                    continue;
                }
                let cues = cues(sentence);
                let heading = sentence.trim_end_matches('*').ends_with([':', '：']);
                if heading {
                    listed = if cues.todo { PER_MESSAGE } else { 0 };
                    continue;
                }
                let todo = cues.todo || listed > 0;
                listed = listed.saturating_sub(1);
                if cues.decision && decisions < PER_MESSAGE && says_enough(sentence) {
                    decisions += 1;
                    self.items.push(Section::Decisions, shorten(sentence, SENTENCE_CHARS));
                }
                if todo && todos < 2 * PER_MESSAGE && says_enough(sentence) && !sentence.ends_with(['?', '？']) {
                    todos += 1;
                    let open = sentence.strip_prefix("[ ]").unwrap_or(sentence).trim_start();
                    self.items.push(Section::Todos, shorten(open, SENTENCE_CHARS));
                }
            }
        }
    }

    fn other(&mut self, message: &MessageView<'_>) {
        if message.role == Role::BASH_EXECUTION {
            #[derive(Deserialize)]
            struct Command {
                command: Option<String>,
            }
            let ran = serde_json::from_str::<Command>(message.json.as_str()).ok().and_then(|c| c.command);
            if let Some(command) = ran {
                self.items.push(Section::Actions, format!("(user) {}", shorten(&command, 160)));
            }
            return;
        }
        for sentence in texts(message).flat_map(worth_reading).flat_map(sentences).take(200) {
            if cues(sentence).rule && says_enough(sentence) {
                self.items.push(Section::Rules, shorten(sentence, SENTENCE_CHARS));
            }
        }
    }

    fn close_turn(&mut self, ask_chars: usize, reply_chars: usize) {
        let turn = std::mem::take(&mut self.turn);
        let tally = self.actions.take_tally();
        let ask = lead(&turn.ask, ask_chars);
        let reply = lead(&turn.reply, reply_chars);
        let mut line = ask;
        for (part, before, after) in [(&reply, " → ", ""), (&tally, " (", ")")] {
            if !part.is_empty() {
                line.push_str(&format!("{before}{part}{after}"));
            }
        }
        if turn.interrupted {
            line.push_str(" [interrupted]");
        }
        self.items.push(Section::Progress, line.trim_start_matches(" → ").to_owned());
    }

    /// All that was found, with what the earlier summary adds.
    pub(super) fn finish(mut self) -> Items {
        if self.asked && !self.turn.answered {
            self.items.push(Section::Pending, shorten(&self.turn.ask, ASK_CHARS));
        }
        // The newest turn is where the reader goes on from.
        self.close_turn(300, 600);
        let Collector { mut items, mut earlier, actions, identifiers, asked, done, .. } = self;
        actions.finish(&mut items);
        if asked {
            for done in earlier.take(Section::Pending) {
                earlier.push(Section::Progress, done);
            }
        }
        for section in Section::ALL {
            items.prepend(section, earlier.take(section));
        }
        let known: Vec<String> = items.take(Section::Identifiers);
        for identifier in known.iter().map(String::as_str).chain(identifiers.best(MAX_IDENTIFIERS)) {
            items.push(Section::Identifiers, identifier.to_owned());
        }
        let todos = items.take(Section::Todos);
        items.prepend(Section::Todos, todos.into_iter().filter(|todo| !done.contains(&key(todo))).collect());
        drop_repeats(&mut items);
        items
    }
}

/// Leaves out what stands twice, within a part and between parts.
fn drop_repeats(items: &mut Items) {
    for (section, most) in [
        (Section::Goal, 2),
        (Section::Decisions, 40),
        (Section::Todos, 20),
        (Section::Rules, 40),
        (Section::Pending, 3),
        (Section::Identifiers, 2 * MAX_IDENTIFIERS),
        (Section::Progress, 120),
        (Section::Actions, 40),
        (Section::Failures, 8),
        (Section::Modified, 100),
        (Section::Read, 60),
        (Section::Earlier, 60),
    ] {
        items.tidy(section, most);
    }
    let modified: Vec<String> = items.of(Section::Modified).to_vec();
    let read = items.take(Section::Read);
    let unchanged: Vec<String> = read.into_iter().filter(|path| !modified.contains(path)).collect();
    let listed = |identifier: &String| modified.contains(identifier) || unchanged.contains(identifier);
    let identifiers = items.take(Section::Identifiers);
    items.prepend(Section::Identifiers, identifiers.into_iter().filter(|id| !listed(id)).collect());
    items.prepend(Section::Read, unchanged);
}

/// The sentences a text begins with, as far as they say something.
fn lead(text: &str, max: usize) -> String {
    let [head, _] = worth_reading(text);
    let mut out = String::new();
    for sentence in sentences(head) {
        // "Perfect!" and "Done!" tell nothing; what follows does.
        if out.is_empty() && sentence.ends_with('!') && sentence.split_whitespace().count() < 3 {
            continue;
        }
        let separator = if out.is_empty() { "" } else { " " };
        let room = max.saturating_sub(out.chars().count() + separator.len());
        let short = shorten(sentence, room);
        if short.is_empty() {
            break;
        }
        out.push_str(separator);
        out.push_str(&short);
        if out.chars().count() > max / 3 && !out.ends_with(':') {
            break;
        }
    }
    out
}

fn says_enough(text: &str) -> bool {
    let weight = text.chars().map(|c| if is_cjk(c) { 3 } else { usize::from(!c.is_whitespace()) });
    weight
        .scan(0, |sum, w| {
            *sum += w;
            Some(*sum)
        })
        .any(|sum| sum >= 12)
}

fn texts<'a>(message: &MessageView<'a>) -> impl Iterator<Item = &'a str> {
    message.blocks.as_slice().iter().filter(|b| b.kind == BlockKind::TEXT).map(|b| b.text.as_str())
}

/// The text of a summary message.
pub(crate) fn summary_of(message: &MessageView<'_>) -> Option<String> {
    let field = serde_json::from_str::<SummaryField>(message.json.as_str()).ok().and_then(|f| f.summary);
    let text = field.unwrap_or_else(|| texts(message).collect::<Vec<_>>().join("\n"));
    (!text.trim().is_empty()).then_some(text)
}
