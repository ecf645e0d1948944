//! Each session by itself, and what went wrong in any of them.
//!
//! Decision: without scripts every session can be opened; the script offers one at a time. Failures have a section of
//! their own: a number in a table is no place to say why.

use context_engine_runtime::compare::CompareReport;

use super::curves;
use super::text::{budget, count, dollars, interval, percent, shortened, text};
use crate::compare::verdict::label;
use crate::output::number;

/// Most sessions that are drawn: a file with more is too large to mail, and nobody looks at hundreds.
const MOST: usize = 40;

/// The panels.
pub(super) fn panels(report: &CompareReport) -> String {
    // The longest has the most to see.
    let shown = shown(report);
    let first = shown.iter().copied().rev().max_by_key(|i| report.sessions[*i].tokens);
    let left_out = if shown.len() < report.sessions.len() {
        format!("<p>Of {}, the {MOST} longest are shown here.</p>", count(report.sessions.len(), "session"))
    } else {
        String::new()
    };
    let mut out = format!(
        "{left_out}<p class=\"pick\" hidden><label for=\"session\">Session</label> <select id=\"session\">{}</select></p>{}",
        session_options(report, &shown, first),
        curves::legend(report, true)
    );
    for &i in &shown {
        let session = &report.sessions[i];
        let open = if Some(i) == first { " open" } else { "" };
        let charts = |draw: &dyn Fn(u64) -> String| report.budgets.iter().map(|&b| draw(b)).collect::<String>();
        out += &format!(
            "<details class=\"session\" data-session=\"{i}\"{open}><summary><bdi>{}</bdi> <small>{}, {}, \
             {} tokens of history</small></summary>\
             <p class=\"file\">Recorded in <bdi>{}</bdi></p><h3>Tokens sent over turns</h3>\
             <p>What each prompt cost. The thin line is what sending everything would have cost.</p>\
             <div class=\"grid charts\">{}</div>\
             <h3>Prefix stability over turns</h3>\
             <p>How much of each prompt is the start of the one before: what a provider's cache can reuse. A fall is a rewritten prompt.</p><div class=\"grid charts\">{}</div>{}</details>",
            text(&shortened(&name(report, i), 120)),
            count(session.turns, "turn"),
            count(session.calls, "call"),
            number(session.tokens),
            text(&session.file),
            charts(&|b| curves::sent(report, i, b)),
            charts(&|b| curves::prefix(report, i, b)),
            numbers(report, i)
        );
    }
    out
}

/// These sessions as choices of a list.
pub(super) fn session_options(report: &CompareReport, sessions: &[usize], selected: Option<usize>) -> String {
    let option = |i: &usize| {
        let chosen = if selected == Some(*i) { " selected" } else { "" };
        format!("<option value=\"{i}\"{chosen}>{}</option>", text(&shortened(&name(report, *i), 70)))
    };
    sessions.iter().map(option).collect()
}

/// The sessions that are drawn, in their order: the longest.
fn shown(report: &CompareReport) -> Vec<usize> {
    let mut sessions: Vec<_> = (0..report.sessions.len()).collect();
    sessions.sort_by_key(|i| std::cmp::Reverse(report.sessions[*i].tokens));
    sessions.truncate(MOST);
    sessions.sort_unstable();
    sessions
}

/// What people call a session: its file's name; its id, where that says more.
pub(super) fn name(report: &CompareReport, session: usize) -> String {
    let Some(facts) = report.sessions.get(session) else { return "?".to_owned() };
    let file = facts.file.rsplit(['/', '\\']).next().unwrap_or_default();
    match (file, facts.id.as_str()) {
        ("", id) => id.to_owned(),
        (file, id) if file.contains(id) => file.to_owned(),
        (file, id) => format!("{file}: {id}"),
    }
}

fn numbers(report: &CompareReport, session: usize) -> String {
    let mut rows = String::new();
    let engines = curves::drawn(report);
    for &tokens in &report.budgets {
        for cell in curves::cells(report, session, tokens).iter().filter(|cell| engines.contains(&cell.engine)) {
            let m = &cell.measures;
            let recall = match (m.recall.share, m.recall.low, m.recall.high) {
                (Some(share), Some(low), Some(high)) => format!("{} ({})", percent(share), interval(low, high)),
                (Some(share), ..) => percent(share),
                _ => "no cases".to_owned(),
            };
            let ended = if cell.error.is_some() { " <small class=\"out\">not to the end</small>" } else { "" };
            rows += &format!(
                "<tr><td>{}</td><th scope=\"row\"><bdi>{}</bdi>{ended}</th><td>{recall}</td><td>{} of {}</td>\
                 <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                budget(tokens),
                text(label(report, cell.engine)),
                number(m.recall.hits as u64),
                number(m.recall.cases as u64),
                number(m.sent.total),
                dollars(m.cost.with_cache),
                m.prefix_stability.map_or("–".to_owned(), percent),
                number(m.fallbacks as u64)
            );
        }
    }
    let columns = ["Budget", "Engine", "Recall", "Hits", "Tokens in all", "Cost", "Prefix stability", "Failures"];
    let heads: String = columns.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    format!(
        "<h3>The numbers of this session</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"The numbers of this session\">\
         <table class=\"plain\"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// What went wrong: engines that did not open, sessions that were not played to the end, failed calls by reason.
pub(super) fn troubles(report: &CompareReport) -> String {
    let mut items = Vec::new();
    let say = |engine: usize, what: &str, why: &str| {
        format!(
            "<li><b><bdi>{}</bdi></b> {what} <q>{}</q></li>",
            text(label(report, engine)),
            text(&shortened(why, 600))
        )
    };
    for (engine, facts) in report.engines.iter().enumerate() {
        if let Some(why) = &facts.unavailable {
            items.push(say(engine, "could not be opened; legacy answered in its place:", why));
        }
    }
    for cell in &report.cells {
        if let Some(why) = &cell.error {
            let what = format!(
                "at {} did not get to the end of session <bdi>{}</bdi>, and its numbers are of what it played:",
                budget(cell.budget),
                text(&shortened(&name(report, cell.session), 120))
            );
            items.push(say(cell.engine, &what, why));
        }
    }
    for pooled in &report.pooled {
        if pooled.measures.fitted > 0 {
            items.push(format!(
                "<li><b><bdi>{}</bdi></b> at {} made {} that did not fit the budget, and the host cut them.</li>",
                text(label(report, pooled.engine)),
                budget(pooled.budget),
                count(pooled.measures.fitted, "prompt")
            ));
        }
        for (why, times) in &pooled.measures.reasons {
            let what = format!(
                "at {} failed on {}, and another engine answered:",
                budget(pooled.budget),
                count(*times, "call")
            );
            items.push(say(pooled.engine, &what, why));
        }
    }
    if items.is_empty() {
        return "<p>Nothing. Every engine opened, every session was played to the end, and every call was answered by the \
                engine that was asked, within the budget.</p>"
            .to_owned();
    }
    format!("<ul class=\"troubles\">{}</ul>", items.concat())
}
