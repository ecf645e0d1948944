use context_engine_interface::MessageFlags;

use crate::{Format, HistoryOptions, ImportOptions, Imported, RecordedSession, load_bytes, load_bytes_with};

/// A record `uuid` behind `parent`; `rest` are its other members.
fn record(uuid: &str, parent: &str, rest: &str) -> String {
    let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
    format!(r#"{{"uuid":"{uuid}","parentUuid":{parent},"sessionId":"s1",{rest}}}"#)
}

fn user(uuid: &str, parent: &str, text: &str) -> String {
    record(uuid, parent, &format!(r#""type":"user","cwd":"/w","message":{{"role":"user","content":"{text}"}}"#))
}

/// A line of the API reply `id` with one content block.
fn reply(uuid: &str, parent: &str, id: &str, block: &str) -> String {
    record(
        uuid,
        parent,
        &format!(
            r#""type":"assistant","message":{{"id":"{id}","role":"assistant","model":"claude-x","content":[{block}],"usage":{{"input_tokens":3,"output_tokens":{n}}}}}"#,
            n = uuid.len()
        ),
    )
}

fn text(text: &str) -> String {
    format!(r#"{{"type":"text","text":"{text}"}}"#)
}

fn call(id: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"run","input":{{}}}}"#)
}

fn result(uuid: &str, parent: &str, id: &str) -> String {
    let block = format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"of {id}"}}"#);
    record(uuid, parent, &format!(r#""type":"user","message":{{"role":"user","content":[{block}]}}"#))
}

fn load(lines: &[String]) -> Imported {
    let imported = load_bytes("file.jsonl", lines.join("\n").as_bytes()).expect("a session");
    assert_eq!(imported.format, Format::ClaudeCode);
    for session in &imported.sessions {
        let counts = &session.counts;
        assert_eq!(counts.records, counts.total_messages() + counts.total_skipped());
    }
    imported
}

/// Each message that is played: its id, its calls and what it says; then what is not.
fn told(session: &RecordedSession) -> String {
    let history = session.history(HistoryOptions::default());
    let told = history.messages.iter().map(|m| {
        let calls: Vec<&str> = m.tool_calls().map(|call| call.id.as_str()).collect();
        let parts = [m.id.clone(), calls.join("+"), m.text().replace('\n', "/")];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
    });
    format!("{} | {:?}", told.collect::<Vec<_>>().join(" "), history.skipped)
}

#[test]
fn lines_of_one_reply_are_one_message_with_the_last_usage() {
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"sig"}"#;
    let imported = load(&[
        user("u", "", "hi"),
        reply("a", "u", "m1", thinking),
        reply("bb", "a", "m1", &text("let me")),
        reply("ccc", "bb", "m1", &call("t1")),
        result("r", "ccc", "t1"),
        reply("d", "r", "m2", &text("done")),
    ]);
    let session = &imported.sessions[0];
    assert_eq!(told(session), "u:hi a:t1:let me r:of t1 d:done | {}");
    assert_eq!(
        (session.id.as_str(), session.cwd.as_deref(), session.model.as_deref()),
        ("s1", Some("/w"), Some("claude-x"))
    );
    assert_eq!(
        session.entries[1].message().expect("a message").json,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},{"type":"text","text":"let me"},{"type":"toolCall","id":"t1","name":"run","arguments":{}}],"api":"anthropic-messages","provider":"anthropic","model":"claude-x","usage":{"input":3,"output":3,"cacheRead":0,"cacheWrite":0,"totalTokens":6}}"#
    );
    assert_eq!((session.counts.records, session.counts.skipped.get("joined")), (6, Some(&2)));
}

#[test]
fn results_of_parallel_calls_stand_behind_their_reply_wherever_they_hang() {
    // Recorded as a tree of siblings; the next reply hangs on the first result only, and one result comes after it.
    let imported = load(&[
        user("u", "", "go"),
        reply("a1", "u", "m1", &call("t1")),
        result("r1", "a1", "t1"),
        reply("a2", "a1", "m1", &call("t2")),
        reply("a3", "a2", "m1", &call("t3")),
        result("r3", "a3", "t3"),
        reply("b", "r1", "m2", &text("next")),
        result("r2", "a2", "t2"),
    ]);
    assert_eq!(told(&imported.sessions[0]), "u:go a1:t1+t2+t3 r1:of t1 r3:of t3 r2:of t2 b:next | {}");
}

