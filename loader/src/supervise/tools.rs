//! Tools of an engine's own, offered to the model and run for it (`tools/1`).
//!
//! Decision: what can go wrong in a tool is told to whom it concerns. The model is told that its call failed, and goes on;
//! the operator is told once what of a list cannot be offered. Only what no engine may do sets it aside: a panic, a hang.
//! A list or an answer is an engine's text, so it is bounded and checked before anything is made of it.

use std::collections::HashSet;
use std::sync::Arc;

use context_engine_interface::{BlockKind, EngineError, ErrorCode, Role, ToolCallParamsFields, ToolsListParamsFields};
use context_engine_transcript::content::{is_shallow, retold};
use context_engine_transcript::{Block, Message};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::{Answer, Call, EngineHandle, Supervised};
use crate::quarantine::Fault;
use crate::text::{cut, short};

/// The longest list of tools that is read, in bytes.
const MAX_LIST: usize = 1 << 20;
/// How many tools of one engine are offered: each stands in every prompt.
const MAX_TOOLS: usize = 64;
/// The longest tool, schema and description included, in bytes of JSON.
const MAX_TOOL: usize = 64 << 10;
/// The longest name of a tool (contract §4.1).
const MAX_NAME: usize = 64;
/// The longest answer of a tool that is read, in bytes: a few pictures.
const MAX_ANSWER: usize = 16 << 20;
/// How many blocks an answer may have.
const MAX_BLOCKS: usize = 256;
/// How many of the reasons why tools are left out are said.
const MAX_REASONS: usize = 8;

/// A tool an engine offers the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineTool {
    /// 1 to 64 letters, digits, `_` and `-`; no two of one engine differ in case alone. Whether a tool of the host's has
    /// the same one is for the host to look at.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments, an object.
    pub parameters: Value,
}

/// What a tool answered: the content of a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Content blocks in OpenClaw's shape, `text` and `image` only; at least one.
    pub content: Vec<Value>,
    /// Whether they say an error to the model.
    pub is_error: bool,
    /// The engine that was asked; `legacy`, which has no tools, when the one that has them was set aside.
    pub served_by: String,
    /// What went wrong, for people.
    pub why: Option<String>,
}

impl EngineHandle {
    /// The tools the engine offers in this session; none of `legacy`'s. What cannot be offered is left out, with one
    /// warning for the engine's life.
    pub fn tools(&self, call: &Call) -> Answer<Vec<EngineTool>> {
        let (engine, why) = self.current();
        if !engine.has_tools() {
            return self.answer(&engine, vec![], why);
        }
        let session_id = Arc::clone(&call.session_id);
        let listed = engine.call_instance("list_tools", call, move |instance, ctx, host_params| {
            let fields = ToolsListParamsFields { session_id: (&*session_id).into(), host_params };
            fields.lend(|params| instance.list_tools(ctx, params))
        });
        let failure = match listed {
            Ok(json) => {
                let (tools, left_out) = read_tools(&json);
                warn(&engine, &left_out);
                return self.answer(&engine, tools, why);
            }
            Err(failure) => failure,
        };
        if let Some(why) = self.set_aside_for(&engine, "list_tools", &failure) {
            return self.answer(&self.shared.legacy, vec![], Some(why));
        }
        if !matches!(failure, Failure::Unsupported(_) | Failure::Cancelled) {
            warn(&engine, &[failure.describe()]);
        }
        self.answer(&engine, vec![], why)
    }

