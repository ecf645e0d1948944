//! `context-engine plugins enable` and `disable`

use context_engine_loader::LEGACY;
use context_engine_runtime::config::edit::Edit;
use serde_json::json;

use super::args::SwitchArgs;
use super::{HEEDED, Told, configure, known_ids, unknown};
use crate::Outcome;
use crate::args::Directories;
use crate::error::CliError;
use crate::setup::Host;

pub(super) fn run(args: &SwitchArgs, on: bool) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let id = args.id.as_str();
    if id == LEGACY {
        return Err(CliError::BuiltIn { what: "is always there and cannot be switched" });
    }
    let known = known_ids(&host, &host.loader.scan());
    if !known.iter().any(|known| known == id) {
        return Err(unknown(id, known));
    }
    let was_on = host.config.plugins.entries.get(id).and_then(|entry| entry.enabled) != Some(false);
    // What is on without the key needs no key.
    let changed = was_on != on && configure(&host, &[Edit::set(&["plugins", "entries", id, "enabled"], on)])?;
    let (state, verb) = if on { ("enabled", "enable") } else { ("disabled", "disable") };
    let mut told = Told::new(json!({ "id": id, "enabled": on, "changed": changed }));
    told.say(match changed {
        true => format!("{state:<10}{id}; {HEEDED}"),
        false => format!("{id} is {state} already; there was nothing to {verb}"),
    });
    let slot = host.config.plugins.slots.context_engine.as_deref().map_or("", str::trim);
    if !on && slot == id {
        told.say("it is in the slot, so legacy answers; `context-engine plugins select legacy` makes that the choice");
    }
    if on {
        let host = Host::new(&Directories { plugins: vec![] })?;
        if let Some(reason) = host.loader.policy().forbids(id) {
            told.warn(format!(
                "it is not used all the same: {reason}; change that in {}",
                host.home.config().display()
            ));
        } else if slot != id {
            told.say(format!("it is not in the slot; `context-engine plugins select {id}` puts it there"));
        }
    }
    told.print(args.json)
}
