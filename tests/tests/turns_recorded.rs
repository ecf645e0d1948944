//! Real recorded sessions, driven through turns: what the person asked is asked again, the model says what it said, the
//! tools give what they gave.
//!
//! Decision: nothing of the sessions stands here. What is asserted holds for any session: every prompt is one that the
//! strictest provider takes and is within the budget, every word is in the transcript once and in its order, and the
//! transcript read again gives the same conversation.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use context_engine_interface::{BlockKind, Role};
use context_engine_loader::Creation;
use context_engine_runtime::model::{BoxFuture, ScriptedModel, Step, ToolSpec, request_tokens};
use context_engine_runtime::turn::{Tool, ToolCall, ToolOutput};
use context_engine_runtime::{Runtime, RuntimeOptions, Session, TurnRequest};
use context_engine_tests::build::{example, library_name, workspace};
use context_engine_tests::host::TestHost;
use context_engine_tests::skip;
use context_engine_transcript::store::SessionHeader;
use context_engine_transcript::{HistoryOptions, Message, RecordedSession, TokenCounter, load};
use serde_json::{Value, json};

/// A turn as it is driven: what is asked, and what the model says to it, reply by reply.
struct Recorded {
    asked: Vec<Value>,
    replies: Vec<Vec<Arc<Message>>>,
}

/// What the tools gave, by call.
type Results = Arc<Mutex<HashMap<String, VecDeque<ToolOutput>>>>;

/// A tool that gives what it once gave.
struct Replayed {
    spec: ToolSpec,
    results: Results,
}

impl Tool for Replayed {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, ToolOutput> {
        let recorded = self.results.lock().expect("results").get_mut(call.id).and_then(VecDeque::pop_front);
        Box::pin(async { recorded.unwrap_or_else(|| ToolOutput::error("nothing was recorded")) })
    }
}

