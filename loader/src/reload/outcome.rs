//! What a reload did, in words and for programs.

use std::fmt;

use crate::error::{LoaderError, Step};
use crate::stage::short;

/// What a [`Loader::reload`](crate::Loader::reload) did about one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The id that was asked for.
    pub engine: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a reload did. Digests are SHA-256 of the library, as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The build and the configuration in use are the ones there are.
    Unchanged {
        /// The build.
        digest: String,
    },
    /// A new instance has taken over. `from` and `to` are the same when it is the configuration that changed.
    Replaced {
        /// The build before.
        from: String,
        /// The build that serves now.
        to: String,
    },
    /// The engine serves where `legacy` did in its place.
    Opened {
        /// The build that serves now.
        digest: String,
    },
    /// The engine is gone, and `legacy` answers: its file was removed, or the configuration forbids it now.
    Removed {
        /// Why it may not be used.
        why: Box<LoaderError>,
    },
    /// What is there now cannot be used.
    Kept {
        /// The build that goes on serving; `None` when `legacy` does.
        digest: Option<String>,
        /// Why the new one is not used.
        why: Box<LoaderError>,
    },
}

impl Reloaded {
    /// Whether it says what `other` said. Of a file that is still being written, each look finds another fault.
    pub(crate) fn is_like(&self, other: &Reloaded) -> bool {
        let (Outcome::Kept { digest, why }, Outcome::Kept { digest: before, why: said }) =
            (&self.outcome, &other.outcome)
        else {
            return self == other;
        };
        let reads_the_file = matches!(why.step, Step::Find | Step::Stage | Step::Inspect);
        let same = if reads_the_file { why.path == said.path && why.step == said.step } else { why == said };
        same && digest == before && self.engine == other.engine
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.engine)?;
        match &self.outcome {
            Outcome::Unchanged { digest } => write!(f, "unchanged, build {}", short(digest)),
            Outcome::Replaced { from, to } if from == to => {
                write!(f, "created anew with the changed configuration, build {}", short(to))
            }
            Outcome::Replaced { from, to } => write!(f, "build {} replaced by {}", short(from), short(to)),
            Outcome::Opened { digest } => write!(f, "serves now, build {}", short(digest)),
            Outcome::Removed { why } => write!(f, "retired, legacy answers: {why}"),
            Outcome::Kept { digest: Some(digest), why } => write!(f, "build {} goes on: {why}", short(digest)),
            Outcome::Kept { digest: None, why } => write!(f, "legacy goes on: {why}"),
        }
    }
}
