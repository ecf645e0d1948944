//! From single calls to the numbers of a cell, and from cells to the pooled ones.
//!
//! Decision: what is pooled is calls and cases, not the means of sessions: a session of three calls must not weigh as much as
//! one of five hundred.

use std::collections::BTreeMap;

use super::interval::wilson;
use super::report::{CallPoint, Cost, Measures, Prices, Recall, Spread};
use crate::CallReport;
use crate::replay::percentile;

/// Calls, added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    sent: Vec<u64>,
    assemble_us: Vec<u64>,
    cost: Cost,
    pub(crate) compactions: usize,
    pub(crate) summary_tokens: u64,
    fallbacks: usize,
    fitted: usize,
    reasons: BTreeMap<String, usize>,
    prefixes: Vec<f64>,
    hits: usize,
    cases: usize,
}

impl Tally {
    /// Adds a call, whose prompt has `common` tokens in common with the beginning of the one before.
    pub(crate) fn add(&mut self, point: &CallPoint, report: &CallReport, common: u64, prices: &Prices) {
        self.sent.push(point.sent_tokens);
        self.assemble_us.push(report.assemble_us);
        self.cost.add(prices, point.sent_tokens, common);
        self.fallbacks += usize::from(point.fell_back);
        self.fitted += usize::from(report.fitted);
        if let Some(why) = &report.fallback {
            *self.reasons.entry(without_numbers(why)).or_default() += 1;
        }
        self.prefixes.extend(point.prefix);
        self.hits += point.hits;
        self.cases += point.cases;
    }

    /// Adds the calls of another cell.
    pub(crate) fn pool(&mut self, other: &Tally) {
        self.sent.extend(&other.sent);
        self.assemble_us.extend(&other.assemble_us);
        self.cost.without_cache += other.cost.without_cache;
        self.cost.with_cache += other.cost.with_cache;
        self.compactions += other.compactions;
        self.summary_tokens += other.summary_tokens;
        self.fallbacks += other.fallbacks;
        self.fitted += other.fitted;
        for (why, count) in &other.reasons {
            *self.reasons.entry(why.clone()).or_default() += count;
        }
        self.prefixes.extend(&other.prefixes);
        self.hits += other.hits;
        self.cases += other.cases;
    }

    pub(crate) fn measures(&self) -> Measures {
        let mut reasons: Vec<(String, usize)> = self.reasons.iter().map(|(why, count)| (why.clone(), *count)).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let prefixes = self.prefixes.len();
        let interval = wilson(self.hits, self.cases);
        Measures {
            calls: self.sent.len(),
            sent: spread(&self.sent),
            cost: self.cost,
            compactions: self.compactions,
            summary_tokens: self.summary_tokens,
            assemble_us: spread(&self.assemble_us),
            fallbacks: self.fallbacks,
            fitted: self.fitted,
            reasons,
            prefix_stability: (prefixes > 0).then(|| self.prefixes.iter().sum::<f64>() / prefixes as f64),
            recall: Recall {
                hits: self.hits,
                cases: self.cases,
                share: (self.cases > 0).then(|| self.hits as f64 / self.cases as f64),
                low: interval.map(|(low, _)| low),
                high: interval.map(|(_, high)| high),
            },
        }
    }
}

fn spread(values: &[u64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |percent| percentile(&sorted, percent);
    Spread { p50: at(50), p95: at(95), max: at(100), total: sorted.iter().sum() }
}

/// A reason without the numbers in it, by which the same failure differs from call to call.
fn without_numbers(why: &str) -> String {
    let mut out = String::with_capacity(why.len());
    for c in why.chars() {
        match (c.is_ascii_digit(), out.ends_with('…')) {
            (true, true) => {}
            (true, false) => out.push('…'),
            (false, _) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_made_of_values_that_were_measured() {
        let values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(spread(&values), Spread { p50: 50, p95: 95, max: 100, total: 5050 });
        assert_eq!(spread(&[7, 3]), Spread { p50: 3, p95: 7, max: 7, total: 10 });
        assert_eq!(spread(&[]), Spread::default());
    }
}
