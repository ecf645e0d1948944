//! A loaded engine without the supervisor in between: what exactly crosses the boundary.

use context_engine_interface::abi::module::EngineModule;
use context_engine_interface::{EngineError, RemoteEngine};
use serde_json::Value;

use crate::host::TestHost;
use crate::tour;

/// The root module of the plugin with this id.
pub fn module(host: &TestHost, id: &str) -> EngineModule {
    host.loader().find(id).expect("usable").open().expect("opened")
}

/// An instance of the plugin's engine, with its journal where [`TestHost::journal`] looks.
///
/// # Errors
/// The engine's own.
pub fn create(host: &TestHost, id: &str, config: &Value) -> Result<RemoteEngine, EngineError> {
    tour::create(host.root(), id, config, module(host, id))
}
