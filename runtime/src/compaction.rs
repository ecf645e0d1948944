//! The runtime's own compaction, which `legacy` and every engine that does not own compaction delegate to.
//!
//! Extractive: a replay has no model to write a summary with. What is cut off and what stands for it is decided by
//! [`context_engine_legacy::compaction`]; this writes it into the session.

use context_engine_interface::{CompactResult, EngineError};
use context_engine_legacy::compaction::{CompactionOptions, CompactionOutcome, compact};

use crate::model_call::LiveSession;

/// Compacts the session to what messages may cost in a prompt.
///
/// `commit` runs what writes into the session, unless whoever asked may not write any more.
pub(crate) fn compact_session(
    session: &LiveSession,
    commit: impl FnOnce(&mut dyn FnMut() -> Result<(), String>) -> Result<Result<(), String>, EngineError>,
    usable_budget: u64,
) -> Result<CompactResult, EngineError> {
    let history = session.prepared();
    let index = history.views().index();
    let options = CompactionOptions {
        usable_budget,
        // Never more than half of what there is, whatever is configured: the summary and the next turns need room.
        keep_recent: Some(session.keep_recent.min(usable_budget / 2)),
        previous_summary: None,
    };
    let outcome = compact(index.messages(), &options, &|text| session.counter.text(text));
    if let CompactionOutcome::Compacted { summary, first_kept_entry_id, tokens_before, .. } = &outcome {
        let mut write = || session.scratch().compact(summary, first_kept_entry_id, *tokens_before, &session.counter);
        commit(&mut write)?
            .map_err(|reason| EngineError::failed(format!("the compaction cannot be written: {reason}")))?;
    }
    Ok(outcome.into())
}