fn content(message: &Message) -> Vec<Value> {
    match message.to_value()["content"].take() {
        Value::Array(blocks) => blocks,
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

/// The turns of a session, and what its tools gave. A model ends its turn with a reply without calls; where the recorded
/// one went on, the next turn is asked for with a word.
fn turns(session: &RecordedSession) -> (Vec<Recorded>, HashMap<String, VecDeque<ToolOutput>>) {
    let mut turns: Vec<Recorded> = Vec::new();
    let mut results: HashMap<String, VecDeque<ToolOutput>> = HashMap::new();
    let mut between = true;
    for message in session.history(HistoryOptions::default()).messages {
        let ended = |turns: &[Recorded]| {
            let last = turns.last().and_then(|turn| turn.replies.last());
            last.is_some_and(|reply| !reply.iter().any(|part| part.tool_calls().next().is_some()))
        };
        match message.role {
            Role::USER if !content(&message).is_empty() => {
                turns.push(Recorded { asked: content(&message), replies: Vec::new() });
                between = true;
            }
            Role::ASSISTANT if !content(&message).is_empty() => {
                if turns.is_empty() || (between && ended(&turns)) {
                    turns.push(Recorded {
                        asked: vec![json!({ "type": "text", "text": "go on" })],
                        replies: Vec::new(),
                    });
                }
                let Some(turn) = turns.last_mut() else { continue };
                match turn.replies.last_mut().filter(|_| !between) {
                    Some(reply) => reply.push(message),
                    None => turn.replies.push(vec![message]),
                }
                between = false;
            }
            Role::TOOL_RESULT => {
                let is_error = message.to_value()["isError"] == true;
                let output = ToolOutput { content: content(&message), is_error, details: None };
                results.entry(message.tool_call_id.clone()).or_default().push_back(output);
                between = true;
            }
            _ => {}
        }
    }
    (turns, results)
}

/// A reply as a step of the script.
fn step(reply: &[Arc<Message>]) -> Step {
    let blocks = reply.iter().flat_map(|message| &message.blocks);
    blocks.fold(Step::default(), |step, block| match block.kind {
        BlockKind::TEXT => step.and_text(&*block.text),
        BlockKind::THINKING => step.and_thinking(&*block.text),
        BlockKind::TOOL_CALL => {
            let arguments = serde_json::from_str(&block.text).unwrap_or_else(|_| json!({}));
            step.and_call(&*block.id, &*block.name, arguments)
        }
        _ => step,
    })
}

/// What was said, as it must stand in the transcript: role, texts and calls.
fn said(messages: &[Arc<Message>]) -> Vec<String> {
    let blocks = |message: &Message| {
        let part = |block: &context_engine_transcript::Block| match block.kind {
            BlockKind::TEXT | BlockKind::THINKING => block.text.clone(),
            BlockKind::TOOL_CALL => format!("{} {}", block.id, block.name),
            _ => String::new(),
        };
        message.blocks.iter().map(part).collect::<Vec<_>>().join("\n")
    };
    messages.iter().map(|message| format!("{}: {}", message.role_name(), blocks(message))).collect()
}

fn drive(file: &str, engine: &str, window: u64, most_sessions: usize) {
    let folder: PathBuf = workspace().join("../shared/transcripts");
    if !folder.is_dir() {
        return skip(file, "the folder of recorded sessions");
    }
    let imported = load(&folder.join(file)).expect("a recorded session");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a tokio runtime");
    for session in imported.sessions.iter().take(most_sessions) {
        tokio.block_on(drive_session(session, engine, window));
    }
}

async fn drive_session(recorded: &RecordedSession, engine: &str, window: u64) {
    let host = TestHost::new();
    std::fs::copy(example("sliding-window"), host.plugins().join(library_name("sliding-window"))).expect("copied");
    let (turns, results) = turns(recorded);
    let results: Results = Arc::new(Mutex::new(results));
    let script: Arc<Mutex<VecDeque<Step>>> = Arc::default();
    let answers = Arc::clone(&script);
    let next = move |_: &_| answers.lock().expect("a script").pop_front().unwrap_or_else(|| Step::text("that is all"));
    let model = Arc::new(ScriptedModel::from_fn(next).window(window).strict_roles());
    let mut options = RuntimeOptions::new(host.loader(), Arc::clone(&model) as _);
    options.engine = engine.to_owned();
    options.creations = Arc::new(|_| Creation::default());
    options.system.text = recorded.system.clone();
    options.max_calls = 2_000;
    let runtime = Runtime::new(options);
    let path = host.root().join("driven.jsonl");
    let session = Session::create(&path, SessionHeader::default()).expect("a session");

    let mut expected: Vec<String> = Vec::new();
    let (mut asked, mut answered) = (0, 0);
    for turn in &turns {
        // The tools of the turn are those that it calls.
        let calls = turn.replies.iter().flatten().flat_map(|reply| reply.tool_calls());
        let names: std::collections::BTreeSet<String> = calls.map(|call| call.name.clone()).collect();
        let tools = names.into_iter().map(|name| {
            let spec = ToolSpec { name, description: String::new(), parameters: json!({ "type": "object" }) };
            Arc::new(Replayed { spec, results: Arc::clone(&results) }) as Arc<dyn Tool>
        });
        let mut request = TurnRequest { content: turn.asked.clone(), ..TurnRequest::default() };
        request.tools = Some(tools.collect());
        script.lock().expect("a script").extend(turn.replies.iter().map(|reply| step(reply)));
        let report = runtime.run_turn(&session, request, &mut |_| ()).await.expect("the turn begins");
        assert!(report.is_answered(), "turn {asked}: {:?}", report.end);
        assert_eq!((report.served_by.as_str(), report.why), (engine, None), "turn {asked}");
        asked += 1;
        answered += turn.replies.len();
        script.lock().expect("a script").clear();
        expected.push(said(&[user(&turn.asked)]).remove(0));
        expected.extend(turn.replies.iter().map(|reply| {
            let parts = said(reply)
                .iter()
                .map(|text| text.split_once(": ").map_or("", |(_, text)| text).to_owned())
                .collect::<Vec<_>>();
            format!("assistant: {}", parts.join("\n"))
        }));
    }

    let counter = TokenCounter::for_model(Some("scripted"));
    let budget = window - (window / 4).min(20_000);
    for (at, request) in model.requests().iter().enumerate() {
        let tokens = request_tokens(request, &counter);
        assert!(tokens <= budget, "call {at}: {tokens} of {budget} tokens");
    }
    assert!(model.requests().len() >= answered);

    // In the file, in order, once: each question and each reply, whatever became of the context.
    let written = load(&path).expect("the transcript").sessions.remove(0);
    let all = said(&written.history(HistoryOptions::default()).messages);
    let mut spoken = all.iter().filter(|line| !line.starts_with("toolResult") && *line != "assistant: that is all");
    for (at, line) in expected.iter().enumerate() {
        assert_eq!(spoken.next(), Some(line), "entry {at} of {}", expected.len());
    }
    assert_eq!(spoken.next(), None);

    let before = said(&session.messages());
    runtime.close().await;
    drop((runtime, session));
    let (session, report) = Session::open(&path).expect("the session");
    assert_eq!(report.damaged_lines, Vec::<u64>::new());
    assert!(said(&session.messages()) == before, "the conversation that is read again is another one");
}

fn user(content: &[Value]) -> Arc<Message> {
    let Value::Object(map) = json!({ "role": "user", "content": content }) else { unreachable!("an object") };
    Arc::new(Message::from_map("asked", map).expect("a message"))
}

#[test]
fn a_session_with_a_branch_and_a_compaction() {
    for engine in ["legacy", "sliding-window"] {
        drive("openclaw-v3-shape.jsonl", engine, 16_000, 1);
    }
}

#[test]
fn thinking_messages_in_a_small_window() {
    for engine in ["legacy", "sliding-window"] {
        drive("pi-thinking-message.json", engine, 8_000, 1);
    }
}

#[test]
fn many_tools_and_pictures() {
    drive("entire-cc-images-longline.jsonl", "legacy", 32_000, 1);
}

#[test]
fn parallel_calls() {
    drive("entire-cc-parallel.jsonl", "sliding-window", 32_000, 1);
}

#[test]
fn three_compactions_were_recorded() {
    drive("entire-cc-3compactions.jsonl", "legacy", 64_000, 1);
}

#[test]
fn few_turns_of_many_bytes() {
    for engine in ["legacy", "sliding-window"] {
        drive("entire-cc-tiny-turns-huge-bytes.jsonl", engine, 16_000, 1);
    }
}

#[test]
fn commands_that_were_run_and_replies_that_were_broken_off() {
    drive("pi-before-compaction.jsonl", "legacy", 32_000, 1);
    drive("pi-large-session.jsonl", "sliding-window", 32_000, 1);
}

#[test]
fn other_agents() {
    drive("entire-gemini-1.json", "legacy", 16_000, 1);
    drive("sweagent-function-calling.traj", "legacy", 16_000, 1);
    drive("openhands-sdk-events.jsonl", "sliding-window", 16_000, 1);
    drive("cclog-edge-cases.jsonl", "legacy", 16_000, 1);
}

#[test]
fn many_dialogues() {
    drive("taubench-gpt4o-airline.json", "legacy", 32_000, 10);
    drive("taubench-gpt4o-airline.json", "sliding-window", 32_000, 10);
}
