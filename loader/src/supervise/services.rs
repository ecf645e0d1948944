//! What a host offers an engine for its life: its log and its token counts. And what it offers outside of any session:
//! nothing.

use context_engine_interface::{CallServices, HostServices, LogLevel};
use context_engine_transcript::TokenCounter;

/// Services for one engine's life.
#[derive(Debug, Clone)]
pub struct EngineServices {
    engine: String,
    counter: TokenCounter,
}

impl EngineServices {
    /// Services for the engine `engine`, counting with `counter`.
    pub fn new(engine: impl Into<String>, counter: TokenCounter) -> EngineServices {
        EngineServices { engine: engine.into(), counter }
    }
}

impl HostServices for EngineServices {
    fn log(&self, level: LogLevel, message: &str) {
        let engine = self.engine.as_str();
        match level {
            LogLevel::ERROR => tracing::error!(engine, "{message}"),
            LogLevel::WARN => tracing::warn!(engine, "{message}"),
            LogLevel::INFO => tracing::info!(engine, "{message}"),
            LogLevel::DEBUG => tracing::debug!(engine, "{message}"),
            _ => tracing::trace!(engine, "{message}"),
        }
    }

    fn count_tokens(&self, text: &str) -> u64 {
        self.counter.text(text)
    }
}

/// Services of a call that belongs to no session, such as `dispose`.
pub(super) struct NoServices;

impl CallServices for NoServices {}
