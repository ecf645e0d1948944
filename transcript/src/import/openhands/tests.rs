use crate::{Format, HistoryOptions, RecordedSession, load_bytes};

fn load(text: &str) -> RecordedSession {
    let mut imported = load_bytes("run.json", text.as_bytes()).expect("events");
    assert_eq!((imported.format, imported.sessions.len(), imported.lost), (Format::OpenHands, 1, 0));
    let session = imported.sessions.remove(0);
    assert_eq!(session.counts.records, session.counts.total_messages() + session.counts.total_skipped());
    session
}

fn messages(session: &RecordedSession) -> Vec<&str> {
    session.entries.iter().filter_map(|e| e.message()).map(|m| m.json.as_str()).collect()
}

const SDK: &str = r#"{"id":"e0","source":"agent","kind":"SystemPromptEvent","system_prompt":{"type":"text","text":"S"},"tools":[]}
{"id":"e1","source":"user","kind":"MessageEvent","llm_message":{"role":"user","content":[{"type":"text","text":"go","cache_prompt":false},{"type":"image","image_urls":["data:image/png;base64,iVBORw0KGgo="]}]},"extended_content":[{"type":"text","text":"hint"}]}
{"id":"e2","source":"agent","kind":"ActionEvent","thought":[{"type":"text","text":"look"}],"reasoning_content":"hm","thinking_blocks":[],"action":{"kind":"TerminalAction","command":"ls"},"tool_name":"terminal","tool_call_id":"t1","tool_call":{"id":"t1","name":"terminal","arguments":"{\"command\":\"ls\"}"},"llm_response_id":"r1"}
{"id":"e3","source":"agent","kind":"ActionEvent","thought":[],"thinking_blocks":[],"action":null,"tool_name":"edit","tool_call_id":"t2","tool_call":{"id":"t2","function":{"name":"edit","arguments":"{}"}},"llm_response_id":"r1"}
{"id":"s","source":"environment","kind":"ConversationStateUpdateEvent","key":"stats","value":{}}
{"id":"e4","source":"environment","kind":"ObservationEvent","tool_name":"terminal","tool_call_id":"t1","action_id":"e2","observation":{"kind":"TerminalObservation","content":[{"type":"text","text":"a"}],"is_error":false}}
{"id":"e5","source":"agent","kind":"AgentErrorEvent","tool_name":"edit","tool_call_id":"t2","error":"no such file"}
{"id":"e6","source":"environment","kind":"Condensation","forgotten_event_ids":["e1","e2","e3"],"summary":"sum"}
{"id":"e7","source":"agent","kind":"MessageEvent","llm_message":{"role":"assistant","content":[{"type":"text","text":"done"}]}}
"#;

#[test]
fn events_of_one_response_are_one_reply() {
    let session = load(SDK);
    assert_eq!(session.system.as_deref(), Some("S"));
    assert_eq!(
        messages(&session),
        [
            r#"{"role":"user","content":[{"type":"text","text":"go"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},{"type":"text","text":"hint"}]}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"look"},{"type":"toolCall","id":"t1","name":"terminal","arguments":{"command":"ls"}},{"type":"toolCall","id":"t2","name":"edit","arguments":{}}]}"#,
            r#"{"role":"toolResult","toolCallId":"t1","toolName":"terminal","content":[{"type":"text","text":"a"}],"isError":false}"#,
            r#"{"role":"toolResult","toolCallId":"t2","toolName":"edit","content":[{"type":"text","text":"no such file"}],"isError":true}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}"#,
        ]
    );
    assert_eq!(
        format!("{:?}", session.counts.skipped),
        r#"{"ConversationStateUpdateEvent": 1, "compaction": 1, "joined": 1, "system": 1}"#
    );
    let honored = session.history(HistoryOptions { honor_compactions: true });
    let ids: Vec<&str> = honored.messages.iter().map(|m| m.id.as_str()).collect();
    assert_eq!(ids, ["e6", "e4", "e5", "e7"]);

    let list = format!("[\n{}]", SDK.trim().replace('\n', ",\n"));
    assert_eq!(messages(&load(&list)), messages(&session));
    let run = format!("{{\"instance_id\":\"i1\",\"history\":{}}}", list.replace('\n', ""));
    assert_eq!((load(&run).id, messages(&load(&run))), ("i1".to_owned(), messages(&session)));
}

