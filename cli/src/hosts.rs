//! Hosts that run in this home, as `doctor` shows them.
//!
//! Decision: a library that was replaced stays mapped, so a host that has replaced many is worth a restart when it suits;
//! that is said, and is a finding.

use context_engine_loader::hosts::RunningHost;
use context_engine_loader::stage::short;
use context_engine_loader::{MANY_RETIRED, on_one_line};
use serde_json::{Value, json};

use crate::output::{count, size};

/// Whether a host should be restarted when it suits: of what it replaced, much is still in memory.
pub(crate) fn is_worth_a_restart(host: &RunningHost) -> bool {
    host.retired_copies >= MANY_RETIRED
}

/// One host, one line for it and one for each thing it says.
pub(crate) fn lines(host: &RunningHost) -> Vec<String> {
    let engine = |engine: &context_engine_loader::hosts::EngineInUse| match &engine.digest {
        Some(digest) => format!("{} (build {})", engine.id, short(digest)),
        None => format!("{} (legacy answers)", engine.id),
    };
    let engines: Vec<String> = host.engines.iter().map(engine).collect();
    let engines = if engines.is_empty() { "no engine in use".to_owned() } else { engines.join(", ") };
    let (swaps, copies) = (count(host.swaps, "swap"), host.retired_copies as u64);
    let retired = match copies {
        0 => String::new(),
        copies => format!(", {} ({})", count(copies, "retired copy"), size(host.retired_bytes)),
    };
    let (pid, label) = (host.process.pid, &host.label);
    let mut lines = vec![on_one_line(&format!("{pid} {label}: {engines}; {swaps}{retired}"))];
    if is_worth_a_restart(host) {
        lines.push("restart it when it suits: what was replaced stays in its memory".to_owned());
    }
    let last = host.last_reload.iter().flat_map(|last| &last.engines);
    let kept = last.filter(|engine| engine.why.is_some());
    lines.extend(kept.map(|engine| on_one_line(&engine.text)));
    lines
}

/// One host, for scripts.
pub(crate) fn json(host: &RunningHost) -> Value {
    let mut json = json!(host);
    json["worthRestart"] = is_worth_a_restart(host).into();
    json
}
