//! One test per public bug report that a transcript reader can repeat, named after what broke.

use context_engine_transcript::tokens::IMAGE_TOKENS;
use context_engine_transcript::{Encoding, Imported, Message, TokenCounter, load_bytes};
use serde_json::Value;

const HEADER: &str = r#"{"type":"session","version":3,"id":"s1","cwd":"/w"}"#;

fn load(bytes: &[u8]) -> Imported {
    load_bytes("2026-01-05T08-00-00-000Z_named.jsonl", bytes).expect("a session")
}

/// A user message of text `id`, child of `parent`.
fn record(id: &str, parent: &str) -> String {
    format!(r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"user","content":"{id}"}}}}"#)
}

/// Ids on the active branch.
fn branch(imported: &Imported) -> String {
    let ids: Vec<&str> = imported.sessions[0].active_branch().iter().map(|e| e.id.as_str()).collect();
    ids.join(" ")
}

fn warnings(imported: &Imported) -> Vec<String> {
    imported.warnings.iter().map(ToString::to_string).collect()
}

fn tokens(json: &str) -> u64 {
    let Ok(Value::Object(map)) = serde_json::from_str(json) else { panic!("not an object: {json}") };
    TokenCounter::new(Encoding::O200kBase).message(&Message::from_map("e", map).expect("a message"))
}

