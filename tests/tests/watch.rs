//! A host that watches its plugins directories: every way in which people and programs change a file ends right.
//!
//! Decision: the tests call the engine all the time, as sessions do, and wait for the build that should answer in the end.
//! What answers on the way is asserted, too: an older build, never half of one. How fast it is, the benchmarks say.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::{
    Creation, EngineHandle, Loader, LoaderOptions, Outcome, Reloaded, WatchOptions, Watcher, hosts,
};
use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::faulty::{Faulty, served_by};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::answer;
use context_engine_tests::swaps::{Plan, run};
use context_engine_tests::variants::{alpha, put, variant};
use serde_json::json;

/// What a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host with build 1 of `alpha`, watched.
struct Watched {
    host: TestHost,
    file: PathBuf,
    loader: Loader,
    handle: EngineHandle,
    done: Receiver<Vec<Reloaded>>,
    watcher: Watcher,
}

fn telling() -> (WatchOptions, Receiver<Vec<Reloaded>>) {
    let (tell, told) = mpsc::channel();
    let told_of = move |done: &[Reloaded]| drop(tell.send(done.to_vec()));
    (WatchOptions { told: Some(Box::new(told_of)), ..WatchOptions::default() }, told)
}

impl Watched {
    fn new() -> Watched {
        Watched::with(|_, options| options)
    }

    fn with(change: impl FnOnce(&TestHost, WatchOptions) -> WatchOptions) -> Watched {
        let host = TestHost::new();
        let file = put(&host.plugins().join(library_name("alpha")), alpha(1));
        let loader = host.loader();
        let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
        let (options, done) = telling();
        let watcher = loader.watch(change(&host, options)).expect("a watcher");
        looked(&host);
        Watched { host, file, loader, handle, done, watcher }
    }

    /// Calls until `build` answers; the builds that did, without repetitions.
    #[track_caller]
    fn until(&self, build: &str) -> Vec<String> {
        until(&self.handle, build)
    }
}

/// Waits until the watcher has taken its first look: from then on, it is told.
#[track_caller]
fn looked(host: &TestHost) {
    let patience = Instant::now() + PATIENCE;
    while !hosts::running(&host.root().join("state")).iter().any(|host| host.last_reload.is_some()) {
        assert!(Instant::now() < patience, "the watcher does not look");
        thread::sleep(Duration::from_millis(5));
    }
}

fn build(handle: &EngineHandle) -> String {
    let answer = answer(handle);
    let shown = answer.strip_prefix("alpha | alpha ").unwrap_or(&answer);
    shown.split(' ').next().expect("a word").to_owned()
}

#[track_caller]
fn until(handle: &EngineHandle, expected: &str) -> Vec<String> {
    let patience = Instant::now() + PATIENCE;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let build = build(handle);
        if seen.last() != Some(&build) {
            seen.push(build.clone());
        }
        if build == expected {
            return seen;
        }
        assert!(Instant::now() < patience, "{expected} does not answer; these did: {seen:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn by_rename() {
    let watched = Watched::new();
    put(&watched.file, alpha(2));
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
    let done = watched.done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&done[..], [Reloaded { outcome: Outcome::Replaced { .. }, .. }]), "{done:?}");
}

/// A request that comes while the first look is taken was written before anybody watched the file it is written to, unless
/// that was seen to first.
#[test]
fn a_request_during_the_first_look_is_heeded() {
    let mut state = None;
    let watched = Watched::with(|host, options| {
        let at = host.root().join("state");
        state = Some(at.clone());
        let mut first = true;
        let before = move || {
            if std::mem::take(&mut first) {
                hosts::ask_for_reload(&at).expect("asked");
            }
            None
        };
        WatchOptions { before: Some(Box::new(before)), ..options }
    });
    let state = state.expect("the state folder");
    let heeded =
        || hosts::running(&state).iter().any(|host| host.last_reload.as_ref().is_some_and(|l| l.generation > 0));
    let patience = Instant::now() + PATIENCE;
    while !heeded() {
        assert!(Instant::now() < patience, "the request is not heeded");
        thread::sleep(Duration::from_millis(5));
    }
    drop(watched);
}

/// Report H5.
#[test]
fn by_copy_over_the_file() {
    let watched = Watched::new();
    let new = watched.host.root().join("new.so");
    fs::write(&new, alpha(2)).expect("written");
    fs::copy(&new, &watched.file).expect("copied");
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
}

