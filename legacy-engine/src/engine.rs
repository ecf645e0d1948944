//! `legacy`: the built-in engine as a [`ContextEngine`], the same trait a loaded one implements.
//!
//! Decision: it keeps no state and owns nothing. A history that fits goes through as it is; one that does not is fitted;
//! compaction is the runtime's. So there is nothing in it that could be lost, and any engine can hand a session over to it
//! in the middle of a turn. Source: contract §1.8.

use context_engine_interface::record::EngineInfo;
use context_engine_interface::{
    AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, EngineContext, EngineError,
    EngineHost, HOST_PARAMS, IngestParams, IngestResult, PromptAuthority, SegmentKind,
};

use crate::fit::fit;

/// The engine's id, reserved for it.
pub const ID: &str = "legacy";
/// Its name for people.
pub const NAME: &str = "Legacy Context Engine";
/// Its version; that of the behaviour, not of the crate.
pub const VERSION: &str = "1.0.0";

/// The built-in engine.
pub struct LegacyEngine {
    host: EngineHost,
}

impl LegacyEngine {
    /// The facts a plugin's record would hold: it takes every host param and owns no compaction.
    pub fn info() -> EngineInfo {
        EngineInfo {
            id: ID.to_owned(),
            name: NAME.to_owned(),
            version: VERSION.to_owned(),
            owns_compaction: false,
            accepted_host_params: Some(HOST_PARAMS.iter().map(|name| (*name).to_owned()).collect()),
            turn_maintenance_mode: None,
            transcript_semantics: Default::default(),
            host_requirements: Vec::new(),
        }
    }

    /// An engine that counts with this host.
    pub fn new(host: EngineHost) -> LegacyEngine {
        LegacyEngine { host }
    }
}

impl std::fmt::Debug for LegacyEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}

impl ContextEngine for LegacyEngine {
    fn create(ctx: EngineContext<'_>) -> Result<LegacyEngine, EngineError> {
        Ok(LegacyEngine::new(ctx.host().clone()))
    }

    /// Never takes a message in: the transcript has them all.
    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    /// Keeps everything when it fits the budget or there is none; fits it otherwise.
    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let messages = params.messages();
        let budget = params.token_budget().into_option().unwrap_or(u64::MAX);
        let mut plan = fit(messages, budget, &|text| self.host.count_tokens(text));
        let whole = matches!(plan.segments.as_slice(), [all] if all.kind == SegmentKind::KEEP && all.len as usize == messages.len());
        if !whole && !messages.is_empty() {
            // The prompt fits, the history does not: the overflow check is to look at the history and compact it.
            plan.prompt_authority = PromptAuthority::PREASSEMBLY_MAY_OVERFLOW;
        }
        Ok(plan)
    }

    /// Hands the compaction to the runtime.
    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use context_engine_interface::std_types::{RNone, ROption, RSlice};
    use context_engine_interface::{
        AssembleParamsFields, CallServices, CompactParamsFields, HostParams, HostServices, IngestParamsFields,
        LogLevel, ViewChunks,
    };

    use super::*;
    use crate::notation::parse;

    struct Host;

    impl HostServices for Host {
        fn log(&self, _: LogLevel, _: &str) {}
        fn count_tokens(&self, text: &str) -> u64 {
            (text.chars().count() as u64).div_ceil(4)
        }
    }

    impl CallServices for Host {
        fn delegate_compaction(&self, request: &str) -> Result<CompactResult, EngineError> {
            Ok(CompactResult::nothing_to_do(request, 7))
        }
    }

    fn assemble(history: &str, budget: Option<u64>) -> Assembly {
        let chunks = ViewChunks::build(&parse(history));
        let index = chunks.index();
        let fields = AssembleParamsFields {
            session_id: "s1".into(),
            messages: index.messages(),
            token_budget: ROption::from(budget),
            available_tools: RSlice::EMPTY,
            citations_mode: RNone,
            model: RNone,
            host_params: HostParams::NONE,
        };
        let engine = LegacyEngine::new(EngineHost::new(Arc::new(Host)));
        fields.lend(|params| CallContext::lend(&Host, |ctx| engine.assemble(ctx, params))).expect("a plan")
    }

    #[test]
    fn what_fits_goes_through_as_one_run() {
        let history = "U \"hi\"\nA <c1:read>\nR c1:read \"out\"\nA \"done\"";
        for budget in [None, Some(10_000)] {
            let plan = assemble(history, budget);
            let [all] = plan.segments.as_slice() else { unreachable!("one segment") };
            assert_eq!((all.kind, all.start, all.len), (SegmentKind::KEEP, 0, 4));
        }
        assert!(assemble("", None).segments.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_fitted() {
        let plan = assemble("U \"old \"*4000\nA \"a\"\nU \"new\"", Some(600));
        assert!(plan.estimated_tokens <= 600);
        assert_eq!(plan.segments.last().map(|last| (last.start + last.len) as usize), Some(3));
    }

    #[test]
    fn nothing_is_ingested_and_compaction_is_the_runtimes() {
        let engine = LegacyEngine::new(EngineHost::new(Arc::new(Host)));
        let chunks = ViewChunks::build(&parse("U \"hi\""));
        let index = chunks.index();
        let message = index.messages().get(0).copied().expect("a message");
        let fields = IngestParamsFields {
            session_id: "s1".into(),
            message: &message,
            is_heartbeat: false,
            host_params: HostParams::NONE,
        };
        let ingested = fields.lend(|params| CallContext::lend(&Host, |ctx| engine.ingest(ctx, params)));
        assert!(!ingested.expect("an answer").ingested);
        let fields = CompactParamsFields { session_id: "s1".into(), force: true, ..Default::default() };
        let compacted = fields.lend(|params| CallContext::lend(&Host, |ctx| engine.compact(ctx, params)));
        let compacted = compacted.expect("an answer");
        assert!(compacted.reason.unwrap_or_default().contains("\"sessionId\":\"s1\""));
        assert_eq!(compacted.tokens_before, 7);
    }
}
