//! Which engine to take at a budget, in sentences, by rules that are written down.
//!
//! Decision: one set of rules for the terminal and the page. They are few, and the page prints them from the same
//! constants. What an engine is for comes first
//! (recall), then what it costs; a difference counts only when the evidence carries it. Overlapping intervals are called
//! a tie: a stricter test could tell some of them apart, but would have to be believed instead of seen.

use context_engine_runtime::compare::{CompareReport, Measures};

use super::html::text::{count, dollars, interval, listed, percent, tokens};

/// Fewer cases than this say nothing about recall.
pub(super) const MIN_CASES: usize = 30;
/// Costs that differ by less count as the same.
pub(super) const SAME_COST: f64 = 0.10;
/// From here on, cost is part of the headline.
pub(super) const DEAR: f64 = 2.0;
/// An engine that leaves a larger share of the calls to another is not measured by its numbers.
pub(super) const MAX_FALLBACKS: f64 = 0.05;
/// A recall below this is said to be little, whoever is ahead.
pub(super) const LITTLE: f64 = 0.5;
/// Cases from fewer sessions are no sample of anybody's sessions.
pub(super) const FEW_SESSIONS: usize = 3;

/// What is said about a budget. Numbers are indices into the report's engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    Take(usize),
    /// As good as each other, and as dear.
    Either(Vec<usize>),
    /// The best costs at least [`DEAR`] times the cheapest.
    Trade {
        best: usize,
        cheap: usize,
    },
    /// Recall says nothing; one is cheaper than the rest.
    Cheapest(usize),
    /// Recall says nothing, and neither does the cost.
    Untold(Vec<usize>),
    Nothing,
}

/// A choice with what carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) choice: Choice,
    pub(super) because: Vec<String>,
    pub(super) cautions: Vec<String>,
}

impl Verdict {
    /// The choice as a sentence.
    pub(super) fn headline(&self, report: &CompareReport) -> String {
        let names = |engines: &[usize], last| {
            listed(&engines.iter().map(|&engine| label(report, engine).to_owned()).collect::<Vec<_>>(), last)
        };
        match &self.choice {
            Choice::Take(engine) => format!("Take {}.", label(report, *engine)),
            Choice::Either(engines) => format!("Take {}: no difference that counts.", names(engines, "or")),
            Choice::Trade { best, cheap } => format!(
                "Take {} if what it remembers is worth the price; otherwise {}.",
                label(report, *best),
                label(report, *cheap)
            ),
            Choice::Cheapest(engine) => {
                format!("Too little evidence about recall; {} is the cheapest.", label(report, *engine))
            }
            Choice::Untold(engines) => format!("Too little evidence to choose between {}.", names(engines, "and")),
            Choice::Nothing => "No engine can be recommended.".to_owned(),
        }
    }
}

/// The name an engine goes by.
pub(super) fn label(report: &CompareReport, engine: usize) -> &str {
    report.engines.get(engine).map_or("?", |facts| facts.id.as_str())
}

/// The pooled measures of an engine at a budget.
pub(super) fn pooled(report: &CompareReport, engine: usize, budget: u64) -> Option<&Measures> {
    report.pooled.iter().find(|p| p.engine == engine && p.budget == budget).map(|p| &p.measures)
}

/// Why an engine is not in the running at a budget.
pub(super) fn why_out(report: &CompareReport, engine: usize, budget: u64) -> Option<String> {
    let opened = |engine: usize| report.engines.get(engine).is_some_and(|facts| facts.unavailable.is_none());
    if !opened(engine) {
        return Some("it could not be opened, and legacy answered in its place".to_owned());
    }
    let cells = || report.cells.iter().filter(|cell| cell.budget == budget);
    let others_played =
        |session| cells().any(|c| c.session == session && c.engine != engine && c.error.is_none() && opened(c.engine));
    let broken = cells().filter(|c| c.engine == engine && c.error.is_some() && others_played(c.session)).count();
    if broken > 0 {
        return Some(format!("it did not get through {} that another engine got through", count(broken, "session")));
    }
    let Some(m) = pooled(report, engine, budget).filter(|m| m.calls > 0) else {
        return Some("it answered no call".to_owned());
    };
    (m.fallbacks as f64 > m.calls as f64 * MAX_FALLBACKS)
        .then(|| format!("it failed on {} of {}, and another engine answered", m.fallbacks, count(m.calls, "call")))
}

/// Whether the interval of `a` lies above the one of `b`.
pub(super) fn ahead(a: &Measures, b: &Measures) -> bool {
    enough(a) && enough(b) && a.recall.low.zip(b.recall.high).is_some_and(|(low, high)| low > high)
}

fn enough(m: &Measures) -> bool {
    m.recall.cases >= MIN_CASES && m.recall.share.is_some()
}

/// What an engine is compared by when recall is settled: dollars with caching, or tokens where nothing costs anything.
fn spend(m: &Measures) -> f64 {
    if m.cost.with_cache > 0.0 { m.cost.with_cache } else { m.sent.total as f64 }
}

