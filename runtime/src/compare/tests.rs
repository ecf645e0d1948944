//! The measures, on sessions and engines whose values are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, MessageView, Messages, PromptAuthority,
};
use context_engine_legacy::LegacyEngine;
use context_engine_loader::{Creation, EngineHandle, Loader, LoaderOptions};
use context_engine_transcript::{TokenCounter, load_bytes};
use serde_json::{Value, json};

use super::recall::things;
use super::*;

/// Makes a plan for the messages within the budget.
type Plan = fn(Messages<'_>, u64) -> Assembly;

/// An engine that is its plan.
struct Planned(Plan);

impl ContextEngine for Planned {
    fn create(_: EngineContext<'_>) -> Result<Planned, EngineError> {
        Err(EngineError::failed("made by hand"))
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        Ok(self.0(params.messages(), params.token_budget().unwrap_or(u64::MAX)))
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

/// Everything.
fn whole(messages: Messages<'_>, _: u64) -> Assembly {
    keep(0..messages.len())
}

/// The newest message alone.
fn newest(messages: Messages<'_>, _: u64) -> Assembly {
    keep(messages.len().saturating_sub(1)..messages.len())
}

/// The first question with its answer, and the newest message.
fn first_and_newest(messages: Messages<'_>, _: u64) -> Assembly {
    let last = messages.len().saturating_sub(1);
    let mut plan = keep(0..last.min(2));
    plan.keep(last..messages.len());
    plan
}

/// Three of ten messages, by the digits of their ids, and the newest.
fn three_of_ten(messages: Messages<'_>, _: u64) -> Assembly {
    let last = messages.len().saturating_sub(1);
    let mut plan = Assembly::new();
    for (at, message) in messages.iter().enumerate() {
        if at == last || is_one_of_three(message.id.as_str()) {
            plan.keep(at..at + 1);
        }
    }
    plan
}

/// As good as random: the id's digits, mixed.
fn is_one_of_three(id: &str) -> bool {
    let mixed =
        id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 20) % 10 < 3
}

/// The identifiers of all older messages as a bare list, in the order in which they were said, and half a window.
fn list_of_identifiers(messages: Messages<'_>, budget: u64) -> Assembly {
    list(messages, budget, said)
}

/// The same made by somebody who reads tool calls as the JSON they are recorded in: quotes are paired wrongly there, so
/// pieces of lines come along as if they were quoted.
fn list_from_raw_json(messages: Messages<'_>, budget: u64) -> Assembly {
    list(messages, budget, |block| block.lines().map(str::to_owned).collect())
}

type Read = fn(&str) -> Vec<String>;

fn list(messages: Messages<'_>, budget: u64, read: Read) -> Assembly {
    let counter = TokenCounter::for_model(None);
    let mut left = budget / 2;
    let mut start = messages.len();
    for group in messages.groups_rev() {
        let Some(rest) = left.checked_sub(group.tokens) else { break };
        (left, start) = (rest, group.range.start);
    }
    // A group that is too long alone is for the host to cut.
    let newest = messages.groups_rev().next().map_or(0, |group| group.range.start);
    let start = start.min(newest);
    let mut seen = BTreeSet::new();
    let mut list: Vec<String> = messages.iter().take(start).flat_map(|message| identifiers(message, read)).collect();
    list.retain(|thing| seen.insert(thing.clone()));
    // The newest of them, should they be too many.
    let mut text = list.join("\n");
    while counter.text(&text) > budget / 3 {
        list.drain(..list.len().div_ceil(10));
        text = list.join("\n");
    }
    let mut plan = Assembly::new();
    if !text.is_empty() {
        plan.insert(json!({ "role": "user", "content": text }).to_string(), vec![]);
    }
    plan.keep(start..messages.len());
    plan
}

/// What a message names. Remembered by its text: without optimisation, finding it again for every prompt takes minutes.
fn identifiers(message: &MessageView<'_>, read: Read) -> Vec<String> {
    static KNOWN: Mutex<BTreeMap<(usize, String), Vec<String>>> = Mutex::new(BTreeMap::new());
    let texts: Vec<&str> = message.blocks.iter().map(|block| block.text.as_str()).collect();
    let text = (read as usize, texts.join("\n"));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&text) {
        return found.clone();
    }
    let of_line =
        |line: &str| things::find(line).into_iter().map(|found| line[found.range].to_owned()).collect::<Vec<_>>();
    let found: Vec<String> = texts.iter().flat_map(|text| read(text)).flat_map(|text| of_line(&text)).collect();
    known.insert(text, found.clone());
    found
}

/// The lines of a block; of a tool call those of its arguments.
fn said(block: &str) -> Vec<String> {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    match serde_json::from_str::<Value>(block) {
        Ok(Value::Object(map)) => map.values().filter_map(Value::as_str).flat_map(lines).collect(),
        _ => lines(block),
    }
}

/// Has the host compact whatever does not fit.
fn may_overflow(messages: Messages<'_>, _: u64) -> Assembly {
    let mut plan = newest(messages, 0);
    plan.prompt_authority = PromptAuthority::PREASSEMBLY_MAY_OVERFLOW;
    plan
}

fn keep(range: std::ops::Range<usize>) -> Assembly {
    let mut plan = Assembly::new();
    plan.keep(range);
    plan
}

const ENGINES: [(&str, Plan); 7] = [
    ("whole", whole),
    ("newest", newest),
    ("first-and-newest", first_and_newest),
    ("three-of-ten", three_of_ten),
    ("list-of-identifiers", list_of_identifiers),
    ("list-from-raw-json", list_from_raw_json),
    ("may-overflow", may_overflow),
];

fn open(id: &str, counter: TokenCounter) -> Result<EngineHandle, LoaderError> {
    let loader = Loader::new(LoaderOptions::default());
    let creation = Creation { counter: Some(counter), ..Creation::default() };
    let Some((_, plan)) = ENGINES.iter().find(|(name, _)| *name == id) else { return loader.engine(id, &creation) };
    let mut info = LegacyEngine::info();
    info.id = id.to_owned();
    loader.linked(Arc::new(Planned(*plan)), info, &creation)
}

/// A session of messages, each with its role and text; entry ids are `m000001` and so on.
fn session(messages: &[(&str, &str)]) -> SessionToCompare {
    let chat: Vec<Value> = messages.iter().map(|(role, text)| json!({ "role": role, "content": text })).collect();
    recorded(json!({ "messages": chat }).to_string().as_bytes())
}

fn recorded(bytes: &[u8]) -> SessionToCompare {
    let counter = TokenCounter::for_model(None);
    let mut session = load_bytes("hand-made.json", bytes).expect("a session").sessions.remove(0);
    session.count_tokens(&counter);
    SessionToCompare { file: "hand-made.json".to_owned(), session, counter }
}

fn demo() -> SessionToCompare {
    recorded(include_bytes!("../../../cli/demo/session.jsonl"))
}

fn compared(sessions: &[SessionToCompare], engines: &[&str], budgets: &[u64], jobs: usize) -> CompareReport {
    let options = CompareOptions {
        engines: engines.iter().map(|id| (*id).to_owned()).collect(),
        budgets: budgets.to_vec(),
        prices: Prices { input: 2.0, cache_read: 0.5, cache_write: 4.0 },
        keep_recent: None,
        jobs,
    };
    compare(sessions, &options, &open, &|| {}).expect("compared")
}

/// What each message costs.
fn costs(session: &SessionToCompare) -> Vec<u64> {
    session.session.history(Default::default()).messages.iter().map(|message| message.tokens).collect()
}

const BERTHS: [(&str, &str); 6] = [
    ("user", "Remember that the Saltwhistle lies at berth KAI_7 since the storm of last week."),
    ("assistant", "Noted."),
    ("user", "Also, everybody should bring warm clothes to the harbour on Friday, because the wind will be cold."),
    ("assistant", "They know."),
    ("user", "Where does she lie?"),
    ("assistant", "The ship lies at KAI_7."),
];

#[test]
fn a_thing_from_beyond_the_window_is_a_hit_when_its_sentence_is_in_the_prompt() {
    let session = session(&BERTHS);
    let tokens = costs(&session);
    // The window holds all but the first message.
    let budget = tokens[1..5].iter().sum();
    let report = compared(std::slice::from_ref(&session), &["first-and-newest", "newest"], &[budget], 1);
    let [with, without] = [&report.cells[0], &report.cells[1]];
    assert_eq!((with.measures.recall.hits, with.measures.recall.cases), (1, 1));
    assert_eq!((with.measures.recall.share, without.measures.recall.share), (Some(1.0), Some(0.0)));
    assert_eq!((without.measures.recall.hits, without.measures.recall.cases), (0, 1));
    let miss = &without.misses[0];
    assert_eq!((miss.turn, miss.call, miss.said_turn), (3, 1, 1));
    assert_eq!((miss.thing.as_str(), miss.kind.as_str(), miss.line.as_str()), ("KAI_7", "symbol", BERTHS[0].1));
    assert_eq!(miss.said_in, session.session.entries[0].id);
    assert!(with.misses.is_empty());
}

#[test]
fn what_a_plain_window_holds_or_the_system_prompt_says_is_no_case() {
    let mut session = session(&BERTHS);
    let tokens = costs(&session);
    let budget = tokens[..5].iter().sum();
    let report = compared(std::slice::from_ref(&session), &["newest"], &[budget], 1);
    assert_eq!(report.cells[0].measures.recall, Recall::default());
    let system = "You know that KAI_7 is a berth.".to_owned();
    let budget = tokens[1..5].iter().sum::<u64>() + session.counter.text(&system);
    session.session.system = Some(system);
    let report = compared(&[session], &["newest"], &[budget], 1);
    assert_eq!(report.cells[0].measures.recall, Recall::default());
}

#[test]
fn what_the_newest_message_says_is_no_case_even_if_it_does_not_fit() {
    let long =
        format!("The Saltwhistle lies at berth KAI_7 since the storm of last week. {}", "Waves roll. ".repeat(400));
    let session =
        session(&[("user", "Hello"), ("assistant", "Yes?"), ("user", &long), ("assistant", "She is at KAI_7.")]);
    let report = compared(&[session], &["newest"], &[500], 1);
    assert_eq!(report.cells[0].measures.recall, Recall::default());
}

#[test]
fn tokens_cost_and_prefix_of_a_session_made_by_hand() {
    let session = session(&BERTHS);
    let t = costs(&session);
    let report = compared(std::slice::from_ref(&session), &["first-and-newest"], &[1_000], 1);
    let cell = &report.cells[0];
    // First question; it, its answer and the second question; the same with the third question in place of the second.
    let sent = [t[0], t[0] + t[1] + t[2], t[0] + t[1] + t[4]];
    let common = [0, t[0], t[0] + t[1]];
    assert_eq!(cell.calls.iter().map(|call| call.sent_tokens).collect::<Vec<_>>(), sent);
    let share = |at: usize| common[at] as f64 / sent[at] as f64;
    assert_eq!(cell.calls.iter().map(|call| call.prefix).collect::<Vec<_>>(), [None, Some(share(1)), Some(share(2))]);
    assert_eq!(cell.measures.prefix_stability, Some((share(1) + share(2)) / 2.0));
    let mut sorted = sent;
    sorted.sort_unstable();
    let total: u64 = sent.iter().sum();
    assert_eq!(cell.measures.sent, Spread { p50: sorted[1], p95: sorted[2], max: sorted[2], total });
    let read: u64 = common.iter().sum();
    let (without, with) = (total as f64 * 2e-6, read as f64 * 0.5e-6 + (total - read) as f64 * 4e-6);
    let cost = cell.measures.cost;
    assert!((cost.without_cache - without).abs() < 1e-12 && (cost.with_cache - with).abs() < 1e-12, "{cost:?}");
    assert_eq!((cell.measures.calls, cell.measures.fallbacks, cell.measures.fitted), (3, 0, 0));
    assert_eq!(report.pooled[0].measures, cell.measures);
}

#[test]
fn compactions_and_what_their_summaries_cost_are_those_of_the_replay() {
    let session = demo();
    let report = compared(std::slice::from_ref(&session), &["legacy", "may-overflow"], &[8_000], 2);
    for cell in &report.cells {
        let engine = &report.engines[cell.engine].id;
        let options = ReplayOptions { budget: 8_000, ..ReplayOptions::default() };
        let replay = crate::Replay::new(&session.session, session.counter, options).expect("a replay");
        let handle = open(engine, session.counter).expect("opened");
        let summary = replay.run(&handle, engine, |_, _| Ok::<(), RuntimeError>(())).expect("played");
        let compacted = cell.calls.iter().filter(|call| call.compacted).count();
        assert!(compacted > 0 && summary.summary_tokens > 0, "{engine}");
        assert_eq!((cell.measures.compactions, compacted), (summary.compactions, summary.compactions), "{engine}");
        assert_eq!(cell.measures.summary_tokens, summary.summary_tokens, "{engine}");
        assert_eq!(cell.measures.sent.total, summary.sent_tokens, "{engine}");
    }
}

#[test]
fn a_bare_list_of_all_older_identifiers_scores_nothing() {
    let session = demo();
    let report = compared(&[session], &["list-of-identifiers"], &[8_000, 16_000], 2);
    for cell in &report.cells {
        let recall = cell.measures.recall;
        assert!(recall.cases >= 20, "{recall:?}");
        assert_eq!(recall.hits, 0, "{recall:?}");
        assert_eq!(cell.measures.fallbacks, 0, "{:?}", cell.measures.reasons);
    }
}

#[test]
fn a_cruder_list_scores_next_to_nothing() {
    let report = compared(&[demo()], &["list-from-raw-json"], &[8_000], 2);
    let recall = report.cells[0].measures.recall;
    assert!(recall.cases >= 100 && recall.hits * 50 <= recall.cases, "{recall:?}");
}

#[test]
fn random_older_text_scores_what_its_share_predicts() {
    let nouns = ["harbour", "crane", "pilot", "anchor", "buoy", "ferry", "rope", "tide", "lantern", "barge", "gull"];
    let verbs = ["carries", "needs", "follows", "leaves", "watches", "lifts", "meets"];
    // A word of two nouns: 121 of them, so that none is common.
    let pair = |n: usize| format!("{}{}", nouns[n % 11], nouns[n / 11 % 11]);
    let mut messages: Vec<(&str, String)> = Vec::new();
    let code = |n: usize| format!("PC-{}", 20_000 + n * 7);
    for n in 0..400 {
        let (a, b, c, d) = (pair(n), pair(n + 30), pair(n + 60), pair(n + 90));
        let verb = verbs[n * 3 % verbs.len()];
        messages
            .push(("user", format!("Tonight the {a} {verb} the {b} of call {} behind number {n} {c} {d}", code(n))));
        messages.push(("assistant", format!("Understood, line {n}")));
    }
    for n in 0..100 {
        messages.push(("user", format!("Continue with step {n}")));
        messages.push(("assistant", format!("See {} and {}", code(n), code(n + 100))));
    }
    let messages: Vec<(&str, &str)> = messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let session = session(&messages);
    // What the window holds is the second half of the calls that were named, and the questions.
    let budget = costs(&session)[500..].iter().sum();
    let report = compared(&[session], &["three-of-ten"], &[budget], 1);
    let Measures { recall, fitted, fallbacks, .. } = &report.cells[0].measures;
    assert_eq!((*fitted, *fallbacks), (0, 0));
    assert_eq!(recall.cases, 200, "{recall:?}");
    let (low, high) = (recall.low.expect("cases"), recall.high.expect("cases"));
    assert!(low <= 0.3 && 0.3 <= high, "{recall:?}");
}

#[test]
fn two_runs_give_the_same_report_whatever_the_number_of_threads() {
    let sessions = [demo(), session(&BERTHS)];
    let run = |jobs| {
        let mut report = compared(&sessions, &["legacy", "first-and-newest", "newest"], &[16_000, 8_000], jobs);
        let cells = report.cells.iter_mut().map(|cell| &mut cell.measures);
        cells.chain(report.pooled.iter_mut().map(|pooled| &mut pooled.measures)).for_each(|measures| {
            measures.assemble_us = Spread::default();
        });
        report
    };
    let first = run(1);
    assert_eq!(first, run(4));
    assert_eq!(first.budgets, [8_000, 16_000]);
    let keys: Vec<_> = first.cells.iter().map(|cell| (cell.session, cell.engine, cell.budget)).collect();
    let expected: Vec<_> = (0..2).flat_map(|s| (0..3).flat_map(move |e| [8_000, 16_000].map(|b| (s, e, b)))).collect();
    assert_eq!(keys, expected);
}

#[test]
fn a_budget_below_the_system_prompt_costs_its_cells_and_no_others() {
    let mut session = session(&BERTHS);
    session.session.system = Some("Answer politely. ".repeat(50));
    let report = compared(&[session], &["newest"], &[100, 1_000], 1);
    let [small, large] = [&report.cells[0], &report.cells[1]];
    assert!(small.error.as_deref().is_some_and(|error| error.contains("the system prompt takes")), "{:?}", small.error);
    assert_eq!((small.calls.len(), small.measures.clone()), (0, Measures::default()));
    assert_eq!((large.error.as_deref(), large.calls.len()), (None, 3));
}

#[test]
fn the_prompt_that_is_shown_is_the_one_where_engines_differ_most() {
    let session = session(&BERTHS);
    let t = costs(&session);
    let report = compared(&[session], &["whole", "newest"], &[1_000], 1);
    let place = |prompt: &SamplePrompt| (prompt.session, prompt.engine, prompt.budget, prompt.turn, prompt.call);
    assert_eq!(report.prompts.iter().map(place).collect::<Vec<_>>(), [(0, 0, 1_000, 3, 1), (0, 1, 1_000, 3, 1)]);
    let parts: Vec<_> =
        report.prompts[0].parts.iter().map(|part| (part.kind.as_str(), part.turn, part.tokens)).collect();
    let kinds = ["user", "assistant", "user", "assistant", "user"];
    let turns = [1, 1, 2, 2, 3];
    let expected: Vec<_> = (0..5).map(|at| (kinds[at], Some(turns[at]), t[at])).collect();
    assert_eq!(parts, expected);
    assert_eq!(report.prompts[1].parts.len(), 1);
}
