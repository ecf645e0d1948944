//! A session whose messages the source wrote apart: replies in several records, results of parallel calls as siblings.
//!
//! Decision: a draft takes the records as they come, joins what belongs to one reply, and sets the results of a reply
//! directly behind it, in the order they were recorded. Whatever hung on the reply or on one of its results then hangs
//! on the last of them. So no result of a parallel call stands on a branch of its own, and real branches stay.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::build::{self, Parent, SessionBuilder};
use super::shape;
use crate::entry::Timestamp;
use crate::{Entry, EntryPayload, RecordedSession};

/// Where a record stands.
pub(super) struct At {
    /// Records before it in the file.
    pub(super) position: u64,
    /// Its own id; one is made up when there is none.
    pub(super) id: Option<String>,
    pub(super) up: Up,
    pub(super) timestamp: Timestamp,
}

/// What a record follows.
#[derive(Clone)]
pub(super) enum Up {
    /// The one before in the file.
    Previous,
    /// Nothing: it starts a branch.
    Root,
    /// The record of this id; when that was lost, [`RecordedSession::active_branch`] bridges the gap.
    Source(String),
    /// The record of this id, else the one before in the file.
    SourceOrPrevious(String),
}

struct Node {
    at: At,
    payload: Payload,
    /// Members of the record beside its message.
    beside: Map<String, Value>,
    /// For a result: the reply with its call.
    batch: Option<usize>,
    /// Says nothing, or was said in the same record as results: what follows it may hang on a sibling.
    soft: bool,
}

enum Payload {
    Said(Map<String, Value>),
    Summary { text: String, tokens_before: Option<u64>, first_kept: Option<String> },
    Other { kind: String },
}

pub(super) struct Draft {
    pub(super) builder: SessionBuilder,
    nodes: Vec<Node>,
    /// What stands for a record of the source.
    known: HashMap<String, usize>,
    /// Where records lead that are not part of the session.
    dropped: HashMap<String, Up>,
    replies: HashMap<String, usize>,
    /// Name of each call, and the reply it is in.
    calls: HashMap<String, (String, usize)>,
}

impl Draft {
    pub(super) fn new(id: String) -> Draft {
        Draft {
            builder: SessionBuilder::new(id),
            nodes: Vec::new(),
            known: HashMap::new(),
            dropped: HashMap::new(),
            replies: HashMap::new(),
            calls: HashMap::new(),
        }
    }

    /// A reply of the model; joined with the earlier one of the same `key`.
    pub(super) fn reply(&mut self, at: At, key: Option<&str>, message: Map<String, Value>, beside: Map<String, Value>) {
        let earlier = key.and_then(|key| self.replies.get(key).copied());
        let node = match earlier {
            Some(node) => {
                self.builder.session.counts.skip("joined");
                if let Some(id) = at.id {
                    self.known.insert(id, node);
                }
                node
            }
            None => self.push(at, Payload::Said(Map::new()), beside, false),
        };
        if let Some(key) = key {
            self.replies.insert(key.to_owned(), node);
        }
        self.join(node, message);
    }

    /// Adds a message's blocks to the reply, and its other members; later ones win over earlier ones.
    fn join(&mut self, node: usize, message: Map<String, Value>) {
        let calls = message.get("content").and_then(Value::as_array).into_iter().flatten().filter_map(|block| {
            let text = |key: &str| block.get(key).and_then(Value::as_str);
            (text("type") == Some("toolCall")).then(|| Some((text("id")?.to_owned(), text("name")?.to_owned())))?
        });
        self.calls.extend(calls.map(|(id, name)| (id, (name, node))));
        let Some(Node { payload: Payload::Said(said), .. }) = self.nodes.get_mut(node) else { return };
        for (key, value) in message {
            match (said.get_mut(&key), value) {
                (Some(Value::Array(blocks)), Value::Array(more)) if key == "content" => blocks.extend(more),
                (Some(known), value) if !value.is_null() => *known = value,
                (Some(_), _) => {}
                (None, value) => {
                    said.insert(key, value);
                }
            }
        }
    }

    /// Members that became known after the reply was recorded; `false` when there is no reply of this key.
    pub(super) fn add_to_reply(&mut self, key: &str, members: Map<String, Value>) -> bool {
        let node = self.replies.get(key).copied();
        if let Some(node) = node {
            self.join(node, members);
        }
        node.is_some()
    }

