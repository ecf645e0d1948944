//! `context-engine plugins inspect`

use std::path::Path;

use context_engine_loader::{Plugin, Problem, on_one_line};

use super::{verdict, verdict_json};
use crate::Outcome;
use crate::args::{Directories, InspectArgs};
use crate::error::CliError;
use crate::output::{json_line, line, number};
use crate::setup::Host;

pub(super) fn run(args: &InspectArgs) -> Result<Outcome, CliError> {
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
