//! What the boundary benches share: ready messages, both sides of the boundary, one call.
//!
//! Decision: a package of its own whose targets are left out of the test command, so criterion is built by who asks for
//! a bench and by nobody else.
#![forbid(unsafe_code)]

mod engines;
mod session;

pub use engines::{Engine, Side, handle, probe_library};
pub use session::{Quiet, from_json, messages, to_json};

use context_engine_interface::std_types::RSlice;
use context_engine_interface::{
    Acknowledged, AssembleParamsFields, Assembly, CallContext, ContextEngine, DisposeParamsFields, EngineError,
    HostParams, ViewChunks,
};
use context_engine_loader::{AssembleRequest, Assembled, Call, EngineHandle, PreparedHistory};
use context_engine_transcript::TokenCounter;
use serde_json::Map;

/// The budget of every call, in tokens.
pub const BUDGET: u64 = 32_000;

/// One `assemble`, with everything a host does for it: the index over the chunks, the params, both loans.
///
/// # Errors
/// The engine's.
pub fn assemble(engine: &dyn ContextEngine, views: &ViewChunks) -> Result<Assembly, EngineError> {
    let index = views.index();
    let fields = AssembleParamsFields {
        session_id: "session-1".into(),
        messages: index.messages(),
        token_budget: Some(BUDGET).into(),
        available_tools: RSlice::EMPTY,
        citations_mode: None.into(),
        model: None.into(),
        host_params: HostParams::NONE,
    };
    CallContext::lend(&Quiet, |ctx| fields.lend(|params| engine.assemble(ctx, params)))
}

/// One prompt of a session, with everything a host does for it: `assemble`, the plan's check and application, repair,
/// rendering, the final count.
///
/// # Errors
/// Why there is no prompt.
pub fn prompt(handle: &EngineHandle, history: &PreparedHistory, counter: &TokenCounter) -> Result<Assembled, String> {
    let host_params = Map::new();
    let call = Call { session_id: "session-1", session_file: "", host_params: &host_params, services: &Quiet };
    let request = AssembleRequest { history, budget: BUDGET, counter, model: None, available_tools: &[] };
    handle.assemble(call, request).map_err(|error| error.to_string())
}

/// One `dispose`, with the loan of the services.
///
/// # Errors
/// The engine's.
pub fn dispose(engine: &dyn ContextEngine) -> Result<Acknowledged, EngineError> {
    CallContext::lend(&Quiet, |ctx| DisposeParamsFields::default().lend(|params| engine.dispose(ctx, params)))
}
