//! Changes of JSON5 text in which everything else stays as it is, byte for byte.
//!
//! Decision: a parser says where things stand, and the change is cut into the text there. Nothing is printed anew, so
//! comments, order, quotes and indentation outside of the change cannot suffer. What is added looks like what stands
//! around it: a line of its own where its neighbours have one, a trailing comma where they have one. What is added at the
//! end of something that is not empty, and removed again, leaves the text as it was.
//!
//! A comment is nobody's: it stays when the value beside it goes.

use std::ops::Range;

use jsonc_parser::ast::{Array, Object, ObjectPropName, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

/// The text with `value` at `path`, whose objects are made where they are missing.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    let root = parse(text)?;
    let style = Style::of(text, &root);
    let mut node = &root;
    for (at, key) in path.iter().enumerate() {
        let Node::Object(object) = node else { return Err(no_object(&path[..at])) };
        match member(object, key) {
            Some(member) => node = &member.value,
            None => {
                let rest = path[at + 1..].iter().rev().fold(value.clone(), |value, key| object_of(key, value));
                let item = format!("{}: {}", style.key(key, object), style.value(&rest));
                return Ok(add(text, &Brackets::of_object(object), &item, &style));
            }
        }
    }
    let range = node.range();
    let quote = text[range.start..].chars().next().filter(|quote| matches!(quote, '"' | '\''));
    let style = Style { quote: quote.unwrap_or(style.quote), ..style };
    Ok(spliced(text, vec![(range.start..range.end, style.value(value))]))
}

/// The text without what stands at `path`; `None` when nothing does.
pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, String> {
    let root = parse(text)?;
    let Some((key, parents)) = path.split_last() else { return Ok(None) };
    let Some(Node::Object(object)) = find(&root, parents) else { return Ok(None) };
    // The last of several with one name is the one that counts; the next would take its place.
    let named = |member: &jsonc_parser::ast::ObjectProp<'_>| name(&member.name) == Some(*key);
    let Some(at) = object.properties.iter().rposition(named) else { return Ok(None) };
    Ok(Some(cut(text, &Brackets::of_object(object), at)))
}

/// The text with `item` at the end of the list at `path`, which is made where it is missing.
pub(super) fn push(text: &str, path: &[&str], item: &Value) -> Result<String, String> {
    let root = parse(text)?;
    let style = Style::of(text, &root);
    match find(&root, path) {
        None => set(text, path, &Value::Array(vec![item.clone()])),
        Some(Node::Array(array)) => Ok(add(text, &Brackets::of_array(array), &style.value(item), &style)),
        Some(_) => Err(format!("{} is no list", path.join("."))),
    }
}

/// The text without the item `at` of the list at `path`.
pub(super) fn take(text: &str, path: &[&str], at: usize) -> Result<Option<String>, String> {
    let root = parse(text)?;
    match find(&root, path) {
        Some(Node::Array(array)) if at < array.elements.len() => Ok(Some(cut(text, &Brackets::of_array(array), at))),
        _ => Ok(None),
    }
}

fn parse(text: &str) -> Result<Node<'_>, String> {
    let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| error.to_string())?;
    parsed.value.ok_or_else(|| "the file holds no value".to_owned())
}

fn find<'a, 'text>(root: &'a Node<'text>, path: &[&str]) -> Option<&'a Node<'text>> {
    path.iter().try_fold(root, |node, key| match node {
        Node::Object(object) => member(object, key).map(|member| &member.value),
        _ => None,
    })
}

fn member<'a, 'text>(object: &'a Object<'text>, key: &str) -> Option<&'a jsonc_parser::ast::ObjectProp<'text>> {
    object.properties.iter().rfind(|member| name(&member.name) == Some(key))
}

fn name<'a>(name: &'a ObjectPropName<'_>) -> Option<&'a str> {
    Some(match name {
        ObjectPropName::String(text) => text.value.as_ref(),
        // Written with escapes, it means another name than it shows.
        ObjectPropName::Word(word) if word.value.contains('\\') => return None,
        ObjectPropName::Word(word) => word.value,
    })
}

fn no_object(path: &[&str]) -> String {
    let place = if path.is_empty() { "the file".to_owned() } else { path.join(".") };
    format!("{place} is no object")
}

fn object_of(key: &str, value: Value) -> Value {
    Value::Object([(key.to_owned(), value)].into_iter().collect())
}

/// An object or a list: where it stands, and what is in it.
struct Brackets {
    range: Range<usize>,
    items: Vec<Range<usize>>,
}

impl Brackets {
    fn of_object(object: &Object<'_>) -> Brackets {
        let range = |member: &jsonc_parser::ast::ObjectProp<'_>| member.range.start..member.range.end;
        Brackets { range: object.range.start..object.range.end, items: object.properties.iter().map(range).collect() }
    }

    fn of_array(array: &Array<'_>) -> Brackets {
        let items = array.elements.iter().map(|element| element.range().start..element.range().end).collect();
        Brackets { range: array.range.start..array.range.end, items }
    }

