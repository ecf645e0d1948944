//! Replay: a recorded session through the lifecycle of an engine, call by call.
//!
//! Rules (design §5): the history is the raw messages of the active branch; one call is one recorded model response; what
//! is compacted on the way lives in memory, the recorded file is never written; `bootstrap` is called once,
//! and only when the session already has a transcript (a replay that starts later than the first turn).

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use context_engine_interface::{MessageFlags, Role};
use context_engine_legacy::compaction::KEEP_RECENT_TOKENS;
use context_engine_loader::{EngineHandle, TurnTaken};
use context_engine_transcript::{HistoryOptions, Message, RecordedSession, TokenCounter};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RuntimeError;
use crate::session::ExtractiveCompactor;
use crate::session::live::{LiveSession, Prompt, Recovery, Scope};
use crate::turn::SettingsFacts;

/// Which turns to play, counted from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnRange {
    first: usize,
    last: Option<usize>,
}

impl Default for TurnRange {
    fn default() -> TurnRange {
        TurnRange { first: 1, last: None }
    }
}

impl FromStr for TurnRange {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<TurnRange, RuntimeError> {
        let refuse = || RuntimeError::TurnRange(text.to_owned());
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|&n| n > 0).ok_or_else(refuse);
        let range = match text.split_once("..") {
            None => TurnRange { first: number(text)?, last: Some(number(text)?) },
            Some((first, last)) => TurnRange {
                first: if first.trim().is_empty() { 1 } else { number(first)? },
                last: if last.trim().is_empty() { None } else { Some(number(last.trim_start_matches('='))?) },
            },
        };
        if range.last.is_some_and(|last| last < range.first) { Err(refuse()) } else { Ok(range) }
    }
}

impl fmt::Display for TurnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.first)?;
        self.last.map_or(Ok(()), |last| write!(f, "{last}"))
    }
}

/// How a session is played.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// What one prompt may cost, system prompt included, in tokens.
    pub budget: u64,
    /// Which turns are played; the ones before are history.
    pub turns: TurnRange,
    /// Keep the compactions that were recorded, instead of playing the raw messages.
    pub honor_compactions: bool,
    /// Tokens of recent history a compaction keeps; [`KEEP_RECENT_TOKENS`] when absent.
    pub keep_recent: Option<u64>,
}

/// One call of the replay, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct CallReport {
    /// The turn, counted from 1.
    pub turn: usize,
    /// The call in the turn, counted from 1.
    pub call: usize,
    /// Raw messages of the session before this call.
    pub history_messages: usize,
    /// What they would cost in full, system prompt not included.
    pub history_tokens: u64,
    /// Messages in the prompt.
    pub sent_messages: usize,
    /// What the prompt costs, system prompt included.
    pub sent_tokens: u64,
    /// The engine that made it.
    pub served_by: String,
    /// Why it was not the one asked for.
    pub fallback: Option<String>,
    /// Whether the session was compacted for this call.
    pub compacted: bool,
    /// Time the engine took, in microseconds.
    pub assemble_us: u64,
    /// Messages that the summaries in the prompt stand for.
    pub summarised: usize,
    /// Messages of the history that are not in the prompt as they are: summarised, shortened or left out.
    pub left_out: usize,
    /// Calls and results the host repaired in the plan.
    pub repaired: usize,
    /// Whether the plan was over budget and the host fitted it.
    pub fitted: bool,
}

/// The whole replay, as `--json` prints it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReplaySummary {
    /// Turns played.
    pub turns: usize,
    /// Calls played.
    pub calls: usize,
    /// Messages of the session's active branch.
    pub messages: usize,
    /// Tokens of all prompts together.
    pub sent_tokens: u64,
    /// Median prompt.
    pub sent_tokens_p50: u64,
    /// 95th percentile.
    pub sent_tokens_p95: u64,
    /// Largest prompt.
    pub sent_tokens_max: u64,
    /// Compactions made on the way.
    pub compactions: usize,
    /// What the summaries they wrote cost, in tokens.
    pub summary_tokens: u64,
    /// Calls that another engine than the one asked for answered.
    pub fallbacks: usize,
    /// Calls whose plan was over budget and fitted by the host.
    pub fitted: usize,
    /// Calls and results the host repaired.
    pub repaired: usize,
    /// Median time of an engine call, in microseconds.
    pub assemble_us_p50: u64,
    /// 95th percentile.
    pub assemble_us_p95: u64,
    /// Longest.
    pub assemble_us_max: u64,
    /// Time of the whole replay, in milliseconds.
    pub total_ms: u64,
    /// Recorded entries that are not part of the played history, by kind.
    pub skipped: Map<String, Value>,
}

/// A session, ready to be played.
#[derive(Debug)]
pub struct Replay<'a> {
    session: &'a RecordedSession,
    messages: Vec<Arc<Message>>,
    skipped: Map<String, Value>,
    /// For each message the turn it belongs to; 0 before the first.
    turns: Vec<usize>,
    counter: TokenCounter,
    options: ReplayOptions,
}

