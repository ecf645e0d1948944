//! The charts: recall over budget, and for each session tokens and prefix over its turns.
//!
//! Decision: one small chart per budget, side by side, instead of one with a switch: the comparison that counts is the one
//! between budgets. Where the history outgrows the frame its line ends at the edge, so that the engines' lines stay apart.

use context_engine_runtime::compare::{Cell, CompareReport};

use super::chart::{self, Frame};
use super::text::{budget, count, interval, percent, tokens};
use crate::compare::verdict::{label, pooled};
use crate::output::number;

/// Points of a line of means.
const MEANS: usize = 60;

/// Recall of all engines over the budgets, with their intervals.
pub(super) fn recall(report: &CompareReport) -> String {
    let steps = report.budgets.len().max(1) as f64;
    let drawn = drawn(report);
    let engines = drawn.len().max(1) as f64;
    let center = |i: usize| (i as f64 + 0.5) / steps;
    let x_ticks: Vec<_> = report.budgets.iter().enumerate().map(|(i, b)| (center(i), budget(*b))).collect();
    // From zero to the highest bar: engines that recall little still have to be told apart.
    let reach = report.pooled.iter().filter_map(|pooled| pooled.measures.recall.high).fold(0.0, f64::max);
    let y_max = (reach * 1.1).clamp(0.1, 1.0);
    let (mut lines, mut desc) = (String::new(), Vec::new());
    for (place, &engine) in drawn.iter().enumerate() {
        // Side by side, so that no error bar hides another.
        let beside = (place as f64 - (engines - 1.0) / 2.0) * (0.5 / engines / steps).min(0.04);
        let (mut points, mut bars, mut said) = (Vec::new(), String::new(), Vec::new());
        for (i, &tokens) in report.budgets.iter().enumerate() {
            let Some((share, recall)) = pooled(report, engine, tokens).and_then(|m| Some((m.recall.share?, m.recall)))
            else {
                continue;
            };
            let x = chart::x_at(center(i) + beside);
            points.push((x, chart::y_at(share, y_max)));
            let mut range = String::new();
            if let (Some(low), Some(high)) = (recall.low, recall.high) {
                let (low_y, high_y) = (chart::y_at(low, y_max), chart::y_at(high, y_max));
                bars += &format!(
                    "<path class=\"bar\" d=\"M{x:.1} {low_y:.1}V{high_y:.1}m-4 0h8M{:.1} {low_y:.1}h8\"/>",
                    x - 4.0
                );
                range = format!(" ({}, {})", interval(low, high), count(recall.cases, "case"));
            }
            said.push(format!("{} {}{range}", budget(tokens), percent(share)));
        }
        let marks: String = points.iter().map(|(x, y)| chart::marker(engine, *x, *y)).collect();
        lines += &format!(
            "<g class=\"s{}\"><path class=\"line\" d=\"{}\"/>{bars}{marks}</g>",
            engine % chart::STYLES,
            chart::path(&points)
        );
        let said = if said.is_empty() { "no cases".to_owned() } else { said.join(", ") };
        desc.push(format!("{}: {said}.", label(report, engine)));
    }
    chart::framed(
        &Frame {
            id: "recall",
            title: "Recall over budget",
            desc: &desc.join(" "),
            x_label: "budget (tokens a prompt may have)",
            y_label: "recall",
            x_ticks: &x_ticks,
            y_max,
            y_text: percent,
            unit: "none",
        },
        &lines,
    )
}

/// The engines that are drawn: one that could not be opened has the numbers of `legacy`.
pub(super) fn drawn(report: &CompareReport) -> Vec<usize> {
    let opened = |engine: &usize| report.engines.get(*engine).is_some_and(|facts| facts.unavailable.is_none());
    (0..report.engines.len()).filter(opened).collect()
}

