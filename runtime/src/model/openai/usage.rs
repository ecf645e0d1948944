//! What a call cost, in the words of several providers.
//!
//! Decision: `prompt_tokens` holds the cached ones in this protocol, OpenClaw's `input` does not, so they are taken out. A
//! cache larger than the prompt shows a provider that counts the two apart. `total_tokens` beyond prompt and reply is
//! reasoning that some providers leave out of the reply; it is paid for as a reply.

use serde_json::Value;

use crate::model::Usage;

/// `usage` of a reply or of a piece of one; `None` for one that says nothing.
pub(super) fn read(usage: &Value) -> Option<Usage> {
    let number = |path: &[&str]| {
        let found = path.iter().try_fold(usage, |value, name| value.get(*name))?;
        found.as_u64().or_else(|| found.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
    };
    let first = |paths: &[&[&str]]| paths.iter().find_map(|path| number(path)).unwrap_or(0);
    let prompt = first(&[&["prompt_tokens"], &["input_tokens"]]);
    let reply = first(&[&["completion_tokens"], &["output_tokens"]]);
    let cache_read = first(&[
        &["prompt_tokens_details", "cached_tokens"],
        &["cached_tokens"],           // Moonshot
        &["prompt_cache_hit_tokens"], // DeepSeek
        &["cache_read_input_tokens"], // Anthropic behind a router
    ]);
    let cache_write = first(&[
        &["prompt_tokens_details", "cache_write_tokens"], // OpenRouter
        &["cache_creation_input_tokens"],                 // Anthropic behind a router
    ]);
    let total = first(&[&["total_tokens"]]);
    let cached = cache_read.saturating_add(cache_write);
    let (input, whole) =
        if cached > prompt { (prompt, prompt.saturating_add(cached)) } else { (prompt - cached, prompt) };
    let output = reply.max(total.saturating_sub(whole));
    let usage = Usage { input, output, cache_read, cache_write };
    (usage.total() > 0).then_some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_not_counted_twice() {
        for (given, [input, output, cache_read, cache_write], total) in [
            (r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}"#, [100, 20, 0, 0], 120),
            (
                r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":64}}"#,
                [36, 20, 64, 0],
                120,
            ),
            (
                r#"{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":64,"cache_write_tokens":30}}"#,
                [6, 20, 64, 30],
                120,
            ),
            (
                r#"{"prompt_tokens":100,"completion_tokens":20,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}"#,
                [36, 20, 64, 0],
                120,
            ),
            (r#"{"prompt_tokens":100,"completion_tokens":20,"cached_tokens":40}"#, [60, 20, 40, 0], 120),
            // Counted apart.
            (r#"{"prompt_tokens":10,"completion_tokens":20,"cache_read_input_tokens":900}"#, [10, 20, 900, 0], 930),
            // Reasoning beside the reply, and in it.
            (
                r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":170,"completion_tokens_details":{"reasoning_tokens":50}}"#,
                [100, 70, 0, 0],
                170,
            ),
            (
                r#"{"prompt_tokens":100,"completion_tokens":70,"total_tokens":170,"completion_tokens_details":{"reasoning_tokens":50}}"#,
                [100, 70, 0, 0],
                170,
            ),
            (r#"{"prompt_tokens":100.0,"completion_tokens":null,"prompt_tokens_details":null}"#, [100, 0, 0, 0], 100),
        ] {
            let usage = read(&serde_json::from_str(given).expect("JSON")).expect(given);
            assert_eq!(usage, Usage { input, output, cache_read, cache_write }, "{given}");
            assert_eq!(usage.total(), total, "{given}");
        }
    }

    #[test]
    fn a_usage_of_nothing_is_none() {
        for given in ["null", "{}", r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#, "7", "[]"] {
            assert_eq!(read(&serde_json::from_str(given).expect("JSON")), None, "{given}");
        }
    }
}