#[test]
fn by_delete_and_create() {
    let watched = Watched::new();
    fs::remove_file(&watched.file).expect("removed");
    fs::write(&watched.file, alpha(2)).expect("written");
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
    fs::remove_file(&watched.file).expect("removed");
    assert_eq!(watched.until("legacy"), ["v002", "legacy"]);
    put(&watched.file, alpha(3));
    assert_eq!(watched.until("v003"), ["legacy", "v003"]);
}

/// Between the two, there is no file. It is not taken for removed at once.
#[test]
fn by_delete_and_create_a_moment_later() {
    let watched = Watched::new();
    fs::remove_file(&watched.file).expect("removed");
    let removed = Instant::now();
    while removed.elapsed() < Duration::from_millis(200) {
        assert_eq!(build(&watched.handle), "v001");
        thread::sleep(Duration::from_millis(5));
    }
    put(&watched.file, alpha(2));
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
}

/// A host whose own code panics when it is told goes on watching.
#[test]
fn what_panics_when_it_is_told_does_not_end_the_watching() {
    let watched =
        Watched::with(|_, options| WatchOptions { told: Some(Box::new(|_| panic!("the host's"))), ..options });
    for number in [2, 3] {
        put(&watched.file, alpha(number));
        watched.until(&format!("v{number:03}"));
    }
}

/// Report H4: the watcher fires while the file is still being copied.
#[test]
fn in_ten_slow_pieces() {
    let watched = Watched::new();
    let bytes = alpha(2);
    let mut file = File::create(&watched.file).expect("created");
    for piece in bytes.chunks(bytes.len() / 10 + 1) {
        file.write_all(piece).and_then(|()| file.flush()).expect("written");
        assert_eq!(build(&watched.handle), "v001");
        thread::sleep(Duration::from_millis(100));
    }
    drop(file);
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
    assert_eq!(watched.loader.swaps(), 1, "half a library was taken");
    let told: Vec<Reloaded> = watched.done.recv_timeout(PATIENCE).into_iter().flatten().collect();
    let replaced = |told: &Reloaded| matches!(told.outcome, Outcome::Replaced { .. });
    // Elsewhere the system does not tell that a file is being written.
    if cfg!(target_os = "linux") {
        assert!(told.len() == 1 && replaced(&told[0]), "nothing is said of what is not there yet: {told:?}");
    }
}

/// Report H4: a file that is overwritten without being cut off first is of the right length all the time, and half another
/// build. It is not read before its writer has closed it.
#[cfg(target_os = "linux")]
#[test]
fn overwritten_in_place_with_a_pause_in_the_middle() {
    let watched = Watched::new();
    let whole = |number: usize| [alpha(number), format!("the end of build {number}").into_bytes()].concat();
    put(&watched.file, whole(2));
    watched.until("v002");
    let new = whole(3);
    let (beginning, end) = new.split_at(new.len() - 5);
    let mut file = File::options().write(true).open(&watched.file).expect("opened");
    file.write_all(beginning).expect("written");
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(build(&watched.handle), "v002");
    }
    file.write_all(end).expect("written");
    drop(file);
    assert_eq!(watched.until("v003"), ["v002", "v003"]);
    assert_eq!(watched.loader.swaps(), 2);
}

#[test]
fn five_times_a_second() {
    let watched = Watched::new();
    for number in 2..=11 {
        put(&watched.file, alpha(number));
        let tick = Instant::now();
        while tick.elapsed() < Duration::from_millis(200) {
            let build = build(&watched.handle);
            assert!(build.starts_with('v'), "{build}");
        }
    }
    watched.until("v011");
    assert!(watched.loader.swaps() <= 10, "{}", watched.loader.swaps());
}

#[test]
fn a_bad_build_is_said_once_and_the_good_one_after_it_is_taken() {
    let watched = Watched::new();
    put(&watched.file, &alpha(2)[..9_000]);
    let done = watched.done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&done[..], [Reloaded { outcome: Outcome::Kept { digest: Some(_), .. }, .. }]), "{done:?}");
    // Something else changes meanwhile.
    watched.host.put("notes.txt", "remember the milk");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(build(&watched.handle), "v001");
    put(&watched.file, alpha(3));
    assert_eq!(watched.until("v003"), ["v001", "v003"]);
    let done = watched.done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&done[..], [Reloaded { outcome: Outcome::Replaced { .. }, .. }]), "{done:?}");
}