/// Which line is which.
pub(super) fn legend(report: &CompareReport, history: bool) -> String {
    let names: Vec<_> = drawn(report).into_iter().map(|engine| (engine, label(report, engine))).collect();
    chart::legend(&names, history)
}

/// The cells of a session at a budget, in the order of the engines.
pub(super) fn cells(report: &CompareReport, session: usize, budget: u64) -> Vec<&Cell> {
    report.cells.iter().filter(|c| c.session == session && c.budget == budget).collect()
}

/// Tokens sent over the turns of a session; the history's tokens beside.
pub(super) fn sent(report: &CompareReport, session: usize, tokens_allowed: u64) -> String {
    let mut cells = cells(report, session, tokens_allowed);
    let drawn = drawn(report);
    cells.retain(|cell| drawn.contains(&cell.engine));
    let longest = cells.iter().max_by_key(|cell| cell.calls.len());
    let highest = cells.iter().flat_map(|cell| &cell.calls).map(|call| call.sent_tokens).max().unwrap_or(0);
    let history = longest.map_or(0, |cell| cell.calls.iter().map(|call| call.history_tokens).max().unwrap_or(0));
    // The history may be a hundred times the budget.
    let y_max = (highest as f64 * 1.15).max((history as f64 * 1.05).min(highest as f64 * 2.5)).max(1.0);
    let length = longest.map_or(0, |cell| cell.calls.len());
    let (mut lines, mut desc) = (String::new(), Vec::new());
    if let Some(cell) = longest {
        let all: Vec<_> =
            cell.calls.iter().enumerate().map(|(i, call)| (along(i, length), call.history_tokens as f64)).collect();
        let mut shown: Vec<_> = all.iter().take_while(|(_, value)| *value <= y_max).copied().collect();
        let left_frame = shown.len() < all.len();
        if let (true, Some(next)) = (left_frame, all.get(shown.len())) {
            shown.push((next.0, y_max));
        }
        let points: Vec<_> =
            chart::thinned(&shown).into_iter().map(|(x, y)| (chart::x_at(x), chart::y_at(y, y_max))).collect();
        lines += &format!("<path class=\"history\" d=\"{}\"/>", chart::path(&points));
        if left_frame && let Some((x, _)) = points.last() {
            // Above the frame, where no line is.
            lines += &format!(
                "<text class=\"note\" x=\"{:.1}\" y=\"13\" text-anchor=\"middle\">history: to {}</text>",
                x.clamp(90.0, 328.0),
                tokens(history)
            );
        }
        desc.push(format!("The whole history grows to {} tokens.", number(history)));
    }
    for cell in &cells {
        let points: Vec<_> =
            cell.calls.iter().enumerate().map(|(i, call)| (along(i, length), call.sent_tokens as f64)).collect();
        lines += &chart::line(cell.engine, &points, y_max);
        let m = &cell.measures;
        desc.push(format!(
            "{}: median {}, largest {}, {}{}.",
            label(report, cell.engine),
            number(m.sent.p50),
            number(m.sent.max),
            count(m.compactions, "compaction"),
            if m.fallbacks > 0 {
                format!(", {} answered by another engine", count(m.fallbacks, "call"))
            } else {
                String::new()
            }
        ));
    }
    let id = format!("sent-{session}-{tokens_allowed}");
    let title = format!("Tokens sent per call, budget {}", budget(tokens_allowed));
    over_turns(longest.copied(), &id, &title, &desc.join(" "), "tokens", y_max, &lines)
}

