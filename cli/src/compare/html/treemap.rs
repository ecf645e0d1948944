//! What one prompt is made of, as a treemap: an area for each part, as large as its tokens.
//!
//! Decision: squarified (Bruls, Huizing, van Wijk 2000), in two levels: kinds, then the parts of a kind. All maps have one
//! scale, so a prompt with half the tokens has half the area. Parts too small to see are drawn together.

use std::collections::BTreeMap;

use context_engine_runtime::compare::{CompareReport, PromptPart, SamplePrompt};

use super::curves::drawn;
use super::sessions::name;
use super::text::{budget, count, percent, shortened, text, tokens};
use crate::compare::verdict::label;
use crate::output::number;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 300.0;
/// Parts below this area are drawn as one.
const SMALLEST: f64 = 30.0;
/// Room a character of a label takes.
const LETTER: f64 = 5.8;

/// The kinds, in the order of the legend; what is not here is `other`.
const KINDS: [&str; 7] = ["system", "summary", "user", "assistant", "tool call", "tool result", "other"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    x: f64,
    y: f64,
    w: f64,
    h: f64,
}

/// Divides `into` among `weights`, which are given largest first: areas in their ratio, each as square as it can be had.
fn squarify(weights: &[f64], into: Rect) -> Vec<Rect> {
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        return vec![Rect { w: 0.0, h: 0.0, ..into }; weights.len()];
    }
    let scale = into.w * into.h / total;
    let areas: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let (mut out, mut rest, mut from) = (Vec::with_capacity(areas.len()), into, 0);
    while from < areas.len() {
        let side = rest.w.min(rest.h);
        let mut to = from + 1;
        while to < areas.len() && worst(&areas[from..=to], side) <= worst(&areas[from..to], side) {
            to += 1;
        }
        let row = &areas[from..to];
        let sum: f64 = row.iter().sum();
        let thick = if side > 0.0 { sum / side } else { 0.0 };
        let mut at = 0.0;
        for area in row {
            let long = if thick > 0.0 { area / thick } else { 0.0 };
            out.push(if rest.w >= rest.h {
                Rect { x: rest.x, y: rest.y + at, w: thick, h: long }
            } else {
                Rect { x: rest.x + at, y: rest.y, w: long, h: thick }
            });
            at += long;
        }
        rest = if rest.w >= rest.h {
            Rect { x: rest.x + thick, w: (rest.w - thick).max(0.0), ..rest }
        } else {
            Rect { y: rest.y + thick, h: (rest.h - thick).max(0.0), ..rest }
        };
        from = to;
    }
    out
}

/// The longest ratio of sides in a row of these areas along `side`.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let ratio = |area: f64| (side * side * area / (sum * sum)).max(sum * sum / (side * side * area));
    row.iter().map(|area| ratio(area.max(1e-9))).fold(0.0, f64::max)
}

/// All sample prompts, side by side.
pub(super) fn maps(report: &CompareReport) -> String {
    let total = |prompt: &SamplePrompt| prompt.parts.iter().map(|part| part.tokens).sum::<u64>();
    let Some(first) = report.prompts.first() else {
        return "<p class=\"empty\">No prompt was kept to look into.</p>".to_owned();
    };
    let largest = report.prompts.iter().map(total).max().unwrap_or(0).max(1);
    let used = |kind: &&&str| report.prompts.iter().flat_map(|p| &p.parts).any(|part| KINDS[kind_of(part)] == **kind);
    let mut out = format!(
        "<p>The prompt for turn {}, call {} of session <bdi>{}</bdi> at a budget of {}, as each engine made it. The stronger \
         the colour, the newer the part. One scale for all: equal areas are equal tokens, and the dashed frame is the \
         largest of these prompts. Point at a part, or go through them with the arrow keys, to read how it begins.</p>\
         <ul class=\"legend\">",
        first.turn,
        first.call,
        text(&name(report, first.session)),
        budget(first.budget)
    );
    for kind in KINDS.iter().filter(used) {
        let class = kind.replace(' ', "-");
        out += &format!(
            "<li><svg class=\"swatch square\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"k-{class}\" \
             width=\"12\" height=\"12\"/></svg>{kind}</li>"
        );
    }
    out += "</ul><div class=\"grid charts\">";
    let opened = drawn(report);
    for (i, prompt) in report.prompts.iter().enumerate().filter(|(_, prompt)| opened.contains(&prompt.engine)) {
        out += &map(report, prompt, i, total(prompt), largest);
    }
    out + "</div>"
}

fn kind_of(part: &PromptPart) -> usize {
    KINDS.iter().position(|kind| *kind == part.kind).unwrap_or(KINDS.len() - 1)
}

