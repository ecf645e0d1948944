//! How much of a prompt is the beginning of the one before: what a provider's prompt cache lives on.
//!
//! Decision: measured in tokens, because tokens are what a cache bills. Messages that are the same count in full; of the
//! first one that is not, as much as its beginning is the same, in bytes of what is sent. What is behind it is new to the
//! cache whatever it holds.

use std::sync::Arc;

use context_engine_interface::BlockKind;
use context_engine_transcript::{Block, Message};

use crate::Prompt;

/// A prompt that was sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    system: Option<String>,
    messages: Vec<Arc<Message>>,
}

impl Sent {
    pub(crate) fn of(prompt: &Prompt) -> Sent {
        Sent { system: prompt.system.clone(), messages: prompt.assembled.messages.clone() }
    }

    /// Tokens of `next` that are the beginning of this prompt.
    pub(crate) fn common(&self, next: &Prompt) -> u64 {
        let messages = &next.assembled.messages;
        let of_messages: u64 = messages.iter().map(|message| message.tokens).sum();
        let system_tokens = next.tokens.saturating_sub(of_messages);
        let (before, after) = (self.system.as_deref().unwrap_or(""), next.system.as_deref().unwrap_or(""));
        if before != after {
            return part(system_tokens, common_bytes(before.as_bytes(), after.as_bytes()), after.len());
        }
        let mut tokens = system_tokens;
        for (at, message) in messages.iter().enumerate() {
            let Some(before) = self.messages.get(at) else { break };
            if !is_same(before, message) {
                if (before.role, &before.tool_call_id) != (message.role, &message.tool_call_id) {
                    return tokens;
                }
                let (old, new) = (as_sent(before), as_sent(message));
                return tokens + part(message.tokens, common_bytes(&old, &new), new.len());
            }
            tokens += message.tokens;
        }
        tokens
    }
}

fn part(tokens: u64, common: usize, of: usize) -> u64 {
    if of == 0 { tokens } else { tokens.saturating_mul(common as u64) / of as u64 }
}

fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn is_same(a: &Arc<Message>, b: &Arc<Message>) -> bool {
    let blocks = || a.blocks.iter().map(|block| bytes(a, block)).eq(b.blocks.iter().map(|block| bytes(b, block)));
    Arc::ptr_eq(a, b) || (a.role == b.role && a.tool_call_id == b.tool_call_id && (a.json == b.json || blocks()))
}

/// What is sent of a block: its time and its place in the session are not.
fn bytes<'a>(message: &'a Message, block: &'a Block) -> [&'a str; 3] {
    match block.kind {
        BlockKind::TEXT | BlockKind::TOOL_CALL => [&block.id, &block.name, &block.text],
        _ => ["", "", message.raw(block)],
    }
}

fn as_sent(message: &Message) -> Vec<u8> {
    message.blocks.iter().flat_map(|block| bytes(message, block)).flat_map(str::bytes).collect()
}
