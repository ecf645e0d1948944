//! `context-engine sessions show`

use std::collections::HashMap;
use std::path::Path;

use context_engine_interface::BlockKind;
use context_engine_transcript::store::{SessionSummary, summary};
use context_engine_transcript::{Entry, HistoryOptions, Imported, Message, RecordedSession, TokenCounter};
use serde_json::{Value, json};

use super::args::ShowArgs;
use super::facts::{open_calls, summary_json, telling};
use super::rows::{self, Place};
use super::{open, outcome, warn};
use crate::Outcome;
use crate::error::CliError;
use crate::output::{count, json_line, line, minute, number, path_json, size, text};

pub(crate) fn run(args: &ShowArgs) -> Result<Outcome, CliError> {
    let path = args.folder.session(&args.session)?;
    let (mut session, imported) = open(&path)?;
    let counter = TokenCounter::for_model(session.model.as_deref());
    if args.entry.is_none() {
        session.count_tokens(&counter);
    }
    let shown = Shown { ids: telling(session.entries.iter().map(|entry| entry.id.as_str())), session: &session };
    if let Some(id) = &args.entry {
        let entry = shown.find(&path, id)?;
        match args.json {
            true => json_line(&serde_json::from_str::<Value>(&entry.to_openclaw())?)?,
            false => shown.entry(entry, &counter)?,
        }
        return Ok(outcome(&imported));
    }
    let summary = summary(&path)?;
    if summary.not_a_session.is_some() {
        warn(&path, &imported);
    }
    let rows = if args.context {
        shown.context()
    } else if args.all {
        shown.tree()
    } else {
        shown.branch()
    };
    let tokens: u64 = rows.iter().filter_map(|(entry, _)| rows::tokens(entry)).sum();
    if args.json {
        let entries: Vec<Value> = rows.iter().map(|(entry, place)| rows::json(entry, place)).collect();
        json_line(&json!({
            "session": session.id,
            "path": path_json(&path),
            "format": imported.format.to_string(),
            "summary": if summary.not_a_session.is_none() { summary_json(&summary) } else { Value::Null },
            "system": session.system,
            "entries": entries,
            "tokens": tokens,
        }))?;
    } else {
        shown.facts(&path, &imported, &summary)?;
        line("")?;
        for (entry, place) in &rows {
            line(rows::line(entry, place, shown.ids, args.all))?;
        }
        if !rows.is_empty() {
            line("")?;
        }
        let what = if args.context {
            "in context"
        } else if args.all {
            "on all branches"
        } else {
            "on the active branch"
        };
        line(format_args!("{} {what}, {}", count(rows.len() as u64, "entry"), count(tokens, "token")))?;
    }
    // A damage that only a session file can have counts, too.
    let damaged = summary.not_a_session.is_none() && summary.findings.is_damaged();
    Ok(if damaged { Outcome::Findings } else { outcome(&imported) })
}

struct Shown<'a> {
    session: &'a RecordedSession,
    /// Characters of an entry's id that are shown.
    ids: usize,
}

type Row<'a> = (&'a Entry, Place);

impl<'a> Shown<'a> {
    fn facts(&self, path: &Path, imported: &Imported, summary: &SessionSummary) -> Result<(), CliError> {
        let session = self.session;
        let fact = |name: &str, value: &str| match value {
            "" => Ok(()),
            value => line(format_args!("{name:<9} {value}")),
        };
        fact("session", &session.id)?;
        fact("file", &format!("{} ({}, {})", path.display(), size(summary.bytes), imported.format))?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        fact("name", &text(&summary.name))?;
        fact("model", &text(&session.model))?;
        fact("folder", &text(&session.cwd))?;
        if let Some(system) = &session.system {
            fact("system", &format!("a prompt of {}", count(system.chars().count() as u64, "character")))?;
        }
        let times = || session.entries.iter().filter_map(rows::time);
        let (first, last) = (minute(times().min()), minute(times().max()));
        fact("time", &if first == last { first } else { format!("{first} to {last} (UTC)") })?;
        let kinds = session.counts.messages.iter().map(|(role, n)| format!("{} {role}", number(*n)));
        fact("messages", &kinds.collect::<Vec<_>>().join(", "))?;
        if summary.not_a_session.is_some() {
            return Ok(());
        }
        fact("tree", &format!("{}, {}", count(summary.branches, "branch"), count(summary.compactions, "compaction")))?;
        if let Some(owner) = &summary.owner {
            fact("in use", &format!("by {owner}"))?;
        }
        for told in summary.findings.told() {
            fact("damaged", &told)?;
        }
        if summary.findings.is_damaged() {
            fact("", "")?;
            fact("to do", "`context-engine sessions repair` mends it")?;
        }
        fact("open", &open_calls(summary.findings.unanswered_calls).unwrap_or_default())?;
        Ok(())
    }

