//! One conversation: its transcript, what a process knows of it, and who may change it when.
//!
//! Decision: a session is changed by one turn or one compaction at a time, in the order in which they were asked for. What
//! is asked meanwhile waits (report C15); nothing is written between a call and its result by anybody else.
//!
//! | file | what it holds |
//! |---|---|
//! | `state` | transcript and conversation, changed together |
//! | `conversation`, `history` | what prompts are made from; the part of it that no longer changes |
//! | `live` | a session in the middle of a run, and the prompt made from it |
//! | `services`, `completion` | what an engine may do with it during a call |
//! | `compaction`, `truncate` | how history gets shorter |

pub(crate) mod compaction;
pub(crate) mod completion;
pub(crate) mod conversation;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod services;
pub(crate) mod state;
pub(crate) mod truncate;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use context_engine_transcript::store::{OpenReport, SessionHeader, SessionStore};
use context_engine_transcript::{Message, TokenCounter, TranscriptError};

use crate::RuntimeError;
use crate::model::Usage;
use crate::turn::maintenance::Maintenance;

pub use compaction::{CompactionInput, Compactor, ExtractiveCompactor};
pub use live::Prompt;
pub(crate) use services::agent_of;
use state::SessionState;

/// The agent of a session that names none.
const MAIN_AGENT: &str = "main";

/// A session of this process. Cheap to clone; the transcript stays locked until the last clone is gone.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) id: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) path: PathBuf,
    pub(crate) state: Arc<Mutex<SessionState>>,
    /// Held by the turn or the compaction that changes the session, and by what it still has running when nobody waits for
    /// it any more.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) memory: Mutex<Turns>,
    pub(crate) maintenance: Arc<Maintenance>,
}

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Turns> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the transcript written through to the disk. Blocks.
    pub(crate) fn sync(&self) -> Result<(), TranscriptError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.store_mut().map_or(Ok(()), SessionStore::sync)
    }
}

/// What one turn leaves for the next.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The instance of the engine that was told all of the session. Nobody while a turn runs, and after one that had no good
    /// end.
    pub(crate) told: Option<u64>,
    /// How many tokens the provider counts where one is counted here, at least 1.
    pub(crate) overcount: Option<(String, f64)>,
    /// What the last call cost, and when, in milliseconds since the Unix epoch.
    pub(crate) last_usage: Option<(Usage, i64)>,
    /// What messages are counted with.
    pub(crate) counter: Option<TokenCounter>,
}

impl Session {
    /// A new session with a transcript at `path`.
    ///
    /// # Errors
    /// [`RuntimeError::Transcript`] when the file exists or cannot be made.
    pub fn create(path: &Path, header: SessionHeader) -> Result<Session, RuntimeError> {
        Session::of(SessionStore::create(path, header)?)
    }

    /// The session of the transcript at `path`, and what was found in it.
    ///
    /// # Errors
    /// [`RuntimeError::Transcript`] when another process works on it, or it cannot be read.
    pub fn open(path: &Path) -> Result<(Session, OpenReport), RuntimeError> {
        let (store, report) = SessionStore::open(path)?;
        Ok((Session::of(store)?, report))
    }

    fn of(store: SessionStore) -> Result<Session, RuntimeError> {
        let counter = TokenCounter::for_model(None);
        let (id, path) = (Arc::from(store.id()), store.path().to_owned());
        let key = format!("agent:{MAIN_AGENT}:{id}").into();
        let state = Arc::new(Mutex::new(SessionState::of(store, &counter)?));
        let memory = Mutex::new(Turns { counter: Some(counter), ..Turns::default() });
        let (turn, maintenance) = (Arc::default(), Arc::default());
        Ok(Session { shared: Arc::new(Shared { id, key, path, state, turn, memory, maintenance }) })
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Its key, `agent:<agent>:<id>`.
    pub fn key(&self) -> &str {
        &self.shared.key
    }

    /// Where its transcript is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The conversation as it stands: the newest summary, where there is one, and every message behind it.
    pub fn messages(&self) -> Vec<Arc<Message>> {
        let state = self.state();
        let summary = state.conversation.summary().cloned();
        summary.into_iter().chain(state.conversation.recorded().cloned()).collect()
    }

    /// Waits until the engine's maintenance that runs behind the session's turns is done.
    pub async fn settled(&self) {
        self.shared.maintenance.settled().await;
    }

    /// Takes back the maintenance that runs behind the session's turns, takes no more of it, and waits for its end.
    pub async fn close(&self) {
        self.shared.maintenance.close();
        self.shared.maintenance.settled().await;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.shared.id).field("path", &self.shared.path).finish_non_exhaustive()
    }
}
