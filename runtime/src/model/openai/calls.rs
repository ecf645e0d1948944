//! Tool calls, put together from their pieces.
//!
//! Decision: which call a piece belongs to is told by all it brings. Servers leave out the index, the id or both, give
//! several calls one index, repeat the name with each piece, send arguments as an object, or send a call in one piece.
//!
//! Decision: a call without an id gets one that no other call of any session has: a result finds its call by the id alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use context_engine_transcript::content::{RAW_ARGUMENTS, is_shallow};
use serde_json::{Map, Value, json};

/// A call that is coming in.
#[derive(Debug, Default)]
pub(super) struct Call {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    arguments: String,
}

/// A piece of a call: `{index?, id?, function: {name?, arguments?}}`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Option<&'a Value>,
}

impl<'a> Piece<'a> {
    pub(super) fn of(part: &'a Value) -> Piece<'a> {
        let function = part.get("function").unwrap_or(part);
        let text = |of: &'a Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default();
        Piece {
            index: part.get("index").and_then(Value::as_u64),
            id: text(part, "id"),
            name: text(function, "name"),
            arguments: function.get("arguments").filter(|arguments| !arguments.is_null()),
        }
    }

    /// Whether it says anything. Some servers send an empty one at the end.
    pub(super) fn is_empty(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_none_or(|arguments| arguments == "")
    }

    /// Whether it goes on with `call`; `last` when no call came after that one.
    pub(super) fn continues(&self, call: &Call, last: bool) -> bool {
        let other_id = !self.id.is_empty() && !call.id.is_empty() && self.id != call.id;
        if other_id || (self.index.is_some() && self.index != call.index) {
            return false;
        }
        if self.index.is_some() || !self.id.is_empty() {
            let same = self.index.is_some() || self.id == call.id;
            return same && !self.starts_after(call);
        }
        last && !self.starts_after(call)
    }

    /// Whether it is the start of a call, `call` being whole.
    fn starts_after(&self, call: &Call) -> bool {
        let whole = || !call.name.is_empty() && object(&call.arguments).is_some();
        let renamed = !call.name.is_empty() && !self.name.is_empty() && self.name != call.name;
        let anew = match self.arguments {
            Some(Value::String(text)) => text.trim_start().starts_with('{'),
            Some(_) => true,
            None => false,
        };
        // Without arguments so far, another name is another call unless this is one of the same index.
        !self.name.is_empty() && ((anew && whole()) || (renamed && self.index.is_none() && self.id.is_empty()))
    }
}

impl Call {
    pub(super) fn add(&mut self, piece: Piece<'_>) {
        self.index = self.index.or(piece.index);
        if self.id.is_empty() {
            piece.id.clone_into(&mut self.id);
        }
        if self.name.is_empty() {
            piece.name.clone_into(&mut self.name);
        } else if self.arguments.is_empty() && piece.name != self.name {
            self.name.push_str(piece.name);
        }
        match piece.arguments {
            Some(Value::String(text)) => self.arguments.push_str(text),
            Some(other) => self.arguments.push_str(&other.to_string()),
            None => {}
        }
    }

    /// Whether nothing of it is missing, as far as can be told.
    pub(super) fn is_whole(&self) -> bool {
        !self.name.is_empty() && object(&self.arguments).is_some()
    }

    /// The block of it. Arguments that are no object are kept as text, under the name the transcript has for that.
    pub(super) fn block(&self, id: &str, name: &str) -> Value {
        let arguments = match self.arguments.trim() {
            "" => Map::new(),
            text => object(text).unwrap_or_else(|| Map::from_iter([(RAW_ARGUMENTS.to_owned(), text.into())])),
        };
        json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments })
    }
}

/// An object, or one that was written as a text once too often.
fn object(text: &str) -> Option<Map<String, Value>> {
    let value: Value = match serde_json::from_str(text).ok()? {
        Value::String(inner) => serde_json::from_str(&inner).ok()?,
        value => value,
    };
    match Some(value).filter(is_shallow)? {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// An id that no other call has.
pub(super) fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("call_{:x}_{:x}", since.as_micros(), NEXT.fetch_add(1, Ordering::Relaxed))
}
