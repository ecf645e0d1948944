//! Who answers when an engine does not, how long that takes, and what becomes of the engine.
//!
//! Decision: faults are switched by a file the engine reads at every call, so that one handle sees an engine that is
//! healthy, fails, and is healthy again after the quarantine is lifted, as a running host does.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use context_engine_interface::EngineError;
use context_engine_loader::{
    AssembleError, CompactRequest, Creation, Deadlines, EngineHandle, HostProfile, Loader, LoaderOptions, OnFailure,
    Permit, Problem, SessionServices, TurnTaken,
};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{
    BUDGET, answer, assemble, assemble_in, compact, history, plain_call, take_turn, three_turns,
};
use serde_json::{Value, json};

/// What each member may take here.
const LIMIT: Duration = Duration::from_millis(100);

/// What a call that is given up may take beyond it: the grace, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// A host with the engine `faulty`, whose faults can be changed.
struct Faulty {
    host: TestHost,
    loader: Loader,
    handle: EngineHandle,
    creation: Creation,
}

impl Faulty {
    fn new(faults: Value) -> Faulty {
        Faulty::with(faults, |_| {})
    }

    /// With 20 ms for `member`, which is healthy otherwise; what sleeps takes 200.
    fn with_deadline(member: &str, faults: Value) -> Faulty {
        let mut faulty = Faulty::new(json!({}));
        faulty.set(faults);
        let short = [(member.to_owned(), Duration::from_millis(20))];
        faulty.creation.deadlines = Deadlines::with(short).expect("a member");
        faulty.handle = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
        faulty
    }

    fn with(faults: Value, change: impl FnOnce(&mut LoaderOptions)) -> Faulty {
        let host = TestHost::with(&["faulty"]);
        let mut options = host.options();
        change(&mut options);
        let loader = Loader::new(options);
        std::fs::write(host.root().join("faults.json"), json!({ "faults": faults, "sleep_ms": 200 }).to_string())
            .expect("written");
        let creation = creation(&host, &faults);
        let handle = loader.engine("faulty", &creation).expect("a handle");
        Faulty { host, loader, handle, creation }
    }

    /// From now on.
    fn set(&self, faults: Value) {
        let text = json!({ "faults": faults, "sleep_ms": 200 }).to_string();
        // As one step: the engine may be reading.
        let (new, file) = (self.host.root().join("faults.new"), self.host.root().join("faults.json"));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)).expect("written");
    }

    fn lift_the_quarantine(&self) {
        self.loader.quarantine().clear(Some("faulty")).expect("cleared");
    }

    /// How often `member` was reached.
    fn reached(&self, member: &str) -> usize {
        self.host.journal("faulty").iter().filter(|(name, _)| name == member).count()
    }
}

/// Short deadlines for what is to hang, long ones for the rest: this machine may be busy.
fn creation(host: &TestHost, faults: &Value) -> Creation {
    let hangs = |place: &str| faults[place].as_str().is_some_and(|what| what.contains("hang") || what == "late-write");
    let members = ["create", "bootstrap", "maintain", "ingest", "ingest_batch", "assemble", "after_turn", "compact"];
    let short = members.into_iter().filter(|member| hangs(member)).map(|member| (member.to_owned(), LIMIT));
    let released = (hangs("dispose") || hangs("drop")).then(|| ("dispose".to_owned(), LIMIT));
    Creation {
        config: Some(json!({ "from_file": host.root().join("faults.json") })),
        deadlines: Deadlines::with(short.chain(released)).expect("members"),
        ..Creation::default()
    }
}

/// Runs `call`, which must not take longer than a deadline and what it takes to give up.
#[track_caller]
fn within_the_deadline<R>(call: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let answer = call();
    let took = started.elapsed();
    assert!(took < LIMIT + PATIENCE, "took {took:?}");
    answer
}

fn served_by(handle: &EngineHandle) -> String {
    assemble(handle, &three_turns(), BUDGET).expect("a prompt").served_by
}

