use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, ContextEngine, EngineContext, EngineError, IngestParams,
    IngestResult, PromptAuthority,
};
use context_engine_loader::{Creation, Loader, LoaderOptions};

use super::*;
use crate::session::compaction::ExtractiveCompactor;

/// Keeps the newest message, asks for the overflow check, and says of compaction that it is not its business.
struct NotMine;

impl ContextEngine for NotMine {
    fn create(_: EngineContext<'_>) -> Result<Self, EngineError> {
        Ok(NotMine)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let all = params.messages().len();
        let mut plan = Assembly { prompt_authority: PromptAuthority::PREASSEMBLY_MAY_OVERFLOW, ..Assembly::new() };
        plan.keep(all - 1..all);
        Ok(plan)
    }

    fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        Ok(CompactResult { reason: Some("delegate".into()).into(), ..CompactResult::default() })
    }
}

/// Report G7: asked in the recovery, it answered "not mine", and the only try was wasted.
#[test]
fn an_engine_that_does_not_own_compaction_leaves_it_to_the_runtime_in_the_same_recovery() {
    let counter = TokenCounter::for_model(None);
    let live = Arc::new(LiveSession {
        id: "s".into(),
        file: "s".into(),
        key: "s".into(),
        system: None,
        fixed_tokens: 0,
        model: None,
        budget: 400,
        keep_recent: 100,
        counter,
        available_tools: Arc::default(),
        compactor: Arc::new(ExtractiveCompactor),
        completer: None,
        state: Arc::default(),
        turn: Arc::default(),
    });
    for turn in 0..40 {
        for role in ["user", "assistant"] {
            let text = format!("{role} {turn}: {}", "so many words ".repeat(5));
            let Value::Object(map) = json!({ "role": role, "content": text }) else { panic!("an object") };
            let message = Message::from_map(format!("{role}-{turn}"), map).expect("a message");
            live.state().remember(Arc::new(message), &counter);
        }
    }
    let question = json!({ "role": "user", "content": "and now?" });
    let Value::Object(map) = question else { panic!("an object") };
    live.state().remember(Arc::new(Message::from_map("last", map).expect("a message")), &counter);

    let info = context_engine_interface::record::EngineInfo { id: "not-mine".into(), ..legacy_info() };
    let loader = Loader::new(LoaderOptions::default());
    let handle = loader.linked(Arc::new(NotMine), info, &Creation::default()).expect("a handle");
    let recovery =
        Recovery { compactions: 1, truncate: None, compact_params: &|_, _| Arc::default(), compacted: &|_| () };
    let prompt = live.prompt(&handle, &Arc::default(), &Scope::default(), &recovery).expect("a prompt");
    assert!(prompt.compacted && prompt.behind_summary > 0);
    assert_eq!((prompt.assembled.served_by.as_str(), live.state().conversation.compactions()), ("not-mine", 1));
}

fn legacy_info() -> context_engine_interface::record::EngineInfo {
    context_engine_legacy::LegacyEngine::info()
}
