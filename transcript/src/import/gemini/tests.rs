use crate::{Format, HistoryOptions, RecordedSession, load_bytes};

fn load(text: &str) -> RecordedSession {
    let mut imported = load_bytes("chat.json", text.as_bytes()).expect("a chat");
    assert_eq!((imported.format, imported.sessions.len(), imported.lost), (Format::GeminiCli, 1, 0));
    let session = imported.sessions.remove(0);
    assert_eq!(session.counts.records, session.counts.total_messages() + session.counts.total_skipped());
    session
}

fn messages(session: &RecordedSession) -> Vec<&str> {
    session.entries.iter().filter_map(|e| e.message()).map(|m| m.json.as_str()).collect()
}

fn ids(session: &RecordedSession) -> String {
    let history = session.history(HistoryOptions::default());
    let ids: Vec<String> = history.messages.iter().map(|m| format!("{}:{}", m.id, m.text())).collect();
    format!("{} | {:?}", ids.join(" "), session.counts.skipped)
}

#[test]
fn a_saved_chat_has_its_results_behind_the_replies() {
    let text = r#"{
        "sessionId": "g1", "projectHash": "h", "startTime": "2026-01-05T08:00:00.000Z",
        "messages": [
            {"id": "a", "timestamp": "2026-01-05T08:00:00.000Z", "type": "user", "content": [{"text": "go"}]},
            {"id": "b", "timestamp": "2026-01-05T08:00:01.000Z", "type": "gemini", "content": "", "model": "gemini-x",
             "thoughts": [{"subject": "Plan", "description": "look"}],
             "tokens": {"input": 10, "output": 2, "cached": 4, "total": 12},
             "toolCalls": [
                {"id": "t1", "name": "ls", "args": {"dir": "."}, "status": "success", "result":
                    [{"functionResponse": {"id": "t1", "name": "ls", "response": {"output": "a"}}}]},
                {"id": "t2", "name": "rm", "args": {}, "status": "error", "result":
                    [{"functionResponse": {"id": "t2", "name": "rm", "response": {"error": "no"}}}]},
                {"id": "t3", "name": "ask", "args": {}, "status": "cancelled"}]},
            {"id": "c", "type": "info", "content": "Update available"},
            {"id": "d", "type": "gemini", "content": "done"}]}"#;
    for text in [text.to_owned(), text.replace('\n', "")] {
        let session = load(&text);
        assert_eq!((session.id.as_str(), session.model.as_deref()), ("g1", Some("gemini-x")));
        assert_eq!(
            messages(&session),
            [
                r#"{"role":"user","content":[{"type":"text","text":"go"}]}"#,
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"Plan\nlook"},{"type":"toolCall","id":"t1","name":"ls","arguments":{"dir":"."}},{"type":"toolCall","id":"t2","name":"rm","arguments":{}},{"type":"toolCall","id":"t3","name":"ask","arguments":{}}],"provider":"google","model":"gemini-x","usage":{"input":6,"output":2,"cacheRead":4,"cacheWrite":0,"totalTokens":12}}"#,
                r#"{"role":"toolResult","toolCallId":"t1","toolName":"ls","content":[{"type":"text","text":"a"}],"isError":false}"#,
                r#"{"role":"toolResult","toolCallId":"t2","toolName":"rm","content":[{"type":"text","text":"no"}],"isError":true}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"done"}],"provider":"google"}"#,
            ]
        );
        assert_eq!((session.counts.records, session.counts.split), (6, 2));
    }
}

#[test]
fn contents_get_ids_for_calls_that_have_none() {
    let session = load(
        r#"{"history": [
            {"role": "user", "parts": [{"text": "go"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
            {"role": "model", "parts": [{"thought": true, "text": "hm", "thoughtSignature": "s"},
                {"functionCall": {"name": "ls", "args": {"d": 1}}}, {"functionCall": {"name": "ls", "args": {"d": 2}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "1"}}},
                {"functionResponse": {"name": "ls", "response": {"files": []}}}, {"text": "and"}]},
            {"role": "model", "parts": [{"text": "done"}]}]}"#,
    );
    let pairs: Vec<String> = session
        .entries
        .iter()
        .filter_map(|e| e.message())
        .flat_map(|m| m.tool_calls().map(|c| c.id.clone()).chain([m.tool_call_id.clone()]).collect::<Vec<_>>())
        .filter(|id| !id.is_empty())
        .collect();
    assert_eq!(pairs, ["call_000002_1", "call_000002_2", "call_000002_1", "call_000002_2"]);
    let told = messages(&session);
    assert!(told[1].contains(r#"{"type":"thinking","thinking":"hm","thinkingSignature":"s"}"#), "{}", told[1]);
    assert!(told[3].contains(r#"{"type":"text","text":"{\"files\":[]}"}"#), "{}", told[3]);
    assert_eq!((told.len(), told[4]), (6, r#"{"role":"user","content":[{"type":"text","text":"and"}]}"#));
}

#[test]
fn lines_of_a_chat_are_played_back() {
    let session = load(
        r#"{"sessionId":"g2","projectHash":"h","startTime":"2026-01-05T08:00:00.000Z","messages":[]}
{"id":"a","type":"user","content":"one"}
{"id":"b","type":"gemini","content":"1"}
{"id":"b","type":"gemini","content":"1!"}
{"id":"c","type":"user","content":"two"}
{"id":"d","type":"gemini","content":"2"}
{"$rewindTo":"c"}
{"$set":{"lastUpdated":"x"}}
{"id":"e","type":"user","content":"three"}
"#,
    );
    assert_eq!(ids(&session), r#"a:one b:1! e:three | {"$rewindTo": 1, "$set": 1, "replaced": 1, "session": 1}"#);
    assert_eq!((session.counts.records, session.entries.len()), (9, 5));
}

#[test]
fn a_stream_is_put_together() {
    let session = load(
        r#"{"type":"init","timestamp":"2026-01-05T08:00:00.000Z","session_id":"g3","model":"gemini-x"}
{"type":"message","role":"user","content":"go"}
{"type":"message","role":"assistant","content":"let me ","delta":true}
{"type":"message","role":"assistant","content":"look","delta":true}
{"type":"tool_use","tool_name":"ls","tool_id":"t1","parameters":{"d":"."}}
{"type":"tool_result","tool_id":"t1","status":"success","output":"a"}
{"type":"message","role":"assistant","content":"done","delta":true}
{"type":"result","status":"success","stats":{}}
"#,
    );
    assert_eq!(
        messages(&session),
        [
            r#"{"role":"user","content":[{"type":"text","text":"go"}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"let me look"},{"type":"toolCall","id":"t1","name":"ls","arguments":{"d":"."}}],"provider":"google","model":"gemini-x"}"#,
            r#"{"role":"toolResult","toolCallId":"t1","toolName":"ls","content":[{"type":"text","text":"a"}],"isError":false}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"done"}],"provider":"google","model":"gemini-x"}"#,
        ]
    );
    assert_eq!((session.id.as_str(), session.counts.records), ("g3", 8));
}