/// Reports H16, H19: directories that are links, that appear later, and that come first then.
#[cfg(unix)]
#[test]
fn directories_that_appear_later_and_links_that_are_turned() {
    use std::os::unix::fs::symlink;
    let host = TestHost::new();
    let (early, late) = (host.root().join("a/b/plugins"), host.root().join("link"));
    let loader = host.loader_of(vec![early.clone(), late.clone()]);
    let handle = loader.engine("alpha", &Creation::default()).expect("a handle");
    let _watcher = loader.watch(WatchOptions::default()).expect("a watcher");
    looked(&host);
    assert_eq!(build(&handle), "legacy");
    let [old, new] = ["old", "new"].map(|name| host.root().join("elsewhere").join(name));
    put(&old.join("x.so"), alpha(1));
    put(&new.join("x.so"), alpha(2));
    symlink(&old, &late).expect("linked");
    assert_eq!(until(&handle, "v001"), ["legacy", "v001"]);
    let turned = host.root().join("turned");
    symlink(&new, &turned).and_then(|()| fs::rename(&turned, &late)).expect("linked");
    assert_eq!(until(&handle, "v002"), ["v001", "v002"]);
    // Behind the link.
    put(&new.join("x.so"), alpha(3));
    assert_eq!(until(&handle, "v003"), ["v002", "v003"]);
    fs::create_dir_all(early.parent().expect("a folder")).expect("folders");
    thread::sleep(Duration::from_millis(100));
    put(&early.join("x.so"), alpha(4));
    assert_eq!(until(&handle, "v004"), ["v003", "v004"]);
    fs::remove_dir_all(host.root().join("a")).expect("removed");
    until(&handle, "v003");
    put(&early.join("x.so"), alpha(5));
    until(&handle, "v005");
}

#[test]
fn a_plugin_folder_whose_library_is_replaced() {
    let host = TestHost::new();
    host.drop_in_folder("everything", "everything");
    let loader = host.loader();
    let handle = loader.engine("everything", &Creation::default()).expect("a handle");
    let (options, done) = telling();
    let _watcher = loader.watch(options).expect("a watcher");
    looked(&host);
    put(&host.plugins().join("everything/lib/engine.so"), variant("everything", 1));
    let done = done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&done[..], [Reloaded { outcome: Outcome::Replaced { .. }, .. }]), "{done:?}");
    assert_eq!(served_by(&handle), "everything");
}

#[test]
fn a_file_besides_the_plugins_is_read_before_the_look() {
    let host = TestHost::with(&["everything"]);
    let (config, loader) = (host.root().join("config.json5"), host.loader());
    let keep = Arc::new(Mutex::new(String::from("1")));
    let asked = Arc::clone(&keep);
    let creation =
        move || Creation { config: Some(json!({ "keep": *asked.lock().expect("a text") })), ..Creation::default() };
    let handle = loader.engine_with("everything", Arc::new(creation)).expect("a handle");
    let (options, done) = telling();
    let before = {
        let (config, keep) = (config.clone(), Arc::clone(&keep));
        move || {
            if let Ok(text) = fs::read_to_string(&config) {
                *keep.lock().expect("a text") = text;
            }
            None
        }
    };
    let options = WatchOptions { files: vec![config.clone()], before: Some(Box::new(before)), ..options };
    let _watcher = loader.watch(options).expect("a watcher");
    looked(&host);
    let first = handle.instance();
    put(&config, "2");
    let done = done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&done[..], [Reloaded { outcome: Outcome::Replaced { from, to }, .. }] if from == to), "{done:?}");
    assert_ne!(handle.instance(), first);
    assert_eq!(served_by(&handle), "everything");
}

#[test]
fn where_the_system_cannot_watch_the_host_looks_by_itself() {
    let watched =
        Watched::with(|_, options| WatchOptions { poll_only: true, poll: Duration::from_millis(50), ..options });
    put(&watched.file, alpha(2));
    assert_eq!(watched.until("v002"), ["v001", "v002"]);
}

