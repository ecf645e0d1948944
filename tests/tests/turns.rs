//! What an engine is given of a turn: whole at its end, or up to a checkpoint in the middle of its tool loop, and by which
//! member.
//!
//! Decision: the engine is linked and writes down what it was given, one line per call, so that a test is a list of calls
//! in and a list of lines out.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, CallContext, CompactParams, CompactResult,
    ContextEngine, EngineContext, EngineError, IngestBatchParams, IngestBatchResult, IngestParams, IngestResult,
    Messages,
};
use context_engine_loader::{Creation, EngineHandle, PreparedHistory, TurnFacts, TurnTaken};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{BUDGET, history, plain_call};

/// Has the members it is told to have.
struct Recorder {
    members: &'static [&'static str],
    calls: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn note(&self, member: &'static str, given: String) -> Result<(), EngineError> {
        if !self.members.contains(&member) {
            return Err(EngineError::unsupported(member));
        }
        self.calls.lock().expect("not poisoned").push(format!("{member} {given}"));
        Ok(())
    }
}

fn ids(messages: Messages<'_>) -> String {
    messages.iter().map(|message| message.id.as_str()).collect::<Vec<_>>().join(" ")
}

impl ContextEngine for Recorder {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Err(EngineError::failed("it is linked"))
    }

    fn ingest(&self, _: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        let (id, is_heartbeat) = (params.message().id.as_str(), params.is_heartbeat());
        if id == "e3" && self.members.contains(&"ingest, but not e3") {
            return Err(EngineError::failed("e3 is too much for it"));
        }
        self.note("ingest", format!("{id}, heartbeat {is_heartbeat}")).map(|()| IngestResult::ingested())
    }

    fn ingest_batch(
        &self,
        _: &CallContext<'_>,
        params: IngestBatchParams<'_>,
    ) -> Result<IngestBatchResult, EngineError> {
        let given = format!("{}, heartbeat {}", ids(params.messages()), params.is_heartbeat());
        self.note("ingest_batch", given).map(|()| IngestBatchResult::default())
    }

    fn assemble(&self, _: &CallContext<'_>, _: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        Err(EngineError::failed("nobody asks for a prompt"))
    }

    fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        Err(EngineError::failed("nobody asks for a compaction"))
    }

    fn after_turn(&self, _: &CallContext<'_>, params: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        let messages = ids(params.messages());
        let (before, is_heartbeat) = (params.pre_prompt_message_count(), params.is_heartbeat());
        let summary = params.auto_compaction_summary().into_option().map_or("none", |summary| summary.as_str());
        let budget = params.token_budget().into_option().unwrap_or(0);
        let given = format!("{messages}, new from {before}, summary {summary}, heartbeat {is_heartbeat}, {budget}");
        self.note("after_turn", given).map(|()| AfterTurnResult::default())
    }
}

/// A handle on an engine with these members, and what reaches it.
fn recorder(host: &TestHost, members: &'static [&'static str]) -> (EngineHandle, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let engine = Recorder { members, calls: Arc::clone(&calls) };
    let legacy = host.loader().engine("legacy", &Creation::default()).expect("legacy");
    let info = EngineInfo { id: "recorder".to_owned(), ..(*legacy.info()).clone() };
    (host.loader().linked(Arc::new(engine), info, &Creation::default()).expect("a handle"), calls)
}

/// A turn with two rounds of tool calls: what was said before, the first round, the second.
const LINES: [&str; 6] =
    ["user: one", "assistant: uno", "user: two", "assistant: looks", "toolResult: found", "assistant: dos"];

/// The history after so many lines.
fn after(lines: usize) -> Arc<PreparedHistory> {
    Arc::new(history(&LINES[..lines]))
}

fn facts() -> TurnFacts {
    TurnFacts { token_budget: BUDGET, auto_compaction_summary: Some("what was".into()), ..TurnFacts::default() }
}

#[track_caller]
fn check(members: &'static [&'static str], run: impl FnOnce(&EngineHandle) -> Vec<TurnTaken>, expected: &[&str]) {
    let host = TestHost::new();
    let (handle, calls) = recorder(&host, members);
    for taken in run(&handle) {
        let by = members.first().copied().unwrap_or("none");
        assert_eq!(taken, TurnTaken::By(by));
    }
    assert_eq!(*calls.lock().expect("not poisoned"), expected);
}

