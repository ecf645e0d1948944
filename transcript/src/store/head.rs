//! What the index needs of a line, without making values of the rest.
//!
//! Decision: the rest is read to the end all the same, by the rules that making a value of it follows (depth, surrogate
//! pairs), so that a line that passes here can be read whole later, and one that cannot is mended at once and counted.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::branch::REWRITE_CONTINUES;

/// The members of a line that place it in the tree. Of a member that is there twice, the last one counts.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    /// `type`.
    pub(super) kind: Cow<'a, str>,
    /// `id`; never blank.
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) parent: Parent<'a>,
    /// `targetId`.
    pub(super) target: Option<Cow<'a, str>>,
    /// See [`REWRITE_CONTINUES`].
    pub(super) continues: bool,
    /// Whether `message` is an object.
    pub(super) has_message: bool,
}

/// `parentId`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Parent<'a> {
    /// Not there, or neither `null` nor text: the entry before.
    #[default]
    Previous,
    Root,
    Id(Cow<'a, str>),
}

impl Head<'_> {
    /// `None` when the line is not one JSON object with a `type`.
    pub(super) fn read(line: &str) -> Option<Head<'_>> {
        serde_json::from_str::<Line<'_>>(line).ok()?.0
    }
}

struct Line<'a>(Option<Head<'a>>);

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut head = Head::default();
        let mut kind = None;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Kind => kind = map.next_value::<Member<'_>>()?.text(),
                Key::Id => head.id = map.next_value::<Member<'_>>()?.text().filter(|id| !id.trim().is_empty()),
                Key::Parent => {
                    head.parent = match map.next_value()? {
                        Member::Text(id) => Parent::Id(id),
                        Member::Null => Parent::Root,
                        _ => Parent::Previous,
                    }
                }
                Key::Target => head.target = map.next_value::<Member<'_>>()?.text(),
                Key::Continues => head.continues = matches!(map.next_value()?, Member::True),
                Key::Message => head.has_message = matches!(map.next_value()?, Member::Object),
                Key::Other => _ = map.next_value::<Read>()?,
            }
        }
        Ok(Line(kind.map(|kind| Head { kind, ..head })))
    }
}

enum Key {
    Kind,
    Id,
    Parent,
    Target,
    Continues,
    Message,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "type" => Key::Kind,
                    "id" => Key::Id,
                    "parentId" => Key::Parent,
                    "targetId" => Key::Target,
                    REWRITE_CONTINUES => Key::Continues,
                    "message" => Key::Message,
                    _ => Key::Other,
                })
            }
        }
        from.deserialize_str(KeyVisitor)
    }
}

/// A member that matters.
enum Member<'a> {
    Text(Cow<'a, str>),
    Null,
    True,
    Object,
    Other,
}

impl<'a> Member<'a> {
    fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Member::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Member<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(if value { Member::True } else { Member::Other })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        ReadVisitor.visit_seq(seq)?;
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let Read { number } = ReadVisitor.visit_map(map)?;
        Ok(if number { Member::Other } else { Member::Object })
    }
}

/// Any JSON, read and let go. `serde`'s own type for this takes halves of surrogate pairs and any depth.
struct Read {
    number: bool,
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ReadVisitor)
    }
}

struct ReadVisitor;

const READ: Read = Read { number: false };

impl<'de> Visitor<'de> for ReadVisitor {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, _: &str) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_unit<E>(self) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Read, E> {
        Ok(READ)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Read, A::Error> {
        while seq.next_element::<Read>()?.is_some() {}
        Ok(READ)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        /// How serde_json hands out a number whose digits are kept.
        const NUMBER: &str = "$serde_json::private::Number";
        struct Name(bool);
        impl<'de> Deserialize<'de> for Name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct NameVisitor;
                impl Visitor<'_> for NameVisitor {
                    type Value = Name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a name")
                    }

                    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                        Ok(Name(name == NUMBER))
                    }
                }
                from.deserialize_str(NameVisitor)
            }
        }
        let mut number = false;
        while let Some(Name(is_number)) = map.next_key()? {
            number |= is_number;
            map.next_value::<Read>()?;
        }
        Ok(Read { number })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shown(line: &str) -> String {
        match Head::read(line) {
            Some(head) => format!(
                "{} {:?} {:?} {:?} {}{}",
                head.kind, head.id, head.parent, head.target, head.continues, head.has_message
            ),
            None => "-".to_owned(),
        }
    }

    #[test]
    fn what_places_a_line_is_read_and_nothing_else() {
        for (line, expected) in [
            (
                r#"{"type":"a","id":"b","parentId":"c","message":{"id":"x","n":1.50}}"#,
                r#"a Some("b") Id("c") None falsetrue"#,
            ),
            (r#"{"t\u0079pe":"\u0061","id":"","parentId":null,"message":7}"#, "a None Root None falsefalse"),
            (r#"{"type":"leaf","targetId":null,"parentId":5}"#, "leaf None Previous None falsefalse"),
            (
                r#"{"type":"x","type":"leaf","targetId":"t","rewriteContinues":true}"#,
                r#"leaf None Previous Some("t") truefalse"#,
            ),
            (r#"{"type":7,"id":"a"}"#, "-"),
            (r#"["type","a"]"#, "-"),
            ("null", "-"),
            (r#"{"type":"a"} {"#, "-"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn a_line_that_passes_here_is_one_a_value_can_be_made_of() {
        let nested =
            |depth: usize| format!(r#"{{"type":"a","m":{}1{}}}"#, r#"{"a":["#.repeat(depth), "]}".repeat(depth));
        for line in [
            nested(63),
            nested(64),
            r#"{"type":"a","m":"\ud83d"}"#.to_owned(),
            r#"{"type":"a","\ud83d":1}"#.to_owned(),
            r#"{"type":"a","m":"\ud83d\udd25 \u00e9 \/"}"#.to_owned(),
            r#"{"type":"a","m":[1e999,-0,1.,NaN]}"#.to_owned(),
            r#"{"type":"a","m":[1e999,-0.0,123456789012345678901234567890]}"#.to_owned(),
            r#"{"type":"a","m":01}"#.to_owned(),
            "{\"type\":\"a\",\"m\":\"\u{1}\"}".to_owned(),
            r#"{"type":"a","m":"\x"}"#.to_owned(),
        ] {
            assert_eq!(Head::read(&line).is_some(), serde_json::from_str::<Value>(&line).is_ok(), "{line}");
        }
    }
}
