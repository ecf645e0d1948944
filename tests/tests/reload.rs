//! Engines that are replaced while they are in use: what a pass of `Loader::reload` does under the handles of a host.
//!
//! Decision: the builds differ in a text that their prompts show, so a test says which build answered and not only that
//! one did. Most of these are about what stays: a turn keeps its engine, a bad build changes nothing.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::{Creation, EngineHandle, Loader, Outcome, Reloaded, Retired, TrustPolicy};
use context_engine_tests::build::library_name;
use context_engine_tests::faulty::{Faulty, PATIENCE, a_turn, served_by, within_the_deadline};
use context_engine_tests::host::TestHost;
use context_engine_tests::record::{with_record, without_record};
use context_engine_tests::session::answer;
use context_engine_tests::variants::{alpha, put, variant};
use serde_json::{Value, json};

/// A host with build 1 of `alpha`.
struct Setting {
    host: TestHost,
    file: PathBuf,
    loader: Loader,
    handle: EngineHandle,
}

impl Setting {
    fn new() -> Setting {
        let host = TestHost::new();
        let file = put(&host.plugins().join(library_name("alpha")), alpha(1));
        let loader = host.loader();
        let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
        assert_eq!(build(&handle), "v001");
        Setting { host, file, loader, handle }
    }

    fn reload(&self) -> String {
        reload(&self.loader)
    }
}

/// Which build of `alpha` answers, or `legacy`.
#[track_caller]
fn build(handle: &EngineHandle) -> String {
    let answer = answer(handle);
    match answer.strip_prefix("alpha | alpha ") {
        Some(rest) => rest.split(' ').next().expect("a number").to_owned(),
        None => answer.split(' ').next().expect("an engine").to_owned(),
    }
}

/// What a pass did, without the digests.
fn outcome(reloaded: &Reloaded) -> String {
    let what = match &reloaded.outcome {
        Outcome::Unchanged { .. } => "unchanged".to_owned(),
        Outcome::Replaced { from, to } if from == to => "configured anew".to_owned(),
        Outcome::Replaced { .. } => "replaced".to_owned(),
        Outcome::Opened { .. } => "opened".to_owned(),
        Outcome::Removed { why } => format!("removed: {}", why.step),
        Outcome::Kept { digest: Some(_), why } => format!("kept: {}", why.step),
        Outcome::Kept { digest: None, why } => format!("still legacy: {}", why.step),
        other => format!("{other:?}"),
    };
    format!("{}: {what}", reloaded.engine)
}

fn reload(loader: &Loader) -> String {
    loader.reload().iter().map(outcome).collect::<Vec<_>>().join(", ")
}

/// Waits for something that happens on a thread of an engine's.
#[track_caller]
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Report H1: the library was replaced, and the old code still answers after a "reload".
#[test]
fn a_replaced_file_answers_the_next_call() {
    let setting = Setting::new();
    assert_eq!(setting.reload(), "alpha: unchanged");
    put(&setting.file, alpha(2));
    assert_eq!(build(&setting.handle), "v001", "nobody looked yet");
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: replaced".into(), "v002".into()));
    // Back to a build that is mapped already.
    put(&setting.file, alpha(1));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: replaced".into(), "v001".into()));
    assert_eq!(setting.loader.swaps(), 2);
}

/// Report H5: overwriting the mapped file in place kills the host.
#[test]
fn overwritten_in_place_the_old_build_answers_until_the_reload() {
    let setting = Setting::new();
    fs::write(&setting.file, alpha(2)).expect("written");
    assert_eq!(build(&setting.handle), "v001");
    fs::write(&setting.file, "").expect("written");
    assert_eq!(build(&setting.handle), "v001");
    fs::write(&setting.file, alpha(3)).expect("written");
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: replaced".into(), "v003".into()));
}

