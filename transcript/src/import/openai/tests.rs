use crate::{Format, ImportWarning, Imported, RecordedSession, load_bytes};

fn load(text: &str) -> Imported {
    let imported = load_bytes("run/log.json", text.as_bytes()).expect("chat messages");
    assert_eq!(imported.format, Format::Chat);
    imported
}

/// `id json` of each message, one per line.
fn messages(session: &RecordedSession) -> String {
    let lines = session.entries.iter().filter_map(|e| e.message()).map(|m| format!("{} {}\n", m.id, m.json));
    lines.collect()
}

#[test]
fn a_list_of_messages_becomes_blocks_calls_and_results() {
    let imported = load(
        r#"[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://host.example/a.png"}},
                {"type": "input_audio", "input_audio": {"format": "wav"}}]},
            {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"a\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "stop", "arguments": "{\"at\": "}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            {"role": "assistant", "content": "A cat."}
        ]"#,
    );
    let session = &imported.sessions[0];
    assert_eq!((session.id.as_str(), session.system.as_deref()), ("log", Some("Be brief.")));
    assert_eq!(
        messages(session),
        r#"m000002 {"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","detail":"low"},{"type":"image","url":"https://host.example/a.png"},{"type":"input_audio","input_audio":{"format":"wav"}}],"name":"ann"}
m000003 {"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"look","arguments":{"at":"a"}},{"type":"toolCall","id":"c2","name":"stop","arguments":{"_raw":"{\"at\": "}}],"refusal":null}
m000004 {"role":"toolResult","toolCallId":"c1","toolName":"look","content":[{"type":"text","text":"a cat"}],"isError":false}
m000005 {"role":"assistant","content":[{"type":"text","text":"A cat."}]}
"#
    );
    let counts = &session.counts;
    assert_eq!((counts.records, counts.total_messages(), counts.total_skipped()), (5, 4, 1));
    assert_eq!(counts.unknown_blocks.get("input_audio"), Some(&1));
}

#[test]
fn a_legacy_function_call_and_its_result_get_the_same_id() {
    let imported = load(
        r#"{"model": "gpt-4", "messages": [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": "", "function_call": {"name": "weather", "arguments": "{}"}},
            {"role": "function", "name": "weather", "content": "sun"}]}"#,
    );
    assert_eq!(imported.sessions[0].model.as_deref(), Some("gpt-4"));
    assert_eq!(
        messages(&imported.sessions[0]),
        r#"m000001 {"role":"user","content":[{"type":"text","text":"weather?"}]}
m000002 {"role":"assistant","content":[{"type":"toolCall","id":"call_000002","name":"weather","arguments":{}}]}
m000003 {"role":"toolResult","toolCallId":"call_000002","toolName":"weather","content":[{"type":"text","text":"sun"}],"isError":false}
"#
    );
}

#[test]
fn dialogues_of_one_file_have_their_own_ids_and_keep_what_stands_beside_them() {
    let imported = load(
        r#"[{"task_id": 7, "trial": 0, "reward": 1.0, "traj": [{"role": "user", "content": "a"}]},
            {"task_id": 7, "trial": 1, "traj": [{"role": "user", "content": "b"}]},
            {"task_id": 7, "trial": 1, "traj": [{"role": "user", "content": "c"}]},
            {"messages": [{"role": "user", "content": "d"}]},
            "no dialogue"]"#,
    );
    let ids: Vec<&str> = imported.sessions.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["task-7-trial-0", "task-7-trial-1", "task-7-trial-1-2", "log-4"]);
    assert_eq!(imported.sessions[0].meta["reward"], 1.0);
    assert_eq!(imported.lost, 1);
}

#[test]
fn lines_of_messages_are_one_session_and_lines_of_dialogues_are_many() {
    let imported =
        load("{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assi\n{\"role\":\"assistant\",\"content\":\"b\"}\n");
    assert_eq!((imported.sessions.len(), imported.sessions[0].counts.records, imported.lost), (1, 2, 1));
    assert_eq!(imported.warnings[0].to_string(), "1 damaged line (2): 0 whole records recovered, 1 lost");

    let imported =
        load("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n[{\"role\":\"user\",\"content\":\"b\"}]\n");
    let ids: Vec<&str> = imported.sessions.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["log", "log-2"]);
}

