//! Heartbeats that had nothing to say are not history.
//!
//! Decision: left out of the view, never of the file: 48 empty pairs a day teach the model to answer like that, and
//! deleting them breaks whoever counts on the file (public report E7). Source: contract §4.5.

use std::sync::Arc;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::Message;
use serde::Serialize;

/// How a heartbeat is acknowledged.
const ACK: &str = "HEARTBEAT_OK";
/// Characters an acknowledgement may hold beside the word itself.
const ACK_MAX_CHARS: usize = 300;

/// What [`drop_heartbeats`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HeartbeatReport {
    /// Heartbeat turns left out.
    pub turns: usize,
}

/// Leaves out every heartbeat turn that ends in an acknowledgement and says nothing else.
///
/// A turn counts as a heartbeat by the host's flag on its user message, never by its text: a person may type
/// `HEARTBEAT_OK`. A turn with any other visible output, or with messages of other roles in it, stays whole.
pub fn drop_heartbeats(messages: Vec<Arc<Message>>) -> (Vec<Arc<Message>>, HeartbeatReport) {
    let mut report = HeartbeatReport::default();
    if !messages.iter().any(|m| starts(m)) {
        return (messages, report);
    }
    let mut out = Vec::with_capacity(messages.len());
    let mut at = 0;
    while at < messages.len() {
        let end = messages[at + 1..].iter().position(|m| m.role == Role::USER).map_or(messages.len(), |n| at + 1 + n);
        if starts(&messages[at]) && is_silent(&messages[at + 1..end]) {
            report.turns += 1;
        } else {
            out.extend_from_slice(&messages[at..end]);
        }
        at = end;
    }
    (out, report)
}

fn starts(message: &Message) -> bool {
    message.role == Role::USER && message.flags.contains(MessageFlags::HEARTBEAT)
}

fn is_silent(replies: &[Arc<Message>]) -> bool {
    let mut acknowledged = false;
    for reply in replies {
        match reply.role {
            Role::TOOL_RESULT => {}
            Role::ASSISTANT => {
                for block in &reply.blocks {
                    match block.kind {
                        BlockKind::TOOL_CALL | BlockKind::THINKING => {}
                        BlockKind::TEXT if is_ack(&block.text) => acknowledged = true,
                        _ => return false,
                    }
                }
            }
            _ => return false,
        }
    }
    acknowledged
}

fn is_ack(text: &str) -> bool {
    text.contains(ACK) && text.trim().chars().count() <= ACK.len() + ACK_MAX_CHARS
}
