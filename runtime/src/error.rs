//! The crate's one error type.

use std::path::PathBuf;

use context_engine_loader::{AssembleError, LoaderError};
use context_engine_transcript::TranscriptError;

use crate::model::ModelError;

/// Why a run stopped, or could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The configuration cannot be read.
    #[error("{}: {doing}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What is wrong, with its place in the file.
        reason: String,
    },
    /// A model cannot be asked: what is configured of it is missing or wrong.
    #[error("model {model}: {reason}")]
    Model {
        /// The model, as it was asked for.
        model: String,
        /// What is wrong, with the key of the configuration, and what to do.
        reason: String,
    },
    /// There is no folder to keep things in.
    #[error("no home directory is known; set CONTEXT_ENGINE_HOME to a folder of yours")]
    NoHome,
    /// The system prompt alone is over the budget.
    #[error(
        "the system prompt takes {system} of the {budget} tokens of the budget and leaves no room for messages; \
         use a budget that leaves some thousands beyond it"
    )]
    SystemPrompt {
        /// What the system prompt takes.
        system: u64,
        /// The budget.
        budget: u64,
    },
    /// What is sent beside the messages is over the budget.
    #[error(
        "system prompt and rules take {system} tokens and the tools' schemas {tools} of the {budget} a prompt may cost, \
         and leave no room for messages; compaction cannot help: shorten them, or use a model with a larger window"
    )]
    FixedParts {
        /// What the system prompt takes, the files with rules included.
        system: u64,
        /// What the tools' schemas take.
        tools: u64,
        /// What a prompt may cost.
        budget: u64,
    },
    /// No prompt could be made for a call of a turn.
    #[error(transparent)]
    Prompt(AssembleError),
    /// The session's transcript cannot be read or written.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The model did not answer.
    #[error(transparent)]
    NotAnswered(ModelError),
    /// The provider takes no prompt that could be made. Words of contract §2.4.
    #[error("{text}")]
    Overflow {
        /// What to do.
        text: String,
    },
    /// A turn that does not end.
    #[error("the turn was stopped after {calls} model calls; ask again to go on, or raise the limit")]
    Calls {
        /// The limit.
        calls: usize,
    },
    /// A compaction that a person asked for and did not get.
    #[error("compaction: {reason}")]
    Compaction {
        /// Why.
        reason: String,
    },
    /// Work of the host's own broke off.
    #[error("work on another thread broke off: {reason}; report this with the log")]
    Task {
        /// What is known of it.
        reason: String,
    },
    /// No prompt could be made for a call of a replay.
    #[error("turn {turn}, call {call}: {source}")]
    Assemble {
        /// The turn.
        turn: usize,
        /// The call in it.
        call: usize,
        /// What kept it.
        source: AssembleError,
    },
    /// Turns that are not in the session.
    #[error("turns {asked} were asked for; the session has {found} turns")]
    Turns {
        /// What was asked for.
        asked: String,
        /// How many there are.
        found: usize,
    },
    /// An engine may not be answered for by another, and does not answer itself.
    #[error(transparent)]
    Engine(#[from] Box<LoaderError>),
    /// Plugins and configuration cannot be watched.
    #[error("plugins and configuration cannot be watched: {reason}; what changes is used at the next start")]
    Watch {
        /// What the system says.
        reason: String,
    },
    /// What a range of turns should look like.
    #[error("expected turns as A..B, A.., ..B or A (counted from 1, both ends included), found {0:?}")]
    TurnRange(String),
}
