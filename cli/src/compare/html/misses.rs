//! The misses: what was relied on and was not in the prompt, as data the page's script lists.
//!
//! Decision: data, not markup. Thousands of misses are a megabyte of rows nobody opens; the script makes the rows that are
//! looked at. Texts stand once and are referred to by number, because engines miss the same things at every budget. What
//! does not fit is left out evenly and counted, so that a report stays a file that can be mailed.

use std::collections::HashMap;

use context_engine_runtime::compare::{Cell, CompareReport, Miss};
use serde::Serialize;

use super::curves::drawn;
use super::sessions::{name, session_options};
use super::text::{budget, script_json, shortened, text, visible};
use crate::compare::verdict::label;
use crate::output::number;

/// Most misses of one cell.
const MOST: usize = 2_000;
/// Most bytes of all of them; the caps are lowered until they fit.
const MOST_BYTES: usize = 3_200_000;
/// Characters of a line that are shown.
const LINE: usize = 240;

/// What the script reads.
#[derive(Serialize)]
struct Data {
    engines: Vec<String>,
    budgets: Vec<String>,
    sessions: Vec<String>,
    /// Every text of the rows, once.
    texts: Vec<String>,
    groups: Vec<Group>,
}

/// The misses of one cell.
#[derive(Serialize)]
struct Group {
    engine: usize,
    budget: usize,
    session: usize,
    /// With those that are left out.
    total: usize,
    /// Turn, call, thing, kind, entry, its turn, line; texts by number.
    rows: Vec<[usize; 7]>,
}

#[derive(Default)]
struct Texts {
    numbers: HashMap<String, usize>,
    all: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: String) -> usize {
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            self.all.len() - 1
        })
    }
}

/// The section: filters, an empty list, and the data.
pub(super) fn section(report: &CompareReport) -> String {
    if cells(report).next().is_none() {
        return "<p class=\"empty\">No misses: everything the replies rely on from further back was in the prompts.\
                </p>"
            .to_owned();
    }
    let (json, cap) = embedded(report, MOST_BYTES);
    let left_out: usize = cells(report).map(|cell| cell.misses.len().saturating_sub(cap)).sum();
    let left_out = if left_out == 0 {
        String::new()
    } else {
        format!(
            " To keep this file small, only the first {} misses of each session, engine and budget are in it; {} more were \
             left out. <code>--misses</code> prints all.",
            number(cap as u64),
            number(left_out as u64)
        )
    };
    let choice = |id: &str, title: &str, options: &str| {
        format!("<label>{title}<select id=\"{id}\"><option value=\"\">all</option>{options}</select></label>")
    };
    let mut sessions: Vec<_> = cells(report).map(|cell| cell.session).collect();
    sessions.sort_unstable();
    sessions.dedup();
    let engines: String = drawn(report).into_iter().map(|e| option(e, &shortened(label(report, e), 60))).collect();
    let budgets: String = report.budgets.iter().enumerate().map(|(i, b)| option(i, &budget(*b))).collect();
    format!(
        "<p>Each is something a recorded reply relies on that was said too long ago for a plain window, and that the \
         engine's prompt did not have.{left_out}</p><noscript><p class=\"empty\">Listing the misses needs JavaScript. The \
         counts are in the tables above.</p></noscript><form id=\"filters\" class=\"filters\" role=\"search\" hidden>\
         <label class=\"wide\">Search<input id=\"search\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\" \
         placeholder=\"a thing, or words of the line it was said in\"></label>{}{}{}{}</form>\
         <p id=\"found\" role=\"status\"></p>\
         <div id=\"groups\"></div><script type=\"application/json\" id=\"misses-data\">{json}</script>",
        choice("by-engine", "Engine", &engines),
        choice("by-budget", "Budget", &budgets),
        choice("by-session", "Session", &session_options(report, &sessions, None)),
        choice("by-kind", "Kind", &kinds(report)),
    )
}

