//! The runtime's own compaction, which `legacy` and every engine that does not own compaction delegate to.
//!
//! Decision: what stands for the older messages is made by a [`Compactor`]; the one here extracts it from their own
//! words and needs no model. What a compactor says is checked and written in one place.

use context_engine_interface::{CompactResult, EngineError, Messages};
use context_engine_legacy::compaction::{CompactionOptions, CompactionOutcome, compact};
use context_engine_loader::PreparedHistory;
use context_engine_transcript::Message;

use super::live::LiveSession;
use super::state::Compaction;

/// What stands between a summary and the question of a turn that was cut in two (contract §7.4).
const SPLIT_TURN: &str = "\n\n---\n\n**Turn Context (split turn):**\n\n## Original Request\n\n";
/// The longest question that is repeated there, as a share of the budget.
const QUESTION_SHARE: u64 = 4;

/// Decides what stands for older messages.
pub trait Compactor: Send + Sync + 'static {
    /// Where the history is cut, and the summary of what is cut off. Called on a thread that may wait.
    ///
    /// # Errors
    /// Why there is no summary; the history stays as it is.
    fn compact(&self, input: &CompactionInput<'_>) -> Result<CompactionOutcome, String>;
}

/// What became of a compaction that a person asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionReport {
    /// Whether the history got shorter.
    pub compacted: bool,
    /// Why not, or a remark.
    pub reason: Option<String>,
    /// The summary that stands for the older messages, where it is known.
    pub summary: Option<String>,
    /// Tokens of the history before.
    pub tokens_before: u64,
    /// Tokens of the history after, where they are known.
    pub tokens_after: Option<u64>,
    /// Who did it: the engine, or `legacy` for the runtime's own compaction.
    pub served_by: String,
}

impl CompactionReport {
    pub(crate) fn new(result: CompactResult, served_by: String) -> CompactionReport {
        let text = |text: context_engine_interface::std_types::ROption<_>| {
            text.into_option().map(context_engine_interface::std_types::RString::into_string)
        };
        CompactionReport {
            compacted: result.compacted,
            reason: text(result.reason),
            summary: text(result.summary),
            tokens_before: result.tokens_before,
            tokens_after: result.tokens_after.into_option(),
            served_by,
        }
    }
}

/// What a compaction is made from.
#[derive(Clone, Copy)]
pub struct CompactionInput<'a> {
    /// The pipeline's view of the history, pairs whole.
    pub messages: Messages<'a>,
    /// The system prompt with its rules: they are sent beside the summary, and need not be in it.
    pub system: Option<&'a str>,
    /// What messages may cost in a prompt, in tokens.
    pub usable_budget: u64,
    /// Tokens of recent history to keep, at most.
    pub keep_recent: u64,
    /// What the summary should attend to, in the person's words.
    pub instructions: Option<&'a str>,
    /// Tokens of a text.
    pub count: &'a dyn Fn(&str) -> u64,
}

/// Extracts the summary from what was said and done.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExtractiveCompactor;

impl Compactor for ExtractiveCompactor {
    fn compact(&self, input: &CompactionInput<'_>) -> Result<CompactionOutcome, String> {
        let options = CompactionOptions {
            usable_budget: input.usable_budget,
            keep_recent: Some(input.keep_recent),
            previous_summary: None,
        };
        Ok(compact(input.messages, &options, input.count))
    }
}

/// Runs what writes a compaction, unless whoever asked for it may not write any more.
pub(crate) type Commit<'a> =
    &'a dyn Fn(&mut dyn FnMut() -> Result<(), String>) -> Result<Result<(), String>, EngineError>;

/// Writes without asking.
pub(crate) fn at_once(write: &mut dyn FnMut() -> Result<(), String>) -> Result<Result<(), String>, EngineError> {
    Ok(write())
}

/// Compacts the session to what messages may cost in a prompt.
pub(crate) fn compact_session(
    session: &LiveSession,
    commit: Commit<'_>,
    usable_budget: u64,
    instructions: Option<&str>,
) -> Result<CompactResult, EngineError> {
    let history = session.prepared();
    let index = history.views().index();
    let count = |text: &str| session.counter.text(text);
    let input = CompactionInput {
        messages: index.messages(),
        system: session.system.as_deref(),
        usable_budget,
        // Never more than half of what there is, whatever is configured: the summary and the next turns need room.
        keep_recent: session.keep_recent.min(usable_budget / 2),
        instructions,
        count: &count,
    };
    let outcome = session.compactor.compact(&input).map_err(EngineError::failed)?;
    let outcome = with_question(outcome, session, &history, &count);
    if let CompactionOutcome::Compacted { summary, .. } = &outcome
        && summary.trim().is_empty()
    {
        // Report C6: an empty summary must not replace anything.
        return Err(EngineError::failed("the summary is empty; the history stays as it is"));
    }
    if let CompactionOutcome::Compacted { summary, first_kept_entry_id, tokens_before, tokens_after, .. } = &outcome {
        let compaction = Compaction {
            summary,
            first_kept: first_kept_entry_id,
            tokens_before: *tokens_before,
            tokens_after: *tokens_after,
        };
        let mut write = || session.state().compact(&compaction, &session.counter);
        commit(&mut write)?
            .map_err(|reason| EngineError::failed(format!("the compaction cannot be written: {reason}")))?;
    }
    Ok(outcome.into())
}

/// A cut inside a turn takes the turn's question out of sight (report C14): it is put behind the summary, word for word.
fn with_question(
    outcome: CompactionOutcome,
    session: &LiveSession,
    history: &PreparedHistory,
    count: &dyn Fn(&str) -> u64,
) -> CompactionOutcome {
    let CompactionOutcome::Compacted { summary, first_kept_entry_id, tokens_before, tokens_after, summarised } =
        outcome
    else {
        return outcome;
    };
    let question = session.state().conversation.question_cut_off(&first_kept_entry_id);
    let question = question.as_deref().map(Message::text).filter(|text| !text.trim().is_empty());
    let unchanged = |summary| CompactionOutcome::Compacted {
        summary,
        first_kept_entry_id: first_kept_entry_id.clone(),
        tokens_before,
        tokens_after,
        summarised,
    };
    let Some(question) = question else { return unchanged(summary) };
    let room = session.message_budget() / QUESTION_SHARE;
    let mut repeated = question.clone();
    while count(&repeated) > room && repeated.chars().count() > 64 {
        repeated = context_engine_interface::shorten_text(&question, repeated.chars().count() * 3 / 4);
    }
    let summary_with = format!("{summary}{SPLIT_TURN}{repeated}");
    let tokens_after = tokens_after + count(&summary_with).saturating_sub(count(&summary));
    if tokens_after >= history.tokens() {
        let reason = "already under target: the turn's question and a summary are as long as what they replace";
        return CompactionOutcome::NothingToDo { reason, tokens: tokens_before };
    }
    CompactionOutcome::Compacted { summary: summary_with, first_kept_entry_id, tokens_before, tokens_after, summarised }
}
