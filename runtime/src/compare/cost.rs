//! What prompts cost, with and without a provider's prompt cache.
//!
//! Decision: the plainest model that still shows what an unstable prefix costs. With a cache, what a prompt has in common
//! with the beginning of the one before is read from the cache, and the rest is input that is written into it. Entries do
//! not expire, have no least size, and no session profits from another.

use super::report::{Cost, Prices};

impl Default for Prices {
    /// What a middling model cost in 2025, in dollars: reading from the cache a tenth of the input, writing a quarter more.
    fn default() -> Prices {
        Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75 }
    }
}

impl Cost {
    /// Adds a prompt of `sent` tokens, of which `common` are the beginning of the one before.
    pub(crate) fn add(&mut self, prices: &Prices, sent: u64, common: u64) {
        let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        self.without_cache += dollars(sent, prices.input);
        let new = sent.saturating_sub(common);
        self.with_cache += dollars(common.min(sent), prices.cache_read) + dollars(new, prices.cache_write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_is_read_and_the_rest_is_written() {
        let mut cost = Cost::default();
        cost.add(&Prices { input: 2.0, cache_read: 0.5, cache_write: 4.0 }, 1_000_000, 0);
        assert_eq!((cost.without_cache, cost.with_cache), (2.0, 4.0));
        cost.add(&Prices { input: 2.0, cache_read: 0.5, cache_write: 4.0 }, 1_000_000, 500_000);
        assert_eq!((cost.without_cache, cost.with_cache), (4.0, 6.25));
    }
}
