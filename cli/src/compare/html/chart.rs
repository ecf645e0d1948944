//! Drawing: a frame with axes, and lines in it, as SVG.
//!
//! Decision: SVG made here, so that the charts are there without scripts and on paper. A chart is drawn 380 units wide and
//! shown at about that size, so that its labels stay legible on a telephone. Engines differ by colour, by dash and by
//! marker, never by colour alone. Colours are classes: the style sheet knows them for light and for dark.

use super::text::text;

pub(super) const WIDTH: f64 = 380.0;
pub(super) const HEIGHT: f64 = 236.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 372.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 192.0;

/// Columns a line is drawn in; what differs by less cannot be seen.
const COLUMNS: usize = 160;
const MARKERS: usize = 6;
/// Engines that can be told apart.
pub(super) const STYLES: usize = 8;

/// What a chart says besides its lines.
pub(super) struct Frame<'a> {
    /// Unique in the page.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    /// The chart in words, with its numbers.
    pub(super) desc: &'a str,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    /// Positions from 0 to 1, with their labels.
    pub(super) x_ticks: &'a [(f64, String)],
    pub(super) y_max: f64,
    pub(super) y_text: fn(f64) -> String,
    /// What the script shows values as: `tokens` or `percent`.
    pub(super) unit: &'a str,
}

/// The x of a position from 0 to 1.
pub(super) fn x_at(position: f64) -> f64 {
    LEFT + position.clamp(0.0, 1.0) * (RIGHT - LEFT)
}

/// The y of a value; what is above the frame ends at its edge.
pub(super) fn y_at(value: f64, max: f64) -> f64 {
    BOTTOM - (value / max.max(1e-9)).clamp(0.0, 1.0) * (BOTTOM - TOP)
}

/// The frame with `lines` in it.
pub(super) fn framed(frame: &Frame<'_>, lines: &str) -> String {
    let Frame { id, title, desc, x_label, y_label, unit, y_max, .. } = frame;
    let mut axes = String::new();
    for value in ticks(*y_max) {
        let y = y_at(value, *y_max);
        axes += &format!(
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 5.0,
            y + 3.5,
            text(&(frame.y_text)(value))
        );
    }
    for (position, name) in frame.x_ticks {
        let x = x_at(*position);
        axes += &format!(
            "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v4\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 16.0,
            text(name)
        );
    }
    let middle = (TOP + BOTTOM) / 2.0;
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
         data-unit=\"{unit}\" data-max=\"{y_max}\" data-box=\"{LEFT} {TOP} {RIGHT} {BOTTOM}\">\
         <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{desc}</desc>{axes}\
         <path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>\
         <text class=\"label\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{x_label}</text>\
         <text class=\"label\" transform=\"translate(11 {middle})rotate(-90)\" text-anchor=\"middle\">{y_label}</text>\
         {lines}</svg>",
        title = text(title),
        desc = text(desc),
        x = (LEFT + RIGHT) / 2.0,
        y = BOTTOM + 35.0,
        x_label = text(x_label),
        y_label = text(y_label),
    )
}

/// Round values from 0 to `max`, about four of them.
fn ticks(max: f64) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) {
        return vec![0.0];
    }
    let rough = max / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(max);
    (0..=10).map(|i| f64::from(i) * step).take_while(|value| *value <= max * 1.001).collect()
}

/// Points for a line of at most [`COLUMNS`] columns: of each column its lowest and its highest, in their order.
pub(super) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= COLUMNS * 2 {
        return points.to_vec();
    }
    let mut out = Vec::with_capacity(COLUMNS * 2);
    for column in 0..COLUMNS {
        let slice = &points[column * points.len() / COLUMNS..(column + 1) * points.len() / COLUMNS];
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (Some(low), Some(high)) = (slice.iter().min_by(by_value), slice.iter().max_by(by_value)) else { continue };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        out.push(*first);
        if first != second {
            out.push(*second);
        }
    }
    out
}

/// A line through `points` (position from 0 to 1, value), with a few markers on it.
pub(super) fn line(style: usize, points: &[(f64, f64)], y_max: f64) -> String {
    let points: Vec<_> = thinned(points).into_iter().map(|(x, y)| (x_at(x), y_at(y, y_max))).collect();
    let mut markers = String::new();
    let every = points.len().div_ceil(MARKERS).max(1);
    // Each engine's markers stand elsewhere: lines that coincide still show all of theirs.
    let start = if points.len() > MARKERS { style * every / 4 % every } else { 0 };
    for (x, y) in points.iter().skip(start).step_by(every) {
        markers += &marker(style, *x, *y);
    }
    format!(
        "<g class=\"s{}\" data-engine=\"{style}\"><path class=\"line\" d=\"{}\"/>{markers}</g>",
        style % STYLES,
        path(&points)
    )
}

/// The points as path data.
pub(super) fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::with_capacity(points.len() * 11);
    for (i, (x, y)) in points.iter().enumerate() {
        out += &format!("{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    out
}

/// The sign of an engine.
pub(super) fn marker(style: usize, x: f64, y: f64) -> String {
    let shape = match style % 4 {
        0 => "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
        1 => "m-3-3h6v6h-6z",
        2 => "m0-4l4 7h-8z",
        _ => "m0-4.4l4 4.4l-4 4.4l-4-4.4z",
    };
    format!("<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\"/>")
}

/// Which line is which: for all charts of a section.
pub(super) fn legend(names: &[(usize, &str)], history: bool) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (style, name) in names {
        out += &format!(
            "<li><svg class=\"swatch\" viewBox=\"0 0 36 12\" aria-hidden=\"true\"><g class=\"s{}\"><path class=\"line\" \
             d=\"M1 6H35\"/>{}</g></svg><bdi>{}</bdi></li>",
            style % STYLES,
            marker(*style, 18.0, 6.0),
            text(name)
        );
    }
    if history {
        out += "<li><svg class=\"swatch\" viewBox=\"0 0 36 12\" aria-hidden=\"true\"><path class=\"history\" \
                d=\"M1 6H35\"/></svg>the whole history</li>";
    }
    out + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_line_keeps_every_peak_that_can_be_seen() {
        let points: Vec<_> = (0..10_000).map(|i| (f64::from(i) / 1e4, if i == 6_543 { 9.0 } else { 1.0 })).collect();
        let thin = thinned(&points);
        assert!(thin.len() <= COLUMNS * 2);
        assert!(thin.contains(&(0.6543, 9.0)));
        assert!(thin.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn axes_have_round_numbers_and_stay_in_the_frame() {
        assert_eq!(ticks(8_800.0), [0.0, 2_500.0, 5_000.0, 7_500.0]);
        assert_eq!(ticks(1.0), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(0.0), [0.0]);
        assert_eq!((y_at(20.0, 10.0), y_at(-1.0, 10.0), x_at(2.0)), (TOP, BOTTOM, RIGHT));
    }
}
