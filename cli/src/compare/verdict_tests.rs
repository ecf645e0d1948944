//! The rules of the verdict, each with the numbers on both sides of its border.

use super::*;
use crate::compare::html::sample;
use context_engine_runtime::compare::{Cost, Recall};

const BUDGET: u64 = 8_000;

/// A comparison at one budget: for each engine its interval in percent and its cost in dollars.
fn report(engines: &[([u8; 2], f64)]) -> CompareReport {
    let mut report = sample::report(sample::Size { engines: 3, sessions: 3, ..sample::SMALL });
    report.budgets = vec![BUDGET];
    report.engines.truncate(engines.len());
    for (facts, id) in report.engines.iter_mut().zip(["a", "b", "c"]) {
        facts.id = id.to_owned();
    }
    report.cells.retain(|cell| cell.budget == BUDGET && cell.engine < engines.len());
    report.pooled.retain(|pooled| pooled.budget == BUDGET && pooled.engine < engines.len());
    for (pooled, ([low, high], cost)) in report.pooled.iter_mut().zip(engines) {
        let (low, high) = (f64::from(*low) / 100.0, f64::from(*high) / 100.0);
        let recall = Recall { hits: 50, cases: 100, share: Some((low + high) / 2.0), low: Some(low), high: Some(high) };
        let cost = Cost { with_cache: *cost, without_cache: *cost };
        pooled.measures = Measures { cost, recall, fallbacks: 0, fitted: 0, ..pooled.measures.clone() };
    }
    report
}

fn choice(report: &CompareReport) -> Choice {
    decide(report, BUDGET).choice
}

#[test]
fn recall_decides_when_intervals_are_apart_and_cost_when_they_overlap() {
    for (engines, expected) in [
        // Apart: the better one, though it costs more.
        (vec![([60, 70], 1.9), ([40, 50], 1.0)], Choice::Take(0)),
        // They touch: the cheaper one.
        (vec![([50, 70], 1.9), ([40, 50], 1.0)], Choice::Take(1)),
        (vec![([50, 70], 1.0), ([45, 75], 1.9)], Choice::Take(0)),
        // As good and as dear.
        (vec![([50, 70], 1.0), ([45, 75], 1.09)], Choice::Either(vec![0, 1])),
        // The cheapest is out of reach of the best; between the tied, cost decides.
        (vec![([60, 70], 1.5), ([55, 65], 1.2), ([10, 20], 0.9)], Choice::Take(1)),
        // Apart, but at twice the price.
        (vec![([60, 70], 2.0), ([40, 50], 1.0)], Choice::Trade { best: 0, cheap: 1 }),
        (vec![([60, 70], 3.0), ([55, 65], 2.5), ([10, 20], 1.0)], Choice::Trade { best: 1, cheap: 2 }),
    ] {
        assert_eq!(choice(&report(&engines)), expected, "{engines:?}");
    }
}

#[test]
fn failures_decide_between_equals() {
    let mut report = report(&[([50, 70], 1.0), ([45, 75], 1.0)]);
    report.pooled[0].measures.fitted = 1;
    assert_eq!(choice(&report), Choice::Take(1));
    report.pooled[1].measures.fallbacks = 1;
    assert_eq!(choice(&report), Choice::Either(vec![0, 1]));
}

#[test]
fn few_cases_say_nothing_about_recall() {
    let cases = |cases: usize, costs: [f64; 2]| {
        let mut report = report(&[([60, 70], costs[0]), ([10, 20], costs[1])]);
        for pooled in &mut report.pooled {
            pooled.measures.recall.cases = cases;
        }
        if cases == 0 {
            report.pooled.iter_mut().for_each(|pooled| pooled.measures.recall = Recall::default());
        }
        decide(&report, BUDGET)
    };
    assert_eq!(cases(30, [1.5, 1.0]).choice, Choice::Take(0));
    assert_eq!(cases(29, [1.5, 1.0]).choice, Choice::Cheapest(1));
    assert_eq!(cases(29, [1.0, 1.0]).choice, Choice::Untold(vec![0, 1]));
    assert!(cases(29, [1.5, 1.0]).because[0].contains("29 cases"));
    let none = cases(0, [1.5, 1.0]);
    assert_eq!(none.choice, Choice::Cheapest(1));
    assert!(none.because[0].contains("cannot tell"), "{none:?}");
}

#[test]
fn an_engine_that_did_not_serve_is_not_recommended_for_its_numbers() {
    let good = || report(&[([60, 70], 1.0), ([40, 50], 1.0)]);
    let mut closed = good();
    closed.engines[0].unavailable = Some("no such plugin".to_owned());
    let mut broken = good();
    broken
        .cells
        .iter_mut()
        .filter(|cell| cell.engine == 0)
        .take(1)
        .for_each(|cell| cell.error = Some("gone".to_owned()));
    let mut failing = good();
    failing.pooled[0].measures.fallbacks = failing.pooled[0].measures.calls * 6 / 100 + 1;
    for report in [&closed, &broken, &failing] {
        let verdict = decide(report, BUDGET);
        assert_eq!(verdict.choice, Choice::Take(1));
        assert!(verdict.cautions[0].starts_with("a is out of the running: it "), "{verdict:?}");
    }
    let mut seldom = good();
    seldom.pooled[0].measures.fallbacks = 1;
    assert_eq!(choice(&seldom), Choice::Take(0));
    assert!(decide(&seldom, BUDGET).cautions[0].starts_with("a failed on 1 of "));
    // A session nobody can play is nobody's fault.
    let mut hopeless = good();
    hopeless.cells.iter_mut().filter(|cell| cell.session == 0).for_each(|cell| cell.error = Some("no room".to_owned()));
    assert_eq!(choice(&hopeless), Choice::Take(0));
    closed.engines[1].unavailable = Some("no such plugin".to_owned());
    assert_eq!(choice(&closed), Choice::Nothing);
}

#[test]
fn being_ahead_with_little_is_said() {
    let cautions = |low, high| decide(&report(&[([low, high], 1.0), ([1, 2], 1.0)]), BUDGET).cautions;
    assert_eq!(cautions(6, 8), ["No engine had more than 7\u{a0}% of what was relied on from further back."]);
    assert_eq!(cautions(45, 55), [""; 0]);
}

#[test]
fn without_prices_tokens_are_compared() {
    let mut report = report(&[([50, 70], 0.0), ([45, 75], 0.0)]);
    report.pooled[0].measures.sent.total = 1_000;
    report.pooled[1].measures.sent.total = 2_000;
    assert_eq!(choice(&report), Choice::Take(0));
}

#[test]
fn the_reasons_name_numbers_and_weak_evidence() {
    let mut report = report(&[([60, 70], 1.5), ([40, 50], 1.0)]);
    report.cells.iter_mut().filter(|cell| cell.session > 0).for_each(|cell| cell.measures.recall = Recall::default());
    let verdict = decide(&report, BUDGET);
    assert_eq!(verdict.headline(&report), "Take a.");
    let because = verdict.because.join(" ").replace('\u{a0}', " ");
    for part in ["a had 65 % (60–70 % in 100 cases)", "b 45 %", "do not overlap", "$1.50", "That is 33 % less."] {
        assert!(because.contains(part), "{part} in {because}");
    }
    assert_eq!(verdict.cautions, ["All cases come from 1 session: others may differ."]);
}
