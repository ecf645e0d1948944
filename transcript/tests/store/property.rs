//! What holds for every session, however it came about: a model of a few lines, the store before and after it is opened
//! again, and the importer agree. And for every file, however damaged: the store and the importer do.

use std::collections::HashMap;

use context_engine_transcript::Format;
use context_engine_transcript::store::{NewEntry, SessionStore};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use crate::support::*;

#[derive(Debug, Clone)]
enum Op {
    Say(u8),
    SayAll(Vec<u8>),
    /// Keeps from an entry on, of whatever branch, or none.
    Compact(Option<Index>),
    Reset(Option<Index>),
    Note,
    Label(Index),
    BranchSummary(Index, bool),
    Branch(Option<Index>),
    Rewrite(Vec<(Index, u8)>),
    Open,
    /// A line that was cut off is found at the end of the file.
    Torn,
    /// Another program appends below an entry.
    Foreign(Option<Index>),
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<Index>;
    prop_oneof![
        6 => (0..9_u8).prop_map(Op::Say),
        2 => prop::collection::vec(0..9_u8, 0..4).prop_map(Op::SayAll),
        2 => prop::option::weighted(0.8, any()).prop_map(Op::Compact),
        1 => prop::option::of(any()).prop_map(Op::Reset),
        1 => Just(Op::Note),
        1 => any().prop_map(Op::Label),
        1 => (any(), proptest::bool::ANY).prop_map(|(from, speaks)| Op::BranchSummary(from, speaks)),
        3 => prop::option::weighted(0.9, any()).prop_map(Op::Branch),
        3 => prop::collection::vec((any(), 0..9_u8), 0..3).prop_map(Op::Rewrite),
        2 => Just(Op::Open),
        1 => Just(Op::Torn),
        1 => prop::option::weighted(0.9, any()).prop_map(Op::Foreign),
    ]
}

/// An entry, as far as context goes.
#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A message; only that can be replaced.
    Message(String),
    /// Another entry that is in context, with its text, or is not.
    Other(Option<String>),
    Compaction {
        summary: String,
        kept: Option<String>,
    },
    Reset {
        kept: Option<String>,
    },
}

#[derive(Debug, Clone)]
struct Node {
    id: String,
    parent: Option<String>,
    what: What,
}

#[derive(Debug, Default)]
struct Model {
    nodes: Vec<Node>,
    leaf: Option<String>,
}

impl Model {
    fn node(&self, id: &str) -> &Node {
        self.nodes.iter().find(|node| node.id == id).expect("an entry")
    }

    fn add(&mut self, id: &str, what: What) {
        self.nodes.push(Node { id: id.to_owned(), parent: self.leaf.clone(), what });
        self.leaf = Some(id.to_owned());
    }

    /// An entry of any branch.
    fn pick(&self, index: &Index) -> Option<String> {
        (!self.nodes.is_empty()).then(|| index.get(&self.nodes).id.clone())
    }

    fn branch(&self) -> Vec<&Node> {
        let mut branch = Vec::new();
        let mut next = self.leaf.as_deref();
        while let Some(id) = next {
            let node = self.node(id);
            branch.push(node);
            next = node.parent.as_deref();
        }
        branch.reverse();
        branch
    }

    fn context(&self) -> String {
        let branch = self.branch();
        let boundary =
            branch.iter().rposition(|node| matches!(node.what, What::Compaction { .. } | What::Reset { .. }));
        let mut texts = Vec::new();
        let mut first = 0;
        if let Some(at) = boundary {
            let (What::Compaction { kept, .. } | What::Reset { kept }) = &branch[at].what else { unreachable!() };
            let kept = kept.as_ref().and_then(|kept| branch[..at].iter().position(|node| node.id == *kept));
            first = kept.unwrap_or(at);
            if let What::Compaction { summary, .. } = &branch[at].what {
                texts.push(format!("[{summary}]"));
            }
        }
        texts.extend(branch[first..].iter().filter_map(|node| match &node.what {
            What::Message(text) | What::Other(Some(text)) => Some(text.clone()),
            _ => None,
        }));
        texts.join(" ")
    }

    /// The branch from the first replaced message on again, under new ids.
    fn rewrite(&mut self, replaced: &HashMap<String, String>, new_ids: &HashMap<String, String>) -> usize {
        let branch: Vec<Node> = self.branch().into_iter().cloned().collect();
        let changes = |node: &Node| match (&node.what, replaced.get(&node.id)) {
            (What::Message(old), Some(new)) => old != new,
            _ => false,
        };
        let Some(first) = branch.iter().position(changes) else { return 0 };
        let new = |id: &Option<String>| id.as_ref().map(|id| new_ids.get(id).unwrap_or(id).clone());
        self.leaf = branch[first].parent.clone();
        for node in &branch[first..] {
            let what = match &node.what {
                What::Message(_) if changes(node) => What::Message(replaced[&node.id].clone()),
                What::Compaction { summary, kept } => What::Compaction { summary: summary.clone(), kept: new(kept) },
                What::Reset { kept } => What::Reset { kept: new(kept) },
                same => same.clone(),
            };
            self.add(&new_ids[&node.id], what);
        }
        branch[first..].iter().filter(|node| changes(node)).count()
    }
}

