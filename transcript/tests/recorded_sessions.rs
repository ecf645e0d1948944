//! Real recorded sessions, which are too large and not ours to keep in the repository.
//!
//! They are looked for beside the repository and, when missing, fail the run only where the environment says `CI`.

#![allow(clippy::print_stderr, reason = "a skipped test must say so")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use context_engine_interface::Role;
use context_engine_transcript::{
    Format, HistoryOptions, Imported, Message, RecordedSession, TokenCounter, load, load_bytes,
};

fn file(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
    if folder.is_dir() {
        return Some(folder.join(name));
    }
    assert!(std::env::var_os("CI").is_none(), "{}: expected the recorded sessions, found nothing", folder.display());
    eprintln!("skipped {name}: no folder {}", folder.display());
    None
}

fn read(name: &str) -> Option<Imported> {
    let path = file(name)?;
    Some(load(&path).unwrap_or_else(|error| panic!("{error}")))
}

/// `role n …| kind n …` of what became messages and what did not.
fn counts(session: &RecordedSession) -> String {
    let counts = &session.counts;
    assert_eq!(counts.records, counts.total_messages() + counts.total_skipped());
    let list = |tally: &context_engine_transcript::Tally| {
        tally.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
    };
    format!("{} | {}", list(&counts.messages), list(&counts.skipped))
}

fn history(session: &RecordedSession, honor_compactions: bool) -> usize {
    session.history(HistoryOptions { honor_compactions }).messages.len()
}

#[test]
fn an_openclaw_session_with_a_branch_and_a_compaction() {
    let Some(imported) = read("openclaw-v3-shape.jsonl") else { return };
    assert_eq!((imported.format, imported.lost), (Format::OpenClaw { version: 3 }, 0));
    let session = &imported.sessions[0];
    assert_eq!(
        counts(session),
        "assistant 29, toolResult 10, user 12 | compaction 1, custom 10, session 1, thinking_level_change 1"
    );
    assert_eq!((session.active_branch().len(), history(session, false), history(session, true)), (52, 42, 24));
}

#[test]
fn a_pi_session_with_two_compactions() {
    let Some(imported) = read("pi-before-compaction.jsonl") else { return };
    assert_eq!((imported.format, imported.lost), (Format::OpenClaw { version: 1 }, 0));
    let session = &imported.sessions[0];
    assert_eq!(
        counts(session),
        "assistant 484, bashExecution 3, toolResult 448, user 55 | \
         compaction 2, model_change 5, session 1, thinking_level_change 5"
    );
    assert_eq!((history(session, false), history(session, true)), (990, 446));
}

#[test]
fn a_pi_session_with_aborted_replies() {
    let Some(imported) = read("pi-large-session.jsonl") else { return };
    let session = &imported.sessions[0];
    assert_eq!(
        counts(session),
        "assistant 453, toolResult 373, user 88 | model_change 1, session 1, thinking_level_change 103"
    );
    assert_eq!((history(session, false), history(session, true)), (914, 914));
}

#[test]
fn a_single_message() {
    let Some(imported) = read("pi-thinking-message.json") else { return };
    assert_eq!((imported.sessions.len(), counts(&imported.sessions[0]).as_str()), (1, "assistant 1 | "));
}

#[test]
fn two_hundred_dialogues_in_one_file() {
    let Some(mut imported) = read("taubench-gpt4o-airline.json") else { return };
    assert_eq!((imported.format, imported.sessions.len(), imported.lost), (Format::Chat, 200, 0));
    let ids: std::collections::HashSet<&str> = imported.sessions.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids.len(), 200);
    assert!(imported.sessions.iter().all(|s| s.system.is_some() && s.meta.contains_key("reward")));
    let messages: u64 = imported.sessions.iter().map(|s| s.counts.total_messages()).sum();
    let skipped: u64 = imported.sessions.iter().map(|s| s.counts.total_skipped()).sum();
    assert_eq!((messages, skipped), (5_108, 200));
    let first = &mut imported.sessions[0];
    first.count_tokens(&TokenCounter::for_model(first.model.as_deref()));
    assert!(first.history(HistoryOptions::default()).messages.iter().all(|m| m.tokens > 0));
}

/// Calls without a result and results without a call, on the branch that is played.
fn orphans(session: &RecordedSession) -> (usize, usize) {
    let history = session.history(HistoryOptions::default());
    let ids = |of: fn(&Message) -> Vec<&str>| history.messages.iter().flat_map(|m| of(m)).collect::<HashSet<&str>>();
    let calls = ids(|m| m.tool_calls().map(|call| call.id.as_str()).collect());
    let results = ids(|m| if m.role == Role::TOOL_RESULT { vec![m.tool_call_id.as_str()] } else { vec![] });
    (calls.difference(&results).count(), results.difference(&calls).count())
}

