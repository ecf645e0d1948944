//! `context-engine sessions import`
//!
//! Decision: all files are read, and all names checked, before the first session file is written; so a command that
//! fails has changed nothing.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use context_engine_transcript::{Format, ImportOptions, ImportWarning, RecordedSession, Tally, load_with};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::ImportArgs;
use super::write;
use crate::Outcome;
use crate::error::CliError;
use crate::output::{done, json_line, line, note, number, path_json};
use crate::replay::{describe, file_name};

/// What `--json` prints for a session.
#[derive(Serialize)]
struct Report<'a> {
    file: Value,
    format: String,
    session: &'a str,
    wrote: Value,
    counts: Value,
    /// Records of the whole file that could not be read.
    lost: u64,
    warnings: &'a [String],
}

/// A session to be written.
struct Import {
    file: PathBuf,
    format: Format,
    session: RecordedSession,
    to: PathBuf,
    lost: u64,
    warnings: Vec<String>,
}

pub(crate) fn import(args: &ImportArgs) -> Result<Outcome, CliError> {
    let mut imports = Vec::new();
    let mut names = HashSet::new();
    let mut outcome = Outcome::Fine;
    for file in &args.files {
        let imported = load_with(file, ImportOptions { sidechains: args.sidechains })?;
        // Sidechains are left out because nobody asked for them: nothing is wrong.
        if imported.lost > 0 || imported.warnings.iter().any(is_damage) {
            outcome = Outcome::Findings;
        }
        imported.warnings.iter().for_each(|warning| note(describe(file, warning)));
        let warnings: Vec<String> = imported.warnings.iter().map(ToString::to_string).collect();
        for session in imported.sessions {
            let to = args.out.join(free_name(&session.id, &mut names));
            if !args.force && to.exists() {
                return Err(CliError::Exists { path: to });
            }
            let (format, lost, warnings) = (imported.format, imported.lost, warnings.clone());
            imports.push(Import { file: file.clone(), format, session, to, lost, warnings });
        }
    }
    let making = |source| CliError::File { path: args.out.clone(), doing: "making the folder for sessions", source };
    fs::create_dir_all(&args.out).map_err(making)?;
    for import in &imports {
        let read: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
        write::put(&import.to, &import.session.to_openclaw(), args.force, &read)?;
        done();
        report(import, args.json)?;
    }
    Ok(outcome)
}

pub(super) fn is_damage(warning: &ImportWarning) -> bool {
    !matches!(warning, ImportWarning::Sidechains { .. } | ImportWarning::LaterSystemMessages { .. })
}

/// A file name of the session's own within this run.
fn free_name(id: &str, names: &mut HashSet<String>) -> String {
    let stem = file_name(id);
    let mut name = format!("{stem}.jsonl");
    let mut n = 2_u64;
    while !names.insert(name.to_lowercase()) {
        name = format!("{stem}-{n}.jsonl");
        n += 1;
    }
    name
}

fn report(import: &Import, as_json: bool) -> Result<(), CliError> {
    let (session, counts) = (&import.session, &import.session.counts);
    let played = session.history(Default::default());
    if as_json {
        let counts = json!({
            "records": counts.records,
            "split": counts.split,
            "messages": counts.messages,
            "skipped": counts.skipped,
            "blocks": counts.blocks,
            "unknownBlocks": counts.unknown_blocks,
            "mended": counts.mended,
            "played": played.messages.len(),
            "notPlayed": played.skipped,
        });
        let (file, wrote, warnings) = (import.file.as_path(), import.to.as_path(), import.warnings.as_slice());
        let format = import.format.to_string();
        let report = Report {
            file: path_json(file),
            format,
            session: &session.id,
            wrote: path_json(wrote),
            counts,
            lost: import.lost,
            warnings,
        };
        return json_line(&report);
    }
    line(format_args!(
        "{}: {}, session {} -> {}",
        import.file.display(),
        import.format,
        session.id,
        import.to.display()
    ))?;
    let several = if counts.split > 0 { format!(" ({} of them shared)", number(counts.split)) } else { String::new() };
    line(format_args!("  records   {}{several}", number(counts.records)))?;
    line(format_args!("  messages  {}", list(&counts.messages)))?;
    line(format_args!("  left out  {}", list(&counts.skipped)))?;
    if !counts.mended.is_empty() {
        line(format_args!("  mended    {}", list(&counts.mended)))?;
    }
    if let Some(off) = played.skipped.get("off-branch") {
        line(format_args!("  branches  {} entries are not on the branch that is played", number(*off)))?;
    }
    Ok(())
}

fn list(tally: &Tally) -> String {
    let items: Vec<String> = tally.iter().map(|(name, count)| format!("{} {name}", number(*count))).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_the_same_name_get_files_of_their_own() {
        let mut names = HashSet::new();
        let mut name = |id| free_name(id, &mut names);
        assert_eq!([name("a"), name("A"), name("a/b"), name("a")], ["a.jsonl", "A-2.jsonl", "a_b.jsonl", "a-3.jsonl"]);
    }
}
