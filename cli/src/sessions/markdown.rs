//! A session as Markdown, to be read by people.
//!
//! Decision: what was said stays Markdown, because most of it is; what would break out of its place does not: a fence left
//! open is closed, and tags, of which recorded prompts are full and which a page would swallow, are shown as they are.
//! Long results are folded, because nobody reads them first.

use std::collections::HashMap;
use std::fmt::Write;

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::store::one_line;
use context_engine_transcript::{Entry, EntryPayload, Message, RecordedSession};
use serde_json::{Map, Value};

use super::rows;
use crate::output::{count, minute};

/// A result of more lines or bytes is folded.
const FOLDED_LINES: usize = 20;
const FOLDED_BYTES: usize = 2_000;
/// Characters of a title.
const TITLE: usize = 100;

pub(super) fn of(session: &RecordedSession) -> String {
    let mut out = String::new();
    let branch = session.active_branch();
    let first = branch.iter().filter_map(|entry| entry.message()).find(|message| message.role == Role::USER);
    let title = first.map(|message| one_line(&message.text(), TITLE)).filter(|title| !title.is_empty());
    add(&mut out, &format!("# {}", without_tags(&title.unwrap_or_else(|| session.id.clone()))));
    add(&mut out, &facts(session, &branch));
    if let Some(system) = &session.system {
        fold(&mut out, "System prompt", system);
    }
    let mut telling = Telling { out, speaker: String::new(), calls: 0, numbers: HashMap::new() };
    branch.into_iter().for_each(|entry| telling.tell(entry));
    telling.out
}

struct Telling {
    out: String,
    /// Whose part of the text it is.
    speaker: String,
    /// Calls so far, and the number of each by its id: results of parallel calls come in any order.
    calls: u64,
    numbers: HashMap<String, u64>,
}

fn facts(session: &RecordedSession, branch: &[&Entry]) -> String {
    let times = || branch.iter().filter_map(|entry| rows::time(entry));
    let messages = branch.iter().filter(|entry| entry.message().is_some()).count();
    let mut facts = vec![format!("- session: `{}`", session.id)];
    facts.extend(session.model.as_ref().map(|model| format!("- model: `{model}`")));
    facts.extend(session.cwd.as_ref().map(|cwd| format!("- folder: `{cwd}`")));
    facts.push(format!("- time: {} to {} (UTC)", minute(times().min()), minute(times().max())));
    facts.push(format!("- {} on the active branch", count(messages as u64, "message")));
    facts.join("\n")
}

/// A paragraph of its own.
fn add(out: &mut String, paragraph: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(paragraph);
    out.push('\n');
}

impl Telling {
    fn tell(&mut self, entry: &Entry) {
        let out = &mut self.out;
        let at = minute(rows::time(entry));
        match &entry.payload {
            EntryPayload::Message(message) | EntryPayload::CustomMessage(message) => {
                // A reply, its calls and their results are one part of the text.
                let who = match message.role {
                    Role::USER => "User".to_owned(),
                    Role::ASSISTANT | Role::TOOL_RESULT => "Assistant".to_owned(),
                    Role::BASH_EXECUTION => "Command".to_owned(),
                    _ => format!("Extension ({})", message.role_name()),
                };
                if self.speaker != who || message.role == Role::USER {
                    add(out, &format!("## {who}\n\n*{at}*"));
                    self.speaker = who;
                }
                self.say(message);
            }
            EntryPayload::BranchSummary(message) => {
                let summary = message.to_map().and_then(|map| Some(map.get("summary")?.as_str()?.to_owned()));
                add(out, &format!("---\n\n*{at}: the conversation came back from another branch*"));
                fold(out, "Summary of that branch", &summary.unwrap_or_default());
                self.speaker.clear();
            }
            EntryPayload::Compaction { summary, .. } => {
                add(out, &format!("---\n\n*{at}: the conversation so far was compacted*"));
                fold(out, "Summary", summary);
                self.speaker.clear();
            }
            EntryPayload::Reset { .. } => {
                add(out, &format!("---\n\n*{at}: the conversation was started anew*"));
                self.speaker.clear();
            }
            EntryPayload::Other { kind } if kind == "model_change" => {
                let raw: Map<String, Value> = serde_json::from_str(&entry.raw).unwrap_or_default();
                let model = raw.get("modelId").and_then(Value::as_str).unwrap_or("another model");
                add(out, &format!("*{at}: on with `{model}`*"));
            }
            _ => {}
        }
    }

