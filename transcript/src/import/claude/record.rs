//! One record of a Claude Code file into messages.

use serde_json::{Map, Value};

use crate::import::draft::{At, Draft, Up};
use crate::import::shape::{self, member, take_text};

/// What the last boundary says about the summary behind it.
#[derive(Default)]
pub(super) struct Boundary {
    tokens_before: Option<u64>,
    /// The first message that stayed beside the summary.
    first_kept: Option<String>,
}

impl Boundary {
    fn read(map: &Map<String, Value>) -> Option<Boundary> {
        let metadata = map.get("compactMetadata")?;
        let head = metadata.get("preservedSegment").and_then(|kept| kept.get("headUuid")).and_then(Value::as_str);
        let tokens_before = metadata.get("preTokens").and_then(Value::as_u64);
        Some(Boundary { tokens_before, first_kept: head.map(str::to_owned) })
    }
}

/// Adds a record. `linked`: records of this conversation name parents that are there.
pub(super) fn add(
    draft: &mut Draft,
    boundary: &mut Boundary,
    position: u64,
    mut map: Map<String, Value>,
    linked: bool,
) {
    describe(draft, &map);
    let kind = take_text(&mut map, "type").unwrap_or_default();
    let id = take_text(&mut map, "uuid");
    let timestamp = shape::timestamp(map.get("timestamp"));
    let up = up(&kind, &map, linked);
    map.shift_remove("parentUuid");
    let at = At { position, id: id.clone(), up, timestamp };
    if super::SCREEN.contains(&kind.as_str()) {
        return draft.drop(&kind, id, dropped(at.up));
    }
    let is_true = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let (is_meta, is_summary) = (is_true("isMeta"), is_true("isCompactSummary"));
    let hidden = is_true("isVisibleInTranscriptOnly");
    match kind.as_str() {
        "assistant" | "user" if !map.get("message").is_some_and(|m| m.get("content").is_some_and(has_content)) => {
            put_back(&mut map, &kind, id);
            draft.other(at, "no message", map);
        }
        "assistant" => assistant(draft, at, map),
        "user" if is_summary => {
            let text = summary_text(&map);
            let Boundary { tokens_before, first_kept } = std::mem::take(boundary);
            draft.summary(at, text, tokens_before, first_kept, map);
        }
        "user" if is_meta || hidden => {
            let kind = if is_meta { "meta" } else { "transcript-only" };
            user(draft, at, map, Some(kind));
        }
        "user" => user(draft, at, map, None),
        "attachment" if is_queued_prompt(&map) => {
            let prompt = map.get("attachment").and_then(|a| a.get("prompt")).cloned();
            draft.say(at, shape::user(shape::blocks(prompt)), map, false);
        }
        // `summary` and its like have no place in the tree.
        _ if id.is_none() => draft.drop(&kind, None, Up::Previous),
        _ => {
            *boundary = Boundary::read(&map).unwrap_or(std::mem::take(boundary));
            put_back(&mut map, &kind, id);
            draft.other(at, &kind, map);
        }
    }
}

/// What a record says about the session.
fn describe(draft: &mut Draft, map: &Map<String, Value>) {
    let session = &mut draft.builder.session;
    if session.cwd.is_none() {
        session.cwd = member(map, "cwd").map(str::to_owned);
    }
    for key in ["version", "gitBranch"] {
        if let (Some(text), false) = (member(map, key), session.meta.contains_key(key)) {
            session.meta.insert(key.to_owned(), text.into());
        }
    }
    let is_title = member(map, "type").is_some_and(|kind| kind == "summary" || kind.ends_with("-title"));
    if is_title && let Some(title) = ["summary", "customTitle", "aiTitle", "title"].iter().find_map(|k| member(map, k))
    {
        session.meta.insert("title".to_owned(), title.into());
    }
}

/// What a record follows. Only a person's prompt can start a branch of its own (the first one, edited); anything else
/// without a parent stands behind a boundary, whose `logicalParentUuid` is the better link where it is recorded.
fn up(kind: &str, map: &Map<String, Value>, linked: bool) -> Up {
    if let Some(parent) = member(map, "parentUuid") {
        return Up::Source(parent.to_owned());
    }
    if let Some(parent) = member(map, "logicalParentUuid") {
        return Up::SourceOrPrevious(parent.to_owned());
    }
    let is_true = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let content = map.get("message").and_then(|m| m.get("content"));
    let mut parts = content.and_then(Value::as_array).into_iter().flatten();
    let has_result = parts.any(|part| part.get("type").is_some_and(|kind| kind == "tool_result"));
    let is_prompt = kind == "user" && !has_result && !is_true("isMeta") && !is_true("isCompactSummary");
    if is_prompt && linked && map.get("parentUuid") == Some(&Value::Null) { Up::Root } else { Up::Previous }
}

/// Where what hangs on a dropped record belongs.
fn dropped(up: Up) -> Up {
    match up {
        Up::Root => Up::Previous,
        up => up,
    }
}

fn put_back(map: &mut Map<String, Value>, kind: &str, id: Option<String>) {
    map.insert("type".to_owned(), kind.into());
    map.extend(id.map(|id| ("uuid".to_owned(), id.into())));
}

fn has_content(content: &Value) -> bool {
    match content {
        Value::String(_) => true,
        Value::Array(parts) => !parts.is_empty(),
        _ => false,
    }
}

