//! Histories written as letters (`u` user, `a` assistant, `r` tool result, `s` summary), read back across chunks.
//!
//! Message `i` has id `i`, costs `i % 10` tokens and holds `i % 4` blocks with the texts `i.0`, `i.1`, …

use std::fmt::Write;

use abi_stable::std_types::RStr;

use super::*;
use crate::{BlockFlags, BlockKind, MessageFlags, Role, Span};

struct Source {
    id: String,
    role: Role,
    tokens: u64,
    texts: Vec<String>,
}

impl ViewSource for Source {
    fn view<'a>(&'a self, blocks: &mut Vec<BlockView<'a>>) -> MessageView<'a> {
        let block = |text: &'a String| BlockView {
            kind: BlockKind::TEXT,
            flags: BlockFlags::default(),
            id: "".into(),
            name: "".into(),
            text: text.as_str().into(),
            raw: "".into(),
            reserved: 0,
        };
        blocks.extend(self.texts.iter().map(block));
        MessageView {
            id: self.id.as_str().into(),
            role: self.role,
            flags: MessageFlags::default(),
            timestamp_ms: 0,
            tokens: self.tokens,
            tool_call_id: "".into(),
            tool_name: "".into(),
            blocks: RSlice::EMPTY,
            json: "".into(),
            reserved: [0; 2],
        }
    }
}

/// The first `len` messages of `letters` said over and over. The sources are gone when this returns: what is read
/// afterwards lives because the chunks own it.
fn history(letters: &str, len: usize) -> ViewChunks {
    let source = |(at, letter): (usize, char)| {
        let role = match letter {
            'u' => Role::USER,
            'a' => Role::ASSISTANT,
            'r' => Role::TOOL_RESULT,
            's' => Role::COMPACTION_SUMMARY,
            other => panic!("no role {other}"),
        };
        let texts = (0..at % 4).map(|block| format!("{at}.{block}")).collect();
        Arc::new(Source { id: at.to_string(), role, tokens: at as u64 % 10, texts })
    };
    let sources: Vec<Arc<Source>> = letters.chars().cycle().take(len).enumerate().map(source).collect();
    ViewChunks::build(&sources)
}

/// `start..end` of each span, newest first; `(tokens)` behind it.
fn shown(spans: impl Iterator<Item = Span>) -> String {
    spans.fold(String::new(), |mut text, Span { range, tokens }| {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{}..{}({tokens})", range.start, range.end).expect("a string takes all");
        text
    })
}

#[test]
fn messages_are_found_by_index_across_chunks() {
    for (len, expected) in [
        (0, ""),
        (1, "0+1"),
        (255, "0+255"),
        (256, "0+256"),
        (257, "0+256 256+1"),
        (600, "0+256 256+256 512+88"),
        (768, "0+256 256+256 512+256"),
    ] {
        let chunks = history("ua", len);
        let index = chunks.index();
        let messages = index.messages();
        let starts: Vec<String> =
            messages.chunks().iter().map(|chunk| format!("{}+{}", chunk.start, chunk.messages.len())).collect();
        assert_eq!(starts.join(" "), expected);
        assert_eq!((messages.len(), messages.is_empty(), chunks.len()), (len, len == 0, len));

        let ids: Vec<String> = (0..len).map(|at| at.to_string()).collect();
        let by_index: Vec<&str> = (0..len).map_while(|at| messages.get(at)).map(|m| m.id.as_str()).collect();
        let forwards: Vec<&str> = messages.iter().map(|m| m.id.as_str()).collect();
        let mut backwards: Vec<&str> = messages.iter().rev().map(|m| m.id.as_str()).collect();
        backwards.reverse();
        assert_eq!((&by_index, &forwards, &backwards), (&forwards, &backwards, &by_index));
        assert_eq!(forwards, ids);
        assert_eq!(messages.last().map(|m| m.id.as_str()), ids.last().map(String::as_str));
        for past in [len, len + 1, len + CHUNK_LEN, usize::MAX] {
            assert!(messages.get(past).is_none(), "{past} of {len}");
        }
    }
}

