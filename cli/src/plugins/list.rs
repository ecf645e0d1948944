//! `context-engine plugins list`

use context_engine_loader::{LEGACY, LEGACY_VERSION, on_one_line};
use serde_json::{Value, json};

use super::{is_finding, verdict, verdict_json};
use crate::Outcome;
use crate::args::ListArgs;
use crate::error::CliError;
use crate::output::{json_line, line, path_json};
use crate::setup::Host;

pub(super) fn run(args: &ListArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&args.directories)?;
    host.say_slips();
    let found = host.loader.scan();
    if args.json {
        let plugins: Vec<Value> = found.iter().map(|found| verdict_json(found.as_ref())).collect();
        let directories: Vec<Value> = host.directories.iter().map(|directory| path_json(&directory.path)).collect();
        json_line(&json!({ "directories": directories, "plugins": plugins }))?;
    } else {
        line(format_args!("{:<24} {:<10} built in", LEGACY, LEGACY_VERSION))?;
        for found in &found {
            match found {
                Ok(plugin) => {
                    let (info, path) = (plugin.info(), plugin.candidate().path.to_string_lossy());
                    let text = format!("{:<24} {:<10} {path}", info.id, info.version);
                    line(on_one_line(&text))?;
                }
                Err(error) => {
                    let id = error.engine.as_deref().unwrap_or("-");
                    line(format_args!("{id:<24} {:<10} {error}", verdict(error)))?;
                }
            }
        }
        if found.is_empty() {
            let directories: Vec<String> = host.directories.iter().map(|d| d.path.display().to_string()).collect();
            line(format_args!("no plugins in {}; drop an engine's library into it", directories.join(", ")))?;
        }
    }
    Ok(if found.iter().any(is_finding) { Outcome::Findings } else { Outcome::Fine })
}
