//! A text notation for transcripts, for tests only: histories in and out that a person can read.
//!
//! One message a line; entry ids are `e1`, `e2`, … by line.
//!
//! ```text
//! U "hi" img            user          Uh heartbeat   U- excluded   U+ synthetic
//! A "x" <c1:read>       assistant     A! failed      A~ interrupted
//! A [why/S1] @m1        thinking `why` signed `S1`, written by model m1; [why] is unsigned
//! R c1 "out"            tool result   R! failed      R+ made up     R c1:read "out" with the tool's name
//! K "s"  J "s"          compaction summary, branch summary
//! B "ls" "out"          command       C "x" custom   O "x" a role without a name here
//! ```
//!
//! `{…}` is a block of another kind, its JSON without blanks outside strings. `"ab"*3` is `"ababab"`; `<c1:read {"path":"p"}>` gives arguments, `<c1:read ->` has none at all.

use std::sync::Arc;

use context_engine_interface::{BlockFlags, BlockKind, MessageFlags, Role};
use context_engine_transcript::Message;
use serde_json::{Map, Value, json};

/// Reads a transcript.
pub(crate) fn parse(text: &str) -> Vec<Arc<Message>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.enumerate().map(|(n, line)| Arc::new(message(&format!("e{}", n + 1), line))).collect()
}

/// Writes one, without entry ids.
pub(crate) fn print(messages: &[Arc<Message>]) -> String {
    messages.iter().map(|m| line(m) + "\n").collect()
}

/// Reads and writes the expected text, so that tests may indent and repeat as they like.
pub(crate) fn normal(text: &str) -> String {
    print(&parse(text))
}

fn message(id: &str, line: &str) -> Message {
    let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (role, mark) = head.split_at(1);
    let mut tokens = tokens(rest);
    let mut map = Map::new();
    let mut flags = MessageFlags::default();
    let name = match role {
        "U" => "user",
        "A" => "assistant",
        "R" => "toolResult",
        "K" => "compactionSummary",
        "J" => "branchSummary",
        "B" => "bashExecution",
        "C" => "custom",
        "O" => "note",
        other => panic!("no such role: {other}"),
    };
    map.insert("role".into(), name.into());
    match (role, mark) {
        ("U", "h") => _ = map.insert("isHeartbeat".into(), true.into()),
        ("R", "!") => _ = map.insert("isError".into(), true.into()),
        ("R", "+") => {
            map.insert("isError".into(), true.into());
            flags = MessageFlags::SYNTHETIC;
        }
        ("A", "!") => _ = map.insert("stopReason".into(), "error".into()),
        ("A", "~") => _ = map.insert("stopReason".into(), "aborted".into()),
        (_, "-") => _ = map.insert("excludeFromContext".into(), true.into()),
        (_, "+") => flags = MessageFlags::SYNTHETIC,
        _ => {}
    }
    if role == "R" {
        let target = tokens.remove(0);
        let (call, tool) = target.split_once(':').unwrap_or((&target, ""));
        map.insert("toolCallId".into(), call.trim_matches('\'').into());
        map.insert("toolName".into(), tool.into());
    }
    let unquote = |token: &str| unquote(token);
    match role {
        "K" | "J" => _ = map.insert("summary".into(), unquote(&tokens[0]).into()),
        "B" => {
            map.insert("command".into(), unquote(&tokens[0]).into());
            map.insert("output".into(), unquote(&tokens[1]).into());
        }
        _ => {
            if let Some(at) = tokens.iter().position(|t| t.starts_with('@')) {
                map.insert("model".into(), tokens.remove(at)[1..].into());
            }
            map.insert("content".into(), tokens.iter().map(|t| block(t)).collect::<Vec<_>>().into());
        }
    }
    let mut message = Message::from_map(id, map).expect("a message");
    message.flags = message.flags.with(flags);
    message
}

