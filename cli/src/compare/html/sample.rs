//! A made-up comparison for tests and for looking at: plausible numbers, and texts as bad as texts get.

use context_engine_runtime::compare::{
    CallPoint, Cell, CompareReport, Cost, EngineFacts, Measures, Miss, Pooled, Prices, PromptPart, Recall,
    SamplePrompt, SessionFacts, Spread,
};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(in crate::compare) struct Size {
    pub(in crate::compare) engines: usize,
    pub(in crate::compare) sessions: usize,
    /// Calls of a session.
    pub(in crate::compare) calls: usize,
    /// Misses of a cell.
    pub(in crate::compare) misses: usize,
}

pub(in crate::compare) const SMALL: Size = Size { engines: 2, sessions: 1, calls: 40, misses: 12 };
/// For looking at: three engines and one that does not open.
pub(super) const SHOWN: Size = Size { engines: 4, sessions: 4, calls: 340, misses: 64 };

/// What must come out as text, whatever it says.
pub(super) const NASTY: &str =
    "</script><script>document.title='broken'</script><img src=http://example.invalid/x onerror=alert(1)> \"'`&amp;";

const IDS: [&str; 4] =
    ["legacy", "sliding-window", "graph-memory-with-a-remarkably-long-name", "<b>broken</b>\u{202e}engine"];
const BUDGETS: [u64; 3] = [8_000, 32_000, 128_000];
/// Share of the cases each engine has, by budget.
const SHARES: [[f64; 3]; 4] = [[0.34, 0.41, 0.58], [0.06, 0.08, 0.55], [0.52, 0.63, 0.61], [0.34, 0.41, 0.58]];
const CASES: [usize; 3] = [96, 61, 4];

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

/// The comparison.
pub(in crate::compare) fn report(size: Size) -> CompareReport {
    let engines: Vec<_> = (0..size.engines)
        .map(|i| EngineFacts {
            id: IDS[i % 4].to_owned(),
            name: ["legacy", "Sliding window", "Graph memory (experimental)", NASTY][i % 4].to_owned(),
            version: ["0.1.0", "1.2.0", "0.0.3-alpha.7", ""][i % 4].to_owned(),
            unavailable: (i == 3).then(|| format!("built for interface 0.9, this host has 1.0 {NASTY}")),
        })
        .collect();
    let sessions: Vec<_> = (0..size.sessions)
        .map(|i| SessionFacts {
            id: match i {
                1 => format!("{NASTY}{}", "very-long-session-name-without-any-space".repeat(6)),
                _ => format!("2026-03-{:02}-refactor-parser", i + 1),
            },
            file: format!("recordings/{}session-{i}.jsonl", "nested-folder/".repeat(i % 3)),
            turns: if i == 2 { 1 } else { 9 + i * 4 },
            calls: size.calls,
            messages: size.calls * 2 + 14,
            tokens: 1_400 * size.calls as u64,
        })
        .collect();
    let mut cells = Vec::new();
    for (session, facts) in sessions.iter().enumerate() {
        for engine in 0..size.engines {
            for (b, &budget) in BUDGETS.iter().enumerate() {
                cells.push(cell(size, facts, session, engine, (b, budget)));
            }
        }
    }
    let pooled = (0..size.engines)
        .flat_map(|engine| BUDGETS.into_iter().map(move |budget| (engine, budget)))
        .map(|(engine, budget)| {
            let of = |c: &&Cell| c.engine == engine && c.budget == budget;
            Pooled { engine, budget, measures: sum(&cells.iter().filter(of).map(|c| &c.measures).collect::<Vec<_>>()) }
        })
        .collect();
    let prompts = (0..size.engines.min(3)).map(|engine| prompt(engine, sessions[0].turns)).collect();
    CompareReport {
        schema_version: 1,
        prices: Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75 },
        engines,
        budgets: BUDGETS.to_vec(),
        sessions,
        cells,
        pooled,
        prompts,
    }
}

