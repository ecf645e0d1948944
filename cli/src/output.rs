//! Everything that is printed goes through here: results to standard output, the rest to standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// Writes one line to standard output. It stays one line, whatever a recorded id or a plugin's text holds.
///
/// Whoever closed the pipe has seen enough: what is left of the work is done, and said to nobody.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    match writeln!(io::stdout().lock(), "{}", visible(&text.to_string())) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes one line to standard error.
pub(crate) fn note(text: impl Display) {
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(io::stderr().lock(), "{}", visible(&text.to_string()));
}

/// Writes why a command could not be done.
pub(crate) fn complain(error: &dyn std::error::Error) {
    note(format_args!("context-engine: {error}"));
}

/// A bar on standard error, when somebody sits there; drawn over and gone at the end.
pub(crate) fn progress(total: usize, doing: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64).with_message(doing.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// A path as JSON can hold it: a name that is no UTF-8 is shown with U+FFFD in place, instead of ending the command.
pub(crate) fn path_json(path: &Path) -> Value {
    path.to_string_lossy().into()
}

/// A recorded text on one line: what is no visible character is written as its escape, so that it cannot steer a terminal.
fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// `1234567` as `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds, in the unit people read them in.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_cannot_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mRED\nnext é漢"), "a\\u{1b}[31mRED\\nnext é漢");
    }

    #[test]
    fn numbers_are_grouped() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(value), text);
        }
    }
}
