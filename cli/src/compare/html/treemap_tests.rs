//! The division of an area: nothing lost, nothing twice.

use super::*;
use crate::compare::html::sample;

fn check(weights: &[f64], w: f64, h: f64) -> Vec<Rect> {
    let rects = squarify(weights, Rect { x: 3.0, y: 5.0, w, h });
    let total: f64 = weights.iter().sum();
    assert_eq!(rects.len(), weights.len());
    for (rect, weight) in rects.iter().zip(weights) {
        let area = if total > 0.0 { weight / total * w * h } else { 0.0 };
        assert!((rect.w * rect.h - area).abs() < 1e-6 * w * h, "{rect:?} for {weight}");
        let inside = rect.x > 3.0 - 1e-6
            && rect.y > 5.0 - 1e-6
            && rect.x + rect.w < 3.0 + w + 1e-6
            && rect.y + rect.h < 5.0 + h + 1e-6;
        assert!(inside, "{rect:?}");
    }
    for (i, a) in rects.iter().enumerate() {
        for b in &rects[i + 1..] {
            let wide = (a.x + a.w).min(b.x + b.w) - a.x.max(b.x);
            let high = (a.y + a.h).min(b.y + b.h) - a.y.max(b.y);
            assert!(wide < 1e-6 || high < 1e-6, "{a:?} and {b:?}");
        }
    }
    rects
}

#[test]
fn areas_are_as_the_weights_and_do_not_overlap() {
    check(&[], 10.0, 10.0);
    check(&[1.0], 380.0, 300.0);
    check(&[0.0, 0.0], 380.0, 300.0);
    check(&[5.0, 0.0], 380.0, 300.0);
    check(&[1e9, 1.0, 1.0], 380.0, 300.0);
    check(&[1.0; 100], 380.0, 12.0);
    check(&(1..300).rev().map(f64::from).collect::<Vec<_>>(), 380.0, 300.0);
}

#[test]
fn the_example_of_the_paper_comes_out_as_in_the_paper() {
    let rects = check(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], 6.0, 4.0);
    let first = Rect { x: 3.0, y: 5.0, w: 3.0, h: 2.0 };
    assert_eq!(rects[..2], [first, Rect { y: 7.0, ..first }]);
    let ratio = |r: &Rect| (r.w / r.h).max(r.h / r.w);
    assert!(rects.iter().map(ratio).fold(0.0, f64::max) < 2.8, "{rects:?}");
}

#[test]
fn a_prompt_with_half_the_tokens_has_half_the_area() {
    let mut report = sample::report(sample::SMALL);
    let part = |tokens| PromptPart { kind: "user".into(), turn: Some(1), tokens, text: String::new() };
    report.prompts[0].parts = vec![part(1_000)];
    report.prompts[1].parts = vec![part(500)];
    let maps = maps(&report);
    assert!(
        maps.contains("width=\"378.8\" height=\"298.8\"") && maps.contains("width=\"378.8\" height=\"148.8\""),
        "{maps}"
    );
}
