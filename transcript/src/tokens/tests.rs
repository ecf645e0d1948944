use super::*;
use crate::Message;
use crate::content::retold;
use context_engine_interface::{BlockKind, Role};
use serde_json::Value;

const O200K: TokenCounter = TokenCounter::new(Encoding::O200kBase);
const CL100K: TokenCounter = TokenCounter::new(Encoding::Cl100kBase);

fn message(json: &str) -> Message {
    let Ok(Value::Object(map)) = serde_json::from_str(json) else { panic!("not an object: {json}") };
    Message::from_map("e1", map).expect("a message")
}

fn tokens(json: &str) -> u64 {
    O200K.message(&message(json))
}

#[test]
fn ordinary_text_counts_as_tiktoken_counts_it() {
    let long = "Der Rückgabewert ist 42; siehe `src/lib.rs:17`.\n\n".repeat(2_000);
    let chinese = "上下文引擎会把较早的消息压缩成摘要，并保留最近的对话内容。".repeat(500);
    let samples = [
        "",
        " ",
        "Hello, world! It's 2026-01-05 08:00.",
        "fn main() {\n    println!(\"{}\", 1_000);\n}\n\n\n\t\tend   ",
        "名前を決めよう。설정 파일 ไม่พบไฟล์ नमस्ते दुनिया",
        "👩‍👩‍👧‍👦🇧🇷🔥 e\u{301}a\u{308}",
        "<|endoftext|>",
        &long,
        &chinese,
    ];
    for text in samples {
        for counter in [O200K, CL100K] {
            let plain = counter.encoding().bpe().encode_ordinary(text).len() as u64;
            assert_eq!(counter.text(text), plain, "{} of {text:.40}", counter.encoding());
        }
    }
}

/// Texts that tiktoken-rs is slow on or panics on, of about `len` bytes each.
fn pathological(len: usize) -> Vec<(&'static str, String)> {
    let mut seed = 88_172_645_463_325_252_u64;
    let mut random = |alphabet: &str| -> String {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            alphabet[(seed % alphabet.len() as u64) as usize]
        };
        (0..len).map(|_| next()).collect()
    };
    vec![
        ("letters", random("abcdefghijklmnopqrstuvwxyz")),
        ("base64", random("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")),
        ("signs", random("!#$%&()*+,-./:;<=>?@[]^_{|}~")),
        ("blanks", random(" \t\n\r")),
        ("marks", random("aé\u{301}!★𝕏 ")),
        ("spaces", " ".repeat(len)),
        ("newlines", "\n".repeat(len)),
        ("one letter", "a".repeat(len)),
        ("han", "字".repeat(len / 3)),
        ("rule", "=".repeat(len)),
        ("nul", "\0".repeat(len)),
    ]
}

#[test]
fn long_runs_are_at_most_two_percent_off() {
    for (name, text) in pathological(20_000) {
        for counter in [O200K, CL100K] {
            let plain = counter.encoding().bpe().encode_ordinary(&text).len() as f64;
            let off = (counter.text(&text) as f64 - plain).abs() / plain;
            assert!(off <= 0.02, "{name}: {:.1} % off in {}", off * 100.0, counter.encoding());
        }
    }
}

#[test]
fn a_megabyte_of_anything_is_counted_without_a_panic() {
    for (name, text) in pathological(1 << 20) {
        assert!(O200K.text(&text) > 0, "{name}");
    }
}