#[test]
fn events_with_parents_are_a_tree() {
    let event = |id: &str, parent: &str, source: &str| {
        let role = if source == "user" { "user" } else { "assistant" };
        format!(
            r#"{{"id":"{id}","parent_id":"{parent}","source":"{source}","kind":"MessageEvent","llm_message":{{"role":"{role}","content":[{{"type":"text","text":"{id}"}}]}}}}"#
        )
    };
    let state = r#"{"id":"s","parent_id":"a","source":"environment","kind":"ConversationStateUpdateEvent"}"#.to_owned();
    let lines = [
        event("a", "__root__", "user"),
        event("left", "a", "agent"),
        state,
        event("b", "s", "agent"),
        event("c", "b", "user"),
    ];
    let history = load(&lines.join("\n")).history(HistoryOptions::default());
    let ids: Vec<&str> = history.messages.iter().map(|m| m.id.as_str()).collect();
    assert_eq!((ids, history.skipped.get("off-branch")), (vec!["a", "b", "c"], Some(&1)));
}

#[test]
fn the_older_list_of_actions_and_observations() {
    let meta = |id: &str| {
        format!(
            r#""tool_call_metadata":{{"function_name":"bash","tool_call_id":"{id}","total_calls_in_response":2,"model_response":{{"id":"r1","model":"m","choices":[{{"message":{{"content":"look","role":"assistant","tool_calls":[{{"id":"c1","function":{{"name":"bash","arguments":"{{\"command\":\"ls\"}}"}}}},{{"id":"c2","function":{{"name":"bash","arguments":"{{}}"}}}}]}}}}]}}}}"#
        )
    };
    let text = format!(
        r#"[
{{"id":0,"source":"agent","action":"system","args":{{"content":"S","tools":[]}}}},
{{"id":1,"source":"user","action":"message","args":{{"content":"go","image_urls":[]}},"timestamp":"2026-01-05T08:00:00.000000"}},
{{"id":2,"source":"agent","observation":"agent_state_changed","content":"","extras":{{"agent_state":"running"}}}},
{{"id":3,"source":"agent","action":"run","args":{{"command":"ls","thought":"look"}},{}}},
{{"id":4,"source":"agent","action":"run","args":{{"command":""}},{}}},
{{"id":5,"source":"agent","observation":"run","content":"a","cause":3,"extras":{{}},{}}},
{{"id":6,"source":"agent","observation":"error","content":"b","cause":4,"extras":{{}},{}}},
{{"id":7,"source":"agent","action":"condensation","args":{{"forgotten_events_start_id":1,"forgotten_events_end_id":4,"summary":"sum"}}}},
{{"id":8,"source":"agent","action":"read","args":{{"path":"f","thought":"read it"}}}},
{{"id":9,"source":"agent","observation":"read","content":"text","cause":8,"extras":{{}}}},
{{"id":10,"source":"agent","action":"message","args":{{"content":"done"}}}}
]"#,
        meta("c1"),
        meta("c2"),
        meta("c1"),
        meta("c2")
    );
    let session = load(&text);
    assert_eq!((session.system.as_deref(), session.model.as_deref()), (Some("S"), Some("m")));
    assert_eq!(
        messages(&session),
        [
            r#"{"role":"user","content":[{"type":"text","text":"go"}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"look"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}},{"type":"toolCall","id":"c2","name":"bash","arguments":{}}],"model":"m"}"#,
            r#"{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"type":"text","text":"a"}],"isError":false}"#,
            r#"{"role":"toolResult","toolCallId":"c2","toolName":"bash","content":[{"type":"text","text":"b"}],"isError":true}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"read it"},{"type":"toolCall","id":"call_8","name":"read","arguments":{"path":"f"}}]}"#,
            r#"{"role":"toolResult","toolCallId":"call_8","toolName":"read","content":[{"type":"text","text":"text"}],"isError":false}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}"#,
        ]
    );
    assert_eq!(
        format!("{:?}", session.counts.skipped),
        r#"{"agent_state_changed": 1, "compaction": 1, "joined": 1, "system": 1}"#
    );
}