#[test]
fn a_turn_keeps_its_engine() {
    let setting = Setting::new();
    let turn = setting.handle.for_turn();
    put(&setting.file, alpha(2));
    assert_eq!(setting.reload(), "alpha: replaced");
    assert_eq!((build(&turn), build(&setting.handle)), ("v001".into(), "v002".into()));
    assert_ne!(turn.instance(), setting.handle.instance());
    assert_eq!(build(&turn.for_turn()), "v001", "a part of it is the same turn");
    assert_eq!(build(&setting.handle.for_turn()), "v002");
    fs::remove_file(&setting.file).expect("removed");
    assert_eq!(setting.reload(), "alpha: removed: find");
    assert_eq!((build(&turn), build(&setting.handle)), ("v001".into(), "legacy".into()));
}

#[test]
fn a_replaced_instance_is_released_when_its_last_turn_ends() {
    let host = TestHost::with(&["everything"]);
    let loader = host.loader();
    let handle = loader.engine("everything", &Creation::default()).expect("a handle");
    let disposed = || {
        let journal = host.journal("everything");
        journal.iter().filter(|(member, _)| member == "dispose").map(|(_, params)| params.clone()).collect::<Vec<_>>()
    };
    let turns = [handle.for_turn(), handle.for_turn()];
    put(&host.plugins().join(library_name("everything")), variant("everything", 1));
    assert_eq!(reload(&loader), "everything: replaced");
    let [first, second] = turns;
    drop(first);
    assert_eq!(served_by(&second), "everything");
    assert!(disposed().is_empty(), "a turn still has it");
    assert_eq!(loader.retired(), Retired::default());
    drop(second);
    soon("it is not released", || disposed().len() == 1);
    assert_eq!(disposed()[0], "reload", "{:?}", disposed());
    assert_eq!(served_by(&handle), "everything");
    soon("it is not counted", || loader.retired().copies == 1);
    assert!(loader.retired().bytes > 100_000, "{:?}", loader.retired());
}

/// What fails while it is opened, at whichever step, leaves the old one serving; and the good one that follows is taken.
#[test]
fn a_bad_build_never_replaces_a_good_one() {
    let setting = Setting::new();
    let good = alpha(2);
    let foreign = |edit: fn(&mut Value)| with_record(&good, edit);
    let bad: [(&str, Vec<u8>); 7] = [
        ("stage or inspect", vec![]),
        ("half", good[..good.len() / 2].to_vec()),
        ("one byte less", good[..good.len() - 1].to_vec()),
        ("a text", b"#!/bin/sh\n".to_vec()),
        ("no record", without_record(&good)),
        ("another schema", foreign(|record| record["schemaVersion"] = 9.into())),
        ("its library says another name", foreign(|record| record["engine"]["name"] = "Alfa".into())),
    ];
    for (number, (what, bytes)) in bad.iter().enumerate() {
        put(&setting.file, bytes);
        let done = setting.reload();
        assert!(done.starts_with("alpha: kept: "), "{what}: {done}");
        assert_eq!(build(&setting.handle), format!("v{:03}", if number == 0 { 1 } else { 100 + number - 1 }), "{what}");
        assert_eq!(setting.handle.why(), None, "{what}");
        put(&setting.file, alpha(100 + number));
        assert_eq!(setting.reload(), "alpha: replaced", "{what}");
    }
}

#[test]
fn a_removed_file_retires_the_engine_and_a_new_one_is_taken() {
    let setting = Setting::new();
    fs::remove_file(&setting.file).expect("removed");
    assert_eq!(setting.reload(), "alpha: removed: find");
    assert_eq!(build(&setting.handle), "legacy");
    let why = setting.handle.why().expect("a reason");
    assert!(why.starts_with("alpha: its file was removed; "), "{why}");
    assert_eq!(setting.reload(), "alpha: still legacy: find");
    put(&setting.host.plugins().join("another-name.so"), alpha(2));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: opened".into(), "v002".into()));
    assert_eq!(setting.handle.why(), None);
}

