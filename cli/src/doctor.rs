//! `context-engine doctor`: which engine serves, what is wrong with the others, what to do. Runs no plugin code.

use context_engine_loader::{LEGACY, LoaderError, Origin, Plugin, on_one_line};
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::DoctorArgs;
use crate::error::CliError;
use crate::output::{line, path_json};
use crate::plugins::{is_finding, verdict, verdict_json};
use crate::setup::Host;

pub(crate) fn run(args: &DoctorArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&args.directories)?;
    let found = host.loader.scan();
    let asked = host.config.plugins.slots.context_engine.as_deref().map_or("", str::trim);
    let (serves, why) = serving(&host, asked);
    let refused = found.iter().any(is_finding);
    if args.json {
        let plugins: Vec<Value> = found.iter().map(|found| verdict_json(found.as_ref())).collect();
        let directories: Vec<Value> = host.directories.iter().map(|directory| path_json(&directory.path)).collect();
        line(json!({
            "home": path_json(host.home.root()),
            "config": path_json(&host.home.config()),
            "configExists": host.home.config().exists(),
            "directories": directories,
            "slot": asked,
            "serves": serves,
            "why": why,
            "plugins": plugins,
        }))?;
    } else {
        line(format_args!("home      {}", host.home.root().display()))?;
        let exists = if host.home.config().exists() { "" } else { "  (does not exist: every key is at its default)" };
        line(format_args!("config    {}{exists}", host.home.config().display()))?;
        for directory in &host.directories {
            let remark = match directory.origin {
                _ if !directory.path.exists() => "  (does not exist: holds no plugins)",
                Origin::Configured => "",
                Origin::Workspace => "  (of the workspace: used only when plugins.allow names them)",
            };
            line(format_args!("plugins   {}{remark}", directory.path.display()))?;
        }
        for found in &found {
            describe(found)?;
        }
        let asked = if asked.is_empty() { "not set" } else { asked };
        line(format_args!("slot      plugins.slots.contextEngine: {asked}"))?;
        line(format_args!(
            "serves    {serves}{}",
            why.as_ref().map_or_else(String::new, |why| format!(", because {why}"))
        ))?;
    }
    Ok(if refused || why.is_some() { Outcome::Findings } else { Outcome::Fine })
}

/// The engine that would serve, and why it is not the one in the slot.
fn serving(host: &Host, asked: &str) -> (String, Option<String>) {
    if matches!(asked, "" | "none" | LEGACY) {
        return (LEGACY.to_owned(), None);
    }
    let obstacle =
        host.loader.policy().forbids(asked).or_else(|| host.loader.find(asked).err().map(|error| error.to_string()));
    match obstacle {
        None => (asked.to_owned(), None),
        why => (LEGACY.to_owned(), why),
    }
}

fn describe(found: &Result<Plugin, LoaderError>) -> Result<(), CliError> {
    Ok(match found {
        Ok(plugin) => {
            let (path, info) = (plugin.candidate.path.to_string_lossy(), plugin.info());
            line(on_one_line(&format!(
                "ok        {path}: found, staged, inspected, trusted: {} {}",
                info.id, info.version
            )))
        }
        Err(error) => line(format_args!("{}   {error}", verdict(error))),
    }?)
}