impl<'a> Replay<'a> {
    /// Takes the history of `session`, whose messages are counted already.
    ///
    /// # Errors
    /// [`RuntimeError::Turns`] when the turns asked for are not there; [`RuntimeError::SystemPrompt`] when there is no
    /// room beside the system prompt.
    pub fn new(
        session: &'a RecordedSession,
        counter: TokenCounter,
        options: ReplayOptions,
    ) -> Result<Replay<'a>, RuntimeError> {
        let history = session.history(HistoryOptions { honor_compactions: options.honor_compactions });
        let turns = number_turns(&history.messages);
        let found = turns.last().copied().unwrap_or(0);
        if found > 0 && options.turns.first > found {
            return Err(RuntimeError::Turns { asked: options.turns.to_string(), found });
        }
        let system = session.system.as_deref().map_or(0, |system| counter.text(system));
        if system >= options.budget {
            return Err(RuntimeError::SystemPrompt { system, budget: options.budget });
        }
        let skipped = history.skipped.iter().map(|(kind, count)| (kind.clone(), Value::from(*count))).collect();
        Ok(Replay { session, messages: history.messages, skipped, turns, counter, options })
    }

    /// How many calls will be played.
    pub fn calls(&self) -> usize {
        let played = |turn: usize| self.plays(turn);
        self.messages.iter().zip(&self.turns).filter(|(m, turn)| m.role == Role::ASSISTANT && played(**turn)).count()
    }

    fn plays(&self, turn: usize) -> bool {
        // What was said before the first turn belongs to it.
        let turn = turn.max(1);
        turn >= self.options.turns.first && self.options.turns.last.is_none_or(|last| turn <= last)
    }

    /// Plays the session with `engine`, which stays usable: disposing of it is its owner's affair. `on_call` is given each
    /// call's report and prompt.
    ///
    /// # Errors
    /// [`RuntimeError::Assemble`] when a prompt cannot be made; whatever `on_call` returns.
    pub fn run<E: From<RuntimeError>>(
        &self,
        engine: &EngineHandle,
        asked_for: &str,
        mut on_call: impl FnMut(&CallReport, &Prompt) -> Result<(), E>,
    ) -> Result<ReplaySummary, E> {
        let started = Instant::now();
        let system = self.session.system.as_deref();
        let id: Arc<str> = self.session.id.as_str().into();
        let live = Arc::new(LiveSession {
            file: Arc::clone(&id),
            id,
            key: format!("agent:replay:{}", self.session.id).into(),
            system: system.map(str::to_owned),
            fixed_tokens: system.map_or(0, |system| self.counter.text(system)),
            model: self.session.model.as_deref().map(Arc::from),
            budget: self.options.budget,
            keep_recent: self.options.keep_recent.unwrap_or(KEEP_RECENT_TOKENS),
            counter: self.counter,
            available_tools: Arc::default(),
            compactor: Arc::new(ExtractiveCompactor),
            completer: None,
            state: Arc::default(),
            turn: Arc::default(),
        });
        live.state().conversation.set_model(live.model.as_deref(), false, &self.counter);
        let mut reports: Vec<CallReport> = Vec::new();
        let (mut tokens, mut call, mut turn, mut turns) = (0, 0, 0, 0);
        let mut turn_starts_at = 0;
        let mut bootstrapped = false;
        let host_params = self.host_params(&live, asked_for, None);
        for (at, message) in self.messages.iter().enumerate() {
            let this_turn = self.turns[at].max(1);
            if this_turn != turn {
                self.end_turn(engine, asked_for, &live, turn, turn_starts_at..at);
                (turn, call, turn_starts_at) = (this_turn, 0, at);
                turns += usize::from(self.plays(turn));
            }
            if self.plays(turn) && !bootstrapped {
                bootstrapped = true;
                if at > 0 && engine.bootstrap(&live.call(&host_params, &Scope::default())).value.is_some() {
                    engine.maintain(&live.call(&host_params, &Scope::default()));
                }
            }
            if message.role == Role::ASSISTANT && self.plays(turn) {
                call += 1;
                let prompted = self.messages[turn_starts_at..at].iter().find(|m| m.role == Role::USER);
                let host_params = self.host_params(&live, asked_for, prompted.map(|m| m.text()));
                // A recorded session is read as it was: compacted once for a call, its tool results left alone.
                let recovery = Recovery {
                    compactions: 1,
                    truncate: None,
                    compact_params: &|_, _| Arc::clone(&host_params),
                    compacted: &|_| (),
                };
                let prompt = live
                    .prompt(engine, &host_params, &Scope::default(), &recovery)
                    .map_err(|source| RuntimeError::Assemble { turn, call, source })?;
                let report = report(turn, call, at, tokens, &prompt);
                on_call(&report, &prompt)?;
                reports.push(report);
            }
            tokens += message.tokens;
            live.state().remember(Arc::clone(message), &self.counter);
        }
        self.end_turn(engine, asked_for, &live, turn, turn_starts_at..self.messages.len());
        let mut summary = summarise(&reports, asked_for);
        summary.turns = turns;
        summary.messages = self.messages.len();
        summary.compactions = live.state().conversation.compactions();
        summary.summary_tokens = live.state().conversation.summary_tokens();
        summary.skipped = self.skipped.clone();
        summary.total_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(summary)
    }

    /// Hands the engine the turn of the messages `start..end`. A turn that failed or was interrupted calls nothing
    /// (contract §2.2).
    fn end_turn(
        &self,
        engine: &EngineHandle,
        asked_for: &str,
        live: &Arc<LiveSession>,
        turn: usize,
        messages: Range<usize>,
    ) {
        let messages = &self.messages[messages];
        let failed = MessageFlags::ERRORED.with(MessageFlags::ABORTED);
        let last_reply = messages.iter().rfind(|message| message.role == Role::ASSISTANT);
        if !self.plays(turn) || turn == 0 || last_reply.is_none_or(|reply| reply.flags.0 & failed.0 != 0) {
            return;
        }
        let host_params = self.host_params(live, asked_for, None);
        let turn = Arc::new(live.prepare(messages));
        let whole = || Arc::new(live.prepared());
        let taken = engine.take_turn(&live.call(&host_params, &Scope::default()), &turn, whole, live.budget);
        if matches!(taken.value, TurnTaken::By(_)) {
            engine.maintain(&live.call(&host_params, &Scope::default()));
        }
    }

    fn host_params(&self, live: &LiveSession, asked_for: &str, prompt: Option<String>) -> Arc<Map<String, Value>> {
        let settings = SettingsFacts {
            resolved_model: live.model.as_deref().map(str::to_owned),
            selected_engine: Some(asked_for.to_owned()),
            host_id: Some("replay".into()),
            host_label: Some("Replay of a recorded session".into()),
            prompt_token_budget: Some(live.budget),
            ..SettingsFacts::default()
        };
        let settings = settings.settings();
        let mut params = Map::new();
        params.insert("sessionKey".into(), (*live.key).into());
        if let Some(prompt) = prompt {
            params.insert("prompt".into(), prompt.into());
        }
        // A struct of strings and numbers always has a JSON form.
        params.insert("runtimeSettings".into(), serde_json::to_value(settings).unwrap_or_default());
        Arc::new(params)
    }
}

