//! Turns with real plugins that fail, are switched, bring tools, or meet another process: what the person gets, and what
//! is in the transcript.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine_loader::{Creation, Deadlines, Loader, LoaderOptions, OnFailure};
use context_engine_runtime::model::{ScriptedModel, Step};
use context_engine_runtime::{Runtime, RuntimeError, RuntimeOptions, Session, TurnEnd, TurnReport, TurnRequest};
use context_engine_tests::build::{example, library_name};
use context_engine_tests::host::TestHost;
use context_engine_transcript::store::SessionHeader;
use serde_json::{Value, json};

struct Host {
    _home: TestHost,
    runtime: Runtime,
    session: Session,
    model: Arc<ScriptedModel>,
    tokio: tokio::runtime::Runtime,
}

impl Host {
    /// With these plugins, the first of them in the slot and configured so.
    fn new(plugins: &[&str], config: Value, model: ScriptedModel) -> Host {
        Host::with(plugins, config, model, |_| ())
    }

    fn with(plugins: &[&str], config: Value, model: ScriptedModel, change: impl FnOnce(&mut LoaderOptions)) -> Host {
        let home = TestHost::with(plugins);
        std::fs::copy(example("sliding-window"), home.plugins().join(library_name("sliding-window"))).expect("copied");
        let mut options = LoaderOptions { host: RuntimeOptions::profile("the test"), ..home.options() };
        change(&mut options);
        let creation = Creation { config: Some(config).filter(|config| !config.is_null()), ..Creation::default() };
        let first = plugins.first().map_or_else(|| "missing".to_owned(), |id| (*id).to_owned());
        let model = Arc::new(model.strict_roles());
        let mut options = RuntimeOptions::new(Loader::new(options), Arc::clone(&model) as _);
        options.engine.clone_from(&first);
        options.creations = Arc::new(move |id| if id == first { creation.clone() } else { Default::default() });
        let runtime = Runtime::new(options);
        let session =
            Session::create(&home.root().join("sessions/s.jsonl"), SessionHeader::default()).expect("a session");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
        Host { _home: home, runtime, session, model, tokio }
    }

    fn begin(&self, text: &str) -> Result<TurnReport, RuntimeError> {
        let request = TurnRequest::text(text);
        self.tokio.block_on(self.runtime.run_turn(&self.session, request, &mut |_| ()))
    }

    fn ask(&self, text: &str) -> TurnReport {
        self.begin(text).expect("the turn begins")
    }

    fn prompt(&self, at: usize) -> String {
        let texts: Vec<String> = self.model.requests()[at].messages.iter().map(|message| message.text()).collect();
        texts.join(" | ")
    }
}

