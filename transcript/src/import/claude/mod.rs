//! Claude Code's project files: one JSON record per line, a tree by `uuid` and `parentUuid`; also its stream output.
//!
//! Decision: one API reply is one message, however many lines it was written in, and the conversation is what a reader
//! of the screen would call it. So a compaction (a boundary without a parent) does not end it, parallel results do not
//! branch it, and the conversations of sub-agents ("sidechains") are not part of it. What only tells how the screen
//! looked (`progress`, …) can be most of the file; it is counted, and only its links are kept.

mod record;

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use self::record::{Boundary, add};
use super::draft::Draft;
use super::lines::{self, Accept, Damage};
use super::shape::member;
use super::unique::UniqueNames;
use crate::RecordedSession;

/// Kinds of records that say nothing and may be very large.
const SCREEN: [&str; 3] = ["progress", "file-history-snapshot", "queue-operation"];
/// Members that are kept of those.
const LINKS: [&str; 8] =
    ["type", "uuid", "parentUuid", "sessionId", "isSidechain", "agentId", "session_id", "parent_tool_use_id"];

/// Whether a line shows that the file is of this format.
pub(super) fn recognises(json: &Value) -> bool {
    let Value::Object(map) = json else { return false };
    let has = |keys: &[&str]| keys.iter().all(|key| map.contains_key(*key));
    match member(map, "type") {
        Some("user" | "assistant") => {
            let message = map.get("message");
            message.and_then(|m| m.get("role").or(m.get("content"))).is_some()
        }
        Some("summary") => has(&["summary", "leafUuid"]),
        Some("file-history-snapshot") => has(&["messageId"]),
        Some("queue-operation") => has(&["operation"]),
        Some("system") => has(&["subtype"]) && ["uuid", "session_id"].iter().any(|key| map.contains_key(*key)),
        Some(_) => has(&["uuid", "parentUuid"]),
        None => false,
    }
}

/// Stricter than [`recognises`]: records of sub-agents stand inside `progress` records.
pub(super) fn is_part(json: &Value) -> bool {
    recognises(json) && ["parentUuid", "sessionId", "session_id", "leafUuid"].iter().any(|key| json.get(key).is_some())
}

/// One line, and which conversation it belongs to.
struct Line {
    position: u64,
    map: Map<String, Value>,
    conversation: usize,
}

/// The conversations of the file. `sidechains`: those of sub-agents too, behind the others.
pub(super) fn import(name_id: &str, bytes: &[u8], sidechains: bool) -> (Vec<RecordedSession>, Damage) {
    let mut lines = Vec::new();
    let accept = Accept { line: |json| json.get("type").is_some_and(Value::is_string), part: is_part };
    let damage = lines::read(bytes, &accept, |record| {
        if let Value::Object(mut map) = record.json {
            if member(&map, "type").is_some_and(|kind| SCREEN.contains(&kind)) {
                map.retain(|key, _| LINKS.contains(&key.as_str()));
            }
            lines.push(Line { position: record.position, map, conversation: 0 });
        }
        ControlFlow::Continue(())
    });
    let conversations = Conversations::sort(&mut lines);
    let sessions = conversations.read(name_id, lines, sidechains);
    (sessions, damage)
}

fn is_sidechain(map: &Map<String, Value>) -> bool {
    map.get("isSidechain") == Some(&Value::Bool(true)) || member(map, "parent_tool_use_id").is_some()
}

fn is_said(map: &Map<String, Value>) -> bool {
    matches!(member(map, "type"), Some("user" | "assistant"))
}

/// Whether a record without a parent goes on with what came before.
fn is_boundary(map: &Map<String, Value>) -> bool {
    map.contains_key("logicalParentUuid")
        || member(map, "subtype").is_some_and(|kind| kind.ends_with("compact_boundary"))
        || map.get("isCompactSummary") == Some(&Value::Bool(true))
}

fn session_id(map: &Map<String, Value>) -> Option<&str> {
    member(map, "sessionId").or_else(|| member(map, "session_id"))
}

/// What is known of each conversation of a file.
#[derive(Default)]
struct Conversations(Vec<Conversation>);

#[derive(Default)]
struct Conversation {
    /// The session's id; of a sidechain, that of the session it belongs to.
    session: Option<String>,
    /// For a sidechain: the conversation it was started in.
    side_of: Option<usize>,
    agent: Option<String>,
    /// Whether any record names a parent that is there: only then does it mean something when one names none.
    linked: bool,
}

