//! What each block of a message is sent as, by the role it stands under.
//!
//! | block | in an assistant's message | in any other |
//! |---|---|---|
//! | text, picture | as it is; blank text left out | the same |
//! | thinking | as it is | left out: it is nobody's speech |
//! | tool call | with an object for arguments | the text of its JSON: nothing answers it there |
//! | any other | the text of its JSON | the text of its JSON |
//!
//! Decision: done to the history by `sanitize`, so that engines see, count and shorten what is sent, and again by
//! `render`, because an engine may put anything into a prompt.

use context_engine_interface::{BlockKind, Role};
use context_engine_transcript::content::{is_shallow, retold};
use context_engine_transcript::{Block, Message};
use serde_json::{Map, Value};

use super::parts::Part;

/// The block as it is sent under `role`; `None` when it is left out.
pub(super) fn part<'a>(role: Role, message: &'a Message, block: &'a Block) -> Option<Part<'a>> {
    // A provider refuses a request over one blank text.
    let blank = block.kind == BlockKind::TEXT && block.text.trim().is_empty();
    if blank || is_misplaced_thinking(role, block) {
        return None;
    }
    let part = Part::of(message, block);
    if let Some(text) = retold(role, block.kind, message.raw(block)) {
        return Some(Part::text(&text).unwrap_or(part));
    }
    if block.kind == BlockKind::TOOL_CALL && needs_arguments(block) {
        return Some(part.to_map().and_then(mend_call).and_then(Part::changed).unwrap_or(part));
    }
    Some(part)
}

/// Thinking in a message that is no assistant's.
pub(super) fn is_misplaced_thinking(role: Role, block: &Block) -> bool {
    block.kind == BlockKind::THINKING && role != Role::ASSISTANT
}

/// Arguments that are missing, `null`, or anything else that is no object.
pub(super) fn needs_arguments(block: &Block) -> bool {
    !block.text.starts_with('{')
}

/// The call with an object for arguments and without scratch fields; `None` when it was in order.
pub(super) fn mend_call(mut call: Map<String, Value>) -> Option<Map<String, Value>> {
    let had_partial = call.remove("partialJson").is_some();
    if call.get("arguments").is_some_and(Value::is_object) {
        return had_partial.then_some(call);
    }
    let given = call.remove("arguments").filter(|given| !given.is_null()).or_else(|| call.remove("input"));
    let arguments = match given {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(Value::String(text)) => match serde_json::from_str::<Value>(&text).ok().filter(is_shallow) {
            Some(Value::Object(map)) => map,
            _ if text.trim().is_empty() => Map::new(),
            _ => Map::from_iter([("input".to_owned(), Value::String(text))]),
        },
        Some(other) => Map::from_iter([("input".to_owned(), other)]),
    };
    call.insert("arguments".into(), Value::Object(arguments));
    Some(call)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use context_engine_transcript::TokenCounter;

    use super::*;
    use crate::notation::{normal, parse, print};
    use crate::pipeline::{PipelineOptions, PipelineReport, render, run};

    #[test]
    fn a_call_in_a_message_that_is_no_assistants_was_sent_without_a_result() {
        let call = r#"{"type":"toolCall","id":"z","name":"f","arguments":{}}"#;
        let history = parse(&format!(
            r#"U "q" {call} [thought]
           A <c1:read>
           R c1:read {call} [thought/S]
           A "x"
           C {call}
           C [thought]"#
        ));
        let (view, report) = run(history.clone(), &PipelineOptions::default());
        assert_eq!(
            (report.sanitize.retold_blocks, report.sanitize.misplaced_thinking, report.sanitize.emptied),
            (3, 3, 1)
        );
        assert_eq!(view[0].text(), format!("q\n{call}"));
        assert_eq!((view[2].text(), view[4].text()), (call.to_owned(), call.to_owned()));
        assert_eq!(run(view.clone(), &PipelineOptions::default()).1, PipelineReport::default());
        // What an engine puts into a prompt has not been through the pipeline.
        let told = |messages| print(&render(messages).0);
        assert_eq!(told(&history), told(&view));
    }

    #[test]
    fn blocks_no_model_knows_were_sent_as_they_are() {
        let data = "iVBORw0KGgoAAAAN".repeat(10);
        let history = parse(&format!(
            r#"U "q" {{"type":"tool_result","content":"seen"}} {{"type":"input_audio","data":"{data}"}}
           A {{"type":"refusal","refusal":"no"}} {{"type":"image_url","image_url":"https://host.example/a.png"}}"#
        ));
        for messages in [run(history.clone(), &PipelineOptions::default()).0, render(&history).0] {
            let left_out = r#"{"type":"input_audio","data":"[160 characters of data left out]"}"#;
            assert_eq!(messages[0].text(), format!("q\n{{\"type\":\"tool_result\",\"content\":\"seen\"}}\n{left_out}"));
            assert_eq!(messages[1].text(), r#"{"type":"refusal","refusal":"no"}"#);
            assert_eq!(
                messages[1].raw(&messages[1].blocks[1]),
                r#"{"type":"image","url":"https://host.example/a.png"}"#
            );
        }
    }

    #[test]
    fn a_retold_block_costs_what_was_counted_for_it() {
        let counter = TokenCounter::for_model(None);
        let history =
            parse(r#"U "q" {"type":"tool_result","content":"some words"} {"type":"toolCall","id":"z","name":"f"}"#);
        let counted: Vec<Arc<Message>> = history.iter().map(|m| Arc::new(counter.counted(Message::clone(m)))).collect();
        let (view, _) = run(counted.clone(), &PipelineOptions::default());
        assert_eq!((view[0].tokens, counter.message(&view[0])), (counted[0].tokens, counted[0].tokens));
    }

    #[test]
    fn blank_text_of_an_engine_is_not_sent() {
        let history = parse("U \"a\" \" \"\nA \"\"\nU \"b\"");
        assert_eq!(print(&render(&history).0), normal("U \"a\" \"b\""));
    }
}
