//! The history as an engine sees it: a slice of chunks behind an iterator and an index.
//!
//! Decision: chunks instead of one slice, because a session that grows by ten messages must not move a hundred
//! thousand. Every chunk carries the index of its first message, so an index is a binary search over chunks.

use abi_stable::StableAbi;
use abi_stable::std_types::RSlice;

use super::views::MessageView;

/// A run of messages that lie next to each other in memory. Frozen.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct MessageChunk<'a> {
    /// Index of the chunk's first message in the whole history.
    pub start: u64,
    /// The chunk's messages; never empty.
    pub messages: RSlice<'a, MessageView<'a>>,
}

/// The history of a session, oldest first: the pipeline's view of the raw messages, never an earlier assembly.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy, Default)]
pub struct Messages<'a> {
    chunks: RSlice<'a, MessageChunk<'a>>,
    len: u64,
}

impl<'a> Messages<'a> {
    /// No messages.
    pub const EMPTY: Messages<'static> = Messages { chunks: RSlice::EMPTY, len: 0 };

    /// The history made of `chunks`, whose `start`s ascend without a gap from 0; [`super::chunk::ChunkIndex`] makes them.
    pub(super) fn new(chunks: &'a [MessageChunk<'a>]) -> Messages<'a> {
        let len = chunks.last().map_or(0, |last| last.start + last.messages.len() as u64);
        Messages { chunks: RSlice::from_slice(chunks), len }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The message at `index`, counted from the oldest, or `None` past the end.
    pub fn get(&self, index: usize) -> Option<&'a MessageView<'a>> {
        let chunks = self.chunks.as_slice();
        let at = chunks.partition_point(|chunk| chunk.start as usize <= index).checked_sub(1)?;
        chunks[at].messages.as_slice().get(index - chunks[at].start as usize)
    }

    /// The newest message.
    pub fn last(&self) -> Option<&'a MessageView<'a>> {
        self.chunks.as_slice().last()?.messages.as_slice().last()
    }

    /// The messages from oldest to newest; walks from either end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a MessageView<'a>> + use<'a> {
        self.chunks.as_slice().iter().flat_map(|chunk| chunk.messages.as_slice())
    }

    /// The chunks themselves, for an engine that wants tight loops.
    pub fn chunks(&self) -> &'a [MessageChunk<'a>] {
        self.chunks.as_slice()
    }
}
