//! One session, played with one engine and one budget, and what was measured on the way.

use std::sync::Arc;

use context_engine_interface::Role;
use context_engine_loader::EngineHandle;
use context_engine_transcript::{Message, RecordedSession, TokenCounter};

use super::measures::Tally;
use super::prefix::Sent;
use super::recall::{Judge, SessionIndex, Window};
use super::report::{CallPoint, Miss, Prices};
use crate::replay::{Replay, ReplayOptions, number_turns};
use crate::{CallReport, Prompt, RuntimeError};

/// A session as all cells share it.
pub(crate) struct Played<'a> {
    pub(crate) session: &'a RecordedSession,
    pub(crate) counter: TokenCounter,
    /// The raw messages.
    pub(crate) messages: Vec<Arc<Message>>,
    /// For each message its turn; 0 before the first.
    pub(crate) turns: Vec<usize>,
    system_tokens: u64,
}

/// What became of a cell.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) error: Option<String>,
    pub(crate) tally: Tally,
    pub(crate) calls: Vec<CallPoint>,
    pub(crate) misses: Vec<Miss>,
}

impl<'a> Played<'a> {
    pub(crate) fn new(session: &'a RecordedSession, counter: TokenCounter) -> Played<'a> {
        let messages = session.history(Default::default()).messages;
        let turns = number_turns(&messages);
        let system_tokens = session.system.as_deref().map_or(0, |system| counter.text(system));
        Played { session, counter, messages, turns, system_tokens }
    }

    /// How many model responses it has: one prompt each.
    pub(crate) fn calls(&self) -> usize {
        self.messages.iter().filter(|message| message.role == Role::ASSISTANT).count()
    }

    pub(crate) fn index(&self) -> SessionIndex {
        SessionIndex::read(&self.messages, self.session.system.as_deref())
    }

    /// Plays it with `engine`. `on_call` is called after each call.
    pub(crate) fn play(
        &self,
        (engine, asked_for): (&EngineHandle, &str),
        options: ReplayOptions,
        (index, prices): (&SessionIndex, &Prices),
        on_call: &(dyn Fn() + Sync),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut window = Window::new(options.budget.saturating_sub(self.system_tokens));
        let mut judge = Judge::new(index);
        let mut before: Option<Sent> = None;
        let played = Replay::new(self.session, self.counter, options).and_then(|replay| {
            replay.run(engine, asked_for, |report: &CallReport, prompt: &Prompt| {
                let reply = report.history_messages;
                let common = before.as_ref().map(|before| before.common(prompt));
                before = Some(Sent::of(prompt));
                let its_own = report.served_by == asked_for;
                let judged = judge.judge(prompt, its_own, reply, window.start(&self.messages, reply));
                let point = CallPoint {
                    turn: report.turn,
                    call: report.call,
                    history_tokens: report.history_tokens,
                    sent_tokens: report.sent_tokens,
                    prefix: common.map(|common| common as f64 / report.sent_tokens.max(1) as f64),
                    compacted: report.compacted,
                    fell_back: !its_own,
                    cases: judged.cases,
                    hits: judged.cases - judged.misses.len(),
                };
                outcome.tally.add(&point, report, common.unwrap_or(0), prices);
                (outcome.tally.compactions, outcome.tally.summary_tokens) = (prompt.compactions, prompt.summary_tokens);
                outcome.calls.push(point);
                outcome.misses.extend(judged.misses.into_iter().map(|(thing, source)| Miss {
                    turn: report.turn,
                    call: report.call,
                    thing: thing.text.clone(),
                    kind: thing.kind.name().to_owned(),
                    said_in: self.messages[source.message].id.clone(),
                    said_turn: self.turns[source.message],
                    line: source.line.clone(),
                }));
                on_call();
                Ok::<(), RuntimeError>(())
            })
        });
        match played {
            Ok(summary) => {
                outcome.tally.compactions = summary.compactions;
                outcome.tally.summary_tokens = summary.summary_tokens;
            }
            Err(error) => outcome.error = Some(error.to_string()),
        }
        outcome
    }
}
