//! Random turns and faults: whatever happens, what was said is in the transcript, once, in the order it was said in, and
//! a session that is opened again is the one that was closed.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use context_engine_interface::{AfterTurnResult, Assembly, BootstrapResult, EngineError, MaintainResult};
use context_engine_runtime::model::{ModelErrorKind, ScriptedModel, Step};
use context_engine_runtime::{Session, TurnRequest};
use context_engine_transcript::{HistoryOptions, load};
use serde_json::{Value, json};

use support::{Echo, Host, Script, plans};

/// A small generator: the same seed, the same session.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)))
    }

    fn below(&self, n: u64) -> u64 {
        let mut state = self.0.load(Ordering::Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.store(state, Ordering::Relaxed);
        state % n
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What was said, as the script says it.
type Said = Arc<Mutex<Vec<String>>>;

/// A model that answers, calls tools, thinks, breaks off, refuses and never ends a text where a test can tell.
fn model(dice: &Dice, said: &Said) -> ScriptedModel {
    let (dice, said) = (dice.clone(), Arc::clone(said));
    let number = AtomicU64::new(0);
    ScriptedModel::from_fn(move |_| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let text = format!("A{}-{number} {}", dice.below(1_000_000), "word ".repeat(dice.below(120) as usize));
        let note = |text: &str| said.lock().expect("a list").push(format!("assistant {text}"));
        match dice.below(12) {
            0 => Step::fail(ModelErrorKind::Unavailable),
            1 => Step::overflow(None),
            2 => Step::timeout(),
            3 => {
                note(&text);
                Step::text(text).and_break_off()
            }
            4..=6 => {
                note(&text);
                let calls = 1 + dice.below(3);
                (0..calls).fold(Step::text(text), |step, n| step.and_call(format!("c{number}-{n}"), "read", json!({})))
            }
            _ => {
                note(&text);
                Step::text(text)
            }
        }
    })
    .window(3_000)
}

/// An engine that fails now and then, in every member.
fn engine(dice: &Dice) -> Script {
    let fails = |member: &'static str| {
        let dice = dice.clone();
        move || if dice.one_in(6) { Err(EngineError::failed(format!("{member} failed"))) } else { Ok(()) }
    };
    let (bootstrap, after, plan) = (fails("bootstrap"), fails("after_turn"), fails("assemble"));
    let (maintain, rewriting) = (fails("maintain"), dice.clone());
    Script {
        owns_compaction: dice.one_in(2),
        background: dice.one_in(2),
        bootstrap: Some(Box::new(move |_, ()| bootstrap().map(|()| BootstrapResult::default()))),
        maintain: Some(Box::new(move |ctx, ()| {
            maintain()?;
            if rewriting.one_in(4) {
                shorten_a_result(ctx)?;
            }
            Ok(MaintainResult::default())
        })),
        after_turn: Some(Box::new(move |_, ()| after().map(|()| AfterTurnResult::default()))),
        assemble: plans(move |params| {
            plan()?;
            let all = params.messages().len();
            let mut plan = Assembly::new();
            plan.keep(all.saturating_sub(8)..all);
            Ok(plan)
        }),
        ..Script::default()
    }
}

/// Puts a shorter result in the place of the newest one: rewriting must not lose or move anything else.
fn shorten_a_result(ctx: &context_engine_interface::CallContext<'_>) -> Result<(), EngineError> {
    let page = ctx.read_transcript(None, 10_000)?;
    let entries: Vec<Value> = serde_json::from_str(&page).map_err(|error| EngineError::failed(error.to_string()))?;
    let result = entries.iter().rev().find(|entry| entry["message"]["role"] == "toolResult");
    let Some(entry) = result else { return Ok(()) };
    let mut message = entry["message"].clone();
    message["details"] = json!({ "rewritten": true, "times": message["details"]["times"].as_u64().unwrap_or(0) + 1 });
    let request = json!({ "replacements": [{ "entryId": entry["id"], "message": message }] });
    ctx.rewrite_transcript(&request.to_string()).map(drop)
}

/// Roles and texts of the branch that is in the file, without the results of tools and replies without text.
fn in_file(session: &Session) -> Vec<String> {
    let recorded = load(session.path()).expect("the transcript").sessions.remove(0);
    let messages = recorded.history(HistoryOptions::default()).messages;
    let lines = messages.iter().map(|message| format!("{} {}", message.role_name(), message.text()));
    lines.filter(|line| !line.starts_with("toolResult") && line != "assistant ").collect()
}

/// Every message of the conversation to the letter.
fn conversation(session: &Session) -> Vec<String> {
    session.messages().iter().map(|message| format!("{} {}", message.id, message.json)).collect()
}

fn play(seed: u64, turns: usize) {
    let dice = Dice::new(seed);
    let said = Said::default();
    let tools = || vec![Echo::tool("read", &"line ".repeat(100))];
    let mut host = Host::with(engine(&dice), model(&dice, &said), |options| options.tools = tools());
    for turn in 0..turns {
        match dice.below(10) {
            0 => host.runtime.select_engine("legacy"),
            1 => host.runtime.select_engine("probe"),
            2 => drop(host.block_on(host.runtime.compact(&host.session, None))),
            3 => {
                let before = conversation(&host.session);
                host = host.restarted(engine(&dice), model(&dice, &said));
                let after = conversation(&host.session);
                assert_eq!(after, before, "seed {seed}, turn {turn}");
            }
            _ => {}
        }
        let question = format!("U{turn} {}", "why ".repeat(dice.below(40) as usize));
        said.lock().expect("a list").push(format!("user {question}"));
        let mut request = TurnRequest::text(question);
        request.tools = Some(tools());
        let cancel = request.cancel.clone();
        if dice.one_in(12) {
            cancel.cancel();
        }
        host.ask(request);
        let expected = said.lock().expect("a list").clone();
        assert_eq!(in_file(&host.session), expected, "seed {seed}, turn {turn}");
    }
    let before = conversation(&host.session);
    let host = host.restarted(Script::default(), ScriptedModel::new(["bye"]));
    assert_eq!(conversation(&host.session), before, "seed {seed}");
}

#[test]
fn nothing_that_was_said_is_lost_moved_or_said_twice() {
    for seed in 1..=24 {
        play(seed, 30);
    }
}