type Runner<'a> = (usize, &'a Measures);

/// The ones that cost as little as the cheapest.
fn cheapest<'a>(runners: &[Runner<'a>]) -> Vec<Runner<'a>> {
    let least = runners.iter().map(|(_, m)| spend(m)).fold(f64::INFINITY, f64::min);
    let mut near: Vec<_> =
        runners.iter().filter(|(_, m)| spend(m) * (1.0 - SAME_COST) < least.max(1e-12)).copied().collect();
    near.sort_by(|a, b| spend(a.1).total_cmp(&spend(b.1)));
    near
}

/// Decides for one budget.
pub(super) fn decide(report: &CompareReport, budget: u64) -> Verdict {
    let (mut runners, mut cautions) = (Vec::new(), Vec::new());
    for engine in 0..report.engines.len() {
        match (why_out(report, engine, budget), pooled(report, engine, budget)) {
            (None, Some(measures)) => runners.push((engine, measures)),
            (why, _) => {
                let why = why.unwrap_or_else(|| "it was not measured".to_owned());
                cautions.push(format!("{} is out of the running: {why}.", label(report, engine)));
            }
        }
    }
    let mut because = Vec::new();
    let choice = choose(report, &runners, &mut because);
    match &choice {
        Choice::Take(engine) | Choice::Cheapest(engine) => reasons(report, *engine, &runners, &mut because),
        Choice::Trade { best, .. } => reasons(report, *best, &runners, &mut because),
        Choice::Either(engines) | Choice::Untold(engines) => {
            because.extend(runners.iter().filter(|(e, _)| engines.contains(e)).map(|(e, m)| paid(report, *e, m)));
        }
        Choice::Nothing => {}
    }
    cautions.extend(weaknesses(report, budget, &runners));
    Verdict { choice, because, cautions }
}

