//! `context-engine quarantine`, over what a host that runs has written: this program is that host.
#![forbid(unsafe_code)]

use std::fs;

use context_engine_loader::quarantine::{Fault, Quarantine, QuarantineKey, Subject};
use context_engine_loader::stage;
use context_engine_tests::host::TestHost;
use serde_json::json;

fn subject(host: &TestHost, engine: &str) -> Subject {
    let path = host.put(&format!("lib{engine}.so"), engine);
    let digest = stage::stage(&path, &host.root().join("state/stages")).expect("staged").digest;
    let key = QuarantineKey::of(&digest, Some(&json!({ "limit": 3 })));
    Subject { engine: engine.to_owned(), digest: digest.to_string(), key, path }
}

fn quarantine(host: &TestHost) -> Quarantine {
    Quarantine::open(&host.root().join("state"))
}

#[test]
fn an_empty_quarantine_says_so() {
    let host = TestHost::new();
    // Also where the configuration is broken.
    fs::write(host.root().join("config.json5"), "{").expect("written");
    for (args, code, out, err) in [
        (&["list"][..], 0, "no engine is set aside\n", ""),
        (&["clear", "--all"], 0, "nothing was in quarantine\n", ""),
        (&["why", "alpha"], 2, "", "nothing is known about \"alpha\"; nothing is in quarantine"),
        (&["clear", "alpha"], 2, "", "nothing is known about \"alpha\"; nothing is in quarantine"),
        (&["clear"], 2, "", "<ID>"),
        (&["clear", "alpha", "--all"], 2, "", "cannot be used with"),
    ] {
        let ran = host.run([&["quarantine"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (code, out), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(err), "{args:?}: {}", ran.err);
    }
    assert!(!host.root().join("state").exists(), "looking makes no folders");
}

#[test]
fn a_person_can_see_what_is_set_aside_why_and_free_it_while_the_host_runs() {
    let host = TestHost::new();
    let (running, alpha, beta) = (quarantine(&host), subject(&host, "alpha"), subject(&host, "beta"));
    running.add(&alpha, "assemble", Fault::Timeout, "no answer within 10 s");
    running.add(&beta, "create", Fault::Crash, "called exit() in create");
    let list = host.run(["quarantine", "list"]);
    assert_eq!((list.code, list.out.lines().count()), (1, 2), "{list:?}");
    assert!(list.out.contains("called exit() in create"), "{list:?}");
    let json = host.run(["quarantine", "list", "--json"]).json();
    assert_eq!((&json["inForce"], &json["history"]), (&json!(2), &json!(0)));
    for (engine, words) in [
        ("alpha", &[&format!("set aside in process {}", std::process::id()), "no answer within 10 s"][..]),
        ("beta", &["set aside in every process", "called exit() in create", "quarantine clear beta"]),
    ] {
        let why = host.run(["quarantine", "why", engine]);
        assert_eq!(why.code, 1, "{why:?}");
        for word in words.iter().chain(&[&*host.plugins().join(format!("lib{engine}.so")).to_string_lossy()]) {
            assert!(why.out.contains(word), "{word}: {}", why.out);
        }
    }
    let json = host.run(["quarantine", "why", "beta", "--json"]).json();
    let record = &json["records"][0];
    for (member, value) in [("scope", "durable"), ("fault", "crash"), ("operation", "create"), ("digest", &beta.digest)]
    {
        assert_eq!(record[member], *value);
    }
    assert!(running.holds(&alpha.key).is_some());
    let clear = host.run(["quarantine", "clear", "alpha"]);
    assert!(clear.code == 0 && clear.out.starts_with("cleared   alpha, "), "{clear:?}");
    assert!(clear.out.contains("did not answer in time in assemble: no answer within 10 s"), "{clear:?}");
    assert!(running.holds(&alpha.key).is_none() && running.holds(&beta.key).is_some());
    let again = host.run(["quarantine", "clear", "alpha"]);
    assert!(again.code == 2 && again.err.contains("in the quarantine and its history: beta"), "{again:?}");
    let json = host.run(["quarantine", "clear", "--all", "--json"]).json();
    assert_eq!(json["cleared"][0]["engine"], "beta");
    assert_eq!(host.run(["quarantine", "list"]).code, 0);
}

#[test]
fn what_failed_in_a_process_that_has_ended_is_history_and_what_is_no_record_is_shown() {
    let host = TestHost::new();
    let alpha = subject(&host, "alpha");
    quarantine(&host).add(&alpha, "assemble", Fault::Panic, "boom");
    let folder = host.root().join("state/quarantine");
    let file = folder.join(format!("alpha-{}.json", alpha.key.short()));
    let text = fs::read_to_string(&file).expect("a record");
    let pid = format!("\"pid\": {}", std::process::id());
    fs::write(&file, text.replace(&pid, "\"pid\": 4294967290")).expect("written");
    fs::write(folder.join("notes-1.json"), "{}").expect("written");
    let list = host.run(["quarantine", "list"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert!(list.out.contains("no engine is set aside; 1 in the history"), "{list:?}");
    assert!(list.out.contains("notes-1.json") && list.out.contains("counts as nothing"), "{list:?}");
    let all = host.run(["quarantine", "list", "--all"]);
    assert!(all.code == 0 && all.out.contains("history") && all.out.contains("boom"), "{all:?}");
    let why = host.run(["quarantine", "why", "alpha"]);
    assert!(why.code == 0 && why.out.contains("this is history"), "{why:?}");
    let clear = host.run(["quarantine", "clear", "--all"]);
    assert!(clear.code == 0 && clear.out.lines().count() == 2, "{clear:?}");
    assert_eq!(
        fs::read_dir(&folder).expect("listed").filter_map(Result::ok).filter(|e| e.file_name() != ".lock").count(),
        0
    );
}
