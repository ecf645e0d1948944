//! From raw history to what engines and models may see: pure functions over shared messages.
//!
//! Decision: every stage takes the whole history and gives it back, unchanged messages being the same `Arc`, so a session
//! in good order costs a walk over its index and no parsing. Nothing here is persisted: the file keeps what happened.
//!
//! The order differs from contract §4 in one place: pairs are made whole before runs are merged and turns are limited,
//! because both look at neighbours, and a result that stands in the wrong place is a wrong neighbour.
//!
//! Invariants of what [`run`] gives back: no call without its result directly behind it, no result without its call, call
//! ids unique, user texts in the order they came, and `run` of it is the same again.

mod call_ids;
mod frames;
mod heartbeat;
mod images;
mod limit;
mod pair_repair;
mod parts;
#[cfg(test)]
pub(crate) mod properties;
mod render;
mod sanitize;
mod sent;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use context_engine_transcript::Message;
use serde::Serialize;

pub use heartbeat::{HeartbeatReport, drop_heartbeats};
pub use images::{IMAGE_REMOVED, IMAGE_TURNS, ImageReport, Pictures, first_recent, has_image, image_view};
pub use limit::{LimitReport, limit};
pub use pair_repair::{PairReport, SYNTHETIC_RESULT, pair_repair};
pub use render::{BOOTSTRAP, CONTINUE, NO_OUTPUT, RenderReport, render, summary_text};
pub use sanitize::{SanitizeReport, sanitize};
pub use validate::{ValidateReport, validate};

/// What [`run`] has to know about the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipelineOptions {
    /// The model the prompt is for, `id` or `provider/id`: thinking signed by another one is left out. `None` keeps all
    /// signed thinking.
    pub model: Option<String>,
    /// Limit in user turns (contract §4.3); `None` or 0 for none.
    pub history_limit: Option<usize>,
    /// Which pictures are sent (contract §4.6).
    pub pictures: Pictures,
}

/// What [`run`] did, stage by stage. All zero for a history in good order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PipelineReport {
    /// Message by message.
    pub sanitize: SanitizeReport,
    /// Calls and results.
    pub pairs: PairReport,
    /// Heartbeats without content.
    pub heartbeat: HeartbeatReport,
    /// Runs of one speaker.
    pub validate: ValidateReport,
    /// The history limit.
    pub limit: LimitReport,
    /// Pictures of older turns.
    pub images: ImageReport,
}

/// The history as engines get it: [`sanitize`], [`pair_repair`], [`drop_heartbeats`], [`validate`], [`limit`],
/// [`image_view`].
///
/// Linear in the number of messages and bytes. A message whose content was changed has a token count of 0 and must be counted.
pub fn run(messages: Vec<Arc<Message>>, options: &PipelineOptions) -> (Vec<Arc<Message>>, PipelineReport) {
    let (messages, sanitize) = sanitize(messages, options.model.as_deref());
    let (messages, pairs) = pair_repair(messages);
    let (messages, heartbeat) = drop_heartbeats(messages);
    let (messages, validate) = validate(messages);
    let (messages, limit) = limit(messages, options.history_limit);
    let (messages, images) = image_view(messages, options.pictures);
    (messages, PipelineReport { sanitize, pairs, heartbeat, validate, limit, images })
}