fn choose(report: &CompareReport, runners: &[Runner<'_>], because: &mut Vec<String>) -> Choice {
    let engines = |runners: &[Runner<'_>]| runners.iter().map(|(engine, _)| *engine).collect::<Vec<_>>();
    match runners {
        [] => return Choice::Nothing,
        [(only, _)] => {
            because.push("It is the only engine in the running.".to_owned());
            return Choice::Take(*only);
        }
        _ => {}
    }
    if !runners.iter().all(|(_, m)| enough(m)) {
        let cases = runners.iter().map(|(_, m)| m.recall.cases).min().unwrap_or(0);
        because.push(match cases {
            0 => {
                "Nothing the replies rely on came from further back than a plain window of the newest messages holds, \
                  so recall cannot tell the engines apart."
                    .to_owned()
            }
            _ => format!("Recall rests on {}; below {MIN_CASES} it says nothing.", count(cases, "case")),
        });
        let near = cheapest(runners);
        return if let [(one, _)] = near[..] { Choice::Cheapest(one) } else { Choice::Untold(engines(&near)) };
    }
    let share = |m: &Measures| m.recall.share.unwrap_or(0.0);
    let Some(&best) = runners.iter().max_by(|a, b| share(a.1).total_cmp(&share(b.1)).then(b.0.cmp(&a.0))) else {
        return Choice::Nothing;
    };
    let tied: Vec<_> = runners.iter().filter(|(_, m)| !ahead(best.1, m)).copied().collect();
    let mut chosen = cheapest(&tied);
    if tied.len() > 1 {
        let names: Vec<_> = tied.iter().map(|(e, m)| format!("{} {}", label(report, *e), recalled(m))).collect();
        because.push(format!("Recall is tied, the intervals overlap: {}.", listed(&names, "and")));
    }
    let faultless: Vec<_> = chosen.iter().filter(|(_, m)| m.fallbacks + m.fitted == 0).copied().collect();
    if chosen.len() > 1 && !faultless.is_empty() && faultless.len() < chosen.len() {
        because.push(format!(
            "Cost is tied too, and {} made no prompt that had to be repaired or replaced.",
            listed(&faultless.iter().map(|(e, _)| label(report, *e).to_owned()).collect::<Vec<_>>(), "and")
        ));
        chosen = faultless;
    }
    let cheap = cheapest(runners);
    match (&chosen[..], &cheap[..]) {
        ([first, ..], [least, ..]) if spend(first.1) >= DEAR * spend(least.1) => {
            because.push(format!(
                "{} costs {:.1} times as much as {}.",
                label(report, first.0),
                spend(first.1) / spend(least.1).max(1e-9),
                label(report, least.0)
            ));
            Choice::Trade { best: first.0, cheap: least.0 }
        }
        ([one], _) => Choice::Take(one.0),
        _ => Choice::Either(engines(&chosen)),
    }
}

/// Recall, cost and failures of the chosen one, beside the others'.
fn reasons(report: &CompareReport, chosen: usize, runners: &[Runner<'_>], because: &mut Vec<String>) {
    let Some(&(_, mine)) = runners.iter().find(|(engine, _)| *engine == chosen) else { return };
    let behind: Vec<_> = runners.iter().filter(|(engine, m)| *engine != chosen && ahead(mine, m)).collect();
    if !behind.is_empty() {
        let names: Vec<_> = behind.iter().map(|(e, m)| format!("{} {}", label(report, *e), recalled(m))).collect();
        because.push(format!(
            "Of what the replies rely on from further back, {} had {} in its prompts, {}. The intervals do not overlap.",
            label(report, chosen),
            recalled(mine),
            listed(&names, "and")
        ));
    } else if mine.recall.cases > 0 && runners.len() == 1 {
        because
            .push(format!("It had {} of what the replies rely on from further back in its prompts.", recalled(mine)));
    }
    because.push(paid(report, chosen, mine));
    for (engine, theirs) in runners.iter().filter(|(engine, _)| *engine != chosen) {
        because.push(format!("{} {}", paid(report, *engine, theirs), compared(spend(theirs), spend(mine))));
    }
    if mine.fallbacks == 0 {
        because.push(format!("{} answered every call itself.", label(report, chosen)));
    }
}

fn recalled(m: &Measures) -> String {
    match (m.recall.share, m.recall.low, m.recall.high) {
        (Some(share), Some(low), Some(high)) => {
            format!("{} ({} in {})", percent(share), interval(low, high), count(m.recall.cases, "case"))
        }
        _ => "no cases".to_owned(),
    }
}

fn paid(report: &CompareReport, engine: usize, m: &Measures) -> String {
    let cost = if m.cost.with_cache > 0.0 {
        format!(", {} with prompt caching", dollars(m.cost.with_cache))
    } else {
        String::new()
    };
    format!("{} sent {} tokens{cost}.", label(report, engine), tokens(m.sent.total))
}

fn compared(theirs: f64, mine: f64) -> String {
    if mine <= 0.0 {
        return String::new();
    }
    match theirs / mine {
        ratio if ratio >= DEAR => format!("That is {ratio:.1} times as much."),
        ratio if (ratio - 1.0).abs() < 0.005 => "That is the same.".to_owned(),
        ratio if ratio > 1.0 => format!("That is {} more.", percent(ratio - 1.0)),
        ratio => format!("That is {} less.", percent(1.0 - ratio)),
    }
}

/// What a reader should hold against the verdict.
fn weaknesses(report: &CompareReport, budget: u64, runners: &[Runner<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (engine, m) in runners {
        let name = label(report, *engine);
        if m.fallbacks > 0 {
            found.push(format!(
                "{name} failed on {} of {}; another engine answered.",
                m.fallbacks,
                count(m.calls, "call")
            ));
        }
        if m.fitted > 0 {
            found.push(format!("{} of {name} did not fit the budget and had to be cut.", count(m.fitted, "prompt")));
        }
    }
    let most = runners.iter().filter(|(_, m)| enough(m)).filter_map(|(_, m)| m.recall.share).fold(f64::NAN, f64::max);
    if most < LITTLE {
        found.push(format!("No engine had more than {} of what was relied on from further back.", percent(most)));
    }
    let running = |engine| runners.iter().any(|(e, _)| *e == engine);
    let cells = || report.cells.iter().filter(|cell| cell.budget == budget && running(cell.engine));
    let with = |wanted: &dyn Fn(usize) -> bool| (0..report.sessions.len()).filter(|&s| wanted(s)).count();
    let unplayed = with(&|s| cells().any(|c| c.session == s && c.error.is_some()));
    if unplayed > 0 {
        found.push(format!("{} could not be played to the end by any engine.", count(unplayed, "session")));
    }
    let spoken = with(&|s| cells().any(|c| c.session == s && c.measures.recall.cases > 0));
    if spoken > 0 && spoken < FEW_SESSIONS && runners.len() > 1 {
        found.push(format!("All cases come from {}: others may differ.", count(spoken, "session")));
    }
    found
}

/// The rules as the page prints them.
pub(super) fn rules() -> Vec<String> {
    vec![
        format!(
            "An engine is out of the running when it could not be opened, when it did not get through a session that \
             another engine got through, or when it left more than {} of the calls to another engine.",
            percent(MAX_FALLBACKS)
        ),
        format!(
            "Recall decides first. It needs at least {MIN_CASES} cases. An engine is ahead when its 95\u{a0}% interval \
             lies wholly above the other's; with overlapping intervals they are tied, even if the shares differ."
        ),
        format!(
            "Among the tied, the one that costs least with prompt caching is taken. Costs that differ by less than {} \
             count as the same; then one with no failed and no cut prompt is preferred. If that does not settle it \
             either, the report says so instead of choosing.",
            percent(SAME_COST)
        ),
        format!(
            "If the choice costs {DEAR} times as much as the cheapest engine or more, both are named: what recall is \
             worth is the reader's to say."
        ),
        "With too few cases nothing is said about recall. Then only the cost is compared, and the headline says that."
            .to_owned(),
    ]
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