/// The turn of each message: a turn starts at a user message, unless the one before is a user message too.
pub(crate) fn number_turns(messages: &[Arc<Message>]) -> Vec<usize> {
    let mut turn = 0;
    let mut after_user = false;
    let number = |message: &Arc<Message>| {
        let user = message.role == Role::USER;
        turn += usize::from(user && !after_user);
        after_user = user;
        turn
    };
    messages.iter().map(number).collect()
}

fn report(turn: usize, call: usize, history_messages: usize, history_tokens: u64, prompt: &Prompt) -> CallReport {
    let assembled = &prompt.assembled;
    CallReport {
        turn,
        call,
        history_messages,
        history_tokens,
        sent_messages: assembled.messages.len(),
        sent_tokens: prompt.tokens,
        served_by: assembled.served_by.clone(),
        fallback: assembled.why.clone(),
        compacted: prompt.compacted,
        assemble_us: u64::try_from(assembled.took.as_micros()).unwrap_or(u64::MAX),
        summarised: assembled.summarised + prompt.behind_summary,
        left_out: assembled.left_out + prompt.behind_summary,
        repaired: assembled.repaired,
        fitted: assembled.fitted,
    }
}

fn summarise(reports: &[CallReport], asked_for: &str) -> ReplaySummary {
    let sorted = |value: fn(&CallReport) -> u64| {
        let mut values: Vec<u64> = reports.iter().map(value).collect();
        values.sort_unstable();
        values
    };
    let (sent, took) = (sorted(|report| report.sent_tokens), sorted(|report| report.assemble_us));
    let count = |is: fn(&CallReport) -> bool| reports.iter().filter(|report| is(report)).count();
    ReplaySummary {
        calls: reports.len(),
        sent_tokens: sent.iter().sum(),
        sent_tokens_p50: percentile(&sent, 50),
        sent_tokens_p95: percentile(&sent, 95),
        sent_tokens_max: percentile(&sent, 100),
        fallbacks: reports.iter().filter(|report| report.served_by != asked_for).count(),
        fitted: count(|report| report.fitted),
        repaired: reports.iter().map(|report| report.repaired).sum(),
        assemble_us_p50: percentile(&took, 50),
        assemble_us_p95: percentile(&took, 95),
        assemble_us_max: percentile(&took, 100),
        ..ReplaySummary::default()
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed; 0 for none.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}