/// Report G1: whatever kept the engine from being used, its file mended is enough.
#[test]
fn an_engine_that_was_missing_from_the_start_comes_with_its_file() {
    let host = TestHost::new();
    let loader = host.loader();
    let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
    assert_eq!(build(&handle), "legacy");
    let file = put(&host.plugins().join(library_name("alpha")), &alpha(1)[..5_000]);
    assert_eq!(reload(&loader), "alpha: still legacy: inspect");
    assert!(handle.why().is_some_and(|why| why.contains("is cut off")), "{:?}", handle.why());
    put(&file, alpha(1));
    assert_eq!((reload(&loader), build(&handle)), ("alpha: opened".into(), "v001".into()));
}

#[test]
fn a_renamed_file_is_the_same_engine_wherever_it_lies() {
    let setting = Setting::new();
    let renamed = setting.host.plugins().join("first.so");
    fs::rename(&setting.file, &renamed).expect("renamed");
    assert_eq!(setting.reload(), "alpha: unchanged");
    put(&renamed, &alpha(2)[..5_000]);
    assert_eq!(setting.reload(), "alpha: kept: inspect", "it is known to lie there");
    put(&renamed, alpha(2));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: replaced".into(), "v002".into()));
}

#[test]
fn a_file_that_holds_another_engine_now_is_none_of_the_first() {
    let setting = Setting::new();
    put(&setting.file, fs::read(context_engine_tests::build::plugin("beta")).expect("built"));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: removed: find".into(), "legacy".into()));
}

/// Report H16: one id in two places. The order of precedence holds for what comes later, too; a clash changes nothing.
#[test]
fn the_same_id_in_a_second_place_later() {
    let host = TestHost::new();
    let (first, second) = (host.root().join("first"), host.root().join("second"));
    let name = library_name("alpha");
    put(&second.join(&name), alpha(1));
    let loader = host.loader_of(vec![first.clone(), second.clone()]);
    let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
    put(&first.join(&name), alpha(2));
    assert_eq!((reload(&loader), build(&handle)), ("alpha: replaced".into(), "v002".into()), "it comes first");
    let clash = put(&first.join("copy.so"), alpha(3));
    assert_eq!(
        (reload(&loader), build(&handle)),
        ("alpha: kept: inspect".into(), "v002".into()),
        "which one is meant?"
    );
    fs::remove_file(clash).expect("removed");
    assert_eq!(reload(&loader), "alpha: unchanged");
    put(&first.join(&name), &alpha(3)[..9_000]);
    assert_eq!(
        (reload(&loader), build(&handle)),
        ("alpha: kept: inspect".into(), "v002".into()),
        "no step back to v001"
    );
    fs::remove_file(first.join(&name)).expect("removed");
    assert_eq!((reload(&loader), build(&handle)), ("alpha: replaced".into(), "v001".into()));
}

/// Report H19: the plugins directory is a link, and what it points at changes.
#[cfg(unix)]
#[test]
fn a_linked_directory_that_is_pointed_elsewhere() {
    use std::os::unix::fs::symlink;
    let host = TestHost::new();
    let [old, new] = ["old", "new"].map(|name| host.root().join(name));
    put(&old.join(library_name("alpha")), alpha(1));
    put(&new.join(library_name("alpha")), alpha(2));
    let link = host.root().join("link");
    symlink(&old, &link).expect("linked");
    let loader = host.loader_of(vec![link.clone()]);
    let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
    assert_eq!(build(&handle), "v001");
    let next = host.root().join("next");
    symlink(&new, &next).and_then(|()| fs::rename(&next, &link)).expect("linked");
    assert_eq!((reload(&loader), build(&handle)), ("alpha: replaced".into(), "v002".into()));
}

