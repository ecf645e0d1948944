//! Which entries of a tree are the active branch: where its tip is, and the way from there to the root.
//!
//! Decision: one body for a session in memory and one in a file that grows, so that what a store shows is what an
//! importer reads. Entries are their places in the file.

use serde_json::{Map, Value};

/// Member of an entry that was written again by a rewrite, with more of the same rewrite to come. A process that is
/// killed in the middle of a rewrite leaves only such entries of it, and none of them is a tip: half of a rewritten
/// branch is not what the conversation was.
pub(crate) const REWRITE_CONTINUES: &str = "rewriteContinues";

/// Whether the entry bears [`REWRITE_CONTINUES`].
pub(crate) fn continues(entry: &Map<String, Value>) -> bool {
    entry.get(REWRITE_CONTINUES) == Some(&Value::Bool(true))
}

/// What an entry follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Up {
    /// Nothing: it is a root.
    Root,
    /// The entry at this place.
    At(usize),
    /// An entry that is not in the file.
    Lost,
}

/// The last entry that may be a tip, the end of a rewrite that was cut off apart: see [`REWRITE_CONTINUES`]. `follows`
/// answers whether the entry at the first place hangs on the tip as the entry at the second place has it.
///
/// A rewrite hangs on what stands before the tip of its time. What hangs on the tip itself came from elsewhere, by a
/// program that copied the part of a branch, and is taken for what it is.
pub(crate) fn last_entry(
    entries: usize,
    continues: impl Fn(usize) -> bool,
    follows: impl Fn(usize, usize) -> bool,
) -> Option<usize> {
    let last = entries.checked_sub(1)?;
    let whole = (0..entries).rev().find(|&i| !continues(i));
    match whole {
        Some(whole) if whole < last && !follows(whole + 1, whole) => Some(whole),
        _ => Some(last),
    }
}

/// The entries from the root to `tip`, in order. Where a parent is missing or the links run in a circle, the entry that
/// stood before in the file takes its place.
pub(crate) fn walk(entries: usize, tip: Option<usize>, up: impl Fn(usize) -> Up) -> Vec<usize> {
    let mut branch = Vec::new();
    let mut next = tip;
    // Links that only lead backwards need no memory of where they led.
    while let Some(i) = next {
        branch.push(i);
        next = match up(i) {
            Up::Root => None,
            Up::At(parent) if parent < i => Some(parent),
            Up::At(_) | Up::Lost => return bridged(entries, tip, up),
        };
    }
    branch.reverse();
    branch
}

fn bridged(entries: usize, tip: Option<usize>, up: impl Fn(usize) -> Up) -> Vec<usize> {
    let mut before = Unvisited::new(entries);
    let mut branch = Vec::new();
    let mut next = tip;
    while let Some(i) = next {
        branch.push(i);
        before.visit(i);
        next = match up(i) {
            Up::Root => None,
            Up::At(parent) if !before.visited(parent) => Some(parent),
            Up::At(_) | Up::Lost => before.nearest_below(i),
        };
    }
    branch.reverse();
    branch
}

/// Finds the nearest entry before another that was not visited, in almost constant time: a damaged file must not make
/// the walk quadratic.
struct Unvisited {
    /// `hop[i]` is `i` for an unvisited entry, else some index below it that may be unvisited; shifted by one so that
    /// 0 means none.
    hop: Vec<usize>,
}

impl Unvisited {
    fn new(len: usize) -> Unvisited {
        Unvisited { hop: (0..=len).collect() }
    }

    fn visited(&self, i: usize) -> bool {
        self.hop.get(i + 1) != Some(&(i + 1))
    }

    fn visit(&mut self, i: usize) {
        if let Some(hop) = self.hop.get_mut(i + 1) {
            *hop = i;
        }
    }

    fn nearest_below(&mut self, i: usize) -> Option<usize> {
        let mut root = i;
        while self.hop.get(root).is_some_and(|&h| h != root) {
            root = self.hop.get(root).copied().unwrap_or(0);
        }
        let mut at = i;
        while at != root {
            match self.hop.get_mut(at) {
                Some(hop) => at = std::mem::replace(hop, root),
                None => break,
            }
        }
        root.checked_sub(1)
    }
}