#[test]
fn every_message_has_its_own_blocks() {
    let chunks = history("uar", 600);
    let index = chunks.index();
    for (at, message) in index.messages().iter().enumerate() {
        let texts: Vec<&str> = message.blocks.iter().map(|block| block.text.as_str()).collect();
        let expected: Vec<String> = (0..at % 4).map(|block| format!("{at}.{block}")).collect();
        assert_eq!(texts, expected, "message {at}");
    }
}

#[test]
fn turns_and_groups_go_from_newest_to_oldest() {
    #[track_caller]
    fn check(letters: &str, turns: &str, groups: &str) {
        let chunks = history(letters, letters.len());
        let index = chunks.index();
        let messages = index.messages();
        assert_eq!((shown(messages.turns_rev()).as_str(), shown(messages.groups_rev()).as_str()), (turns, groups));
    }
    check("", "", "");
    check("u", "0..1(0)", "0..1(0)");
    check("uarra", "0..5(10)", "4..5(4) 1..4(6) 0..1(0)");
    check("uauaru", "5..6(5) 2..5(9) 0..2(1)", "5..6(5) 3..5(7) 2..3(2) 1..2(1) 0..1(0)");
    check("sua", "1..3(3) 0..1(0)", "2..3(2) 1..2(1) 0..1(0)");
    // A history that begins in the middle of a turn, or with a result whose call is gone.
    check("arua", "2..4(5) 0..2(1)", "3..4(3) 2..3(2) 0..2(1)");
    check("rrua", "2..4(5) 0..2(1)", "3..4(3) 2..3(2) 0..2(1)");
}

#[test]
fn turns_and_groups_cross_chunks_whole() {
    let chunks = history("uarraua", 700);
    let index = chunks.index();
    let messages = index.messages();
    assert_eq!(shown(messages.turns_rev().take(3)), "698..700(17) 693..698(25) 691..693(3)");
    // Message 256, the first of the second chunk, answers a question of the first.
    assert_eq!(shown(messages.turns_rev().filter(|turn| turn.range.contains(&256))), "252..257(20)");
    assert_eq!(shown(messages.groups_rev().filter(|group| group.range.contains(&255))), "253..256(12)");
    for spans in [messages.turns_rev().collect::<Vec<Span>>(), messages.groups_rev().collect()] {
        let mut end = 700;
        for span in &spans {
            assert_eq!(span.range.end, end, "spans leave nothing out");
            end = span.range.start;
        }
        assert_eq!((end, spans.iter().map(|span| span.tokens).sum::<u64>()), (0, 45 * 70));
    }
}

#[test]
fn appending_leaves_what_is_there_and_makes_no_empty_chunk() {
    let mut chunks = history("ua", 3);
    chunks.append::<Source>(&[]);
    assert_eq!((chunks.len(), chunks.index().messages().chunks().len()), (3, 1));
    let new = Source { id: "new".into(), role: Role::USER, tokens: 7, texts: vec!["hi".into()] };
    chunks.append(&[Arc::new(new)]);
    let index = chunks.index();
    let newest = index.messages().get(3).expect("the appended message");
    assert_eq!((newest.id.as_str(), newest.blocks[0].text.as_str()), ("new", "hi"));
}

/// Breaks the rule of `view`: empties what others pushed, and claims blocks of its own.
struct Vandal(Source);

impl ViewSource for Vandal {
    fn view<'a>(&'a self, blocks: &mut Vec<BlockView<'a>>) -> MessageView<'a> {
        const STRAY: &[BlockView<'static>] = &[BlockView {
            kind: BlockKind::TEXT,
            flags: BlockFlags(0),
            id: RStr::from_str(""),
            name: RStr::from_str(""),
            text: RStr::from_str("stray"),
            raw: RStr::from_str(""),
            reserved: 0,
        }];
        blocks.clear();
        blocks.push(STRAY[0]);
        MessageView { blocks: RSlice::from_slice(STRAY), ..self.0.view(&mut Vec::new()) }
    }
}

#[test]
fn a_source_that_breaks_the_rules_costs_blocks_only() {
    let vandal = |id: &str| Arc::new(Vandal(Source { id: id.to_owned(), role: Role::USER, tokens: 0, texts: vec![] }));
    let chunk = ViewChunk::build(["a", "b", "c"].map(vandal).to_vec());
    let blocks: Vec<usize> = chunk.views().iter().map(|view| view.blocks.len()).collect();
    assert_eq!(blocks, [1, 0, 0]);
}
