//! Where each entry of a session file stands: in the file, and in the tree.
//!
//! Decision: the bodies stay in the file. An entry costs 32 bytes here, its id as text once, and some five bytes in the
//! table that finds an id; ids are not kept a second time as keys.
//!
//! Invariant: ids are unique, never empty, and the ones the importer gives: a recorded id that is taken gets a number
//! behind it, a missing one is made from its place, and a reference means the entry that bore the id last before it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::head::Parent;
use crate::branch::{self, Up};

/// What an entry is, as far as the branch and the context need it without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `message`, `custom_message`, `branch_summary`: may be in context.
    Said,
    /// `compaction`, `reset`: context begins here.
    Boundary,
    Leaf,
    ModelChange,
    Other,
}

impl Kind {
    pub(super) fn of(kind: &str) -> Kind {
        match kind {
            "message" | "custom_message" | "branch_summary" => Kind::Said,
            "compaction" | "reset" => Kind::Boundary,
            "leaf" => Kind::Leaf,
            "model_change" => Kind::ModelChange,
            _ => Kind::Other,
        }
    }
}

/// An entry to be added.
pub(super) struct NewPlace<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) kind: Kind,
    pub(super) continues: bool,
    /// Where its line stands in the file, without what is around it.
    pub(super) at: u64,
    pub(super) length: u32,
    /// Records before it in the file.
    pub(super) position: u64,
    /// Its JSON, when that is not what stands in the file.
    pub(super) mended: Option<String>,
}

#[derive(Debug)]
struct Place {
    at: u64,
    name_at: usize,
    length: u32,
    name_length: u32,
    /// The parent's place, or [`ROOT`], or [`LOST`].
    up: u32,
    kind: Kind,
    continues: bool,
    is_mended: bool,
}

impl Place {
    fn name<'a>(&self, names: &'a str) -> &'a str {
        names.get(self.name_at..self.name_at + self.name_length as usize).unwrap_or("")
    }
}

const ROOT: u32 = u32::MAX;
const LOST: u32 = u32::MAX - 1;

/// The index of a session file.
#[derive(Debug, Default)]
pub(super) struct Index {
    places: Vec<Place>,
    /// All ids, one behind the other.
    names: String,
    by_id: HashTable<u32>,
    hasher: RandomState,
    /// Entries whose id was taken, by the id they were recorded under, ascending.
    renamed: HashMap<String, Vec<u32>>,
    /// The number to try next behind an id that came again.
    suffixes: HashMap<String, u64>,
    /// Entries whose parent was not there yet, by its id.
    orphans: HashMap<String, Vec<u32>>,
    /// JSON of entries found on damaged lines. Damage is rare, and finding them again would cost more.
    mended: HashMap<u32, Box<str>>,
    pub(super) duplicate_ids: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds an entry behind the others, below the one it was recorded to follow; its place.
    pub(super) fn add(&mut self, new: NewPlace<'_>, parent: &Parent<'_>) -> usize {
        let place = self.places.len();
        // The parent first: an entry may bear its parent's id.
        let up = match parent {
            Parent::Root => Up::Root,
            Parent::Previous => place.checked_sub(1).map_or(Up::Root, Up::At),
            // Most entries follow the one before in the file.
            Parent::Id(id)
                if self.renamed.is_empty() && self.places.last().is_some_and(|last| last.name(&self.names) == id) =>
            {
                place.checked_sub(1).map_or(Up::Root, Up::At)
            }
            Parent::Id(id) => self.named(id, place).map_or(Up::Lost, Up::At),
        };
        if let (Parent::Id(id), Up::Lost) = (parent, up) {
            self.orphans.entry(id.as_ref().to_owned()).or_default().push(short(place));
        }
        self.push(new, up)
    }

    /// Adds an entry behind the others; its place.
    pub(super) fn push(&mut self, new: NewPlace<'_>, up: Up) -> usize {
        let place = self.places.len();
        let short = short(place);
        let up = match up {
            Up::Root => ROOT,
            Up::Lost => LOST,
            Up::At(parent) => self::short(parent),
        };
        let mut name = new.id.map_or_else(|| Cow::Owned(format!("m{:06}", new.position)), Cow::Borrowed);
        let mut hash = self.hasher.hash_one(name.as_ref());
        if self.find_hashed(hash, &name).is_some() {
            let free = self.free_name(&name);
            if new.id.is_some() {
                self.duplicate_ids += 1;
                self.renamed.entry(name.into_owned()).or_default().push(short);
            }
            hash = self.hasher.hash_one(free.as_str());
            name = Cow::Owned(free);
        }
        grow(&mut self.places);
        if self.names.capacity() - self.names.len() < name.len() {
            self.names.reserve_exact(name.len() + self.names.len() / SPARE);
        }
        self.places.push(Place {
            at: new.at,
            name_at: self.names.len(),
            length: new.length,
            name_length: u32::try_from(name.len()).unwrap_or(u32::MAX),
            up,
            kind: new.kind,
            continues: new.continues,
            is_mended: new.mended.is_some(),
        });
        self.names.push_str(&name);
        self.mended.extend(new.mended.map(|json| (short, json.into_boxed_str())));
        let (places, names, hasher) = (&self.places, &self.names, &self.hasher);
        self.by_id.insert_unique(hash, short, |&i| hasher.hash_one(text(places, names, i as usize)));
        if !self.orphans.is_empty() {
            for orphan in self.orphans.remove(name.as_ref()).unwrap_or_default() {
                if let Some(orphan) = self.places.get_mut(orphan as usize) {
                    orphan.up = short;
                }
            }
        }
        place
    }

