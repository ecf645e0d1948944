//! One prompt: plan → check → repair → render → count, and `legacy` when any of it fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine_interface::std_types::{RSlice, RStr};
use context_engine_interface::{AssembleParamsFields, Assembly, CallContext, EngineError, HostParams, PromptAuthority};
use context_engine_legacy::pipeline;
use context_engine_transcript::{Message, TokenCounter};

use super::history::count;
use super::plan::{self, Applied, PlanError};
use super::{Call, EngineHandle, PreparedHistory, Supervised};

/// What fillers and repaired pairs may add when a plan becomes a prompt, in tokens. Held back from every engine's budget,
/// so that one that fills it to the last token is not over it afterwards; of a small budget a smaller part.
fn render_reserve(budget: u64) -> u64 {
    (budget / 32).min(64)
}

/// What stands between an engine's addition and the system prompt it is put before.
pub const SYSTEM_PROMPT_SEPARATOR: &str = "\n\n";

/// How often a prompt that is over budget is fitted to a smaller one before it is given up.
const FIT_ATTEMPTS: u32 = 4;

/// What one prompt is assembled from.
#[derive(Clone, Copy)]
pub struct AssembleRequest<'a> {
    /// The pipeline's view of the history.
    pub history: &'a PreparedHistory,
    /// What messages and system prompt addition may cost together, in tokens.
    pub budget: u64,
    /// Counts the prompt.
    pub counter: &'a TokenCounter,
    /// The model the prompt is for.
    pub model: Option<&'a str>,
    /// Names of the tools the model may call.
    pub available_tools: &'a [String],
}

/// The messages of one prompt, and who made them.
#[derive(Debug)]
pub struct Assembled {
    /// What goes to the model: roles `user`, `assistant` and `toolResult` only. Within the budget, pairs whole.
    pub messages: Vec<Arc<Message>>,
    /// What they and the addition cost, in tokens.
    pub tokens: u64,
    /// Text to add to the system prompt.
    pub system_prompt_addition: Option<String>,
    /// Whether the overflow check should look at the history as well (contract §7.5).
    pub may_overflow: bool,
    /// Messages of the history that are not in the prompt as they are.
    pub left_out: usize,
    /// Messages that summaries in the prompt were made from.
    pub summarised: usize,
    /// Calls and results the host had to repair in the engine's plan.
    pub repaired: usize,
    /// Whether the plan was over budget and the host fitted it.
    pub fitted: bool,
    /// The engine that made the prompt.
    pub served_by: String,
    /// Why it was not the one asked for.
    pub why: Option<String>,
    /// How long the engine took, the crossing included.
    pub took: Duration,
}

/// Why there is no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// Not even the newest message fits.
    #[error(
        "a budget of {budget} tokens cannot hold the newest message: the smallest prompt takes {smallest}; \
         raise the budget or shorten the system prompt"
    )]
    Budget {
        /// What the messages may cost.
        budget: u64,
        /// What the smallest prompt found costs.
        smallest: u64,
    },
    /// The built-in engine failed.
    #[error("the built-in engine failed: {reason}; report this with the session")]
    Legacy {
        /// What happened.
        reason: String,
    },
}

/// Why an engine's answer is not used.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Prompt(#[from] AssembleError),
}

impl EngineHandle {
    /// Assembles the messages of one prompt.
    ///
    /// # Errors
    /// [`AssembleError`] when not even `legacy` can make one.
    pub fn assemble(&self, call: Call<'_>, request: AssembleRequest<'_>) -> Result<Assembled, AssembleError> {
        let mut why = self.why.clone();
        if let Some(active) = self.active.as_deref() {
            match self.assemble_with(active, call, request) {
                Ok(assembled) => return Ok(assembled),
                // Also when its prompt cannot be fitted: what it added may be what leaves no room.
                Err(refusal) => {
                    let engine = active.info.id.as_str();
                    if active.first_failure() {
                        tracing::warn!(engine, error = %refusal, "assemble failed; legacy answers this call");
                    } else {
                        tracing::debug!(engine, error = %refusal, "assemble failed again; legacy answers this call");
                    }
                    why = Some(format!("{engine}: assemble: {refusal}"));
                }
            }
        }
        match self.assemble_with(&self.legacy, call, request) {
            Ok(assembled) => Ok(Assembled { why, ..assembled }),
            Err(Refusal::Prompt(error)) => Err(error),
            Err(refusal) => Err(AssembleError::Legacy { reason: refusal.to_string() }),
        }
    }

