//! What the boundary benches share: ready messages, both sides of the boundary, one call.
//!
//! Decision: a package of its own whose targets are left out of the test command, so criterion is built by who asks for
//! a bench and by nobody else.
#![forbid(unsafe_code)]

mod engines;
mod session;

pub use engines::{Engine, Side, handle, probe_library};
pub use session::{Quiet, from_json, messages, to_json};

use std::sync::Arc;

use context_engine_interface::std_types::RSlice;
use context_engine_interface::{
    Acknowledged, AssembleParamsFields, Assembly, CallContext, ContextEngine, DisposeParamsFields, EngineError,
    HostParams, ViewChunks,
};
use context_engine_loader::{AssembleRequest, Assembled, Call, CancelToken, EngineHandle, NoServices, PreparedHistory};
use context_engine_transcript::TokenCounter;
use serde_json::{Map, Value};

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
pub fn prompt(
    handle: &EngineHandle,
    history: &Arc<PreparedHistory>,
    counter: &TokenCounter,
) -> Result<Assembled, String> {
    let call = call(Map::new());
    let request = AssembleRequest {
        history: Arc::clone(history),
        budget: BUDGET,
        counter: *counter,
        model: None,
        available_tools: Arc::default(),
    };
    handle.assemble(&call, &request).map_err(|error| error.to_string())
}

/// A call about a session, with services that answer nothing.
pub fn call(host_params: Map<String, Value>) -> Call {
    Call {
        session_id: "session-1".into(),
        session_file: "".into(),
        host_params: Arc::new(host_params),
        services: Arc::new(NoServices),
        cancel: CancelToken::new(),
    }
}

/// One `dispose`, with the loan of the services.
///
/// # Errors
/// The engine's.
pub fn dispose(engine: &dyn ContextEngine) -> Result<Acknowledged, EngineError> {
    CallContext::lend(&Quiet, |ctx| DisposeParamsFields::default().lend(|params| engine.dispose(ctx, params)))
}
