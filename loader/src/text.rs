//! Texts of others in lines of ours: names of files and engines, records, answers.
//!
//! Decision: they are somebody else's, so they are shown and obey nothing. They neither break the line they are shown in,
//! nor turn it around, nor fill the screen.

use std::path::Path;

/// `text` with line breaks and whatever else steers a terminal escaped.
pub fn on_one_line(text: &str) -> String {
    let escaped = |c: char| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() };
    let known = |c: char| if matches!(c, '\n' | '\r' | '\t') { c.escape_default().to_string() } else { escaped(c) };
    text.chars().map(known).collect()
}

/// Whether a character is an order to the terminal rather than something to be seen: control characters, and those that
/// change the direction of writing.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// At most this many characters of a text that a plugin or a file wrote are shown.
const SHOWN: usize = 200;

/// `text`, cut where it would fill the screen: a record or a manifest may hold a megabyte of it.
pub(crate) fn cut(text: &str) -> String {
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    text.chars().take(SHOWN).collect::<String>() + more
}

/// `text` cut, and on one line.
pub(crate) fn short(text: &str) -> String {
    on_one_line(&cut(text))
}

/// A path on one line.
pub(crate) fn shown(path: &Path) -> String {
    on_one_line(&path.to_string_lossy())
}

/// A path as an argument of a command that a person may copy into a shell.
pub fn for_shell(path: &Path) -> String {
    let path = shown(path);
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if path.is_empty() || !path.chars().all(plain) { format!("'{}'", path.replace('\'', "'\\''")) } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_obeyed() {
        assert_eq!(on_one_line("a\nb\u{1b}[31m \u{202e}gnp.exe é漢"), "a\\nb\\u{1b}[31m \\u{202e}gnp.exe é漢");
    }

    #[test]
    fn a_path_in_a_command_is_one_argument() {
        for (path, argument) in [
            ("/p/größe-1.so", "/p/größe-1.so"),
            ("my plugins/x", "'my plugins/x'"),
            ("it's; rm", "'it'\\''s; rm'"),
            ("~", "'~'"),
        ] {
            assert_eq!(for_shell(Path::new(path)), argument);
        }
    }
}
