//! A turn: a person asks, the model answers, with tools in between. Who is called in which order: contract Part 2.
//!
//! ```text
//! engine → [user entry] → bootstrap → maintain → assemble ⇄ compact → model ⇄ tools → after_turn → maintain
//! ```
//!
//! Decisions: what is said is written before anything is done with it, so a process that dies has lost nothing it was told.
//! A turn never changes its engine, except for `legacy` when it fails. A turn that failed or was taken back calls nothing
//! behind it. Every recovery has a limit and needs progress: a prompt that was refused is never sent again.
//!
//! | file | what it decides |
//! |---|---|
//! | `run` | the order |
//! | `exchange`, `record` | one prompt and its answer; what is written |
//! | `frame`, `facts`, `settings` | the calls of the engine, and what they are told |
//! | `recovery` | what is done when the model refuses a prompt or does not answer |
//! | `budget` | what a prompt may cost |
//! | `tools`, `system` | what the model may call, and the rules it is given |
//! | `maintenance` | what an engine does behind the turn |

pub(crate) mod budget;
mod cancel;
mod exchange;
pub(crate) mod facts;
pub(crate) mod frame;
pub(crate) mod maintenance;
pub(crate) mod record;
mod recovery;
pub(crate) mod run;
mod settings;
mod system;
pub(crate) mod tools;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use budget::{RESERVE_TOKENS, Window};
pub use cancel::TurnCancel;
pub use settings::SettingsFacts;
pub use system::SystemPrompt;
pub use tools::{Tool, ToolCall, ToolOutput};

use crate::RuntimeError;
use crate::model::{Model, Usage};

/// What a turn is asked.
#[derive(Clone, Default)]
pub struct TurnRequest {
    /// What the person says: `text` and `image` blocks in OpenClaw's shape.
    pub content: Vec<Value>,
    /// Whether nobody asked, and a clock did.
    pub is_heartbeat: bool,
    /// Leave the engine and the system prompt out: the model gets the person's words alone (contract §2.2).
    pub raw: bool,
    /// The model, when it is not the runtime's.
    pub model: Option<Arc<dyn Model>>,
    /// The tools, when they are not the runtime's.
    pub tools: Option<Vec<Arc<dyn Tool>>>,
    /// The system prompt, when it is not the runtime's.
    pub system: Option<SystemPrompt>,
    /// Takes the turn back. For one turn: a clone of the request shares it.
    pub cancel: TurnCancel,
}

impl TurnRequest {
    /// A person says `text`.
    pub fn text(text: impl Into<String>) -> TurnRequest {
        let text: String = text.into();
        TurnRequest { content: vec![json!({ "type": "text", "text": text })], ..TurnRequest::default() }
    }
}

impl std::fmt::Debug for TurnRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnRequest").field("content", &self.content).field("raw", &self.raw).finish_non_exhaustive()
    }
}

/// What happens during a turn, as it happens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TurnEvent {
    /// More of the reply.
    Text(String),
    /// More of the reasoning.
    Thinking(String),
    /// A tool is about to run.
    ToolStarted {
        /// Id of the call.
        id: String,
        /// The tool.
        name: String,
    },
    /// A tool has run.
    ToolEnded {
        /// Id of the call.
        id: String,
        /// The tool.
        name: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// The session was compacted.
    Compacted,
    /// The provider did not answer and is asked again.
    Retry {
        /// How long is waited before.
        after: Duration,
        /// Why it did not answer.
        reason: String,
    },
    /// What was streamed of this reply is void: the model is asked again with another prompt.
    Restarted {
        /// Why.
        reason: String,
    },
    /// Another engine answers than the one asked for.
    Fallback {
        /// Why.
        why: String,
    },
}

/// How a turn ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnEnd {
    /// With a reply.
    Answered,
    /// It was taken back. What had come in of the reply is in the transcript; one that was taken back before it began left
    /// nothing there.
    Aborted,
    /// Without a reply. What was said is in the transcript.
    Failed(RuntimeError),
}

/// One model call of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallMade {
    /// Messages in the prompt.
    pub sent_messages: usize,
    /// What it cost by the host's count, with everything that was sent.
    pub sent_tokens: u64,
    /// The engine that made it.
    pub served_by: String,
    /// Why it was not the one asked for.
    pub why: Option<String>,
    /// Whether the engine was asked for this call, or only for one before it.
    pub assembled: bool,
    /// Whether the host had to fit the plan to the budget.
    pub fitted: bool,
}

/// What a turn did.
#[derive(Debug)]
pub struct TurnReport {
    /// How it ended.
    pub end: TurnEnd,
    /// The text of the last reply.
    pub text: String,
    /// The engine in the slot.
    pub asked_for: String,
    /// The engine that made the last prompt.
    pub served_by: String,
    /// Why it was not the one asked for.
    pub why: Option<String>,
    /// The calls that were answered or refused, in order.
    pub calls: Vec<CallMade>,
    /// How often the session was compacted.
    pub compactions: usize,
    /// Tool results that were shortened in the transcript.
    pub truncated: usize,
    /// What the provider counted, over all calls.
    pub usage: Usage,
    /// Entry of what the person said.
    pub user_entry: Option<String>,
    /// Entry of the last reply.
    pub reply_entry: Option<String>,
}

impl TurnReport {
    /// Of a turn in which nothing has happened yet.
    pub(crate) fn new(asked_for: String, end: TurnEnd) -> TurnReport {
        TurnReport {
            end,
            text: String::new(),
            served_by: asked_for.clone(),
            asked_for,
            why: None,
            calls: Vec::new(),
            compactions: 0,
            truncated: 0,
            usage: Usage::default(),
            user_entry: None,
            reply_entry: None,
        }
    }

    /// Whether there is a reply.
    pub fn is_answered(&self) -> bool {
        matches!(self.end, TurnEnd::Answered)
    }
}
