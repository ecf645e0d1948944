//! The model: what a turn asks for answers.
//!
//! Decision: one trait, one request, one reply, in OpenClaw's message shape; what a provider's protocol looks like stays
//! behind it. A reply is a future of its own so that a host serves many sessions on few threads; taking a turn back is
//! dropping that future. Errors are kinds the turn acts on (recover, retry, stop), because every provider words them
//! differently.

pub mod classify;
#[cfg(feature = "openai")]
pub mod openai;
mod scripted;
mod thread;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use context_engine_transcript::Message;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use scripted::{ScriptedModel, Step, request_tokens};
pub use thread::{Follows, Place, ThreadBackend, ThreadModel, ThreadSend};

/// Tokens of a window whose size nobody says (contract, Part 10).
pub const DEFAULT_CONTEXT_WINDOW: u64 = 200_000;

/// A future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that answers prompts.
pub trait Model: Send + Sync + 'static {
    /// What it is called and what it can take.
    fn info(&self) -> &ModelInfo;

    /// Answers one prompt. What is streamed on the way goes to `events`; the reply holds it all again.
    ///
    /// Dropping the future ends the request.
    ///
    /// # Errors
    /// [`ModelError`], by kind; what was said before the error is in [`ModelError::partial`].
    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>>;
}

/// A model, as its host knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelInfo {
    /// Who serves it, such as `openai`.
    pub provider: String,
    /// Its id at the provider.
    pub id: String,
    /// Family, where the provider says one.
    pub family: Option<String>,
    /// Tokens of prompt and reply together; [`DEFAULT_CONTEXT_WINDOW`] when absent.
    pub context_window: Option<u64>,
    /// The longest reply, in tokens.
    pub max_output_tokens: Option<u64>,
}

/// One prompt.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<String>,
    /// Roles `user`, `assistant` and `toolResult` only, pairs whole, the last one no assistant message.
    pub messages: Vec<Arc<Message>>,
    /// Tools the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// The longest reply wanted, in tokens.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature; the provider's own when absent.
    pub temperature: Option<f64>,
    /// Where it stands in its session; `None` for a prompt of no session. A model that is sent every prompt whole need
    /// not look.
    pub place: Option<Place>,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    /// At most 64 letters, digits, `_` or `-` (contract §4.1).
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// What comes in while a reply is made.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent<'a> {
    /// More of the text.
    Text(&'a str),
    /// More of the reasoning.
    Thinking(&'a str),
    /// A whole tool call.
    ToolCall {
        /// Its id.
        id: &'a str,
        /// The tool.
        name: &'a str,
    },
    /// The provider did not answer; it is asked again.
    Retry {
        /// How often it was asked, this time not included.
        attempt: u32,
        /// How long is waited before.
        after: Duration,
        /// Why it did not answer.
        reason: &'a str,
    },
}

/// A whole reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelReply {
    /// Blocks in OpenClaw's shape: `text`, `thinking`, `toolCall`.
    pub content: Vec<Value>,
    /// Why it ended.
    pub stop: StopReason,
    /// What it cost, as far as the provider says.
    pub usage: Option<Usage>,
    /// The model that answered, where the provider names another than the one asked.
    pub response_model: Option<String>,
}

/// Why a reply ended (contract §5.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StopReason {
    /// It was done.
    #[default]
    Stop,
    /// It reached the longest reply, or the window.
    Length,
    /// It calls tools.
    ToolUse,
}

impl StopReason {
    /// As it stands in a transcript.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::Stop => "stop",
            StopReason::Length => "length",
            StopReason::ToolUse => "toolUse",
        }
    }
}

/// Tokens of one call, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Prompt tokens that came from no cache.
    pub input: u64,
    /// Tokens of the reply.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to it.
    pub cache_write: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    /// Prompt and reply together.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// The whole prompt, cached or not.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

/// Why there is no reply. The text is the provider's, shortened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct ModelError {
    /// What the turn does about it.
    pub kind: ModelErrorKind,
    /// What the provider said.
    pub text: String,
    /// Blocks that had come in before.
    pub partial: Vec<Value>,
}

/// What kept a model from answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The prompt is over the model's window. `observed` is the prompt's size where the provider names it.
    #[error("the prompt is over the model's window")]
    Overflow {
        /// Tokens of the prompt, as the provider counted them.
        observed: Option<u64>,
    },
    /// The request has too many bytes, whatever its tokens: no compaction is tried.
    #[error("the request is larger than the provider takes")]
    RequestTooLarge,
    /// No reply in time.
    #[error("the model did not answer in time")]
    Timeout,
    /// Too many requests or tokens per minute, after all retries.
    #[error("the provider limits the rate")]
    RateLimited {
        /// When to come back, where the provider says so.
        retry_after: Option<Duration>,
    },
    /// The key or the account is refused; billing is among it.
    #[error("the provider refuses the account")]
    Unauthorized,
    /// The provider or the way there is down.
    #[error("the provider cannot be reached")]
    Unavailable,
    /// The provider will not answer this prompt.
    #[error("the provider refuses the prompt")]
    Refused,
    /// The reply broke off.
    #[error("the reply broke off")]
    Interrupted,
    /// Anything else: a request or a reply one side cannot read.
    #[error("the request failed")]
    Failed,
}

impl ModelError {
    /// An error before anything came in.
    pub fn new(kind: ModelErrorKind, text: impl Into<String>) -> ModelError {
        ModelError { kind, text: text.into(), partial: Vec::new() }
    }
}

impl ModelReply {
    /// A reply of text alone.
    pub fn text(text: impl Into<String>) -> ModelReply {
        let text: String = text.into();
        ModelReply { content: vec![json!({ "type": "text", "text": text })], ..ModelReply::default() }
    }

    /// The tool calls in it: id, name and arguments.
    pub fn tool_calls(&self) -> impl Iterator<Item = &Map<String, Value>> {
        let calls = self.content.iter().filter_map(Value::as_object);
        calls.filter(|block| block.get("type").is_some_and(|kind| kind == "toolCall"))
    }
}
