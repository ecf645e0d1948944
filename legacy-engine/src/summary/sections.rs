//! The parts of a summary: reading them back from an earlier one, and writing them within a limit.
//!
//! Decision: a summary is headings with one-line items, so that the next one can carry items over whole instead of
//! summarising a summary. Text that has no such form (a model wrote it) is carried as lines of their own.

use std::collections::HashSet;

use super::text::{key, shorten, unmarked};

/// A part of a summary, in the order in which the parts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// What the session is for.
    Goal,
    /// What was chosen or found out.
    Decisions,
    /// What is still to be done.
    Todos,
    /// What must or must not be.
    Rules,
    /// What the person asked and nobody answered yet.
    Pending,
    /// Strings that must be kept to the letter.
    Identifiers,
    /// What was asked and what came of it, turn by turn.
    Progress,
    /// Calls that changed something outside files.
    Actions,
    /// What failed and was not done since.
    Failures,
    /// Files written.
    Modified,
    /// Files read.
    Read,
    /// Lines of an earlier summary that belong to no other part.
    Earlier,
}

impl Section {
    /// All parts, in the order in which they are written.
    pub(super) const ALL: [Section; 12] = [
        Section::Goal,
        Section::Decisions,
        Section::Todos,
        Section::Rules,
        Section::Pending,
        Section::Identifiers,
        Section::Progress,
        Section::Actions,
        Section::Failures,
        Section::Modified,
        Section::Read,
        Section::Earlier,
    ];

    /// Its heading; the five of contract §7.7 as they are spelled there.
    fn heading(self) -> &'static str {
        match self {
            Section::Goal => "## Goal",
            Section::Decisions => "## Decisions",
            Section::Todos => "## Open TODOs",
            Section::Rules => "## Constraints/Rules",
            Section::Pending => "## Pending user asks",
            Section::Identifiers => "## Exact identifiers",
            Section::Progress => "## Progress",
            Section::Actions => "## Actions taken",
            Section::Failures => "## Failures",
            Section::Modified => "## Files modified",
            Section::Read => "## Files read",
            Section::Earlier => "## Earlier summary",
        }
    }

    /// Whether the heading stands even over nothing (contract §7.7).
    fn is_required(self) -> bool {
        matches!(self, Section::Decisions | Section::Todos | Section::Rules | Section::Pending | Section::Identifiers)
    }

    /// Share of the whole, in percent, that the part may take before what others leave is given out.
    fn share(self) -> usize {
        match self {
            Section::Goal => 8,
            Section::Decisions => 10,
            Section::Todos => 8,
            Section::Rules => 12,
            Section::Pending => 12,
            Section::Identifiers => 8,
            Section::Progress => 16,
            Section::Actions => 12,
            Section::Failures => 5,
            Section::Modified => 5,
            Section::Read => 2,
            Section::Earlier => 2,
        }
    }

    /// Who gets first what others leave: what cannot be found out again comes first.
    fn by_need() -> [Section; 12] {
        let [goal, decisions, todos, rules, pending, identifiers, progress, actions, failures, modified, read, earlier] =
            Section::ALL;
        [pending, goal, rules, progress, decisions, todos, earlier, actions, failures, modified, identifiers, read]
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The items of a summary, oldest first in each part.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    lists: [Vec<String>; 12],
}

impl Items {
    /// The items of a part.
    pub(super) fn of(&self, section: Section) -> &[String] {
        &self.lists[section.index()]
    }

    /// Adds an item; the same item said again moves to the end.
    pub(super) fn push(&mut self, section: Section, item: String) {
        if !item.trim().is_empty() {
            self.lists[section.index()].push(item);
        }
    }

    /// Takes all items of a part out.
    pub(super) fn take(&mut self, section: Section) -> Vec<String> {
        std::mem::take(&mut self.lists[section.index()])
    }

    /// Puts `earlier` before the items there are.
    pub(super) fn prepend(&mut self, section: Section, mut earlier: Vec<String>) {
        earlier.append(&mut self.lists[section.index()]);
        self.lists[section.index()] = earlier;
    }