#[test]
fn a_quarantine_that_is_lifted_lets_the_new_build_be_tried_again() {
    let faulty = Faulty::new(json!({}));
    let (options, done) = telling();
    let _watcher = faulty.loader.watch(options).expect("a watcher");
    looked(&faulty.host);
    faulty.set(json!({ "create": "panic" }));
    put(&faulty.host.plugins().join(library_name("faulty")), variant("faulty", 1));
    let kept = done.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(&kept[..], [Reloaded { outcome: Outcome::Kept { .. }, .. }]), "{kept:?}");
    faulty.set(json!({}));
    faulty.lift_the_quarantine();
    let patience = Instant::now() + PATIENCE;
    while faulty.loader.swaps() == 0 {
        assert!(Instant::now() < patience, "it is not tried again");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(served_by(&faulty.handle), "faulty");
}

#[test]
fn a_watcher_that_is_dropped_looks_no_more_and_says_so() {
    let watched = Watched::new();
    let state = watched.host.root().join("state");
    let [running] = &hosts::running(&state)[..] else { panic!("one host runs") };
    assert_eq!((running.label.as_str(), running.engines.len(), running.swaps), ("this host", 1, 0));
    assert_eq!(running.engines[0].digest.as_ref().map(|digest| digest.len()), Some(64));
    let Watched { host, file, loader, handle, watcher, .. } = watched;
    drop(watcher);
    assert_eq!(hosts::running(&state), []);
    put(&file, alpha(2));
    thread::sleep(Duration::from_millis(300));
    assert_eq!((build(&handle), loader.swaps()), ("v001".into(), 0));
    drop(host);
}

#[test]
fn a_host_says_what_it_has_and_heeds_who_asks() {
    let watched = Watched::new();
    let state = watched.host.root().join("state");
    let second = watched.loader.engine("beta", &Creation::default()).expect("a handle");
    put(&watched.file, alpha(2));
    watched.until("v002");
    let generation = hosts::ask_for_reload(&state).expect("asked");
    let patience = Instant::now() + PATIENCE;
    let running = loop {
        let host = hosts::running(&state).into_iter().next().expect("it runs");
        if host.last_reload.as_ref().is_some_and(|last| last.generation >= generation) {
            break host;
        }
        assert!(Instant::now() < patience, "{host:#?}");
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((running.swaps, running.retired_copies, running.mapped.len()), (1, 1, 2));
    let engines: Vec<(&str, bool)> =
        running.engines.iter().map(|engine| (engine.id.as_str(), engine.digest.is_some())).collect();
    assert_eq!(engines, [("alpha", true), ("beta", false)]);
    assert!(running.engines[1].why.as_ref().is_some_and(|why| why.contains("no plugin has the id")));
    let done = running.last_reload.expect("a look").engines;
    assert_eq!(done.iter().map(|done| done.outcome.as_str()).collect::<Vec<_>>(), ["unchanged", "kept"]);
    drop(second);
}

/// Copies of builds that a host has mapped stay where they are; older ones that nobody has go.
#[test]
fn staged_copies_of_retired_builds_stay_while_a_host_has_them() {
    let watched = Watched::new();
    put(&watched.file, alpha(2));
    watched.until("v002");
    let stages = watched.host.root().join("state/stages");
    let stray = stages.join(format!("{}.so", "0".repeat(64)));
    fs::write(&stray, "nobody's").expect("written");
    let names =
        |folder: &Path| fs::read_dir(folder).expect("stages").flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(30 * 60 * 60);
    for copy in names(&stages) {
        File::options().append(true).open(copy).and_then(|file| file.set_modified(long_ago)).expect("made old");
    }
    looked(&watched.host);
    // Another process, say the command, looks through the directories.
    let other = Loader::new(LoaderOptions { ..watched.host.options() });
    assert_eq!(other.scan().len(), 1);
    assert!(!stray.exists());
    assert_eq!(names(&stages).len(), 2, "{:?}", names(&stages));
}

/// Every call is answered by one build or another while builds come and go, none by `legacy`, none fails, and no turn has
/// two. A short one of what `reload_soak` runs for half a minute.
#[test]
fn no_call_is_dropped_while_the_engine_is_replaced() {
    let plan = Plan { lasts: Duration::from_secs(3), rate: 1_000, swaps: 10, builds: 4 };
    let done = run(plan, &plugin("alpha"));
    assert_eq!((done.others, done.mixed), (Vec::<String>::new(), 0));
    assert_eq!((done.swaps, done.by_build.len()), (10, 4));
}
