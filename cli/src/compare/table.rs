//! The comparison as text: for each budget one table of all sessions together, then one of each.

use std::io;

use context_engine_runtime::compare::{Cell, CompareReport, Measures, Miss};

use super::verdict;
use crate::output::{duration, line, number};

/// Sessions beyond this many are not shown one by one: nobody reads two hundred tables.
const SHOWN_SESSIONS: usize = 20;

const HEADER: [&str; 10] = [
    "engine",
    "tokens/call p50",
    "p95",
    "total",
    "cost",
    "cached",
    "prefix",
    "recall (95 % interval), hits/cases",
    "compactions",
    "assemble",
];

const READING: &str = "\
Recall first: of what the replies relied on beyond a plain newest-first window of the same budget, how much was there. Higher
is better; where intervals overlap widely, these sessions do not tell the engines apart. Then the cost: `cached` is what counts
where the provider caches prompts, and a high prefix is what makes it low.";

/// Prints the report.
pub(crate) fn print(report: &CompareReport, misses: bool) -> io::Result<()> {
    for text in READING.lines() {
        line(text)?;
    }
    for engine in &report.engines {
        if let Some(why) = &engine.unavailable {
            line(format_args!("{}: legacy answered, because {why}", engine.id))?;
        }
    }
    let calls: usize = report.sessions.iter().map(|session| session.calls).sum();
    for budget in &report.budgets {
        line("")?;
        line(format_args!(
            "Budget {} tokens, {} sessions, {} calls",
            number(*budget),
            number(report.sessions.len() as u64),
            number(calls as u64)
        ))?;
        let pooled = report.pooled.iter().filter(|pooled| pooled.budget == *budget);
        table(pooled.map(|pooled| row(&report.engines[pooled.engine].id, &pooled.measures)))?;
        for pooled in report.pooled.iter().filter(|pooled| pooled.budget == *budget) {
            remarks(&report.engines[pooled.engine].id, &pooled.measures)?;
        }
        let verdict = verdict::decide(report, *budget);
        line(format_args!("  => {}", verdict.headline(report)))?;
        for sentence in verdict.because.iter().take(1).chain(&verdict.cautions) {
            line(format_args!("     {sentence}"))?;
        }
    }
    per_session(report)?;
    errors(report)?;
    if misses {
        list_misses(report)?;
    }
    Ok(())
}

fn per_session(report: &CompareReport) -> io::Result<()> {
    let sessions = report.sessions.len();
    if sessions < 2 {
        return Ok(());
    }
    for (at, session) in report.sessions.iter().enumerate().take(SHOWN_SESSIONS) {
        line("")?;
        line(format_args!(
            "{}: {}, {} turns, {} calls, {} tokens in all",
            session.file,
            session.id,
            number(session.turns as u64),
            number(session.calls as u64),
            number(session.tokens)
        ))?;
        let name = |cell: &Cell| format!("{} {}", report.engines[cell.engine].id, short(cell.budget));
        let mut cells: Vec<&Cell> = report.cells.iter().filter(|cell| cell.session == at).collect();
        cells.sort_by_key(|cell| (cell.budget, cell.engine));
        table(cells.into_iter().map(|cell| row(&name(cell), &cell.measures)))?;
    }
    if sessions > SHOWN_SESSIONS {
        line("")?;
        line(format_args!("{} more sessions; --json has them all", number((sessions - SHOWN_SESSIONS) as u64)))?;
    }
    Ok(())
}

fn errors(report: &CompareReport) -> io::Result<()> {
    let name = |cell: &Cell| {
        let (session, engine) = (&report.sessions[cell.session], &report.engines[cell.engine]);
        format!("{}, {} {}", session.id, engine.id, short(cell.budget))
    };
    let failed: Vec<(String, &String)> =
        report.cells.iter().filter_map(|cell| Some((name(cell), cell.error.as_ref()?))).collect();
    if !failed.is_empty() {
        line("")?;
        line("Not played to the end:")?;
    }
    failed.iter().try_for_each(|(name, error)| line(format_args!("  {name}: {error}")))
}

