//! Each session by itself, and what went wrong in any of them.
//!
//! Decision: without scripts every session can be opened; the script offers one at a time. Failures have a section of
//! their own: a number in a table is no place to say why.

use context_engine_runtime::compare::report::CompareReport;

use super::curves;
use super::text::{budget, count, dollars, interval, percent, shortened, text};
use super::verdict::label;
use crate::output::number;

/// The panels.
pub(super) fn panels(report: &CompareReport) -> String {
    let mut out = format!(
        "<p class=\"pick\" hidden><label for=\"session\">Session</label> <select id=\"session\">{}</select></p>{}",
        session_options(report),
        curves::legend(report, true)
    );
    for (i, session) in report.sessions.iter().enumerate() {
        let open = if i == 0 { " open" } else { "" };
        let charts = |draw: &dyn Fn(u64) -> String| report.budgets.iter().map(|&b| draw(b)).collect::<String>();
        out += &format!(
            "<details class=\"session\"{open}><summary><bdi>{}</bdi> <small>{}, {}, {} tokens of history</small></summary>\
             <p class=\"file\">Recorded in <bdi>{}</bdi></p><h3>Tokens sent over turns</h3><p>What each prompt cost. The thin \
             line is what sending everything would have cost.</p><div class=\"grid charts\">{}</div><h3>Prefix stability over \
             turns</h3><p>How much of each prompt is the start of the one before: what a provider's cache can reuse. A \
             fall is a rewritten prompt.</p><div class=\"grid charts\">{}</div>{}</details>",
            text(&shortened(&session.id, 120)),
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

/// The sessions as choices of a list.
pub(super) fn session_options(report: &CompareReport) -> String {
    let sessions = report.sessions.iter().enumerate();
    sessions.map(|(i, s)| format!("<option value=\"{i}\">{}</option>", text(&shortened(&s.id, 60)))).collect()
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
                "<tr><td>{}</td><th scope=\"row\"><bdi>{}</bdi>{ended}</th><td>{recall}</td><td>{} of {}</td><td>{}</td><td>{}\
                 </td><td>{}</td><td>{}</td></tr>",
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
        "<h3>The numbers of this session</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"The numbers of \
         this session\"><table class=\"plain\"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
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
            let session = report.sessions.get(cell.session).map_or("?", |s| s.id.as_str());
            let what = format!(
                "at {} did not get to the end of session <bdi>{}</bdi>, and its numbers are of what it played:",
                budget(cell.budget),
                text(&shortened(session, 120))
            );
            items.push(say(cell.engine, &what, why));
        }
    }
    for pooled in &report.pooled {
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
                engine that was asked.</p>"
            .to_owned();
    }
    format!("<ul class=\"troubles\">{}</ul>", items.concat())
}
