//! Answers `assemble` with the plan its configuration names: `{"plan": "overlap"}`. None of them may be believed as it is.
#![forbid(unsafe_code)]

use context_engine_interface::std_types::{ROption, RString, RVec};
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    IngestParams, IngestResult, Role, Segment, SegmentKind, export_engine, text_message,
};

struct Liar {
    plan: String,
}

fn segment(kind: SegmentKind, start: u32, len: u32, message_json: &str) -> Segment {
    Segment {
        kind,
        start,
        len,
        message_json: RString::from(message_json),
        source_ids: RVec::new(),
        extra_json: RString::new(),
    }
}

fn keep(start: u32, len: u32) -> Segment {
    segment(SegmentKind::KEEP, start, len, "")
}

fn replace(start: u32, message_json: &str) -> Segment {
    segment(SegmentKind::REPLACE, start, 1, message_json)
}

fn insert(message_json: &str) -> Segment {
    segment(SegmentKind::INSERT, 0, 0, message_json)
}

impl ContextEngine for Liar {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let config: serde_json::Value =
            serde_json::from_str(ctx.config_json().as_str()).map_err(EngineError::failed)?;
        Ok(Liar { plan: config["plan"].as_str().unwrap_or_default().to_owned() })
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let all = params.messages().len() as u32;
        let user = text_message(Role::USER, "a word");
        let filler = |number: u32| insert(&text_message(Role::USER, &format!("filler {number} to be sent")));
        let orphan = r#"{"role":"toolResult","toolCallId":"nobody","toolName":"read","content":"orphan"}"#;
        let segments = match self.plan.as_str() {
            "overlap" => vec![keep(0, 2), keep(1, 1)],
            "backwards" => vec![keep(1, 1), keep(0, 1)],
            "past the end" => vec![keep(all, 1)],
            "too long" => vec![keep(0, all + 1)],
            "length wraps" => vec![keep(1, u32::MAX)],
            "replaces twice" => vec![keep(0, 1), replace(0, &user)],
            "no json" => vec![keep(0, all), insert("{\"role\":")],
            "no object" => vec![keep(0, all), insert("[1, 2]")],
            "no role" => vec![keep(0, all), insert(r#"{"content":"hello"}"#)],
            "empty" => vec![],
            "keeps nothing" => vec![keep(0, 0)],
            "unknown step" => vec![keep(0, all), segment(SegmentKind(99), 0, 1, "")],
            "over budget" => (0..2_000).map(filler).chain([keep(0, all)]).collect(),
            "orphan result" => vec![insert(orphan), keep(0, all)],
            "orphan call" => vec![insert(&orphan_call()), keep(0, all)],
            "assistant last" => vec![keep(0, all), insert(&text_message(Role::ASSISTANT, "I have the last word"))],
            "addition over budget" | "addition of 7990 words" => vec![keep(0, all)],
            other => return Err(EngineError::failed(format!("no plan called {other:?}"))),
        };
        let mut plan = Assembly { segments: segments.into(), ..Assembly::default() };
        let words = match self.plan.as_str() {
            "addition over budget" => 100_000,
            "addition of 7990 words" => 7_990,
            _ => return Ok(plan),
        };
        plan.system_prompt_addition = ROption::RSome(" word".repeat(words).into());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

fn orphan_call() -> String {
    r#"{"role":"assistant","content":[{"type":"toolCall","id":"nobody","name":"read","arguments":{}}]}"#.to_owned()
}

export_engine! {
    engine: Liar,
    id: "liar",
    name: "Liar",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