fn a_turn(handle: &EngineHandle) -> context_engine_loader::Answer<TurnTaken> {
    take_turn(handle, &plain_call(), history(&["user: three", "assistant: tres"]))
}

/// Report G6: an engine call that never returns held the session for ever.
#[test]
fn a_hang_in_any_member_costs_its_deadline_once() {
    let unsupported = json!({ "after_turn": "unsupported", "ingest_batch": "unsupported" });
    for member in ["bootstrap", "maintain", "assemble", "compact", "after_turn", "ingest_batch", "ingest"] {
        let mut faults = json!({});
        if member == "ingest_batch" || member == "ingest" {
            faults = unsupported.clone();
        }
        faults[member] = "hang".into();
        let faulty = Faulty::new(faults);
        let handle = &faulty.handle;
        let why = within_the_deadline(|| match member {
            "bootstrap" => handle.bootstrap(&plain_call()).why,
            "maintain" => handle.maintain(&plain_call()).why,
            "assemble" => assemble(handle, &three_turns(), BUDGET).expect("a prompt").why,
            "compact" => Some(compact(handle, &plain_call()).expect_err("reported").message.into_string()),
            _ => {
                let taken = a_turn(handle);
                assert_eq!((taken.value, taken.served_by.as_str()), (TurnTaken::Failed, "legacy"), "{member}");
                taken.why
            }
        });
        let expected = match member {
            "compact" => "Compaction timed out".to_owned(),
            _ => format!("faulty: {member}: `{member}` did not return within 100 ms"),
        };
        let why = why.expect("a reason");
        let to_do = format!("; plugins.entries.faulty.timeoutsMs.{member} gives it longer than 100");
        assert_eq!(why, expected + &to_do);
        assert_eq!(handle.info().id, "legacy", "{member}");
        assert_eq!(answer(handle), "legacy | one | uno | two | dos | three", "{member}");
        assert_eq!(faulty.reached(member), 1, "{member}: an engine that hangs is not called again");
        assert_eq!(faulty.reached("dispose") + faulty.reached("drop"), 0, "{member}: nor released");
    }
}

#[test]
fn a_hang_in_dispose_or_drop_does_not_hold_the_shutdown() {
    for place in ["dispose", "drop"] {
        let faulty = Faulty::new(json!({ place: "hang" }));
        assert_eq!(served_by(&faulty.handle), "faulty");
        let late = within_the_deadline(|| faulty.handle.dispose("shutdown")).expect_err("it hangs").message;
        assert_eq!(&*late, "`dispose` and its destructor did not return within 100 ms");
        assert_eq!(served_by(&faulty.handle), "legacy");
    }
}

#[test]
fn a_hang_in_create_leaves_legacy_to_answer() {
    let faulty = within_the_deadline(|| Faulty::new(json!({ "create": "hang" })));
    let why = faulty.handle.why().expect("a reason");
    assert!(why.contains("open: create: it did not return within 100 ms"), "{why}");
    assert_eq!(served_by(&faulty.handle), "legacy");
}