    fn assemble_with(
        &self,
        engine: &Supervised,
        call: Call<'_>,
        request: AssembleRequest<'_>,
    ) -> Result<Assembled, Refusal> {
        let budget = request.budget - render_reserve(request.budget);
        let started = Instant::now();
        let plan = ask(engine, call, request, request.history, budget)?;
        let took = started.elapsed();
        let applied = plan::apply(&plan, request.history)?;
        let addition = plan.system_prompt_addition.as_deref().into_option().map(str::to_owned);
        let separated = addition.as_deref().map(|text| format!("{text}{SYSTEM_PROMPT_SEPARATOR}"));
        let addition_tokens = separated.map_or(0, |text| request.counter.text(&text));
        let room = request.budget.saturating_sub(addition_tokens);
        if room == 0 {
            return Err(PlanError::Addition { tokens: addition_tokens, budget: request.budget }.into());
        }

        let Applied { messages, kept, summarised, .. } = applied;
        let left_out = request.history.len() - kept;
        let (prompt, repaired) = to_prompt(messages);
        if prompt.is_empty() && !request.history.is_empty() {
            return Err(PlanError::Empty { known: request.history.len() }.into());
        }
        let tokens = count(&prompt, request.counter);
        let fitted = tokens > room;
        let planned = Fitted { prompt, tokens, repaired, left_out, summarised };
        let Fitted { prompt, tokens, repaired, left_out, summarised } = if fitted {
            let engine = engine.info.id.as_str();
            tracing::info!(engine, tokens, budget = room, "the prompt is over budget; the host fits it");
            self.fit(call, request, planned, room)?
        } else {
            planned
        };
        Ok(Assembled {
            messages: prompt,
            tokens: tokens + addition_tokens,
            system_prompt_addition: addition,
            may_overflow: plan.prompt_authority == PromptAuthority::PREASSEMBLY_MAY_OVERFLOW,
            left_out,
            summarised,
            repaired,
            fitted,
            served_by: engine.info.id.clone(),
            why: None,
            took,
        })
    }

    /// Has `legacy` cut what an engine planned down to `room` tokens.
    fn fit(&self, call: Call<'_>, request: AssembleRequest<'_>, planned: Fitted, room: u64) -> Result<Fitted, Refusal> {
        let history = PreparedHistory::new(planned.prompt, request.counter);
        let mut target = room - render_reserve(room);
        let mut smallest = u64::MAX;
        for _ in 0..FIT_ATTEMPTS {
            let plan = ask(&self.legacy, call, request, &history, target)?;
            let applied = plan::apply(&plan, &history)?;
            let cut = history.len() - applied.kept;
            let (prompt, repaired) = to_prompt(applied.messages);
            let tokens = count(&prompt, request.counter);
            if tokens <= room {
                return Ok(Fitted {
                    prompt,
                    tokens,
                    repaired: planned.repaired + repaired,
                    left_out: (planned.left_out + cut).min(request.history.len()),
                    summarised: planned.summarised + applied.summarised,
                });
            }
            smallest = smallest.min(tokens);
            // What the renderer added must come off what the plan may spend.
            target = target.saturating_sub(tokens - room + render_reserve(room));
        }
        Err(AssembleError::Budget { budget: room, smallest }.into())
    }
}

/// A prompt and what became of the history on the way into it.
struct Fitted {
    prompt: Vec<Arc<Message>>,
    tokens: u64,
    repaired: usize,
    left_out: usize,
    summarised: usize,
}

fn ask(
    engine: &Supervised,
    call: Call<'_>,
    request: AssembleRequest<'_>,
    history: &PreparedHistory,
    budget: u64,
) -> Result<Assembly, EngineError> {
    let index = history.views().index();
    let tools: Vec<RStr<'_>> = request.available_tools.iter().map(|name| name.as_str().into()).collect();
    engine.host_params.call("assemble", call.host_params, |host_params| {
        let fields = AssembleParamsFields {
            session_id: call.session_id.into(),
            messages: index.messages(),
            token_budget: Some(budget).into(),
            available_tools: RSlice::from_slice(&tools),
            citations_mode: None.into(),
            model: request.model.map(RStr::from_str).into(),
            host_params: HostParams::from_json(host_params),
        };
        CallContext::lend(call.services, |ctx| fields.lend(|params| engine.engine.assemble(ctx, params)))
    })
}

/// The prompt `messages` make, and how many calls and results had to be repaired on the way.
fn to_prompt(messages: Vec<Arc<Message>>) -> (Vec<Arc<Message>>, usize) {
    let (messages, pairs) = pipeline::pair_repair(messages);
    (pipeline::render(&messages).0, changes(&pairs))
}

/// How many calls and results were repaired: what a plan broke, dead replies included.
fn changes(pairs: &pipeline::PairReport) -> usize {
    pairs.synthetic + pairs.orphans + pairs.extras + pairs.moved + pairs.dead_replies + pairs.dead_results
}
