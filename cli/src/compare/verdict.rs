//! One sentence for each budget: which engine the pooled numbers speak for.
//!
//! Decision: an engine has the better recall only where its interval lies above those of all others. Anything less is said to
//! be undecided, and then the cost decides.

use context_engine_runtime::compare::{CompareReport, Pooled};

/// The sentence; `None` with fewer than two engines that served.
pub(crate) fn of(report: &CompareReport, budget: u64) -> Option<String> {
    // An engine that never answered has the numbers of another.
    let has_served = |pooled: &&Pooled| pooled.measures.calls == 0 || pooled.measures.fallbacks < pooled.measures.calls;
    let of_budget = report.pooled.iter().filter(|pooled| pooled.budget == budget);
    let pooled: Vec<&Pooled> = of_budget.filter(has_served).collect();
    if pooled.len() < 2 {
        return None;
    }
    let name = |pooled: &Pooled| report.engines[pooled.engine].id.as_str();
    let cost = |pooled: &Pooled| pooled.measures.cost.with_cache;
    let cheapest = pooled.iter().copied().reduce(|best, next| if cost(next) < cost(best) { next } else { best })?;
    let is_above = |one: &Pooled, other: &Pooled| {
        let (low, high) = (one.measures.recall.low, other.measures.recall.high);
        one.engine == other.engine || low.zip(high).is_some_and(|(low, high)| low > high)
    };
    let best = pooled.iter().find(|one| pooled.iter().all(|other| is_above(one, other)));
    Some(match best {
        Some(best) if best.engine == cheapest.engine => {
            format!("{} has the best recall and the lowest cost with caching", name(best))
        }
        Some(best) => {
            format!("{} has the best recall, {} the lowest cost with caching", name(best), name(cheapest))
        }
        None if pooled.iter().all(|pooled| pooled.measures.recall.cases == 0) => {
            let cheapest = name(cheapest);
            format!("nothing was relied on beyond a plain window; {cheapest} has the lowest cost with caching")
        }
        None => format!("recall does not tell the engines apart; {} has the lowest cost with caching", name(cheapest)),
    })
}

#[cfg(test)]
mod tests {
    use context_engine_runtime::compare::{Cost, EngineFacts, Measures, Prices, Recall};

    use super::*;

    /// Engines `a` and `b`, each with the ends of its interval and its cost.
    fn verdict(a: (Option<(f64, f64)>, f64), b: (Option<(f64, f64)>, f64)) -> Option<String> {
        let facts = |id: &str| EngineFacts { id: id.into(), name: id.into(), version: "1".into(), unavailable: None };
        let pooled = |(engine, (interval, with_cache)): (usize, (Option<(f64, f64)>, f64))| {
            let cases = if interval.is_some() { 10 } else { 0 };
            let (low, high) = interval.unzip();
            let recall = Recall { cases, low, high, ..Recall::default() };
            let cost = Cost { without_cache: 1.0, with_cache };
            Pooled { engine, budget: 8_000, measures: Measures { recall, cost, ..Measures::default() } }
        };
        let report = CompareReport {
            schema_version: 1,
            prices: Prices::default(),
            engines: vec![facts("a"), facts("b")],
            budgets: vec![8_000],
            sessions: vec![],
            cells: vec![],
            pooled: [a, b].into_iter().enumerate().map(pooled).collect(),
            prompts: vec![],
        };
        of(&report, 8_000)
    }

    #[test]
    fn an_engine_is_better_only_where_the_intervals_do_not_touch() {
        let (low, high) = (Some((0.1, 0.2)), Some((0.3, 0.5)));
        for (a, b, sentence) in [
            ((high, 1.0), (low, 2.0), "a has the best recall and the lowest cost with caching"),
            ((high, 2.0), (low, 1.0), "a has the best recall, b the lowest cost with caching"),
            ((low, 1.0), (Some((0.15, 0.9)), 2.0), "recall does not tell the engines apart; a has the lowest cost"),
            ((None, 2.0), (None, 1.0), "nothing was relied on beyond a plain window; b has the lowest cost"),
        ] {
            let found = verdict(a, b).expect("two engines");
            assert!(found.starts_with(sentence), "{found}");
        }
    }
}
