//! What a host offers an engine for its life: its log and its token counts.

use context_engine_interface::{HostServices, LogLevel};
use context_engine_transcript::TokenCounter;
use tracing::level_filters::LevelFilter;

use crate::quarantine::marks;
use crate::text::on_one_line;

/// The longest line of an engine that stands in the log, in bytes.
const MAX_LOG_LINE: usize = 8 * 1024;

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
        let _not_the_engine = marks::pause();
        if level.min(LogLevel::TRACE) > self.max_log_level() {
            return;
        }
        let engine = self.engine.as_str();
        let message = log_line(message);
        match level {
            LogLevel::ERROR => tracing::error!(engine, "{message}"),
            LogLevel::WARN => tracing::warn!(engine, "{message}"),
            LogLevel::INFO => tracing::info!(engine, "{message}"),
            LogLevel::DEBUG => tracing::debug!(engine, "{message}"),
            _ => tracing::trace!(engine, "{message}"),
        }
    }

    fn count_tokens(&self, text: &str) -> u64 {
        let _not_the_engine = marks::pause();
        self.counter.text(text)
    }

    fn max_log_level(&self) -> LogLevel {
        match LevelFilter::current() {
            LevelFilter::OFF => LogLevel::OFF,
            LevelFilter::ERROR => LogLevel::ERROR,
            LevelFilter::WARN => LogLevel::WARN,
            LevelFilter::INFO => LogLevel::INFO,
            LevelFilter::DEBUG => LogLevel::DEBUG,
            _ => LogLevel::TRACE,
        }
    }
}

/// An engine's text as one line of the log, however long it is and whatever stands in it.
fn log_line(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_LOG_LINE);
    let mut line = on_one_line(&text[..end]);
    // Escapes take more room than what they stand for.
    line.truncate(line.floor_char_boundary(MAX_LOG_LINE));
    match text.len() - end {
        0 => line,
        more => format!("{line}… ({more} bytes more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_logs_one_line_of_bounded_length() {
        assert_eq!(log_line("two\nlines\u{1b}[31m"), "two\\nlines\\u{1b}[31m");
        let long = log_line(&"ä".repeat(MAX_LOG_LINE));
        assert!(long.ends_with("ä… (8192 bytes more)"), "{}", &long[MAX_LOG_LINE - 10..]);
        assert_eq!(log_line(&"\n".repeat(MAX_LOG_LINE)).len(), MAX_LOG_LINE);
    }
}