/// The text of a user's message; short ones come again and again.
fn text(n: u8) -> String {
    ["x", "schön", "🔥", "\"\\", "\u{0}"][usize::from(n) % 5].repeat(usize::from(n) + 1)
}

fn check(model: &Model, store: &SessionStore) -> Result<(), TestCaseError> {
    let branch: Vec<&str> = model.branch().iter().map(|node| node.id.as_str()).collect();
    prop_assert_eq!(store.branch_ids(), branch);
    prop_assert_eq!(store.leaf(), model.leaf.as_deref());
    prop_assert_eq!(context(store), model.context());
    for node in &model.nodes {
        let entry = store.entry(&node.id).expect("read");
        let text =
            entry.as_ref().map(|entry| (entry.parent_id.as_ref(), entry.message().map(|message| message.text())));
        let expected = match &node.what {
            What::Message(text) => Some(text.clone()),
            // Its text is a member of its own.
            What::Other(Some(_)) => Some(String::new()),
            _ => None,
        };
        prop_assert_eq!(text, Some((node.parent.as_ref(), expected)));
    }
    Ok(())
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let place = Place::new();
    let mut store = place.create();
    let mut model = Model::default();
    let mut foreign = 0;
    let bytes = |place: &Place| place.bytes();
    for (n, op) in ops.into_iter().enumerate() {
        let before = bytes(&place);
        let append = |store: &mut SessionStore, entry| store.append(entry).expect("room").id;
        match op {
            Op::Say(said) => {
                let id = append(&mut store, user(&text(said)));
                model.add(&id, What::Message(text(said)));
            }
            Op::SayAll(said) => {
                let made = store.append_all(said.iter().map(|&n| user(&text(n))).collect()).expect("room");
                for (made, said) in made.iter().zip(said) {
                    model.add(&made.id, What::Message(text(said)));
                }
            }
            Op::Compact(kept) => {
                let kept = kept.and_then(|kept| model.pick(&kept));
                let summary = format!("K{n}");
                let id = append(&mut store, compaction(&summary, kept.as_deref()));
                model.add(&id, What::Compaction { summary, kept });
            }
            Op::Reset(kept) => {
                let kept = kept.and_then(|kept| model.pick(&kept));
                let reset = NewEntry::Reset { reason: "new".to_owned(), first_kept_entry_id: kept.clone() };
                let id = append(&mut store, reset);
                model.add(&id, What::Reset { kept });
            }
            Op::Note => {
                let id = append(&mut store, NewEntry::Custom { custom_type: "t".to_owned(), data: Some(json!(n)) });
                model.add(&id, What::Other(None));
            }
            Op::Label(target) => {
                let Some(target_id) = model.pick(&target) else { continue };
                let id = append(&mut store, NewEntry::Label { target_id, label: None });
                model.add(&id, What::Other(None));
            }
            Op::BranchSummary(from, speaks) => {
                let Some(from_id) = model.pick(&from) else { continue };
                let summary = if speaks { "B" } else { " " }.to_owned();
                let id = append(&mut store, NewEntry::BranchSummary { from_id, summary, details: None });
                model.add(&id, What::Other(speaks.then(String::new)));
            }
            Op::Branch(to) => {
                let to = to.and_then(|to| model.pick(&to));
                store.branch(to.as_deref()).expect("an entry");
                model.leaf = to;
            }
            Op::Rewrite(wanted) => {
                let wanted = wanted.iter().filter_map(|(which, n)| Some((model.pick(which)?, text(*n))));
                let wanted: Vec<(String, String)> = wanted.collect();
                let user = |text: &String| object(json!({ "role": "user", "content": text }));
                let replacements: Vec<_> = wanted.iter().map(|(id, text)| (id.clone(), user(text))).collect();
                let done = store.rewrite(&replacements).expect("room");
                let count = model.rewrite(&wanted.into_iter().collect(), &done.new_ids);
                prop_assert_eq!((done.rewritten, done.changed, done.reason.is_none()), (count, count > 0, count > 0));
            }
            Op::Open => {
                drop(store);
                let (opened, report) = place.open_report();
                store = opened;
                foreign = 0;
                agrees_with_importer(&store, Some(&report));
            }
            Op::Torn => {
                drop(store);
                place.add(&line(&format!("torn{n}"), "x")[..40]);
                store = place.open();
                foreign = 0;
            }
            Op::Foreign(parent) => {
                let parent = parent.and_then(|parent| model.pick(&parent));
                let id = format!("f{n}");
                // Where a line was torn, another program goes on in it.
                place.add(format!("{}\n", line(&id, parent.as_deref().unwrap_or(""))));
                let adopted = parent == model.leaf;
                model.nodes.push(Node { id: id.clone(), parent, what: What::Message(id.clone()) });
                if adopted {
                    model.leaf = Some(id);
                }
                foreign += 1;
                let id = append(&mut store, user("seen"));
                model.add(&id, What::Message("seen".to_owned()));
            }
        }
        prop_assert!(bytes(&place).starts_with(&before));
        prop_assert_eq!(store.foreign(), foreign);
        check(&model, &store)?;
    }
    agrees_with_importer(&store, None);
    drop(store);
    check(&model, &place.open())
}

