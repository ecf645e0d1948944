use super::*;
use crate::Message;
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