impl Conversations {
    /// Tells the conversations apart. A session id that was not seen before starts another only where nothing is linked
    /// to: a session that is resumed may get a new one. A file of nothing but a sidechain (a sub-agent's own) is read
    /// as if it were none.
    fn sort(lines: &mut [Line]) -> Conversations {
        let only_side = lines.iter().filter(|line| is_said(&line.map)).all(|line| is_sidechain(&line.map));
        let mut all = Conversations::default();
        let mut by_session: HashMap<String, usize> = HashMap::new();
        let mut by_uuid: HashMap<String, usize> = HashMap::new();
        let mut by_agent: HashMap<(usize, String), usize> = HashMap::new();
        let mut main = 0;
        for line in lines {
            let map = &line.map;
            let parent = member(map, "parentUuid");
            let above = parent.and_then(|parent| by_uuid.get(parent).copied());
            let of_parent = above.map(|above| all.main_of(above));
            main = match session_id(map) {
                None => of_parent.unwrap_or(main),
                Some(id) => match by_session.get(id).copied() {
                    Some(known) => known,
                    None => {
                        let free = all.0.first().is_none_or(|first| first.session.is_none()).then_some(0);
                        let goes_on = (parent.is_some() || is_boundary(map)).then_some(main);
                        let conversation = of_parent.or(free).or(goes_on).unwrap_or(all.0.len());
                        by_session.insert(id.to_owned(), conversation);
                        conversation
                    }
                },
            };
            let found = all.at(main);
            if let Some(id) = session_id(map) {
                found.session = Some(id.to_owned());
            }
            let mut conversation = main;
            if is_sidechain(map) && !only_side {
                let of_side = above.filter(|&above| all.at(above).side_of.is_some());
                let agent = member(map, "agentId").or_else(|| member(map, "parent_tool_use_id"));
                let next = all.0.len();
                conversation = match agent {
                    Some(agent) => *by_agent.entry((main, agent.to_owned())).or_insert(next),
                    None => of_side.unwrap_or(next),
                };
                let session = session_id(map).map(str::to_owned);
                let side = all.at(conversation);
                side.side_of = Some(main);
                side.session = side.session.take().or(session);
                side.agent = agent.map(str::to_owned);
            }
            all.at(conversation).linked |= above.is_some();
            if let Some(uuid) = member(map, "uuid") {
                by_uuid.insert(uuid.to_owned(), conversation);
            }
            line.conversation = conversation;
        }
        all
    }

    fn at(&mut self, index: usize) -> &mut Conversation {
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Conversation::default);
        }
        &mut self.0[index]
    }

    fn main_of(&self, index: usize) -> usize {
        self.0.get(index).and_then(|conversation| conversation.side_of).unwrap_or(index)
    }

    fn read(&self, name_id: &str, lines: Vec<Line>, sidechains: bool) -> Vec<RecordedSession> {
        let mut ids = UniqueNames::default();
        let mut drafts: Vec<Draft> = Vec::new();
        for conversation in &self.0 {
            let session = conversation.session.as_deref().unwrap_or(name_id);
            let wanted = match (conversation.side_of, &conversation.agent) {
                (None, _) => session.to_owned(),
                (Some(_), Some(agent)) => format!("{session}-agent-{agent}"),
                (Some(_), None) => format!("{session}-sidechain"),
            };
            // A sidechain that is left out needs no name.
            let named = conversation.side_of.is_none() || sidechains;
            let mut draft = Draft::new(if named { ids.claim(&wanted) } else { wanted });
            if let (Some(_), meta) = (conversation.side_of, &mut draft.builder.session.meta) {
                meta.insert("sidechainOf".to_owned(), session.into());
                meta.extend(conversation.agent.as_ref().map(|agent| ("agentId".to_owned(), agent.as_str().into())));
            }
            drafts.push(draft);
        }
        if drafts.is_empty() {
            drafts.push(Draft::new(name_id.to_owned()));
        }
        let mut boundaries: Vec<Boundary> = drafts.iter().map(|_| Boundary::default()).collect();
        for line in lines {
            let main = self.main_of(line.conversation);
            if main != line.conversation && !sidechains {
                if let Some(draft) = drafts.get_mut(main) {
                    draft.builder.session.counts.skip("sidechain");
                }
                continue;
            }
            let linked = self.0.get(line.conversation).is_some_and(|conversation| conversation.linked);
            let found = (drafts.get_mut(line.conversation), boundaries.get_mut(line.conversation));
            if let (Some(draft), Some(boundary)) = found {
                add(draft, boundary, line.position, line.map, linked);
            }
        }
        let side = |index: usize| self.main_of(index) != index;
        let numbered = drafts.into_iter().enumerate();
        let (of_sides, mains): (Vec<_>, Vec<_>) = numbered.partition(|(index, _)| side(*index));
        let kept = of_sides.into_iter().filter(|_| sidechains);
        mains.into_iter().chain(kept).map(|(_, draft)| draft.finish()).collect()
    }
}

#[cfg(test)]
mod tests;
