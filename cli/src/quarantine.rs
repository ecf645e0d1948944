//! `context-engine quarantine list`, `why` and `clear`
//!
//! The configuration is not read: these have to work when it is broken. What hosts that died have left is judged first, so
//! that a person who asks after a crash is told.

use context_engine_loader::on_one_line;
use context_engine_loader::quarantine::{Fault, MARKS_FOLDER, ProcessStamp, Quarantine, Record, Scope, Unreadable};
use context_engine_runtime::Home;
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::{QuarantineClearArgs, QuarantineListArgs, QuarantineWhyArgs};
use crate::error::CliError;
use crate::output::{done, json_line, line, path_json, utc};

pub(crate) fn list(args: &QuarantineListArgs) -> Result<Outcome, CliError> {
    let quarantine = open(&Home::from_env()?);
    let (records, unreadable) = (in_force_first(quarantine.list()), quarantine.unreadable());
    let in_force = records.iter().filter(|record| record.is_in_force()).count();
    let history = records.len() - in_force;
    let shown = if args.all { &records[..] } else { &records[..in_force] };
    if args.json {
        let engines: Vec<Value> = shown.iter().map(record_json).collect();
        let unreadable: Vec<Value> = unreadable.iter().map(unreadable_json).collect();
        json_line(&json!({ "inForce": in_force, "history": history, "engines": engines, "unreadable": unreadable }))?;
    } else {
        for record in shown {
            let (engine, at, what) = (&record.engine, utc(record.last_at_ms), record.story());
            let state = if record.is_in_force() { "set aside" } else { "history" };
            line(format_args!("{engine:<24} {state:<10} {at}  {what}"))?;
        }
        for Unreadable { path, reason } in &unreadable {
            let path = path.display();
            line(format_args!("{:<24} {:<10} {path}: {reason}; counts as nothing", "-", "unreadable"))?;
        }
        let rest = if args.all { 0 } else { history };
        match (in_force, rest) {
            (0, 0) if shown.is_empty() => line("no engine is set aside")?,
            (0, rest) if rest > 0 => line(format_args!("no engine is set aside; {rest} in the history (--all)"))?,
            (_, rest) if rest > 0 => line(format_args!("{rest} more in the history (--all)"))?,
            _ => {}
        }
    }
    Ok(if in_force > 0 { Outcome::Findings } else { Outcome::Fine })
}

pub(crate) fn why(args: &QuarantineWhyArgs) -> Result<Outcome, CliError> {
    let all = in_force_first(open(&Home::from_env()?).list());
    let records: Vec<&Record> = all.iter().filter(|record| record.engine == args.id).collect();
    if records.is_empty() {
        return Err(unknown(&args.id, &all));
    }
    if args.json {
        let records: Vec<Value> = records.iter().map(|record| record_json(record)).collect();
        json_line(&json!({ "engine": args.id, "records": records }))?;
    } else {
        for record in &records {
            tell(record)?;
        }
    }
    Ok(if records.iter().any(|record| record.is_in_force()) { Outcome::Findings } else { Outcome::Fine })
}

pub(crate) fn clear(args: &QuarantineClearArgs) -> Result<Outcome, CliError> {
    let home = Home::from_env()?;
    let quarantine = open(&home);
    let (before, foreign) = (quarantine.list(), quarantine.unreadable());
    let cleared = quarantine.clear(args.id.as_deref()).map_err(|source| {
        let path = home.state().join("quarantine");
        CliError::File { path, doing: "clearing the quarantine", source }
    })?;
    let removed: Vec<&Unreadable> = foreign.iter().filter(|file| !file.path.exists()).collect();
    if let Some(id) = args.id.as_ref().filter(|_| cleared.is_empty() && removed.is_empty()) {
        return Err(unknown(id, &before));
    }
    done();
    if args.json {
        let engines: Vec<Value> = cleared.iter().map(record_json).collect();
        let unreadable: Vec<Value> = removed.iter().map(|file| unreadable_json(file)).collect();
        json_line(&json!({ "cleared": engines, "unreadable": unreadable }))?;
        return Ok(Outcome::Fine);
    }
    for record in &cleared {
        let path = on_one_line(&record.path.to_string_lossy());
        line(format_args!("cleared   {}, {path}: {}", record.engine, record.story()))?;
    }
    for file in &removed {
        line(format_args!("cleared   {}, which was no record", file.path.display()))?;
    }
    if cleared.is_empty() && removed.is_empty() {
        line("nothing was in quarantine")?;
    }
    Ok(Outcome::Fine)
}