fn cell(size: Size, facts: &SessionFacts, session: usize, engine: usize, (b, budget): (usize, u64)) -> Cell {
    let mut dice = Dice((session * 100 + engine * 10 + b) as u64);
    let broken = engine == 2 && session == 3 && b == 2;
    let played = if broken { size.calls / 3 } else { size.calls };
    let calls: Vec<_> = (0..played)
        .map(|i| {
            let history = 600 + i as u64 * 1_400;
            let full = budget * 9 / 10 - dice.roll(budget / 12);
            // Fills up, is compacted, fills up again; the window engine stays full.
            let wave = budget / 3 + (history * 4 / 5) % (budget / 2).max(1);
            let sent = history.min(if engine == 1 { full } else { wave + dice.roll(budget / 40) });
            let compacted = engine != 1 && i % 37 == 36 && history > budget;
            let steady = if engine == 1 { 0.21 } else { 0.97 };
            CallPoint {
                turn: 1 + i * facts.turns / size.calls,
                call: 1 + i % 12,
                history_tokens: history,
                sent_tokens: sent,
                prefix: (i > 0).then(|| match (compacted, history < budget) {
                    (true, _) => 0.12,
                    (_, true) => 0.995,
                    _ => steady - dice.roll(30) as f64 / 1e3,
                }),
                compacted,
                fell_back: engine == 2 && i % 97 == 50,
                cases: usize::from(i % 4 == 0),
                hits: 0,
            }
        })
        .collect();
    let cases = CASES[b];
    let hits = (cases as f64 * SHARES[engine % 4][b]).round() as usize;
    let total: u64 = calls.iter().map(|call| call.sent_tokens).sum();
    let without_cache = total as f64 * 3e-6;
    let fallbacks = calls.iter().filter(|call| call.fell_back).count();
    let median = calls.get(calls.len() / 2).map_or(0, |call| call.sent_tokens);
    let measures = Measures {
        calls: calls.len(),
        sent: Spread { p50: median, p95: budget * 88 / 100, max: budget * 9 / 10, total },
        cost: Cost { without_cache, with_cache: without_cache * if engine == 1 { 0.85 } else { 0.24 } },
        compactions: calls.iter().filter(|call| call.compacted).count(),
        summary_tokens: if engine == 1 { 0 } else { budget / 9 },
        assemble_us: Spread {
            p50: [420, 95, 38_000, 420][engine % 4],
            p95: 2_100 * (1 + engine as u64),
            max: 9_000,
            total: 0,
        },
        fallbacks,
        fitted: if engine == 2 { 2 } else { 0 },
        reasons: if fallbacks > 0 { vec![(format!("took longer than 2 s {NASTY}"), fallbacks)] } else { Vec::new() },
        prefix_stability: Some([0.94, 0.24, 0.91, 0.94][engine % 4] + b as f64 * 0.01),
        recall: recall(hits, cases),
    };
    let misses =
        (0..size.misses.min(size.misses * (cases - hits).max(1))).map(|i| miss(&mut dice, i, facts.turns)).collect();
    Cell {
        session,
        engine,
        budget,
        error: broken.then(|| format!("the engine answered with no messages at turn 7 {NASTY}")),
        measures,
        calls,
        misses,
    }
}

fn miss(dice: &mut Dice, index: usize, turns: usize) -> Miss {
    let number = dice.roll(5_000);
    let (kind, thing, line) = match index % 6 {
        0 => ("path", format!("crates/parser/src/lexer_{number}.rs"), "error[E0308] in X:41"),
        1 => ("url", format!("https://example.org/issues/{number}?a=1&b=2"), "see X for the <details> of it"),
        2 => ("hash", format!("{number:08x}9fe3"), "the commit X reverted the change, “for now”"),
        3 => ("number", format!("{number} ms"), "median went from X to something else entirely after the change"),
        4 => ("symbol", format!("TokenStream::peek_{number}"), "X is called in a loop (see above) 漢字 é 🦀"),
        _ => ("quoted", format!("{NASTY} {number}"), "\u{1b}[31mred\u{1b}[0m \u{202e}desrever\u{202c} X"),
    };
    let turn = 2 + index * turns.saturating_sub(2) / 64 % turns.max(1);
    let padding = if index % 11 == 3 { "word ".repeat(200) } else { String::new() };
    Miss {
        turn,
        call: 1 + index % 12,
        line: format!("{padding}{}", line.replace('X', &thing)),
        thing,
        kind: kind.to_owned(),
        said_in: format!("e{number:06x}"),
        said_turn: 1 + turn / 3,
    }
}

fn recall(hits: usize, cases: usize) -> Recall {
    if cases == 0 {
        return Recall::default();
    }
    let (share, n, z) = (hits as f64 / cases as f64, cases as f64, 1.96);
    let center = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    Recall {
        hits,
        cases,
        share: Some(share),
        low: Some((center - half).max(0.0)),
        high: Some((center + half).min(1.0)),
    }
}

fn sum(all: &[&Measures]) -> Measures {
    let mut out = Measures::default();
    for m in all {
        out.calls += m.calls;
        out.sent.total += m.sent.total;
        out.sent.p50 = m.sent.p50;
        out.sent.p95 = m.sent.p95;
        out.cost.with_cache += m.cost.with_cache;
        out.cost.without_cache += m.cost.without_cache;
        out.compactions += m.compactions;
        out.summary_tokens += m.summary_tokens;
        out.assemble_us = m.assemble_us;
        out.fallbacks += m.fallbacks;
        out.fitted += m.fitted;
        out.prefix_stability = m.prefix_stability;
        out.recall.hits += m.recall.hits;
        out.recall.cases += m.recall.cases;
    }
    out.reasons = all.iter().flat_map(|m| m.reasons.clone()).take(1).map(|(why, _)| (why, out.fallbacks)).collect();
    out.recall = recall(out.recall.hits, out.recall.cases);
    out
}

fn prompt(engine: usize, turns: usize) -> SamplePrompt {
    let mut dice = Dice(engine as u64 + 7);
    let part = |kind: &str, turn, tokens| PromptPart {
        kind: kind.to_owned(),
        turn,
        tokens,
        text: if tokens % 5 == 0 {
            NASTY.to_owned()
        } else {
            format!("the {kind} begins like this, and goes on ").repeat(4)
        },
    };
    let mut parts = vec![part("system", None, 1_850)];
    if engine != 1 {
        parts.push(part("summary", None, 2_600 + 700 * engine as u64));
    }
    for i in 0..[60, 210, 40][engine % 3] {
        let kind = ["tool call", "tool result", "assistant", "tool result", "user", "tool call", "thinking"][i % 7];
        let most = [60, 1_400, 260, 700, 180, 40, 90][i % 7];
        parts.push(part(kind, Some(1 + i % turns), 8 + dice.roll(most)));
    }
    SamplePrompt { session: 0, engine, budget: 32_000, turn: turns, call: 3, parts }
}