#[test]
fn a_later_system_message_that_differs_is_kept_and_not_sent() {
    let imported = load(
        r#"[{"role": "developer", "content": "A"}, {"role": "system", "content": [{"type": "text", "text": "B"}]},
            {"role": "user", "content": "x"}, {"role": "system", "content": "A"}, {"role": "system", "content": "C"}]"#,
    );
    let session = &imported.sessions[0];
    assert_eq!(session.system.as_deref(), Some("A\n\nB"));
    assert_eq!(session.entries[1].raw, r#"{"role":"system","content":"C"}"#);
    assert_eq!(session.counts.skipped.get("system"), Some(&4));
    assert_eq!(imported.warnings, [ImportWarning::LaterSystemMessages { count: 1 }]);
}

#[test]
fn a_single_message_in_openclaw_shape_is_a_session_of_one() {
    let json =
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"}],"api":"a"}"#;
    let imported = load(json);
    assert_eq!(messages(&imported.sessions[0]), format!("m000001 {json}\n"));
}

#[test]
fn arguments_nested_too_deep_emptied_the_message() {
    let call = |depth: usize| {
        let arguments = format!("{}1{}", r#"{"a": "#.repeat(depth), "}".repeat(depth));
        let json = serde_json::json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}
        ]);
        let imported = load(&json.to_string());
        let message = imported.sessions[0].entries[1].message().expect("a message").clone();
        assert!(message.to_map().is_some());
        (message.blocks[0].text.clone(), arguments)
    };
    let (sent, given) = call(64);
    assert_eq!(sent, given.replace(' ', ""));
    for depth in [65, 125, 200, 100_000] {
        let (sent, given) = call(depth);
        assert_eq!(sent, serde_json::json!({ "_raw": given }).to_string());
    }
}

#[test]
fn parts_and_calls_that_are_no_objects_were_sent_as_they_are() {
    let imported = load(
        r#"[{"role": "user", "content": ["hello", 7]},
            {"role": "assistant", "content": [null, "t", 7], "tool_calls": [null]},
            {"role": "user", "content": 7},
            {"role": "assistant", "tool_calls": {"id": "c", "function": {"name": "f", "arguments": "{}"}}}]"#,
    );
    assert_eq!(
        messages(&imported.sessions[0]),
        r#"m000001 {"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":"7"}]}
m000002 {"role":"assistant","content":[{"type":"text","text":"t"},{"type":"text","text":"7"}]}
m000003 {"role":"user","content":[{"type":"text","text":"7"}]}
m000004 {"role":"assistant","content":[{"type":"toolCall","id":"c","name":"f","arguments":{}}]}
"#
    );
    assert_eq!(imported.sessions[0].counts.mended.get("empty part"), Some(&2));
}

#[test]
fn lines_of_another_role_or_without_content_were_reported_as_damaged() {
    let imported = load(
        r#"{"role":"user","content":"hi"}
           {"role":"ipython","content":"tool text"}
           {"role":"assistant","refusal":"no"}
           {"role":"assistant"}
           {"role":"user","content":"b"}"#,
    );
    assert_eq!(
        messages(&imported.sessions[0]),
        r#"m000001 {"role":"user","content":[{"type":"text","text":"hi"}]}
m000003 {"role":"assistant","content":[{"type":"text","text":"no"}],"refusal":"no"}
m000004 {"role":"assistant","content":[]}
m000005 {"role":"user","content":[{"type":"text","text":"b"}]}
"#
    );
    // Kept as an entry, not played: what a role of one host's own means to a model, nobody else knows.
    assert_eq!(imported.sessions[0].entries[1].kind(), "ipython");
    assert_eq!((imported.warnings, imported.lost), (Vec::new(), 0));
    assert_eq!(imported.sessions[0].counts.skipped.get("ipython"), Some(&1));
}
