//! Which sentences state a decision, a rule or open work.
//!
//! Decision: word lists in the languages sessions are written in, matched in one pass. They miss much and need no model;
//! what they miss is still told by the progress lines, which quote every turn.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// What a sentence states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cues {
    /// Something was chosen or found out.
    pub(super) decision: bool,
    /// Something is still to be done.
    pub(super) todo: bool,
    /// Something must or must not be.
    pub(super) rule: bool,
    /// Something must or must not be, but only where a person says it.
    pub(super) wish: bool,
}

#[rustfmt::skip]
const DECISION: &[&str] = &[
    "decided", "we'll go with", "going with", "let's go with", "let's use", "we will use", "i chose", "we chose", "opted for",
    "agreed", "the plan is", "root cause", "the issue is", "the issue was", "the problem is", "the problem was", "the fix is",
    "the fix was", "turns out", "the reason is", "confirmed that", "settled on", "won't do", "rejected",
    "entschieden", "beschlossen", "wir nehmen", "die ursache", "das problem ist", "das problem war",
    "decidi", "decidimos", "vamos usar", "a causa", "o problema é", "o problema era", "ficou definido",
    "decidido", "vamos a usar", "la causa", "el problema es", "el problema era", "décidé", "nous allons utiliser", "le problème est",
    "决定", "采用", "改用", "根本原因", "原因是", "问题是", "问题在于", "決定", "採用", "原因は", "結論", "결정", "원인은",
];

#[rustfmt::skip]
const TODO: &[&str] = &[
    "todo", "next step", "next steps", "still need", "still needs", "still have to", "remaining work", "remaining:", "left to do",
    "not yet", "follow-up", "[ ]", "needs to be done", "will need to", "noch zu tun", "als nächstes", "muss noch", "fehlt noch", "offen ist",
    "próximo passo", "próximos passos", "ainda falta", "pendente", "pendiente", "siguiente paso", "todavía falta", "il reste",
    "prochaine étape", "待办", "接下来", "下一步", "还需要", "尚未", "未完成", "残り", "次に", "未対応", "まだ", "다음 단계", "아직",
];

#[rustfmt::skip]
const RULE: &[&str] = &[
    "must not", "must never", "must always", "never", "always", "make sure", "do not", "not allowed", "forbidden", "mustn't",
    "under no circumstances", "niemals", "auf keinen fall", "darf nicht", "stell sicher", "nunca", "siempre", "sempre",
    "certifique-se", "asegúrate", "jamais", "ne pas", "必须", "不要", "不能", "禁止", "不得", "务必", "只能", "一定要", "请勿", "不许",
    "必ず", "しないで", "絶対に", "반드시", "하지 마",
];

#[rustfmt::skip]
const WISH: &[&str] = &[
    "must", "don't", "dont", "should not", "shouldn't", "should be", "only", "no more than", "at most", "at least", "without", "prefer",
    "instead", "avoid", "required", "i want", "i need", "keep the", "keep it", "muss", "immer", "nur", "ohne", "kein", "keine", "bitte nicht",
    "deve", "apenas", "somente", "sem", "não", "debe", "solo", "sólo", "sin", "doit", "seulement", "sans", "别", "只要", "希望", "想要",
    "だけ", "ください", "하세요",
];

/// Openings that look like wishes and are none.
#[rustfmt::skip]
const NO_WISH: &[&str] = &[
    "don't understand", "don't know", "don't think", "don't see", "don't have", "don't remember", "don't mind", "don't get",
    "dont understand", "dont know", "dont think", "dont see", "dont have", "i don't believe", "sorry",
];

/// What the sentence states, by the phrases in it.
pub(super) fn cues(sentence: &str) -> Cues {
    let (matcher, kinds) = matcher();
    let mut found = Cues::default();
    let mut no_wish = false;
    for hit in matcher.find_overlapping_iter(sentence) {
        if !is_whole(sentence, hit.start(), hit.end()) {
            continue;
        }
        match kinds[hit.pattern().as_usize()] {
            Kind::Decision => found.decision = true,
            Kind::Todo => found.todo = true,
            Kind::Rule => (found.rule, found.wish) = (true, true),
            Kind::Wish => found.wish = true,
            Kind::NoWish => no_wish = true,
        }
    }
    let question = sentence.ends_with(['?', '？']);
    found.decision &= !question;
    found.rule &= !question;
    found.wish &= !question && !no_wish;
    found
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Decision,
    Todo,
    Rule,
    Wish,
    NoWish,
}

fn matcher() -> &'static (AhoCorasick, Vec<Kind>) {
    static MATCHER: OnceLock<(AhoCorasick, Vec<Kind>)> = OnceLock::new();
    MATCHER.get_or_init(|| {
        let lists: [(&[&str], Kind); 5] = [
            (DECISION, Kind::Decision),
            (TODO, Kind::Todo),
            (RULE, Kind::Rule),
            (WISH, Kind::Wish),
            (NO_WISH, Kind::NoWish),
        ];
        let phrases = lists.iter().flat_map(|(list, _)| list.iter());
        let kinds = lists.iter().flat_map(|(list, kind)| list.iter().map(|_| *kind)).collect();
        let matcher = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(phrases);
        (matcher.expect("a fixed list of phrases"), kinds)
    })
}

/// Whether the match is no part of a longer word. CJK phrases stand inside other text by nature.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && !super::text::is_cjk(c));
    let starts_inside = letter(text[..start].chars().next_back()) && letter(text[start..end].chars().next());
    let ends_inside = letter(text[end..].chars().next()) && letter(text[start..end].chars().next_back());
    !starts_inside && !ends_inside
}
