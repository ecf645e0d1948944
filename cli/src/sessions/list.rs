//! `context-engine sessions list`

use context_engine_transcript::store::SessionSummary;
use serde_json::{Value, json};

use super::args::ListArgs;
use super::facts::{open_calls, short, summary_json, telling};
use crate::Outcome;
use crate::error::CliError;
use crate::output::{count, json_line, line, minute, number, path_json, size};

/// Characters of a session's name that are shown.
const NAME: usize = 60;

pub(crate) fn run(args: &ListArgs) -> Result<Outcome, CliError> {
    let (folder, listed) = args.folder.list()?;
    let (sessions, others): (Vec<_>, Vec<_>) = listed.iter().partition(|summary| summary.not_a_session.is_none());
    let damaged = sessions.iter().filter(|session| session.findings.is_damaged()).count();
    if args.json {
        let other = |other: &&SessionSummary| json!({ "path": path_json(&other.path), "bytes": other.bytes, "reason": other.not_a_session });
        json_line(&json!({
            "folder": path_json(&folder),
            "sessions": sessions.iter().map(|session| summary_json(session)).collect::<Vec<Value>>(),
            "damaged": damaged,
            "others": others.iter().map(other).collect::<Vec<Value>>(),
        }))?;
    } else {
        table(&sessions)?;
        for other in &others {
            let name = other.path.file_name().unwrap_or_default().to_string_lossy();
            let reason = other.not_a_session.as_deref().unwrap_or_default();
            line(format_args!("not a session file: {name}: {reason}"))?;
        }
        line(match (sessions.len(), damaged) {
            (0, _) => format!("no sessions in {}", folder.display()),
            (n, 0) => count(n as u64, "session"),
            (n, damaged) => {
                let dir = args.folder.dir.as_ref().map_or_else(String::new, |dir| format!(" --dir {}", dir.display()));
                let to_do = format!("`context-engine sessions repair --all{dir}` mends what is damaged");
                format!("{}, {damaged} damaged; {to_do}", count(n as u64, "session"))
            }
        })?;
    }
    Ok(if damaged > 0 { Outcome::Findings } else { Outcome::Fine })
}

fn table(sessions: &[&SessionSummary]) -> Result<(), CliError> {
    if sessions.is_empty() {
        return Ok(());
    }
    let length = telling(sessions.iter().map(|session| session.id.as_str()));
    let width = sessions.iter().map(|session| session.id.chars().count().min(length)).max().unwrap_or(0).max(2);
    line(format_args!(
        "{:<width$}  {:<16}  {:>8}  {:>8}  {:>8}  name",
        "id", "last entry", "messages", "branches", "size"
    ))?;
    for session in sessions {
        let name = session.name.as_deref().unwrap_or("(nothing was said)");
        let mut shown: String = name.chars().take(NAME).collect();
        if shown.len() < name.len() && !shown.ends_with('…') {
            shown.push('…');
        }
        line(format_args!(
            "{:<width$}  {:<16}  {:>8}  {:>8}  {:>8}  {shown}",
            short(&session.id, length),
            minute(session.last_ms.or(session.first_ms)),
            number(session.messages),
            number(session.branches),
            size(session.bytes),
        ))?;
        let mut remarks: Vec<String> = Vec::new();
        if session.findings.is_damaged() {
            remarks.extend(session.findings.told().into_iter().map(|told| format!("damaged: {told}")));
        }
        remarks.extend(open_calls(session.findings.unanswered_calls));
        remarks.extend((session.version < 3).then(|| {
            format!("of version {}: `context-engine sessions import` brings it to version 3", session.version)
        }));
        remarks.extend(session.owner.as_ref().map(|owner| match owner.since.as_str() {
            "" => format!("in use by {owner}"),
            since => format!("in use by {owner} since {since}"),
        }));
        for remark in remarks {
            line(format_args!("{:<width$}  {remark}", ""))?;
        }
    }
    Ok(())
}
