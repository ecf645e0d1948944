//! What a comparison found: everything the table, the JSON and the HTML report show, and nothing they have to compute.

use serde::Serialize;

/// A whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompareReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// What a million tokens cost.
    pub prices: Prices,
    /// The engines, in the order they were asked for.
    pub engines: Vec<EngineFacts>,
    /// The budgets, ascending.
    pub budgets: Vec<u64>,
    /// The sessions, in the order they were given.
    pub sessions: Vec<SessionFacts>,
    /// One for each session, engine and budget: sessions outermost, budgets innermost.
    pub cells: Vec<Cell>,
    /// One for each engine and budget, over all sessions.
    pub pooled: Vec<Pooled>,
    /// One prompt to look into, per engine, of the session and budget where the engines differ most.
    pub prompts: Vec<SamplePrompt>,
}

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    /// Of input.
    pub input: f64,
    /// Of input read from the provider's cache.
    pub cache_read: f64,
    /// Of input written into the provider's cache.
    pub cache_write: f64,
}

/// An engine that was compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineFacts {
    /// What it was asked for by.
    pub id: String,
    /// For people; empty when it could not be opened, as is the version.
    pub name: String,
    /// Its own.
    pub version: String,
    /// Why it could not be opened; `legacy` answered in its place.
    pub unavailable: Option<String>,
}

/// A session that was played.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionFacts {
    /// Its id, unique within its file.
    pub id: String,
    /// Where it was read.
    pub file: String,
    /// Turns in it.
    pub turns: usize,
    /// Recorded model responses: one prompt each.
    pub calls: usize,
    /// Messages of the history.
    pub messages: usize,
    /// Of the whole history.
    pub tokens: u64,
}

/// How a number spreads over calls. A percentile is the smallest value that so many of the calls do not exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// Largest.
    pub max: u64,
    /// Sum.
    pub total: u64,
}

/// A session played with an engine and a budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Index into `sessions`.
    pub session: usize,
    /// Index into `engines`.
    pub engine: usize,
    /// Tokens a prompt may cost.
    pub budget: u64,
    /// Why it could not be played to the end; everything else is then of what was played.
    pub error: Option<String>,
    /// Over all calls.
    pub measures: Measures,
    /// One for each call, in order.
    pub calls: Vec<CallPoint>,
    /// What was relied on and not in the prompt. In the order of the calls.
    pub misses: Vec<Miss>,
}

/// An engine and a budget over all sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pooled {
    /// Index into `engines`.
    pub engine: usize,
    /// Tokens a prompt may cost.
    pub budget: u64,
    /// Over all calls of all sessions.
    pub measures: Measures,
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measures {
    /// Calls played.
    pub calls: usize,
    /// Tokens of the prompts.
    pub sent: Spread,
    /// Of all prompts.
    pub cost: Cost,
    /// How often sessions were compacted.
    pub compactions: usize,
    /// Tokens of the summaries that were written.
    pub summary_tokens: u64,
    /// Time of `assemble`, in microseconds.
    pub assemble_us: Spread,
    /// Calls another engine answered.
    pub fallbacks: usize,
    /// Prompts that were over budget and cut by the host.
    pub fitted: usize,
    /// Why other engines answered, each with how often.
    pub reasons: Vec<(String, usize)>,
    /// Mean share of a prompt that is the same as the start of the prompt before; none with fewer than two calls.
    pub prefix_stability: Option<f64>,
    /// How much of what replies relied on was there.
    pub recall: Recall,
}

/// Dollars for all prompts of the cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Every token at the price of input.
    pub without_cache: f64,
    /// What a prompt has in common with the start of the one before is read from the cache, the rest is written.
    pub with_cache: f64,
}

/// Grounding recall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recall {
    /// Things that were in the prompt with their context.
    pub hits: usize,
    /// Things that were relied on and lie beyond a plain window of the same budget.
    pub cases: usize,
    /// `hits / cases`; none without cases.
    pub share: Option<f64>,
    /// 95 % confidence interval of the share.
    pub low: Option<f64>,
    /// Its other end.
    pub high: Option<f64>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPoint {
    /// The turn, counted from 1.
    pub turn: usize,
    /// The call in the turn, counted from 1.
    pub call: usize,
    /// Of everything said before, system prompt not included.
    pub history_tokens: u64,
    /// Of the prompt, system prompt included.
    pub sent_tokens: u64,
    /// Share of this prompt that is the start of the one before; none for the first.
    pub prefix: Option<f64>,
    /// Whether the session was compacted for this call.
    pub compacted: bool,
    /// Whether another engine than the one asked for answered.
    pub fell_back: bool,
    /// As in [`Recall`].
    pub cases: usize,
    /// As in [`Recall`].
    pub hits: usize,
}

/// A case that is no hit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Miss {
    /// The turn of the reply that relies on it.
    pub turn: usize,
    /// The call in that turn.
    pub call: usize,
    /// The identifier.
    pub thing: String,
    /// `path`, `url`, `hash`, `number`, `symbol`, `quoted`.
    pub kind: String,
    /// Where it was said last before the window, with words around it: the entry's id.
    pub said_in: String,
    /// The turn of that entry; 0 before the first.
    pub said_turn: usize,
    /// The line; of a long one what stands around the thing.
    pub line: String,
}

/// A prompt as blocks, for a treemap.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplePrompt {
    /// Index into `sessions`.
    pub session: usize,
    /// Index into `engines`.
    pub engine: usize,
    /// Tokens it may cost.
    pub budget: u64,
    /// The turn it is for.
    pub turn: usize,
    /// The call in that turn.
    pub call: usize,
    /// In the order of the prompt.
    pub parts: Vec<PromptPart>,
}

/// A block of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptPart {
    /// `system`, `summary`, `user`, `assistant`, `tool result`, `tool call`, `other`.
    pub kind: String,
    /// Turn it comes from; none for the system prompt and summaries.
    pub turn: Option<usize>,
    /// What it costs.
    pub tokens: u64,
    /// The first 200 characters.
    pub text: String,
}