fn option(value: usize, name: &str) -> String {
    format!("<option value=\"{value}\">{}</option>", text(name))
}

/// The cells that missed something; an engine that could not be opened has the misses of `legacy`.
fn cells(report: &CompareReport) -> impl Iterator<Item = &Cell> {
    let engines = drawn(report);
    report.cells.iter().filter(move |cell| !cell.misses.is_empty() && engines.contains(&cell.engine))
}

fn kinds(report: &CompareReport) -> String {
    let mut kinds: Vec<&str> = cells(report).flat_map(|c| &c.misses).map(|miss| miss.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.iter().map(|kind| format!("<option value=\"{0}\">{0}</option>", text(kind))).collect()
}

/// The data in at most about `most` bytes, and how many misses of a cell are in it.
fn embedded(report: &CompareReport, most: usize) -> (String, usize) {
    let mut cap = MOST;
    loop {
        let json = script_json(&data(report, cap));
        if json.len() <= most || cap <= 10 {
            return (json, cap);
        }
        // Texts that repeat do not shrink with the cap, so it is lowered a little further than in proportion.
        cap = (cap * most / json.len() * 9 / 10).clamp(10, cap - 1);
    }
}

fn data(report: &CompareReport, cap: usize) -> Data {
    let mut texts = Texts::default();
    let mut groups: Vec<_> = cells(report)
        .map(|cell| Group {
            engine: cell.engine,
            budget: report.budgets.iter().position(|b| *b == cell.budget).unwrap_or(0),
            session: cell.session,
            total: cell.misses.len(),
            rows: cell.misses.iter().take(cap).map(|miss| row(miss, &mut texts)).collect(),
        })
        .collect();
    groups.sort_by_key(|group| (group.engine, group.budget, group.session));
    Data {
        engines: (0..report.engines.len()).map(|e| visible(label(report, e))).collect(),
        budgets: report.budgets.iter().map(|b| budget(*b)).collect(),
        sessions: (0..report.sessions.len()).map(|session| visible(&name(report, session))).collect(),
        texts: texts.all,
        groups,
    }
}

fn row(miss: &Miss, texts: &mut Texts) -> [usize; 7] {
    let mut text = |raw: &str, limit| texts.number(visible(&shortened(raw, limit)));
    let thing = text(&miss.thing, LINE);
    let kind = text(&miss.kind, 40);
    let said_in = text(&miss.said_in, 80);
    let line = texts.number(visible(&around(&miss.line, &miss.thing)));
    [miss.turn, miss.call, thing, kind, said_in, miss.said_turn, line]
}

/// The part of a line that has the thing in it.
fn around(line: &str, thing: &str) -> String {
    let line = line.trim();
    let before = line.find(thing).map_or(0, |at| line[..at].chars().count());
    let from = if line.chars().count() > LINE { before.saturating_sub(LINE / 3) } else { 0 };
    if from == 0 {
        return shortened(line, LINE);
    }
    format!("…{}", shortened(&line.chars().skip(from).collect::<String>(), LINE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::html::sample;

    #[test]
    fn a_long_line_is_cut_around_the_thing() {
        let line = format!("{} src/main.rs {}", "ä ".repeat(400), "b ".repeat(400));
        let shown = around(&line, "src/main.rs");
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("src/main.rs"), "{shown}");
        assert_eq!(shown.chars().count(), LINE);
        assert_eq!(around("  short src/main.rs ", "src/main.rs"), "short src/main.rs");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let report = sample::report(sample::Size { misses: 2_400, ..sample::SMALL });
        assert!(section(&report).contains("only the first 2,000 misses"));
        let (json, cap) = embedded(&report, 60_000);
        assert!(json.len() <= 60_000 && (10..2_000).contains(&cap), "{} bytes, {cap}", json.len());
        let data: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(data["groups"][0]["total"], 2_400);
        assert_eq!(data["groups"][0]["rows"].as_array().map(Vec::len), Some(cap));
    }
}
