//! One prompt: plan → check → repair → render → count, and `legacy` when any of it fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine_interface::std_types::{RSlice, RStr};
use context_engine_interface::{AssembleParamsFields, Assembly, PromptAuthority, Role};
use context_engine_legacy::pipeline;
use context_engine_transcript::{Message, TokenCounter};

use super::failure::Failure;
use super::history::count;
use super::plan::{self, Applied, PlanError};
use super::projection::Projection;
use super::{Call, EngineHandle, PreparedHistory, Supervised};
use crate::loader::OnFailure;
use crate::quarantine::Fault;

/// What fillers and repaired pairs may add when a plan becomes a prompt, in tokens. Held back from every engine's budget,
/// so that one that fills it to the last token is not over it afterwards; of a small budget a smaller part.
fn render_reserve(budget: u64) -> u64 {
    (budget / 32).min(64)
}

/// What stands between an engine's addition and the system prompt it is put before.
pub const SYSTEM_PROMPT_SEPARATOR: &str = "\n\n";

/// How often a prompt that is over budget is fitted to a smaller one before it is given up.
const FIT_ATTEMPTS: u32 = 4;

/// What one prompt is assembled from. Owned, because an engine that does not return keeps it.
#[derive(Clone)]
pub struct AssembleRequest {
    /// The pipeline's view of the history.
    pub history: Arc<PreparedHistory>,
    /// What messages and system prompt addition may cost together, in tokens.
    pub budget: u64,
    /// Counts the prompt.
    pub counter: TokenCounter,
    /// The model the prompt is for.
    pub model: Option<Arc<str>>,
    /// Names of the tools the model may call.
    pub available_tools: Arc<[String]>,
}

/// The messages of one prompt, and who made them.
#[derive(Debug, Clone)]
pub struct Assembled {
    /// What goes to the model: roles `user`, `assistant` and `toolResult` only. Within the budget, pairs whole.
    pub messages: Vec<Arc<Message>>,
    /// What they and the addition cost, in tokens.
    pub tokens: u64,
    /// Text to add to the system prompt.
    pub system_prompt_addition: Option<String>,
    /// Whether the overflow check should look at the history as well (contract §7.5).
    pub may_overflow: bool,
    /// How a host with backend threads projects the prompt. None of `legacy`'s, and none of a prompt the host fitted: the
    /// engine's words are about another one. Such a prompt is projected at every turn.
    pub projection: Option<Projection>,
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
    /// The engine asked for cannot answer, and nothing else may.
    #[error(
        "{why}; plugins.contextEnginePolicy is \"strict\", so the run stops: mend the engine, or set it to \"fallback\""
    )]
    Stopped {
        /// Why the engine does not answer.
        why: String,
    },
    /// The caller took the call back.
    #[error("the call was cancelled")]
    Cancelled,
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
    #[error("{}", .0.describe())]
    Engine(Failure),
    #[error("{0}")]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Prompt(#[from] AssembleError),
}

impl EngineHandle {
    /// Assembles the messages of one prompt.
    ///
    /// # Errors
    /// [`AssembleError`] when not even `legacy` can make one, or may not.
    pub fn assemble(&self, call: &Call, request: &AssembleRequest) -> Result<Assembled, AssembleError> {
        let (engine, mut why) = self.current();
        let legacy = &self.shared.legacy;
        if !Arc::ptr_eq(&engine, legacy) {
            match self.assemble_with(&engine, call, request) {
                Ok(assembled) => {
                    self.weigh(&engine, &assembled, request);
                    return Ok(assembled);
                }
                Err(Refusal::Engine(Failure::Cancelled)) => return Err(AssembleError::Cancelled),
                Err(refusal) => why = Some(self.refused(&engine, &refusal, request)),
            }
        }
        if let (Some(why), OnFailure::Stop) = (&why, self.shared.on_failure) {
            return Err(AssembleError::Stopped { why: why.clone() });
        }
        match self.assemble_with(legacy, call, request) {
            Ok(assembled) => Ok(Assembled { why, ..assembled }),
            Err(Refusal::Prompt(error)) => Err(error),
            Err(Refusal::Engine(Failure::Cancelled)) => Err(AssembleError::Cancelled),
            Err(refusal) => Err(AssembleError::Legacy { reason: refusal.to_string() }),
        }
    }