fn map(report: &CompareReport, prompt: &SamplePrompt, index: usize, total: u64, largest: u64) -> String {
    let mut kinds: BTreeMap<usize, (u64, Vec<&PromptPart>)> = BTreeMap::new();
    for part in prompt.parts.iter().filter(|part| part.tokens > 0) {
        let (sum, parts) = kinds.entry(kind_of(part)).or_default();
        *sum += part.tokens;
        parts.push(part);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, (sum, _))| (std::cmp::Reverse(*sum), *kind));
    let height = (HEIGHT * total as f64 / largest as f64).max(1.0);
    let area = WIDTH * height / total.max(1) as f64;
    let weights: Vec<_> = kinds.iter().map(|(_, (sum, _))| *sum as f64).collect();
    let places = squarify(&weights, Rect { x: 0.0, y: 0.0, w: WIDTH, h: height });
    let (mut leaves, mut rows, mut desc) = (String::new(), String::new(), Vec::new());
    for ((kind, (sum, parts)), place) in kinds.iter().zip(places) {
        leaves += &leaves_of(*kind, parts, place, area, prompt.turn);
        let share = percent(*sum as f64 / total.max(1) as f64);
        rows += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{share}</td><td>{}</td></tr>",
            KINDS[*kind],
            number(*sum),
            parts.len()
        );
        desc.push(format!("{} {share}", KINDS[*kind]));
    }
    let name = text(label(report, prompt.engine));
    format!(
        "<figure><figcaption><bdi>{name}</bdi><small>{} tokens in {}</small></figcaption>\
         <svg class=\"map\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" tabindex=\"0\" \
         aria-labelledby=\"map-{index}-t map-{index}-d\"><title id=\"map-{index}-t\">Parts of the prompt {name} made</title><desc id=\"map-{index}-d\">{}</desc><rect \
         class=\"room\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>{leaves}</svg><details><summary>The same as a table\
         </summary><table class=\"plain\"><thead><tr><th scope=\"col\">part</th><th scope=\"col\">tokens</th><th \
         scope=\"col\">share</th><th scope=\"col\">parts</th></tr></thead><tbody>{rows}</tbody></table></details></figure>",
        number(total),
        count(prompt.parts.len(), "part"),
        desc.join(", ")
    )
}

/// One kind: its parts in its place, the small ones as one.
fn leaves_of(kind: usize, parts: &[&PromptPart], place: Rect, area: f64, newest: usize) -> String {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| std::cmp::Reverse(part.tokens));
    let seen = parts.iter().take_while(|part| part.tokens as f64 * area >= SMALLEST).count();
    let (large, small) = parts.split_at(seen);
    let small_tokens: u64 = small.iter().map(|part| part.tokens).sum();
    let mut all: Vec<(u64, Option<&PromptPart>)> = large.iter().map(|part| (part.tokens, Some(*part))).collect();
    if small_tokens > 0 {
        let at = all.partition_point(|(tokens, _)| *tokens >= small_tokens);
        all.insert(at, (small_tokens, None));
    }
    let weights: Vec<_> = all.iter().map(|(tokens, _)| *tokens as f64).collect();
    let mut out = format!("<g class=\"k-{}\">", KINDS[kind].replace(' ', "-"));
    for ((size, part), r) in all.iter().zip(squarify(&weights, place)) {
        let (name, short, says, age) = match part {
            Some(PromptPart { turn: Some(turn), text, .. }) => {
                let age = if newest > 1 { 0.45 + 0.55 * (*turn).min(newest) as f64 / newest as f64 } else { 1.0 };
                (format!("turn {turn}"), turn.to_string(), text.as_str(), age)
            }
            Some(part) => (KINDS[kind].to_owned(), String::new(), part.text.as_str(), 1.0),
            None => (count(small.len(), "small part"), String::new(), "", 0.45),
        };
        let lead =
            if part.is_some_and(|part| part.turn.is_none()) { String::new() } else { format!("{}, ", KINDS[kind]) };
        let title = format!("{lead}{name}: {}\n{}", count(*size as usize, "token"), shortened(says, 200));
        // The gap between parts is taken from each of them.
        let gap = if r.w > 6.0 && r.h > 6.0 { 0.6 } else { 0.0 };
        let (w, h) = ((r.w - 2.0 * gap).max(0.3), (r.h - 2.0 * gap).max(0.3));
        out += &format!(
            "<g class=\"leaf\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" \
             fill-opacity=\"{age:.2}\"/>{}</g>",
            text(title.trim_end()),
            r.x + gap,
            r.y + gap,
            caption(
                r,
                &[format!("{lead}{name} · {}", tokens(*size)), format!("{name} · {}", tokens(*size)), name, short]
            )
        );
    }
    out + "</g>"
}

/// The longest of the texts that fits.
fn caption(r: Rect, texts: &[String]) -> String {
    let fits = |text: &&String| !text.is_empty() && r.h >= 14.0 && text.chars().count() as f64 * LETTER + 7.0 <= r.w;
    texts.iter().find(fits).map_or(String::new(), |fit| {
        format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", r.x + 4.0, r.y + 12.0, text(fit))
    })
}

#[cfg(test)]
#[path = "treemap_tests.rs"]
mod tests;