/// Report G6, its other half: what arrives late has no effect.
#[test]
fn a_late_answer_is_ignored_and_cannot_write() {
    let faulty = Faulty::new(json!({ "assemble": "late-write" }));
    assert_eq!(within_the_deadline(|| served_by(&faulty.handle)), "legacy");
    let patience = Instant::now() + PATIENCE;
    let written = loop {
        if let Some((_, written)) = faulty.host.journal("faulty").into_iter().find(|(name, _)| name == "late write") {
            break written;
        }
        assert!(Instant::now() < patience, "the late write was never tried");
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(written, json!({ "error": 3, "message": "the call has ended; nothing was changed" }));
}

#[test]
fn an_engine_that_stops_when_told_to_has_still_missed_its_deadline() {
    let faulty = Faulty::new(json!({ "assemble": "hang-polite" }));
    assert_eq!(within_the_deadline(|| served_by(&faulty.handle)), "legacy");
    let why = faulty.handle.why().expect("a reason");
    assert!(why.starts_with("faulty: assemble: `assemble` did not return within 100 ms"), "{why}");
}

/// Issue 4: 64 hung calls in a row; legacy answers within its normal time, and the shutdown is short.
#[test]
fn sixty_four_hung_calls_in_a_row_leave_legacy_as_fast_as_ever() {
    let faulty = Faulty::new(json!({ "assemble": "hang" }));
    for hung in 1..=64 {
        assert_eq!(within_the_deadline(|| served_by(&faulty.handle)), "legacy");
        assert_eq!(faulty.reached("assemble"), hung);
        faulty.lift_the_quarantine();
    }
    // No more of them: every one holds a thread for good.
    assert_eq!(served_by(&faulty.handle), "legacy");
    let why = faulty.handle.why().expect("a reason");
    assert!(why.contains("64 calls of it never returned and hold a thread each; restart the host"), "{why}");
    assert_eq!(faulty.reached("assemble"), 64);
    let median_of_50 = |handle: &EngineHandle| {
        let mut times: Vec<Duration> = (0..50)
            .map(|_| {
                let started = Instant::now();
                assert_eq!(served_by(handle), "legacy");
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[25]
    };
    let alone = median_of_50(&TestHost::new().loader().engine("legacy", &Creation::default()).expect("legacy"));
    let beside = median_of_50(&faulty.handle);
    // A factor that tells "as ever" from "waits for something", on a machine that does other things as well.
    assert!(beside < alone * 20 + Duration::from_millis(5), "{beside:?} beside the hung calls, {alone:?} alone");
    let started = Instant::now();
    faulty.lift_the_quarantine();
    drop(faulty.loader.engine("faulty", &faulty.creation).expect("a handle"));
    faulty.handle.dispose("shutdown").expect("nothing is left to dispose of");
    assert!(started.elapsed() < Duration::from_secs(5), "the shutdown took {:?}", started.elapsed());
}

#[test]
fn sessions_that_wait_for_a_hung_engine_are_answered_at_once() {
    let faulty = Faulty::new(json!({ "assemble": "hang" }));
    let handle = &faulty.handle;
    // More than the engine has threads: the last ones wait until the first gives up, and no longer.
    within_the_deadline(|| {
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| assert_eq!(served_by(handle), "legacy"));
            }
        });
    });
    assert!(faulty.reached("assemble") <= context_engine_loader::supervise::MAX_THREADS);
}

#[test]
fn a_call_its_caller_takes_back_is_nobodys_fault() {
    for (fault, stays) in [("hang-polite", true), ("hang", false)] {
        let faulty = Faulty::new(json!({ "assemble": fault }));
        let call = plain_call();
        let cancel = call.cancel.clone();
        let cancelled = within_the_deadline(|| {
            thread::scope(|scope| {
                let canceller = scope.spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    cancel.cancel();
                });
                let cancelled = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET);
                canceller.join().expect("it cancelled");
                cancelled
            })
        });
        assert_eq!(cancelled.expect_err("no prompt"), AssembleError::Cancelled, "{fault}");
        assert_eq!(faulty.handle.why(), None, "{fault}: a cancel sets nobody aside");
        faulty.set(json!({}));
        thread::sleep(LIMIT);
        // Who does not stop by its deadline either is found out at the next call.
        assert_eq!(served_by(&faulty.handle), if stays { "faulty" } else { "legacy" }, "{fault}");
    }
}