/// The numbers were counted by another program from the same files.
#[test]
fn sessions_of_other_agents() {
    type Expected = (&'static str, Format, u64, &'static str, usize, (usize, usize));
    let expected: [Expected; 8] = [
        (
            "entire-cc-3compactions.jsonl",
            Format::ClaudeCode,
            893,
            "assistant 226, toolResult 206, user 50 | \
             compaction 3, file-history-snapshot 55, joined 292, meta 1, summary 3, system 57",
            482,
            (0, 0),
        ),
        (
            "entire-cc-images-longline.jsonl",
            Format::ClaudeCode,
            362,
            "assistant 47, toolResult 58, user 2 | \
             file-history-snapshot 6, joined 64, progress 177, queue-operation 6, system 2",
            107,
            (0, 0),
        ),
        (
            // Two messages are on a branch that was left: the session was ended, and gone on with from before that.
            "entire-cc-parallel.jsonl",
            Format::ClaudeCode,
            902,
            "assistant 185, toolResult 196, user 36 | compaction 1, file-history-snapshot 35, joined 150, meta 1, \
             progress 256, queue-operation 4, system 42",
            415,
            (0, 0),
        ),
        (
            // A piece of a session: it begins behind a call, and ends before a result.
            "entire-cc-tiny-turns-huge-bytes.jsonl",
            Format::ClaudeCode,
            42,
            "assistant 3, toolResult 3 | joined 2, progress 34",
            6,
            (1, 1),
        ),
        (
            // Made by hand: two calls have no result. Four of its 19 lines are no records.
            "cclog-edge-cases.jsonl",
            Format::ClaudeCode,
            15,
            "assistant 4, toolResult 1, user 7 | no message 2, summary 1",
            12,
            (2, 0),
        ),
        ("entire-gemini-1.json", Format::GeminiCli, 13, "assistant 11, toolResult 9, user 1 | info 1", 21, (0, 0)),
        (
            "sweagent-function-calling.traj",
            Format::SweAgent,
            41,
            "assistant 13, toolResult 13, user 1 | system 1, trajectory 13",
            27,
            (0, 0),
        ),
        (
            // One of its actions was not recorded.
            "openhands-sdk-events.jsonl",
            Format::OpenHands,
            10,
            "assistant 2, toolResult 3 | ConversationStateUpdateEvent 5",
            5,
            (0, 1),
        ),
    ];
    for (name, format, records, counted, played, unpaired) in expected {
        let Some(imported) = read(name) else { return };
        assert_eq!((imported.format, imported.sessions.len()), (format, 1), "{name}");
        let session = &imported.sessions[0];
        assert_eq!(counts(session), counted, "{name}");
        assert_eq!(session.counts.records - session.counts.split, records, "{name}");
        assert_eq!((history(session, false), orphans(session)), (played, unpaired), "{name}");
        assert_eq!(imported.lost, if name == "cclog-edge-cases.jsonl" { 4 } else { 0 });
    }
}

/// The messages that are played, each to the letter, and the place of those that are not.
fn told(session: &RecordedSession) -> Vec<String> {
    let played = session.history(HistoryOptions::default()).messages;
    let all = session.entries.iter().filter_map(|e| Some((e, e.message().or_else(|| e.summary())?)));
    let line = |m: &Message| format!("{} {} {:?} {}", m.id, m.timestamp_ms, m.flags, m.json);
    let places = all.map(|(e, m)| format!("{:?} {}", e.parent_id, line(m)));
    played.iter().map(|m| line(m)).chain(places).collect()
}

#[test]
fn a_session_that_is_written_is_read_again_to_the_letter() {
    for name in [
        "cclog-edge-cases.jsonl",
        "entire-cc-3compactions.jsonl",
        "entire-cc-images-longline.jsonl",
        "entire-cc-parallel.jsonl",
        "entire-cc-tiny-turns-huge-bytes.jsonl",
        "entire-gemini-1.json",
        "openclaw-v3-shape.jsonl",
        "openhands-sdk-events.jsonl",
        "pi-before-compaction.jsonl",
        "pi-large-session.jsonl",
        "pi-thinking-message.json",
        "sweagent-function-calling.traj",
        "taubench-gpt4o-airline.json",
    ] {
        let Some(imported) = read(name) else { return };
        for session in &imported.sessions {
            let written = session.to_openclaw();
            let again = load_bytes("again.jsonl", written.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((again.format, again.sessions.len(), again.lost), (Format::OpenClaw { version: 3 }, 1, 0));
            assert!(again.warnings.is_empty(), "{name}: {:?}", again.warnings);
            let read = &again.sessions[0];
            assert_eq!((&read.id, &read.system, &read.cwd), (&session.id, &session.system, &session.cwd), "{name}");
            assert_eq!(read.model, session.model, "{name}");
            for (was, is) in told(session).iter().zip(told(read).iter()) {
                assert_eq!(was, is, "{name}");
            }
            assert_eq!(told(session).len(), told(read).len(), "{name}");
            assert_eq!(history(read, true), history(session, true), "{name}");
            assert_eq!(read.to_openclaw(), written, "{name}: written again");
        }
    }
}
