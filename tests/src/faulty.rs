//! A host with the engine `faulty`, whose faults a test changes between two calls.
//!
//! Decision: faults are switched by a file the engine reads at every call, so that one handle sees an engine that is
//! healthy, fails, and is healthy again after the quarantine is lifted, as a running host does.

use std::time::{Duration, Instant};

use context_engine_loader::{Answer, Creation, Deadlines, EngineHandle, Loader, LoaderOptions, TurnTaken};
use serde_json::{Value, json};

use crate::host::TestHost;
use crate::session::{BUDGET, assemble, history, plain_call, take_turn, three_turns};

/// What each member may take here.
pub const LIMIT: Duration = Duration::from_millis(100);

/// What a call that is given up may take beyond it: the grace, and a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// A host with the engine `faulty`, whose faults can be changed.
pub struct Faulty {
    /// Its home.
    pub host: TestHost,
    /// What opened it.
    pub loader: Loader,
    /// The engine.
    pub handle: EngineHandle,
    /// What it was created with.
    pub creation: Creation,
}

impl Faulty {
    /// With these faults from the start.
    pub fn new(faults: Value) -> Faulty {
        Faulty::with(faults, |_| {})
    }

    /// With 20 ms for `member`, which is healthy otherwise; what sleeps takes 200.
    pub fn with_deadline(member: &str, faults: Value) -> Faulty {
        let mut faulty = Faulty::new(json!({}));
        faulty.set(faults);
        let short = [(member.to_owned(), Duration::from_millis(20))];
        faulty.creation.deadlines = Deadlines::with(short).expect("a member");
        faulty.handle = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
        faulty
    }

    /// With these faults, in a host with changed options.
    pub fn with(faults: Value, change: impl FnOnce(&mut LoaderOptions)) -> Faulty {
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

    /// These faults from now on.
    pub fn set(&self, faults: Value) {
        let text = json!({ "faults": faults, "sleep_ms": 200 }).to_string();
        // As one step: the engine may be reading.
        let (new, file) = (self.host.root().join("faults.new"), self.host.root().join("faults.json"));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)).expect("written");
    }

    /// As `quarantine clear` does.
    pub fn lift_the_quarantine(&self) {
        self.loader.quarantine().clear(Some("faulty")).expect("cleared");
    }

    /// How often `member` was reached.
    pub fn reached(&self, member: &str) -> usize {
        self.host.journal("faulty").iter().filter(|(name, _)| name == member).count()
    }
}

/// Short deadlines for what is to hang, long ones for the rest: this machine may be busy.
fn creation(host: &TestHost, faults: &Value) -> Creation {
    let hangs = |place: &str| faults[place].as_str().is_some_and(|what| what.contains("hang") || what == "late-write");
    let turn = ["bootstrap", "maintain", "ingest", "ingest_batch", "assemble", "after_turn", "compact"];
    let members = turn.into_iter().chain(["create", "list_tools", "call_tool"]);
    let short = members.filter(|member| hangs(member)).map(|member| (member.to_owned(), LIMIT));
    let released = (hangs("dispose") || hangs("drop")).then(|| ("dispose".to_owned(), LIMIT));
    Creation {
        config: Some(json!({ "from_file": host.root().join("faults.json") })),
        deadlines: Deadlines::with(short.chain(released)).expect("members"),
        ..Creation::default()
    }
}

/// Runs `call`, which must not take longer than a deadline and what it takes to give up.
#[track_caller]
pub fn within_the_deadline<R>(call: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let answer = call();
    let took = started.elapsed();
    assert!(took < LIMIT + PATIENCE, "took {took:?}");
    answer
}

/// Who makes the next prompt of three turns.
pub fn served_by(handle: &EngineHandle) -> String {
    assemble(handle, &three_turns(), BUDGET).expect("a prompt").served_by
}

/// A finished turn, handed over.
pub fn a_turn(handle: &EngineHandle) -> Answer<TurnTaken> {
    take_turn(handle, &plain_call(), history(&["user: three", "assistant: tres"]))
}
