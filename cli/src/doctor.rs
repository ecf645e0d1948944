//! `context-engine doctor`: per plugin and per step what passed and what failed, what to do, which engine serves,
//! and what is wrong with sessions.
//!
//! Runs no plugin code in this process: what a plugin does when it runs is found out by the probe, in a child process.
//! Whatever that finds is shown and sets nobody aside, so that a person who looks changes nothing by it.

use std::sync::Arc;
use std::time::Duration;

use context_engine_loader::hosts::running;
use context_engine_loader::quarantine::{Finding, Record, Verdict};
use context_engine_loader::{LEGACY, LoaderError, OnFailure, Origin, Plugin, Step, on_one_line};
use context_engine_runtime::Config;
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::DoctorArgs;
use crate::error::CliError;
use crate::hosts;
use crate::output::{json_line, line, path_json};
use crate::plugins::place::{leftovers, unpinned};
use crate::plugins::{is_finding, not_pinned, verdict, verdict_json};
use crate::sessions;
use crate::setup::Host;

/// The steps that read files, in order.
const READING: [Step; 4] = [Step::Find, Step::Stage, Step::Inspect, Step::Trust];

pub(crate) fn run(args: &DoctorArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&args.directories)?;
    // Who was ended from outside, or ended in order, is no news.
    let crashes = host.loader.settle_crash_marks();
    let crashes: Vec<&Verdict> = crashes.iter().filter(|crash| crash.finding != Finding::Acquitted).collect();
    let misspelt = Config::misspelt(&host.home.config());
    let checked: Vec<Checked> =
        host.loader.scan().into_iter().map(|found| check(&host, found, args.no_probe)).collect();
    let slot = host.config.plugins.slots.context_engine.as_deref();
    let asked = args.engine.as_deref().or(slot).map_or("", str::trim);
    let strict = host.config.on_failure() == OnFailure::Stop;
    let (serves, why) = serving(&host, asked, &checked);
    let remedy = why.as_ref().and_then(|_| remedy(&host, asked, &checked));
    let sessions = sessions::overview(&host.home.sessions());
    let running = running(&host.home.state());
    let (leftovers, unpinned) = (leftovers(&host.home.plugins()), unpinned(&host.home.plugins()));
    let worn = running.iter().any(hosts::is_worth_a_restart);
    let finding = checked.iter().any(Checked::is_finding) || why.is_some() || sessions.damaged || worn;
    let finding = finding || !misspelt.is_empty();
    if args.json {
        let directories: Vec<Value> = host.directories.iter().map(|directory| path_json(&directory.path)).collect();
        json_line(&json!({
            "home": path_json(host.home.root()),
            "config": path_json(&host.home.config()),
            "configExists": host.home.config().exists(),
            "directories": directories,
            "slot": asked,
            "policy": if strict { "strict" } else { "fallback" },
            "serves": if strict && why.is_some() { Value::Null } else { serves.into() },
            "why": why,
            "remedy": remedy,
            "plugins": checked.iter().map(Checked::json).collect::<Vec<_>>(),
            "leftovers": leftovers.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
            "crashes": crashes.iter().map(|crash| crash_json(crash)).collect::<Vec<_>>(),
            "misspelt": misspelt.iter().map(|(place, meant)| json!({ "key": place, "meant": meant })).collect::<Vec<_>>(),
            "unpinned": unpinned.iter().map(|(_, id)| id).collect::<Vec<_>>(),
            "hosts": running.iter().map(hosts::json).collect::<Vec<_>>(),
            "sessions": sessions.json,
        }))?;
    } else {
        line(format_args!("home      {}", host.home.root().display()))?;
        let exists = if host.home.config().exists() { "" } else { "  (does not exist: every key is at its default)" };
        line(format_args!("config    {}{exists}", host.home.config().display()))?;
        for (place, meant) in &misspelt {
            line(format_args!("            {place} is no key that is read; did you mean {meant}?"))?;
        }
        let ids: Vec<&str> = checked.iter().filter_map(Checked::id).collect();
        for id in host.config.plugins.entries.keys().filter(|id| !ids.contains(&id.as_str())) {
            line(format_args!("            plugins.entries.{id}: no plugin has this id"))?;
        }
        for directory in &host.directories {
            let remark = match directory.origin {
                _ if !directory.path.exists() => "  (does not exist: holds no plugins)",
                Origin::Configured => "",
                Origin::Workspace => "  (of the workspace: used only when plugins.allow or plugins.trusted names them)",
            };
            line(format_args!("plugins   {}{remark}", directory.path.display()))?;
        }
        for checked in &checked {
            checked.describe()?;
        }
        for path in &leftovers {
            let to_do = "of a command that runs or was broken off; a later install or uninstall clears it away";
            line(format_args!("leftover  {}: {to_do}", on_one_line(&path.to_string_lossy())))?;
        }
        for (path, id) in &unpinned {
            line(format_args!("leftover  {}: {}", on_one_line(&path.to_string_lossy()), on_one_line(&not_pinned(id))))?;
        }
        for crash in &crashes {
            let (engine, reason) = (&crash.subject.engine, on_one_line(&crash.reason));
            line(format_args!("crash     {engine}: {reason}"))?;
        }
        for host in &running {
            for (at, told) in hosts::lines(host).iter().enumerate() {
                line(format_args!("{}{told}", if at == 0 { "host      " } else { "            " }))?;
            }
        }
        for (at, told) in sessions.lines.iter().enumerate() {
            line(format_args!(
                "{:<9} {}{told}",
                if at == 0 { "sessions" } else { "" },
                if at == 0 { "" } else { "  " }
            ))?;
        }
        let shown = if asked.is_empty() { "not set" } else { asked };
        let place = if args.engine.is_some() { "--engine" } else { "plugins.slots.contextEngine" };
        line(format_args!("slot      {place}: {shown}"))?;
        match &why {
            None => line(format_args!("serves    {serves}"))?,
            Some(why) if strict => {
                let policy = "plugins.contextEnginePolicy is \"strict\", so a run stops";
                line(format_args!("serves    nothing: {policy}, because {why}"))?;
            }
            Some(why) => line(format_args!("serves    {serves}, because {why}"))?,
        }
        if let Some(remedy) = &remedy {
            line(format_args!("            {remedy}"))?;
        }
    }
    Ok(if finding { Outcome::Findings } else { Outcome::Fine })
}

