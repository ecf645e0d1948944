//! A summary without a model: what was said and done, in its own words.
//!
//! Decision: extracted, never composed. Each line is a piece of the session in the session's language, so it can be
//! incomplete but not wrong, and the same messages always give the same summary. It is what `legacy` falls back on when
//! there is no model to ask, and what `fit` puts in the place of what it leaves out.
//!
//! Source of the headings: contract §7.7 and §7.4.

mod actions;
mod collect;
mod cues;
mod identifiers;
mod sections;
#[cfg(test)]
mod tests;
mod text;

use context_engine_interface::MessageView;

use collect::Collector;
use sections::Items;

/// What was found in a run of messages, ready to be written at any length.
#[derive(Debug, Clone)]
pub struct Digest {
    items: Items,
}

impl Digest {
    /// Reads messages, oldest first, and carries over what `previous` (an earlier summary) still holds.
    ///
    /// Linear in the bytes read. Heartbeats, fillers and thinking are skipped; of tool results only failures are read.
    /// A compaction summary among the messages counts as an earlier summary.
    pub fn read<'a>(messages: impl IntoIterator<Item = &'a MessageView<'a>>, previous: Option<&str>) -> Digest {
        let mut collector = Collector::new(previous);
        for message in messages {
            collector.message(message);
        }
        Digest { items: collector.finish() }
    }

    /// Whether nothing was found that is worth a line.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The summary, at most `max_chars` characters (Unicode scalar values); empty when nothing was found or fits.
    ///
    /// Items are dropped whole, oldest first; an identifier is never cut.
    pub fn write(&self, max_chars: usize) -> String {
        if self.is_empty() { String::new() } else { self.items.write(max_chars) }
    }
}

/// [`Digest::read`] and [`Digest::write`] in one.
pub fn summarize<'a>(
    messages: impl IntoIterator<Item = &'a MessageView<'a>>,
    previous: Option<&str>,
    max_chars: usize,
) -> String {
    Digest::read(messages, previous).write(max_chars)
}
