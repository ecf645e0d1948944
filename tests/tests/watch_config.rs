//! A runtime that watches its configuration and plugins: what a person writes into `config.json5` is heeded by the next
//! turn, and a turn that runs goes on with its engine.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::hosts::{self, RunningHost};
use context_engine_loader::{Creation, Loader, LoaderOptions, WatchOptions, Watcher};
use context_engine_runtime::model::{ModelRequest, ScriptedModel, Step};
use context_engine_runtime::{Config, Home, Runtime, RuntimeOptions, Session, TurnReport, TurnRequest};
use context_engine_tests::build::library_name;
use context_engine_tests::host::TestHost;
use context_engine_tests::variants::{alpha, put, variant};
use context_engine_transcript::store::SessionHeader;

/// What a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Host {
    home: TestHost,
    loader: Loader,
    runtime: Runtime,
    session: Session,
    model: Arc<ScriptedModel>,
    tokio: tokio::runtime::Runtime,
    _watcher: Watcher,
}

impl Host {
    /// With build 1 of `alpha` and `everything`, the configuration `config`, and this model.
    fn new(config: &str, model: ScriptedModel) -> Host {
        Host::with(&["everything"], config, model)
    }

    /// With these engines besides.
    fn with(engines: &[&str], config: &str, model: ScriptedModel) -> Host {
        let home = TestHost::with(engines);
        put(&home.plugins().join(library_name("alpha")), alpha(1));
        let file = put(&home.root().join("config.json5"), config);
        let config = Config::read(&file).expect("a configuration");
        let options = LoaderOptions {
            host: RuntimeOptions::profile("the test"),
            policy: config.trust_policy(),
            ..home.options()
        };
        let (loader, model) = (Loader::new(options), Arc::new(model));
        let mut options = RuntimeOptions::new(loader.clone(), Arc::clone(&model) as _);
        options.engine = config.plugins.slots.context_engine.clone().unwrap_or_default();
        let created_with = config.clone();
        options.creations = Arc::new(move |id| Creation {
            config: created_with.plugins.entries.get(id).and_then(|entry| entry.config.clone()),
            ..Creation::default()
        });
        let runtime = Runtime::new(options);
        let watcher = runtime.watch(&Home::at(home.root()), config, WatchOptions::default()).expect("watched");
        let session = Session::create(&home.root().join("sessions/s.jsonl"), SessionHeader::default());
        let session = session.expect("a session");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
        let host = Host { home, loader, runtime, session, model, tokio, _watcher: watcher };
        host.looked();
        host
    }

