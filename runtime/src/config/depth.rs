//! How deep a configuration may be nested.
//!
//! Decision: counted before it is parsed. The parsers call themselves for each level, and a file of some kilobytes would
//! end the host that watches it: a stack that overflows cannot be caught.

/// More levels than anybody writes.
const MAX_DEPTH: usize = 100;

/// Whether the text is not nested too deeply; the place where it is.
pub(super) fn check(text: &str) -> Result<(), String> {
    let (mut depth, mut line) = (0_usize, 1_usize);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\n' => line += 1,
            '[' | '{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!("line {line}: nested more than {MAX_DEPTH} levels deep; take some out"));
                }
            }
            ']' | '}' => depth = depth.saturating_sub(1),
            '"' | '\'' => {
                while let Some(inner) = chars.next() {
                    match inner {
                        '\\' => drop(chars.next()),
                        '\n' => line += 1,
                        _ if inner == char => break,
                        _ => {}
                    }
                }
            }
            '/' if chars.peek() == Some(&'/') => {
                line += usize::from(chars.any(|inner| inner == '\n'));
            }
            '/' if chars.peek() == Some(&'*') => {
                let mut before = ' ';
                chars.next();
                for inner in chars.by_ref() {
                    line += usize::from(inner == '\n');
                    if before == '*' && inner == '/' {
                        break;
                    }
                    before = inner;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_counted_where_they_are_brackets() {
        let deep = |levels: usize| format!("{{\n// a line\na: {}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(check(&deep(99)), Ok(()));
        assert_eq!(check(&deep(200_000)), Err("line 3: nested more than 100 levels deep; take some out".to_owned()));
        for text in [
            format!("{{a: '{}'}}", "[".repeat(200)),
            format!("{{a: \"\\\"{}\"}}", "{".repeat(200)),
            format!("// {}\n{{}}", "[".repeat(200)),
            format!("/* {}\n */{{}}", "[".repeat(200)),
            "[{}],".repeat(200),
        ] {
            assert_eq!(check(&text), Ok(()), "{text}");
        }
    }
}