    /// Gives back the room that was kept for more entries.
    pub(super) fn settle(&mut self) {
        self.places.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// An id with the next free number behind it.
    fn free_name(&mut self, taken: &str) -> String {
        let mut n = self.suffixes.get(taken).copied().unwrap_or(2);
        loop {
            let name = format!("{taken}-{n}");
            n += 1;
            if self.find(&name).is_none() {
                self.suffixes.insert(taken.to_owned(), n);
                return name;
            }
        }
    }

    /// The entry of an id.
    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.find_hashed(self.hasher.hash_one(id), id)
    }

    fn find_hashed(&self, hash: u64, id: &str) -> Option<usize> {
        let found = self.by_id.find(hash, |&i| text(&self.places, &self.names, i as usize) == id)?;
        Some(*found as usize)
    }

    /// The entry that `id` means where the entry at `place` says it.
    pub(super) fn named(&self, id: &str, place: usize) -> Option<usize> {
        let again = self.renamed.get(id).and_then(|those| those.iter().rev().find(|&&i| (i as usize) <= place));
        again.map(|&i| i as usize).or_else(|| self.find(id))
    }

    pub(super) fn id(&self, place: usize) -> &str {
        text(&self.places, &self.names, place)
    }

    pub(super) fn up(&self, place: usize) -> Up {
        match self.places.get(place).map_or(ROOT, |p| p.up) {
            ROOT => Up::Root,
            LOST => Up::Lost,
            parent => Up::At(parent as usize),
        }
    }

    pub(super) fn kind(&self, place: usize) -> Kind {
        self.places.get(place).map_or(Kind::Other, |p| p.kind)
    }

    /// Where the entry's line stands in the file, and its length.
    pub(super) fn line(&self, place: usize) -> (u64, usize) {
        self.places.get(place).map_or((0, 0), |p| (p.at, p.length as usize))
    }

    /// The entry's JSON when it is not its line.
    pub(super) fn mended(&self, place: usize) -> Option<&str> {
        let is_mended = self.places.get(place).is_some_and(|p| p.is_mended);
        is_mended.then(|| self.mended.get(&u32::try_from(place).ok()?).map(AsRef::as_ref))?
    }

    /// Entries whose parents are not in the file.
    pub(super) fn lost_parents(&self) -> u64 {
        self.orphans.values().map(|those| those.len() as u64).sum()
    }

    /// The entries from the root to `tip`.
    pub(super) fn branch(&self, tip: Option<usize>) -> Vec<u32> {
        let branch = branch::walk(self.len(), tip, |i| self.up(i));
        branch.into_iter().map(short).collect()
    }

    /// The tip that the file shows, and how many entries of a rewrite that was cut off come after it. `leaf` is the last
    /// `leaf` entry and its target as it was recorded.
    pub(super) fn tip(&self, leaf: Option<&(usize, Option<String>)>) -> (Option<usize>, usize) {
        let tip = |at: usize| match leaf {
            Some((place, None)) if *place == at => None,
            Some((place, Some(target))) if *place == at => Some(self.named(target, at).unwrap_or(at)),
            _ => Some(at),
        };
        let continues = |i: usize| self.places.get(i).is_some_and(|p| p.continues);
        let follows = |below: usize, above: usize| tip(above).map_or(Up::Root, Up::At) == self.up(below);
        let last = branch::last_entry(self.len(), continues, follows);
        (last.and_then(tip), last.map_or(0, |last| self.len() - 1 - last))
    }
}

/// One part in so many is kept free for more: doubling would cost each entry as much as it needs.
const SPARE: usize = 4;

fn short(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(LOST)
}

fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(16 + list.len() / SPARE);
    }
}

fn text<'a>(places: &[Place], names: &'a str, place: usize) -> &'a str {
    places.get(place).map_or("", |place| place.name(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the index holds, in bytes.
    fn size(index: &Index) -> usize {
        index.places.capacity() * size_of::<Place>() + index.names.capacity() + index.by_id.allocation_size()
    }

    fn filled(entries: u64) -> Index {
        let mut index = Index::default();
        for n in 0..entries {
            let id = uuid::Uuid::from_u128(u128::from(n) << 64).to_string();
            let (kind, at, length) = (Kind::Said, n * 100, 99);
            let new = NewPlace { id: Some(&id), kind, continues: false, at, length, position: n, mended: None };
            index.add(new, &Parent::Previous);
        }
        index
    }

    #[test]
    fn an_entry_costs_at_most_120_bytes_of_memory() {
        for entries in [5_000, 57_345] {
            let mut index = filled(entries);
            // A place on the branch, which may have doubled its room, beside it.
            let per_entry = |index: &Index| size(index) as u64 / entries + 8;
            assert!(per_entry(&index) <= 120, "{entries}: {}", per_entry(&index));
            index.settle();
            assert!(per_entry(&index) <= 96, "{entries}: {}", per_entry(&index));
        }
    }

    #[test]
    fn a_place_is_as_small_as_the_index_promises() {
        assert_eq!(size_of::<Place>(), 32);
    }
}