/// What a person typed while the model was at work; it was sent with the next results.
fn is_queued_prompt(map: &Map<String, Value>) -> bool {
    let Some(Value::Object(attachment)) = map.get("attachment") else { return false };
    member(attachment, "type") == Some("queued_command")
        && matches!(member(attachment, "commandMode"), None | Some("prompt"))
        && attachment.get("prompt").is_some_and(has_content)
}

fn summary_text(map: &Map<String, Value>) -> String {
    let content = map.get("message").and_then(|m| m.get("content"));
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text").unwrap_or(part).as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn assistant(draft: &mut Draft, at: At, mut beside: Map<String, Value>) {
    let Some(Value::Object(mut message)) = beside.shift_remove("message") else { return };
    let key = take_text(&mut message, "id");
    let content = message.shift_remove("content").map(blocks_of).unwrap_or_default();
    let text = content.iter().find_map(|block| block.get("text").and_then(Value::as_str)).map(str::to_owned);
    let mut made = shape::assistant(content);
    let model = take_text(&mut message, "model");
    // Claude Code writes its own remarks as replies of this model.
    if model.as_deref() == Some("<synthetic>") {
        made.insert("synthetic".to_owned(), true.into());
    } else {
        made.insert("api".to_owned(), "anthropic-messages".into());
        made.insert("provider".to_owned(), "anthropic".into());
        made.extend(model.map(|model| ("model".to_owned(), model.into())));
    }
    let names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    if let Some(usage) = message.get("usage").and_then(|usage| shape::usage(usage, names, false)) {
        made.insert("usage".to_owned(), usage);
    }
    let reason = member(&message, "stop_reason").map(|reason| match reason {
        "end_turn" | "stop_sequence" => "stop",
        "tool_use" => "toolUse",
        "max_tokens" => "length",
        other => other,
    });
    made.extend(reason.map(|reason| ("stopReason".to_owned(), reason.into())));
    if beside.get("isApiErrorMessage") == Some(&Value::Bool(true)) {
        made.insert("stopReason".to_owned(), "error".into());
        made.extend(text.map(|text| ("errorMessage".to_owned(), text.into())));
    }
    draft.reply(at, key.as_deref(), made, beside);
}

/// A user's record: first its tool results, each a message, then what is left. `kind`: why that is no message.
fn user(draft: &mut Draft, at: At, mut beside: Map<String, Value>, kind: Option<&str>) {
    let content = beside.get_mut("message").and_then(|m| m.get_mut("content")).map(Value::take);
    let (results, rest): (Vec<Value>, Vec<Value>) = match content {
        Some(Value::Array(parts)) => {
            parts.into_iter().partition(|part| part.get("type").is_some_and(|kind| kind == "tool_result"))
        }
        Some(other) => (Vec::new(), vec![other]),
        None => (Vec::new(), Vec::new()),
    };
    let message = beside.shift_remove("message");
    let record_id = at.id.clone();
    let mut parts = 0_u64;
    // The first part has the record's place, each further one is behind it.
    let mut next = |draft: &mut Draft| {
        parts += 1;
        if parts == 1 {
            return At { position: at.position, id: at.id.clone(), up: at.up.clone(), timestamp: at.timestamp.clone() };
        }
        draft.split();
        let id = at.id.as_ref().map(|id| format!("{id}-{parts}"));
        At { position: at.position, id, up: Up::Previous, timestamp: at.timestamp.clone() }
    };
    let follows_results = !results.is_empty();
    for result in results {
        let Value::Object(mut result) = result else { continue };
        let at = next(draft);
        let id = take_text(&mut result, "tool_use_id").unwrap_or_default();
        let is_error = result.get("is_error") == Some(&Value::Bool(true));
        let blocks = result.shift_remove("content").map(blocks_of).unwrap_or_default();
        draft.result(at, shape::result(&id, "", blocks, is_error), std::mem::take(&mut beside));
    }
    if !rest.is_empty() {
        let at = next(draft);
        remainder(draft, at, rest, beside, message, kind, follows_results);
    }
    if let Some(id) = record_id {
        draft.stand_for(id);
    }
}

/// What a user's record holds beside tool results.
fn remainder(
    draft: &mut Draft,
    at: At,
    rest: Vec<Value>,
    beside: Map<String, Value>,
    message: Option<Value>,
    kind: Option<&str>,
    follows_results: bool,
) {
    if let Some(kind) = kind {
        let mut record = beside;
        record.extend(message.map(|message| ("message".to_owned(), message)));
        if let Some(content) = record.get_mut("message").and_then(|m| m.get_mut("content")) {
            *content = rest.into();
        }
        put_back(&mut record, "user", at.id.clone());
        return draft.other(at, kind, record);
    }
    let blocks = rest.into_iter().flat_map(blocks_of).collect();
    draft.say(at, shape::user(blocks), beside, follows_results);
}

/// Anthropic's content as blocks.
fn blocks_of(content: Value) -> Vec<Value> {
    shape::blocks(Some(content)).into_iter().map(block).collect()
}

fn block(block: Value) -> Value {
    let Value::Object(mut map) = block else { return block };
    match member(&map, "type") {
        Some("thinking" | "redacted_thinking") => shape::thinking_part(map),
        Some("tool_use") => {
            let id = take_text(&mut map, "id").unwrap_or_default();
            let name = take_text(&mut map, "name").unwrap_or_default();
            let made = shape::call(&id, &name, map.shift_remove("input"));
            map.shift_remove("type");
            shape::with_rest(made, map)
        }
        _ => Value::Object(map),
    }
}
