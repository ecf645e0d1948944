//! The headline table: for each budget and engine what was measured, and what every column means.
//!
//! Decision: a value is marked as the best of its budget only where the difference is real: intervals apart for recall,
//! more than noise for the rest. A column without a mark says that the engines are alike in it.

use context_engine_runtime::compare::{CompareReport, Measures};

use super::text::{budget, count, dollars, interval, percent, text, tokens};
use crate::compare::verdict::{SAME_COST, ahead, label, pooled, why_out};
use crate::output::{duration, number};

struct Column {
    name: &'static str,
    help: &'static str,
    /// The value, and what stands small below it.
    shown: fn(&Measures) -> (String, String),
    /// Whether the first is really better than the second.
    better: fn(&Measures, &Measures) -> bool,
    marked_when: &'static str,
}

const PREFIX_APART: f64 = 0.05;

fn lower(mine: u64, theirs: u64) -> bool {
    (mine as f64) < theirs as f64 * (1.0 - SAME_COST)
}

const COLUMNS: [Column; 8] = [
    Column {
        name: "Recall",
        help: "Of the things the recorded replies rely on (paths, names, links, numbers, quotations) that were said too \
               long ago for a plain window of the newest messages: the share that was in the engine's prompt, with \
               the words around it. Below it the 95 % confidence interval, and hits of cases. Higher is better.",
        shown: |m| match (m.recall.share, m.recall.low, m.recall.high) {
            (Some(share), Some(low), Some(high)) => (
                percent(share),
                format!(
                    "{}; {} of {}",
                    interval(low, high),
                    number(m.recall.hits as u64),
                    number(m.recall.cases as u64)
                ),
            ),
            (Some(share), ..) => (percent(share), format!("{} of {}", m.recall.hits, m.recall.cases)),
            _ => ("no cases".to_owned(), "nothing from further back was needed".to_owned()),
        },
        better: ahead,
        marked_when: "the intervals do not overlap",
    },
    Column {
        name: "Tokens per call",
        help: "Size of a prompt: the median; below it the 95th percentile. Lower is cheaper.",
        shown: |m| (number(m.sent.p50), format!("95th: {}", number(m.sent.p95))),
        better: |a, b| lower(a.sent.p50, b.sent.p50),
        marked_when: "more than 10 % apart",
    },
    Column {
        name: "Tokens in all",
        help: "All prompts together. Lower is cheaper.",
        shown: |m| (tokens(m.sent.total), format!("in {}", count(m.calls, "call"))),
        better: |a, b| lower(a.sent.total, b.sent.total),
        marked_when: "more than 10 % apart",
    },
    Column {
        name: "Cost",
        help: "Input tokens of all prompts at the prices below, with prompt caching; below it without caching. \
               Lower is better.",
        shown: |m| (dollars(m.cost.with_cache), format!("uncached: {}", dollars(m.cost.without_cache))),
        better: |a, b| a.cost.with_cache < b.cost.with_cache * (1.0 - SAME_COST),
        marked_when: "more than 10 % apart",
    },
    Column {
        name: "Prefix stability",
        help: "Mean share of a prompt that is the same, from its start, as the prompt before. Caching pays for that \
               part only. Higher is better.",
        shown: |m| (m.prefix_stability.map_or("–".to_owned(), percent), String::new()),
        better: |a, b| a.prefix_stability.zip(b.prefix_stability).is_some_and(|(a, b)| a > b + PREFIX_APART),
        marked_when: "more than 5 percentage points apart",
    },
    Column {
        name: "Compactions",
        help: "How often older messages were replaced by a summary; below it the tokens of the summaries. Neither more \
               nor fewer is better by itself.",
        shown: |m| (number(m.compactions as u64), format!("{} tokens", tokens(m.summary_tokens))),
        better: |_, _| false,
        marked_when: "",
    },
    Column {
        name: "Time",
        help: "Time the engine took to make a prompt: the median; below it the 95th percentile. Lower is better.",
        shown: |m| (duration(m.assemble_us.p50), format!("95th: {}", duration(m.assemble_us.p95))),
        better: |a, b| a.assemble_us.p50.max(1_000).saturating_mul(2) < b.assemble_us.p50,
        marked_when: "less than half, and milliseconds",
    },
    Column {
        name: "Failures",
        help: "Calls that another engine had to answer; below it prompts that were over budget and had to be cut. \
               Fewer is better.",
        shown: |m| (number(m.fallbacks as u64), format!("{} cut", number(m.fitted as u64))),
        better: |a, b| a.fallbacks == 0 && b.fallbacks > 0,
        marked_when: "none, and all others have some",
    },
];

