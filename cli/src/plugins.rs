//! `context-engine plugins list` and `inspect`

use std::path::Path;

use context_engine_loader::{LEGACY, LEGACY_VERSION, LoaderError, Plugin, Problem, on_one_line};
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::{Directories, InspectArgs, ListArgs};
use crate::error::CliError;
use crate::output::{json_line, line, number, path_json};
use crate::setup::Host;

pub(crate) fn list(args: &ListArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&args.directories)?;
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

/// Whether something is not as the person asked. What they blocked themselves is.
pub(crate) fn is_finding(found: &Result<Plugin, LoaderError>) -> bool {
    found.as_ref().is_err_and(|error| !matches!(error.problem, Problem::Forbidden { .. }))
}

/// What happened to a plugin that is not used.
pub(crate) fn verdict(error: &LoaderError) -> &'static str {
    match error.problem {
        Problem::Forbidden { .. } | Problem::Workspace { .. } | Problem::Permissions { .. } | Problem::Pin { .. } => {
            "blocked"
        }
        _ => "refused",
    }
}

pub(crate) fn inspect(args: &InspectArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    let inspected = match host.loader.inspect(&args.path) {
        // A path that names nothing is a mistake of the person's, not a verdict on a file.
        Err(error) if matches!(error.problem, Problem::Io { .. }) && !args.path.exists() => return Err(error.into()),
        inspected => inspected,
    };
    let misfit = inspected.as_ref().ok().and_then(|plugin| misfit(&host, plugin));
    if args.json {
        let mut verdict = verdict_json(inspected.as_ref());
        if let Ok(plugin) = &inspected {
            verdict["configSchema"] = plugin.has_config_schema().into();
            verdict["configFaults"] = misfit.clone().into();
        }
        json_line(&verdict)?;
    } else {
        match &inspected {
            Ok(plugin) => describe(&args.path, plugin, misfit.as_deref())?,
            Err(error) => line(format_args!("{}: {error}", verdict(error)))?,
        }
    }
    Ok(if inspected.is_err() || misfit.is_some() { Outcome::Findings } else { Outcome::Fine })
}

/// What of the configuration for its engine does not fit.
fn misfit(host: &Host, plugin: &Plugin) -> Option<String> {
    let creation = host.creation(&plugin.info().id, None);
    plugin.check_config(creation.config.as_ref()).err().map(|error| error.problem.to_string())
}

fn describe(path: &Path, plugin: &Plugin, misfit: Option<&str>) -> Result<(), CliError> {
    let (record, info) = (&plugin.inspection().record, plugin.info());
    line(format_args!("usable: {}", on_one_line(&path.to_string_lossy())))?;
    let accepted = match &info.accepted_host_params {
        None => "all".to_owned(),
        Some(keys) if keys.is_empty() => "none".to_owned(),
        Some(keys) => keys.join(", "),
    };
    let config = match (plugin.has_config_schema(), misfit) {
        (false, _) => "no schema to check it against".to_owned(),
        (true, None) => "fits the plugin's schema".to_owned(),
        (true, Some(misfit)) => misfit.to_owned(),
    };
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    for (name, value) in [
        ("id", info.id.clone()),
        ("name", info.name.clone()),
        ("version", info.version.clone()),
        ("owns compaction", if info.owns_compaction { "yes" } else { "no" }.to_owned()),
        ("host params", accepted),
        ("extensions", list(&record.extensions)),
        ("schema", record.schema_version.to_string()),
        ("interface", record.interface_version.clone()),
        ("panic", record.panic.clone()),
        ("target", record.target.clone()),
        ("compiler", record.compiler.clone()),
        ("size", format!("{} bytes", number(plugin.inspection().bytes))),
        ("digest", plugin.staged().digest.to_string()),
        ("needs", list(&plugin.inspection().needs)),
        ("config", config),
        ("needs glibc", plugin.inspection().glibc.clone().unwrap_or_else(|| "none".to_owned())),
    ] {
        line(format_args!("  {name:<16} {}", on_one_line(&value)))?;
    }
    Ok(line("nothing of the file was run")?)
}

/// A plugin's verdict for scripts.
pub(crate) fn verdict_json(found: Result<&Plugin, &LoaderError>) -> Value {
    match found {
        Ok(plugin) => json!({
            "path": path_json(&plugin.candidate().path),
            "usable": true,
            "digest": plugin.staged().digest.to_string(),
            "inspection": plugin.inspection(),
        }),
        Err(error) => json!({
            "path": path_json(&error.path),
            "usable": false,
            "id": error.engine,
            "verdict": verdict(error),
            "step": error.step.to_string(),
            "reason": error.problem.to_string(),
        }),
    }
}