    /// Runs the tool `name` for the model, with the arguments it gave: a JSON object, or nothing.
    ///
    /// Whatever goes wrong is an answer: the model is told, and the turn goes on. A host that stops instead when the engine
    /// is set aside finds out at the next prompt.
    pub fn call_tool(&self, call: &Call, tool_call_id: &str, name: &str, arguments_json: &str) -> ToolAnswer {
        let (engine, why) = self.current();
        let (id, legacy) = (engine.info.id.clone(), self.shared.legacy.info.id.clone());
        if !engine.has_tools() {
            return ToolAnswer::error(id, format!("There is no tool {:?}; go on without it.", cut(name)), why);
        }
        let arguments = if arguments_json.trim().is_empty() { "{}" } else { arguments_json };
        if let Err(error) = serde_json::from_str::<Map<String, Value>>(arguments) {
            let text = format!("The arguments of {:?} are no JSON object: {error}.", cut(name));
            return ToolAnswer::error(id, text, None);
        }
        let (session_id, given) = (Arc::clone(&call.session_id), [tool_call_id, name, arguments].map(str::to_owned));
        let answered = engine.call_instance("call_tool", call, move |instance, ctx, host_params| {
            let [tool_call_id, name, arguments_json] = given.each_ref().map(|text| text.as_str().into());
            let session_id = (&*session_id).into();
            let fields = ToolCallParamsFields { session_id, tool_call_id, name, arguments_json, host_params };
            // Of one tool: what the engine says of it is not said of the member.
            fields.lend(|params| instance.call_tool(ctx, params)).map_err(|error| match error.code {
                ErrorCode::UNSUPPORTED => EngineError { code: ErrorCode::FAILED, ..error },
                _ => error,
            })
        });
        let failed = |reason: &str| format!("The tool {:?} failed: {reason}", cut(name));
        let failure = match answered.map(|json| read_content(&json)) {
            Ok(Ok(content)) => return ToolAnswer { content, is_error: false, served_by: id, why: None },
            Ok(Err(reason)) => {
                tracing::warn!(engine = id, tool = short(name), reason, "a tool's answer cannot be used");
                return ToolAnswer::error(id, failed(&reason), Some(reason));
            }
            Err(failure) => failure,
        };
        if let Some(why) = self.set_aside_for(&engine, "call_tool", &failure) {
            let text = failed("its engine does not work. It is not available any more; go on without it.");
            return ToolAnswer::error(legacy, text, Some(why));
        }
        let reason = failure.describe();
        ToolAnswer::error(id, failed(&reason), Some(reason))
    }

    /// Sets the engine aside for what no engine may do in a tool; why, when it was. An error is one of the tool's.
    fn set_aside_for(&self, engine: &Arc<Supervised>, member: &'static str, failure: &Failure) -> Option<String> {
        match failure {
            Failure::Its(fault @ (Fault::Panic | Fault::Timeout), error) if engine.subject().is_some() => {
                Some(self.set_aside(engine, member, *fault, error))
            }
            _ => None,
        }
    }
}

impl ToolAnswer {
    fn error(served_by: String, text: String, why: Option<String>) -> ToolAnswer {
        ToolAnswer { content: vec![text_block(&text)], is_error: true, served_by, why }
    }
}

/// Says once for the engine's life what of its tools cannot be offered: the list is asked for at every turn.
fn warn(engine: &Supervised, left_out: &[String]) {
    if left_out.is_empty() {
        return;
    }
    let (id, reasons) = (&engine.info.id, left_out_of(left_out));
    if engine.is_first_tool_left_out() {
        tracing::warn!(engine = id, reasons, "tools of the engine are left out");
    } else {
        tracing::debug!(engine = id, reasons, "tools of the engine are left out");
    }
}

/// The reasons in one line.
pub(crate) fn left_out_of(reasons: &[String]) -> String {
    let said = reasons.iter().take(MAX_REASONS).map(|reason| short(reason)).collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(MAX_REASONS) {
        0 => said,
        more => format!("{said}; {more} more"),
    }
}

/// The tools of a list that can be offered, and why the others cannot.
pub(crate) fn read_tools(json: &str) -> (Vec<EngineTool>, Vec<String>) {
    if json.len() > MAX_LIST {
        return (vec![], vec![format!("the list has {} bytes, expected at most {MAX_LIST}", json.len())]);
    }
    let listed: Vec<Value> = match serde_json::from_str(json) {
        Ok(listed) => listed,
        Err(error) => return (vec![], vec![format!("the list is no JSON array: {error}")]),
    };
    let (mut tools, mut left_out, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    for (number, listed) in (1..).zip(listed) {
        match tool(listed) {
            Err(reason) => left_out.push(format!("tool {number}: {reason}")),
            Ok(tool) if tools.len() == MAX_TOOLS => {
                left_out.push(format!("{}: {MAX_TOOLS} are offered already", tool.name));
            }
            // A model's call is taken for a tool's whatever its case (contract §4.1).
            Ok(tool) if !names.insert(tool.name.to_ascii_lowercase()) => {
                left_out.push(format!("tool {number}: the name {:?} is taken by one before it", tool.name));
            }
            Ok(tool) => tools.push(tool),
        }
    }
    (tools, left_out)
}

fn tool(listed: Value) -> Result<EngineTool, String> {
    let Value::Object(mut listed) = listed else { return Err("it is no JSON object".to_owned()) };
    let name = match listed.get_mut("name").map(Value::take) {
        Some(Value::String(name)) => name,
        _ => return Err("it has no name".to_owned()),
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        let rule = format!("expected 1 to {MAX_NAME} letters, digits, `_` and `-`");
        return Err(format!("the name {:?} is not allowed: {rule}", cut(&name)));
    }
    let description = match listed.get_mut("description").map(Value::take) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(_) => return Err(format!("the description of {name:?} is no text")),
    };
    let parameters = match listed.get_mut("parameters").map(Value::take) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(schema)) => schema,
        Some(_) => return Err(format!("the parameters of {name:?} are no JSON schema of an object")),
    };
    // Providers refuse a schema that says nothing.
    let parameters =
        if parameters.is_empty() { json!({ "type": "object", "properties": {} }) } else { Value::Object(parameters) };
    if !is_shallow(&parameters) {
        return Err(format!("the parameters of {name:?} are nested too deep"));
    }
    let bytes = description.len() + parameters.to_string().len();
    if bytes > MAX_TOOL {
        return Err(format!("{name:?} has {bytes} bytes, expected at most {MAX_TOOL}"));
    }
    Ok(EngineTool { name, description, parameters })
}

