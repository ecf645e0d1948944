//! When a provider that is busy or down is asked again.
//!
//! Decision: a time that the provider names is kept, up to a minute; beyond it the person is told rather than kept waiting.
//! Without one the pauses double, with a fifth of chance in them, so that many sessions do not come back at once.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest wait that a provider may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
/// The longest pause of our own.
const LONGEST: Duration = Duration::from_secs(16);
/// How much of a pause is chance, up and down.
const JITTER: f64 = 0.2;

/// How long to wait before asking again, having asked `asked` times; `None` when the provider asks for too long.
pub(super) fn pause(asked: u32, first: Duration, named: Option<Duration>) -> Option<Duration> {
    if let Some(named) = named {
        // Never earlier than named.
        return (named <= LONGEST_ASKED).then(|| named + first.mul_f64(JITTER * chance()));
    }
    let doubled = first.saturating_mul(1 << asked.saturating_sub(1).min(16)).min(LONGEST.max(first));
    Some(doubled.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance()))
}

/// What the headers of an answer say about it: milliseconds, seconds or a date.
pub(super) fn after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()).map(|millis| millis / 1e3);
    let plain = text(RETRY_AFTER.as_str());
    let seconds = millis.or_else(|| plain?.parse::<f64>().ok());
    if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite()) {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    let date = httpdate::parse_http_date(plain?).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// A number from 0 to 1, as random as the standard library's maps are.
fn chance() -> f64 {
    (RandomState::new().hash_one(()) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_vary() {
        let first = Duration::from_millis(500);
        for (asked, expected) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 16.0), (40, 16.0)] {
            let all: Vec<f64> = (0..200).filter_map(|_| pause(asked, first, None)).map(|p| p.as_secs_f64()).collect();
            let within = |pause: &f64| (0.8 * expected..=1.2 * expected).contains(pause);
            assert!(all.len() == 200 && all.iter().all(within), "{asked}");
            assert!(all.iter().any(|pause| pause != &all[0]), "no chance in {asked}");
        }
    }

    #[test]
    fn a_named_time_is_kept_and_a_long_one_is_not_waited_for() {
        let first = Duration::from_millis(500);
        for (named, kept) in [(0, true), (3, true), (60, true), (61, false), (u64::MAX, false)] {
            let named = Duration::from_secs(named);
            let pause = pause(1, first, Some(named));
            assert_eq!(pause.is_some_and(|pause| pause >= named && pause - named < first), kept, "{named:?}");
        }
    }

    #[test]
    fn a_header_says_when_in_three_ways() {
        let past = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH);
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        for (name, value, expected) in [
            ("retry-after", "7", 7..=7),
            ("retry-after", " 1.5", 1..=1),
            ("retry-after-ms", "2500", 2..=2),
            ("retry-after", &past, 0..=0),
            ("retry-after", &soon, 28..=30),
            ("retry-after", "-3", 0..=0),
        ] {
            let headers = HeaderMap::from_iter([(
                name.parse::<reqwest::header::HeaderName>().expect("a name"),
                value.parse().expect("a value"),
            )]);
            let found = after(&headers).expect(value);
            assert!(expected.contains(&found.as_secs()), "{value}: {found:?}");
        }
        for value in ["soon", "NaN", "1e300"] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().expect("a value"))]);
            assert_eq!(after(&headers), None, "{value}");
        }
    }
}