    /// Waits for a look that begins now or later.
    #[track_caller]
    fn looked(&self) {
        let state = self.home.root().join("state");
        let generation = hosts::ask_for_reload(&state).expect("asked");
        let heeded = |host: &RunningHost| host.last_reload.as_ref().is_some_and(|last| last.generation >= generation);
        let patience = Instant::now() + PATIENCE;
        while !hosts::running(&state).iter().any(heeded) {
            assert!(Instant::now() < patience, "the watcher does not look");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes the configuration as an editor does, and waits until `heeded`. Nobody asks the host to look.
    #[track_caller]
    fn configure(&self, config: &str, heeded: impl Fn() -> bool) {
        put(&self.home.root().join("config.json5"), config);
        let patience = Instant::now() + PATIENCE;
        while !heeded() {
            assert!(Instant::now() < patience, "not heeded: {config}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ask(&self, text: &str) -> TurnReport {
        let request = TurnRequest::text(text);
        self.tokio.block_on(self.runtime.run_turn(&self.session, request, &mut |_| ())).expect("the turn begins")
    }

    fn served_by(&self) -> String {
        let report = self.ask("and?");
        assert!(report.is_answered(), "{:?}", report.end);
        report.served_by
    }

    /// The builds of `alpha` that made the prompts, in order.
    fn builds(&self) -> Vec<String> {
        let build = |request: &ModelRequest| {
            let text = request.messages.first().map(|message| message.text()).unwrap_or_default();
            text.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        self.model.requests().iter().map(build).collect()
    }
}

#[test]
fn what_is_written_into_the_configuration_is_heeded_by_the_next_turn() {
    let host = Host::new("{plugins: {slots: {contextEngine: 'alpha'}}}", ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "alpha");
    for (config, expected) in [
        ("{plugins: {slots: {contextEngine: 'everything'}}}", "everything"),
        ("{plugins: {slots: {contextEngine: 'everything'}, deny: ['everything']}}", "legacy"),
        ("{plugins: {slots: {contextEngine: 'everything'}}}", "everything"),
        ("{plugins: {slots: {contextEngine: 'everything'}, entries: {everything: {config: {keep: 7}}}}}", "everything"),
        ("{plugins: {slots: {contextEngine: ", "everything"),
        (&format!("{{plugins: {}", "[".repeat(200_000)), "everything"),
        (
            "// nothing of what is there is for this host\n{plugins: {enabled: false, slots: {contextEngine: 'alpha'}}}",
            "legacy",
        ),
        ("{plugins: {slots: {contextEngine: 'alpha'}}}", "alpha"),
        ("", "legacy"),
    ] {
        host.configure(config, || host.served_by() == expected);
        host.looked();
        assert_eq!(host.served_by(), expected, "{config}");
    }
    let created = host.home.journal("everything").into_iter().filter(|(member, _)| member == "create");
    let configured: Vec<String> = created.map(|(_, given)| given["config"]["keep"].to_string()).collect();
    assert!(configured.contains(&"7".to_owned()), "{configured:?}");
}

#[test]
fn plugins_directories_are_heeded_too() {
    let host = Host::new("{plugins: {slots: {contextEngine: 'alpha'}}}", ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "alpha");
    let elsewhere = host.home.root().join("elsewhere");
    put(&elsewhere.join("x.so"), alpha(2));
    let config = format!("{{plugins: {{slots: {{contextEngine: 'alpha'}}, load: {{paths: [{elsewhere:?}]}}}}}}");
    host.configure(&config, || host.loader.swaps() > 0);
    assert_eq!(host.served_by(), "alpha");
    assert_eq!(host.builds(), ["v001", "v002"]);
    // And what appears there later.
    let swaps = host.loader.swaps();
    put(&elsewhere.join("x.so"), alpha(3));
    let patience = Instant::now() + PATIENCE;
    while host.loader.swaps() == swaps {
        assert!(Instant::now() < patience, "the new directory is not watched");
        thread::sleep(Duration::from_millis(5));
    }
    host.served_by();
    assert_eq!(host.builds().last().map(String::as_str), Some("v003"));
}

/// The file is replaced while the model answers; the turn's next prompt is still of the engine it began with.
#[test]
fn a_turn_in_flight_keeps_its_engine() {
    let (calls, setting) = (AtomicUsize::new(0), Arc::new(OnceLock::<(PathBuf, Loader)>::new()));
    let known = Arc::clone(&setting);
    let model = ScriptedModel::from_fn(move |_| {
        if calls.fetch_add(1, Ordering::Relaxed) > 0 {
            return Step::text("done");
        }
        let (file, loader) = known.get().expect("set before the turn");
        put(file, alpha(2));
        let patience = Instant::now() + PATIENCE;
        while loader.swaps() == 0 {
            assert!(Instant::now() < patience, "it is not replaced");
            thread::sleep(Duration::from_millis(5));
        }
        Step::call("c1", "no-such-tool", serde_json::json!({}))
    });
    let host = Host::new("{plugins: {slots: {contextEngine: 'alpha'}}}", model);
    let file = host.home.plugins().join(library_name("alpha"));
    assert!(setting.set((file, host.loader.clone())).is_ok());
    for _ in 0..2 {
        assert_eq!(host.served_by(), "alpha");
    }
    assert_eq!(host.builds(), ["v001", "v001", "v002"]);
}

/// Programs that save a file empty it, or move it away, first: nothing is allowed for that moment.
#[test]
fn a_configuration_that_is_being_saved_forbids_what_it_forbade() {
    let config = "{plugins: {slots: {contextEngine: 'everything'}, deny: ['everything']}}";
    let host = Host::new(config, ScriptedModel::from_fn(|_| Step::text("yes")));
    let file = host.home.root().join("config.json5");
    for saving in
        [|file: &Path| fs::write(file, ""), |file: &Path| fs::write(file, " \n"), |file: &Path| fs::remove_file(file)]
    {
        saving(&file).expect("saved");
        host.looked();
        assert_eq!(host.served_by(), "legacy");
        put(&file, config);
        host.looked();
    }
    assert_eq!(host.served_by(), "legacy");
    assert_eq!(host.home.journal("everything"), [], "it was never created");
}

/// A person who allows nothing in particular any more has said so, too.
#[test]
fn a_configuration_that_stays_away_counts_in_the_end() {
    let host = Host::new("{plugins: {slots: {contextEngine: 'alpha'}}}", ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "alpha");
    fs::remove_file(host.home.root().join("config.json5")).expect("removed");
    let patience = Instant::now() + PATIENCE;
    while host.served_by() != "legacy" {
        assert!(Instant::now() < patience, "the slot is still as it was");
        thread::sleep(Duration::from_millis(50));
    }
}

/// What a build does that is tried out keeps nobody from being heeded who forbids it, or the engine that serves.
#[test]
fn a_ban_is_heeded_while_a_build_is_tried_out() {
    let slow =
        "{plugins: {slots: {contextEngine: 'faulty'}, entries: {faulty: {config: {sleep_ms: 4000, faults: {FAULT}}}}}}";
    let host = Host::with(&["faulty"], &slow.replace("FAULT", ""), ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "faulty");
    let created = |host: &Host| host.home.journal("faulty").iter().filter(|(member, _)| member == "create").count();
    // Of the same build, an instance that takes four seconds to be created.
    host.configure(&slow.replace("FAULT", "create: 'sleep'"), || created(&host) == 2);
    let config = "{plugins: {slots: {contextEngine: 'faulty'}, deny: ['faulty']}}";
    let began = Instant::now();
    host.configure(config, || host.served_by() == "legacy");
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for the trial: {:?}", began.elapsed());
    thread::sleep(Duration::from_secs(4).saturating_sub(began.elapsed()));
    host.looked();
    assert_eq!(host.served_by(), "legacy", "what was tried out meanwhile is not used either");
}

/// An engine that is not in the slot any more is let go of; what `select_engine` said while a turn waited holds for it.
#[test]
fn an_engine_that_was_deselected_is_released() {
    let host =
        Host::new("{plugins: {slots: {contextEngine: 'everything'}}}", ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "everything");
    host.runtime.select_engine("alpha");
    assert_eq!(host.served_by(), "alpha");
    host.tokio.block_on(async {
        // Behind a turn, its engine may still care for the transcript.
        host.session.close().await;
        host.runtime.close().await;
    });
    let journal = host.home.journal("everything");
    let disposed: Vec<&serde_json::Value> =
        journal.iter().filter(|(member, _)| member == "dispose").map(|(_, given)| given).collect();
    assert_eq!(disposed.len(), 1, "{journal:?}");
    assert!(disposed[0].to_string().contains("released"), "{disposed:?}");
}

#[test]
fn a_turn_that_waited_has_the_engine_of_when_it_begins() {
    let runtime = Arc::new(OnceLock::<Runtime>::new());
    let known = Arc::clone(&runtime);
    let model = ScriptedModel::from_fn(move |_| {
        // While the first turn runs, and the second waits.
        known.get().expect("set before the turn").select_engine("everything");
        Step::text("yes")
    });
    let host = Host::new("{plugins: {slots: {contextEngine: 'alpha'}}}", model);
    assert!(runtime.set(host.runtime.clone()).is_ok());
    let served = host.tokio.block_on(async {
        let (mut first_events, mut second_events) = (|_| (), |_| ());
        let first = host.runtime.run_turn(&host.session, TurnRequest::text("one"), &mut first_events);
        let second = host.runtime.run_turn(&host.session, TurnRequest::text("two"), &mut second_events);
        let (first, second) = tokio::join!(first, second);
        [first.expect("it begins").served_by, second.expect("it begins").served_by]
    });
    assert_eq!(served, ["alpha", "everything"]);
}

/// A pin that came with its build: until that is tried out, the one before serves.
#[test]
fn a_pin_for_a_build_that_is_tried_out_takes_nothing_away() {
    let config = |pin: &str| {
        let slow = "config: {sleep_ms: 1500, faults: {create: 'sleep'}}";
        format!("{{plugins: {{slots: {{contextEngine: 'faulty'}}, entries: {{faulty: {{{slow}, {pin}}}}}}}}}")
    };
    let host = Host::with(&["faulty"], &config(""), ScriptedModel::from_fn(|_| Step::text("yes")));
    assert_eq!(host.served_by(), "faulty");
    let created = || host.home.journal("faulty").iter().filter(|(member, _)| member == "create").count();
    put(&host.home.plugins().join(library_name("faulty")), variant("faulty", 1));
    let digest = host.loader.find("faulty").expect("found").staged().digest.to_string();
    let patience = Instant::now() + PATIENCE;
    while created() < 2 {
        assert!(Instant::now() < patience, "the new build is not tried out");
        thread::sleep(Duration::from_millis(5));
    }
    host.configure(&config(&format!("pin: 'sha256:{digest}'")), || {
        assert_eq!(host.served_by(), "faulty");
        host.loader.swaps() > 0
    });
    assert_eq!(host.served_by(), "faulty");
}