fn open(home: &Home) -> Quarantine {
    let quarantine = Quarantine::open(&home.state());
    quarantine.settle_marks(&home.state().join(MARKS_FOLDER));
    quarantine
}

/// The newest first of each.
fn in_force_first(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| !record.is_in_force());
    records
}

fn unknown(id: &str, known: &[Record]) -> CliError {
    let mut known: Vec<String> = known.iter().map(|record| record.engine.clone()).collect();
    known.sort_unstable();
    known.dedup();
    CliError::NotInQuarantine { id: id.to_owned(), known }
}

/// The whole story in words.
fn tell(record: &Record) -> Result<(), CliError> {
    line(format_args!("{}: {}", record.engine, state(record)))?;
    let times = match record.count {
        1 => String::new(),
        count => format!("; {count} incidents since {}", utc(record.first_at_ms)),
    };
    for (name, value) in [
        ("what", record.story()),
        ("when", format!("{}{times}", utc(record.last_at_ms))),
        ("file", record.path.to_string_lossy().into_owned()),
        ("digest", record.digest.clone()),
        ("key", format!("{} (library and configuration)", record.key.short())),
        ("process", process(record.process)),
        ("host", format!("context-engine {}", record.host_version)),
        ("in a row", format!("{} of 3 processes", record.processes_in_a_row)),
        ("deaths", format!("{} of 3 in a row without proof", record.suspected_in_a_row)),
    ] {
        let counts_nothing = matches!(name, "in a row" | "deaths") && value.starts_with('0');
        if !counts_nothing {
            line(format_args!("  {name:<10} {}", on_one_line(&value)))?;
        }
    }
    for (at, incident) in record.history.iter().rev().enumerate() {
        let name = if at == 0 { "history" } else { "" };
        let (time, pid) = (utc(incident.at_ms), incident.process.pid);
        line(format_args!("  {name:<10} {time}  process {pid}: {}", incident.story()))?;
    }
    Ok(line(format_args!("  {:<10} {}", "do", advice(record)))?)
}

/// For whom it is set aside.
fn state(record: &Record) -> String {
    match record.in_force_in() {
        None => "set aside in every process until it is cleared".to_owned(),
        Some(processes) if processes.is_empty() => "not set aside now; this is history".to_owned(),
        Some(processes) => {
            let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
            format!("set aside in process {}, and used by others", pids.join(", "))
        }
    }
}

fn advice(record: &Record) -> String {
    let engine = &record.engine;
    if !record.is_in_force() {
        return format!("nothing; `context-engine quarantine clear {engine}` forgets the history");
    }
    let cause = match record.fault {
        Fault::Suspect => "nothing proves that the engine is to blame: look whether the machine ran out of memory",
        Fault::Create | Fault::Error => "look at the engine's configuration and log",
        Fault::Timeout => "look what the engine waits for",
        _ => "report it to the engine's author",
    };
    let restart = if record.scope == Scope::Process { "start the host again, or " } else { "" };
    format!(
        "{cause}; update the engine or change plugins.entries.{engine}.config (both start clean), or {restart}run \
         `context-engine quarantine clear {engine}`"
    )
}

fn process(process: ProcessStamp) -> String {
    format!("{}, which {}", process.pid, if process.is_running() { "still runs" } else { "has ended" })
}

fn process_json(process: ProcessStamp) -> Value {
    json!({ "pid": process.pid, "running": process.is_running() })
}

fn record_json(record: &Record) -> Value {
    let history = record.history.iter().map(|incident| {
        json!({
            "at": utc(incident.at_ms), "operation": incident.operation, "fault": incident.fault,
            "reason": incident.reason, "process": process_json(incident.process),
        })
    });
    json!({
        "engine": record.engine,
        "inForce": record.is_in_force(),
        "scope": record.scope,
        "fault": record.fault,
        "operation": record.operation,
        "reason": record.reason,
        "path": path_json(&record.path),
        "digest": record.digest,
        "key": record.key.to_string(),
        "hostVersion": record.host_version,
        "firstAt": utc(record.first_at_ms),
        "lastAt": utc(record.last_at_ms),
        "count": record.count,
        "process": process_json(record.process),
        "processesInARow": record.processes_in_a_row,
        "suspectedInARow": record.suspected_in_a_row,
        "history": history.collect::<Vec<_>>(),
    })
}

fn unreadable_json(file: &Unreadable) -> Value {
    json!({ "path": path_json(&file.path), "reason": file.reason })
}