fn says(replies: &[&'static str]) -> ScriptedModel {
    ScriptedModel::new(replies.iter().copied())
}

/// Report G5: after a quarantine in the middle of a turn the handle still had the plugin's name and ownership, and
/// nobody compacted.
#[test]
fn g5_an_owning_engine_fails_and_legacy_takes_over_whole() {
    let words = "word ".repeat(400);
    let answer = words.clone();
    let model = ScriptedModel::from_fn(move |_| Step::text(answer.clone())).window(4_000);
    let config = json!({ "faults": { "assemble": "error" }, "after": 2 });
    let host = Host::new(&["faulty"], config, model);
    let served: Vec<String> = (0..8)
        .map(|_| {
            let report = host.ask(&words);
            assert!(report.is_answered(), "{:?}", report.end);
            report.served_by
        })
        .collect();
    assert_eq!(served, ["faulty", "faulty", "legacy", "legacy", "legacy", "legacy", "legacy", "legacy"]);
    let summaries = host.session.messages().iter().filter(|message| message.role_name() == "compactionSummary").count();
    assert_eq!(summaries, 1, "legacy's history is compacted");
    assert!(host.ask("why?").why.expect("a reason").contains("assemble"));
}

/// Report G9: no answer rather than one from another context.
#[test]
fn g9_a_strict_host_stops_before_the_model_is_asked() {
    let strict = |options: &mut LoaderOptions| options.on_failure = OnFailure::Stop;
    let missing = Host::with(&[], Value::Null, says(&["hi"]), strict);
    let error = missing.begin("hello").expect_err("it does not begin").to_string();
    assert!(error.contains("missing"), "{error}");
    assert_eq!((missing.model.requests().len(), missing.session.messages().len()), (0, 0));

    let config = json!({ "faults": { "assemble": "error" }, "after": 1 });
    let failing = Host::with(&["faulty"], config, says(&["hi"]), strict);
    assert!(failing.ask("hello").is_answered());
    let report = failing.ask("and now?");
    let TurnEnd::Failed(RuntimeError::Prompt(error)) = &report.end else { panic!("{:?}", report.end) };
    assert!(error.to_string().contains("plugins.contextEnginePolicy is \"strict\""), "{error}");
    assert_eq!(failing.model.requests().len(), 1);
}

/// An engine that is there, one that is missing and the built-in one, in one session: each has the whole history.
#[test]
fn a_session_keeps_its_history_through_every_engine() {
    let host = Host::new(&["alpha"], Value::Null, says(&["one", "two", "three", "four"]));
    assert_eq!(host.ask("first").served_by, "alpha");
    for (engine, question, served_by) in [
        ("sliding-window", "second", "sliding-window"),
        ("not-there", "third", "legacy"),
        ("legacy", "fourth", "legacy"),
    ] {
        host.runtime.select_engine(engine);
        let report = host.ask(question);
        assert_eq!((report.served_by.as_str(), report.why.is_some()), (served_by, engine == "not-there"), "{engine}");
    }
    assert_eq!(host.prompt(3), "first | one | second | two | third | three | fourth");
}

#[test]
fn a_hung_engine_costs_its_deadline_and_the_turn_is_answered() {
    let config = json!({ "faults": { "after_turn": "hang" } });
    let short = [("after_turn".to_owned(), Duration::from_millis(50))];
    let deadlines = Deadlines::with(short).expect("a member");
    let creation = Creation { config: Some(config), deadlines, ..Creation::default() };
    let plugins = TestHost::with(&["faulty"]);
    let model = Arc::new(says(&["hi", "again"]));
    let mut options = RuntimeOptions::new(plugins.loader(), Arc::clone(&model) as _);
    options.engine = "faulty".into();
    options.creations = Arc::new(move |_| creation.clone());
    let runtime = Runtime::new(options);
    let session = Session::create(&plugins.root().join("s.jsonl"), SessionHeader::default()).expect("a session");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
    let started = Instant::now();
    let report = tokio.block_on(runtime.run_turn(&session, TurnRequest::text("hello"), &mut |_| ())).expect("begins");
    assert_eq!((report.text.as_str(), report.served_by.as_str()), ("hi", "faulty"));
    let report = tokio.block_on(runtime.run_turn(&session, TurnRequest::text("more"), &mut |_| ())).expect("begins");
    assert_eq!((report.text.as_str(), report.served_by.as_str()), ("again", "legacy"));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn an_engines_tools_are_offered_with_the_hosts_and_run_in_the_loop() {
    let steps = [Step::call("c1", "recall", json!({ "q": 1 })), Step::text("found")];
    let host = Host::new(&["everything"], json!({}), ScriptedModel::new(steps));
    let report = host.ask("what was it?");
    assert!(report.is_answered(), "{:?}", report.end);
    let requests = host.model.requests();
    let names: Vec<&str> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["recall"]);
    let result = host.session.messages().into_iter().find(|message| message.tool_call_id == "c1").expect("a result");
    assert_eq!(result.text(), r#"recalled {"q":1}, cancelled: false"#);
}

/// Report E1: two processes on one session, and the turns of one were gone. Here it is a second runtime; the lock is the
/// file's, and processes are tested with the store.
#[test]
fn e1_a_session_that_is_open_elsewhere_is_refused_and_names_who_has_it() {
    let host = Host::new(&["alpha"], Value::Null, says(&["one"]));
    host.ask("first");
    let error = Session::open(host.session.path()).expect_err("it is open").to_string();
    assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    let path = host.session.path().to_owned();
    host.tokio.block_on(host.runtime.close());
    drop((host.session, host.runtime));
    let (again, _) = Session::open(&path).expect("it is free");
    assert_eq!(again.messages().len(), 2);
}
