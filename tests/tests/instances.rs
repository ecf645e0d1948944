//! One instance per engine, agent folder and workspace: who shares it, and what sharing means when it fails.
#![forbid(unsafe_code)]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::{Creation, EngineHandle, Loader};
use context_engine_tests::faulty::{Faulty, PATIENCE, served_by};
use context_engine_tests::host::TestHost;
use context_engine_transcript::TokenCounter;
use serde_json::{Value, json};

fn in_folders(agent: Option<&str>, workspace: Option<&str>) -> Creation {
    let folder = |name: Option<&str>| name.map(|name| Path::new(name).to_owned());
    Creation { agent_dir: folder(agent), workspace_dir: folder(workspace), ..Creation::default() }
}

fn open(loader: &Loader, creation: &Creation) -> EngineHandle {
    let handle = loader.engine("everything", creation).expect("a handle");
    assert_eq!(served_by(&handle), "everything");
    handle
}

/// How often `member` was called.
fn calls(host: &TestHost, member: &str) -> usize {
    host.journal("everything").iter().filter(|(name, _)| name == member).count()
}

#[test]
fn handles_on_the_same_engine_in_the_same_place_share_one_instance() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let here = in_folders(Some("/agents/a"), Some("/srv/a"));
    let handles = [open(&loader, &here), open(&loader.clone(), &here), open(&loader, &here.clone())];
    assert_eq!((calls(&host, "create"), calls(&host, "assemble")), (1, 3));
    drop(handles);
}

#[test]
fn another_place_configuration_or_way_to_count_is_another_instance() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let here = in_folders(Some("/agents/a"), Some("/srv/a"));
    let handles: Vec<EngineHandle> = [
        here.clone(),
        in_folders(Some("/agents/b"), Some("/srv/a")),
        in_folders(Some("/agents/a"), Some("/srv/b")),
        in_folders(Some("/agents/a"), None),
        in_folders(None, Some("/srv/a")),
        Creation { config: Some(json!({ "keep": 3 })), ..here.clone() },
        Creation { counter: Some(TokenCounter::for_model(Some("gpt-4"))), ..here.clone() },
    ]
    .iter()
    .map(|creation| open(&loader, creation))
    .collect();
    assert_eq!(calls(&host, "create"), 7);
    let same = Creation { counter: Some(TokenCounter::for_model(None)), ..here };
    drop(open(&loader, &same));
    assert_eq!(calls(&host, "create"), 7, "the default counter by its name is the same");
    drop(handles);
}

#[test]
fn the_instance_goes_with_its_last_handle_and_is_made_anew() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let (first, second) = (open(&loader, &Creation::default()), open(&loader, &Creation::default()));
    drop(first);
    assert_eq!(served_by(&second), "everything");
    assert_eq!(calls(&host, "dispose"), 0);
    drop(second);
    let patience = Instant::now() + PATIENCE;
    while calls(&host, "dispose") == 0 {
        assert!(Instant::now() < patience, "it is not released");
        thread::sleep(Duration::from_millis(5));
    }
    drop(open(&loader, &Creation::default()));
    assert_eq!(calls(&host, "create"), 2);
}

#[test]
fn sessions_that_ask_at_once_wait_for_one_instance() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let handles: Vec<EngineHandle> = thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&loader, &Creation::default()))).collect();
        asked.into_iter().map(|asking| asking.join().expect("a handle")).collect()
    });
    assert_eq!((calls(&host, "create"), calls(&host, "assemble")), (1, 8));
    drop(handles);
}

#[test]
fn loaders_of_a_trial_share_with_nobody() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let folder = |name: &str| host.root().join(name);
    let trials = [loader.on_trial(folder("one")), loader.on_trial(folder("two"))];
    let handles = [&loader, &trials[0], &trials[1]].map(|loader| open(loader, &Creation::default()));
    assert_eq!(calls(&host, "create"), 1);
    for trial in ["one", "two"] {
        let journal = std::fs::read_to_string(folder(trial).join("everything/journal.jsonl")).expect("a journal");
        assert_eq!(journal.matches("\"create\"").count(), 1, "{trial}");
    }
    drop(handles);
}

#[test]
fn who_shares_an_instance_shares_its_fate() {
    for fault in ["error", "panic", "hang"] {
        let faulty = Faulty::new(json!({ "assemble": fault }));
        let other = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
        assert_eq!((other.info().id.as_str(), faulty.reached("create")), ("faulty", 1), "{fault}");
        assert_eq!(served_by(&faulty.handle), "legacy", "{fault}");
        assert_eq!((other.info().id.as_str(), other.why()), ("legacy", faulty.handle.why()), "{fault}: at once");
        assert_eq!((served_by(&other).as_str(), faulty.reached("assemble")), ("legacy", 1), "{fault}");

        faulty.set(json!({}));
        faulty.lift_the_quarantine();
        assert_eq!([served_by(&other), served_by(&faulty.handle)], ["faulty", "faulty"], "{fault}");
        assert_eq!(faulty.reached("create"), 2, "{fault}: one fresh instance for both");
    }
}

#[test]
fn what_one_session_disposes_of_is_gone_for_those_who_share_it() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let (first, second) = (open(&loader, &Creation::default()), open(&loader, &Creation::default()));
    first.dispose("shutdown").expect("disposed");
    assert_eq!(host.given("everything", "dispose"), "shutdown");
    assert_eq!((served_by(&second).as_str(), served_by(&first).as_str()), ("legacy", "legacy"));
    assert_eq!(second.why().as_deref(), Some("everything was disposed (shutdown)"));
    second.dispose("shutdown").expect("it is already");
    assert_eq!(calls(&host, "dispose"), 1);
    drop(open(&loader, &Creation::default()));
    assert_eq!(calls(&host, "create"), 2);
}

#[test]
fn an_instance_that_cannot_be_created_is_tried_again_by_the_next_session() {
    let host = TestHost::with(&["errs"]);
    let loader = host.loader();
    let creation = Creation { config: Some(json!({ "in": "create", "code": 1 })), ..Creation::default() };
    for tried in 1..=2 {
        let handle = loader.engine("errs", &creation).expect("a handle");
        assert!(handle.why().expect("refused").contains("create errs on purpose"));
        assert_eq!(host.journal("errs"), vec![("create".to_owned(), Value::Null); tried]);
    }
}