    /// Place of the closing bracket.
    fn close(&self) -> usize {
        self.range.end - 1
    }

    /// Place of the comma behind item `at`.
    fn comma(&self, text: &str, at: usize) -> Option<usize> {
        let end = self.items.get(at + 1).map_or(self.close(), |next| next.start);
        let mut rest = self.items[at].end;
        while rest < end {
            let (length, blank) = blank(&text[rest..end]);
            if !blank {
                return text[rest..].starts_with(',').then_some(rest);
            }
            rest += length;
        }
        None
    }
}

/// How the file is written.
#[derive(Clone, Copy)]
struct Style {
    quote: char,
    /// Whether keys stand without quotes.
    bare_keys: bool,
    /// Between brackets and what is in them.
    pad: &'static str,
    newline: &'static str,
    /// Whether the file has more than one line.
    lines: bool,
    /// Deeper by one level.
    indent: &'static str,
}

impl Style {
    fn of(text: &str, root: &Node<'_>) -> Style {
        let (mut quote, mut bare_keys) = (None, None);
        look(root, &mut quote, &mut bare_keys, text);
        let range = root.range();
        let inner = &text[range.start..range.end];
        let empty = matches!(root, Node::Object(object) if object.properties.is_empty());
        let tabs = inner.contains("\n\t");
        let line = inner.lines().skip(1).find(|line| line.starts_with(' ') && !line.trim().is_empty());
        let wide = line.is_some_and(|line| line.starts_with("    "));
        Style {
            quote: quote.unwrap_or('"'),
            bare_keys: bare_keys.unwrap_or(true),
            pad: if empty || inner[1..].starts_with(char::is_whitespace) { " " } else { "" },
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
            lines: empty || inner.contains('\n'),
            indent: if tabs {
                "\t"
            } else if wide {
                "    "
            } else {
                "  "
            },
        }
    }

    /// A key, with quotes where it needs them or the file has them.
    fn key(&self, key: &str, beside: &Object<'_>) -> String {
        let bare = match beside.properties.first() {
            // Beside a name that needs quotes, one that needs none says nothing.
            Some(neighbour) if is_word(neighbour.name.as_str()) => matches!(neighbour.name, ObjectPropName::Word(_)),
            _ => self.bare_keys,
        };
        if bare && is_word(key) { key.to_owned() } else { self.string(key) }
    }

    fn string(&self, text: &str) -> String {
        let json = Value::from(text).to_string();
        if self.quote == '"' {
            return json;
        }
        let inner = json[1..json.len() - 1].replace("\\\"", "\"").replace('\'', "\\'");
        format!("'{inner}'")
    }

    fn value(&self, value: &Value) -> String {
        let pad = self.pad;
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.value(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Object(members) if members.is_empty() => "{}".to_owned(),
            Value::Object(members) => {
                let key = |key: &String| {
                    if self.bare_keys && is_word(key) { key.clone() } else { self.string(key) }
                };
                let members: Vec<String> =
                    members.iter().map(|(name, value)| format!("{}: {}", key(name), self.value(value))).collect();
                format!("{{{pad}{}{pad}}}", members.join(", "))
            }
            plain => plain.to_string(),
        }
    }
}

/// The first quotes and the first key that could go without, in the order of the text.
fn look(node: &Node<'_>, quote: &mut Option<char>, bare_keys: &mut Option<bool>, text: &str) {
    match node {
        Node::StringLit(string) => {
            quote.get_or_insert(if text[string.range.start..].starts_with('\'') { '\'' } else { '"' });
        }
        Node::Object(object) => {
            for member in &object.properties {
                match &member.name {
                    ObjectPropName::Word(_) => {
                        bare_keys.get_or_insert(true);
                    }
                    ObjectPropName::String(key) => {
                        quote.get_or_insert(if text[key.range.start..].starts_with('\'') { '\'' } else { '"' });
                        if is_word(&key.value) {
                            bare_keys.get_or_insert(false);
                        }
                    }
                }
                look(&member.value, quote, bare_keys, text);
            }
        }
        Node::Array(array) => array.elements.iter().for_each(|element| look(element, quote, bare_keys, text)),
        _ => {}
    }
}

fn is_word(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}

