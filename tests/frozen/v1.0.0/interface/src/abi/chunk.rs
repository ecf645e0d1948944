//! Owned chunks of views: built once when messages enter, lent to every call after that.
//!
//! Decision: a chunk owns both the messages and the views into them, so views live as long as anyone holds the chunk
//! (an `Arc`), and a call that is abandoned by its host never reads freed memory. History is a list of such chunks;
//! new messages get chunks of their own at its end.

use std::any::Any;
use std::sync::Arc;

use abi_stable::std_types::RSlice;

use super::messages::{MessageChunk, Messages};
use super::views::{BlockView, MessageView};

/// Something a [`MessageView`] can be made of.
pub trait ViewSource: Send + Sync + 'static {
    /// Pushes the message's blocks onto `blocks` in order and returns its view.
    ///
    /// The view's own `blocks` is ignored: the chunk sets it to what was pushed.
    fn view<'a>(&'a self, blocks: &mut Vec<BlockView<'a>>) -> MessageView<'a>;
}

/// How many messages a full chunk holds: few enough that re-making the last one is cheap, many enough that the list of
/// chunks stays short (391 for 100,000 messages).
pub const CHUNK_LEN: usize = 256;

/// Messages and the views into them, immutable once built.
pub struct ViewChunk {
    // Invariant: `views` borrows from `blocks` and from `owner`; both live as long as this struct and are never touched.
    // Vec and not Box: moving a Box asserts unique access to what it points at.
    views: Vec<MessageView<'static>>,
    _blocks: Vec<BlockView<'static>>,
    _owner: Box<dyn Any + Send + Sync>,
}

impl ViewChunk {
    /// Builds the views of `sources`: about 150 instructions per message with one block.
    pub fn build<S: ViewSource>(sources: Vec<Arc<S>>) -> ViewChunk {
        let mut blocks: Vec<BlockView<'static>> = Vec::with_capacity(sources.len() * 2);
        let mut ends = vec![0; sources.len()];
        let view = |(source, end): (&Arc<S>, &mut usize)| {
            // SAFETY: the Arc is moved into `_owner` below and stays there until the views are dropped, so the pointee
            // neither moves nor dies; nobody can get `&mut` to it, because this Arc keeps the count above what
            // `Arc::get_mut` accepts. What a safe `view` returns is valid for as long as that shared borrow lasts.
            let source: &'static S = unsafe { &*Arc::as_ptr(source) };
            let view = source.view(&mut blocks);
            *end = blocks.len();
            view
        };
        // Collected, not pushed: each view is written where it stays.
        let mut views: Vec<MessageView<'static>> = sources.iter().zip(&mut ends).map(view).collect();
        let mut start = 0;
        for (view, end) in views.iter_mut().zip(ends) {
            // A source that removed blocks of its predecessors gets none; the slice below cannot go out of bounds.
            let own = blocks.get(start..end).unwrap_or_default();
            // SAFETY: `blocks` is complete, its buffer moves into `_blocks` and is never written or grown again.
            let own: &'static [BlockView<'static>] = unsafe { std::slice::from_raw_parts(own.as_ptr(), own.len()) };
            view.blocks = RSlice::from_slice(own);
            start = end;
        }
        ViewChunk { views, _blocks: blocks, _owner: Box::new(sources) }
    }

    /// The views, in the order of the sources.
    pub fn views(&self) -> &[MessageView<'_>] {
        &self.views
    }
}

impl std::fmt::Debug for ViewChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewChunk").field("len", &self.views.len()).finish_non_exhaustive()
    }
}

/// The chunks of a history, ready to be lent to a call. Cloning copies one `Arc` per chunk.
#[derive(Debug, Clone, Default)]
pub struct ViewChunks {
    chunks: Vec<Arc<ViewChunk>>,
}

impl ViewChunks {
    /// Builds the chunks of a whole history.
    pub fn build<S: ViewSource>(sources: &[Arc<S>]) -> ViewChunks {
        let mut chunks = ViewChunks::default();
        chunks.append(sources);
        chunks
    }

    /// Appends messages, in chunks of their own: the ones that are there stay as they are.
    pub fn append<S: ViewSource>(&mut self, sources: &[Arc<S>]) {
        self.chunks.extend(sources.chunks(CHUNK_LEN).map(|run| Arc::new(ViewChunk::build(run.to_vec()))));
    }

    /// How many messages the chunks hold.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.views.len()).sum()
    }

    /// Whether they hold none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The index a call borrows its [`Messages`] from: one entry per chunk.
    pub fn index(&self) -> ChunkIndex<'_> {
        let mut start = 0;
        let chunks = self.chunks.iter().map(|chunk| {
            let entry = MessageChunk { start, messages: RSlice::from_slice(chunk.views()) };
            start += chunk.views.len() as u64;
            entry
        });
        ChunkIndex { chunks: chunks.collect() }
    }
}

/// Where each chunk starts; lives for one call.
#[derive(Debug)]
pub struct ChunkIndex<'a> {
    chunks: Vec<MessageChunk<'a>>,
}

impl ChunkIndex<'_> {
    /// The history as an engine takes it.
    pub fn messages(&self) -> Messages<'_> {
        Messages::new(&self.chunks)
    }
}

#[cfg(test)]
mod tests;