    /// A tool's result. An empty `name` is taken from the call.
    pub(super) fn result(&mut self, at: At, mut message: Map<String, Value>, beside: Map<String, Value>) {
        let id = shape::member(&message, "toolCallId").unwrap_or_default();
        let call = self.calls.get(id).cloned();
        if let Some((name, _)) = &call
            && shape::member(&message, "toolName").is_none()
        {
            message.insert("toolName".to_owned(), name.as_str().into());
        }
        let node = self.push(at, Payload::Said(message), beside, false);
        if let (Some(node), Some((_, reply))) = (self.nodes.get_mut(node), call) {
            node.batch = Some(reply);
        }
    }

    /// Any other message. `soft`: it stood in one record with results.
    pub(super) fn say(&mut self, at: At, message: Map<String, Value>, beside: Map<String, Value>, soft: bool) {
        self.push(at, Payload::Said(message), beside, soft);
    }

    /// The next message comes from the same record as the one before.
    pub(super) fn split(&mut self) {
        self.builder.session.counts.split += 1;
    }

    /// What hangs on the record of this id hangs on what came last.
    pub(super) fn stand_for(&mut self, id: String) {
        if let Some(last) = self.nodes.len().checked_sub(1) {
            self.known.insert(id, last);
        }
    }

    /// A summary that stands for what came before it, the records from `first_kept` on apart.
    pub(super) fn summary(
        &mut self,
        at: At,
        text: String,
        tokens_before: Option<u64>,
        first_kept: Option<String>,
        record: Map<String, Value>,
    ) {
        self.push(at, Payload::Summary { text, tokens_before, first_kept }, record, false);
    }

    /// A record that is kept, but no message.
    pub(super) fn other(&mut self, at: At, kind: &str, record: Map<String, Value>) {
        self.push(at, Payload::Other { kind: kind.to_owned() }, record, true);
    }

    /// A record that is counted and not kept. What hangs on it hangs on what it follows.
    pub(super) fn drop(&mut self, kind: &str, id: Option<String>, up: Up) {
        self.builder.session.counts.skip(kind);
        // Thousands of them may hang on one another: each leads past all before it.
        let further = match &up {
            Up::Source(above) | Up::SourceOrPrevious(above) => self.dropped.get(above).cloned(),
            Up::Previous | Up::Root => None,
        };
        if let Some(id) = id {
            self.dropped.insert(id, further.unwrap_or(up));
        }
    }

