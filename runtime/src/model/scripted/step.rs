//! One answer of a script: what is said, how it comes in, how it ends.

use std::time::Duration;

use serde_json::{Value, json};

use super::pause;
use crate::model::{ModelError, ModelErrorKind, ModelEvent, ModelReply, StopReason, Usage};

/// One answer. Made of parts in their order, said at once unless [`Step::in_pieces`] says otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    delay: Duration,
    retries: Vec<(Duration, String)>,
    parts: Vec<Part>,
    pieces: Option<(usize, Duration)>,
    usage: Option<Usage>,
    stop: Option<StopReason>,
    response_model: Option<String>,
    end: End,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Thinking(String),
    Call { id: String, name: String, arguments: Value },
}

#[derive(Debug, Clone, Default, PartialEq)]
enum End {
    #[default]
    Reply,
    Error(ModelErrorKind, String),
    Never,
}

impl Step {
    /// Says this.
    pub fn text(text: impl Into<String>) -> Step {
        Step::default().and_text(text)
    }

    /// Thinks this; something said or called usually follows.
    pub fn thinking(text: impl Into<String>) -> Step {
        Step::default().and_thinking(text)
    }

    /// Calls a tool.
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Step {
        Step::default().and_call(id, name, arguments)
    }

    /// Does not answer, for this reason.
    pub fn fail(kind: ModelErrorKind) -> Step {
        Step::default().and_fail(kind)
    }

    /// Finds the prompt too long, and names its size when `observed` does.
    pub fn overflow(observed: Option<u64>) -> Step {
        Step::fail(ModelErrorKind::Overflow { observed })
    }

    /// Takes too long, as the host that gave up on it sees it.
    pub fn timeout() -> Step {
        Step::fail(ModelErrorKind::Timeout)
    }

    /// Limits the rate.
    pub fn rate_limited(retry_after: Option<Duration>) -> Step {
        Step::fail(ModelErrorKind::RateLimited { retry_after })
    }

    /// Refuses the prompt.
    pub fn refused() -> Step {
        Step::fail(ModelErrorKind::Refused)
    }

    /// Is down.
    pub fn unavailable() -> Step {
        Step::fail(ModelErrorKind::Unavailable)
    }

    /// Never answers and never fails: for deadlines and for turns that are taken back.
    pub fn never() -> Step {
        Step { end: End::Never, ..Step::default() }
    }

    /// Says this next.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Step {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Thinks this next.
    #[must_use]
    pub fn and_thinking(mut self, text: impl Into<String>) -> Step {
        self.parts.push(Part::Thinking(text.into()));
        self
    }

    /// Calls this tool next.
    #[must_use]
    pub fn and_call(mut self, id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Step {
        self.parts.push(Part::Call { id: id.into(), name: name.into(), arguments });
        self
    }

    /// Fails after all that was said, which is in [`ModelError::partial`].
    #[must_use]
    pub fn and_fail(self, kind: ModelErrorKind) -> Step {
        self.and_fail_with(kind, "as the script says")
    }

    /// Fails with these words.
    #[must_use]
    pub fn and_fail_with(mut self, kind: ModelErrorKind, text: impl Into<String>) -> Step {
        self.end = End::Error(kind, text.into());
        self
    }

    /// Breaks off after all that was said.
    #[must_use]
    pub fn and_break_off(self) -> Step {
        self.and_fail_with(ModelErrorKind::Interrupted, "the script breaks off here")
    }

    /// Begins after this time.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Step {
        self.delay = delay;
        self
    }

    /// Reports that the provider did not answer and is asked again, once for each call of this. The time is reported, not
    /// waited.
    #[must_use]
    pub fn retried(mut self, after: Duration, reason: impl Into<String>) -> Step {
        self.retries.push((after, reason.into()));
        self
    }

    /// Text and thinking come in pieces of so many characters (at least one), this long apart.
    #[must_use]
    pub fn in_pieces(mut self, characters: usize, apart: Duration) -> Step {
        self.pieces = Some((characters.max(1), apart));
        self
    }

    /// What it cost.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Step {
        self.usage = Some(usage);
        self
    }

    /// Why it ended; without this, [`StopReason::ToolUse`] when a tool is called and [`StopReason::Stop`] otherwise.
    #[must_use]
    pub fn stop(mut self, stop: StopReason) -> Step {
        self.stop = Some(stop);
        self
    }

    /// Another model answered than the one asked.
    #[must_use]
    pub fn by(mut self, model: impl Into<String>) -> Step {
        self.response_model = Some(model.into());
        self
    }

    pub(super) async fn play(self, events: &mut (dyn FnMut(ModelEvent<'_>) + Send)) -> Result<ModelReply, ModelError> {
        pause(self.delay).await;
        for (attempt, (after, reason)) in (1..).zip(&self.retries) {
            events(ModelEvent::Retry { attempt, after: *after, reason });
        }
        let mut content = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (text, is_text) = match part {
                Part::Text(text) => (text, true),
                Part::Thinking(text) => (text, false),
                Part::Call { id, name, .. } => {
                    events(ModelEvent::ToolCall { id, name });
                    content.push(part.block());
                    continue;
                }
            };
            for piece in pieces(text, self.pieces.map_or(usize::MAX, |(characters, _)| characters)) {
                events(if is_text { ModelEvent::Text(piece) } else { ModelEvent::Thinking(piece) });
                if let Some((_, apart)) = self.pieces {
                    pause(apart).await;
                }
            }
            content.push(part.block());
        }
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let stop = self.stop.unwrap_or(if calls { StopReason::ToolUse } else { StopReason::Stop });
        match self.end {
            End::Reply => Ok(ModelReply { content, stop, usage: self.usage, response_model: self.response_model }),
            End::Error(kind, text) => Err(ModelError { kind, text, partial: content }),
            End::Never => std::future::pending().await,
        }
    }
}

impl From<&str> for Step {
    fn from(text: &str) -> Step {
        Step::text(text)
    }
}

impl Part {
    fn block(&self) -> Value {
        match self {
            Part::Text(text) => json!({ "type": "text", "text": text }),
            Part::Thinking(text) => json!({ "type": "thinking", "thinking": text }),
            Part::Call { id, name, arguments } => {
                json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments })
            }
        }
    }
}

/// The text in pieces of at most so many characters.
fn pieces(text: &str, characters: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let cut = rest.char_indices().nth(characters).map_or(rest.len(), |(at, _)| at);
        let piece;
        (piece, rest) = rest.split_at(cut);
        (!piece.is_empty()).then_some(piece)
    })
}
