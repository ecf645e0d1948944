//! From the bytes of a configuration to what it says, with the place, the key and the way out where it says nothing.
//!
//! Decision: the parser knows the place and not the key, so a text that fails is read a second time by a reader that keeps
//! track of keys. A file that holds nothing but comments is an empty configuration: that is what is left when somebody
//! comments everything out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use context_engine_loader::find::read_text;

use super::{Config, MAX_CONFIG, depth};

/// The text of the file at `path`.
///
/// # Errors
/// What the system says; `InvalidData` with the place where it is no text.
pub(super) fn text(path: &Path) -> io::Result<String> {
    read_text(path, MAX_CONFIG).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            let mut bytes = vec![];
            let read = File::open(path).and_then(|file| file.take(MAX_CONFIG).read_to_end(&mut bytes));
            read.err().unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidData, no_text(&bytes)))
        }
        _ => error,
    })
}

/// Where bytes stop being text.
fn no_text(bytes: &[u8]) -> String {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return "line 1: expected UTF-8, found UTF-16; save the file as UTF-8".to_owned();
    }
    let whole = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let before = String::from_utf8_lossy(&bytes[..whole]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let found = bytes.get(whole).map_or_else(String::new, |byte| format!(", found the byte {byte:02x}"));
    format!("line {line} column {column}: expected UTF-8{found}; save the file as UTF-8")
}

/// What `text` says, or what is wrong with it: the place, the key, and what to do.
pub(super) fn parse(text: &str) -> Result<Config, String> {
    if is_blank(text) {
        return Ok(Config::default());
    }
    depth::check(text)?;
    let config: Config = json5::from_str(text).map_err(|error| wrong(text, &error))?;
    for id in config.plugins.entries.keys() {
        config.deadlines(id).map_err(|reason| format!("plugins.entries.{id}.timeoutsMs: {reason}"))?;
    }
    Ok(config)
}

fn wrong(text: &str, error: &json5::Error) -> String {
    let place = error.position().map_or_else(|| "at its end".to_owned(), |place| place.to_string());
    if json5::from_str::<serde::de::IgnoredAny>(text).is_err() {
        // The parser names the place itself.
        let place = if error.position().is_none() { " at its end" } else { "" };
        return format!("{error}{place}; mend it there, or move the file away to begin anew");
    }
    let key = serde_path_to_error::deserialize::<_, Config>(&mut json5::Deserializer::from_str(text))
        .err()
        .map(|error| error.path().to_string())
        .filter(|key| key != ".")
        .unwrap_or_else(|| "the whole".to_owned());
    let expected = match error.code() {
        Some(json5::ErrorCode::ExpectedOpeningBrace) => "expected an object {…}".to_owned(),
        Some(json5::ErrorCode::ExpectedOpeningBracket) => "expected a list […]".to_owned(),
        Some(json5::ErrorCode::ExpectedBool) => "expected true or false".to_owned(),
        Some(json5::ErrorCode::ExpectedString) => "expected a text in quotes".to_owned(),
        Some(json5::ErrorCode::ExpectedNumber) => "expected a number".to_owned(),
        // It ends with the place that is said before.
        _ => error.to_string().replace(&format!(" at {place}"), ""),
    };
    format!("{place}: {key}: {expected}; write that, or take the key out to have its default")
}

/// Whether there is nothing in it but blanks and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let mut rest = trimmed(text);
    loop {
        rest = if let Some(comment) = rest.strip_prefix("//") {
            let end = comment.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(comment.len());
            trimmed(&comment[end..])
        } else if let Some(comment) = rest.strip_prefix("/*") {
            // One that does not end swallows what may be meant.
            let Some(end) = comment.find("*/") else { return false };
            trimmed(&comment[end + 2..])
        } else {
            return rest.is_empty();
        };
    }
}

/// Whether there is not even a comment in it.
pub(super) fn is_empty(text: &str) -> bool {
    trimmed(text).is_empty()
}

fn trimmed(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_its_place_its_key_and_a_way_out() {
        let out = "; write that, or take the key out to have its default";
        for (text, expected) in [
            ("{plugins: null}", "line 1 column 11: plugins: expected an object {…}"),
            ("{\n plugins: {deny: 'a'}}", "line 2 column 18: plugins.deny: expected a list […]"),
            ("{plugins: {deny: ['a', 7]}}", "line 1 column 24: plugins.deny[1]: expected a text in quotes"),
            (
                "{plugins: {entries: {a: {enabled: 1}}}}",
                "line 1 column 35: plugins.entries.a.enabled: expected true or false",
            ),
            ("[]", "line 1 column 1: the whole: expected an object {…}"),
        ] {
            assert_eq!(parse(text), Err(format!("{expected}{out}")), "{text}");
        }
        for text in ["{plugins: {deny: [}", "{", "{plugins: /* }", "{} {}"] {
            let error = parse(text).expect_err("refused");
            assert!(error.ends_with("; mend it there, or move the file away to begin anew"), "{text}: {error}");
        }
        let error = parse("{plugins: {contextEnginePolicy: 'stirct'}}").expect_err("refused");
        assert!(error.contains("plugins.contextEnginePolicy: ") && error.contains("`strict`"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_text_have_a_place() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (bytes, expected) in [
            (
                b"{\n // caf\xe9\n}".as_slice(),
                "line 2 column 8: expected UTF-8, found the byte e9; save the file as UTF-8",
            ),
            (b"\xff\xfe{\0}\0", "line 1: expected UTF-8, found UTF-16; save the file as UTF-8"),
        ] {
            std::fs::write(file.path(), bytes).expect("written");
            assert_eq!(text(file.path()).expect_err("refused").to_string(), expected);
        }
    }

    #[test]
    fn what_is_all_comments_is_an_empty_configuration() {
        for text in ["", " \n", "\u{feff}", "// a\n/* b */ // c", "\u{feff}/**/\n", "//"] {
            assert_eq!(parse(text), Ok(Config::default()), "{text:?}");
        }
        for text in ["/*", "/* a", "/", "// a\n}"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(is_empty("\u{feff} \n") && !is_empty("// a"));
    }
}
