//! Tools of an engine's own: what the model is offered and told, and what sets the engine aside.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    EngineTools, IngestParams, IngestResult, ToolCallParams, ToolsListParams,
};
use context_engine_loader::{Creation, EngineHandle, EngineTool, ToolAnswer};
use context_engine_tests::faulty::{Faulty, served_by, within_the_deadline};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::plain_call;
use serde_json::{Value, json};

/// Names of the tools a session is offered, with who offers them.
fn offered(handle: &EngineHandle) -> String {
    let answer = handle.tools(&plain_call());
    let names: Vec<String> = answer.value.into_iter().map(|tool| tool.name).collect();
    format!("{}: {}", answer.served_by, names.join(" "))
}

fn call(handle: &EngineHandle, name: &str) -> ToolAnswer {
    handle.call_tool(&plain_call(), "call-1", name, r#"{"q":1}"#)
}

fn text(answer: &ToolAnswer) -> &str {
    answer.content[0]["text"].as_str().expect("a text")
}

#[test]
fn tools_of_a_plugin_are_offered_and_run() {
    let host = TestHost::with(&["everything"]);
    let handle = host.engine("everything", json!({}));
    let listed = handle.tools(&plain_call());
    let recall = EngineTool {
        name: "recall".into(),
        description: "Finds what left the window".into(),
        parameters: json!({ "type": "object", "properties": {} }),
    };
    assert_eq!((listed.value, listed.served_by.as_str(), listed.why), (vec![recall], "everything", None));
    let content = vec![json!({ "type": "text", "text": r#"recalled {"q":1}, cancelled: false"# })];
    let answer = ToolAnswer { content, is_error: false, served_by: "everything".into(), why: None };
    assert_eq!(call(&handle, "recall"), answer);
    let bare = handle.call_tool(&plain_call(), "call-2", "recall", " ");
    assert_eq!(text(&bare), "recalled {}, cancelled: false");
}

#[test]
fn every_part_of_a_call_arrives() {
    let faulty = Faulty::new(json!({}));
    assert_eq!(text(&call(&faulty.handle, "look")), r#"["call-1","look","{\"q\":1}"]"#);
    assert_eq!(offered(&faulty.handle), "faulty: look", "the other one has a name no provider takes");
}

#[test]
fn an_engine_without_tools_offers_none() {
    let host = TestHost::with(&["alpha"]);
    let legacy = host.loader().engine("legacy", &Creation::default()).expect("legacy");
    for handle in [host.engine("alpha", Value::Null), legacy] {
        let id = handle.info().id.clone();
        assert_eq!(offered(&handle), format!("{id}: "));
        let answer = call(&handle, "recall");
        assert_eq!((answer.is_error, text(&answer)), (true, "There is no tool \"recall\"; go on without it."));
        assert_eq!(handle.info().id, id);
    }
}

#[test]
fn what_a_tool_refuses_is_told_to_the_model_and_sets_nobody_aside() {
    let host = TestHost::with(&["everything"]);
    let handle = host.engine("everything", json!({}));
    let answer = call(&handle, "other");
    assert_eq!((answer.is_error, answer.served_by.as_str()), (true, "everything"));
    assert_eq!(text(&answer), "The tool \"other\" failed: no tool called \"other\"");
    let wrong = handle.call_tool(&plain_call(), "call-1", "recall", "[1]");
    assert!(
        wrong.is_error && text(&wrong).starts_with("The arguments of \"recall\" are no JSON object: "),
        "{wrong:?}"
    );
    assert_eq!(text(&call(&handle, "recall")), r#"recalled {"q":1}, cancelled: false"#);
    assert_eq!(handle.why(), None);

    for (fault, told) in [
        ("error", "call_tool errs on purpose"),
        ("unsupported", "`call_tool` is not supported"),
        ("no-json", "its answer is no JSON: EOF while parsing an object at line 1 column 2"),
    ] {
        let faulty = Faulty::new(json!({ "call_tool": fault }));
        for _ in 0..2 {
            let answer = call(&faulty.handle, "look");
            assert_eq!(text(&answer), format!("The tool \"look\" failed: {told}"));
            assert_eq!((answer.is_error, answer.why.as_deref()), (true, Some(told)));
        }
        assert_eq!(faulty.reached("call_tool"), 2, "{fault}: another tool may work");
        assert_eq!(served_by(&faulty.handle), "faulty", "{fault}");
    }
}

#[test]
fn a_list_that_cannot_be_read_leaves_the_tools_out_and_the_engine_in() {
    for fault in ["error", "no-json", "unsupported"] {
        let faulty = Faulty::new(json!({ "list_tools": fault }));
        assert_eq!(offered(&faulty.handle), "faulty: ", "{fault}");
        assert_eq!((served_by(&faulty.handle).as_str(), faulty.handle.why()), ("faulty", None), "{fault}");
        faulty.set(json!({}));
        let later = if fault == "unsupported" { "faulty: " } else { "faulty: look" };
        assert_eq!(offered(&faulty.handle), later, "{fault}");
    }
}

#[test]
fn what_no_engine_may_do_in_a_tool_sets_it_aside() {
    for (member, fault, why) in [
        ("list_tools", "panic", "faulty: list_tools: `list_tools` panicked at "),
        ("call_tool", "panic", "faulty: call_tool: `call_tool` panicked at "),
        ("list_tools", "hang", "faulty: list_tools: `list_tools` did not return within 100 ms; plugins.entries.faulty"),
        ("call_tool", "hang", "faulty: call_tool: `call_tool` did not return within 100 ms; plugins.entries.faulty"),
    ] {
        let faulty = Faulty::new(json!({ member: fault }));
        let said = within_the_deadline(|| match member {
            "list_tools" => {
                let answer = faulty.handle.tools(&plain_call());
                assert_eq!((answer.value, answer.served_by.as_str()), (vec![], "legacy"));
                answer.why
            }
            _ => {
                let answer = call(&faulty.handle, "look");
                let told = "The tool \"look\" failed: its engine does not work. It is not available any more; go on \
                            without it.";
                assert_eq!((answer.is_error, answer.served_by.as_str(), text(&answer)), (true, "legacy", told));
                answer.why
            }
        });
        let said = said.expect("a reason");
        assert!(said.starts_with(why), "{said}");
        assert_eq!((served_by(&faulty.handle), faulty.handle.why()), ("legacy".to_owned(), Some(said)));
        assert_eq!(offered(&faulty.handle), "legacy: ");
        assert!(call(&faulty.handle, "look").is_error);
        assert_eq!(faulty.reached(member), 1);
        faulty.set(json!({}));
        faulty.lift_the_quarantine();
        assert_eq!(offered(&faulty.handle), "faulty: look", "a fresh instance");
    }
}

#[test]
fn a_tool_that_is_cancelled_blames_nobody() {
    let faulty = Faulty::new(json!({}));
    faulty.set(json!({ "call_tool": "hang-polite" }));
    let call = plain_call();
    let cancel = call.cancel.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        cancel.cancel();
    });
    let answer = faulty.handle.call_tool(&call, "call-1", "look", "{}");
    canceller.join().expect("it cancels");
    assert_eq!((answer.is_error, answer.why.as_deref()), (true, Some("the call was cancelled")));
    assert_eq!(served_by(&faulty.handle), "faulty");
    assert_eq!(faulty.handle.tools(&call).value, [], "and nothing is asked in a call that was taken back");
}

/// An engine of the host's own, which remembers everything.
struct Linked;

impl ContextEngine for Linked {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(Linked)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

impl EngineTools for Linked {
    fn list_tools(&self, _: &CallContext<'_>, params: ToolsListParams<'_>) -> Result<String, EngineError> {
        let description = format!("for {} with {}", params.session_id(), params.host_params().json());
        Ok(json!([{ "name": "linked", "description": description }]).to_string())
    }

    fn call_tool(&self, _: &CallContext<'_>, params: ToolCallParams<'_>) -> Result<String, EngineError> {
        assert_ne!(params.name().as_str(), "panic", "boom");
        Ok(json!([{ "type": "text", "text": params.arguments_json().as_str() }, { "odd": 1 }]).to_string())
    }
}

#[test]
fn a_linked_engine_has_tools_as_well() {
    let host = TestHost::new();
    let legacy = host.loader().engine("legacy", &Creation::default()).expect("legacy");
    let accepted_host_params = Some(vec!["sessionKey".to_owned()]);
    let info = EngineInfo { id: "linked".to_owned(), accepted_host_params, ..(*legacy.info()).clone() };
    let handle = host.loader().linked_with_tools(Arc::new(Linked), info.clone(), &Creation::default());
    let handle = handle.expect("a handle");
    let listed = handle.tools(&plain_call()).value;
    assert_eq!(listed[0].description, r#"for s1 with {"sessionKey":"agent:main:x"}"#);
    let answer = call(&handle, "linked");
    assert_eq!((text(&answer), answer.content[1]["text"].as_str()), (r#"{"q":1}"#, Some(r#"{"odd":1}"#)));
    assert_eq!(text(&call(&handle, "panic")), "The tool \"panic\" failed: the host panicked");
    assert_eq!(served_by(&handle), "linked");
    let without = host.loader().linked(Arc::new(Linked), info, &Creation::default()).expect("a handle");
    assert_eq!(offered(&without), "linked: ", "whoever links it without its tools has none");
}

/// What ends the process in a tool is known at the next start by the tool's name.
#[cfg(target_os = "linux")]
#[test]
fn a_crash_in_a_tool_convicts_the_engine() {
    use std::process::{Command, Stdio};

    use context_engine_loader::{Loader, LoaderOptions};

    const ROOT: &str = "CONTEXT_ENGINE_TEST_TOOLS_ROOT";
    let loader_in = |root: &std::path::Path| {
        Loader::new(LoaderOptions {
            directories: vec![root.join("plugins").into()],
            state_dir: root.join("state"),
            ..LoaderOptions::default()
        })
    };
    let creation =
        |member: &str| Creation { config: Some(json!({ "faults": { (member): "segfault" } })), ..Creation::default() };
    // This test, started again by itself.
    if let Some(root) = std::env::var_os(ROOT) {
        let member = std::env::var("CONTEXT_ENGINE_TEST_TOOLS_MEMBER").expect("a member");
        let handle = loader_in(root.as_ref()).engine("faulty", &creation(&member)).expect("a handle");
        if member == "call_tool" {
            call(&handle, "look");
        }
        handle.tools(&plain_call());
        return;
    }
    for member in ["list_tools", "call_tool"] {
        let host = TestHost::with(&["faulty"]);
        let own = std::env::current_exe().expect("this program has a path");
        let ended = Command::new(own)
            .args(["--exact", "a_crash_in_a_tool_convicts_the_engine"])
            .env(ROOT, host.root())
            .env("CONTEXT_ENGINE_TEST_TOOLS_MEMBER", member)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the host runs");
        assert!(!ended.success(), "{member}: it lives on");
        let handle = loader_in(host.root()).engine("faulty", &creation(member)).expect("a handle");
        let why = handle.why().expect("set aside");
        assert!(why.contains(&format!("quarantined since it failed during {member}: ")), "{why}");
        assert_eq!(offered(&handle), "legacy: ");
    }
}