/// The content blocks of an answer, text and pictures; whatever else it holds is sent as text, as everywhere.
fn read_content(json: &str) -> Result<Vec<Value>, String> {
    if json.len() > MAX_ANSWER {
        return Err(format!("its answer has {} bytes, expected at most {MAX_ANSWER}", json.len()));
    }
    let content: Value = serde_json::from_str(json).map_err(|error| format!("its answer is no JSON: {error}"))?;
    let blocks = content.as_array().map_or(1, Vec::len);
    if blocks > MAX_BLOCKS {
        return Err(format!("its answer has {blocks} blocks, expected at most {MAX_BLOCKS}"));
    }
    let content = if content.is_null() { Value::Array(vec![]) } else { content };
    let message = Map::from_iter([("role".to_owned(), "toolResult".into()), ("content".to_owned(), content)]);
    let message = Message::from_map("tool", message).map_err(|error| error.to_string())?;
    let mut content: Vec<Value> = message.blocks.iter().filter_map(|block| content_block(&message, block)).collect();
    if content.is_empty() {
        content.push(text_block("(the tool answered nothing)"));
    }
    Ok(content)
}

fn content_block(message: &Message, block: &Block) -> Option<Value> {
    let raw = message.raw(block);
    let as_text = || retold(Role::TOOL_RESULT, BlockKind::OTHER, raw).map(|text| text_block(&text));
    match block.kind {
        BlockKind::TEXT => Some(text_block(&block.text)).filter(|_| !block.text.is_empty()),
        BlockKind::IMAGE => picture(raw).or_else(as_text),
        _ => as_text(),
    }
}