#[test]
fn a_changed_configuration_makes_a_new_instance_and_one_that_does_not_fit_does_not() {
    let host = TestHost::new();
    let schema = json!({ "type": "object", "properties": { "keep": { "type": "integer" } } });
    host.drop_in_folder_with("everything", "everything", json!({ "configSchema": schema }));
    let config = Arc::new(Mutex::new(json!({ "keep": 1 })));
    let asked = Arc::clone(&config);
    let creation = move || Creation { config: Some(asked.lock().expect("a value").clone()), ..Creation::default() };
    let loader = host.loader();
    let handle = loader.engine_with("everything", Arc::new(creation)).expect("a handle");
    let configured = || host.given("everything", "create")["config"].to_string();
    let first = handle.instance();
    for (new, expected) in [
        (json!({ "keep": 1 }), "everything: unchanged"),
        (json!({ "keep": "two" }), "everything: kept: config"),
        (json!({ "keep": 2 }), "everything: configured anew"),
        (json!({ "keep": 2 }), "everything: unchanged"),
    ] {
        *config.lock().expect("a value") = new;
        assert_eq!((reload(&loader), served_by(&handle)), (expected.into(), "everything".into()));
    }
    assert!(configured().contains('2'), "{}", configured());
    assert_ne!(handle.instance(), first);
    assert_eq!(loader.retired(), Retired::default(), "its library is in use");
}

#[test]
fn what_the_policy_forbids_goes_and_what_it_allows_comes() {
    let setting = Setting::new();
    let deny =
        |ids: &[&str]| TrustPolicy { deny: ids.iter().map(|id| (*id).into()).collect(), ..TrustPolicy::default() };
    setting.loader.set_policy(deny(&["alpha"]));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: removed: trust".into(), "legacy".into()));
    setting.loader.clone().set_policy(deny(&[]));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: opened".into(), "v001".into()));
    // A pin keeps a new build out, and puts one that is running out.
    let digest = setting.loader.find("alpha").expect("found").staged().digest.to_string();
    let pin = |digest: &str| TrustPolicy { pins: [("alpha".into(), digest.into())].into(), ..TrustPolicy::default() };
    setting.loader.set_policy(pin(&digest));
    put(&setting.file, alpha(2));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: kept: trust".into(), "v001".into()));
    setting.loader.set_policy(pin(&"0".repeat(64)));
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: removed: trust".into(), "legacy".into()));
}

#[test]
fn plugins_directories_can_change() {
    let setting = Setting::new();
    let elsewhere = setting.host.root().join("elsewhere");
    put(&elsewhere.join("x.so"), alpha(2));
    setting.loader.set_directories(vec![elsewhere.into(), setting.host.plugins().into()]);
    assert_eq!((setting.reload(), build(&setting.handle)), ("alpha: replaced".into(), "v002".into()));
}

#[test]
fn handles_that_share_an_instance_move_together() {
    let setting = Setting::new();
    let other = setting.loader.engine("alpha", &Creation::default()).expect("a handle");
    put(&setting.file, alpha(2));
    assert_eq!(setting.reload(), "alpha: replaced", "said once");
    assert_eq!((build(&other), other.instance()), ("v002".into(), setting.handle.instance()));
}

#[test]
fn a_handle_that_was_disposed_of_is_left_alone() {
    let setting = Setting::new();
    let other = setting.loader.engine("alpha", &Creation::default()).expect("a handle");
    setting.handle.dispose("shutdown").expect("disposed");
    put(&setting.file, alpha(2));
    assert_eq!(setting.reload(), "");
    assert_eq!((build(&setting.handle), build(&other)), ("legacy".into(), "legacy".into()));
    let new = setting.loader.engine("alpha", &Creation::default()).expect("a handle");
    assert_eq!(build(&new), "v002");
}

