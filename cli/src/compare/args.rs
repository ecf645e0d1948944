//! The command line of `compare`. Doc comments here are what `--help` prints.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use context_engine_runtime::compare::Prices;

use crate::args::{Directories, Tokens};

const COMPARE_HELP: &str = "\
Each session is replayed with each engine and each budget, as `replay` does it, and each time on an engine that remembers
nothing. The numbers are the same on every run, times apart.

What the columns say:
  tokens/call   what a prompt costs, at the median and at the 95th percentile; total for all calls
  cost          of all prompts, in dollars: without prompt caching, and with it (what a prompt has in common with the
                beginning of the one before is read from the cache, the rest is written into it)
  prefix        how much of a prompt is the beginning of the one before, on average: what caching lives on
  recall        grounding recall: of the identifiers a recorded reply relies on that a plain newest-first window of the same
                budget would no longer hold, how many were in the prompt, with the words around them; with its 95 %
                confidence interval. 0 % is what such a window has, by definition
  compactions   how often older history was summarised, and the tokens of these summaries
  assemble      time the engine took for a prompt, at the median
  fallbacks     prompts another engine made, because this one failed

docs/compare.md defines all of them, with what they cannot see.

Examples:
  context-engine compare session.jsonl --engines legacy,sliding-window --budget 8k,32k,128k
  context-engine compare ~/.claude/projects/my-project --engines legacy,sliding-window      # a folder: all sessions in it
  context-engine compare session.jsonl --html report.html                                   # one page, to be read or sent
  context-engine compare session.jsonl --engines my-engine --budget 16k --misses            # what the prompts lacked
  context-engine compare session.jsonl --engines legacy,my-engine --plugins target/release --json | jq '.pooled[]'
  context-engine compare session.jsonl --prices 1.25,0.125,1.25                             # dollars per million tokens

Exit code 1: an engine did not serve every call, or a session could not be played with a budget; both are said.";

/// Compare engines on recorded sessions: what they send, what it costs, and whether it is what the replies relied on.
///
/// A table for each budget: all sessions together, then each. The recorded files are never written.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub(crate) struct CompareArgs {
    /// Recorded sessions, or folders with recorded sessions; of a file with several, all of them
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<PathBuf>,
    /// Ids of the engines
    #[arg(long, value_name = "ID,…", value_delimiter = ',', default_value = "legacy,sliding-window")]
    pub(crate) engines: Vec<String>,
    /// Tokens one prompt may cost, system prompt included
    #[arg(long, value_name = "TOKENS,…", value_delimiter = ',', default_value = "8k,32k,128k")]
    pub(crate) budget: Vec<Tokens>,
    /// Dollars per million tokens of input, read from the cache, and written into it
    #[arg(long, value_name = "INPUT,READ,WRITE", default_value = "3.00,0.30,3.75")]
    pub(crate) prices: PriceList,
    /// List what replies relied on and prompts lacked, each with where it was said
    #[arg(long)]
    pub(crate) misses: bool,
    /// Write a report as one HTML page as well; it needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// How many replays run at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Model the tokens are counted for [default: the recorded one]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) directories: Directories,
}

/// What tokens cost, as people write it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PriceList(pub(crate) Prices);

impl FromStr for PriceList {
    type Err = String;

    fn from_str(text: &str) -> Result<PriceList, String> {
        let price = |text: &str| text.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
        let prices: Option<Vec<f64>> = text.split(',').map(price).collect();
        match prices.as_deref() {
            Some(&[input, cache_read, cache_write]) => Ok(PriceList(Prices { input, cache_read, cache_write })),
            _ => Err("expected three prices per million tokens, such as 3.00,0.30,3.75".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_in_the_help_are_the_default_ones() {
        assert_eq!("3.00,0.30,3.75".parse(), Ok(PriceList(Prices::default())));
        for text in ["", "3", "3,4", "1,2,3,4", "a,b,c", "1,2,-3", "1,2,inf"] {
            assert!(text.parse::<PriceList>().is_err(), "{text}");
        }
    }
}