    /// Leaves out all but the newest of equal items, and all but the `most` newest.
    pub(super) fn tidy(&mut self, section: Section, most: usize) {
        let list = &mut self.lists[section.index()];
        let exact = matches!(section, Section::Identifiers | Section::Modified | Section::Read);
        let mut seen = HashSet::new();
        let mut kept: Vec<String> = Vec::with_capacity(list.len().min(most));
        for item in list.drain(..).rev() {
            let key = if exact { item.clone() } else { key(&item) };
            if kept.len() < most && seen.insert(key) {
                kept.push(item);
            }
        }
        kept.reverse();
        *list = kept;
    }

    /// Whether no part has an item.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Reads a summary back.
    pub(super) fn parse(summary: &str) -> Items {
        let mut items = Items::default();
        let mut section = Section::Earlier;
        for line in summary.lines() {
            let line = line.trim_end();
            if let Some(known) = Section::ALL.into_iter().find(|s| line.eq_ignore_ascii_case(s.heading())) {
                section = known;
            } else if line.starts_with('#') {
                section = Section::Earlier;
                items.push(section, unmarked(line).to_owned());
            } else if let Some(item) = line.strip_prefix("- ").filter(|item| *item != NONE) {
                items.push(section, item.to_owned());
            } else if line.starts_with(' ') && !items.lists[section.index()].is_empty() {
                if let Some(last) = items.lists[section.index()].last_mut() {
                    last.push('\n');
                    last.push_str(line.trim_start());
                }
            } else if line != format!("- {NONE}") {
                items.push(section, unmarked(line).to_owned());
            }
        }
        items
    }

    /// The summary, at most `max` characters. Each part keeps its newest items; goals keep the oldest.
    pub(super) fn write(&self, max: usize) -> String {
        // Under this an agent is better served by items than by empty headings.
        let bare = max < 1_200;
        let mut left = max;
        for section in Section::ALL {
            if !self.of(section).is_empty() || (section.is_required() && !bare) {
                let none = if self.of(section).is_empty() { NONE.len() + 3 } else { 0 };
                left = left.saturating_sub(section.heading().len() + 2 + none);
            }
        }
        let mut kept: [Vec<String>; 12] = Default::default();
        for pass in 0..2 {
            for section in Section::by_need() {
                let room = if pass == 0 { (max * section.share() / 100).min(left) } else { left };
                left -= self.keep(section, &mut kept[section.index()], room);
            }
        }
        let mut out = String::new();
        for section in Section::ALL {
            let kept = &mut kept[section.index()];
            let none = self.of(section).is_empty() && section.is_required() && !bare;
            if kept.is_empty() && !none {
                continue;
            }
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(section.heading());
            out.push('\n');
            if section != Section::Goal {
                kept.reverse();
            }
            for item in kept.iter().map(String::as_str).chain(none.then_some(NONE)) {
                out.push_str(&format!("- {}\n", item.replace('\n', "\n  ")));
            }
        }
        let text = out.trim_end();
        if text.chars().count() <= max { text.to_owned() } else { shorten(text, max) }
    }

    /// Adds items to `kept` while they fit into `room`; returns what they take.
    fn keep(&self, section: Section, kept: &mut Vec<String>, room: usize) -> usize {
        let list = self.of(section);
        let mut used = 0;
        while let Some(n) = list.len().checked_sub(kept.len() + 1) {
            let item = if section == Section::Goal { &list[kept.len()] } else { &list[n] };
            let cost = |item: &str| item.chars().count() + 3 + 2 * item.matches('\n').count();
            if used + cost(item) <= room {
                used += cost(item);
                kept.push(item.clone());
                continue;
            }
            // A list of paths or ids gains nothing from a part of one.
            let prose = !matches!(section, Section::Identifiers | Section::Modified | Section::Read);
            let worth = kept.is_empty() && prose && room > 40;
            let short = if worth { shorten(item, room.saturating_sub(3)) } else { String::new() };
            if !short.is_empty() {
                used += cost(&short);
                kept.push(short);
            }
            break;
        }
        used
    }
}

/// What stands under a required heading without items.
const NONE: &str = "(none)";