/// Report G5: after a fault in mid-turn the handle still reported the plugin, so nobody compacted.
#[test]
fn after_a_fault_the_handle_is_legacy_in_all_it_reports() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert!(faulty.handle.info().owns_compaction);
    let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    let why = "faulty: assemble: assemble errs on purpose";
    assert_eq!((prompt.served_by.as_str(), prompt.why.as_deref()), ("legacy", Some(why)));
    let info = faulty.handle.info();
    assert_eq!((info.id.as_str(), info.owns_compaction), ("legacy", false));
    assert_eq!(faulty.handle.why().as_deref(), Some(why));
    let compacted = faulty.handle.compact(&plain_call(), CompactRequest::default()).expect("legacy's");
    assert_eq!((compacted.served_by.as_str(), compacted.why.as_deref()), ("legacy", Some(why)));
    assert_eq!(a_turn(&faulty.handle).served_by, "legacy");
    assert_eq!(faulty.handle.bootstrap(&plain_call()).served_by, "legacy");
    assert_eq!(faulty.reached("after_turn") + faulty.reached("bootstrap") + faulty.reached("compact"), 0);
}

#[test]
fn a_lifted_quarantine_gives_a_fresh_instance() {
    for fault in ["error", "panic", "hang", "overlap"] {
        let faulty = Faulty::new(json!({ "assemble": fault }));
        assert_eq!(served_by(&faulty.handle), "legacy", "{fault}");
        faulty.set(json!({}));
        assert_eq!(served_by(&faulty.handle), "legacy", "{fault}: set aside until somebody lifts it");
        faulty.lift_the_quarantine();
        assert_eq!(served_by(&faulty.handle), "faulty", "{fault}");
        assert_eq!(faulty.reached("create"), 2, "{fault}");
    }
}

