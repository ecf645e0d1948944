//! One entry of a session as one line: what it is, when it was written, what it costs, how it begins.

use context_engine_interface::{BlockKind, MessageFlags, Role};
use context_engine_transcript::store::one_line;
use context_engine_transcript::{Entry, EntryPayload, Message};
use serde_json::{Map, Value, json};

use super::facts::short;
use crate::output::{minute, number, utc};

/// Characters of an entry's text that are shown, and that `--json` holds.
const SHOWN: usize = 56;
const TOLD: usize = 200;
/// Characters of a kind that are shown.
const KIND: usize = 14;
/// Deepest indentation of a branch.
const DEEPEST: usize = 8;

/// Where an entry stands in what is shown.
pub(super) struct Place {
    /// Counted from 1.
    pub(super) number: usize,
    /// How many forks lie between it and the active branch.
    pub(super) depth: usize,
    pub(super) active: bool,
}

/// The role of a message, else the entry's kind.
pub(super) fn label(entry: &Entry) -> String {
    entry.message().map_or_else(|| entry.kind().to_owned(), |message| message.role_name())
}

/// What it costs in a prompt, in tokens; `None` for what no prompt holds.
pub(super) fn tokens(entry: &Entry) -> Option<u64> {
    entry.message().or_else(|| entry.summary()).map(|message| message.tokens)
}

pub(super) fn time(entry: &Entry) -> Option<i64> {
    let said = entry.message().map(|message| message.timestamp_ms);
    [Some(entry.timestamp.ms()), said].into_iter().flatten().find(|&ms| ms != 0)
}

/// The line; `mark` says whether active entries are marked, which is of use only beside others.
pub(super) fn line(entry: &Entry, place: &Place, ids: usize, mark: bool) -> String {
    let marked = if !mark { "" } else { if place.active { "* " } else { "  " } };
    let mut kind: String = label(entry);
    if kind.chars().count() > KIND {
        kind = kind.chars().take(KIND - 1).chain(['…']).collect();
    }
    let indent = "  ".repeat(place.depth.min(DEEPEST));
    let tokens = tokens(entry).map_or_else(|| "-".to_owned(), number);
    format!(
        "{marked}{:>5}  {indent}{:<ids$}  {kind:<KIND$}  {:<16}  {tokens:>7}  {}",
        place.number,
        short(&entry.id, ids),
        minute(time(entry)),
        text(entry, SHOWN)
    )
    .trim_end()
    .to_owned()
}

pub(super) fn json(entry: &Entry, place: &Place) -> Value {
    json!({
        "number": place.number,
        "id": entry.id,
        "parentId": entry.parent_id,
        "kind": entry.kind(),
        "role": entry.message().map(|message| message.role_name()),
        "time": time(entry).and_then(|ms| u64::try_from(ms).ok()).map(utc),
        "tokens": tokens(entry),
        "active": place.active,
        "text": text(entry, TOLD),
    })
}

/// How the entry begins, on one line.
fn text(entry: &Entry, longest: usize) -> String {
    let told = match &entry.payload {
        EntryPayload::Message(message)
        | EntryPayload::CustomMessage(message)
        | EntryPayload::BranchSummary(message) => said(message, longest),
        EntryPayload::Compaction { summary, .. } => summary.clone(),
        EntryPayload::Reset { .. } => member(entry, "reason"),
        EntryPayload::Leaf { target_id } => match target_id {
            Some(id) => format!("on to {id}"),
            None => "to the beginning".to_owned(),
        },
        EntryPayload::Other { kind } => match kind.as_str() {
            "model_change" => [member(entry, "provider"), member(entry, "modelId")].join(" ").trim().to_owned(),
            "thinking_level_change" => member(entry, "thinkingLevel"),
            "label" => format!("{} -> {}", member(entry, "label"), member(entry, "targetId")),
            "session_info" => member(entry, "name"),
            "custom" => member(entry, "customType"),
            _ => String::new(),
        },
        _ => String::new(),
    };
    one_line(&told, longest)
}

fn member(entry: &Entry, key: &str) -> String {
    let members: Map<String, Value> = serde_json::from_str(&entry.raw).unwrap_or_default();
    members.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a message says, and the calls it makes.
fn said(message: &Message, longest: usize) -> String {
    let fields = || message.to_map().unwrap_or_default();
    let field = |key: &str| fields().get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut parts: Vec<String> = Vec::new();
    if message.flags.contains(MessageFlags::TOOL_ERROR) {
        parts.push("error:".to_owned());
    }
    match message.role {
        Role::BASH_EXECUTION => parts.push(format!("$ {}", field("command"))),
        Role::BRANCH_SUMMARY | Role::COMPACTION_SUMMARY => parts.push(field("summary")),
        _ => {}
    }
    for block in &message.blocks {
        parts.push(match block.kind {
            BlockKind::TEXT => block.text.clone(),
            BlockKind::TOOL_CALL => format!("-> {} {}", block.name, one_line(&block.text, longest)),
            BlockKind::IMAGE => format!("[image {}]", block.name),
            BlockKind::THINKING => "[thinking]".to_owned(),
            _ => "[other]".to_owned(),
        });
    }
    if message.flags.contains(MessageFlags::ERRORED) {
        parts.push(format!("failed: {}", field("errorMessage")));
    } else if message.flags.contains(MessageFlags::ABORTED) {
        parts.push("[interrupted]".to_owned());
    }
    if message.flags.contains(MessageFlags::EXCLUDED) {
        parts.push("[kept out of the context]".to_owned());
    }
    parts.join(" ")
}
