//! What the agent did: files it touched, things it changed, attempts that failed.
//!
//! Decision: kinds of tools are told by their names and files by the usual argument names, because no host says which
//! tool writes. A tool whose name says nothing counts as one that changes something: forgetting a booking is worse than
//! listing a look-up.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use context_engine_interface::{BlockKind, BlockView, MessageFlags, MessageView};
use serde_json::value::RawValue;

use super::identifiers::{AGENT, Identifiers};
use super::sections::{Items, Section};
use super::text::{flat, floor, shorten};

/// Argument values longer than this are content, not parameters.
const MAX_ARGUMENT: usize = 2_000;
/// Characters of a failure's message (contract §7.7: entries of 240).
const FAILURE_CHARS: usize = 240;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Looks something up.
    Look,
    /// Writes a file.
    Write,
    /// Runs a command.
    Run,
    /// Changes something else.
    Change,
}

#[derive(Debug)]
struct Call {
    kind: Kind,
    path: String,
    /// The call in one line.
    label: String,
    /// What the same attempt would be called again.
    key: String,
}

/// Calls under way and what became of them.
#[derive(Debug, Default)]
pub(super) struct Actions {
    open: HashMap<String, Call>,
    failures: Vec<(String, String)>,
    tally: BTreeMap<String, usize>,
}

impl Actions {
    /// Notes a call.
    pub(super) fn call(&mut self, block: &BlockView<'_>, identifiers: &mut Identifiers) {
        let name = block.name.as_str();
        *self.tally.entry(name.to_owned()).or_default() += 1;
        let arguments: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(block.text.as_str()).unwrap_or_default();
        let mut shown: Vec<String> = Vec::new();
        let mut path = String::new();
        let mut command = String::new();
        for (argument, raw) in &arguments {
            if raw.get().len() > MAX_ARGUMENT {
                continue;
            }
            let value = match serde_json::from_str::<Cow<'_, str>>(raw.get()) {
                Ok(text) => text,
                Err(_) => Cow::Borrowed(raw.get()),
            };
            identifiers.read(&value, AGENT);
            match argument.as_ref() {
                "path" | "file_path" | "filePath" | "file" | "filename" | "notebook_path" | "target_file"
                    if path.is_empty() =>
                {
                    path = value.to_string();
                }
                "command" | "cmd" | "script" if command.is_empty() => command = value.to_string(),
                _ => {}
            }
            let short = shorten(&value, 120);
            shown.push(format!("{argument}={}", if short.is_empty() && !value.is_empty() { "…" } else { &short }));
        }
        let kind = kind(name, &command);
        let label = match kind {
            Kind::Run => format!("{name}: {}", shorten(&command, 160)),
            Kind::Write | Kind::Look if !path.is_empty() => format!("{name} {path}"),
            _ => format!("{name}({})", shorten(&shown.join(", "), 200)),
        };
        let key = if kind == Kind::Run { format!("{name} {}", flat(&command)) } else { label.clone() };
        self.open.insert(block.id.to_string(), Call { kind, path, label, key });
    }

    /// Notes a result.
    pub(super) fn result(&mut self, result: &MessageView<'_>, items: &mut Items) {
        let Some(call) = self.open.remove(result.tool_call_id.as_str()) else { return };
        let texts = || result.blocks.iter().filter(|b| b.kind == BlockKind::TEXT).map(|b| b.text.as_str());
        if result.flags.contains(MessageFlags::TOOL_ERROR) {
            let message = texts().next().map(failure_line).unwrap_or_default();
            self.failures.retain(|(key, _)| *key != call.key);
            self.failures.push((call.key, shorten(&format!("{} failed: {message}", call.label), FAILURE_CHARS)));
            return;
        }
        // What failed and then went well is no failure any more.
        self.failures.retain(|(key, _)| *key != call.key);
        match call.kind {
            Kind::Write if !call.path.is_empty() => items.push(Section::Modified, call.path),
            Kind::Look if !call.path.is_empty() => items.push(Section::Read, call.path),
            Kind::Look => {}
            Kind::Run => items.push(Section::Actions, call.label),
            Kind::Write | Kind::Change => {
                let outcome = texts().next().map(|text| shorten(&text[..floor(text, 2_000)], 140)).unwrap_or_default();
                let arrow = if outcome.is_empty() { "" } else { " → " };
                items.push(Section::Actions, format!("{}{arrow}{outcome}", call.label));
            }
        }
    }

    /// The calls since it was last asked, as `3 read, 1 edit`; empty for none.
    pub(super) fn take_tally(&mut self) -> String {
        let tally = std::mem::take(&mut self.tally);
        let counts: Vec<String> = tally.iter().map(|(name, n)| format!("{n} {name}")).collect();
        counts.join(", ")
    }

    /// Moves the failures nobody made good into the items.
    pub(super) fn finish(self, items: &mut Items) {
        for (_, failure) in self.failures {
            items.push(Section::Failures, failure);
        }
    }
}

