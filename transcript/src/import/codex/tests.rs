use crate::{Format, HistoryOptions, RecordedSession, load_bytes};

fn load(text: &str) -> RecordedSession {
    let mut imported = load_bytes("rollout-1.jsonl", text.as_bytes()).expect("a rollout");
    assert_eq!((imported.format, imported.sessions.len(), imported.lost), (Format::Codex, 1, 0));
    let session = imported.sessions.remove(0);
    assert_eq!(session.counts.records, session.counts.total_messages() + session.counts.total_skipped());
    session
}

fn messages(session: &RecordedSession) -> Vec<&str> {
    session.entries.iter().filter_map(|e| e.message()).map(|m| m.json.as_str()).collect()
}

#[test]
fn the_items_of_a_reply_are_one_message() {
    let session = load(
        r#"{"timestamp":"2026-01-05T08:00:00.000Z","type":"session_meta","payload":{"id":"c1","cwd":"/w","instructions":"S","model_provider":"openai"}}
{"timestamp":"2026-01-05T08:00:00.000Z","type":"response_item","payload":{"type":"message","role":"developer","content":[{"type":"input_text","text":"D"}]}}
{"timestamp":"2026-01-05T08:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}}
{"timestamp":"2026-01-05T08:00:01.000Z","type":"event_msg","payload":{"type":"user_message","message":"go"}}
{"timestamp":"2026-01-05T08:00:01.000Z","type":"turn_context","payload":{"model":"gpt-5-codex","cwd":"/w"}}
{"timestamp":"2026-01-05T08:00:02.000Z","type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"e"}}
{"timestamp":"2026-01-05T08:00:02.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"look"}]}}
{"timestamp":"2026-01-05T08:00:03.000Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"f1"}}
{"timestamp":"2026-01-05T08:00:03.000Z","type":"response_item","payload":{"type":"custom_tool_call","status":"completed","call_id":"f2","name":"apply_patch","input":"*** Begin"}}
{"timestamp":"2026-01-05T08:00:04.000Z","type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}}}
{"timestamp":"2026-01-05T08:00:04.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"f1","output":"a"}}
{"timestamp":"2026-01-05T08:00:04.000Z","type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"f2","output":{"content":"bad","success":false}}}
{"timestamp":"2026-01-05T08:00:05.000Z","type":"response_item","payload":{"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}}
{"timestamp":"2026-01-05T08:00:05.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}}
{"timestamp":"2026-01-05T08:00:06.000Z","type":"response_item","payload":{"type":"ghost_snapshot","ghost_commit":{}}}
"#,
    );
    assert_eq!((session.id.as_str(), session.system.as_deref()), ("c1", Some("S\n\nD")));
    assert_eq!((session.model.as_deref(), session.cwd.as_deref()), (Some("gpt-5-codex"), Some("/w")));
    assert_eq!(
        messages(&session),
        [
            r#"{"role":"user","content":[{"type":"text","text":"go"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}],\"encrypted_content\":\"e\"}"},{"type":"text","text":"look"},{"type":"toolCall","id":"f1","name":"shell","arguments":{"command":["ls"]}},{"type":"toolCall","id":"f2","name":"apply_patch","arguments":{"input":"*** Begin"},"status":"completed"}],"api":"openai-responses","provider":"openai","model":"gpt-5-codex","usage":{"input":6,"output":2,"cacheRead":4,"cacheWrite":0,"totalTokens":12}}"#,
            r#"{"role":"toolResult","toolCallId":"f1","toolName":"shell","content":[{"type":"text","text":"a"}],"isError":false}"#,
            r#"{"role":"toolResult","toolCallId":"f2","toolName":"apply_patch","content":[{"type":"text","text":"bad"}],"isError":true}"#,
            r#"{"role":"assistant","content":[{"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}},{"type":"text","text":"done"}],"api":"openai-responses","provider":"openai","model":"gpt-5-codex"}"#,
        ]
    );
    assert_eq!(
        format!("{:?}", session.counts.skipped),
        r#"{"event_msg": 2, "ghost_snapshot": 1, "joined": 4, "session_meta": 1, "system": 1, "turn_context": 1}"#
    );
    assert_eq!((session.counts.records, session.counts.unknown_blocks.len()), (15, 1));
}

#[test]
fn older_rollouts_hold_bare_items() {
    let lines = r#"{"id":"c0","timestamp":"2025-07-01T08:00:00.000Z","instructions":"S","git":{}}
{"record_type":"state"}
{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"go"}]}
{"type":"reasoning","id":"r","summary":[]}
{"type":"local_shell_call","call_id":"l1","status":"completed","action":{"type":"exec","command":["ls"]}}
{"type":"function_call_output","call_id":"l1","output":"{\"output\":\"a\"}"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}
"#;
    let session = load(lines);
    assert_eq!((session.id.as_str(), session.system.as_deref()), ("c0", Some("S")));
    let reply = r#"{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"toolCall","id":"l1","name":"local_shell","arguments":{"type":"exec","command":["ls"]},"status":"completed"}],"api":"openai-responses","provider":"openai"}"#;
    assert_eq!(messages(&session)[1], reply);
    assert_eq!(format!("{:?}", session.counts.messages), r#"{"assistant": 2, "toolResult": 1, "user": 1}"#);

    let items: Vec<&str> = lines.lines().skip(2).collect();
    let document =
        format!("{{\n\"session\":{{\"id\":\"c0\",\"instructions\":\"S\"}},\n\"items\":[{}]}}", items.join(","));
    assert_eq!(messages(&load(&document)), messages(&session));
}

#[test]
fn a_compaction_is_a_summary_when_its_text_is_there() {
    let compacted = |message: &str| {
        load(&format!(
            r#"{{"type":"response_item","payload":{{"type":"message","role":"user","content":[{{"type":"input_text","text":"a"}}]}}}}
{{"type":"compacted","payload":{{"message":"{message}"}}}}
{{"type":"response_item","payload":{{"type":"message","role":"user","content":[{{"type":"input_text","text":"b"}}]}}}}"#
        ))
    };
    let honored = |session: &RecordedSession| {
        let history = session.history(HistoryOptions { honor_compactions: true });
        history.messages.iter().map(|m| m.role_name()).collect::<Vec<_>>()
    };
    assert_eq!(honored(&compacted("sum")), ["compactionSummary", "user"]);
    assert_eq!(honored(&compacted("")), ["user", "user"]);
    assert_eq!(compacted("sum").history(HistoryOptions::default()).messages.len(), 2);
}
