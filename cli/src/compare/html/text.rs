//! Texts and numbers as the report shows them.
//!
//! Decision: nothing of a session reaches the page but through here. The texts are other people's: markup in them is shown
//! as text, and what would be invisible or would turn the reading direction around is shown by name.

use serde::Serialize;

use crate::output;

/// `raw` with everything visible: what steers a reader or has no picture is written as its number.
pub(in crate::compare) fn visible(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => out.extend(c.escape_unicode()),
            c if c.is_control() => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

/// `raw` as HTML, in an element or in a quoted attribute.
pub(in crate::compare) fn text(raw: &str) -> String {
    let raw = visible(raw);
    let mut out = String::with_capacity(raw.len() + raw.len() / 8);
    for c in raw.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(c),
        }
    }
    out
}

/// `value` as JSON that can stand in a script element: nothing in it can end the element or begin a comment.
pub(in crate::compare) fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut out = String::with_capacity(json.len() + json.len() / 32);
    for c in json.chars() {
        match c {
            // Outside strings JSON has none of these.
            '<' | '>' | '&' => out += &format!("\\u{:04x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out
}

/// At most `limit` characters of `raw`.
pub(in crate::compare) fn shortened(raw: &str, limit: usize) -> String {
    if raw.chars().count() <= limit {
        return raw.to_owned();
    }
    raw.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// A budget as it is typed: `8k`.
pub(in crate::compare) fn budget(tokens: u64) -> String {
    match tokens {
        0 => "0".to_owned(),
        t if t.is_multiple_of(1_000_000) => format!("{}M", t / 1_000_000),
        t if t.is_multiple_of(1_000) => format!("{}k", t / 1_000),
        t => output::number(t),
    }
}

/// Tokens where there is little room: `7.4k`.
pub(in crate::compare) fn tokens(count: u64) -> String {
    let short = |value: f64| {
        let digits = format!("{value:.1}");
        digits.strip_suffix(".0").map_or(digits.clone(), str::to_owned)
    };
    match count {
        0..1_000 => count.to_string(),
        1_000..99_950 => format!("{}k", short(count as f64 / 1e3)),
        99_950..999_500 => format!("{:.0}k", count as f64 / 1e3),
        _ => format!("{}M", short(count as f64 / 1e6)),
    }
}

/// A share as `41 %`; with a decimal where whole percents would hide it.
pub(in crate::compare) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let near_an_end = (percent > 0.05 && percent < 9.95) || (percent > 99.05 && percent < 99.95);
    let digits = if near_an_end { format!("{percent:.1}") } else { format!("{percent:.0}") };
    format!("{}\u{a0}%", digits.strip_suffix(".0").unwrap_or(&digits))
}

/// Both ends of an interval of shares: `36–46 %`.
pub(in crate::compare) fn interval(low: f64, high: f64) -> String {
    let (low, high) = (percent(low), percent(high));
    format!("{}–{high}", low.trim_end_matches(['\u{a0}', '%']))
}

/// Dollars, with as many decimals as small sums need.
pub(in crate::compare) fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "$0".to_owned(),
        a if a < 0.01 => format!("${a:.4}"),
        a if a < 10_000.0 => format!("${a:.2}"),
        a => format!("${}", output::number(a.round() as u64)),
    }
}

/// `1 call`, `2 calls`.
pub(in crate::compare) fn count(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {what}{end}", output::number(number as u64))
}

/// Names in a sentence: `a, b and c`.
pub(in crate::compare) fn listed(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{} {last} {end}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_is_shown_as_text() {
        for (raw, html) in [
            (
                "</script><img src=x onerror='a(\"b\")'>",
                "&lt;/script&gt;&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;",
            ),
            ("a &amp; b", "a &amp;amp; b"),
            ("nul\0 esc\x1b[31m del\x7f c1\u{9b}", r"nul\u{0} esc\u{1b}[31m del\u{7f} c1\u{9b}"),
            ("abc\u{202e}txt.exe\u{2066}", r"abc\u{202e}txt.exe\u{2066}"),
            ("line\n\ttab é漢🦀", "line\n\ttab é漢🦀"),
        ] {
            assert_eq!(text(raw), html);
        }
    }

    #[test]
    fn json_in_a_script_element_cannot_end_it_and_means_the_same() {
        let raw = "</script><!-- <script> & \" \\ \u{2028}";
        let json = script_json(&raw);
        assert!(!json.contains(['<', '>', '&']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).ok().as_deref(), Some(raw));
    }

    #[test]
    fn numbers_keep_the_digits_that_count() {
        let tokens_cases =
            [(0, "0"), (999, "999"), (7_412, "7.4k"), (8_000, "8k"), (99_960, "100k"), (412_345, "412k")];
        for (value, shown) in tokens_cases.into_iter().chain([(999_600, "1M"), (1_230_000, "1.2M")]) {
            assert_eq!(tokens(value), shown);
        }
        for (value, shown) in
            [(0.0, "0 %"), (0.004, "0.4 %"), (0.05, "5 %"), (0.413, "41 %"), (0.996, "99.6 %"), (1.0, "100 %")]
        {
            assert_eq!(percent(value).replace('\u{a0}', " "), shown);
        }
        assert_eq!(interval(0.042, 0.46).replace('\u{a0}', " "), "4.2–46 %");
        for (value, shown) in [(0.0, "$0"), (0.0012, "$0.0012"), (4.1, "$4.10"), (12_345.6, "$12,346")] {
            assert_eq!(dollars(value), shown);
        }
        for (value, shown) in [(8_000, "8k"), (8_192, "8,192"), (1_000_000, "1M"), (500, "500")] {
            assert_eq!(budget(value), shown);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("漢字漢字", 3), "漢字…");
        assert_eq!(shortened("漢字", 2), "漢字");
    }
}