fn list_misses(report: &CompareReport) -> io::Result<()> {
    for cell in report.cells.iter().filter(|cell| !cell.misses.is_empty()) {
        let (session, engine) = (&report.sessions[cell.session], &report.engines[cell.engine]);
        line("")?;
        line(format_args!(
            "Missing: {}, {} {}: {} of {} things",
            session.id,
            engine.id,
            short(cell.budget),
            number(cell.misses.len() as u64),
            number(cell.measures.recall.cases as u64)
        ))?;
        for Miss { turn, call, thing, kind, said_in, said_turn, line: said } in &cell.misses {
            line(format_args!("  turn {turn}, call {call}: {kind} {thing}"))?;
            line(format_args!("      said in turn {said_turn}, entry {said_in}: {said}"))?;
        }
    }
    Ok(())
}

fn row(name: &str, measures: &Measures) -> [String; 10] {
    let Measures { sent, cost, recall, .. } = measures;
    let interval = match (recall.share, recall.low, recall.high) {
        (Some(share), Some(low), Some(high)) => format!(
            "{} ({} to {}), {}/{}",
            percent(share),
            percent(low),
            percent(high),
            number(recall.hits as u64),
            number(recall.cases as u64)
        ),
        _ => "no cases".to_owned(),
    };
    let compactions = match measures.compactions {
        0 => "0".to_owned(),
        some => format!("{} ({} tokens)", number(some as u64), number(measures.summary_tokens)),
    };
    [
        name.to_owned(),
        number(sent.p50),
        number(sent.p95),
        number(sent.total),
        dollars(cost.without_cache),
        dollars(cost.with_cache),
        measures.prefix_stability.map_or("-".to_owned(), percent),
        interval,
        compactions,
        duration(measures.assemble_us.p50),
    ]
}

/// What of an engine has no column because it is mostly nothing.
fn remarks(engine: &str, measures: &Measures) -> io::Result<()> {
    if measures.fallbacks > 0 {
        let (fallbacks, calls) = (number(measures.fallbacks as u64), number(measures.calls as u64));
        line(format_args!("  {engine}: {fallbacks} of {calls} prompts were made by another engine"))?;
    }
    for (why, count) in &measures.reasons {
        line(format_args!("    {} calls: {why}", number(*count as u64)))?;
    }
    if measures.fitted > 0 {
        line(format_args!(
            "  {engine}: {} prompts were over budget, and the host cut them",
            number(measures.fitted as u64)
        ))?;
    }
    Ok(())
}

/// Rows under the header: the first column and the text ones to the left, numbers to the right.
fn table(rows: impl Iterator<Item = [String; 10]>) -> io::Result<()> {
    let header = HEADER.map(str::to_owned);
    let rows: Vec<[String; 10]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, width))| match column {
            0 | 7 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        line(format_args!("  {}", cells.collect::<Vec<_>>().join("  ")))?;
    }
    Ok(())
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    // What is not quite nothing or everything is not shown as such.
    match percent {
        p if p > 0.0 && p < 9.95 || p > 99.0 && p < 100.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

fn dollars(value: f64) -> String {
    if value >= 100.0 { format!("${}", number(value.round() as u64)) } else { format!("${value:.2}") }
}

/// A budget as it is asked for.
fn short(budget: u64) -> String {
    if budget.is_multiple_of(1_000) { format!("{}k", budget / 1_000) } else { budget.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_dollars_are_short_and_do_not_hide_what_is_left() {
        for (share, text) in [(0.0, "0 %"), (0.004, "0.4 %"), (0.5, "50 %"), (0.997, "99.7 %"), (1.0, "100 %")] {
            assert_eq!(percent(share), text);
        }
        assert_eq!([dollars(0.004), dollars(12.345), dollars(1234.5)], ["$0.00", "$12.35", "$1,235"].map(String::from));
        assert_eq!([short(8_000), short(1_500)], ["8k", "1500"].map(String::from));
    }
}
