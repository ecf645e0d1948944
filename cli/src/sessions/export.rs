//! `context-engine sessions export`

use context_engine_transcript::RecordedSession;
use serde_json::{Value, json};

use super::args::{ExportArgs, ExportFormat};
use super::write;
use super::{markdown, open, openai, outcome, warn};
use crate::Outcome;
use crate::error::CliError;
use crate::output::{self, count, json_line, line, path_json};

pub(crate) fn run(args: &ExportArgs) -> Result<Outcome, CliError> {
    if args.all_branches && args.format != ExportFormat::Openclaw {
        return Err(CliError::AllBranches { format: args.format.name() });
    }
    let path = args.folder.session(&args.session)?;
    let (session, imported) = open(&path)?;
    warn(&path, &imported);
    let content = match args.format {
        ExportFormat::Markdown => markdown::of(&session),
        ExportFormat::Openai => openai::of(&session).to_string() + "\n",
        ExportFormat::Openclaw if args.all_branches => session.to_openclaw(),
        ExportFormat::Openclaw => active_branch(&session).to_openclaw(),
    };
    match &args.out {
        Some(out) => {
            write::put(out, &content, args.force, &[&path])?;
            output::done();
            let bytes = content.len() as u64;
            match args.json {
                true => json_line(&report(args, &session, json!({ "out": path_json(out), "bytes": bytes })))?,
                false => line(format_args!("{}: {}, {}", out.display(), args.format.name(), count(bytes, "byte")))?,
            }
        }
        None if args.json => {
            let content = match args.format {
                ExportFormat::Openai => serde_json::from_str(&content)?,
                _ => Value::String(content),
            };
            json_line(&report(args, &session, json!({ "content": content })))?;
        }
        None if args.format == ExportFormat::Markdown => output::text(&content)?,
        None => output::json_text(&content)?,
    }
    Ok(outcome(&imported))
}

fn report(args: &ExportArgs, session: &RecordedSession, mut more: Value) -> Value {
    let mut report = json!({ "session": session.id, "format": args.format.name() });
    if let (Some(report), Some(more)) = (report.as_object_mut(), more.as_object_mut()) {
        report.append(more);
    }
    report
}

/// The session without branches that were left.
fn active_branch(session: &RecordedSession) -> RecordedSession {
    let mut branch = RecordedSession { entries: Vec::new(), ..session.clone() };
    let mut before = None;
    for entry in session.active_branch() {
        let mut entry = entry.clone();
        entry.parent_id = before.replace(entry.id.clone());
        branch.entries.push(entry);
    }
    branch
}