/// The text with `item` behind what is in the brackets.
fn add(text: &str, brackets: &Brackets, item: &str, style: &Style) -> String {
    let Style { newline, indent, pad, .. } = style;
    let Some(last) = brackets.items.last() else {
        let inner = &text[brackets.range.start + 1..brackets.close()];
        let outer = indentation(text, brackets.range.start);
        // JSON, whose keys are in quotes, knows no comma behind the last.
        let comma = if style.bare_keys { "," } else { "" };
        return match inner.rfind('\n') {
            Some(at) if inner[at..].trim().is_empty() => {
                let at = brackets.range.start + 1 + at;
                let at = if text[..at].ends_with('\r') { at - 1 } else { at };
                spliced(text, vec![(at..at, format!("{newline}{outer}{indent}{item}{comma}"))])
            }
            _ if !inner.trim().is_empty() => {
                let ends_line = inner.trim_end_matches([' ', '\t']).len() + brackets.range.start + 1;
                spliced(text, vec![(ends_line..brackets.close(), format!(" {item}{pad}"))])
            }
            _ if style.lines => {
                let lines = format!("{newline}{outer}{indent}{item}{comma}{newline}{outer}");
                spliced(text, vec![(brackets.range.start + 1..brackets.close(), lines)])
            }
            _ => spliced(text, vec![(brackets.range.start + 1..brackets.close(), format!("{pad}{item}{pad}"))]),
        };
    };
    let comma = brackets.comma(text, brackets.items.len() - 1);
    let behind = comma.map_or(last.end, |comma| comma + 1);
    let mut edits: Vec<(Range<usize>, String)> = vec![];
    if comma.is_none() {
        edits.push((last.end..last.end, ",".to_owned()));
    }
    let tail = if comma.is_some() { "," } else { "" };
    match (begins_line(text, last.start), end_of_line(text, behind, brackets.close())) {
        (true, Some(end)) => {
            let own = indentation(text, last.start);
            let newline = if text[end..].starts_with("\r\n") { "\r\n" } else { "\n" };
            edits.push((end..end, format!("{newline}{own}{item}{tail}")));
        }
        _ => edits.push((behind..behind, format!(" {item}{tail}"))),
    }
    spliced(text, edits)
}

/// The text without item `at` of what is in the brackets.
fn cut(text: &str, brackets: &Brackets, at: usize) -> String {
    let item = &brackets.items[at];
    let comma = brackets.comma(text, at);
    let mut edits: Vec<(Range<usize>, String)> = vec![];
    // Up to here something else is cut out.
    let mut earlier = 0;
    if comma.is_none()
        && let Some(before) = at.checked_sub(1).and_then(|before| brackets.comma(text, before))
    {
        edits.push((before..before + 1, String::new()));
        earlier = before + 1;
    }
    // What stands between the item and its comma are comments, which stay.
    let end = match comma {
        Some(comma) if text[item.end..comma].trim().is_empty() => comma + 1,
        Some(comma) => {
            edits.push((comma..comma + 1, String::new()));
            item.end
        }
        None => item.end,
    };
    let line_end = end + text[end..].find(['\n', '\r']).unwrap_or(text.len() - end);
    let alone = begins_line(text, item.start);
    let range = if alone && text[end..line_end].trim().is_empty() && line_end < text.len() {
        let line_start = item.start - indentation(text, item.start).len();
        let newline = if text[line_end..].starts_with("\r\n") { 2 } else { 1 };
        // The line of an item without a comma ends with the line before it.
        line_start..line_end + newline
    } else if alone || (comma.is_some() && at + 1 < brackets.items.len()) {
        let blanks = text[end..].len() - text[end..].trim_start_matches([' ', '\t']).len();
        item.start..end + blanks
    } else {
        let before = text[..item.start].trim_end_matches([' ', '\t']).len();
        before.max(earlier)..end
    };
    edits.push((range, String::new()));
    let only = brackets.items.len() == 1;
    let left = spliced(text, edits);
    if only {
        // Its opening bracket has not moved; nothing but blanks before the closing one is an empty pair.
        let open = brackets.range.start + 1;
        let close = open + left[open..].len() - left[open..].trim_start().len();
        if left[close..].starts_with(['}', ']']) {
            return spliced(&left, vec![(open..close, String::new())]);
        }
    }
    left
}

/// Puts texts in the place of ranges that do not overlap.
fn spliced(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    // Of two at one place, the one named first comes first in the text.
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = text.to_owned();
    for (range, new) in edits.into_iter().rev() {
        out.replace_range(range, &new);
    }
    out
}

/// The blanks at the beginning of the line that `at` is in.
fn indentation(text: &str, at: usize) -> &str {
    let start = text[..at].rfind(['\n', '\r']).map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn begins_line(text: &str, at: usize) -> bool {
    let before = text[..at].trim_end_matches([' ', '\t']);
    before.ends_with(['\n', '\r'])
}

/// Where the line ends that `at` is in, when nothing but comments follows in it.
fn end_of_line(text: &str, at: usize, close: usize) -> Option<usize> {
    let mut at = at;
    while at < close {
        let rest = &text[at..close];
        if rest.starts_with(['\n', '\r']) {
            return Some(at);
        }
        match blank(rest) {
            (length, true) if !rest[..length].contains('\n') => at += length,
            _ => return None,
        }
    }
    None
}

/// How long the comment, or the one blank, is that the text begins with, and whether it is one.
fn blank(text: &str) -> (usize, bool) {
    if text.starts_with("//") {
        return (text.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(text.len()), true);
    }
    if text.starts_with("/*") {
        return (text.find("*/").map_or(text.len(), |end| end + 2), true);
    }
    match text.chars().next() {
        Some(c) if c.is_whitespace() || c == '\u{feff}' => (c.len_utf8(), true),
        _ => (0, false),
    }
}
