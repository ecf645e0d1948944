//! From the view to what is sent: three roles, strict alternation, nothing private.
//!
//! Decision: a step of its own behind the engine, because engines see summaries and commands under their own roles and a
//! model never does. Source: contract §5.2, §4.1.11; public reports A8 and A9.

use std::sync::Arc;

use context_engine_interface::{MessageFlags, Role};
use context_engine_transcript::Message;
use serde::Serialize;
use serde_json::{Map, Value};

use super::parts::{self, Part};
use super::sent;
use super::validate::validate;

/// Text of the user message behind a history that ends in a reply: not every model takes a reply to continue.
pub const CONTINUE: &str = "[continue]";
/// Text of a tool result that holds nothing: providers refuse a message without content.
pub const NO_OUTPUT: &str = "(no output)";
/// Text of the user message before a history that starts with a reply (contract §4.1.11).
pub const BOOTSTRAP: &str = "(session bootstrap)";

/// What [`render`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RenderReport {
    /// Summaries, commands and other roles that became user messages.
    pub converted: usize,
    /// Messages whose private fields (usage, cost, provider, …) were left out.
    pub reduced: usize,
    /// Messages that went into the one before.
    pub merged: usize,
    /// Filler user messages added at the start or the end.
    pub fillers: usize,
}

/// Turns a history into the messages of a prompt.
///
/// Only the roles `user`, `assistant` and `toolResult` come out, each with no more than `role`, `toolCallId`, `toolName`,
/// `isError`, `timestamp` and `content`, and no blocks but those a model is sent (the table in `sent.rs`). Summaries are wrapped as contract §5.2 says, commands show what was run and
/// printed. Neighbours of one role are merged, blocks unchanged. What comes out starts with a user message, ends in a user message
/// or a tool result, and is never empty unless `messages` is; fillers are flagged as synthetic and belong in no file.
pub fn render(messages: &[Arc<Message>]) -> (Vec<Arc<Message>>, RenderReport) {
    let mut report = RenderReport::default();
    let plain = messages.iter().filter_map(|message| reduce(message, &mut report)).collect();
    let (mut out, merges) = validate(plain);
    report.merged = merges.merged_assistants + merges.merged_users + merges.repeated_users;
    if messages.is_empty() {
        return (out, report);
    }
    if out.first().is_some_and(|m| m.role == Role::ASSISTANT) {
        let filler = filler(BOOTSTRAP, &out[0].id, "before");
        report.fillers += filler.iter().len();
        out.splice(0..0, filler);
    }
    if out.last().is_none_or(|m| m.role == Role::ASSISTANT) {
        let last = out.last().or(messages.last()).map_or("", |m| m.id.as_str());
        let filler = filler(CONTINUE, last, "after");
        report.fillers += filler.iter().len();
        out.extend(filler);
    }
    (out, report)
}

/// The user text that stands for a compaction's summary (contract §5.2).
pub fn summary_text(summary: &str) -> String {
    let lead = "The conversation history before this point was compacted into the following summary:";
    format!("{lead}\n\n<summary>\n{summary}\n</summary>")
}

fn branch_text(summary: &str) -> String {
    let lead = "The following is a summary of a branch that this conversation came back from:";
    format!("{lead}\n\n<summary>\n{summary}\n</summary>")
}

fn reduce(message: &Arc<Message>, report: &mut RenderReport) -> Option<Arc<Message>> {
    let (role, mut kept) = match message.role {
        Role::USER | Role::ASSISTANT | Role::TOOL_RESULT => (message.role, sent_parts(message.role, message)),
        _ => {
            report.converted += 1;
            (Role::USER, told(message)?)
        }
    };
    if role == Role::TOOL_RESULT && kept.is_empty() {
        kept.extend(Part::text(NO_OUTPUT));
    }
    if kept.is_empty() {
        return None;
    }
    let mut fields = Map::new();
    fields.insert("role".into(), role.name()?.into());
    if role == Role::TOOL_RESULT {
        fields.insert("toolCallId".into(), message.tool_call_id.as_str().into());
        fields.insert("toolName".into(), message.tool_name.as_str().into());
        fields.insert("isError".into(), message.flags.contains(MessageFlags::TOOL_ERROR).into());
    }
    if message.timestamp_ms != 0 {
        fields.insert("timestamp".into(), message.timestamp_ms.into());
    }
    let mut plain = parts::build(&message.id, fields, &kept)?;
    if plain.json == message.json {
        return Some(message.clone());
    }
    plain.flags = message.flags;
    // A count is that of the message as it is sent (`transcript::tokens`).
    plain.tokens = message.tokens;
    report.reduced += usize::from(role == message.role);
    Some(Arc::new(plain))
}

fn sent_parts(role: Role, message: &Message) -> Vec<Part<'_>> {
    message.blocks.iter().filter_map(|block| sent::part(role, message, block)).collect()
}

/// What a message of another role tells the model; `None` when it tells nothing.
fn told(message: &Message) -> Option<Vec<Part<'_>>> {
    let fields = message.to_map().unwrap_or_default();
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or("");
    let summary = || if field("summary").is_empty() { message.text() } else { field("summary").to_owned() };
    let text = match message.role {
        Role::COMPACTION_SUMMARY => summary_text(&summary()),
        Role::BRANCH_SUMMARY => branch_text(&summary()),
        Role::BASH_EXECUTION => command_text(&fields),
        _ => {
            let kept = sent_parts(Role::USER, message);
            return (!kept.is_empty()).then_some(kept);
        }
    };
    Part::text(&text).map(|part| vec![part])
}

fn command_text(fields: &Map<String, Value>) -> String {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or("");
    let output = text("output");
    let mut told = format!("Ran `{}`\n", text("command"));
    if output.trim().is_empty() {
        told.push_str("(no output)");
    } else {
        let fence = fence_for(output);
        told.push_str(&format!("{fence}\n{}\n{fence}", output.trim_end_matches('\n')));
    }
    if fields.get("cancelled") == Some(&Value::Bool(true)) {
        told.push_str("\n\n(command cancelled)");
    } else if let Some(code) = fields.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0) {
        told.push_str(&format!("\n\nCommand exited with code {code}"));
    }
    if fields.get("truncated") == Some(&Value::Bool(true)) {
        told.push_str("\n\n[output truncated]");
    }
    told
}

/// A fence longer than any run of backticks in the text, so the text cannot close it.
fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

fn filler(text: &str, beside: &str, place: &str) -> Option<Arc<Message>> {
    let fields = Map::from_iter([("role".to_owned(), Value::from("user"))]);
    let mut message = parts::build(&format!("{beside}#{place}"), fields, &[Part::text(text)?])?;
    message.flags = MessageFlags::SYNTHETIC;
    Some(Arc::new(message))
}
