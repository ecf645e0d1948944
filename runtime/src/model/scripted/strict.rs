//! What a strict provider refuses in a prompt.

use std::collections::HashSet;

use context_engine_interface::{BlockKind, Role};
use context_engine_transcript::Message;

use crate::model::ModelRequest;

/// What is wrong with the prompt; `None` when nothing is. Messages are counted from 0.
pub(super) fn complaint(request: &ModelRequest) -> Option<String> {
    let messages = &request.messages;
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Some("the prompt has no messages".to_owned());
    };
    if first.role != Role::USER {
        return Some(format!("message 0 is {}; the first one has to be the user's", name(first)));
    }
    let mut open: Vec<&str> = Vec::new();
    let mut before = None;
    for (at, message) in messages.iter().enumerate() {
        let wrong = match message.role {
            Role::TOOL_RESULT => answer(&mut open, message),
            Role::USER | Role::ASSISTANT if !open.is_empty() => {
                Some(format!("is {} where the result of call {} is due", name(message), open.join(", ")))
            }
            Role::USER | Role::ASSISTANT if before == Some(message.role) => {
                Some(format!("is {}, as the one before it", name(message)))
            }
            Role::USER | Role::ASSISTANT if !says_something(message) => Some("has nothing to read".to_owned()),
            Role::USER => None,
            Role::ASSISTANT => call(&mut open, message),
            _ => Some(format!("is {}, which no model knows", name(message))),
        };
        if let Some(wrong) = wrong {
            return Some(format!("message {at} ({}) {wrong}", message.id));
        }
        before = Some(message.role);
    }
    if !open.is_empty() {
        return Some(format!("the prompt ends where the result of call {} is due", open.join(", ")));
    }
    (last.role == Role::ASSISTANT).then(|| "the prompt ends in a reply: there is nothing to answer".to_owned())
}

/// Takes the call that the result answers from the open ones.
fn answer(open: &mut Vec<&str>, result: &Message) -> Option<String> {
    match open.iter().position(|id| *id == result.tool_call_id) {
        Some(at) => {
            open.remove(at);
            None
        }
        None => Some(format!("is the result of call {:?}, which is not open", result.tool_call_id)),
    }
}

/// Opens the calls of a reply.
fn call<'a>(open: &mut Vec<&'a str>, reply: &'a Message) -> Option<String> {
    let mut seen = HashSet::new();
    for block in reply.tool_calls() {
        if block.id.is_empty() || !seen.insert(block.id.as_str()) {
            return Some(format!("calls {:?} with the id {:?}, which is empty or taken", block.name, block.id));
        }
        if !block.text.starts_with('{') {
            return Some(format!("calls {:?} with {:?} for arguments, which is no object", block.name, block.text));
        }
        open.push(&block.id);
    }
    None
}

fn says_something(message: &Message) -> bool {
    message.blocks.iter().any(|block| match block.kind {
        BlockKind::TEXT | BlockKind::THINKING => !block.text.trim().is_empty(),
        _ => true,
    })
}

fn name(message: &Message) -> String {
    match message.role {
        Role::USER => "the user's".to_owned(),
        Role::ASSISTANT => "a reply".to_owned(),
        Role::TOOL_RESULT => "a result".to_owned(),
        _ => format!("a {:?} message", message.role_name()),
    }
}
