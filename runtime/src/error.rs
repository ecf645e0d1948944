//! The crate's one error type.

use std::path::PathBuf;

use context_engine_loader::{AssembleError, LoaderError};

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
    /// No prompt could be made for a call.
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
    /// What a range of turns should look like.
    #[error("expected turns as A..B, A.., ..B or A (counted from 1, both ends included), found {0:?}")]
    TurnRange(String),
}
