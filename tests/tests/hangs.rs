//! Calls that do not come back, or come back too late: who waits, for how long, and what such a call may still do.
#![forbid(unsafe_code)]

use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::{AssembleError, Creation, EngineHandle, TurnTaken};
use context_engine_tests::faulty::{Faulty, LIMIT, PATIENCE, a_turn, served_by, within_the_deadline};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::{BUDGET, answer, assemble, assemble_in, compact, plain_call, three_turns};
use serde_json::json;

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