/// Report G3: a retry must not run side effects twice.
#[test]
fn a_fault_after_side_effects_is_not_tried_again() {
    let faulty = Faulty::new(json!({ "assemble": "side-effect-then-error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert_eq!(faulty.reached("side effect"), 1);
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert_eq!(faulty.reached("side effect"), 1);
}

#[test]
fn three_prompts_over_budget_in_a_row_are_too_many() {
    let faulty = Faulty::new(json!({ "assemble": "over-budget" }));
    for _ in 0..2 {
        let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
        assert_eq!((prompt.served_by.as_str(), prompt.fitted), ("faulty", true));
    }
    faulty.set(json!({}));
    assert!(!assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt").fitted, "one within it");
    faulty.set(json!({ "assemble": "over-budget" }));
    for _ in 0..3 {
        assert_eq!(served_by(&faulty.handle), "faulty", "each is fitted and used");
    }
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert!(faulty.handle.why().expect("a reason").contains("over budget three times in a row"));
}

#[test]
fn a_newest_turn_that_fits_no_budget_is_no_fault_of_the_engines() {
    let faulty = Faulty::new(json!({ "assemble": "over-budget" }));
    let long = format!("user: {}", "many words ".repeat(400));
    for _ in 0..5 {
        let prompt = assemble(&faulty.handle, &history(&["user: a", "assistant: b", &long]), 500).expect("a prompt");
        assert_eq!((prompt.served_by.as_str(), prompt.fitted), ("faulty", true));
    }
}

#[test]
fn a_lie_about_tokens_is_not_believed() {
    let faulty = Faulty::new(json!({ "assemble": "lies-about-tokens" }));
    let prompt = assemble(&faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    let honest = assemble(&Faulty::new(json!({})).handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!((prompt.served_by.as_str(), prompt.tokens), ("faulty", honest.tokens));
}

/// A session whose transcript cannot be written just now.
struct Broken;

impl SessionServices for Broken {
    fn complete(&self, _: Permit<'_>, _: &str) -> Result<String, EngineError> {
        Err(EngineError::failed("the provider is overloaded"))
    }
}

#[test]
fn a_service_that_fails_sets_nobody_aside() {
    let faulty = Faulty::new(json!({ "assemble": "unavailable" }));
    let mut call = plain_call();
    call.services = Arc::new(Broken);
    let prompt = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.why.as_deref(), Some("faulty: assemble: the provider is overloaded"));
    assert_eq!(faulty.handle.why(), None);
}

#[test]
fn an_error_of_its_own_is_the_engines_also_when_a_service_failed() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    let mut call = plain_call();
    call.services = Arc::new(Broken);
    assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(faulty.handle.why().as_deref(), Some("faulty: assemble: assemble errs on purpose"));
}

#[test]
fn an_instance_that_is_made_too_late_is_dropped_where_it_was_made() {
    // Its destructor hangs; on the host's thread that would hold the host.
    let faulty = within_the_deadline(|| Faulty::with_deadline("create", json!({ "create": "sleep", "drop": "hang" })));
    assert_eq!(served_by(&faulty.handle), "legacy");
    let why = faulty.handle.why().expect("a reason");
    assert!(why.contains("open: create: it did not return within 20 ms"), "{why}");
    let patience = Instant::now() + PATIENCE;
    while faulty.reached("drop") == 0 {
        assert!(Instant::now() < patience, "it was never dropped");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn while_one_session_opens_the_engine_anew_the_others_are_answered_by_legacy() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    faulty.set(json!({ "create": "sleep" }));
    faulty.lift_the_quarantine();
    thread::scope(|scope| {
        let opening = scope.spawn(|| served_by(&faulty.handle));
        while faulty.reached("create") < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(served_by(&faulty.handle), "legacy");
        assert_eq!(opening.join().expect("it was answered"), "faulty");
    });
}

#[test]
fn after_its_disposal_a_handle_opens_nothing_any_more() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    faulty.handle.dispose("shutdown").expect("nothing is left to dispose of");
    faulty.lift_the_quarantine();
    assert_eq!(served_by(&faulty.handle), "legacy");
    assert_eq!(faulty.reached("create"), 1);
}

#[test]
fn a_disposal_that_has_to_wait_for_a_call_blames_nobody() {
    let faulty = Faulty::with_deadline("dispose", json!({ "assemble": "sleep" }));
    thread::scope(|scope| {
        let calling = scope.spawn(|| served_by(&faulty.handle));
        while faulty.reached("assemble") == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let waits = faulty.handle.dispose("shutdown").expect_err("it has to wait").message;
        assert!(waits.starts_with("calls that run still kept it from being released"), "{waits}");
        assert_eq!(calling.join().expect("it was answered"), "faulty", "a call that runs is not cut off");
    });
    assert!(faulty.loader.quarantine().list().is_empty());
    let patience = Instant::now() + PATIENCE;
    while faulty.reached("drop") == 0 {
        assert!(Instant::now() < patience, "it was never released");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn calls_that_are_taken_back_and_never_end_are_bounded_too() {
    let faulty = Faulty::new(json!({}));
    faulty.set(json!({ "assemble": "hang" }));
    for _ in 0..context_engine_loader::supervise::MAX_LOST + 8 {
        let call = plain_call();
        let cancel = call.cancel.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(2));
                cancel.cancel();
            });
            let _ = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET);
        });
    }
    assert!(faulty.reached("assemble") <= context_engine_loader::supervise::MAX_LOST);
}

#[test]
fn a_service_this_host_lacks_sets_nobody_aside() {
    let faulty = Faulty::new(json!({ "assemble": "unavailable" }));
    let mut call = plain_call();
    call.services = Arc::new(context_engine_loader::NoServices);
    let prompt = assemble_in(&call, &faulty.handle, &three_turns(), BUDGET).expect("a prompt");
    assert_eq!(prompt.served_by, "legacy");
    assert_eq!(prompt.why.as_deref(), Some("faulty: assemble: this host does not offer `complete` here"));
    assert_eq!(faulty.handle.why(), None);
    faulty.set(json!({}));
    assert_eq!(served_by(&faulty.handle), "faulty");
}