    /// What becomes of an engine whose prompt is not used; returns why `legacy` answers.
    fn refused(&self, engine: &Arc<Supervised>, refusal: &Refusal, request: &AssembleRequest) -> String {
        let too_long = newest_turn(&request.history) > request.budget - render_reserve(request.budget);
        let fault = match refusal {
            Refusal::Engine(Failure::Its(fault, _)) => Some(*fault),
            Refusal::Engine(Failure::Unsupported(_)) => Some(Fault::Error),
            Refusal::Engine(Failure::NotItsFault(_) | Failure::Cancelled) => None,
            // The newest turn is longer than the budget: what is left of it may be nothing.
            Refusal::Plan(PlanError::Empty { .. } | PlanError::Message { .. }) if too_long => None,
            Refusal::Plan(_) => Some(Fault::Answer),
            // What it added may be what leaves no room.
            Refusal::Prompt(AssembleError::Budget { .. }) if !too_long => {
                engine.was_over_budget().then_some(Fault::OverBudget)
            }
            // Nobody could have made this prompt, or it was the host that could not.
            Refusal::Prompt(_) => None,
        };
        match fault {
            Some(fault) => self.set_aside(engine, "assemble", fault, refusal),
            None => {
                let id = &engine.info.id;
                // The rest goes to the answers, not to the log.
                if engine.is_first_without_prompt() {
                    tracing::warn!(engine = id, reason = %refusal, "assemble gave no prompt; legacy answers such calls");
                } else {
                    tracing::debug!(engine = id, reason = %refusal, "assemble gave no prompt; legacy answers this call");
                }
                format!("{id}: assemble: {refusal}")
            }
        }
    }

    /// Keeps count of prompts over budget that need not have been.
    fn weigh(&self, engine: &Arc<Supervised>, assembled: &Assembled, request: &AssembleRequest) {
        if !assembled.fitted {
            engine.was_within_budget();
        } else if newest_turn(&request.history) <= request.budget && engine.was_over_budget() {
            let reason = "its prompts were over budget three times in a row, though the newest turn fits";
            self.set_aside(engine, "assemble", Fault::OverBudget, &reason);
        }
    }

    fn assemble_with(&self, engine: &Supervised, call: &Call, request: &AssembleRequest) -> Result<Assembled, Refusal> {
        let budget = request.budget - render_reserve(request.budget);
        let started = Instant::now();
        let plan = ask(engine, call, request, Arc::clone(&request.history), budget)?;
        let took = started.elapsed();
        plan::check_size(&plan, request.history.len(), request.budget)?;
        let applied = plan::apply(&plan, &request.history)?;
        let addition = plan.system_prompt_addition.as_deref().into_option().map(str::to_owned);
        let separated = addition.as_deref().map(|text| format!("{text}{SYSTEM_PROMPT_SEPARATOR}"));
        let addition_tokens = separated.map_or(0, |text| request.counter.text(&text));
        let room = request.budget.saturating_sub(addition_tokens);
        if room == 0 {
            return Err(PlanError::Addition { tokens: addition_tokens, budget: request.budget }.into());
        }

        let is_legacy = std::ptr::eq(engine, &*self.shared.legacy);
        let Applied { messages, kept, summarised, .. } = applied;
        let left_out = request.history.len() - kept;
        let (mut prompt, repaired) = to_prompt(messages);
        if prompt.is_empty() && !request.history.is_empty() {
            return Err(PlanError::Empty { known: request.history.len() }.into());
        }
        let tokens = count(&mut prompt, &request.counter);
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
            projection: if fitted || is_legacy { None } else { Projection::of(&plan, &engine.info.id) },
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
    fn fit(&self, call: &Call, request: &AssembleRequest, planned: Fitted, room: u64) -> Result<Fitted, Refusal> {
        let history = Arc::new(PreparedHistory::new(planned.prompt, &request.counter));
        let mut target = room - render_reserve(room);
        let mut smallest = u64::MAX;
        for _ in 0..FIT_ATTEMPTS {
            // A fault in here is not that of the engine whose prompt is fitted.
            let ours = |reason: String| Refusal::Prompt(AssembleError::Legacy { reason });
            let plan = ask(&self.shared.legacy, call, request, Arc::clone(&history), target);
            let plan = plan.map_err(|refusal| ours(refusal.to_string()))?;
            let applied = plan::apply(&plan, &history).map_err(|error| ours(error.to_string()))?;
            let cut = history.len() - applied.kept;
            let (mut prompt, repaired) = to_prompt(applied.messages);
            let tokens = count(&mut prompt, &request.counter);
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
    call: &Call,
    request: &AssembleRequest,
    history: Arc<PreparedHistory>,
    budget: u64,
) -> Result<Assembly, Refusal> {
    let (session_id, model) = (Arc::clone(&call.session_id), request.model.clone());
    let available_tools = Arc::clone(&request.available_tools);
    let answer = engine.call("assemble", call, move |engine, ctx, host_params| {
        let index = history.views().index();
        let tools: Vec<RStr<'_>> = available_tools.iter().map(|name| name.as_str().into()).collect();
        let fields = AssembleParamsFields {
            session_id: (&*session_id).into(),
            messages: index.messages(),
            token_budget: Some(budget).into(),
            available_tools: RSlice::from_slice(&tools),
            citations_mode: None.into(),
            model: model.as_deref().map(RStr::from_str).into(),
            host_params,
        };
        fields.lend(|params| engine.assemble(ctx, params))
    });
    answer.map_err(Refusal::Engine)
}

/// What the newest turn costs: no engine can be asked for less.
fn newest_turn(history: &PreparedHistory) -> u64 {
    let mut tokens = 0;
    for at in (0..history.len()).rev() {
        let Some(message) = history.get(at) else { break };
        tokens += message.tokens;
        if message.role == Role::USER {
            break;
        }
    }
    tokens
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