    fn branch(&self) -> Vec<Row<'a>> {
        let numbered = (1..).zip(self.session.active_branch());
        numbered.map(|(number, entry)| (entry, Place { number, depth: 0, active: true })).collect()
    }

    /// The entries whose messages a model would be sent.
    fn context(&self) -> Vec<Row<'a>> {
        let by_id: HashMap<&str, &Entry> =
            self.session.active_branch().into_iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let history = self.session.history(HistoryOptions { honor_compactions: true });
        let sent = history.messages.iter().filter_map(|message| by_id.get(message.id.as_str()).copied());
        (1..).zip(sent).map(|(number, entry)| (entry, Place { number, depth: 0, active: true })).collect()
    }

    /// All entries, a branch that was left directly behind the entry it hangs on, and deeper.
    fn tree(&self) -> Vec<Row<'a>> {
        let entries = &self.session.entries;
        let places: HashMap<&str, usize> =
            entries.iter().enumerate().map(|(at, entry)| (entry.id.as_str(), at)).collect();
        let active: Vec<usize> =
            self.session.active_branch().iter().filter_map(|entry| places.get(entry.id.as_str()).copied()).collect();
        let mut on_branch = vec![false; entries.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); entries.len()];
        let mut roots: Vec<usize> = Vec::new();
        active.iter().for_each(|&at| on_branch[at] = true);
        // What hangs on nothing that is there hangs on the entry before, as a load has it.
        for (at, entry) in entries.iter().enumerate().filter(|(at, _)| !on_branch[*at]) {
            let parent = entry.parent_id.as_deref();
            match parent.and_then(|parent| places.get(parent).copied().filter(|&up| up != at).or(at.checked_sub(1))) {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let mut next: std::collections::VecDeque<usize> = active.into();
        waiting.extend(roots.into_iter().rev().map(|at| (at, 1)));
        let mut shown = vec![false; entries.len()];
        let mut rows: Vec<Row<'a>> = Vec::new();
        while let Some((at, depth)) = waiting.pop().or_else(|| Some((next.pop_front()?, 0))) {
            if std::mem::replace(&mut shown[at], true) {
                continue;
            }
            rows.push((&entries[at], Place { number: rows.len() + 1, depth, active: on_branch[at] }));
            // The newest goes on at its depth, what was left earlier comes before it.
            let last = if depth == 0 { usize::MAX } else { children[at].len().wrapping_sub(1) };
            let below = children[at].iter().enumerate().rev();
            waiting.extend(below.map(|(nth, &child)| (child, if nth == last { depth } else { depth + 1 })));
        }
        // Links that run in a circle are reached from nowhere.
        for (at, entry) in entries.iter().enumerate().filter(|(at, _)| !shown[*at]) {
            rows.push((entry, Place { number: rows.len() + 1, depth: 1, active: on_branch[at] }));
        }
        rows
    }

    fn find(&self, path: &Path, id: &str) -> Result<&'a Entry, CliError> {
        let entries = &self.session.entries;
        if let Some(entry) = entries.iter().find(|entry| entry.id == id) {
            return Ok(entry);
        }
        let begun: Vec<&Entry> = entries.iter().filter(|entry| !id.is_empty() && entry.id.starts_with(id)).collect();
        match begun[..] {
            [entry] => Ok(entry),
            [] => Err(CliError::NoEntry { path: path.to_owned(), id: id.to_owned(), found: "none".to_owned() }),
            _ => {
                let found = begun.iter().take(8).map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(", ");
                Err(CliError::NoEntry { path: path.to_owned(), id: id.to_owned(), found })
            }
        }
    }

    fn entry(&self, entry: &Entry, counter: &TokenCounter) -> Result<(), CliError> {
        let branch = self.session.active_branch();
        let fact = |name: &str, value: &str| line(format_args!("{name:<9} {value}"));
        fact("entry", &entry.id)?;
        fact("parent", entry.parent_id.as_deref().unwrap_or("none"))?;
        let (kind, label) = (entry.kind(), rows::label(entry));
        fact("kind", &if kind == label { label } else { format!("{kind}, {label}") })?;
        fact("time", &minute(rows::time(entry)))?;
        if let Some(message) = entry.message().or_else(|| entry.summary()) {
            fact("tokens", &number(counter.message(message)))?;
        }
        match branch.iter().position(|on_branch| on_branch.id == entry.id) {
            Some(at) => fact(
                "place",
                &format!("{} of {} on the active branch", number(at as u64 + 1), number(branch.len() as u64)),
            )?,
            None => fact("place", "on a branch that was left")?,
        }
        let message = entry.message().filter(|message| !message.blocks.is_empty());
        match message {
            Some(message) => blocks(message)?,
            // Whatever is not said in blocks is all in its members.
            None => pretty("", &entry.to_openclaw())?,
        }
        Ok(())
    }
}

