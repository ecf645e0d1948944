//! JSON with its long texts cut: what a list of sessions has to know of a file that is mostly file contents and pictures.
//!
//! Decision: the same parser as for the whole, with the same limits and refusals, so that a line is damaged here exactly
//! when it is damaged for a load. Only what is kept differs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Longest text that is kept whole, in bytes: more than any id, and what a person is shown of a message.
const LONGEST: usize = 1024;

/// How serde_json hands on a number whose digits are kept: as an object with this one member. A test holds it to that.
const NUMBER: &str = "$serde_json::private::Number";

/// The JSON a text is, its long strings cut; `None` when it is none.
pub(super) fn parse(text: &str) -> Option<Value> {
    serde_json::from_str::<Brief>(text).ok().map(|brief| brief.0)
}

struct Brief(Value);

impl<'de> Deserialize<'de> for Brief {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Brief, D::Error> {
        from.deserialize_any(Cutter).map(Brief)
    }
}

struct Cutter;

impl<'de> Visitor<'de> for Cutter {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Brief(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if key == NUMBER && map.is_empty() {
                let digits = members.next_value::<String>()?;
                return digits.parse::<Number>().map(Value::Number).map_err(A::Error::custom);
            }
            map.insert(key, members.next_value::<Brief>()?.0);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_read_as_it_is() {
        for text in [
            r#"{"a":[1,-2,1.50,1e400,18446744073709551617,true,false,null,"é\ud83d\udd25\n",{}],"b":{"c":[]},"a":1}"#,
            "7",
            r#""text""#,
        ] {
            assert_eq!(parse(text), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn what_is_refused_whole_is_refused_here() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in
            [r#""\ud83d""#, r#"{"a":NaN}"#, r#"{"a":1"#, "\"\u{1}\"", "", "[1]]", &nested(127), &nested(128), "01"]
        {
            assert_eq!(parse(text).is_some(), serde_json::from_str::<Value>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let Some(Value::String(cut)) = parse(&format!("\"{}\"", "a🔥".repeat(1000))) else { panic!("a string") };
        assert!(cut.len() <= LONGEST && cut.len() > LONGEST - 8 && cut.starts_with("a🔥"), "{}", cut.len());
    }
}
