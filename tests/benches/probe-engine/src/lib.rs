//! The engine the boundary is measured with: as little work as there is, or one walk over the history.
//!
//! Decision: one crate is both the plugin and a linked crate, so "through the boundary" and "`&dyn ContextEngine`" run the
//! same code, and what differs between two figures is the boundary.
#![forbid(unsafe_code)]

use context_engine_interface::{
    Acknowledged, AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, DisposeParams,
    EngineContext, EngineError, IngestParams, IngestResult, Messages, export_engine,
};

/// What `assemble` does. Chosen by the engine's configuration: its name as a JSON string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Answers an empty plan without looking at the history.
    Nothing,
    /// Reads tokens, role and the text length of each block of every message; puts the sum into the plan.
    Walk,
    /// Keeps the newest whole turns that fit the budget, as the sliding window does.
    Window,
}

/// The engine. Keeps no state.
#[derive(Debug)]
pub struct Probe {
    work: Work,
}

impl ContextEngine for Probe {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let work = match ctx.config_json().as_str() {
            r#""nothing""# | "" => Work::Nothing,
            r#""walk""# => Work::Walk,
            r#""window""# => Work::Window,
            other => return Err(EngineError::failed(format!("config {other}, expected nothing, walk or window"))),
        };
        Ok(Probe { work })
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, _: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        match self.work {
            Work::Nothing => Ok(Assembly::new()),
            Work::Walk => Ok(Assembly { estimated_tokens: walk(params.messages()), ..Assembly::new() }),
            Work::Window => Ok(window(params.messages(), params.token_budget().unwrap_or(u64::MAX))),
        }
    }

    fn compact(&self, _: &CallContext<'_>, _: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        Ok(CompactResult::nothing_to_do("", 0))
    }

    fn dispose(&self, _: &CallContext<'_>, _: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        Ok(Acknowledged::default())
    }
}

fn walk(messages: Messages<'_>) -> u64 {
    let mut sum = 0;
    for message in messages.iter() {
        sum += message.tokens + u64::from(message.role.0);
        for block in message.blocks {
            sum += block.text.len() as u64;
        }
    }
    sum
}

fn window(messages: Messages<'_>, budget: u64) -> Assembly {
    let mut plan = Assembly::new();
    let (mut start, mut used) = (messages.len(), 0);
    for turn in messages.turns_rev() {
        if used + turn.tokens > budget {
            break;
        }
        used += turn.tokens;
        start = turn.range.start;
    }
    plan.keep(start..messages.len());
    plan.estimated_tokens = used;
    plan
}

export_engine! {
    engine: Probe,
    id: "boundary-probe",
    name: "Boundary probe",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
}