/// Report G9: those who prefer no answer to one from the wrong context.
#[test]
fn under_the_strict_policy_no_other_engine_answers() {
    let strict = |options: &mut LoaderOptions| options.on_failure = OnFailure::Stop;
    let faulty = Faulty::with(json!({ "assemble": "error" }), strict);
    let stopped = assemble(&faulty.handle, &three_turns(), BUDGET).expect_err("no prompt");
    assert_eq!(stopped, AssembleError::Stopped { why: "faulty: assemble: assemble errs on purpose".into() });
    let again = assemble(&faulty.handle, &three_turns(), BUDGET).expect_err("no prompt");
    assert_eq!(again, stopped);
    let compacted = faulty.handle.compact(&plain_call(), CompactRequest::default()).expect_err("nor a compaction");
    assert!(compacted.message.contains("legacy does not compact instead"), "{compacted}");

    let missing = faulty.loader.engine("nowhere", &Creation::default()).expect_err("no handle");
    assert!(matches!(missing.problem, Problem::NotFound { .. }), "{missing}");
    let quarantined = faulty.loader.engine("faulty", &faulty.creation).expect_err("no handle");
    assert!(matches!(quarantined.problem, Problem::Quarantined { .. }), "{quarantined}");
    assert_eq!(faulty.loader.engine("legacy", &Creation::default()).expect("legacy was asked for").why(), None);
}

#[test]
fn a_host_that_cannot_do_what_the_engine_requires_does_not_run_it() {
    let host = TestHost::with(&["everything"]);
    let mut options = host.options();
    options.host = HostProfile { label: "a small host".to_owned(), capabilities: ["compact".to_owned()].into() };
    let refused = Loader::new(options).engine("everything", &Creation::default()).expect_err("not run");
    let text = "Context engine \"everything\" cannot run operation \"agent-run\" on a small host. Missing host \
                capabilities: assemble-before-prompt. Required capabilities: assemble-before-prompt. Host capabilities: \
                compact. use another host";
    assert_eq!(refused.problem, Problem::HostCapability { text: text.to_owned() });
    assert_eq!(host.journal("everything"), [], "none of its code ran");
    assert_eq!(host.engine("everything", json!({})).why(), None, "a host that can does");
}

/// Report G2: an engine that fails is set aside once, not once per session.
#[test]
fn an_engine_that_was_set_aside_is_not_opened_for_the_next_session() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    let next = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
    let why = next.why().expect("a reason");
    assert!(why.contains("quarantined since it failed during assemble: assemble errs on purpose"), "{why}");
    assert_eq!(faulty.reached("create"), 1);
    let changed = Creation { config: Some(json!({ "faults": {} })), ..faulty.creation.clone() };
    assert_eq!(faulty.loader.engine("faulty", &changed).expect("a handle").why(), None, "another configuration may do");
}

#[test]
fn an_engine_that_plans_nothing_because_the_newest_turn_is_too_long_stays() {
    let faulty = Faulty::new(json!({ "assemble": "empty" }));
    let long = history(&["user: a", "assistant: b", &format!("user: {}", "many words ".repeat(400))]);
    let prompt = assemble(&faulty.handle, &long, 500).expect("a prompt");
    assert_eq!((prompt.served_by.as_str(), faulty.handle.why()), ("legacy", None));
    assert_eq!(served_by(&faulty.handle), "legacy", "of one that fits, planning nothing is a wrong answer");
    assert!(faulty.handle.why().expect("a reason").contains("sends nothing of a history of 5 messages"));
}

#[test]
fn a_build_that_one_session_has_set_aside_leaves_the_others_after_their_turn() {
    let faulty = Faulty::new(json!({}));
    let other = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
    assert_eq!(served_by(&other), "faulty");
    faulty.set(json!({ "assemble": "error" }));
    assert_eq!(served_by(&faulty.handle), "legacy");
    faulty.set(json!({}));
    assert_eq!(served_by(&other), "faulty", "a turn keeps its engine");
    assert_eq!(a_turn(&other).value, TurnTaken::By("after_turn"));
    assert_eq!(served_by(&other), "legacy");
    assert!(other.why().expect("a reason").contains("faulty was set aside: assemble: assemble errs on purpose"));
}
