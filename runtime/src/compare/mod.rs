//! Comparison: sessions, replayed with each engine and each budget, and what that says about the engines.
//!
//! Decision: a cell (session, engine, budget) is played on an engine instance of its own, and cells know nothing of each
//! other. So they run side by side, in any order, and the numbers are the same on every run, times apart. What is shared is
//! read only: the messages with their token counts, and the index of what their replies rely on.
//!
//! | file | what it decides |
//! |---|---|
//! | `report` | what is reported |
//! | `cell` | one session with one engine and one budget |
//! | `measures` | how calls become numbers |
//! | `recall` | what a reply relies on, and whether the prompt had it |
//! | `prefix`, `cost` | what of a prompt a provider has cached, and what that saves |
//! | `interval` | how sure a share is |
//! | `sample` | the prompt that is shown |
//!
//! docs/compare.md defines every number in words.

mod cell;
mod cost;
mod interval;
mod measures;
mod prefix;
mod recall;
mod report;
mod sample;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use context_engine_loader::{EngineHandle, LoaderError};
use context_engine_transcript::{RecordedSession, TokenCounter};

use crate::{ReplayOptions, RuntimeError};
use cell::{Outcome, Played};
use measures::Tally;
use recall::SessionIndex;
pub use report::{
    CallPoint, Cell, CompareReport, Cost, EngineFacts, Measures, Miss, Pooled, Prices, PromptPart, Recall,
    SamplePrompt, SessionFacts, Spread,
};

/// Version of [`CompareReport`].
///
/// - 1: the first.
pub const SCHEMA_VERSION: u32 = 1;

/// A session to compare engines on.
#[derive(Debug)]
pub struct SessionToCompare {
    /// Where it was read, for people.
    pub file: String,
    /// The session, its tokens counted with `counter`.
    pub session: RecordedSession,
    /// Counts its prompts.
    pub counter: TokenCounter,
}

/// How engines are compared.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Ids of the engines.
    pub engines: Vec<String>,
    /// What one prompt may cost, system prompt included, in tokens.
    pub budgets: Vec<u64>,
    /// What tokens cost.
    pub prices: Prices,
    /// As in [`ReplayOptions`].
    pub keep_recent: Option<u64>,
    /// How many cells are played at a time; 0 counts as 1.
    pub jobs: usize,
}

/// Opens an engine by its id, with this counter: an instance that shares nothing with another.
pub type Open<'a> = dyn Fn(&str, TokenCounter) -> Result<EngineHandle, LoaderError> + Sync + 'a;

/// Plays every session with every engine and every budget. `on_call` is called after each of the calls, from several
/// threads; [`calls`] says how many there will be.
///
/// # Errors
/// [`RuntimeError::Engine`] when an engine cannot be opened and nothing may answer in its place. What goes wrong in a cell is
/// in the report.
pub fn compare(
    sessions: &[SessionToCompare],
    options: &CompareOptions,
    open: &Open<'_>,
    on_call: &(dyn Fn() + Sync),
) -> Result<CompareReport, RuntimeError> {
    let mut options = options.clone();
    options.budgets.sort_unstable();
    options.budgets.dedup();
    let mut named = std::collections::HashSet::new();
    options.engines.retain(|engine| named.insert(engine.clone()));
    let engines = options.engines.iter().map(|id| facts(id, open)).collect::<Result<Vec<_>, _>>()?;
    let played = sessions.iter().map(|asked| Played::new(&asked.session, asked.counter)).collect();
    let comparison = Comparison { options: &options, open, on_call, played };
    let outcomes = comparison.play();
    let (cells, pooled) = comparison.gather(outcomes);
    let prompts = comparison.sample(&cells);
    let of_session = |(asked, played): (&SessionToCompare, &Played<'_>)| SessionFacts {
        id: asked.session.id.clone(),
        file: asked.file.clone(),
        turns: played.turns.last().copied().unwrap_or(0),
        calls: played.calls(),
        messages: played.messages.len(),
        tokens: played.messages.iter().map(|message| message.tokens).sum(),
    };
    let sessions = sessions.iter().zip(&comparison.played).map(of_session).collect();
    let (prices, budgets) = (options.prices, options.budgets.clone());
    Ok(CompareReport { schema_version: SCHEMA_VERSION, prices, engines, budgets, sessions, cells, pooled, prompts })
}

/// How many calls each cell of this session plays.
pub fn calls(session: &RecordedSession) -> usize {
    Played::new(session, TokenCounter::for_model(None)).calls()
}