fn crash_json(crash: &Verdict) -> Value {
    json!({
        "engine": crash.subject.engine,
        "operation": crash.operation,
        "pid": crash.process.pid,
        "quarantined": matches!(crash.finding, Finding::Convicted | Finding::Quarantined),
        "reason": crash.reason,
    })
}

/// What is known of one plugin.
pub(crate) enum Checked {
    /// A step that reads files refused it.
    Refused(LoaderError),
    Read(Box<Read>),
}

pub(crate) struct Read {
    plugin: Plugin,
    /// What of the engine's configuration does not fit the plugin's schema.
    misfit: Option<String>,
    probe: Probed,
    held: Option<Arc<Record>>,
    lacks: Option<String>,
    /// Host params it refused, without which it is called.
    refused_params: Vec<String>,
}

enum Probed {
    NotAsked,
    Passed(Option<Duration>),
    Failed(String),
}

/// Takes what was found through the steps a host would take it through.
pub(crate) fn check(host: &Host, found: Result<Plugin, LoaderError>, no_probe: bool) -> Checked {
    let plugin = match found {
        Ok(plugin) => plugin,
        Err(error) => return Checked::Refused(error),
    };
    let creation = host.creation(&plugin.info().id, None);
    let misfit = plugin.check_config(creation.config.as_ref()).err().map(|error| error.problem.to_string());
    // It would not be created with it.
    let probe = match no_probe || misfit.is_some() {
        true => Probed::NotAsked,
        false => match host.loader.probe(&plugin, &creation) {
            Ok(report) => Probed::Passed(report.map(|report| report.took)),
            Err(failure) => Probed::Failed(failure.to_string()),
        },
    };
    Checked::Read(Box::new(Read {
        held: host.loader.held(&plugin, &creation),
        lacks: host.loader.lacks(&plugin),
        refused_params: host.loader.builds().refused_host_params(plugin.staged().digest).into_iter().collect(),
        misfit,
        probe,
        plugin,
    }))
}

impl Read {
    /// Why it would not serve.
    fn obstacle(&self) -> Option<(&'static str, String)> {
        if let Some(lacks) = &self.lacks {
            return Some(("host", lacks.clone()));
        }
        if let Some(misfit) = &self.misfit {
            return Some(("config", misfit.clone()));
        }
        if let Some(record) = &self.held {
            let id = &record.engine;
            let to_do = format!("`context-engine quarantine why {id}` says more");
            return Some(("quarantine", format!("set aside since it {}; {to_do}", story(record))));
        }
        match &self.probe {
            Probed::Failed(reason) => Some(("probe", reason.clone())),
            Probed::NotAsked | Probed::Passed(_) => None,
        }
    }
}

fn story(record: &Record) -> String {
    format!("failed during {}: {}", record.operation, on_one_line(&record.reason))
}