    /// Whether a reply with this call came before.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    pub(super) fn has_reply(&self, key: &str) -> bool {
        self.replies.contains_key(key)
    }

    /// The id of the record that came after the one of this id.
    pub(super) fn id_behind(&self, id: &str) -> Option<String> {
        let index = *self.known.get(id)?;
        self.nodes.get(index + 1..)?.iter().find_map(|node| node.at.id.clone())
    }

    fn push(&mut self, at: At, payload: Payload, beside: Map<String, Value>, soft: bool) -> usize {
        let index = self.nodes.len();
        if let Some(id) = &at.id {
            self.known.insert(id.clone(), index);
        }
        self.nodes.push(Node { at, payload, beside, batch: None, soft });
        index
    }

    pub(super) fn finish(mut self) -> RecordedSession {
        let order = self.order();
        let parents = self.parents(&order);
        let mut ids = vec![String::new(); self.nodes.len()];
        for &index in &order {
            if let (Some(node), Some(id)) = (self.nodes.get(index), ids.get_mut(index)) {
                *id = self.builder.entry_id(node.at.id.clone(), node.at.position);
            }
        }
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        let id_of = |index: usize| ids.get(index).cloned();
        for (index, parent) in order.into_iter().zip(parents) {
            let (Some(node), Some(id)) = (nodes.get_mut(index).and_then(Option::take), id_of(index)) else { continue };
            let parent_id = match parent {
                Above::Nothing => None,
                Above::Node(parent) => id_of(parent),
                Above::Lost(id) => self.builder.parent_id(Parent::Recorded(id)),
            };
            let first_kept = |source: &str| self.known.get(source).and_then(|&kept| id_of(kept));
            let (payload, raw) = finished(&id, &node.at.timestamp, node.payload, node.beside, first_kept);
            let timestamp = node.at.timestamp;
            self.builder.push(node.at.position, Entry { id, parent_id, timestamp, payload, raw });
        }
        self.builder.finish()
    }

    /// The nodes as recorded, except that results stand directly behind the reply with their call.
    fn order(&self) -> Vec<usize> {
        let mut results: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(reply) = node.batch {
                results.entry(reply).or_default().push(index);
            }
        }
        let mut order = Vec::with_capacity(self.nodes.len());
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.batch.is_none()) {
            order.push(index);
            order.extend(results.remove(&index).unwrap_or_default());
        }
        order
    }

    /// What each node of `order` hangs on.
    fn parents(&self, order: &[usize]) -> Vec<Above> {
        // The reply a node belongs to, for replies with results, their results and what is soft behind them.
        let mut reply_of: Vec<Option<usize>> = self.nodes.iter().map(|node| node.batch).collect();
        for reply in self.nodes.iter().filter_map(|node| node.batch) {
            if let Some(of) = reply_of.get_mut(reply) {
                *of = Some(reply);
            }
        }
        // The last node of each such reply so far.
        let mut end: HashMap<usize, usize> = HashMap::new();
        let mut parents = Vec::with_capacity(order.len());
        let mut previous = Above::Nothing;
        let is_soft = |&&index: &&usize| self.nodes.get(index).is_some_and(|node| node.soft);
        let soft_at_end = order.iter().rev().take_while(is_soft).count();
        for (place, &index) in order.iter().enumerate() {
            let Some(node) = self.nodes.get(index) else { continue };
            let parent = match node.batch {
                Some(reply) => {
                    let parent = end.insert(reply, index).unwrap_or(reply);
                    Above::Node(parent)
                }
                // The tip is what comes last: a remark about something earlier must not move it.
                None if place + soft_at_end >= order.len() => previous.clone(),
                None => match self.above(index, &node.at.up, &previous) {
                    Above::Node(above) if above == index => previous.clone(),
                    Above::Node(above) => match reply_of.get(above).copied().flatten() {
                        Some(reply) => {
                            let last = end.get(&reply).copied().unwrap_or(reply);
                            if node.soft {
                                end.insert(reply, index);
                                if let Some(of) = reply_of.get_mut(index) {
                                    *of = Some(reply);
                                }
                            }
                            Above::Node(last)
                        }
                        None => Above::Node(above),
                    },
                    other => other,
                },
            };
            parents.push(parent);
            previous = Above::Node(index);
        }
        parents
    }

    fn above(&self, index: usize, up: &Up, previous: &Above) -> Above {
        let mut up = up;
        // Links between dropped records may run in a circle.
        for _ in 0..=self.dropped.len() {
            let (id, else_previous) = match up {
                Up::Previous => return previous.clone(),
                Up::Root => return Above::Nothing,
                Up::Source(id) => (id, false),
                Up::SourceOrPrevious(id) => (id, true),
            };
            match self.known.get(id) {
                // A second choice that comes later may well hang on this one.
                Some(&node) if else_previous && node > index => return previous.clone(),
                Some(&node) => return Above::Node(node),
                None => {}
            }
            match self.dropped.get(id) {
                Some(further) => up = further,
                None if else_previous => return previous.clone(),
                None => return Above::Lost(id.clone()),
            }
        }
        previous.clone()
    }
}

/// A node's place, found.
#[derive(Clone)]
enum Above {
    Nothing,
    Node(usize),
    /// The id of a record that is not in the file.
    Lost(String),
}

/// What an entry carries, and its JSON as [`Entry::raw`] wants it.
fn finished(
    id: &str,
    timestamp: &Timestamp,
    payload: Payload,
    mut beside: Map<String, Value>,
    first_kept: impl Fn(&str) -> Option<String>,
) -> (EntryPayload, String) {
    let no_message = || EntryPayload::Other { kind: "no message".to_owned() };
    match payload {
        Payload::Said(map) => {
            // The entry has members of these names of its own.
            beside.retain(|key, _| !matches!(key.as_str(), "type" | "id" | "parentId" | "timestamp" | "message"));
            let raw = if beside.is_empty() { String::new() } else { Value::Object(beside).to_string() };
            (build::message(id, timestamp, map).map_or_else(no_message, EntryPayload::Message), raw)
        }
        Payload::Summary { text, tokens_before, first_kept: kept } => {
            let mut map = shape::object([("role", "compactionSummary".into()), ("summary", text.as_str().into())]);
            if let Some(tokens) = tokens_before {
                map.insert("tokensBefore".to_owned(), tokens.into());
            }
            map.insert("timestamp".to_owned(), timestamp.ms().into());
            let payload = build::message(id, timestamp, map).map(|message| EntryPayload::Compaction {
                summary: text,
                first_kept_entry_id: kept.and_then(|kept| first_kept(&kept)),
                tokens_before,
                message,
            });
            (payload.unwrap_or_else(no_message), Value::Object(beside).to_string())
        }
        Payload::Other { kind } => (EntryPayload::Other { kind }, Value::Object(beside).to_string()),
    }
}
