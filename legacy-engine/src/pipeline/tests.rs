//! Histories in, histories out. Public reports are named after what broke.

use super::*;
use crate::notation::{normal, parse, print};

#[track_caller]
fn check(given: &str, expected: &str) -> PipelineReport {
    check_for(given, expected, &PipelineOptions::default())
}

#[track_caller]
fn check_for(given: &str, expected: &str, options: &PipelineOptions) -> PipelineReport {
    let (once, report) = run(parse(given), options);
    assert_eq!(print(&once), normal(expected));
    let (twice, again) = run(once.clone(), options);
    assert_eq!(print(&twice), print(&once), "run twice");
    assert_eq!(again, PipelineReport::default(), "run twice");
    report
}

#[track_caller]
fn check_render(given: &str, expected: &str) -> RenderReport {
    let (out, report) = render(&parse(given));
    assert_eq!(print(&out), normal(expected));
    report
}

#[test]
fn a_history_in_order_stays_the_same_messages() {
    let given = parse(
        r#"U "hi"
           A [why/S1] "x" <c1:read {"path":"p"}> <c2:exec>
           R c1:read "out"
           R! c2:exec "no"
           A "done""#,
    );
    let (out, report) = run(given.clone(), &PipelineOptions::default());
    assert_eq!(report, PipelineReport::default());
    assert!(given.iter().zip(&out).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn what_says_nothing_goes() {
    let report = check(
        r#"K " "
           U- "not for the model"
           U "hi" "  "
           A! 
           A~ " "
           U "\n"
           A [only thought/S1]
           A "NO_REPLY"
           O img
           O "from another host""#,
        r#"U "hi"
           O "from another host""#,
    );
    assert_eq!((report.sanitize.excluded, report.sanitize.emptied, report.sanitize.blank_texts), (1, 7, 3));
}

#[test]
fn an_interrupted_reply_with_text_stays() {
    check(
        r#"U "hi"
           A~ "I was about to"
           U "go on""#,
        r#"U "hi"
           A~ "I was about to"
           U "go on""#,
    );
}

#[test]
fn a3_calls_of_an_interrupted_reply_go_with_their_results() {
    let report = check(
        r#"U "one"
           A~ "I will" <c1:read> <c2:read> <c3:read>
           R c1:read "out"
           U "two"
           A "x""#,
        r#"U "one" "two"
           A "x""#,
    );
    assert_eq!((report.pairs.dead_replies, report.pairs.dead_results), (1, 1));
}

#[test]
fn an_interrupted_first_half_does_not_make_the_merged_reply_look_interrupted() {
    check(
        r#"U "one"
           A~ "half"
           A "whole" <c1:read>
           R c1:read "out""#,
        r#"U "one"
           A "half" "whole" <c1:read>
           R c1:read "out""#,
    );
}

#[test]
fn a4_a_call_without_a_result_gets_one_that_says_so() {
    let report = check(
        r#"U "one"
           A <c1:read>
           U "two""#,
        &format!(
            r#"U "one"
               A <c1:read>
               R+ c1:read "{SYNTHETIC_RESULT}"
               U "two""#
        ),
    );
    assert_eq!(report.pairs.synthetic, 1);
}

#[test]
fn a6_ids_that_repeat_or_are_empty_pair_by_position() {
    let given = r#"U "one"
           A <call_0:read>
           R call_0:read "AAA"
           U "two"
           A <call_0:exec>
           R call_0:exec "BBB"
           U "three"
           A <:read>
           R '' "CCC""#;
    let report = check(
        given,
        r#"U "one"
           A <call_0:read>
           R call_0:read "AAA"
           U "two"
           A <call_88412f8abe7f7f2f:exec>
           R call_88412f8abe7f7f2f:exec "BBB"
           U "three"
           A <call_42802fa37c506168:read>
           R call_42802fa37c506168:read "CCC""#,
    );
    assert_eq!((report.pairs.new_ids, report.pairs.synthetic, report.pairs.orphans), (2, 0, 0));
}

#[test]
fn a6_blank_ids_on_one_side_only_pair_by_position_and_tool() {
    check(
        r#"U "one"
           A <c1:read> <c2:exec>
           R '':read "AAA"
           R '':exec "BBB""#,
        r#"U "one"
           A <c1:read> <c2:exec>
           R c1:read "AAA"
           R c2:exec "BBB""#,
    );
}

#[test]
fn a10_signed_thinking_is_whole_and_unsigned_absent() {
    let report = check(
        r#"U "one"
           A [signed/S1] [unsigned] "x" <c1:read>
           R c1:read "out""#,
        r#"U "one"
           A [signed/S1] "x" <c1:read>
           R c1:read "out""#,
    );
    assert_eq!(report.sanitize.unsigned_thinking, 1);
}

#[test]
fn a12_thinking_of_another_model_is_left_out_after_a_switch() {
    let options = PipelineOptions { model: Some("m2".into()), ..PipelineOptions::default() };
    let report = check_for(
        r#"U "one"
           A [t0] "a" @m1
           U "two"
           A [t1/S1] "b" @m1
           A [t2/S2] "c" @m2
           U "three"
           A [t3/S3] "d""#,
        r#"U "one"
           A "a" @m1
           U "two"
           A "b" [t2/S2] "c" @m2
           U "three"
           A [t3/S3] "d""#,
        &options,
    );
    assert_eq!((report.sanitize.unsigned_thinking, report.sanitize.foreign_thinking), (1, 1));
}

#[test]
fn a13_results_of_a_batch_stand_in_call_order() {
    check(
        r#"U "one"
           A <c1:a> <c2:b> <c3:c>
           R c1:a "1"
           U "meanwhile"
           R c3:c "3"
           R c2:b "2"
           U "two""#,
        r#"U "one"
           A <c1:a> <c2:b> <c3:c>
           R c1:a "1"
           R c2:b "2"
           R c3:c "3"
           U "meanwhile" "two""#,
    );
}

#[test]
fn results_nobody_asked_for_go_and_strays_find_their_call() {
    let report = check(
        r#"R c0:read "before any call"
           U "one"
           A <c1:read>
           U "two"
           A <c2:read>
           R c2:read "2"
           R c2:read "2 again"
           R c1:read "late"
           R c9:read "whose?""#,
        r#"U "one"
           A <c1:read>
           R c1:read "late"
           U "two"
           A <c2:read>
           R c2:read "2""#,
    );
    assert_eq!((report.pairs.orphans, report.pairs.extras, report.pairs.moved), (2, 1, 1));
}

#[test]
fn a_real_result_replaces_a_made_up_one() {
    check(
        r#"U "one"
           A <c1:read>
           R! c1:read "[openclaw] missing tool result in session history; inserted synthetic error result for transcript repair."
           R c1:read "real""#,
        r#"U "one"
           A <c1:read>
           R c1:read "real""#,
    );
}

#[test]
fn a_call_is_worth_more_than_its_name() {
    let report = check(
        r#"U "one"
           A <c1:läs> <c2:> <c3:fs.read> <c4:läs>
           R c1:read "1"
           R c2 "2"
           R c3:fs.read "3""#,
        r#"U "one"
           A <c1:read> <c2:unknown> <c3:fs.read>
           R c1:read "1"
           R c2:unknown "2"
           R c3:fs.read "3""#,
    );
    assert_eq!((report.pairs.renamed, report.pairs.unnamed_calls), (2, 1));
}

#[test]
fn a_call_without_arguments_gets_an_empty_object() {
    let report = check(
        r#"U "one"
           A <c1:read -> <c2:read "{\"path\":\"p\"}"> <c3:read "{\"pa">
           R c1:read "1"
           R c2:read "2"
           R c3:read "3""#,
        r#"U "one"
           A <c1:read> <c2:read {"path":"p"}> <c3:read {"input":"{\"pa"}>
           R c1:read "1"
           R c2:read "2"
           R c3:read "3""#,
    );
    assert_eq!(report.sanitize.mended_arguments, 3);
}

#[test]
fn arguments_that_are_null_or_no_object_were_sent_as_they_are() {
    let report = check(
        r#"U "one"
           A <c1:read null> <c2:read [1,null]> <c3:read 7> <c4:read {}> <c5:arguments ->
           R c1:read "1"
           R c2:read "2"
           R c3:read "3"
           R c4:read "4"
           R c5:arguments "5""#,
        r#"U "one"
           A <c1:read> <c2:read {"input":[1,null]}> <c3:read {"input":7}> <c4:read> <c5:arguments>
           R c1:read "1"
           R c2:read "2"
           R c3:read "3"
           R c4:read "4"
           R c5:arguments "5""#,
    );
    assert_eq!(report.sanitize.mended_arguments, 4);
}

#[test]
fn a_message_dated_by_its_entry_lost_its_date_when_it_was_changed() {
    let dated = |text: &str| -> Vec<Arc<Message>> {
        let dates = (1..).zip(parse(text));
        dates.map(|(at, m)| Arc::new(Message { timestamp_ms: at, ..Message::clone(&m) })).collect()
    };
    let (out, _) =
        run(dated("U \"one\"\nU \"two\"\nA \"a\"\nA <:read null>\nR '':read \"r\""), &PipelineOptions::default());
    assert_eq!(out.iter().map(|m| m.timestamp_ms).collect::<Vec<_>>(), [2, 3, 5]);
}

#[test]
fn private_fields_do_not_travel() {
    let json = r#"{"role":"toolResult","toolCallId":"c","toolName":"t","details":{"secret":1},"content":[{"type":"text","text":"\"details\""}]}"#;
    let serde_json::Value::Object(map) = serde_json::from_str(json).expect("JSON") else { unreachable!() };
    let mut message = Message::from_map("e1", map).expect("a message");
    message.tokens = 7;
    let (out, report) = sanitize(vec![Arc::new(message)], None);
    assert!(!out[0].json.contains("secret"));
    assert_eq!((out[0].tokens, report.stripped), (7, 1), "the cost is that of the content");
    assert_eq!(sanitize(out, None).1, SanitizeReport::default());
}

#[test]
fn neighbours_merge_and_repeats_count_once() {
    let report = check(
        r#"U "one"
           U "one"
           U "two" img
           A "a"
           A "b" <c1:read>
           R c1:read "1"
           A "c"
           C "note"
           A "d""#,
        r#"U "one" "two" img
           A "a" "b" <c1:read>
           R c1:read "1"
           A "c"
           C "note"
           A "d""#,
    );
    let validate = &report.validate;
    assert_eq!((validate.repeated_users, validate.merged_users, validate.merged_assistants), (1, 1, 1));
}

#[test]
fn a_merged_message_keeps_the_first_ones_id() {
    let (out, _) = run(parse("U \"one\"\nU \"two\""), &PipelineOptions::default());
    assert_eq!(out[0].id, "e1");
}

#[test]
fn e10_the_same_text_with_replies_in_between_stays_as_often() {
    let given = "U \"ok\"\nA \"ok\"\n".repeat(30);
    check(&given, &given);
}

#[test]
fn e7_forty_empty_heartbeats_go_the_alert_and_the_persons_text_stay() {
    let pairs = "Uh \"heartbeat?\"\nA \"HEARTBEAT_OK\"\n".repeat(20);
    let given = format!(
        "{pairs} Uh \"heartbeat?\"\n A <c1:read>\n R c1:read \"-\"\n A \"HEARTBEAT_OK nothing new\"\n\
         Uh \"heartbeat?\"\n A \"The disk is full\"\n U \"HEARTBEAT_OK\"\n A \"HEARTBEAT_OK?\"\n {pairs}"
    );
    let report = check(
        &given,
        r#"Uh "heartbeat?"
           A "The disk is full"
           U "HEARTBEAT_OK"
           A "HEARTBEAT_OK?""#,
    );
    assert_eq!(report.heartbeat.turns, 41);
}

#[test]
fn a_persons_text_merged_into_an_unanswered_heartbeat_is_no_heartbeat() {
    check(
        r#"Uh "heartbeat?"
           U "please answer HEARTBEAT_OK"
           A "HEARTBEAT_OK""#,
        r#"U "heartbeat?" "please answer HEARTBEAT_OK"
           A "HEARTBEAT_OK""#,
    );
}

#[test]
fn the_history_limit_drops_in_batches_and_keeps_the_summary() {
    let history = |turns: usize| {
        let lines: String = (0..turns).map(|n| format!("U \"u{n}\"\nA \"a{n}\"\n")).collect();
        parse(&format!("K \"earlier\"\n{lines}"))
    };
    let kept = |turns: usize| {
        let (out, _) = limit(history(turns), Some(4));
        assert_eq!(out[0].role, context_engine_interface::Role::COMPACTION_SUMMARY);
        (out.len() - 1) / 2
    };
    assert_eq!((0..13).map(kept).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6]);
    assert_eq!(limit(history(9), None).0.len(), 19);
}

#[test]
fn a8_a_prompt_never_ends_in_a_reply() {
    let report = check_render(
        r#"K "so far"
           A "partial""#,
        &format!(
            r#"U "{}"
               A "partial"
               U+ "[continue]""#,
            summary_text("so far").replace('\n', "\\n")
        ),
    );
    assert_eq!((report.converted, report.fillers), (1, 1));
    check_render("A \"a\"", "U+ \"(session bootstrap)\"\nA \"a\"\nU+ \"[continue]\"");
    check_render("O img ", "U img");
    check_render("C ", "U+ \"[continue]\"");
    check_render("", "");
}

#[test]
fn a9_a_summary_before_a_user_message_joins_it_and_leaves_its_text_alone() {
    check_render(
        r#"K "so far"
           U "five"
           A "x"
           J "other branch"
           U "six""#,
        &format!(
            r#"U "{}" "five"
               A "x"
               U "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nother branch\n</summary>" "six""#,
            summary_text("so far").replace('\n', "\\n")
        ),
    );
}

#[test]
fn commands_are_told_with_a_fence_their_output_cannot_close() {
    check_render(
        "B \"cat x\" \"a\\n```\\nb\\n\"\nB \"true\" \"\"",
        "U \"Ran `cat x`\\n````\\na\\n```\\nb\\n````\" \"Ran `true`\\n(no output)\"",
    );
}

#[test]
fn only_what_a_model_needs_is_sent() {
    let map = serde_json::json!({"role":"assistant","api":"x","usage":{"input":1},"content":[{"type":"text","text":"a"}],"timestamp":5});
    let serde_json::Value::Object(map) = map else { unreachable!() };
    let mut message = Message::from_map("e1", map).expect("a message");
    message.tokens = 9;
    let given = [parse("U \"u\"")[0].clone(), Arc::new(message), parse("U \"u\"")[0].clone()];
    let (out, report) = render(&given);
    assert_eq!(out[1].json, r#"{"role":"assistant","timestamp":5,"content":[{"type":"text","text":"a"}]}"#);
    assert_eq!((out[1].tokens, report.reduced), (9, 1));
    assert!(Arc::ptr_eq(&out[0], &given[0]));
}

#[test]
fn pictures_older_than_three_completed_turns_become_a_text() {
    let history = parse(
        r#"U "one" img
           A "a1"
           U "two" img
           A <c1:read>
           R c1:read img
           A "a2"
           U "three"
           A "a3"
           U "four"
           A "a4"
           U "five""#,
    );
    let (recent, report) = image_view(history.clone(), Pictures::Recent);
    assert_eq!(report.removed, 1);
    assert_eq!(recent[0].text(), "one\n[image data removed - already processed by model]");
    assert!(recent[1..].iter().zip(&history[1..]).all(|(sent, recorded)| Arc::ptr_eq(sent, recorded)));
    let (seen, report) = image_view(history, Pictures::Seen);
    assert_eq!((report.removed, seen.iter().filter(|message| has_image(message)).count()), (3, 0));
}

#[test]
fn results_with_blank_ids_go_to_the_calls_of_their_tool() {
    for calls in ["<a:read> <b:exec>", "<:read> <:exec>"] {
        let history = format!("U \"go\"\nA {calls}\nR '':exec \"EXEC OUT\"\nR '':read \"FILE\"");
        let (out, report) = pair_repair(parse(&history));
        let said: Vec<(String, String)> =
            out[2..].iter().map(|result| (result.tool_name.clone(), result.text())).collect();
        let expected = [("read", "FILE"), ("exec", "EXEC OUT")].map(|(tool, text)| (tool.to_owned(), text.to_owned()));
        assert_eq!(said, expected, "{calls}");
        assert_eq!((report.synthetic, report.orphans), (0, 0), "{calls}");
    }
}

#[test]
fn a_result_that_only_changes_its_names_is_not_counted_again() {
    let mut history = parse("U \"go\"\nA <c1:read>\nR c1 \"out\"");
    Arc::make_mut(&mut history[2]).tokens = 9;
    let (out, _) = pair_repair(history);
    assert_eq!((out[2].tool_name.as_str(), out[2].tokens), ("read", 9));
}
