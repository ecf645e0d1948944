//! `context-engine plugins reload`
//!
//! Decision: a host watches its plugins by itself, so this is for who wants to know: it looks at the files as a host does,
//! asks the hosts that run to look again, too, and says what each of them did.

use std::thread;
use std::time::{Duration, Instant};

use context_engine_loader::hosts::{self, RunningHost};
use context_engine_loader::quarantine::ProcessStamp;
use context_engine_loader::{LEGACY, on_one_line};
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::Directories;
use crate::doctor::{Checked, check, serving};
use crate::error::CliError;
use crate::output::{duration, json_line, line};
use crate::setup::Host;

use super::Told;
use super::args::ReloadArgs;

/// How long a host gets to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often its file is looked at.
const AGAIN: Duration = Duration::from_millis(10);

/// A host that was asked.
struct Asked {
    host: RunningHost,
    /// Whether it has looked since.
    answered: bool,
}

pub(crate) fn run(args: &ReloadArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&Directories { plugins: vec![] })?;
    if let Some(id @ (LEGACY | "none")) = args.id.as_deref().map(str::trim) {
        return built_in(id).show(args.json);
    }
    let found = host.loader.scan();
    let is_meant = |id: Option<&str>| args.id.as_deref().is_none_or(|meant| id == Some(meant));
    let checked: Vec<Checked> = found.into_iter().map(|found| check(&host, found, false)).collect();
    let shown: Vec<&Checked> = checked.iter().filter(|checked| is_meant(checked.id())).collect();
    let missing = args.id.as_deref().filter(|_| shown.is_empty()).and_then(|id| host.loader.find(id).err());
    if !args.json {
        shown.iter().try_for_each(|checked| checked.describe())?;
        missing.iter().try_for_each(|missing| line(on_one_line(&missing.to_string())))?;
    }
    let asked = ask(&host)?;
    let slot = host.config.plugins.slots.context_engine.as_deref().map_or("", str::trim);
    let (serves, why) = serving(&host, slot, &checked);
    let mut finding = shown.iter().any(|checked| checked.is_finding()) || missing.is_some();
    for asked in &asked {
        let refused = asked.engines(&is_meant).any(|engine| engine.why.is_some());
        finding |= refused || !asked.answered;
    }
    if args.json {
        let hosts: Vec<Value> = asked.iter().map(|asked| asked.json(&is_meant)).collect();
        json_line(&json!({
            "plugins": shown.iter().map(|checked| checked.json()).collect::<Vec<_>>(),
            "missing": missing.as_ref().map(ToString::to_string),
            "hosts": hosts,
            "nextStart": { "serves": serves, "why": why },
        }))?;
    } else if asked.is_empty() {
        let because = why.map_or_else(String::new, |why| format!(", because {why}"));
        line(
            "no host that watches runs here; one that does not is not known, and heeds nothing before its next start",
        )?;
        line(on_one_line(&format!("a host that starts now uses {serves}{because}")))?;
    } else {
        asked.iter().try_for_each(|asked| asked.describe(&is_meant))?;
    }
    Ok(if finding { Outcome::Findings } else { Outcome::Fine })
}

/// The engine that is part of every host. No host has to be asked.
fn built_in(id: &str) -> Told {
    let mut told = Told::new(json!({ "id": id, "plugins": [], "missing": null, "hosts": [], "nextStart": null }));
    told.say(format!("{LEGACY} is built in: it has no file, and there is nothing to reload"));
    told
}

/// Asks the hosts that run, and waits for each of them.
fn ask(host: &Host) -> Result<Vec<Asked>, CliError> {
    let state = host.home.state();
    // Of one process there may be several.
    let mut meant: Vec<ProcessStamp> = hosts::running(&state).iter().map(|host| host.process).collect();
    meant.dedup();
    if meant.is_empty() {
        return Ok(vec![]);
    }
    let generation = hosts::ask_for_reload(&state).map_err(|source| CliError::File {
        path: state.clone(),
        doing: "asking the hosts to reload",
        source,
    })?;
    let until = Instant::now() + PATIENCE;
    loop {
        // One that has ended meanwhile has nothing to reload.
        let running = hosts::running(&state).into_iter().filter(|host| meant.contains(&host.process));
        let answered = |host: &RunningHost| host.last_reload.as_ref().is_some_and(|last| last.generation >= generation);
        let asked: Vec<Asked> = running.map(|host| Asked { answered: answered(&host), host }).collect();
        if asked.iter().all(|asked| asked.answered) || Instant::now() >= until {
            return Ok(asked);
        }
        thread::sleep(AGAIN);
    }
}

impl Asked {
    /// What it did about the engines that are meant.
    fn engines(&self, is_meant: &impl Fn(Option<&str>) -> bool) -> impl Iterator<Item = &hosts::ReloadedEngine> {
        let last = self.host.last_reload.iter().filter(|_| self.answered);
        last.flat_map(|last| &last.engines).filter(|engine| is_meant(Some(&engine.id)))
    }

    /// What it did about one engine. A host that watches has often done it a moment before it was asked.
    fn tell(&self, engine: &hosts::ReloadedEngine) -> String {
        let text = on_one_line(&engine.text);
        let in_use = self.host.engines.iter().find(|used| used.id == engine.id && used.digest == engine.digest);
        let at = self.host.last_reload.as_ref().map_or(0, |last| last.at_ms);
        match in_use.and_then(|used| used.since_ms).filter(|_| engine.outcome == "unchanged") {
            Some(since) => format!("{text}, in use for {}", duration(at.saturating_sub(since).saturating_mul(1_000))),
            None => text,
        }
    }

    fn describe(&self, is_meant: &impl Fn(Option<&str>) -> bool) -> Result<(), CliError> {
        let (pid, label) = (self.host.process.pid, on_one_line(&self.host.label));
        let told: Vec<String> = self.engines(is_meant).map(|engine| self.tell(engine)).collect();
        let what = match (self.answered, told.is_empty()) {
            (false, _) => {
                let seconds = PATIENCE.as_secs();
                format!("has not answered within {seconds} s; `context-engine doctor` shows what it did last")
            }
            (true, true) => "has looked, and uses no such engine".to_owned(),
            (true, false) => "has looked".to_owned(),
        };
        line(format_args!("host      {pid} {label}: {what}"))?;
        told.iter().try_for_each(|told| line(format_args!("            {told}")))?;
        Ok(())
    }

    fn json(&self, is_meant: &impl Fn(Option<&str>) -> bool) -> Value {
        json!({
            "pid": self.host.process.pid,
            "label": self.host.label,
            "answered": self.answered,
            "engines": self.engines(is_meant).collect::<Vec<_>>(),
        })
    }
}