fn blocks(message: &Message) -> Result<(), CliError> {
    let result = match message.tool_call_id.as_str() {
        "" => String::new(),
        id => format!(" of {} ({id})", message.tool_name),
    };
    for block in &message.blocks {
        match block.kind {
            BlockKind::TEXT => told(&format!("text{result}"), &block.text)?,
            BlockKind::THINKING => told("thinking", &block.text)?,
            BlockKind::TOOL_CALL => pretty(&format!("call of {} ({})", block.name, block.id), &block.text)?,
            BlockKind::IMAGE => {
                let stored = size(message.raw(block).len() as u64);
                told(&format!("image{result}"), &format!("{}, {stored} as stored", block.name))?;
            }
            _ => pretty("other block", message.raw(block))?,
        }
    }
    Ok(())
}

fn told(what: &str, said: &str) -> Result<(), CliError> {
    line("")?;
    if !what.is_empty() {
        line(format_args!("--- {what} ---"))?;
    }
    Ok(text(&format!("{}\n", said.trim_end_matches('\n')))?)
}

/// JSON on many lines; as it is when it is none.
fn pretty(what: &str, json: &str) -> Result<(), CliError> {
    let pretty = serde_json::from_str::<Value>(json).and_then(|value| serde_json::to_string_pretty(&value));
    told(what, &pretty.unwrap_or_else(|_| json.to_owned()))
}

#[cfg(test)]
mod tests {
    use context_engine_transcript::load_bytes;

    use super::*;

    fn entry(id: &str, parent: &str) -> String {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"user","content":"{id}"}}}}"#
        )
    }

    #[test]
    fn branches_that_were_left_stand_behind_the_entry_they_hang_on() {
        let tree = |entries: &[(&str, &str)]| {
            let lines: Vec<String> = entries.iter().map(|(id, parent)| entry(id, parent)).collect();
            let session = load_bytes("x", lines.join("\n").as_bytes()).expect("a session").sessions.remove(0);
            let shown = Shown { session: &session, ids: 8 };
            let row = |(entry, place): &Row<'_>| {
                format!("{}{}{}", entry.id, if place.active { "*" } else { "" }, place.depth)
            };
            shown.tree().iter().map(row).collect::<Vec<_>>().join(" ")
        };
        for (entries, rows) in [
            (&[("a", ""), ("b", "a")][..], "a*0 b*0"),
            (&[("a", ""), ("b", "a"), ("c", "b"), ("d", "a")], "a*0 b1 c1 d*0"),
            (&[("a", ""), ("b", "a"), ("c", "b"), ("d", "b"), ("e", "a")], "a*0 b1 c2 d1 e*0"),
            (&[("a", ""), ("b", "a"), ("c", "a"), ("d", "a")], "a*0 b1 c1 d*0"),
            (&[("a", "c"), ("b", "a"), ("c", "b"), ("r", "a")], "b*0 c*0 a*0 r*0"),
            (&[("x", "y"), ("y", "x"), ("a", "a")], "x*0 y*0 a*0"),
        ] {
            assert_eq!(tree(entries), rows, "{entries:?}");
        }
    }
}
