//! What an engine says through `tracing` or the `log` crate becomes lines of the host's log, under the engine's name.
//!
//! Decision: the forwarding sits in the plugin. Each library has its own copy of those crates, with a global default of
//! its own that nobody else can set, so that without this an engine's events (and those of the crates it uses) go
//! nowhere. It is installed before the first engine of a library is created, so that what `create` says is heard. An
//! engine that wants a subscriber or a logger of its own switches the features `tracing` and `log` of this crate off.
//!
//! The host is asked for its level at each event, not once: a host may start its own log later, or change the level.
//! Spans are not forwarded: a line of the host's log belongs to the host's span.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::abi::guard::payload_text;
use crate::{EngineHost, LogLevel};

/// Where this library's lines go, and the crate they need no target for.
static TO: OnceLock<To> = OnceLock::new();

struct To {
    host: EngineHost,
    own_crate: &'static str,
}

/// Forwards from now on. Only the first call in a library does anything.
pub(crate) fn install(host: &EngineHost, module_path: &'static str) {
    TO.get_or_init(|| {
        // A constructor of the library may have set its own.
        #[cfg(feature = "tracing")]
        let _ = tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(Events));
        #[cfg(feature = "log")]
        if log::set_logger(&Records).is_ok() {
            log::set_max_level(log::LevelFilter::Trace);
        }
        To { host: host.clone(), own_crate: crate_of(module_path) }
    });
}

fn crate_of(path: &str) -> &str {
    path.split("::").next().unwrap_or(path)
}

fn is_wanted(level: LogLevel) -> bool {
    TO.get().is_some_and(|to| level <= to.host.max_log_level())
}

/// Sends the line that `write` makes. Values format themselves with code of the engine's: one that panics costs its line,
/// not the call it is logged in.
fn send(level: LogLevel, target: &str, write: impl FnOnce(&mut String)) {
    let Some(to) = TO.get() else { return };
    let mut line = if crate_of(target) == to.own_crate { String::new() } else { format!("{target}: ") };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| write(&mut line))) {
        line.push_str(&format!(" (a value panicked while it was logged: {})", payload_text(payload)));
    }
    to.host.log(level, &line);
}

#[cfg(feature = "tracing")]
mod events {
    use std::fmt::{Debug, Write};

    use tracing_core::field::{Field, Visit};
    use tracing_core::span::{Attributes, Id, Record};
    use tracing_core::subscriber::Interest;
    use tracing_core::{Event, Level, Metadata, Subscriber};

    use super::{is_wanted, send};
    use crate::LogLevel;

    /// Forwards the events of `tracing`.
    pub(super) struct Events;

    impl Subscriber for Events {
        fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
            if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
        }

        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && is_wanted(level(metadata.level()))
        }

        fn event(&self, event: &Event<'_>) {
            let metadata = event.metadata();
            send(level(metadata.level()), metadata.target(), |line| event.record(&mut Line(line)));
        }

        // No span is ever enabled: an id is only owed to the trait.
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn level(level: &Level) -> LogLevel {
        match *level {
            Level::ERROR => LogLevel::ERROR,
            Level::WARN => LogLevel::WARN,
            Level::INFO => LogLevel::INFO,
            Level::DEBUG => LogLevel::DEBUG,
            _ => LogLevel::TRACE,
        }
    }

    /// `message key=value …`
    struct Line<'a>(&'a mut String);

    impl Visit for Line<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if !self.0.is_empty() && !self.0.ends_with(' ') {
                self.0.push(' ');
            }
            // A value that cannot format itself leaves what it wrote until then.
            let _ = match field.name() {
                "message" => write!(self.0, "{value:?}"),
                name => write!(self.0, "{name}={value:?}"),
            };
        }
    }
}
#[cfg(feature = "tracing")]
use events::Events;

#[cfg(feature = "log")]
mod records {
    use std::fmt::Write;

    use super::{is_wanted, send};
    use crate::LogLevel;

    /// Forwards the records of the `log` crate.
    pub(super) struct Records;

    impl log::Log for Records {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            is_wanted(level(metadata.level()))
        }

        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                send(level(record.level()), record.target(), |line| _ = write!(line, "{}", record.args()));
            }
        }

        fn flush(&self) {}
    }

    fn level(level: log::Level) -> LogLevel {
        match level {
            log::Level::Error => LogLevel::ERROR,
            log::Level::Warn => LogLevel::WARN,
            log::Level::Info => LogLevel::INFO,
            log::Level::Debug => LogLevel::DEBUG,
            log::Level::Trace => LogLevel::TRACE,
        }
    }
}
#[cfg(feature = "log")]
use records::Records;