/// A line of a damaged file.
fn damaged_line() -> impl Strategy<Value = String> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d", "b-2", "", "m000001"]);
    let entry = (id(), id()).prop_map(|(id, parent)| line(id, parent));
    let kept = (id(), id(), id()).prop_map(|(id, parent, kept)| {
        format!(
            r#"{{"type":"compaction","id":"{id}","parentId":"{parent}","summary":"s","firstKeptEntryId":"{kept}"}}"#
        )
    });
    let leaf = (id(), id(), id()).prop_map(|(id, parent, to)| {
        format!(r#"{{"type":"leaf","id":"{id}","parentId":"{parent}","targetId":"{to}"}}"#)
    });
    let again = (id(), id()).prop_map(|(id, parent)| line(id, parent).replacen('{', r#"{"rewriteContinues":true,"#, 1));
    let odd = prop::sample::select(vec![
        r#"{"type":"message","id":"x","message":"no object"}"#,
        r#"{"type":"message","message":{"role":"assistant","model":"m2","content":"no id"}}"#,
        r#"{"type":"model_change","id":"y","parentId":7,"provider":"p","modelId":"m"}"#,
        r#"{"type":"brand_new","id":"n","parentId":null}"#,
        r#"{"type":"leaf","id":"o","targetId":null}"#,
        r#"{"type":"message","id":"z","parentId":"a","message":{"role":"user","content":"\ud83d"}}"#,
        r#"{"type":"custom","id":"z","data":NaN}"#,
        HEADER,
        "",
        "null",
    ]);
    let line = prop_oneof![6 => entry, 2 => kept, 2 => leaf, 2 => again, 3 => odd.prop_map(str::to_owned)];
    let damage = prop_oneof![
        6 => Just(None),
        2 => (any::<Index>(), prop::sample::select(vec!["\0\0", "\"", "{", "", "\n", "}"])).prop_map(Some),
    ];
    // Cut somewhere, with something at the cut; or at its end, what lets the next line stand on this one.
    (line, damage, prop::bool::weighted(0.9)).prop_map(|(mut line, damage, ends)| {
        if let Some((at, with)) = damage {
            let at = (0..=line.len()).rev().find(|&i| i <= at.index(line.len() + 1) && line.is_char_boundary(i));
            line.truncate(at.unwrap_or(0));
            line.push_str(with);
        }
        line + if ends { "\n" } else { "" }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_session_is_what_was_done_to_it(ops in prop::collection::vec(op(), 0..32)) {
        run(ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_session_is_what_the_importer_reads(
        has_header in prop::bool::weighted(0.8),
        lines in prop::collection::vec(damaged_line(), 1..14),
    ) {
        let header = if has_header { format!("{HEADER}\n") } else { format!("{}\n", line("h", "")) };
        let place = Place::holding(format!("{header}{}", lines.concat()));
        let imported = import(&place.file);
        let is_session = matches!(imported.format, Format::OpenClaw { .. });
        prop_assert!(is_session);
        // A second header may have lost its id.
        if imported.sessions.len() > 1 {
            prop_assert!(place.error().contains("the header of a second one"));
            return Ok(());
        }
        let (mut store, report) = place.open_report();
        agrees_with_importer(&store, Some(&report));
        let before = store.context().expect("a context").messages;
        // Where ids come twice, one of them names no place that could be gone on from.
        if report.duplicate_ids == 0 {
            say(&mut store, "next");
            let after = store.context().expect("a context").messages;
            prop_assert_eq!((&after[..before.len()], after.len()), (&before[..], before.len() + 1));
            agrees_with_importer(&store, None);
        }
    }
}
