//! An engine instance, linked or loaded, with the extensions it answers.
//!
//! Decision: `tools/1` is a trait for a linked engine and a function table for a loaded one. The difference ends here, so
//! that everything behind it asks one kind of instance, and a loaded engine's table never leaves the object it is for.

use std::sync::Arc;

use context_engine_interface::abi::module::ToolsV1;
use context_engine_interface::std_types::RString;
use context_engine_interface::{
    CallContext, ContextEngine, EngineError, EngineTools, RemoteEngine, ToolCallParams, ToolsListParams,
};

/// An instance.
pub(crate) enum Instance {
    /// Of an engine that is linked into this program.
    Linked(Arc<dyn ContextEngine>),
    /// The same, of one with tools.
    LinkedWithTools(Arc<dyn EngineTools>),
    /// Of a plugin's engine, with its `tools/1`. The table is of the library that made the instance.
    Loaded(RemoteEngine, Option<ToolsV1>),
}

/// An instance, as its own threads share it.
pub(crate) type Engine = Arc<Instance>;

impl Instance {
    /// Its members.
    pub(crate) fn engine(&self) -> &dyn ContextEngine {
        match self {
            Instance::Linked(engine) => &**engine,
            Instance::LinkedWithTools(engine) => &**engine,
            Instance::Loaded(engine, _) => engine,
        }
    }

    /// The tools as JSON.
    ///
    /// # Errors
    /// The engine's own; `Unsupported` of one without tools.
    pub(crate) fn list_tools(
        &self,
        ctx: &CallContext<'_>,
        params: ToolsListParams<'_>,
    ) -> Result<RString, EngineError> {
        match self {
            Instance::LinkedWithTools(engine) => engine.list_tools(ctx, params).map(RString::from),
            Instance::Loaded(engine, Some(tools)) => tools.list()(engine.object(), ctx, params).into_result(),
            Instance::Linked(_) | Instance::Loaded(_, None) => Err(EngineError::unsupported("list_tools")),
        }
    }

    /// Runs a tool; content blocks as JSON.
    ///
    /// # Errors
    /// The engine's own; `Unsupported` of one without tools.
    pub(crate) fn call_tool(&self, ctx: &CallContext<'_>, params: ToolCallParams<'_>) -> Result<RString, EngineError> {
        match self {
            Instance::LinkedWithTools(engine) => engine.call_tool(ctx, params).map(RString::from),
            Instance::Loaded(engine, Some(tools)) => tools.call()(engine.object(), ctx, params).into_result(),
            Instance::Linked(_) | Instance::Loaded(_, None) => Err(EngineError::unsupported("call_tool")),
        }
    }
}