/// How much of each prompt is the start of the one before, over the turns of a session.
pub(super) fn prefix(report: &CompareReport, session: usize, tokens_allowed: u64) -> String {
    let mut cells = cells(report, session, tokens_allowed);
    let drawn = drawn(report);
    cells.retain(|cell| drawn.contains(&cell.engine));
    let longest = cells.iter().max_by_key(|cell| cell.calls.len());
    let length = longest.map_or(0, |cell| cell.calls.len());
    let group = length.div_ceil(MEANS).max(1);
    let (mut lines, mut desc) = (String::new(), Vec::new());
    for cell in &cells {
        let points: Vec<_> =
            cell.calls.iter().enumerate().filter_map(|(i, call)| Some((along(i, length), call.prefix?))).collect();
        lines += &chart::line(cell.engine, &means(&points, group), 1.0);
        let mean =
            cell.measures.prefix_stability.map_or("not measured".to_owned(), |mean| format!("mean {}", percent(mean)));
        desc.push(format!("{}: {mean}.", label(report, cell.engine)));
    }
    let id = format!("prefix-{session}-{tokens_allowed}");
    let mean = if group > 1 { format!(" (mean of {group} calls)") } else { String::new() };
    let title = format!("Prefix stability, budget {}{mean}", budget(tokens_allowed));
    over_turns(longest.copied(), &id, &title, &desc.join(" "), "percent", 1.0, &lines)
}

/// The means of groups of points: single calls fall to zero and back so often that a line of them is a wall.
fn means(points: &[(f64, f64)], group: usize) -> Vec<(f64, f64)> {
    let mean =
        |points: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    points.chunks(group).map(|chunk| (mean(chunk, |p| p.0), mean(chunk, |p| p.1))).collect()
}

fn over_turns(
    longest: Option<&Cell>,
    id: &str,
    title: &str,
    desc: &str,
    unit: &str,
    y_max: f64,
    lines: &str,
) -> String {
    let Some(cell) = longest.filter(|cell| !cell.calls.is_empty()) else {
        return "<p class=\"empty\">No call was played.</p>".to_owned();
    };
    let (x_ticks, x_label) = turn_ticks(cell);
    let percents = unit == "percent";
    let drawn = chart::framed(
        &Frame {
            id,
            title,
            desc,
            x_label,
            y_label: if percents { "same as before" } else { "tokens" },
            x_ticks: &x_ticks,
            y_max,
            y_text: if percents { percent } else { |value| tokens(value as u64) },
            unit,
        },
        lines,
    );
    format!("<figure><figcaption>{title}</figcaption>{drawn}</figure>")
}

/// Where a call stands among `length` calls, from 0 to 1.
fn along(index: usize, length: usize) -> f64 {
    if length < 2 { 0.5 } else { index as f64 / (length - 1) as f64 }
}

/// The first calls of some turns, evenly chosen; calls where there are hardly any turns.
fn turn_ticks(cell: &Cell) -> (Vec<(f64, String)>, &'static str) {
    /// Room one label needs.
    const APART: f64 = 0.07;
    let length = cell.calls.len();
    let turns = match (cell.calls.first(), cell.calls.last()) {
        (Some(first), Some(last)) => last.turn.saturating_sub(first.turn) + 1,
        _ => 0,
    };
    let by_turn = turns >= 4;
    let step = round_step(if by_turn { turns } else { length });
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for (i, call) in cell.calls.iter().enumerate() {
        let (number, begins) =
            if by_turn { (call.turn, i == 0 || cell.calls[i - 1].turn != call.turn) } else { (i + 1, true) };
        let wanted = i == 0 || (begins && number % step == 0);
        if wanted && ticks.last().is_none_or(|(last, _)| along(i, length) - last >= APART) {
            ticks.push((along(i, length), number.to_string()));
        }
    }
    (ticks, if by_turn { "turn (a point is one call to the model)" } else { "call to the model" })
}

/// A round number of turns or calls between labels.
fn round_step(count: usize) -> usize {
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000].into_iter().find(|s| count / s <= 9).unwrap_or(10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_keep_the_mean_and_the_order() {
        let points = [(0.0, 1.0), (0.5, 0.0), (1.0, 0.4)];
        assert_eq!(means(&points, 2), [(0.25, 0.5), (1.0, 0.4)]);
        assert_eq!(means(&points, 1), points);
        assert_eq!(means(&[], 3), []);
    }
}
