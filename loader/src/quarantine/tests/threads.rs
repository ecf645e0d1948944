//! What engines do outside of calls: on threads of their own, and when one of the host's ends.

use std::time::Instant;

use super::super::marks::Marks;
use super::deaths::{Scenario, dies, findings, settle};
use super::*;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn a_fault_in_the_code_of_a_library_is_proof_on_every_thread() {
    for (how, word) in [("null read", "SIGSEGV"), ("truncated mapping", "SIGBUS")] {
        for place in [marks::OUTSIDE, "a call, on another thread"] {
            let state = state();
            dies(state.path(), Scenario { how, place, completed: 5 });
            let verdicts = settle(state.path());
            assert_eq!(findings(&verdicts), [Finding::Convicted], "{how} in {place}");
            let said = format!("the process ended with {word} in its code, outside of a call");
            assert_eq!((verdicts[0].reason.as_str(), verdicts[0].operation), (said.as_str(), marks::OUTSIDE));
            let held = Quarantine::open(state.path()).holds(&subject("alpha").key).expect("in force");
            assert_eq!((held.fault, held.scope, held.reason.clone()), (Fault::Crash, Scope::Durable, said));
        }
    }
}

#[test]
fn what_ends_the_process_in_a_destructor_of_a_thread_is_proof() {
    for (how, word) in [("null read", "SIGSEGV"), ("panic", "SIGABRT"), ("abort", "SIGABRT"), ("exit", "called exit()")]
    {
        let state = state();
        dies(state.path(), Scenario { how, place: marks::THREAD_END, completed: 5 });
        let verdicts = settle(state.path());
        assert_eq!(findings(&verdicts), [Finding::Convicted], "{how}");
        let reason = &verdicts[0].reason;
        assert!(reason.contains(word) && reason.ends_with("at the end of a thread"), "{how}: {reason}");
    }
}

#[test]
fn a_place_is_given_back_when_its_thread_is_gone() {
    let state = state();
    let marks = Marks::open(state.path());
    let folder = state.path().join(marks::FOLDER);
    let file = fs::read_dir(&folder).expect("listed").next().expect("a file").expect("a file").path();
    for _ in 0..20 {
        let slot = marks.slot(&subject("alpha"));
        let thread = std::thread::spawn(move || {
            drop(slot.enter("assemble"));
            slot.end_thread();
        });
        thread.join().expect("joined");
    }
    // One may be going while the next begins.
    assert!(fs::metadata(&file).expect("there").len() as usize <= 4 * marks::BLOCK);
    drop(marks);
    let patience = Instant::now() + Duration::from_secs(20);
    while file.exists() {
        assert!(Instant::now() < patience, "the file stays");
        std::thread::sleep(Duration::from_millis(2));
        drop(Marks::open(Path::new("")));
    }
}