/// The table.
pub(super) fn table(report: &CompareReport) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"table-h\"><table class=\"headline\"><thead>\
         <tr><th scope=\"col\">Engine</th>",
    );
    for column in &COLUMNS {
        out += &format!("<th scope=\"col\" title=\"{}\">{}</th>", text(column.help), column.name);
    }
    out += "</tr></thead>";
    for &tokens in &report.budgets {
        out += &format!(
            "<tbody><tr class=\"budget\"><th scope=\"rowgroup\" colspan=\"{}\">Budget {}</th></tr>",
            COLUMNS.len() + 1,
            budget(tokens)
        );
        let running: Vec<_> = (0..report.engines.len())
            .filter(|&engine| why_out(report, engine, tokens).is_none())
            .filter_map(|engine| Some((engine, pooled(report, engine, tokens)?)))
            .collect();
        for engine in 0..report.engines.len() {
            let Some(measures) = pooled(report, engine, tokens) else { continue };
            out += &row(report, engine, measures, &running, why_out(report, engine, tokens).as_deref());
        }
        out += "</tbody>";
    }
    out + "</table></div>"
}

fn row(
    report: &CompareReport,
    engine: usize,
    measures: &Measures,
    running: &[(usize, &Measures)],
    out_because: Option<&str>,
) -> String {
    let why = out_because.map_or(String::new(), |why| {
        format!("<small class=\"out\" title=\"{}\">out of the running</small>", text(why))
    });
    let class = if out_because.is_some() { " class=\"is-out\"" } else { "" };
    let mut row = format!("<tr{class}><th scope=\"row\"><bdi>{}</bdi>{why}</th>", text(label(report, engine)));
    for column in &COLUMNS {
        let (value, below) = (column.shown)(measures);
        let others = || running.iter().filter(|(other, _)| *other != engine);
        let best = out_because.is_none()
            && others().next().is_some()
            && others().all(|(_, theirs)| (column.better)(measures, theirs));
        let (class, badge) = if best { (" class=\"best\"", " <b class=\"badge\">best</b>") } else { ("", "") };
        row += &format!(
            "<td data-label=\"{}\"{class}><span class=\"value\">{}{badge}</span><small>{}</small></td>",
            column.name,
            text(&value),
            text(&below)
        );
    }
    row + "</tr>"
}

/// What the columns mean.
pub(super) fn legend(report: &CompareReport) -> String {
    let mut out = String::from("<dl class=\"terms\">");
    for column in &COLUMNS {
        let marked = match column.marked_when {
            "" => String::new(),
            when => format!(" <span class=\"when\">Marked best when {when}.</span>"),
        };
        out += &format!("<div><dt>{}</dt><dd>{}{}</dd></div>", column.name, text(column.help), marked);
    }
    let prices = report.prices;
    out + &format!(
        "</dl><p>Prices per million input tokens: {} fresh, {} read from the cache, {} written into the cache. Output \
         tokens are the same for every engine and are not counted. Engines out of the running are neither marked nor \
         compared with.</p>",
        dollars(prices.input),
        dollars(prices.cache_read),
        dollars(prices.cache_write)
    )
}