fn facts(id: &str, open: &Open<'_>) -> Result<EngineFacts, RuntimeError> {
    let handle = open(id, TokenCounter::for_model(None)).map_err(Box::new)?;
    let (info, unavailable) = (handle.info(), handle.why());
    // What goes wrong at the end is in the log, and in no number.
    let _ = handle.dispose("released");
    let (name, version) = match unavailable {
        None => (info.name.clone(), info.version.clone()),
        Some(_) => Default::default(),
    };
    Ok(EngineFacts { id: id.to_owned(), name, version, unavailable })
}

struct Comparison<'a> {
    options: &'a CompareOptions,
    open: &'a Open<'a>,
    on_call: &'a (dyn Fn() + Sync),
    played: Vec<Played<'a>>,
}

impl Comparison<'_> {
    /// Session, engine and budget of each cell, in the order of the report.
    fn cells(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        let (engines, budgets) = (self.options.engines.len(), &self.options.budgets);
        let of_engine = move |session, engine| budgets.iter().map(move |budget| (session, engine, *budget));
        (0..self.played.len()).flat_map(move |session| (0..engines).flat_map(move |engine| of_engine(session, engine)))
    }

    /// Plays all cells; the outcomes stand in their order.
    fn play(&self) -> Vec<Outcome> {
        let cells: Vec<(usize, usize, u64)> = self.cells().collect();
        // The long ones first: none of them should begin when all others are done.
        let mut order: Vec<usize> = (0..cells.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.played[cells[*at].0].calls()));
        let indices: Vec<OnceLock<SessionIndex>> = self.played.iter().map(|_| OnceLock::new()).collect();
        let outcomes: Vec<Mutex<Outcome>> = cells.iter().map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (session, engine, budget) = cells[at];
                let index = indices[session].get_or_init(|| self.played[session].index());
                *outcomes[at].lock().unwrap_or_else(PoisonError::into_inner) =
                    self.cell(session, &self.options.engines[engine], budget, index);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.jobs.min(cells.len()) {
                scope.spawn(work);
            }
            work();
        });
        outcomes.into_iter().map(|outcome| outcome.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn cell(&self, session: usize, engine: &str, budget: u64, index: &SessionIndex) -> Outcome {
        let played = &self.played[session];
        let handle = match (self.open)(engine, played.counter) {
            Ok(handle) => handle,
            Err(error) => return Outcome { error: Some(error.to_string()), ..Outcome::default() },
        };
        let outcome =
            played.play((&handle, engine), self.replay_options(budget), (index, &self.options.prices), self.on_call);
        let _ = handle.dispose("shutdown");
        outcome
    }

    fn replay_options(&self, budget: u64) -> ReplayOptions {
        ReplayOptions { budget, keep_recent: self.options.keep_recent, ..ReplayOptions::default() }
    }

    fn gather(&self, outcomes: Vec<Outcome>) -> (Vec<Cell>, Vec<Pooled>) {
        let keys = || (0..self.options.engines.len()).flat_map(|e| self.options.budgets.iter().map(move |b| (e, *b)));
        let mut pools: Vec<((usize, u64), Tally)> = keys().map(|key| (key, Tally::default())).collect();
        let mut cells = Vec::with_capacity(outcomes.len());
        for ((session, engine, budget), outcome) in self.cells().zip(outcomes) {
            if let Some((_, pool)) = pools.iter_mut().find(|(key, _)| *key == (engine, budget)) {
                pool.pool(&outcome.tally);
            }
            let Outcome { error, tally, calls, misses } = outcome;
            cells.push(Cell { session, engine, budget, error, measures: tally.measures(), calls, misses });
        }
        let pooled =
            |((engine, budget), tally): ((usize, u64), Tally)| Pooled { engine, budget, measures: tally.measures() };
        (cells, pools.into_iter().map(pooled).collect())
    }

    fn sample(&self, cells: &[Cell]) -> Vec<SamplePrompt> {
        let engines = self.options.engines.len();
        let Some(place) = sample::where_engines_differ_most(cells, engines) else { return Vec::new() };
        let played = &self.played[place.session];
        let sample = |(engine, id): (usize, &String)| {
            let handle = (self.open)(id, played.counter).ok()?;
            let parts = sample::prompt_at(played, (&handle, id), self.replay_options(place.budget), place);
            let _ = handle.dispose("shutdown");
            let sample::Place { session, budget, turn, call } = place;
            Some(SamplePrompt { session, engine, budget, turn, call, parts: parts? })
        };
        self.options.engines.iter().enumerate().filter_map(sample).collect()
    }
}
