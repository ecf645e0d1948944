//! Sessions in, summaries out.

use std::sync::Arc;

use context_engine_interface::ViewChunks;
use context_engine_transcript::Message;
use proptest::prelude::*;

use super::*;
use crate::notation::parse;

fn read(messages: &[Arc<Message>], previous: Option<&str>) -> Digest {
    let chunks = ViewChunks::build(messages);
    Digest::read(chunks.index().messages().iter(), previous)
}

#[track_caller]
fn check(transcript: &str, previous: Option<&str>, expected: &str) {
    let summary = read(&parse(transcript), previous).write(4_000);
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(summary, expected.join("\n").trim());
}

/// The items under one heading.
fn items(summary: &str, heading: &str) -> Vec<String> {
    let lines = summary.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

#[test]
fn what_was_asked_decided_done_and_left_open() {
    check(
        r#"U "Please mend the crash in src/net/pool.rs. Never touch src/net/tls.rs!"
           A "I will look at it." <c1:read {"path":"src/net/pool.rs"}> <c2:read {"path":"Cargo.toml"}>
           R c1:read "fn acquire() {}"
           R c2:read "[package]"
           A "The root cause is that `acquire` counts twice." <c3:edit {"path":"src/net/pool.rs","oldText":"a","newText":"b"}> <c4:bash {"command":"cargo test -p net"}>
           R c3:edit "ok"
           R! c4:bash "running 3 tests\nerror: test pool::twice failed\nCommand exited with code 101"
           A "Done! The crash is mended in commit 3fa9c1d. Next steps:\n- [ ] update the changelog\n- [x] mend the crash"
           U "And what does the CI say on https://ci.example.com/run/88?""#,
        None,
        r#"## Goal
           - Please mend the crash in src/net/pool.rs. Never touch src/net/tls.rs!

           ## Decisions
           - The root cause is that `acquire` counts twice.

           ## Open TODOs
           - update the changelog

           ## Constraints/Rules
           - Never touch src/net/tls.rs!

           ## Pending user asks
           - And what does the CI say on https://ci.example.com/run/88?

           ## Exact identifiers
           - src/net/tls.rs
           - 3fa9c1d
           - https://ci.example.com/run/88

           ## Progress
           - Please mend the crash in src/net/pool.rs. Never touch src/net/tls.rs! → The crash is mended in commit 3fa9c1d. Next steps: [ ] update the changelog [x] mend the crash (1 bash, 1 edit, 2 read)
           - And what does the CI say on https://ci.example.com/run/88?

           ## Failures
           - bash: cargo test -p net failed: error: test pool::twice failed

           ## Files modified
           - src/net/pool.rs

           ## Files read
           - Cargo.toml"#,
    );
}

#[test]
fn an_earlier_summary_is_carried_over_and_not_summarised() {
    let earlier = "## Goal\n- Port the parser\n\n## Decisions\n- We chose nom 7.1\n\n## Pending user asks\n- Is v2.0.1 out?\n\n\
                   ## Exact identifiers\n- v2.0.1\n\n## Files modified\n- src/a.rs";
    check(
        r#"A "Yes, v2.0.1 is out."
           U "Then port src/b.rs as well."
           A <c1:write {"path":"src/b.rs","content":"x"}>
           R c1:write "ok""#,
        Some(earlier),
        r#"## Goal
           - Port the parser
           - Then port src/b.rs as well.

           ## Decisions
           - We chose nom 7.1

           ## Open TODOs
           - (none)

           ## Constraints/Rules
           - (none)

           ## Pending user asks
           - Then port src/b.rs as well.

           ## Exact identifiers
           - v2.0.1

           ## Progress
           - Is v2.0.1 out?
           - Yes, v2.0.1 is out.
           - Then port src/b.rs as well. (1 write)

           ## Files modified
           - src/a.rs
           - src/b.rs"#,
    );
}

#[test]
fn a_model_s_summary_in_another_form_is_carried_as_lines() {
    let summary =
        read(&parse("U \"hello there, agent\""), Some("The user wants X.\n\n# Notes\n1. keep /etc/hosts")).write(4_000);
    assert_eq!(items(&summary, "## Earlier summary"), ["The user wants X.", "Notes", "keep /etc/hosts"]);
}

#[test]
fn summarised_again_and_again_nothing_grows_and_nothing_repeats() {
    let turn = parse("U \"Always use port 8443 for api.example.com\"\nA \"We decided to use port 8443.\"");
    let mut summary = String::new();
    for _ in 0..5 {
        summary = read(&turn, Some(&summary)).write(2_000);
    }
    assert_eq!(items(&summary, "## Constraints/Rules"), ["Always use port 8443 for api.example.com"]);
    assert_eq!(items(&summary, "## Progress").len(), 1);
    assert_eq!(summary, read(&turn, Some(&summary)).write(2_000));
}

#[test]
fn a_retry_that_went_well_is_no_failure() {
    let given = r#"U "build it please, all of it"
        A <c1:bash {"command":"make all"}>
        R! c1:bash "error: no rule"
        A <c2:bash {"command":"make all"}>
        R c2:bash "ok""#;
    let summary = read(&parse(given), None).write(4_000);
    assert!(items(&summary, "## Failures").is_empty());
    assert_eq!(items(&summary, "## Actions taken"), ["bash: make all"]);
}

#[test]
fn what_a_tool_changed_is_told_with_what_came_back() {
    let given = r#"U "Book HAT136 for mia_li_3668, economy"
        A <c1:get_user {"user_id":"mia_li_3668"}> <c2:book {"flight":"HAT136","user_id":"mia_li_3668"}>
        R c1:get_user "{}"
        R c2:book "{\"reservation_id\": \"HATHAT\"}""#;
    let summary = read(&parse(&given.replace("\\\"", "'")), None).write(4_000);
    assert_eq!(
        items(&summary, "## Actions taken"),
        ["book(flight=HAT136, user_id=mia_li_3668) → {'reservation_id': 'HATHAT'}"]
    );
    assert_eq!(items(&summary, "## Exact identifiers"), ["HAT136", "mia_li_3668"]);
}

#[test]
fn sentences_of_languages_without_spaces_are_told_apart() {
    let given = "U \"请检查 src/登录/auth.rs 的登录流程。必须保留旧接口，不要删除任何测试！改完告诉我\"\nA \"根本原因是超时设置为 30 秒。我决定采用重试。下一步更新文档。\"";
    let summary = read(&parse(given), None).write(4_000);
    assert_eq!(items(&summary, "## Constraints/Rules"), ["必须保留旧接口，不要删除任何测试！"]);
    assert_eq!(items(&summary, "## Decisions"), ["根本原因是超时设置为 30 秒。", "我决定采用重试。"]);
    assert_eq!(items(&summary, "## Open TODOs"), ["下一步更新文档。"]);
}

#[test]
fn rules_are_heard_in_german_and_portuguese() {
    let given = "U \"Bitte niemals direkt auf main pushen. Nunca apague o arquivo dados.csv.\"\nA \"Als nächstes fehlt noch der Test.\"";
    let summary = read(&parse(given), None).write(4_000);
    assert_eq!(
        items(&summary, "## Constraints/Rules"),
        ["Bitte niemals direkt auf main pushen.", "Nunca apague o arquivo dados.csv."]
    );
    assert_eq!(items(&summary, "## Open TODOs"), ["Als nächstes fehlt noch der Test."]);
}

#[test]
fn heartbeats_and_fillers_are_not_told() {
    let given = "Uh \"Read HEARTBEAT.md and act on it\"\nA \"HEARTBEAT_OK\"\nU+ \"[continue]\"";
    let summary = read(&parse(given), None).write(4_000);
    assert_eq!(summary.matches("HEARTBEAT").count() + summary.matches("continue").count(), 0, "{summary}");
}

#[test]
fn d5_nothing_is_cut_inside_a_name_a_number_or_a_character() {
    let cut = |text: &str, max| text::shorten(text, max);
    assert_eq!(cut("see src/very/long/path.rs now", 12), "see…");
    assert_eq!(cut("see src/very/long/path.rs now", 26), "see src/very/long/path.rs…");
    assert_eq!(cut("wait 30 seconds, then 500 MB more", 23), "wait 30 seconds, then…");
    assert_eq!(cut("wait 30 min or so, longer", 9), "wait…");
    assert_eq!(cut("the \"blue green deploy\" is on", 20), "the…");
    assert_eq!(cut("打开 https://example.com/a/b 看看", 12), "打开…");
    assert_eq!(cut("一二三四五六", 5), "一二三四…");
    assert_eq!(cut("x".repeat(5_000_000).as_str(), 100), "");
    for max in 0..12 {
        for text in ["aaaa🎉", "🇧🇷🇧🇷🇧🇷 x", "👨‍👩‍👧‍👦 family", "e\u{301}e\u{301} x", "𠜎𠜱𠝹 x"]
        {
            assert!(cut(text, max).chars().count() <= max, "{text} {max}");
        }
    }
}

#[test]
fn identifiers_are_kept_to_the_letter() {
    let found = |text: &str| {
        let mut identifiers = identifiers::Identifiers::default();
        identifiers.read(text, identifiers::USER);
        identifiers.best(50).join(" ")
    };
    for (text, expected) in [
        ("see ./a/b.ts, ../../core/x.js and .env.local.", "./a/b.ts ../../core/x.js"),
        ("open **src/a.rs**: `src/**/*.rs` (or ~/.config/app.toml)!", "src/a.rs src/**/*.rs ~/.config/app.toml"),
        ("go to https://example.com/a?b=1&c=%20#d.", "https://example.com/a?b=1&c=%20#d"),
        ("commit 3fa9c1d of 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "3fa9c1d 1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
        ("ticket #4711, PROJ-123 for $1,200.50 and 15% of 16GB on May 20th", "#4711 PROJ-123 $1,200.50 15% 16GB"),
        ("set MAX_TOKENS=8, call `readFile()` but not `now`", "MAX_TOKENS=8 readFile()"),
        ("打开src/登录.rs，然后看/etc/hosts。src/a/b/登录/x.rs", "/etc/hosts"),
        ("mail a.b@example.com or host db-1.example.org:5432", "a.b@example.com db-1.example.org:5432"),
        ("and/or, e.g. this i.e. that. 3.5 x/y list.push", ""),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
}

#[test]
fn commands_that_only_look_are_no_actions() {
    let look = |command: &str| {
        let given = format!("U \"please look at it\"\nA <c1:bash {{\"command\":\"{command}\"}}>\nR c1:bash \"ok\"");
        items(&read(&parse(&given), None).write(4_000), "## Actions taken").is_empty()
    };
    for command in ["cd a && grep -n 'x\\\\|y>z' b | head -3", "git log -3; ls", "sed -n 1,5p a", "cat a 2>&1 | tail"] {
        assert!(look(command), "{command}");
    }
    for command in ["cd a && make", "echo x > a", "git commit -m 'ls'", "sed -i s/a/b/ c"] {
        assert!(!look(command), "{command}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_any_limit(texts in prop::collection::vec("(\\PC|[\n `*#.:\\[\\]!?-]){0,60}", 0..8), max in 0..2_000_usize) {
        let message = |(n, text): (usize, &String)| {
            let role = ["user", "assistant", "custom", "compactionSummary"][n % 4];
            let map = serde_json::json!({ "role": role, "summary": text, "content": text });
            let serde_json::Value::Object(map) = map else { unreachable!() };
            Arc::new(Message::from_map(format!("e{n}"), map).expect("a message"))
        };
        let messages: Vec<Arc<Message>> = texts.iter().enumerate().map(message).collect();
        let digest = read(&messages, texts.first().map(String::as_str));
        let summary = digest.write(max);
        prop_assert!(summary.chars().count() <= max);
        prop_assert_eq!(&summary, &read(&messages, texts.first().map(String::as_str)).write(max));
        // It can be read back and written again.
        prop_assert!(Items::parse(&summary).write(max).chars().count() <= max);
    }

    #[test]
    fn paths_are_whole_or_absent(max in 0..3_000_usize) {
        let lines: String = (0..30)
            .map(|n| format!("U \"Please never drop src/deep/module_{n}/file_{n}.rs from build {n}00 MB, it must stay\"\nA \"I decided to keep src/deep/module_{n}/file_{n}.rs\"\n"))
            .collect();
        let summary = read(&parse(&lines), None).write(max);
        for token in summary.split_whitespace().filter(|token| token.contains("src/")) {
            let token = token.trim_end_matches('…');
            prop_assert!(token.ends_with(".rs") && lines.contains(token), "{token}");
        }
    }
}