/// A turn whose engine fails ends with `legacy`, even when the engine could be had again meanwhile.
#[test]
fn a_turn_whose_engine_fails_goes_on_with_legacy() {
    let faulty = Faulty::new(json!({ "assemble": "error" }));
    let turn = faulty.handle.for_turn();
    assert_eq!((served_by(&turn), served_by(&faulty.handle)), ("legacy".into(), "legacy".into()));
    faulty.set(json!({}));
    faulty.lift_the_quarantine();
    assert_eq!((served_by(&faulty.handle), served_by(&turn)), ("faulty".into(), "legacy".into()));
    assert_eq!(a_turn(&turn).served_by, "legacy");
}

#[test]
fn a_build_that_hangs_is_replaced_by_one_that_does_not() {
    let faulty = Faulty::new(json!({ "assemble": "hang" }));
    assert_eq!(within_the_deadline(|| served_by(&faulty.handle)), "legacy");
    assert_eq!(reload(&faulty.loader), "faulty: still legacy: call", "the same build");
    faulty.set(json!({}));
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    assert_eq!(within_the_deadline(|| reload(&faulty.loader)), "faulty: opened");
    assert_eq!((served_by(&faulty.handle), faulty.handle.why()), ("faulty".into(), None));
    assert_eq!(faulty.loader.retired().copies, 1, "the call that hangs is in its library for ever");
}

/// An instance whose `dispose` hangs is left behind; its deadline passes without anybody waiting for it.
#[test]
fn a_replaced_engine_that_does_not_let_go_keeps_nobody_waiting() {
    let faulty = Faulty::new(json!({ "dispose": "hang" }));
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    assert_eq!(within_the_deadline(|| reload(&faulty.loader)), "faulty: replaced");
    soon("dispose is not called", || faulty.reached("dispose") == 1);
    assert_eq!(within_the_deadline(|| served_by(&faulty.handle)), "faulty");
    assert_eq!(faulty.loader.retired().copies, 0, "it has not left yet");
    thread::sleep(Duration::from_millis(150));
    reload(&faulty.loader);
    assert_eq!(faulty.loader.retired().copies, 1, "its deadline has passed");
}

/// Who ends the process after this has the stores of all engines written, those that were replaced included.
#[test]
fn settling_waits_for_what_was_replaced() {
    let faulty = Faulty::new(json!({ "dispose": "sleep" }));
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    assert_eq!(reload(&faulty.loader), "faulty: replaced");
    soon("dispose is not called", || faulty.reached("dispose") == 1);
    assert_eq!(faulty.loader.retired().copies, 0, "it has not left yet");
    faulty.loader.settle();
    assert_eq!(faulty.loader.retired().copies, 1);
    assert_eq!(served_by(&faulty.handle), "faulty", "what serves is left alone");
}

/// The engine fails while the build that replaces it is opened: its library is counted like any other.
#[test]
fn an_engine_that_fails_while_it_is_replaced_is_counted() {
    let faulty = Faulty::new(json!({}));
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    faulty.set(json!({ "create": "sleep", "assemble": "error" }));
    let (loader, created) = (faulty.loader.clone(), faulty.reached("create"));
    let reloading = thread::spawn(move || reload(&loader));
    soon("the new build is not created", || faulty.reached("create") > created);
    assert_eq!(served_by(&faulty.handle), "legacy");
    faulty.set(json!({}));
    assert_eq!(reloading.join().expect("it ends"), "faulty: replaced");
    assert_eq!(served_by(&faulty.handle), "faulty");
    soon("the build that failed is not counted", || faulty.loader.retired().copies == 1);
}

/// The instance is disposed of through one handle while a reload opens its successor: no handle on it is given that.
#[test]
fn an_instance_that_was_disposed_of_meanwhile_has_no_successor() {
    let faulty = Faulty::new(json!({}));
    let other = faulty.loader.engine("faulty", &faulty.creation).expect("a handle");
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    faulty.set(json!({ "create": "sleep" }));
    let (loader, created) = (faulty.loader.clone(), faulty.reached("create"));
    let reloading = thread::spawn(move || reload(&loader));
    soon("the new build is not created", || faulty.reached("create") > created);
    other.dispose("shutdown").expect("disposed");
    assert_eq!(reloading.join().expect("it ends"), "");
    assert_eq!((served_by(&faulty.handle), served_by(&other)), ("legacy".into(), "legacy".into()));
}