/// Two checkpoints in the loop, then the turn's end.
fn a_turn_with_checkpoints(handle: &EngineHandle) -> Vec<TurnTaken> {
    let call = plain_call();
    let first = handle.checkpoint_turn(&call, &after(3), 2, BUDGET);
    let second = handle.checkpoint_turn(&call, &after(5), 3, facts());
    let rest = Arc::new(after(6).tail(5));
    let end = handle.take_turn(&call, &rest, || after(6), facts());
    [first, second, end].map(|answer| answer.value).into()
}

#[test]
fn a_turn_with_checkpoints_is_given_once_and_without_a_gap() {
    check(
        &["after_turn", "ingest_batch", "ingest"],
        a_turn_with_checkpoints,
        &[
            "after_turn e1 e2 e3, new from 2, summary none, heartbeat false, 8000",
            "after_turn e1 e2 e3 e4 e5, new from 3, summary what was, heartbeat false, 8000",
            "after_turn e1 e2 e3 e4 e5 e6, new from 5, summary what was, heartbeat false, 8000",
        ],
    );
    check(
        &["ingest_batch", "ingest"],
        a_turn_with_checkpoints,
        &[
            "ingest_batch e3, heartbeat false",
            "ingest_batch e4 e5, heartbeat false",
            "ingest_batch e6, heartbeat false",
        ],
    );
    check(
        &["ingest"],
        a_turn_with_checkpoints,
        &["e3", "e4", "e5", "e6"].map(|id| format!("ingest {id}, heartbeat false")).each_ref().map(String::as_str),
    );
}

#[test]
fn a_turn_whose_messages_were_all_given_before_only_ends() {
    let run = |handle: &EngineHandle| {
        let none = Arc::new(PreparedHistory::default());
        vec![handle.take_turn(&plain_call(), &none, || after(6), BUDGET).value]
    };
    let ended = "after_turn e1 e2 e3 e4 e5 e6, new from 6, summary none, heartbeat false, 8000";
    check(&["after_turn", "ingest"], run, &[ended]);
    check(&["ingest", "ingest_batch"], run, &[]);
}

#[test]
fn what_the_host_says_of_a_turn_counts_more_than_what_its_messages_look_like() {
    let run = |handle: &EngineHandle| {
        let turn = Arc::new(after(6).tail(2));
        let facts =
            TurnFacts { is_heartbeat: Some(true), pre_prompt_message_count: Some(4), token_budget: 1, ..facts() };
        vec![handle.take_turn(&plain_call(), &turn, || after(6), facts).value]
    };
    let told = "after_turn e1 e2 e3 e4 e5 e6, new from 4, summary what was, heartbeat true, 1";
    check(&["after_turn", "ingest"], run, &[told]);
    check(&["ingest_batch", "ingest"], run, &["ingest_batch e3 e4 e5 e6, heartbeat true"]);
    let each = ["e3", "e4", "e5", "e6"].map(|id| format!("ingest {id}, heartbeat true"));
    check(&["ingest"], run, &each.each_ref().map(String::as_str));
}

#[test]
fn a_place_past_the_end_is_the_end() {
    let run = |handle: &EngineHandle| vec![handle.checkpoint_turn(&plain_call(), &after(3), 9, BUDGET).value];
    check(&["after_turn", "ingest"], run, &["after_turn e1 e2 e3, new from 3, summary none, heartbeat false, 8000"]);
}

/// Contract §2.2: each error is caught, the rest is still ingested.
#[test]
fn one_message_that_is_not_ingested_does_not_keep_the_others_back() {
    let host = TestHost::new();
    let (handle, calls) = recorder(&host, &["ingest", "ingest, but not e3"]);
    let turn = Arc::new(after(6).tail(2));
    let taken = handle.take_turn(&plain_call(), &turn, || after(6), BUDGET);
    assert_eq!(taken.value, TurnTaken::Failed);
    assert_eq!(taken.why.as_deref(), Some("recorder: ingest: e3 is too much for it"));
    let each = ["e4", "e5", "e6"].map(|id| format!("ingest {id}, heartbeat false"));
    assert_eq!(*calls.lock().expect("not poisoned"), each);
}