/// Splits at spaces outside quotes and brackets.
fn tokens(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let (mut quoted, mut depth) = (false, 0);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '<' | '[' if !quoted => depth += 1,
            '>' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        match out.last_mut() {
            Some(last) if c != ' ' || quoted || depth > 0 => last.push(c),
            _ => out.push(String::new()),
        }
    }
    out.retain(|token| !token.is_empty());
    out
}

fn unquote(token: &str) -> String {
    let (text, times) = token.rsplit_once("\"*").map_or((token, 1), |(t, n)| (t, n.parse().expect("a count")));
    text.trim_matches('"').replace("\\n", "\n").repeat(times)
}

fn block(token: &str) -> Value {
    match token.as_bytes()[0] {
        b'"' => json!({ "type": "text", "text": unquote(token) }),
        b'[' => match token.trim_matches(['[', ']']).split_once('/') {
            Some((text, sign)) => json!({ "type": "thinking", "thinking": text, "thinkingSignature": sign }),
            None => json!({ "type": "thinking", "thinking": token.trim_matches(['[', ']']) }),
        },
        b'<' => {
            let call = &token[1..token.len() - 1];
            let (target, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
            let (id, name) = target.split_once(':').unwrap_or((target, "read"));
            let mut block = json!({ "type": "toolCall", "id": id, "name": name });
            if arguments != "-" {
                block["arguments"] = serde_json::from_str(arguments).expect("arguments");
            }
            block
        }
        b'{' => serde_json::from_str(token).expect("a block"),
        _ if token == "img" => json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" }),
        _ => panic!("no such block: {token}"),
    }
}

fn line(m: &Message) -> String {
    let has = |flag| m.flags.contains(flag);
    let role = match m.role {
        Role::USER => "U",
        Role::ASSISTANT => "A",
        Role::TOOL_RESULT => "R",
        Role::COMPACTION_SUMMARY => "K",
        Role::BRANCH_SUMMARY => "J",
        Role::BASH_EXECUTION => "B",
        Role::CUSTOM => "C",
        _ => "O",
    };
    let mark = match () {
        () if has(MessageFlags::SYNTHETIC) => "+",
        () if has(MessageFlags::TOOL_ERROR) || has(MessageFlags::ERRORED) => "!",
        () if has(MessageFlags::ABORTED) => "~",
        () if has(MessageFlags::HEARTBEAT) => "h",
        () if has(MessageFlags::EXCLUDED) => "-",
        () => "",
    };
    let mut out = format!("{role}{mark}");
    let map = m.to_map().expect("a message");
    let quoted = |name: &str| format!(" {:?}", map[name].as_str().unwrap_or(""));
    match m.role {
        Role::TOOL_RESULT => {
            let id = if m.tool_call_id.is_empty() { "''" } else { m.tool_call_id.as_str() };
            out.push_str(&format!(" {id}"));
            if !m.tool_name.is_empty() {
                out.push_str(&format!(":{}", m.tool_name));
            }
        }
        Role::COMPACTION_SUMMARY | Role::BRANCH_SUMMARY => out.push_str(&quoted("summary")),
        Role::BASH_EXECUTION => out.push_str(&(quoted("command") + &quoted("output"))),
        _ => {}
    }
    for b in &m.blocks {
        out.push(' ');
        out.push_str(&match b.kind {
            BlockKind::TEXT => format!("{:?}", b.text),
            BlockKind::THINKING if b.flags.contains(BlockFlags::SIGNED) => {
                let raw: Value = serde_json::from_str(m.raw(b)).expect("a block");
                format!("[{}/{}]", b.text, raw["thinkingSignature"].as_str().expect("a signature"))
            }
            BlockKind::THINKING => format!("[{}]", b.text),
            BlockKind::TOOL_CALL if b.text == "{}" => format!("<{}:{}>", b.id, b.name),
            BlockKind::TOOL_CALL => format!("<{}:{} {}>", b.id, b.name, b.text),
            BlockKind::IMAGE => "img".to_owned(),
            _ => m.raw(b).to_owned(),
        });
    }
    if let Some(model) = map.get("model").and_then(Value::as_str) {
        out.push_str(&format!(" @{model}"));
    }
    out
}
