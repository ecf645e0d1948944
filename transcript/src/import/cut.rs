//! A JSON document that ends in the middle, as far as it is whole.
//!
//! Decision: the document is closed behind the last whole element of the list it was cut in, when that list holds
//! messages by its name or is the document itself; the element that was cut is lost. Lists inside a message (content,
//! calls) are no place to cut: half a message would pass for a whole one.

/// Members whose lists hold messages, events, turns or dialogues.
const LISTS: [&str; 12] = [
    "messages",
    "history",
    "clientHistory",
    "contents",
    "traj",
    "trajectory",
    "conversations",
    "conversation",
    "dialogue",
    "chat",
    "events",
    "items",
];

/// An object or list that is open.
struct Open {
    closer: char,
    /// For a list that may be cut: where its last whole element ends.
    whole: Option<usize>,
    can_be_cut: bool,
}

/// The document without what is not whole; `None` when no element is.
pub(super) fn closed(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut key = "";
    let mut last_string = "";
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let start = at + 1;
                at = end_of_string(bytes, start)?.min(bytes.len());
                last_string = text.get(start..at).unwrap_or("");
            }
            b':' => key = last_string,
            b',' => key = "",
            b'{' => open.push(Open { closer: '}', whole: None, can_be_cut: false }),
            b'[' => {
                let inside = open.iter().all(|o| o.closer == '}' || o.can_be_cut);
                let can_be_cut = inside && (open.is_empty() || key.is_empty() || LISTS.contains(&key));
                open.push(Open { closer: ']', whole: None, can_be_cut });
                key = "";
            }
            b'}' | b']' => {
                open.pop()?;
                if let Some(list) = open.last_mut().filter(|o| o.can_be_cut) {
                    list.whole = Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    let depth = open.iter().rposition(|o| o.whole.is_some())?;
    let mut whole = text.get(..open.get(depth)?.whole?)?.to_owned();
    whole.extend(open.iter().take(depth + 1).rev().map(|o| o.closer));
    Some(whole)
}

/// Where the quote stands that ends a string; the end of the text when none does.
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') => return Some(at),
            Some(_) => at += 1,
            None => return Some(bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::closed;

    #[test]
    fn a_document_is_closed_behind_the_last_whole_message() {
        for (text, whole) in [
            (r#"[{"a":1},{"b":"x]"},{"c""#, Some(r#"[{"a":1},{"b":"x]"}]"#)),
            (
                r#"{"s":"t","messages":[{"c":[{"t":1}]},{"c":[{"t":2},"#,
                Some(r#"{"s":"t","messages":[{"c":[{"t":1}]}]}"#),
            ),
            (
                r#"[{"messages":[{"a":1}]},{"messages":[{"b":1},{"#,
                Some(r#"[{"messages":[{"a":1}]},{"messages":[{"b":1}]}]"#),
            ),
            (r#"{"messages":[{"a":1}],"info":{"x"#, None),
            (r#"{"messages":[{"a":"#, None),
            (r#"[{"a":"\"#, None),
            ("", None),
        ] {
            assert_eq!(closed(text).as_deref(), whole, "{text}");
        }
    }
}
