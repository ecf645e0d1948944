//! What a provider's refusal means: from its status and words to the kind a turn acts on.
//!
//! Decision: words decide before statuses. Providers send an overflow as 400, 413, 422, 429 and 500, and a rate limit as
//! 400, 413 and 429; what they write is more uniform than how they number it. The words are tables (`texts.rs`), a row per
//! wording that was seen, so a new one is a new row and a new case in the tests.
//!
//! Decision: in doubt an error is no overflow. A wrong "overflow" compacts a session for nothing, a wrong "failed" shows a
//! person what the provider said. So rate limits, billing and limits that no compaction can meet are looked for first
//! (contract §2.4, 0).

#[cfg(test)]
mod tests;
mod texts;
mod tokens;

use std::time::Duration;

pub use tokens::observed_tokens;

use super::ModelErrorKind;

/// What came in place of a reply. What is not known is `None` or empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProviderError<'a> {
    /// HTTP status, or the number a stream's error object carries in its place.
    pub status: Option<u16>,
    /// `code`, `type` or `status` of the error object, several of them separated by spaces.
    pub code: &'a str,
    /// What it says.
    pub text: &'a str,
    /// When to come back, from a header.
    pub retry_after: Option<Duration>,
}

impl ProviderError<'_> {
    /// What the turn does about it.
    ///
    /// Sizes over a limit per minute are [`ModelErrorKind::RateLimited`] while waiting helps, and
    /// [`ModelErrorKind::RequestTooLarge`] when the one request is over the whole limit: the quota is not the window, so
    /// neither waiting nor a compaction to the window's size can meet it.
    pub fn kind(&self) -> ModelErrorKind {
        let words = format!("{} {}", self.code, self.text).to_lowercase();
        let says = |table: &[texts::Row]| texts::any(table, &words);
        let overflow = || ModelErrorKind::Overflow { observed: observed_tokens(&words) };
        let limited = || ModelErrorKind::RateLimited { retry_after: self.retry_after.or_else(|| tokens::wait(&words)) };

        if says(texts::ACCOUNT) || self.status == Some(402) {
            return ModelErrorKind::Unauthorized;
        }
        if says(texts::LONG_CONTEXT_TIER) {
            return overflow();
        }
        if says(texts::RATE) {
            let hopeless = says(texts::PER_MINUTE) && tokens::is_over_quota(&words);
            return if hopeless { ModelErrorKind::RequestTooLarge } else { limited() };
        }
        if says(texts::BILLING) {
            return ModelErrorKind::Unauthorized;
        }
        if says(texts::NO_OVERFLOW) {
            return ModelErrorKind::Failed;
        }
        if says(texts::OVERFLOW) {
            return overflow();
        }
        if says(texts::REFUSAL) {
            return ModelErrorKind::Refused;
        }
        if says(texts::TOO_LARGE) || self.status == Some(413) {
            return ModelErrorKind::RequestTooLarge;
        }
        match self.status {
            Some(429) => limited(),
            Some(401 | 403) => ModelErrorKind::Unauthorized,
            Some(408 | 504 | 524) => ModelErrorKind::Timeout,
            Some(500 | 502 | 503 | 520..=523 | 529) => ModelErrorKind::Unavailable,
            _ if says(texts::KEY) => ModelErrorKind::Unauthorized,
            Some(_) => ModelErrorKind::Failed,
            None if says(texts::TIMEOUT) => ModelErrorKind::Timeout,
            None if says(texts::DOWN) => ModelErrorKind::Unavailable,
            None => ModelErrorKind::Failed,
        }
    }
}

/// Whether the same request may succeed a little later.
pub fn is_passing(kind: ModelErrorKind) -> bool {
    matches!(kind, ModelErrorKind::RateLimited { .. } | ModelErrorKind::Unavailable | ModelErrorKind::Timeout)
}
