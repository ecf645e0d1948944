//! `context-engine replay`

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use context_engine_loader::{EngineHandle, LEGACY, OnFailure, Problem};
use context_engine_runtime::{CallReport, Prompt, Replay, ReplayOptions, ReplaySummary};
use context_engine_transcript::{ImportOptions, ImportWarning, RecordedSession, TokenCounter, load_with};
use serde::Serialize;
use serde_json::json;

use crate::Outcome;
use crate::args::{ReplayArgs, Which};
use crate::error::CliError;
use crate::output::{self, duration, json_line, line, note, number};
use crate::setup::Host;

/// What `--json` prints for a session.
#[derive(Serialize)]
struct SessionReport<'a> {
    session: &'a str,
    engine: &'a str,
    budget: u64,
    calls: &'a [CallReport],
    summary: &'a ReplaySummary,
    /// Why the engine does not serve any more, also when it failed after its last answer.
    set_aside: Option<String>,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let host = Host::new(&args.directories)?;
    host.say_slips();
    let engine = choose(&host, args.engine.as_deref())?;
    let imported = load_with(&args.session_file, ImportOptions { sidechains: args.sidechains })?;
    for warning in &imported.warnings {
        note(describe(&args.session_file, warning));
    }
    let mut sessions = imported.sessions;
    sessions.retain(|session| !session.history(Default::default()).messages.is_empty());
    let found = sessions.len();
    let (first, chosen) = match args.session {
        _ if found == 0 => return Err(CliError::NoSession { path: args.session_file.clone() }),
        Which::All => (0, &mut sessions[..]),
        Which::Number(asked) if asked > found => {
            return Err(CliError::Session { path: args.session_file.clone(), asked, found });
        }
        Which::Number(asked) => (asked - 1, &mut sessions[asked - 1..asked]),
    };
    if found > 1 && chosen.len() == 1 {
        note(format_args!("session {} of {found}; --session N or --session all for the others", first + 1));
    }
    let all = args.session == Which::All;
    let mut folders = Folders::default();
    let mut outcome = Outcome::Fine;
    // One instance serves many sessions, as long as they are counted alike.
    let mut opened: Option<(TokenCounter, EngineHandle)> = None;
    for session in chosen {
        let counter = TokenCounter::for_model(args.model.as_deref().or(session.model.as_deref()));
        let handle = match opened.take_if(|(with, _)| *with == counter) {
            Some((_, handle)) => handle,
            None => open(&host, engine, counter)?,
        };
        if let Some((_, other)) = opened.replace((counter, handle.clone()))
            && let Err(reason) = other.dispose("released")
        {
            outcome = Outcome::Findings;
            note(format_args!("{engine}: {reason}"));
        }
        let folder = if all { folders.name(&session.id) } else { String::new() };
        match play(args, &host, (engine, &handle), session, counter, &folder) {
            Ok(summary) if summary.fallbacks == 0 && handle.why().is_none() => {}
            Ok(_) => outcome = Outcome::Findings,
            // One session that cannot be played is no reason to leave out the others.
            Err(CliError::Runtime(error)) if all => {
                outcome = Outcome::Findings;
                note(format_args!("{}: {error}", session.id));
                if args.json {
                    json_line(&json!({
                        "session": session.id, "engine": engine, "budget": args.budget.0, "error": error.to_string(),
                    }))?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    if let Some((_, handle)) = opened
        && let Err(reason) = handle.dispose("shutdown")
    {
        outcome = Outcome::Findings;
        note(format_args!("{engine}: {reason}"));
    }
    Ok(outcome)
}

/// The id of the engine to use. What the configuration forbids is legacy's when the slot names it (contract §3.1), and a
/// mistake of the person's when they ask for it.
pub(crate) fn choose<'a>(host: &'a Host, asked: Option<&'a str>) -> Result<&'a str, CliError> {
    let slot = host.config.plugins.slots.context_engine.as_deref();
    let engine = asked.or(slot).unwrap_or(LEGACY).trim();
    if matches!(engine, "" | "none" | LEGACY) {
        return Ok(LEGACY);
    }
    match host.loader.policy().forbids(engine) {
        // An engine that does not exist is a mistake of the person who asks for it; in the slot, legacy answers for it.
        None if asked.is_some() => match host.loader.find(engine) {
            Err(error) if matches!(error.problem, Problem::NotFound { .. }) => Err(error.into()),
            _ => Ok(engine),
        },
        None => Ok(engine),
        // The person's own doing, but strict is for those who want to be told.
        Some(reason) if asked.is_none() && host.config.on_failure() == OnFailure::Legacy => {
            note(format_args!("the slot names {engine}, which is not used: {reason}; legacy answers"));
            Ok(LEGACY)
        }
        Some(reason) => Err(CliError::Forbidden { id: engine.to_owned(), reason }),
    }
}

/// The engine asked for. One that is broken is answered by legacy, with the reason.
fn open(host: &Host, engine: &str, counter: TokenCounter) -> Result<EngineHandle, CliError> {
    Ok(host.loader.engine(engine, &host.creation(engine, Some(counter)))?)
}

fn count(session: &mut RecordedSession, counter: &TokenCounter) {
    let bar = output::progress(0, "counting tokens");
    session.count_tokens(counter);
    bar.finish_and_clear();
}

/// Plays one session; prompts go into `folder` of the dump.
fn play(
    args: &ReplayArgs,
    host: &Host,
    (engine, handle): (&str, &EngineHandle),
    session: &mut RecordedSession,
    counter: TokenCounter,
    folder: &str,
) -> Result<ReplaySummary, CliError> {
    count(session, &counter);
    let session = &*session;
    let options = ReplayOptions {
        budget: args.budget.0,
        turns: args.turns,
        honor_compactions: args.honor_compactions,
        keep_recent: host.config.agents.defaults.compaction.keep_recent_tokens,
    };
    let replay = Replay::new(session, counter, options)?;
    let dump = args.dump.as_deref().map(|root| Dump::new(root.join(folder))).transpose()?;
    let bar = output::progress(replay.calls(), "replaying");
    let mut rows = Rows::default();
    let mut calls = Vec::new();
    if !args.json {
        line(format_args!("{}: {engine}, budget {} tokens", session.id, number(args.budget.0)))?;
        line(Rows::HEADER)?;
    }
    let summary = replay.run(handle, engine, |report: &CallReport, prompt: &Prompt| {
        if let Some(dump) = &dump {
            dump.write(report, prompt)?;
        }
        bar.inc(1);
        if args.json {
            calls.push(report.clone());
        } else if let Some(row) = rows.add(report) {
            bar.suspend(|| line(row))?;
        }
        Ok::<(), CliError>(())
    })?;
    bar.finish_and_clear();
    if args.json {
        let report = SessionReport {
            session: &session.id,
            engine,
            budget: args.budget.0,
            calls: &calls,
            summary: &summary,
            set_aside: handle.why(),
        };
        json_line(&report)?;
    } else {
        if let Some(row) = rows.finish() {
            line(row)?;
        }
        line(describe_summary(engine, &summary))?;
        if let Some(why) = handle.why() {
            let what = if summary.fallbacks > 0 { "legacy answered" } else { "it serves no more" };
            line(format_args!("{what}, because {why}"))?;
        }
    }
    Ok(summary)
}

/// The rows of the table: one per turn, printed when the turn is over. Counts are those of the turn's last call.
#[derive(Default)]
struct Rows {
    turn: usize,
    calls: usize,
    us: u64,
    compacted: usize,
    fitted: usize,
    /// Calls another engine answered, and why the first of them.
    fallbacks: usize,
    why: Option<String>,
    last: Option<CallReport>,
}

impl Rows {
    const HEADER: &'static str = " turn calls |  history messages    tokens |  sent messages   tokens | summarised not sent | engine          time";

    /// Takes a call; gives the row of the turn before when a new one starts.
    fn add(&mut self, report: &CallReport) -> Option<String> {
        let done = if report.turn == self.turn { None } else { self.finish() };
        self.turn = report.turn;
        self.calls += 1;
        self.us += report.assemble_us;
        self.compacted += usize::from(report.compacted);
        self.fitted += usize::from(report.fitted);
        if let Some(why) = &report.fallback {
            self.fallbacks += 1;
            self.why.get_or_insert_with(|| why.clone());
        }
        self.last = Some(report.clone());
        done
    }

    fn finish(&mut self) -> Option<String> {
        let last = self.last.take()?;
        let of_calls = |count: usize| if self.calls == 1 { String::new() } else { format!(" ({count} calls)") };
        let mut remarks = Vec::new();
        if self.compacted > 0 {
            remarks.push("compacted".to_owned());
        }
        if self.fitted > 0 {
            remarks.push(format!("fitted by the host{}", of_calls(self.fitted)));
        }
        if let Some(why) = &self.why {
            remarks.push(format!("answered by legacy{}: {why}", of_calls(self.fallbacks)));
        }
        let row = format!(
            "{:>5} {:>5} | {:>17} {:>9} | {:>14} {:>8} | {:>10} {:>8} | {:<14} {:>6}  {}",
            last.turn,
            self.calls,
            number(last.history_messages as u64),
            number(last.history_tokens),
            number(last.sent_messages as u64),
            number(last.sent_tokens),
            number(last.summarised as u64),
            number(last.left_out as u64),
            last.served_by,
            duration(self.us),
            remarks.join("; "),
        );
        *self = Rows { turn: self.turn, ..Rows::default() };
        Some(row.trim_end().to_owned())
    }
}

fn describe_summary(engine: &str, summary: &ReplaySummary) -> String {
    let mut text = format!(
        "{engine}: {} turns, {} calls; sent {} tokens in all, {} at the median, {} at most; {} compactions; \
         engine time {} at the median, {} at most",
        number(summary.turns as u64),
        number(summary.calls as u64),
        number(summary.sent_tokens),
        number(summary.sent_tokens_p50),
        number(summary.sent_tokens_max),
        number(summary.compactions as u64),
        duration(summary.assemble_us_p50),
        duration(summary.assemble_us_max),
    );
    for (count, what) in [(summary.fallbacks, "calls answered by another engine"), (summary.fitted, "prompts fitted")] {
        if count > 0 {
            text.push_str(&format!("; {} {what}", number(count as u64)));
        }
    }
    for (kind, count) in &summary.skipped {
        text.push_str(&format!("; {count} {kind} entries not played"));
    }
    text
}

pub(crate) fn describe(file: &Path, warning: &ImportWarning) -> String {
    format!("{}: {warning}", file.display())
}

/// Where prompts are written.
struct Dump {
    folder: PathBuf,
}

impl Dump {
    /// Makes the folder, and removes prompts an earlier replay left in it: they would pass for this one's.
    fn new(folder: PathBuf) -> Result<Dump, CliError> {
        let clear = || {
            fs::create_dir_all(&folder)?;
            let is_earlier = |entry: &fs::DirEntry| is_prompt(&entry.file_name().to_string_lossy());
            let earlier: Vec<fs::DirEntry> = fs::read_dir(&folder)?.flatten().filter(is_earlier).collect();
            // Only what this command wrote may go: `2024-01.json` is somebody's report.
            if let Some(other) = earlier.iter().find(|entry| !holds_prompt(&entry.path())) {
                let reason = format!("{:?} is named like a prompt and is none; name another folder", other.file_name());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
            }
            earlier.iter().try_for_each(|entry| fs::remove_file(entry.path()))
        };
        match clear() {
            Ok(()) => Ok(Dump { folder }),
            Err(source) => Err(CliError::File { path: folder, doing: "preparing the folder for prompts", source }),
        }
    }

    fn write(&self, report: &CallReport, prompt: &Prompt) -> Result<(), CliError> {
        let path = self.folder.join(format!("{}-{}.json", report.turn, report.call));
        let json = serde_json::to_vec(&prompt.to_json())?;
        fs::write(&path, json).map_err(|source| CliError::File { path, doing: "writing a prompt", source })
    }
}

/// Whether a file begins as [`Dump::write`] begins one.
fn holds_prompt(path: &Path) -> bool {
    let start = br#"{"system":"#;
    let mut head = vec![0; start.len()];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == start
}

/// Whether a file name is `<turn>-<call>.json`.
fn is_prompt(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".json").and_then(|stem| stem.split_once('-')).is_some_and(|(a, b)| number(a) && number(b))
}

/// Gives each session of a file a folder of its own.
#[derive(Default)]
struct Folders {
    taken: HashSet<String>,
}

impl Folders {
    /// The session's id as a folder name; with a number behind it when another session has that name.
    fn name(&mut self, id: &str) -> String {
        let plain = file_name(id);
        let numbered = (2..).map(|n| format!("{plain}-{n}"));
        let free =
            std::iter::once(plain.clone()).chain(numbered).find(|name| !self.taken.contains(&name.to_lowercase()));
        let name = free.unwrap_or(plain);
        self.taken.insert(name.to_lowercase());
        name
    }
}

/// A session id as a file name.
pub(crate) fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = id.chars().map(safe).take(120).collect();
    if name.trim_matches('.').is_empty() { "session".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prompts_of_an_earlier_replay_are_removed() {
        assert!(is_prompt("12-3.json"));
        for name in ["12-3.jsonl", "notes.json", "a-1.json", "1-.json", "12.json", "1-2-3.json"] {
            assert!(!is_prompt(name), "{name}");
        }
    }

    #[test]
    fn sessions_with_one_name_have_two_folders() {
        let mut folders = Folders::default();
        let names = ["a/1", "a_1", "A_1", "b", "a/1"].map(|id| folders.name(id));
        assert_eq!(names, ["a_1", "a_1-2", "A_1-3", "b", "a_1-4"]);
    }

    #[test]
    fn a_session_id_cannot_leave_its_folder() {
        assert_eq!(file_name("../../etc/passwd"), ".._.._etc_passwd");
        assert_eq!(file_name(".."), "session");
        assert_eq!(file_name("task 7/1"), "task_7_1");
    }
}