#[test]
fn what_is_sent_counts() {
    let text = |t: &str| O200K.text(t);
    let block = |cost: u64| MESSAGE_OVERHEAD + BLOCK_OVERHEAD + cost;
    for (json, expected) in [
        (r#"{"role":"user","content":"hello there"}"#, block(text("hello there"))),
        (r#"{"role":"user","content":[]}"#, MESSAGE_OVERHEAD),
        (
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"so it is","thinkingSignature":"c2lnbmVk"}],"usage":{"input":5}}"#,
            block(text("so it is")),
        ),
        (
            r#"{"role":"assistant","content":[{"type":"toolCall","id":"call_7","name":"read","arguments":{"path":"a.rs"}}]}"#,
            block(CALL_OVERHEAD + text("call_7") + text("read") + text(r#"{"path":"a.rs"}"#)),
        ),
        (
            r#"{"role":"toolResult","toolCallId":"call_7","toolName":"read","content":"fn main","details":{"x":"not sent"}}"#,
            block(CALL_OVERHEAD + text("call_7") + text("fn main")),
        ),
        (
            r#"{"role":"bashExecution","command":"ls -la","output":"total 0","exitCode":0}"#,
            MESSAGE_OVERHEAD + RETOLD_OVERHEAD + text("ls -la") + text("total 0"),
        ),
        (
            r#"{"role":"compactionSummary","summary":"it was so","tokensBefore":9}"#,
            MESSAGE_OVERHEAD + RETOLD_OVERHEAD + text("it was so"),
        ),
        (r#"{"role":"branchSummary","summary":"it was so"}"#, MESSAGE_OVERHEAD + RETOLD_OVERHEAD + text("it was so")),
        (
            r#"{"role":"user","content":[{"type":"audio","text":"spoken"}]}"#,
            block(text(r#"{"type":"audio","text":"spoken"}"#)),
        ),
        (
            r#"{"role":"toolResult","toolCallId":"c","toolName":"read","content":[]}"#,
            MESSAGE_OVERHEAD + CALL_OVERHEAD + EMPTY_RESULT + text("c"),
        ),
        (r#"{"role":"bashExecution","command":"ls","output":"x","excludeFromContext":true}"#, 0),
    ] {
        assert_eq!(tokens(json), expected, "{json}");
    }
}

#[test]
fn text_that_looks_like_data_is_text_where_it_is_sent_as_text() {
    let base64 = "iVBORw0KGgoAAAAN".repeat(500);
    let sent = tokens(&format!(r#"{{"role":"user","content":"data:image/png;base64,{base64}"}}"#));
    assert!(sent > IMAGE_TOKENS, "{sent}");
    let prose = tokens(r#"{"role":"user","content":[{"type":"odd","note":"data: one, two"}]}"#);
    assert!(prose < 30, "{prose}");
}

#[test]
fn a_long_word_in_an_unknown_block_counted_as_one_picture() {
    let block = |content: &str| {
        let block = format!(r#"{{"type":"tool_result","content":"{content}"}}"#);
        let sent = retold(Role::USER, BlockKind::OTHER, &block).expect("sent as text");
        let cost = tokens(&format!(r#"{{"role":"user","content":[{block}]}}"#));
        assert_eq!(cost, MESSAGE_OVERHEAD + BLOCK_OVERHEAD + O200K.text(&sent));
        cost
    };
    assert!(block(&"x".repeat(400_000)) > 40_000);
    assert!(block(&"abcDEF12".repeat(100_000)) < 60);
}

#[test]
fn many_messages_count_as_each_alone() {
    let messages: Vec<std::sync::Arc<Message>> = (0..1_000)
        .map(|i| std::sync::Arc::new(message(&format!(r#"{{"role":"user","content":"number {i} of many"}}"#))))
        .collect();
    let alone: Vec<u64> = messages.iter().map(|m| O200K.message(m)).collect();
    assert_eq!(O200K.count_all(&messages), alone);
    assert_eq!(O200K.counted((*messages[0]).clone()).tokens, alone[0]);
    assert_eq!(O200K.count_all::<Message>(&[]), Vec::<u64>::new());
}

#[test]
fn a_model_without_published_vocabulary_counts_as_o200k() {
    for (model, encoding) in [
        (None, Encoding::O200kBase),
        (Some("gpt-4o-mini"), Encoding::O200kBase),
        (Some("openai/gpt-4.1"), Encoding::O200kBase),
        (Some("claude-opus-4-5"), Encoding::O200kBase),
        (Some("gemini-3-pro"), Encoding::O200kBase),
        (Some("openai/GPT-4-turbo"), Encoding::Cl100kBase),
        (Some("gpt-4"), Encoding::Cl100kBase),
        (Some("gpt-3.5-turbo"), Encoding::Cl100kBase),
    ] {
        assert_eq!(TokenCounter::for_model(model).encoding(), encoding, "{model:?}");
    }
}