#[test]
fn b1_chinese_text_is_not_counted_by_a_rule_for_english() {
    let user = |text: &str| tokens(&format!(r#"{{"role":"user","content":"{text}"}}"#));
    let han: String = "请把昨天会议上讨论过的预算方案整理成一份简短的说明".chars().cycle().take(160).collect();
    let english: String =
        "please turn the budget plan we discussed into a short note ".chars().cycle().take(160).collect();
    assert!((90..=200).contains(&user(&han)), "{}", user(&han));
    assert!((25..=50).contains(&user(&english)), "{}", user(&english));
}

#[test]
fn b3_a_picture_costs_neither_its_base64_nor_nothing() {
    let result = |data: &str| {
        tokens(&format!(
            r#"{{"role":"toolResult","toolCallId":"c1","toolName":"shot","content":[{{"type":"image","data":"{data}","mimeType":"image/png"}}]}}"#
        ))
    };
    let (small, large) = (result("iVBORw0KGgo="), result(&"iVBORw0KGgoAAAAN".repeat(87_500)));
    assert_eq!(small, large);
    assert!((IMAGE_TOKENS..IMAGE_TOKENS + 20).contains(&large), "{large}");
}

#[test]
fn b6_a_picture_costs_the_same_in_every_carrier() {
    let data = "iVBORw0KGgoAAAAN".repeat(5_000);
    let user = |block: &str| tokens(&format!(r#"{{"role":"user","content":[{}]}}"#, block.replace("DATA", &data)));
    let image = user(r#"{"type":"image","data":"DATA","mimeType":"image/png"}"#);
    assert!(image > IMAGE_TOKENS);
    for carrier in [
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,DATA"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"DATA"}}"#,
        r#"{"type":"input_image","image_url":"data:image/png;base64,DATA"}"#,
        r#"{"type":"picture","source":{"type":"base64","data":"DATA"}}"#,
    ] {
        assert_eq!(user(carrier), image, "{carrier}");
    }
    // Not sent as a picture, and not as base64 either: its JSON with a mark in the data's place.
    for nested in [
        r#"{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","data":"DATA"}}]}"#,
        r#"{"type":"media","uri":"data:image/png;base64,DATA"}"#,
        r#"{"type":"blob","bytes":"DATA"}"#,
    ] {
        assert!((20..60).contains(&user(nested)), "{nested}: {}", user(nested));
    }
    let result = tokens(&format!(
        r#"{{"role":"toolResult","toolCallId":"","content":[{{"type":"image","data":"{data}","mimeType":"image/png"}}]}}"#
    ));
    assert!((image..image + 20).contains(&result), "{result}");

    let chat = format!(
        r#"[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}]"#
    );
    let mut imported = load(chat.as_bytes());
    imported.sessions[0].count_tokens(&TokenCounter::new(Encoding::O200kBase));
    assert_eq!(imported.sessions[0].entries[0].message().map(|m| m.tokens), Some(image));
}

#[test]
fn d1_records_behind_a_run_of_nul_bytes_are_used() {
    let nul = "\0".repeat(600);
    let text = format!(
        "{HEADER}\n{}\n{nul}{}\n{}\n{}",
        record("a", ""),
        record("b", "a"),
        record("c", "b"),
        "\0".repeat(143_000)
    );
    let imported = load(text.as_bytes());
    assert_eq!(branch(&imported), "a b c");
    assert_eq!(warnings(&imported), ["2 damaged lines (3, 5): 1 whole records recovered, 0 lost"]);
}

#[test]
fn d2_a_record_behind_a_cut_one_and_two_on_one_line_are_used() {
    let cut = r#"{"type":"message","id":"a","parentId":"z","message":{"role":"user","content":[{"type":"text","text":"whole"},{"type":"text","text":"hel"#;
    let glued = format!("{}{}", record("c", "b"), record("d", "c"));
    let text = [HEADER, &record("z", ""), &format!("{cut}{}", record("b", "a")), &glued].join("\n");
    let imported = load(text.as_bytes());
    assert_eq!(branch(&imported), "z b c d");
    assert_eq!(warnings(&imported), ["2 damaged lines (3, 4): 3 whole records recovered, 1 lost"]);
    assert_eq!((imported.lost, imported.sessions[0].counts.records), (1, 5));
    assert_eq!(imported.sessions[0].counts.mended.get("lost parent"), Some(&2), "that of z, and a");
}

#[test]
fn d3_a_damaged_header_costs_only_the_header() {
    let mut lines = vec![r#"{"type":"ses"#.to_owned()];
    lines.extend((0..50).map(|i| record(&format!("e{i}"), &format!("e{}", i - 1))));
    let imported = load(lines.join("\n").as_bytes());
    assert_eq!((imported.sessions[0].id.as_str(), imported.sessions[0].history_len()), ("named", 50));
    assert_eq!(
        warnings(&imported),
        [
            "1 damaged line (1): 0 whole records recovered, 1 lost",
            "no session header: the id was taken from the file's name"
        ]
    );
}

#[test]
fn d5_half_a_surrogate_pair_does_not_cost_the_record() {
    let record =
        r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"\ud83d\udd25\ud83d…"}}"#;
    let imported = load(format!("{HEADER}\n{record}\n").as_bytes());
    let message = imported.sessions[0].entries[0].message().expect("a message");
    assert_eq!(message.text(), "🔥\u{fffd}…");
    assert_eq!(warnings(&imported), ["1 line with half a surrogate pair (2): read with U+FFFD in place"]);
}

#[test]
fn d7_unreadable_lines_are_counted_and_named_in_one_warning() {
    let mut lines = vec![HEADER.to_owned()];
    lines.extend((2..=100).map(|line| match line {
        7 => "garbage".to_owned(),
        50 | 51 => r#"{"type":"message","id":"#.to_owned(),
        _ => record(&format!("e{line}"), "gone"),
    }));
    let imported = load(lines.join("\n").as_bytes());
    assert_eq!(warnings(&imported), ["3 damaged lines (7, 50, 51): 0 whole records recovered, 3 lost"]);
    let counts = &imported.sessions[0].counts;
    assert_eq!((counts.total_messages(), counts.total_skipped(), imported.lost), (96, 1, 3));
}

#[test]
fn a_file_cut_anywhere_or_with_any_byte_changed_is_read_or_refused_without_a_panic() {
    let lines =
        [HEADER, &record("a", ""), r#"{"type":"compaction","id":"k","parentId":"a","summary":"é\ud83d\udd25"}"#];
    let chat = r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]},{"role":"tool"}]"#;
    let others = [
        r#"{"type":"assistant","uuid":"a","parentUuid":null,"message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"n","input":{}}]}}
{"type":"user","uuid":"b","parentUuid":"a","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"x"},"y"]}}"#,
        r#"{"type":"response_item","payload":{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}}
{"type":"response_item","payload":{"type":"function_call_output","call_id":"c","output":{"success":false}}}"#,
        r#"{"sessionId":"s","projectHash":"h","messages":[{"id":"a","type":"gemini","content":"x","toolCalls":[{"id":"t","result":[]}]}]}"#,
        r#"{"history":[{"role":"tool","content":"a","tool_call_ids":["c"]}],"trajectory":[{}]}"#,
        r#"{"kind":"ActionEvent","source":"agent","tool_call":{"id":"c","function":{"name":"n"}},"thought":[]}"#,
        r#"[{"source":"agent","action":"run","args":{}},{"observation":"run","cause":0,"content":"x"}]"#,
        r#"[{"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"[]"}]}]"#,
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant",
    ];
    for text in [lines.join("\n").as_str(), chat].into_iter().chain(others) {
        for at in 0..text.len() {
            let _ = load_bytes("f", &text.as_bytes()[..at]);
            for byte in [b'\0', b'"', b'{', b'\n', 0xff] {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at] = byte;
                let _ = load_bytes("f", &bytes);
            }
        }
    }
}

trait HistoryLen {
    fn history_len(&self) -> usize;
}

impl HistoryLen for context_engine_transcript::RecordedSession {
    fn history_len(&self) -> usize {
        self.history(Default::default()).messages.len()
    }
}