/// A picture with what one is sent as, and no more.
fn picture(raw: &str) -> Option<Value> {
    let mut block: Map<String, Value> = serde_json::from_str(raw).ok()?;
    let mut made = Map::from_iter([("type".to_owned(), "image".into())]);
    for member in ["data", "mimeType", "url"] {
        if let Some(text @ Value::String(_)) = block.get_mut(member).map(Value::take) {
            made.insert(member.to_owned(), text);
        }
    }
    (made.contains_key("data") || made.contains_key("url")).then_some(Value::Object(made))
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that are offered, and what is said of the others.
    #[track_caller]
    fn check(list: &str, offered: &[&str], said: &str) {
        let (tools, left_out) = read_tools(list);
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), offered);
        assert_eq!(left_out_of(&left_out), said);
    }

    #[test]
    fn a_tool_is_offered_as_it_is_and_without_a_schema_it_takes_nothing() {
        let (tools, left_out) = read_tools(
            r#"[{"name":"recall","description":"finds","parameters":{"type":"object","required":["q"]}},{"name":"b_-9"}]"#,
        );
        assert_eq!(left_out, [""; 0]);
        let recall = EngineTool {
            name: "recall".into(),
            description: "finds".into(),
            parameters: json!({ "type": "object", "required": ["q"] }),
        };
        let nothing = json!({ "type": "object", "properties": {} });
        let bare = EngineTool { name: "b_-9".into(), description: String::new(), parameters: nothing.clone() };
        assert_eq!(tools, [recall, bare]);
        assert_eq!(read_tools(r#"[{"name":"a","parameters":{}}]"#).0[0].parameters, nothing);
    }

    #[test]
    fn what_cannot_be_offered_is_left_out_and_said() {
        check("[]", &[], "");
        check("", &[], "the list is no JSON array: EOF while parsing a value at line 1 column 0");
        check(
            r#"{"name":"a"}"#,
            &[],
            "the list is no JSON array: invalid type: map, expected a sequence at line 1 column 0",
        );
        check(
            r#"[7,{"name":"ok"},{},{"name":"Ok"},{"name":"a b"},{"name":""},{"name":"c","description":1},{"name":"d","parameters":[]}]"#,
            &["ok"],
            "tool 1: it is no JSON object; tool 3: it has no name; tool 4: the name \"Ok\" is taken by one before it; \
             tool 5: the name \"a b\" is not allowed: expected 1 to 64 letters, digits, `_` and `-`; \
             tool 6: the name \"\" is not allowed: expected 1 to 64 letters, digits, `_` and `-`; \
             tool 7: the description of \"c\" is no text; tool 8: the parameters of \"d\" are no JSON schema of an object",
        );
    }

    #[test]
    fn lists_without_end_are_bounded() {
        let named = |name: &str| json!([{ "name": name }]).to_string();
        assert_eq!(read_tools(&named(&"x".repeat(64))).0.len(), 1);
        assert_eq!(read_tools(&named(&"x".repeat(65))).0.len(), 0);
        let many: Vec<Value> = (0..100).map(|number| json!({ "name": format!("t{number}") })).collect();
        let (tools, left_out) = read_tools(&Value::Array(many).to_string());
        assert_eq!((tools.len(), left_out.len()), (64, 36));
        assert!(left_out_of(&left_out).ends_with("t71: 64 are offered already; 28 more"), "{}", left_out_of(&left_out));
        let long = json!([{ "name": "long", "description": "x".repeat(70_000) }, { "name": "short" }]).to_string();
        check(&long, &["short"], "tool 1: \"long\" has 70033 bytes, expected at most 65536");
        let deep = format!(r#"[{{"name":"deep","parameters":{{"a":{}1{}}}}}]"#, "[".repeat(100), "]".repeat(100));
        check(&deep, &[], "tool 1: the parameters of \"deep\" are nested too deep");
        let endless = format!("[{}]", " ".repeat(MAX_LIST));
        check(&endless, &[], "the list has 1048578 bytes, expected at most 1048576");
    }

    #[test]
    fn an_answer_is_text_and_pictures() {
        for (given, expected) in [
            (r#"[{"type":"text","text":"a"}]"#, r#"[{"type":"text","text":"a"}]"#),
            (r#""a""#, r#"[{"type":"text","text":"a"}]"#),
            (r#"["a",7]"#, r#"[{"type":"text","text":"a"},{"type":"text","text":"7"}]"#),
            (r#"[{"type":"text","text":"a","cacheControl":1}]"#, r#"[{"type":"text","text":"a"}]"#),
            (
                r#"[{"type":"image","data":"AAAA","mimeType":"image/png","note":1}]"#,
                r#"[{"type":"image","data":"AAAA","mimeType":"image/png"}]"#,
            ),
            (
                r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]"#,
                r#"[{"type":"image","data":"AAAA","mimeType":"image/png"}]"#,
            ),
            (r#"[{"type":"image"}]"#, r#"[{"type":"text","text":"{\"type\":\"image\"}"}]"#),
            (
                r#"[{"type":"toolCall","id":"c","name":"rm","arguments":{}}]"#,
                r#"[{"type":"text","text":"{\"type\":\"toolCall\",\"id\":\"c\",\"name\":\"rm\",\"arguments\":{}}"}]"#,
            ),
            (
                r#"[{"type":"thinking","thinking":"hm"}]"#,
                r#"[{"type":"text","text":"{\"type\":\"thinking\",\"thinking\":\"hm\"}"}]"#,
            ),
            ("[]", r#"[{"type":"text","text":"(the tool answered nothing)"}]"#),
            ("null", r#"[{"type":"text","text":"(the tool answered nothing)"}]"#),
            (r#"[{"type":"text","text":""}]"#, r#"[{"type":"text","text":"(the tool answered nothing)"}]"#),
        ] {
            let content = read_content(given).expect("content");
            assert_eq!(Value::Array(content).to_string(), expected, "{given}");
        }
    }

    #[test]
    fn an_answer_that_is_none_or_has_no_end_is_an_error() {
        let refused = |json: &str| read_content(json).expect_err("refused");
        assert_eq!(refused("[{"), "its answer is no JSON: EOF while parsing an object at line 1 column 2");
        let many = json!(vec!["a"; 257]).to_string();
        assert_eq!(refused(&many), "its answer has 257 blocks, expected at most 256");
        let long = "x".repeat(MAX_ANSWER);
        assert_eq!(refused(&json!(long).to_string()), "its answer has 16777218 bytes, expected at most 16777216");
    }
}
