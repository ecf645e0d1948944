//! `context-engine sessions repair`
//!
//! Decision: with `--all`, one session that cannot be repaired is no reason to leave the others as they are.

use std::path::Path;

use context_engine_transcript::store::{RepairOptions, RepairReport, repair};
use serde_json::{Value, json};

use super::args::RepairArgs;
use super::facts::{findings_json, open_calls};
use crate::Outcome;
use crate::error::CliError;
use crate::output::{count, done, json_line, line, note, path_json};

pub(crate) fn run(args: &RepairArgs) -> Result<Outcome, CliError> {
    let options = RepairOptions { dry_run: args.dry_run };
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    match &args.session {
        Some(session) => reports.push(repair(&args.folder.session(session)?, options)?),
        None => {
            let (_, listed) = args.folder.list()?;
            for session in listed.iter().filter(|summary| summary.not_a_session.is_none()) {
                match repair(&session.path, options) {
                    Ok(report) => reports.push(report),
                    Err(error) => {
                        note(&error);
                        failed.push(json!({ "path": path_json(&session.path), "error": error.to_string() }));
                    }
                }
            }
        }
    }
    if !args.dry_run {
        done();
    }
    let damaged = reports.iter().filter(|report| report.findings.is_damaged()).count();
    if args.json {
        let sessions: Vec<Value> = reports.iter().map(report_json).chain(failed.iter().cloned()).collect();
        json_line(
            &json!({ "dryRun": args.dry_run, "sessions": sessions, "damaged": damaged, "failed": failed.len() }),
        )?;
    } else {
        for report in &reports {
            // Of many sessions, those in order are only counted.
            if args.session.is_some() || report.findings.is_damaged() {
                tell(report, args.dry_run)?;
            }
        }
        if args.session.is_none() {
            let done = if args.dry_run { "damaged, none was changed" } else { "damaged and repaired" };
            let all = count((reports.len() + failed.len()) as u64, "session");
            let not_done = if failed.is_empty() { String::new() } else { format!(", {} not done", failed.len()) };
            line(format_args!("{all}: {damaged} {done}{not_done}"))?;
        }
    }
    Ok(if damaged > 0 || !failed.is_empty() { Outcome::Findings } else { Outcome::Fine })
}

fn tell(report: &RepairReport, dry_run: bool) -> Result<(), CliError> {
    let (path, entries) = (report.path.display(), count(report.entries, "entry"));
    let state = match (report.findings.is_damaged(), dry_run) {
        (false, _) => format!("sound, {entries}; nothing was changed"),
        (true, true) => format!("damaged, {entries} are whole; nothing was changed"),
        (true, false) => format!("repaired, {entries} kept"),
    };
    line(format_args!("{path}: {state}"))?;
    for told in report.findings.told().into_iter().chain(open_calls(report.findings.unanswered_calls)) {
        line(format_args!("  {told}"))?;
    }
    if let Some(backup) = &report.backup {
        let name = backup.file_name().map(Path::new).unwrap_or(backup);
        line(format_args!("  the original is kept beside it as {}", name.display()))?;
    }
    Ok(())
}

fn report_json(report: &RepairReport) -> Value {
    json!({
        "id": report.id,
        "path": path_json(&report.path),
        "entries": report.entries,
        "damaged": report.findings.is_damaged(),
        "findings": findings_json(&report.findings),
        "backup": report.backup.as_deref().map(path_json),
    })
}