/// What convicts a build is asked once; a cleared quarantine asks again.
#[test]
fn a_new_build_that_panics_is_set_aside_and_the_old_one_serves_on() {
    let faulty = Faulty::new(json!({}));
    let file = faulty.host.plugins().join(library_name("faulty"));
    faulty.set(json!({ "create": "panic" }));
    put(&file, variant("faulty", 1));
    let created = faulty.reached("create");
    for _ in 0..3 {
        assert!(reload(&faulty.loader).starts_with("faulty: kept: "));
    }
    assert_eq!((served_by(&faulty.handle), faulty.reached("create")), ("faulty".into(), created + 1));
    faulty.set(json!({}));
    faulty.lift_the_quarantine();
    assert_eq!((reload(&faulty.loader), served_by(&faulty.handle)), ("faulty: replaced".into(), "faulty".into()));
}

/// What is refused without a verdict on the build is not tried over and over, but when somebody asks, or mends the file.
#[test]
fn a_build_that_was_refused_is_tried_again_when_asked_or_changed() {
    let faulty = Faulty::new(json!({}));
    let file = faulty.host.plugins().join(library_name("faulty"));
    faulty.set(json!({ "create": "error" }));
    put(&file, variant("faulty", 1));
    let before = faulty.reached("create");
    for _ in 0..3 {
        assert_eq!(reload(&faulty.loader), "faulty: kept: open");
    }
    assert_eq!(faulty.reached("create"), before + 1);
    assert_eq!(faulty.loader.reload_anew().iter().map(outcome).collect::<String>(), "faulty: kept: open");
    assert_eq!(faulty.reached("create"), before + 2);
    faulty.set(json!({}));
    assert_eq!(reload(&faulty.loader), "faulty: kept: open");
    put(&file, variant("faulty", 2));
    assert_eq!(reload(&faulty.loader), "faulty: replaced");
}

/// Reports H1, H2: threads that ran a replaced engine end, and run its destructors then.
#[test]
fn threads_of_replaced_engines_end_in_peace() {
    let host = TestHost::with(&["thread-local"]);
    let file = host.plugins().join(library_name("thread-local"));
    let loader = host.loader();
    let handle = loader.engine("thread-local", &Creation::default()).expect("a handle");
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let turn = handle.for_turn();
        assert!(answer(&turn).starts_with("thread-local | 1 threads ended"), "statics of its own in round {round}");
        put(&file, variant("thread-local", round));
        assert_eq!(reload(&loader), "thread-local: replaced");
    }
    assert_eq!(served_by(&handle), "thread-local");
    soon("they do not leave", || loader.retired().copies == ROUNDS);
}

/// Sessions call all the time, from several threads, while the build changes: each call is answered by some build of the
/// engine, and each turn by one.
#[test]
fn calls_go_on_while_builds_change() {
    let setting = Setting::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut turns = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let turn = setting.handle.for_turn();
                        let (first, second) = (build(&turn), build(&turn));
                        assert!(first.starts_with('v') && first == second, "{first}, {second}");
                        assert!(build(&setting.handle).starts_with('v'));
                        turns += 1;
                    }
                    turns
                })
            })
            .collect();
        for number in 0..10 {
            put(&setting.file, alpha(200 + number % 3));
            assert_eq!(setting.reload(), "alpha: replaced");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let turns: usize = callers.into_iter().map(|caller| caller.join().expect("no call failed")).sum();
        assert!(turns > 0);
    });
    assert_eq!(setting.loader.swaps(), 10);
}
