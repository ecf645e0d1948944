//! The comparison as one HTML file, for a reader who knows nothing of the project.
//!
//! Decision: everything that is said is in the markup made here, charts included; the script only adds choosing, searching
//! and pointing. The file holds all it needs and asks the network for nothing. Its parts: the verdict, the table, what went
//! wrong, recall over budget, each session over its turns, one prompt as a map, the misses.

mod chart;
mod curves;
mod misses;
mod policy;
mod sessions;
mod table;
pub(super) mod text;
mod treemap;

#[cfg(test)]
mod browser;
#[cfg(test)]
pub(super) mod sample;

use context_engine_runtime::compare::{CompareReport, EngineFacts};

use self::text::{budget, count, listed, text};
use super::verdict::{self, Choice, Verdict};

const PAGE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The page.
pub(crate) fn render(report: &CompareReport) -> String {
    filled(PAGE, |name| part(report, name).unwrap_or_default())
}

/// What the frame calls by this name.
fn part(report: &CompareReport, name: &str) -> Option<String> {
    Some(match name {
        "policy" => policy::policy(&lines(SCRIPT), &lines(STYLE)),
        "style" => lines(STYLE),
        "script" => lines(SCRIPT),
        "scope" => scope(report),
        "engines" => engines(report),
        "verdicts" => report.budgets.iter().map(|&b| card(report, b, &verdict::decide(report, b))).collect(),
        "rules" => verdict::rules().iter().map(|rule| format!("<li>{}</li>", text(rule))).collect(),
        "table" => table::table(report),
        "columns" => table::legend(report),
        "troubles" => sessions::troubles(report),
        "recall" => curves::recall(report),
        "lines" => curves::legend(report, false),
        "sessions" => sessions::panels(report),
        "maps" => treemap::maps(report),
        "misses" => misses::section(report),
        "version" => env!("CARGO_PKG_VERSION").to_owned(),
        _ => return None,
    })
}

/// As a browser reads it before it takes the hash, however the source was checked out.
fn lines(source: &str) -> String {
    source.replace("\r\n", "\n")
}

/// `template` with every `{{name}}` replaced, in one pass: what is filled in is not looked at again.
fn filled(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        out += before;
        out += &value(name);
        rest = after;
    }
    out + rest
}

fn scope(report: &CompareReport) -> String {
    let calls: usize = report.sessions.iter().map(|session| session.calls).sum();
    let budgets: Vec<_> = report.budgets.iter().map(|b| budget(*b)).collect();
    format!(
        "{} with {} to a model, {}, {} {} tokens a prompt",
        count(report.sessions.len(), "session"),
        count(calls, "call"),
        count(report.engines.len(), "engine"),
        if budgets.len() == 1 { "a budget of" } else { "budgets of" },
        listed(&budgets, "and")
    )
}

fn engines(report: &CompareReport) -> String {
    let item = |facts: &EngineFacts| {
        let name = if facts.name == facts.id { String::new() } else { format!("{}, ", facts.name) };
        let version =
            if facts.version.is_empty() { "version unknown".to_owned() } else { format!("version {}", facts.version) };
        let closed = if facts.unavailable.is_some() { " <small class=\"out\">could not be opened</small>" } else { "" };
        format!(
            "<li><b><bdi>{}</bdi></b> <small>{}</small>{closed}</li>",
            text(&facts.id),
            text(&format!("{name}{version}"))
        )
    };
    report.engines.iter().map(item).collect()
}

fn card(report: &CompareReport, tokens: u64, verdict: &Verdict) -> String {
    let kind = match verdict.choice {
        Choice::Take(_) => "clear",
        Choice::Either(_) | Choice::Trade { .. } => "open",
        Choice::Cheapest(_) | Choice::Untold(_) | Choice::Nothing => "unknown",
    };
    let listed = |class: &str, lines: &[String]| {
        if lines.is_empty() {
            return String::new();
        }
        let items: String = lines.iter().map(|line| format!("<li>{}</li>", text(line))).collect();
        format!("<ul class=\"{class}\">{items}</ul>")
    };
    format!(
        "<article class=\"card {kind}\"><h3>Budget {}</h3><p class=\"verdict\">{}</p>{}{}</article>",
        budget(tokens),
        text(&verdict.headline(report)),
        listed("because", &verdict.because),
        listed("cautions", &verdict.cautions)
    )
}

#[cfg(test)]
mod tests;
