//! Everything that is printed goes through here: results to standard output, the rest to standard error.
//!
//! Decision: while a command runs, standard output is its own alone. Engines run in this process and may print; what they
//! print must not stand between the lines of `--json`, and no library can be kept from writing to file descriptor 1. So
//! the command takes a private copy of standard output and lets descriptor 1 lead to standard error. On Windows nothing of
//! this is done: there an engine that prints still prints into the results.
//!
//! Decision: where standard output cannot be written, a command that only looks has not done what it is for, and fails. One
//! that has changed something must not say by its exit code that it has not: its results go to standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::{fs::File, sync::OnceLock};

use context_engine_loader::{on_one_line, steers};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::error::CliError;

/// Standard output, once the command has claimed it.
#[cfg(unix)]
static RESULTS: OnceLock<File> = OnceLock::new();

/// Makes standard output the command's own: from now on only [`line()`] writes there, and what else is printed in this
/// process, or in one it starts, goes to standard error.
#[cfg(unix)]
pub(crate) fn claim_stdout() -> io::Result<()> {
    // Not below 3: those numbers are the standard streams of a process started from here.
    let results = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    let _ = RESULTS.set(results.into());
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn claim_stdout() -> io::Result<()> {
    Ok(())
}

/// Whether something was changed that stays so.
static DONE: AtomicBool = AtomicBool::new(false);

/// Whether what was said of it did not reach standard output.
static LOST: AtomicBool = AtomicBool::new(false);

/// What was asked for is done: results that cannot be written from here on are said on standard error.
pub(crate) fn done() {
    DONE.store(true, Ordering::Relaxed);
}

/// Whether results of what was done went to standard error.
pub(crate) fn was_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Whoever closed the pipe has seen enough: what is left of the work is done, and said to nobody.
fn write_result(text: &str) -> io::Result<()> {
    match try_write_result(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if DONE.load(Ordering::Relaxed) => {
            if !LOST.swap(true, Ordering::Relaxed) {
                note(format_args!(
                    "context-engine: writing the output: {error}; what was done stays done, and is said here"
                ));
            }
            let _ = io::stderr().lock().write_all(text.as_bytes());
            Ok(())
        }
        written => written,
    }
}

fn try_write_result(text: &str) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(mut results) = RESULTS.get() {
        return results.write_all(text.as_bytes());
    }
    let mut results = io::stdout().lock();
    results.write_all(text.as_bytes()).and_then(|()| results.flush())
}

/// Writes one line to standard output. It stays one line, whatever a recorded id or a plugin's text holds.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    write_result(&format!("{}\n", on_one_line(&text.to_string())))
}

/// Writes a text of several lines to standard output, its lines and tabs as they are.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let shown =
        |c: char| if c != '\n' && c != '\t' && steers(c) { c.escape_unicode().to_string() } else { c.to_string() };
    let text: String = text.replace("\r\n", "\n").chars().map(shown).collect();
    write_result(&text)
}

/// Writes text that is JSON, or lines of it, to standard output, as [`json_line`] does.
pub(crate) fn json_text(json: &str) -> io::Result<()> {
    let lines = json.split('\n').map(escaped).collect::<Vec<_>>().join("\n");
    write_result(&lines)
}

/// Writes one line to standard error.
pub(crate) fn note(text: impl Display) {
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(io::stderr().lock(), "{}", on_one_line(&text.to_string()));
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

/// Writes one line of JSON to standard output. What would steer a terminal is written as JSON's own escapes.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), CliError> {
    let json = escaped(&serde_json::to_string(value)?);
    Ok(write_result(&format!("{json}\n"))?)
}

/// JSON in which nothing steers a terminal. Outside of its strings, JSON holds no such character.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match steers(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// Milliseconds since 1970 as RFC 3339 in UTC, to the second. The one thing a crate would be needed for.
pub(crate) fn utc(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, so that the leap day is the last; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A recorded time as people read it, to the minute, in UTC; `-` when there is none.
pub(crate) fn minute(ms: Option<i64>) -> String {
    let time = ms.and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms != 0).map(utc);
    time.and_then(|time| Some(time.get(..16)?.replace('T', " "))).unwrap_or_else(|| "-".to_owned())
}

/// A number of bytes, in the unit people read it in.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        _ if number == 1 => what.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None if what.ends_with("ch") => format!("{what}es"),
        None => format!("{what}s"),
    };
    format!("{} {plural}", self::number(number))
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
        assert_eq!(on_one_line("a\u{1b}[31mRED\nnext é漢"), "a\\u{1b}[31mRED\\nnext é漢");
    }

    #[test]
    fn what_would_steer_a_terminal_stays_json() {
        let odd = "a\u{1b}[31m \u{7f}\u{85}\u{9b}\u{202e} é漢";
        let json = escaped(&serde_json::to_string(odd).expect("JSON"));
        assert_eq!(json, r#""a\u001b[31m \u007f\u0085\u009b\u202e é漢""#);
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), odd);
    }

    #[test]
    fn times_are_written_as_people_read_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1_000 + 999), text);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(value), text);
        }
    }
}
