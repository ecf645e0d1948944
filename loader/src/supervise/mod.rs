//! Step 7, call: one handle that always answers, by the engine asked for or by `legacy`, and says which.
//!
//! Decision: a caller never sees an engine, only an [`EngineHandle`]. Whatever goes wrong in a plugin is answered by
//! `legacy` in the same call, from the history alone, never from the plugin's output; every answer carries `served_by` and
//! `why`.
//!
//! | file | what it decides |
//! |---|---|
//! | `handle` | who answers, and what becomes of an engine that failed |
//! | `pin`, `swap` | who answers a turn; how another instance takes over |
//! | `members` | what is called outside of prompts and turns |
//! | `turn` | what an engine is given of a turn, and by which member |
//! | `assemble` | whether a plan is believed, and the prompt it makes |
//! | `tools` | which tools of an engine are offered, and what their answers are |
//! | `instance` | how a linked engine and a loaded one are asked alike |
//! | `supervised`, `failure` | one call of one member, and whose fault it is when there is no answer |
//! | `departure` | how an instance leaves, and who waits for it |
//! | `threads` | which thread an engine's code runs on, and when its caller leaves |
//! | `ticket` | one call on its way to a thread and back, and who was too late |
//! | `lease` | what an engine may do during a call, and that it may not after it |
//! | `capability`, `host_params`, `deadlines`, `cancel` | what a call is asked with |
//! | `history`, `plan`, `projection`, `services` | what an engine is lent, and what it made of it |
//!
//! Locks, in the order in which they may be taken: the handle's seat; the pool's state; a ticket's work and answer. The
//! quarantine's are taken with none of them held. Counters: `threads`, `left` and `last` change under the pool's state
//! alone; `queued` and `running` are read without it and may lag behind by one.

mod assemble;
mod cancel;
mod capability;
mod deadlines;
mod departure;
mod failure;
mod handle;
mod history;
mod host_params;
mod instance;
mod lease;
mod members;
mod pin;
mod plan;
mod projection;
mod services;
mod supervised;
mod swap;
mod threads;
mod ticket;
mod tools;
mod turn;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use assemble::{AssembleError, AssembleRequest, Assembled, SYSTEM_PROMPT_SEPARATOR};
pub use cancel::CancelToken;
pub use capability::{HostProfile, RUNTIME_LLM_COMPLETE, THREAD_BOOTSTRAP_PROJECTION};
pub use deadlines::{DEFAULT_DEADLINES, Deadlines};
pub use handle::{Creations, EngineHandle};
pub use history::PreparedHistory;
pub use lease::{NoServices, Permit, SessionServices};
pub use members::{CompactRequest, CompactTarget};
pub use projection::{Projection, ProjectionMode};
pub use services::EngineServices;
pub use threads::{MAX_LOST, MAX_THREADS};
pub use tools::{EngineTool, ToolAnswer};
pub use turn::{TurnFacts, TurnTaken};

pub(crate) use departure::Departure;
pub(crate) use handle::{LastOpened, Refused, Shared, Source};
pub(crate) use host_params::HostParamPolicy;
pub(crate) use instance::{Engine, Instance};
pub(crate) use lease::Lease;
pub(crate) use plan::takes;
pub(crate) use supervised::{Plugged, Supervised};
pub(crate) use swap::Standing;
pub(crate) use threads::{EngineThreads, Fate, Lost};
pub(crate) use tools::{left_out_of, read_tools};

/// What a session calls an engine about: who asks, and with which growing part. Owned, because an engine that does not
/// return keeps it.
#[derive(Clone)]
pub struct Call {
    /// The session.
    pub session_id: Arc<str>,
    /// Where its transcript is kept.
    pub session_file: Arc<str>,
    /// The host params, before projection.
    pub host_params: Arc<Map<String, Value>>,
    /// Services for this call.
    pub services: Arc<dyn SessionServices>,
    /// Takes the call back.
    pub cancel: CancelToken,
}

/// What a member answered, and who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The answer.
    pub value: T,
    /// The engine that gave it.
    pub served_by: String,
    /// Why it was not the one asked for.
    pub why: Option<String>,
}