fn kind(name: &str, command: &str) -> Kind {
    const WRITES: [&str; 9] =
        ["write", "edit", "patch", "replace", "insert", "create_file", "str_replace", "notebook", "append"];
    const LOOKS: [&str; 22] = [
        "read",
        "get",
        "list",
        "ls",
        "search",
        "find",
        "grep",
        "glob",
        "view",
        "fetch",
        "think",
        "calculate",
        "show",
        "look",
        "query",
        "open",
        "browse",
        "cat",
        "describe",
        "check",
        "inspect",
        "todo",
    ];
    let lower = name.to_ascii_lowercase();
    let words = || lower.split(|c: char| !c.is_ascii_alphanumeric());
    match () {
        () if !command.is_empty() => {
            if only_looks(command) {
                Kind::Look
            } else {
                Kind::Run
            }
        }
        () if WRITES.iter().any(|w| lower.contains(w)) => Kind::Write,
        () if words().any(|word| LOOKS.iter().any(|look| word.starts_with(look))) => Kind::Look,
        () => Kind::Change,
    }
}

/// Whether a shell command reads and changes nothing, by the first words of its parts.
fn only_looks(command: &str) -> bool {
    const LOOKS: [&str; 24] = [
        "cd", "grep", "rg", "cat", "head", "tail", "ls", "find", "wc", "date", "echo", "pwd", "which", "tree", "jq",
        "sort", "uniq", "awk", "cut", "file", "stat", "du", "ps", "true",
    ];
    const GIT_LOOKS: [&str; 6] = ["status", "log", "diff", "show", "branch", "blame"];
    // What stands in quotes is a pattern or a text, and may hold any sign.
    let mut quote: Option<char> = None;
    let bare: String = command
        .chars()
        .filter(|c| {
            match quote {
                Some(open) if *c == open => quote = None,
                None if matches!(c, '"' | '\'') => quote = Some(*c),
                _ => return quote.is_none(),
            }
            false
        })
        .collect();
    let writes = bare.contains('>') && !bare.contains("2>");
    let mut parts = bare.split(['|', ';', '&', '\n']).map(str::trim).filter(|part| !part.is_empty());
    !writes
        && parts.all(|part| {
            let mut words = part.split_whitespace();
            match (words.next(), words.next()) {
                (Some("git"), Some(verb)) => GIT_LOOKS.contains(&verb),
                (Some("sed"), Some(option)) => option == "-n",
                (Some("1"), None) => true,
                (Some(word), _) => LOOKS.contains(&word),
                (None, _) => true,
            }
        })
}

/// The line of an output that says what went wrong: the last one with an error word near the end, else the first.
fn failure_line(text: &str) -> String {
    const WORDS: [&str; 8] = ["error", "fail", "panic", "denied", "not found", "exception", "cannot", "invalid"];
    let tail = &text[floor(text, text.len().saturating_sub(6_000))..];
    let lines =
        || tail.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric) && *line != "(no output)");
    let telling = |line: &&str| {
        let lower = line.get(..floor(line, 400)).unwrap_or(line).to_ascii_lowercase();
        WORDS.iter().any(|word| lower.contains(word))
    };
    let line = lines().find(telling).or_else(|| lines().next()).unwrap_or("");
    shorten(line, FAILURE_CHARS)
}
