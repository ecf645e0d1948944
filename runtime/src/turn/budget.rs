//! What a prompt may cost, and what is done when it costs more. Numbers and routes: contract §4.7, §7.3, §7.5, Part 10.

use crate::model::DEFAULT_CONTEXT_WINDOW;

/// What is kept free for the reply, in tokens, where the window is large enough.
pub const RESERVE_TOKENS: u64 = 20_000;
/// What shortening has to free beyond the overflow, in tokens.
const TRUNCATION_BUFFER: u64 = 512;

/// How the window is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Prompt and reply, in tokens.
    pub tokens: u64,
    /// What is kept free for the reply.
    pub reserve: u64,
}

impl Window {
    /// The window of a model, with at most a quarter of it kept free.
    pub fn new(tokens: Option<u64>, reserve: Option<u64>) -> Window {
        let tokens = tokens.filter(|tokens| *tokens > 0).unwrap_or(DEFAULT_CONTEXT_WINDOW);
        Window { tokens, reserve: reserve.unwrap_or(RESERVE_TOKENS).min(tokens / 4) }
    }

    /// What one prompt may cost.
    pub fn prompt_budget(self) -> u64 {
        self.tokens.saturating_sub(self.reserve).max(1)
    }
}

/// What is done about a history that is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// There is nothing to shorten.
    CompactOnly,
    /// Shortening tool results is enough.
    TruncateToolResultsOnly,
    /// It is not, and is done behind the compaction.
    CompactThenTruncate,
}

/// What is done about `overflow` tokens too many, when shortening tool results frees `reducible`.
pub(crate) fn route(overflow: u64, reducible: u64) -> Route {
    let enough = (overflow.saturating_add(TRUNCATION_BUFFER)).max(overflow.saturating_mul(3).div_ceil(2));
    match reducible {
        0 => Route::CompactOnly,
        _ if reducible >= enough => Route::TruncateToolResultsOnly,
        _ => Route::CompactThenTruncate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_at_most_a_quarter_of_the_window() {
        let window = |tokens| Window::new(tokens, None);
        assert_eq!((window(Some(64_000)).reserve, window(Some(64_000)).prompt_budget()), (16_000, 48_000));
        assert_eq!((window(Some(200_000)).reserve, window(None).prompt_budget()), (20_000, 180_000));
        assert_eq!((window(Some(0)).tokens, window(Some(1)).prompt_budget()), (200_000, 1));
    }

    #[test]
    fn shortening_alone_needs_a_margin() {
        let routes = [(100, 0), (100, 611), (100, 612), (2_000, 2_999), (2_000, 3_000)].map(|(o, r)| route(o, r));
        use Route::{CompactOnly, CompactThenTruncate, TruncateToolResultsOnly};
        let expected =
            [CompactOnly, CompactThenTruncate, TruncateToolResultsOnly, CompactThenTruncate, TruncateToolResultsOnly];
        assert_eq!(routes, expected);
    }
}
