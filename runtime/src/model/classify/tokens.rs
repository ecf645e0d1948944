//! Numbers in a provider's words: how large the prompt was, how long to wait.
//!
//! Decision: sums first. A provider that writes "A + B > C" adds the reply that was asked for to the prompt, and so does
//! the window; what has to come down is the sum (contract §2.4, 0).

use std::sync::LazyLock;
use std::time::Duration;

use regex::{Captures, Regex};

/// A count, grouped as in any language (`128,000`, `128.000`, `128 000`, `128'000`, `128_000`), plain, or in thousands
/// (`128k`, `1.05m`).
const N: &str = r"([0-9]{1,3}(?:[,._'’ \u{a0}\u{2009}\u{202f}][0-9]{3})+\b|[0-9]+(?:\.[0-9]+)?(?:k|m)?\b)";

/// Two counts that make up the request, and which of the pattern's they are. `#` is a count.
const SUMS: [(&str, [usize; 2]); 3] = [
    (r"# \+ # >=? #", [1, 2]),                                    // Anthropic, Bedrock
    (r"\(# > # - #\)", [1, 3]),                                   // vLLM: reply > window - prompt
    (r"given: # `inputs` tokens and # `max_new_tokens`", [1, 2]), // Text Generation Inference
];

/// One count: the request, or the prompt where the request is not named.
const SINGLES: [&str; 17] = [
    r"requested (?:about )?# tokens",                     // OpenAI, vLLM, OpenRouter
    r"requested: #",                                      // Moonshot
    r"resulted in # tokens",                              // OpenAI
    r"prompt is too long: #",                             // Anthropic, Bedrock
    r"request contains # tokens",                         // xAI
    r"request has # input tokens",                        // vLLM
    r"prompt contains (?:at least )?# (?:input )?tokens", // Mistral, vLLM
    r"prompt has # tokens",                               // forks of llama.cpp
    r"input token count:? \(?#",                          // Gemini, Bedrock
    r"token count of #",                                  // Copilot
    r"request \(# tokens\)",                              // llama.cpp
    r"input \(# tokens\)",                                // SGLang
    r#"n_prompt_tokens"?: ?#"#,                           // llama.cpp
    r"prompt \(length #\)",                               // vLLM
    r"input length \(?#\)?",                              // vLLM, Ollama
    r"input tokens \(#\)",                                // LiteLLM and others
    r"# tokens > # maximum",                              // Anthropic
];

/// What a rate limit says it is, and what was asked of it.
const QUOTA: [&str; 1] = [r"limit:? #, (?:used:? #, )?requested:? #"];

/// A time in one or several parts: `1.146s`, `84ms`, `6m0s`, `20 seconds`.
const WAITS: [&str; 2] = [
    r"(?:try again|retry|wait)(?: again)?(?: in| after)? ((?:[0-9.]+ ?(?:ms|h|m|s)[a-z]* ?)+)",
    r#"retrydelay"?: ?"?([0-9.]+s)"#, // Gemini
];
const SPAN_PART: &str = r"([0-9.]+) ?(ms|h|m|s)";

static SUM: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(&SUMS.map(|(pattern, _)| pattern)));
static SINGLE: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(&SINGLES));
static OVER: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(&QUOTA));
static WAIT: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(&WAITS));
static SPAN: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(&[SPAN_PART]));

/// A pattern that does not compile is left out; that none is, a test says.
fn compile(patterns: &[&str]) -> Vec<Regex> {
    patterns.iter().filter_map(|pattern| Regex::new(&pattern.replace('#', N)).ok()).collect()
}

/// The tokens of the request that was over the window, where the provider names them: the prompt's, with the reply's where
/// the provider adds them up.
pub fn observed_tokens(text: &str) -> Option<u64> {
    let text = text.to_lowercase();
    let parts = |found: &Captures<'_>, group: usize| found.get(group).and_then(|number| count(number.as_str()));
    for (pattern, (_, [a, b])) in SUM.iter().zip(&SUMS) {
        let Some(found) = pattern.captures(&text) else { continue };
        if let (Some(a), Some(b)) = (parts(&found, *a), parts(&found, *b)) {
            return Some(a.saturating_add(b)).filter(|sum| *sum > 0);
        }
    }
    let found = SINGLE.iter().find_map(|pattern| pattern.captures(&text));
    found.and_then(|found| parts(&found, 1)).filter(|tokens| *tokens > 0)
}