#[test]
fn a_prompt_that_was_edited_starts_a_branch_and_the_first_too() {
    let imported = load(&[
        user("u", "", "one"),
        reply("a", "u", "m1", &text("1")),
        user("v", "a", "two"),
        user("w", "a", "two again"),
        reply("b", "w", "m2", &text("2")),
    ]);
    assert_eq!(told(&imported.sessions[0]), r#"u:one a:1 w:two again b:2 | {"off-branch": 1}"#);
    let imported = load(&[user("u", "", "one"), reply("a", "u", "m1", &text("1")), user("v", "", "anew")]);
    assert_eq!(told(&imported.sessions[0]), r#"v:anew | {"off-branch": 2}"#);
}

#[test]
fn records_without_any_links_are_read_in_file_order() {
    let imported = load(&[user("u", "", "one"), reply("a", "", "m1", &text("1")), user("v", "", "two")]);
    assert_eq!(told(&imported.sessions[0]), "u:one a:1 v:two | {}");
}

#[test]
fn a_compaction_ends_nothing_unless_it_is_honored() {
    let boundary =
        |logical: &str| record("k", "", &format!(r#""type":"system","subtype":"compact_boundary"{logical}"#));
    let lines = |logical: &str| {
        [
            user("u", "", "one"),
            reply("a", "u", "m1", &text("1")),
            boundary(logical),
            record("s", "k", r#""type":"user","isCompactSummary":true,"message":{"role":"user","content":"sum"}"#),
            reply("b", "s", "m2", &text("2")),
        ]
    };
    for logical in ["", r#","logicalParentUuid":"a""#, r#","logicalParentUuid":"gone""#] {
        let session = &load(&lines(logical)).sessions[0];
        assert_eq!(told(session), r#"u:one a:1 b:2 | {"compaction": 1, "system": 1}"#);
        let honored = session.history(HistoryOptions { honor_compactions: true });
        let roles: Vec<String> = honored.messages.iter().map(|m| m.role_name()).collect();
        assert_eq!(roles, ["compactionSummary", "assistant"]);
    }
}

#[test]
fn messages_that_stay_beside_a_summary_are_played_once_and_honored() {
    // What stayed is moved behind the boundary, and the boundary names it as what it follows.
    let boundary = r#""type":"system","subtype":"compact_boundary","logicalParentUuid":"b","compactMetadata":{"preTokens":9,"preservedSegment":{"headUuid":"v"}}"#;
    let session = &load(&[
        user("u", "", "one"),
        reply("a", "u", "m1", &text("1")),
        user("v", "a", "two"),
        record("k", "", boundary),
        record("s", "k", r#""type":"user","isCompactSummary":true,"message":{"role":"user","content":"sum"}"#),
        reply("b", "s", "m2", &text("2")),
        user("w", "b", "three"),
    ])
    .sessions[0];
    assert_eq!(told(session), r#"u:one a:1 v:two b:2 w:three | {"compaction": 1, "system": 1}"#);
    let honored = session.history(HistoryOptions { honor_compactions: true });
    let ids: Vec<&str> = honored.messages.iter().map(|m| m.id.as_str()).collect();
    assert_eq!(ids, ["s", "v", "b", "w"]);
    assert!(honored.messages[0].json.contains(r#""tokensBefore":9"#), "{}", honored.messages[0].json);
}

#[test]
fn a_record_with_results_and_text_is_several_messages() {
    let both = r#""type":"user","toolUseResult":{"stdout":"x"},"message":{"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"no"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]},
        {"type":"tool_result","tool_use_id":"t2","content":null},
        {"type":"text","text":"stop"}]}"#;
    let imported = load(&[
        reply("a", "", "m1", &format!("{},{}", call("t1"), call("t2"))),
        record("r", "a", &both.replace('\n', " ")),
        user("v", "r", "why?"),
    ]);
    let session = &imported.sessions[0];
    assert_eq!(told(session), "a:t1+t2 r:no r-2 r-3:stop v:why? | {}");
    let first = session.entries[1].message().expect("a result");
    assert_eq!(
        first.json,
        r#"{"role":"toolResult","toolCallId":"t1","toolName":"run","content":[{"type":"text","text":"no"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}],"isError":true}"#
    );
    assert_eq!(session.entries[1].raw, r#"{"sessionId":"s1","toolUseResult":{"stdout":"x"}}"#);
    assert_eq!((session.counts.records, session.counts.split), (5, 2));
}

#[test]
fn what_the_screen_showed_is_counted_and_what_hangs_on_it_is_not_lost() {
    let imported = load(&[
        r#"{"type":"summary","summary":"A title","leafUuid":"x"}"#.to_owned(),
        record("p0", "", r#""type":"progress","data":{"hook":1}"#),
        user("u", "p0", "go"),
        reply("a", "u", "m1", &call("t1")),
        record(
            "p1",
            "a",
            r#""type":"progress","data":{"message":{"type":"user","uuid":"z","message":{"role":"user","content":"inner"}}}"#,
        ),
        result("r", "p1", "t1"),
        record("h", "a", r#""type":"system","subtype":"hook","content":"h""#),
        record("m", "r", r#""type":"user","isMeta":true,"message":{"role":"user","content":"note"}"#),
        reply("b", "m", "m2", &text("done")),
        r#"{"type":"queue-operation","operation":"enqueue","sessionId":"s1"}"#.to_owned(),
        record("q", "b", r#""type":"attachment","attachment":{"type":"queued_command","prompt":"and this"}"#),
        record("e", "q", r#""type":"system","subtype":"turn_duration""#),
    ]);
    let session = &imported.sessions[0];
    assert_eq!(told(session), r#"u:go a:t1 r:of t1 b:done q:and this | {"meta": 1, "system": 2}"#);
    assert_eq!(session.meta["title"], "A title");
    assert_eq!(
        format!("{:?}", session.counts.skipped),
        r#"{"meta": 1, "progress": 2, "queue-operation": 1, "summary": 1, "system": 2}"#
    );
}

#[test]
fn an_api_error_is_marked_and_no_model_said_it() {
    let error = r#""type":"assistant","isApiErrorMessage":true,"message":{"id":"x","model":"<synthetic>","role":"assistant","content":[{"type":"text","text":"API Error: 500"}]}"#;
    let imported = load(&[user("u", "", "hi"), reply("a", "u", "m1", &text("1")), record("e", "a", error)]);
    let session = &imported.sessions[0];
    let message = session.entries[2].message().expect("a message");
    assert!(message.flags.contains(MessageFlags::ERRORED));
    assert_eq!(
        message.json,
        r#"{"role":"assistant","content":[{"type":"text","text":"API Error: 500"}],"synthetic":true,"stopReason":"error","errorMessage":"API Error: 500"}"#
    );
    assert_eq!(session.model.as_deref(), Some("claude-x"));
}

#[test]
fn sub_agents_are_left_out_or_sessions_of_their_own() {
    let side = |line: String| line.replace(r#""sessionId""#, r#""isSidechain":true,"sessionId""#);
    let lines = [
        user("u", "", "go"),
        reply("a", "u", "m1", &call("t1")),
        side(user("x", "", "look")),
        side(user("y", "", "look elsewhere")),
        side(reply("x2", "x", "m2", &text("found"))),
        result("r", "a", "t1"),
    ];
    let imported = load(&lines);
    assert_eq!(told(&imported.sessions[0]), "u:go a:t1 r:of t1 | {}");
    assert_eq!((imported.sessions.len(), imported.sessions[0].counts.skipped.get("sidechain")), (1, Some(&3)));
    assert_eq!(imported.warnings[0].to_string(), "3 records of sub-agents' conversations (sidechains) left out");

    let options = ImportOptions { sidechains: true };
    let imported = load_bytes_with("f", lines.join("\n").as_bytes(), options).expect("sessions");
    let all: Vec<String> = imported.sessions.iter().map(|s| format!("{} {}", s.id, told(s))).collect();
    assert_eq!(
        all,
        ["s1 u:go a:t1 r:of t1 | {}", "s1-sidechain x:look x2:found | {}", "s1-sidechain-2 y:look elsewhere | {}"]
    );

    let own_file: Vec<String> = lines[2..5].iter().map(|l| l.replace("\"s1\"", "\"s1\",\"agentId\":\"g\"")).collect();
    assert_eq!(load(&own_file[..1]).sessions[0].counts.total_messages(), 1, "a file of a sub-agent's own");
}

#[test]
fn sessions_without_links_are_several_and_a_resumed_one_goes_on() {
    let other = |line: String| line.replace("\"s1\"", "\"s2\"");
    let resumed = load(&[user("u", "", "one"), other(user("v", "u", "two"))]);
    assert_eq!((resumed.sessions.len(), told(&resumed.sessions[0]).as_str()), (1, "u:one v:two | {}"));
    let several = load(&[user("u", "", "one"), other(user("v", "", "two"))]);
    let ids: Vec<&str> = several.sessions.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["s1", "s2"]);
}

#[test]
fn a_damaged_line_costs_itself_and_its_children_stay() {
    let cut = &user("u", "", "one")[..60];
    let imported = load(&[
        format!("{cut}{}", user("v", "u", "two")),
        r#"{"type":"user","message":{"role":"us"#.to_owned(),
        reply("a", "gone", "m1", &text("1")),
        r#""no object""#.to_owned(),
        r#"{"type":"user","uuid":"n","parentUuid":"a","message":"error"}"#.to_owned(),
        user("v", "n", "three"),
    ]);
    let session = &imported.sessions[0];
    assert_eq!(told(session), r#"v:two a:1 v-2:three | {"no message": 1}"#);
    assert_eq!((imported.lost, session.counts.mended.get("duplicate id")), (3, Some(&1)));
}

#[test]
fn a_long_chain_of_dropped_records_is_followed_in_linear_time() {
    let n = 20_000;
    let above = |i: usize| if i == 0 { "u".to_owned() } else { format!("p{}", i - 1) };
    let mut lines = vec![user("u", "", "go")];
    lines.extend((0..n).map(|i| record(&format!("p{i}"), &above(i), r#""type":"progress""#)));
    lines.extend((0..n).map(|i| record(&format!("s{i}"), &above(n), r#""type":"system""#)));
    lines.push(reply("a", &above(n), "m1", &text("1")));
    let session = &load(&lines).sessions[0];
    assert_eq!(told(session), format!(r#"u:go a:1 | {{"off-branch": {n}}}"#));
}
