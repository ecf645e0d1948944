//! What `assemble` answers: a plan over the history it was given, not copies of it.
//!
//! Decision: the host turns the plan into the prompt and checks it before it believes it, so an engine can neither lose a
//! kept message's bytes nor invent one silently, and nothing is serialised on the way back.

use abi_stable::StableAbi;
use abi_stable::std_types::{ROption, RString, RVec};

use super::views::Role;

/// What a [`Segment`] does. Open: a host refuses a plan with a kind it does not know.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentKind(pub u32);

impl SegmentKind {
    /// Messages `start .. start + len` as they are.
    pub const KEEP: SegmentKind = SegmentKind(1);
    /// Message `start` in another form (shortened, merged with its neighbours, one block changed).
    pub const REPLACE: SegmentKind = SegmentKind(2);
    /// A message that is not in the history: a summary, recalled text.
    pub const INSERT: SegmentKind = SegmentKind(3);
}

/// One step of the plan. Frozen; made by the methods of [`Assembly`].
#[repr(C)]
#[derive(StableAbi, Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// What the step does; decides which fields below mean something.
    pub kind: SegmentKind,
    /// `KEEP`, `REPLACE`: index of the first message.
    pub start: u32,
    /// `KEEP`: how many messages.
    pub len: u32,
    /// `REPLACE`, `INSERT`: the message as one JSON object in OpenClaw's shape.
    pub message_json: RString,
    /// `REPLACE`, `INSERT`: ids of the messages it was made from.
    pub source_ids: RVec<RString>,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

/// Which token estimate the host's overflow check believes. Open.
#[repr(transparent)]
#[derive(StableAbi, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PromptAuthority(pub u32);

impl PromptAuthority {
    /// The assembled prompt's. The default.
    pub const ASSEMBLED: PromptAuthority = PromptAuthority(0);
    /// The larger of the assembled prompt's and the unassembled history's.
    pub const PREASSEMBLY_MAY_OVERFLOW: PromptAuthority = PromptAuthority(1);
}

/// How a host with threads of its own on the backend projects the prompt. Frozen.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, PartialEq, Eq)]
pub struct ContextProjection {
    /// `true`: `thread_bootstrap`, once per epoch. `false`: `per_turn`.
    pub thread_bootstrap: bool,
    /// The epoch; a new one makes the host project again.
    pub epoch: ROption<RString>,
    /// What the projection was made of.
    pub fingerprint: ROption<RString>,
}

/// The plan for one prompt. Frozen.
///
/// `KEEP` and `REPLACE` indices ascend and never overlap. A plan that breaks this, or inserts JSON that is no message,
/// is refused whole and the call is answered by `legacy`.
#[repr(C)]
#[derive(StableAbi, Debug, Clone)]
pub struct Assembly {
    /// The steps, oldest message first.
    pub segments: RVec<Segment>,
    /// What the engine thinks the messages cost. The host counts for itself.
    pub estimated_tokens: u64,
    /// Text for the system prompt; counts against the budget.
    pub system_prompt_addition: ROption<RString>,
    /// Which estimate the overflow check believes.
    pub prompt_authority: PromptAuthority,
    /// For hosts with backend threads; none = per turn.
    pub context_projection: ROption<ContextProjection>,
    /// A JSON object for growth; empty for none.
    pub extra_json: RString,
}

impl Default for Assembly {
    fn default() -> Assembly {
        Assembly {
            segments: RVec::new(),
            estimated_tokens: 0,
            system_prompt_addition: ROption::RNone,
            prompt_authority: PromptAuthority::ASSEMBLED,
            context_projection: ROption::RNone,
            extra_json: RString::new(),
        }
    }
}

impl Assembly {
    /// A plan without steps.
    pub fn new() -> Assembly {
        Assembly::default()
    }

    /// Keeps `range` as it is. An empty range adds nothing; a range that follows the last one extends it.
    pub fn keep(&mut self, range: std::ops::Range<usize>) -> &mut Assembly {
        let (start, len) = (range.start as u32, range.len() as u32);
        match self.segments.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.kind == SegmentKind::KEEP && last.start + last.len == start => last.len += len,
            _ => self.segments.push(Segment {
                kind: SegmentKind::KEEP,
                start,
                len,
                message_json: RString::new(),
                source_ids: RVec::new(),
                extra_json: RString::new(),
            }),
        }
        self
    }

    /// Sends `message_json` in the place of message `index`.
    pub fn replace(&mut self, index: usize, message_json: impl Into<String>, source_ids: Vec<String>) -> &mut Assembly {
        self.push(SegmentKind::REPLACE, index as u32, message_json.into(), source_ids)
    }

    /// Sends a message that is not in the history.
    pub fn insert(&mut self, message_json: impl Into<String>, source_ids: Vec<String>) -> &mut Assembly {
        self.push(SegmentKind::INSERT, 0, message_json.into(), source_ids)
    }

    fn push(&mut self, kind: SegmentKind, start: u32, message_json: String, source_ids: Vec<String>) -> &mut Assembly {
        self.segments.push(Segment {
            kind,
            start,
            len: u32::from(kind == SegmentKind::REPLACE),
            message_json: message_json.into(),
            source_ids: source_ids.into_iter().map(RString::from).collect(),
            extra_json: RString::new(),
        });
        self
    }
}

/// The JSON of a message with one text block, for [`Assembly::insert`].
pub fn text_message(role: Role, text: &str) -> String {
    let role = role.name().unwrap_or("user");
    serde_json::json!({ "role": role, "content": [{ "type": "text", "text": text }] }).to_string()
}
