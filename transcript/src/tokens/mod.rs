//! What a message costs in a prompt, in tokens.
//!
//! Decision: counts are made by the model's own tokeniser (tiktoken-rs), once, when a message enters, and travel with
//! it. An estimate by characters is two to four times off for Chinese, Japanese and Korean text, and a kept tail or a
//! budget built on it is as wrong. Where no tokeniser is published (Claude, Gemini, unknown models) `o200k_base` stands
//! in.
//!
//! What counts is what is sent: text, reasoning, a tool call's id, name and argument JSON, a tool result's text and call
//! id, for a block of another kind the text it is sent as ([`crate::content::retold`]), plus [`MESSAGE_OVERHEAD`], [`BLOCK_OVERHEAD`], [`CALL_OVERHEAD`] and [`IMAGE_TOKENS`]. A message that is sent in
//! another form than it is recorded in costs what it costs as sent, at most [`RETOLD_OVERHEAD`] more: a count never
//! changes on the way into a prompt.

mod parts;
mod runs;

use std::borrow::Borrow;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tiktoken_rs::CoreBPE;

use crate::Message;

pub use parts::{block as block_cost, call as call_cost};

/// Tokens for a message's frame: role and separators.
pub const MESSAGE_OVERHEAD: u64 = 4;
/// Tokens for the frame of each block.
pub const BLOCK_OVERHEAD: u64 = 1;
/// Tokens for the frame of a tool call or of a tool result's link to it, beside the block's own.
pub const CALL_OVERHEAD: u64 = 4;
/// Tokens for a picture, whatever its size (contract, 7.2: 8,000 characters). Providers bill pictures by
/// dimensions and scale large ones down; the length of the encoded file says nothing.
pub const IMAGE_TOKENS: u64 = 2_000;

/// At most what a summary or a person's command gains in the form it is sent in: words and fences around it.
pub const RETOLD_OVERHEAD: u64 = 48;
/// At most what a tool result without content is sent with, because an empty message is refused.
pub const EMPTY_RESULT: u64 = 8;

/// A published vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Encoding {
    /// GPT-4o, GPT-4.1, GPT-5, o1 to o4; also for every model whose tokeniser is unknown.
    O200kBase,
    /// GPT-3.5 and GPT-4.
    Cl100kBase,
}

impl Encoding {
    /// The encoding of a model, by its name with or without a provider before it (`openai/gpt-4o`).
    pub fn for_model(model: Option<&str>) -> Encoding {
        let name = model.unwrap_or_default().to_ascii_lowercase();
        let name = name.rsplit('/').next().unwrap_or_default();
        let old =
            name == "gpt-4" || ["gpt-4-", "gpt-3.5", "gpt-35", "text-embedding-"].iter().any(|p| name.starts_with(p));
        if old { Encoding::Cl100kBase } else { Encoding::O200kBase }
    }

    /// The vocabulary's published name.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::O200kBase => "o200k_base",
            Encoding::Cl100kBase => "cl100k_base",
        }
    }

    fn bpe(self) -> &'static CoreBPE {
        match self {
            Encoding::O200kBase => tiktoken_rs::o200k_base_singleton(),
            Encoding::Cl100kBase => tiktoken_rs::cl100k_base_singleton(),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counts tokens in one encoding. Free to make and to copy: the vocabulary is loaded at the first count (some tenths of a
/// second) and shared by the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenCounter {
    encoding: Encoding,
}

impl TokenCounter {
    /// A counter for this encoding.
    pub const fn new(encoding: Encoding) -> TokenCounter {
        TokenCounter { encoding }
    }

    /// A counter for this model; see [`Encoding::for_model`].
    pub fn for_model(model: Option<&str>) -> TokenCounter {
        TokenCounter::new(Encoding::for_model(model))
    }

    /// Which encoding it counts in.
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Tokens of a text. Exact, except that an unbroken run of one kind of character (letters, spaces, signs) longer
    /// than 1,024 bytes is counted in slices: up to 2 % too many for such a run. Time is linear in the length.
    pub fn text(&self, text: &str) -> u64 {
        let bpe = self.encoding.bpe();
        runs::slices(text).map(|slice| bpe.encode_ordinary(slice).len() as u64).sum()
    }

    /// Tokens of a message in a prompt; 0 for one that is excluded from context.
    pub fn message(&self, message: &Message) -> u64 {
        parts::message(self, message)
    }

    /// The message with its token count filled in.
    #[must_use]
    pub fn counted(&self, mut message: Message) -> Message {
        message.tokens = self.message(&message);
        message
    }

    /// Tokens of many messages, in their order, counted on all processors.
    pub fn count_all<M: Borrow<Message> + Sync>(&self, messages: &[M]) -> Vec<u64> {
        /// Messages taken by a thread at a time: enough to make the shared counter cheap, few enough that one long
        /// message does not leave the other threads idle.
        const BATCH: usize = 64;
        let counts: Vec<AtomicU64> = messages.iter().map(|_| AtomicU64::new(0)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(messages.len().div_ceil(BATCH));
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let start = next.fetch_add(BATCH, Ordering::Relaxed);
                if start >= messages.len() {
                    return;
                }
                for (message, count) in messages.iter().zip(&counts).skip(start).take(BATCH) {
                    count.store(self.message(message.borrow()), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        counts.into_iter().map(AtomicU64::into_inner).collect()
    }
}

#[cfg(test)]
mod tests;