/// Whether one request asks for more than the whole limit.
pub(super) fn is_over_quota(words: &str) -> bool {
    let Some(found) = OVER.iter().find_map(|pattern| pattern.captures(words)) else { return false };
    let part = |group: usize| found.get(group).and_then(|number| count(number.as_str()));
    part(1).zip(part(3)).is_some_and(|(limit, requested)| requested > limit)
}

/// How long the words say to wait.
pub(super) fn wait(words: &str) -> Option<Duration> {
    let part = |found: Captures<'_>| {
        let unit = match found.get(2)?.as_str() {
            "ms" => 0.001,
            "m" => 60.0,
            "h" => 3600.0,
            _ => 1.0,
        };
        Some(found.get(1)?.as_str().parse::<f64>().ok()? * unit)
    };
    let read = |found: Captures<'_>| {
        let span = found.get(1)?.as_str();
        let seconds = SPAN.iter().flat_map(|pattern| pattern.captures_iter(span)).filter_map(part).sum();
        Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
    };
    WAIT.iter().flat_map(|pattern| pattern.captures_iter(words)).find_map(read)
}

/// The count that a match of [`N`] writes.
fn count(number: &str) -> Option<u64> {
    let scale = match number.as_bytes().last()? {
        b'k' => 1e3,
        b'm' => 1e6,
        _ => {
            let is_group = |rest: &str| rest.len() == 3;
            let parts: Vec<&str> = number.split(|c: char| !c.is_ascii_digit()).collect();
            if !parts[1..].iter().all(|rest| is_group(rest)) {
                return number.parse::<f64>().ok().map(|value| value as u64);
            }
            return parts.concat().parse().ok();
        }
    };
    number[..number.len() - 1].parse::<f64>().ok().map(|value| (value * scale).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        let compiled = [SUM.len(), SINGLE.len(), OVER.len(), WAIT.len(), SPAN.len()];
        assert_eq!(compiled, [SUMS.len(), SINGLES.len(), QUOTA.len(), WAITS.len(), 1]);
    }

    #[test]
    fn counts_are_read_in_every_notation() {
        for (number, expected) in [
            ("128000", 128_000),
            ("128,000", 128_000),
            ("1,196,265", 1_196_265),
            ("128.000", 128_000),
            ("128 000", 128_000),
            ("128\u{a0}000", 128_000),
            ("128\u{202f}000", 128_000),
            ("128'000", 128_000),
            ("128’000", 128_000),
            ("128_000", 128_000),
            ("128k", 128_000),
            ("128K", 128_000),
            ("131.1k", 131_100),
            ("1.05M", 1_050_000),
            ("42", 42),
        ] {
            assert_eq!(observed_tokens(&format!("you requested {number} tokens.")), Some(expected), "{number}");
        }
    }

    #[test]
    fn waits_are_read_in_every_unit() {
        for (words, expected) in [
            ("please try again in 1.146s. visit", Some(1_146)),
            ("please try again in 84ms.", Some(84)),
            ("please try again in 6m0s.", Some(360_000)),
            ("try again in 1h2m3.5s", Some(3_723_500)),
            ("please retry in 34.07s", Some(34_070)),
            ("please wait 2 s", Some(2_000)),
            ("please retry after 20 seconds.", Some(20_000)),
            ("try again in 1 minute 5 seconds", Some(65_000)),
            (r#""retrydelay": "34s""#, Some(34_000)),
            ("please try again later", None),
            ("please retry your request. if it fails, try again in 2s", Some(2_000)),
        ] {
            assert_eq!(wait(words).map(|wait| wait.as_millis()), expected, "{words}");
        }
    }
}