    fn say(&mut self, message: &Message) {
        let out = &mut self.out;
        let mut results: Vec<&str> = Vec::new();
        if message.role == Role::BASH_EXECUTION {
            return command(out, message);
        }
        for block in &message.blocks {
            match block.kind {
                BlockKind::TEXT if message.role == Role::TOOL_RESULT => results.push(&block.text),
                BlockKind::TEXT if block.text.trim().is_empty() => {}
                BlockKind::TEXT => add(out, &prose(&block.text)),
                BlockKind::THINKING if block.text.trim().is_empty() => {}
                BlockKind::THINKING => fold(out, "Thinking", &block.text),
                BlockKind::TOOL_CALL => {
                    let json =
                        serde_json::from_str::<Value>(&block.text).and_then(|json| serde_json::to_string_pretty(&json));
                    let arguments = json.unwrap_or_else(|_| block.text.clone());
                    self.calls += 1;
                    self.numbers.insert(block.id.clone(), self.calls);
                    add(out, &format!("**Call {}** of `{}`", self.calls, block.name));
                    add(out, &fenced(&arguments, "json"));
                }
                BlockKind::IMAGE => {
                    add(out, &format!("*[image, {}]*", if block.name.is_empty() { "linked" } else { &block.name }))
                }
                _ => add(out, &fenced(message.raw(block), "json")),
            }
        }
        if message.role == Role::TOOL_RESULT {
            let failed = if message.flags.contains(MessageFlags::TOOL_ERROR) { ", which failed" } else { "" };
            let call = self.numbers.get(&message.tool_call_id);
            let call = call.map_or_else(|| "a call that is not here".to_owned(), |number| format!("call {number}"));
            let name = if message.tool_name.is_empty() { String::new() } else { format!(" ({})", message.tool_name) };
            result(out, &format!("Result of {call}{name}{failed}"), &results.join("\n"));
        }
        if message.flags.contains(MessageFlags::ERRORED) {
            let why = message.to_map().and_then(|map| Some(map.get("errorMessage")?.as_str()?.to_owned()));
            add(out, &format!("*The reply failed: {}*", without_tags(&one_line(&why.unwrap_or_default(), TITLE))));
        } else if message.flags.contains(MessageFlags::ABORTED) {
            add(out, "*The reply was interrupted.*");
        }
    }
}

fn command(out: &mut String, message: &Message) {
    let map = message.to_map().unwrap_or_default();
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    add(out, &fenced(text("command"), "sh"));
    result(out, "Output", text("output"));
}

/// What a tool gave back, folded where it is long.
fn result(out: &mut String, what: &str, text: &str) {
    if text.trim().is_empty() {
        add(out, &format!("**{}:** nothing", without_tags(what)));
    } else if text.lines().count() > FOLDED_LINES || text.len() > FOLDED_BYTES {
        fold(out, what, text);
    } else {
        add(out, &format!("**{}:**", without_tags(what)));
        add(out, &fenced(text, ""));
    }
}

fn fold(out: &mut String, what: &str, text: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let lines = count(text.lines().count() as u64, "line");
    add(out, &format!("<details><summary>{what} ({lines})</summary>\n\n{}\n\n</details>", fenced(text, "")));
}

/// Between fences longer than any in the text.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// What was said, with its fences closed and its tags shown.
fn prose(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut open: Option<&str> = None;
    for line in text.trim_matches('\n').lines() {
        let start = line.trim_start();
        let marks = &start[..start.len() - start.trim_start_matches(['`', '~']).len()];
        let is_fence = marks.len() >= 3 && (marks.bytes().all(|b| b == b'`') || marks.bytes().all(|b| b == b'~'));
        match open {
            Some(fence) if is_fence && marks.starts_with(fence) && start.trim_end() == marks => open = None,
            None if is_fence => open = Some(marks),
            _ => {}
        }
        let as_it_is = open.is_some() || is_fence;
        let _ = writeln!(out, "{}", if as_it_is { line.to_owned() } else { without_tags(line) });
    }
    out.extend(open.into_iter().flat_map(|fence| [fence, "\n"]));
    out.trim_end_matches('\n').to_owned()
}

/// The line with a backslash before each tag outside of code.
fn without_tags(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['`', '<']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let ticks = from.len() - from.trim_start_matches('`').len();
        if ticks > 0 {
            // A run of backticks is code up to the next run of the same length; without one it is only that.
            let (fence, after) = from.split_at(ticks);
            let code = closing(after, ticks).unwrap_or(0);
            out.push_str(fence);
            out.push_str(&after[..code]);
            rest = &after[code..];
        } else {
            let is_tag = from[1..].starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'));
            out.push_str(if is_tag { "\\<" } else { "<" });
            rest = &from[1..];
        }
    }
    out + rest
}

/// The end of the next run of exactly so many backticks.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(start) = text.get(at..)?.find('`').map(|i| at + i) {
        let run = text.len() - start - text[start..].trim_start_matches('`').len();
        at = start + run;
        if run == ticks {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_shown_and_code_stays_as_it_is() {
        for (text, shown) in [
            ("a <b> c", r"a \<b> c"),
            ("1 < 2 <= 3", "1 < 2 <= 3"),
            ("`<b>` <i> ``a ` <c>`` </c>", r"`<b>` \<i> ``a ` <c>`` \</c>"),
            ("one ` <b>", r"one ` \<b>"),
            ("<!-- x -->", r"\<!-- x -->"),
            ("é<漢>", "é<漢>"),
        ] {
            assert_eq!(without_tags(text), shown);
        }
    }

    #[test]
    fn a_fence_that_was_left_open_does_not_swallow_the_rest() {
        assert_eq!(prose("a\n```rust\nlet <T> = 1;"), "a\n```rust\nlet <T> = 1;\n```");
        assert_eq!(prose("```\nx\n```\n<b>"), "```\nx\n```\n\\<b>");
        assert_eq!(prose("````\n```\n````\n"), "````\n```\n````");
        assert_eq!(fenced("a ```` b\n", ""), "`````\na ```` b\n`````");
    }
}