impl Checked {
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Checked::Refused(error) => error.engine.as_deref(),
            Checked::Read(read) => Some(&read.plugin.info().id),
        }
    }

    pub(crate) fn is_finding(&self) -> bool {
        match self {
            Checked::Refused(error) => is_finding(&Err(error.clone())),
            Checked::Read(read) => read.obstacle().is_some(),
        }
    }

    pub(crate) fn describe(&self) -> Result<(), CliError> {
        let step = |name: &str, outcome: &str| line(format_args!("            {name:<11} {}", on_one_line(outcome)));
        let passed = |before: Option<Step>| {
            let passed = READING.iter().take_while(|step| before.is_none_or(|before| **step < before));
            passed.map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match self {
            Checked::Refused(error) => {
                let path = on_one_line(&error.path.to_string_lossy());
                let id = error.engine.as_ref().map_or_else(String::new, |id| format!(": {}", on_one_line(id)));
                line(format_args!("{:<9} {path}{id}", verdict(error)))?;
                let passed = passed(Some(error.step));
                if !passed.is_empty() {
                    step("passed", &passed)?;
                }
                step(&error.step.to_string(), &error.problem.to_string())?;
            }
            Checked::Read(read) => {
                let (path, info) = (read.plugin.candidate().path.to_string_lossy(), read.plugin.info());
                let obstacle = read.obstacle();
                let state = match &obstacle {
                    None => "ok",
                    Some(("quarantine", _)) => "set aside",
                    Some(_) => "failed",
                };
                line(on_one_line(&format!("{state:<9} {path}: {} {}", info.id, info.version)))?;
                let tried = match &read.probe {
                    Probed::Passed(Some(took)) => format!(", probe ({} ms)", took.as_millis()),
                    Probed::Passed(None) => ", probe (earlier)".to_owned(),
                    Probed::NotAsked | Probed::Failed(_) => String::new(),
                };
                step("passed", &(passed(None) + &tried))?;
                if let Some((place, reason)) = &obstacle {
                    step(place, reason)?;
                }
                if let (Some(("host" | "quarantine", _)), Probed::Failed(reason)) = (&obstacle, &read.probe) {
                    step("probe", reason)?;
                }
                if !read.refused_params.is_empty() {
                    let params = read.refused_params.join(", ");
                    step("host params", &format!("called without {params}, which this build refuses"))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn json(&self) -> Value {
        let read = match self {
            Checked::Refused(error) => return verdict_json(Err(error)),
            Checked::Read(read) => read,
        };
        let mut json = verdict_json(Ok(&read.plugin));
        let obstacle = read.obstacle();
        json["usable"] = obstacle.is_none().into();
        json["id"] = read.plugin.info().id.clone().into();
        if let Some((step, reason)) = obstacle {
            json["step"] = step.into();
            json["reason"] = reason.into();
        }
        json["probe"] = match &read.probe {
            Probed::NotAsked => Value::Null,
            Probed::Passed(took) => json!({ "passed": true, "ms": took.map(|took| took.as_millis() as u64) }),
            Probed::Failed(reason) => json!({ "passed": false, "reason": reason }),
        };
        json["quarantine"] = read.held.as_ref().map_or(Value::Null, |record| json!(**record));
        json["calledWithout"] = json!(read.refused_params);
        json
    }
}

/// Why the engine `id` would not serve now, if it would not. Tries it out in a child process.
pub(crate) fn obstacle(host: &Host, id: &str) -> Option<String> {
    let checked: Vec<Checked> = match host.loader.find(id) {
        Ok(plugin) => vec![check(host, Ok(plugin), false)],
        Err(_) => vec![],
    };
    serving(host, id, &checked).1
}

/// The engine that would serve, and why it is not the one in the slot.
pub(crate) fn serving(host: &Host, asked: &str, checked: &[Checked]) -> (String, Option<String>) {
    if matches!(asked, "" | "none" | LEGACY) {
        return (LEGACY.to_owned(), None);
    }
    let read = checked.iter().find_map(|checked| match checked {
        Checked::Read(read) if read.plugin.info().id == asked => Some(read),
        _ => None,
    });
    let obstacle = match read {
        Some(read) => read.obstacle().map(|(_, reason)| reason),
        None => host.loader.find(asked).err().map(|error| error.to_string()),
    };
    match host.loader.policy().forbids(asked).or(obstacle) {
        None => (asked.to_owned(), None),
        why => (LEGACY.to_owned(), why),
    }
}

/// The command that lets `asked` serve, where there is one and the reason does not name it.
fn remedy(host: &Host, asked: &str, checked: &[Checked]) -> Option<String> {
    let is_off = host.config.plugins.entries.get(asked).is_some_and(|entry| entry.enabled == Some(false));
    let is_there = checked.iter().any(|checked| checked.id() == Some(asked));
    match (is_off, is_there) {
        (true, _) => Some(format!("`context-engine plugins enable {asked}` lets it be used again")),
        (false, true) => None,
        (false, false) => Some(
            "`context-engine plugins install PATH` installs it; `context-engine plugins select legacy` makes legacy the choice"
                .to_owned(),
        ),
    }
}
