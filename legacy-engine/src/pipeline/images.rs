//! Pictures the model has already seen: a text stands for them once they are a few turns old.
//!
//! Decision: a picture costs the same in every prompt it is sent in, and what it showed is in the replies by then. The
//! session keeps it; only the view changes. Source: contract §4.6.

use std::sync::Arc;

use context_engine_interface::{BlockKind, Role};
use context_engine_transcript::Message;
use serde::Serialize;

use super::parts::{self, Part};

/// Completed turns whose pictures are sent as they are, beside the turn that is going on.
pub const IMAGE_TURNS: usize = 3;
/// Text that stands for a picture of an older turn.
pub const IMAGE_REMOVED: &str = "[image data removed - already processed by model]";

/// Which pictures are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pictures {
    /// Those of the newest [`IMAGE_TURNS`] completed turns and of the turn that is going on.
    #[default]
    Recent,
    /// None: the messages are the beginning of a history whose recent turns come later.
    Seen,
}

/// What [`image_view`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageReport {
    /// Pictures a text stands for.
    pub removed: usize,
}

/// Puts [`IMAGE_REMOVED`] in the place of pictures of user messages and tool results that are not sent any more.
pub fn image_view(mut messages: Vec<Arc<Message>>, pictures: Pictures) -> (Vec<Arc<Message>>, ImageReport) {
    let mut report = ImageReport::default();
    let end = match pictures {
        Pictures::Recent => first_recent(&messages),
        Pictures::Seen => messages.len(),
    };
    for message in &mut messages[..end] {
        if !matches!(message.role, Role::USER | Role::TOOL_RESULT) || !has_image(message) {
            continue;
        }
        let parts = message.blocks.iter().map(|block| match block.kind {
            BlockKind::IMAGE => Part::text(IMAGE_REMOVED),
            _ => Some(Part::of(message, block)),
        });
        let Some(parts) = parts.collect::<Option<Vec<Part<'_>>>>() else { continue };
        if let Some(changed) = parts::with_parts(message, &parts) {
            report.removed += message.blocks.iter().filter(|block| block.kind == BlockKind::IMAGE).count();
            *message = Arc::new(changed);
        }
    }
    (messages, report)
}

/// Index of the first message whose pictures are sent: where the oldest of the turns that count as recent starts.
pub fn first_recent(messages: &[Arc<Message>]) -> usize {
    let mut starts = (0..messages.len()).rev().filter(|&at| messages[at].role == Role::USER);
    starts.nth(IMAGE_TURNS).unwrap_or(0)
}

/// Whether the message holds a picture.
pub fn has_image(message: &Message) -> bool {
    message.blocks.iter().any(|block| block.kind == BlockKind::IMAGE)
}
