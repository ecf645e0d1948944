//! `context-engine plugins select`

use context_engine_loader::{LEGACY, Origin, Problem};
use context_engine_runtime::config::edit::Edit;
use serde_json::json;

use super::args::SelectArgs;
use super::{HEEDED, Told, configure};
use crate::Outcome;
use crate::args::Directories;
use crate::doctor;
use crate::error::CliError;
use crate::setup::Host;

pub(super) fn run(args: &SelectArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let id = match args.id.trim() {
        "none" => LEGACY,
        id => id,
    };
    let why = obstacle(&host, id);
    if let Some(reason) = why.clone().filter(|_| !args.force) {
        return Err(CliError::NotSelected { id: id.to_owned(), reason });
    }
    put(&host, id, why)?.print(args.json)
}

/// Why `id` would not serve now.
pub(super) fn obstacle(host: &Host, id: &str) -> Option<String> {
    match host.loader.find(id) {
        // The directory it was looked for in says nothing about an id that is nowhere.
        Err(error) if id != LEGACY && matches!(error.problem, Problem::NotFound { .. }) => {
            Some(error.problem.to_string())
        }
        _ => doctor::obstacle(host, id),
    }
}

/// Writes the slot, whatever `why` says.
pub(super) fn put(host: &Host, id: &str, why: Option<String>) -> Result<Told, CliError> {
    let before = host.config.plugins.slots.context_engine.as_deref().map_or(LEGACY, str::trim).to_owned();
    let before = if matches!(before.as_str(), "" | "none") { LEGACY.to_owned() } else { before };
    // The default needs no key.
    let changed = before != id && configure(host, &[Edit::set(&["plugins", "slots", "contextEngine"], id)])?;
    let mut told = Told::new(json!({ "id": id, "before": before, "changed": changed, "why": why }));
    told.say(match changed {
        true => format!("selected  {id}, before {before}; {HEEDED}"),
        false => format!("{id} is in the slot already; there was nothing to select"),
    });
    if host.loader.find(id).is_ok_and(|plugin| plugin.candidate().origin == Origin::Workspace) {
        told.say("it is of this workspace: a command or host that is started elsewhere has no such engine, and legacy answers");
    }
    if let Some(why) = why {
        told.warn(format!("until that is mended legacy answers, because {why}"));
    }
    Ok(told)
}
