//! A loaded engine without the supervisor in between: what exactly crosses the boundary.

use std::sync::Arc;

use context_engine_interface::abi::module::EngineModule;
use context_engine_interface::{EngineContextFields, EngineError, EngineHost, RemoteEngine};
use context_engine_loader::supervise::EngineServices;
use context_engine_transcript::TokenCounter;
use serde_json::Value;

use crate::host::TestHost;

/// The root module of the plugin with this id.
pub fn module(host: &TestHost, id: &str) -> EngineModule {
    host.loader().find(id).expect("usable").open().expect("opened")
}

/// An instance of the plugin's engine, with its journal where [`TestHost::journal`] looks.
///
/// # Errors
/// The engine's own.
pub fn create(host: &TestHost, id: &str, config: &Value) -> Result<RemoteEngine, EngineError> {
    let state_dir = host.root().join("state/engines").join(id);
    std::fs::create_dir_all(&state_dir).expect("a folder");
    let (state_dir, config) = (state_dir.to_string_lossy(), config.to_string());
    let services = EngineHost::new(Arc::new(EngineServices::new(id, TokenCounter::for_model(None))));
    let fields = EngineContextFields {
        config_json: config.as_str().into(),
        state_dir: state_dir.as_ref().into(),
        agent_dir: None.into(),
        workspace_dir: None.into(),
        host: &services,
    };
    fields.lend(|ctx| module(host, id).create()(ctx).into_result()).map(RemoteEngine::new)
}
