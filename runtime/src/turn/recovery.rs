//! What is done when the model refuses a prompt as too long, or does not answer (contract §2.4).
//!
//! Decision: numbers, not words. A provider that counts more than this host has its count learned, and the next prompt is
//! made for less; whatever an engine says it did, the next prompt must be smaller than the one that was refused, or the
//! turn gives up.

use context_engine_loader::AssembleError;

use super::facts::{Attempt, Trigger};
use super::frame::Frame;
use crate::RuntimeError;
use crate::model::{ModelError, ModelErrorKind};
use crate::session::Prompt;

/// How often a refused prompt is made smaller.
pub(crate) const OVERFLOW_ATTEMPTS: u32 = 3;
/// How often a compaction is tried because the model did not answer.
pub(crate) const TIMEOUT_ATTEMPTS: u32 = 2;
/// Share of the budget from which on a prompt's size may be why the model did not answer, in percent.
const TIMEOUT_PERCENT: u64 = 65;
/// What the provider most often counts beyond this host, when it does not say: the next prompt has this part less.
const SHRINK_PERCENT: u64 = 20;

const OVERFLOW_TEXT: &str = "Context overflow: prompt too large for the model. Try /reset (or /new) to start a fresh \
                             session, or use a larger-context model.";
const ACTIONS_TEXT: &str = " Completed tool actions were not replayed; verify their effects before retrying.";

/// How often what was tried since the model last answered.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    overflows: u32,
    timeouts: u32,
    truncated: bool,
}

/// What became of a refused prompt.
pub(crate) enum Recovered {
    /// A smaller one.
    Prompt {
        prompt: Box<Prompt>,
        compacted: bool,
        truncated: usize,
        /// Tokens the provider counts for one of this host's, at least 1.
        overcount: f64,
    },
    /// None; why.
    GivenUp { error: RuntimeError, compacted: bool, truncated: usize },
}

impl Recovered {
    fn given_up(error: RuntimeError) -> Recovered {
        Recovered::GivenUp { error, compacted: false, truncated: 0 }
    }
}

/// Makes a smaller prompt of a refused one, within its limits. Blocks.
pub(crate) fn recover(
    frame: &mut Frame,
    tried: &mut Tried,
    refused: &Prompt,
    error: &ModelError,
    ran_tools: bool,
) -> Result<Recovered, RuntimeError> {
    match error.kind {
        ModelErrorKind::Overflow { observed } => overflow(frame, tried, refused, observed, ran_tools),
        ModelErrorKind::Timeout if refused.tokens * 100 > frame.budget * TIMEOUT_PERCENT => {
            timeout(frame, tried, refused, error)
        }
        _ => Ok(Recovered::given_up(RuntimeError::NotAnswered(error.clone()))),
    }
}

fn overflow(
    frame: &mut Frame,
    tried: &mut Tried,
    refused: &Prompt,
    observed: Option<u64>,
    ran_tools: bool,
) -> Result<Recovered, RuntimeError> {
    let mut compacted = false;
    let mut truncated = 0;
    while tried.overflows < OVERFLOW_ATTEMPTS {
        tried.overflows += 1;
        let current_tokens = observed.unwrap_or_else(|| refused.tokens.max(frame.window.tokens.saturating_add(1)));
        let attempt = Attempt {
            trigger: Trigger::Overflow,
            attempt: tried.overflows,
            max_attempts: OVERFLOW_ATTEMPTS,
            current_tokens,
        };
        // What the provider counts for what is counted here. Where it does not say, or what it says may be prompt and reply
        // together, nothing is learned.
        let with_reply = refused.tokens.saturating_add(frame.window.reserve);
        let overcount = match observed {
            Some(observed) if observed > with_reply => observed as f64 / refused.tokens.max(1) as f64,
            _ => 1.0,
        };
        let by_count = (frame.window.prompt_budget() as f64 / overcount) as u64;
        frame.budget = by_count.min(refused.tokens * (100 - SHRINK_PERCENT) / 100).max(1);
        let made_room = frame.compact(attempt)?;
        compacted |= made_room;
        if !made_room && !tried.truncated {
            tried.truncated = true;
            truncated += frame.truncate()?;
        }
        if frame.cancel.is_cancelled() {
            return Err(RuntimeError::Prompt(AssembleError::Cancelled));
        }
        let prompt = match frame.make_prompt(true) {
            Ok(prompt) => prompt,
            // Not even the newest message fits into what the provider takes.
            Err(RuntimeError::Prompt(AssembleError::Budget { .. }) | RuntimeError::FixedParts { .. }) => break,
            Err(error) => return Err(error),
        };
        if prompt.tokens < refused.tokens {
            let prompt = Box::new(prompt);
            return Ok(Recovered::Prompt { prompt, compacted, truncated, overcount });
        }
        tracing::warn!(tokens = prompt.tokens, "the prompt is as long as the one that was refused");
    }
    let actions = if ran_tools { ACTIONS_TEXT } else { "" };
    let error = RuntimeError::Overflow { text: format!("{OVERFLOW_TEXT}{actions}") };
    Ok(Recovered::GivenUp { error, compacted, truncated })
}

fn timeout(
    frame: &mut Frame,
    tried: &mut Tried,
    refused: &Prompt,
    error: &ModelError,
) -> Result<Recovered, RuntimeError> {
    let given_up = || Ok(Recovered::given_up(RuntimeError::NotAnswered(error.clone())));
    if tried.timeouts >= TIMEOUT_ATTEMPTS {
        return given_up();
    }
    tried.timeouts += 1;
    let attempt = Attempt {
        trigger: Trigger::Timeout,
        attempt: tried.timeouts,
        max_attempts: TIMEOUT_ATTEMPTS,
        current_tokens: refused.tokens,
    };
    if !frame.compact(attempt)? {
        return given_up();
    }
    let prompt = frame.make_prompt(true)?;
    if prompt.tokens >= refused.tokens {
        return given_up();
    }
    Ok(Recovered::Prompt { prompt: Box::new(prompt), compacted: true, truncated: 0, overcount: 1.0 })
}
