//! How sure a share is: Wilson's interval.
//!
//! Decision: Wilson and not the normal approximation, because cases are few and shares near 0 and 1 are the usual ones; the
//! normal one gives an interval of no width there.

/// Standard normal quantile for 95 %, two-sided.
const Z: f64 = 1.959_964;

/// The 95 % confidence interval of `hits / cases`; `None` without cases.
pub(crate) fn wilson(hits: usize, cases: usize) -> Option<(f64, f64)> {
    if cases == 0 {
        return None;
    }
    let (n, share) = (cases as f64, hits as f64 / cases as f64);
    let centre = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    // Exact at the ends, where rounding would leave a trace of something.
    let low = if hits == 0 { 0.0 } else { (centre - half) / scale };
    let high = if hits == cases { 1.0 } else { (centre + half) / scale };
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_published_tables() {
        for (hits, cases, low, high) in
            [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)]
        {
            let (l, h) = wilson(hits, cases).expect("cases");
            assert!((l - low).abs() < 5e-4 && (h - high).abs() < 5e-4, "{hits}/{cases}: {l} to {h}");
        }
        assert_eq!((wilson(0, 7).map(|i| i.0), wilson(7, 7).map(|i| i.1), wilson(0, 0)), (Some(0.0), Some(1.0), None));
    }
}
