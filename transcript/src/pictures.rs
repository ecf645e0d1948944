//! Pictures in the shapes of other hosts and providers.
//!
//! Decision: a picture is told by the shape that carries it, never by how its data looks, and becomes an `image` block
//! (`data` and `mimeType`, or `url`) before anything counts it. So a flat price is only ever paid for what is sent as a
//! picture.

use serde_json::{Map, Value};

/// A picture's data or its address, and what stood beside it in the carrier.
struct Picture {
    data: Option<String>,
    url: Option<String>,
    mime: Option<String>,
    beside: Map<String, Value>,
}

/// Names a MIME type is recorded under.
const MIME: [&str; 4] = ["mimeType", "mime_type", "media_type", "mediaType"];

/// The block as an image block when it carries a picture; as it was otherwise. Other members stay.
pub(crate) fn settle(mut block: Map<String, Value>) -> Map<String, Value> {
    let mime = MIME.iter().find_map(|name| block.get(*name)?.as_str()).map(str::to_owned);
    if is_in_order(&block) {
        if let Some(mime) = mime.filter(|_| block.contains_key("data")) {
            block.entry("mimeType").or_insert(mime.into());
        }
        return block;
    }
    let Some((member, picture)) = find(&block) else { return block };
    block.shift_remove(member);
    block.shift_remove("type");
    let mut made = Map::from_iter([("type".to_owned(), "image".into())]);
    let mime = picture.mime.or(mime.filter(|_| picture.data.is_some()));
    for (key, value) in [("data", picture.data), ("mimeType", mime), ("url", picture.url)] {
        if let Some(value) = value {
            made.insert(key.to_owned(), value.into());
        }
    }
    for (key, value) in picture.beside.into_iter().chain(block) {
        made.entry(key).or_insert(value);
    }
    made
}

/// Whether the block is an image block as it should be; `data` may hold a whole `data:` URL, and then it is not.
fn is_in_order(block: &Map<String, Value>) -> bool {
    let holds = |text: &str| !text.trim().is_empty() && !text.starts_with("data:");
    block.get("type").is_some_and(|kind| kind == "image")
        && ["data", "url"].iter().any(|member| block.get(*member).and_then(Value::as_str).is_some_and(holds))
}

/// The picture that a block carries, and the member that holds it.
fn find(block: &Map<String, Value>) -> Option<(&'static str, Picture)> {
    let members = match block.get("type").and_then(Value::as_str) {
        Some("image" | "image_url" | "input_image") => {
            let members = ["data", "url", "image_url", "image", "source"];
            return members.into_iter().find_map(|member| Some((member, of_carrier(block.get(member)?)?)));
        }
        Some(_) => ["source"].as_slice(),
        None => &["inlineData", "inline_data", "fileData", "file_data"],
    };
    let (member, carrier) = members.iter().find_map(|member| Some((*member, block.get(*member)?)))?;
    let base64 = carrier.get("type").is_some_and(|kind| kind == "base64") && carrier.get("data").is_some();
    let mime = MIME.iter().find_map(|name| carrier.get(*name)?.as_str());
    let shows = mime.map_or(base64, |mime| mime.starts_with("image/"));
    Some((member, of_carrier(carrier).filter(|_| shows)?))
}

/// A picture in a member of its own: its address or data, or an object around either.
fn of_carrier(carrier: &Value) -> Option<Picture> {
    let map = match carrier {
        Value::String(text) => return of_text(text),
        Value::Object(map) => map,
        _ => return None,
    };
    let text = |names: &[&str]| names.iter().find_map(|name| map.get(*name)?.as_str());
    let mut picture = match (text(&["data", "bytes"]), text(&["url", "fileUri", "file_uri"])) {
        (Some(data), _) => of_text(data)?,
        (None, Some(url)) => of_url(url)?,
        (None, None) => return None,
    };
    picture.mime = picture.mime.or_else(|| text(&MIME).map(str::to_owned));
    let taken = ["type", "data", "bytes", "url", "fileUri", "file_uri"];
    picture.beside = map.clone();
    picture.beside.retain(|key, _| !taken.contains(&key.as_str()) && !MIME.contains(&key.as_str()));
    Some(picture)
}

fn of_text(text: &str) -> Option<Picture> {
    if ["data:", "http://", "https://", "file:"].iter().any(|scheme| text.starts_with(scheme)) {
        return of_url(text);
    }
    let data = Some(text.to_owned()).filter(|data| !data.trim().is_empty())?;
    Some(Picture { data: Some(data), url: None, mime: None, beside: Map::new() })
}

/// `data` and MIME type of a base64 `data:` URL, or the address.
fn of_url(url: &str) -> Option<Picture> {
    let picture = |data: Option<&str>, url: Option<&str>, mime: Option<&str>| {
        let [data, url, mime] = [data, url, mime].map(|text| text.filter(|text| !text.trim().is_empty()));
        let own = |text: Option<&str>| text.map(str::to_owned);
        Picture { data: own(data), url: own(url), mime: own(mime), beside: Map::new() }
    };
    let picture = match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((mime, data)) => picture(Some(data), None, Some(mime)),
        None => picture(None, Some(url), None),
    };
    (picture.data.is_some() || picture.url.is_some()).then_some(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_in_any_shape_is_an_image_block() {
        let base64 = r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#;
        let link = r#"{"type":"image","url":"https://host.example/a.png"}"#;
        for (given, expected) in [
            (base64, base64),
            (link, link),
            (r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#, base64),
            (r#"{"type":"image_url","image_url":"https://host.example/a.png"}"#, link),
            (r#"{"type":"image_url","url":"https://host.example/a.png"}"#, link),
            (r#"{"type":"input_image","image_url":"data:image/png;base64,AAAA"}"#, base64),
            (r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#, base64),
            (r#"{"type":"image","source":{"type":"url","url":"https://host.example/a.png"}}"#, link),
            (r#"{"type":"image","image":"data:image/png;base64,AAAA"}"#, base64),
            (r#"{"type":"image","data":"data:image/png;base64,AAAA"}"#, base64),
            (r#"{"type":"image","url":"data:image/png;base64,AAAA"}"#, base64),
            (r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"}}"#, base64),
            (r#"{"inline_data":{"mime_type":"image/png","data":"AAAA"}}"#, base64),
            (
                r#"{"fileData":{"mimeType":"image/png","fileUri":"https://host.example/a.png"}}"#,
                r#"{"type":"image","mimeType":"image/png","url":"https://host.example/a.png"}"#,
            ),
            (
                r#"{"type":"image","data":"AAAA","mime_type":"image/png","x":1}"#,
                r#"{"type":"image","data":"AAAA","mime_type":"image/png","x":1,"mimeType":"image/png"}"#,
            ),
        ] {
            check(given, expected);
        }
    }

    #[test]
    fn what_shows_nothing_is_no_picture() {
        for block in [
            r#"{"type":"image_url","image_url":{"url":""}}"#,
            r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}"#,
            r#"{"type":"input_image","file_id":"f1"}"#,
            r#"{"type":"image","source":null}"#,
            r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}"#,
            r#"{"type":"tool_result","content":"AAAA"}"#,
            r#"{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}"#,
            r#"{"type":"text","text":"data:image/png;base64,AAAA"}"#,
        ] {
            check(block, block);
        }
    }

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let Ok(Value::Object(map)) = serde_json::from_str(given) else { panic!("not an object: {given}") };
        let once = settle(map);
        assert_eq!(Value::Object(once.clone()).to_string(), expected, "{given}");
        assert_eq!(Value::Object(settle(once)).to_string(), expected, "twice");
    }
}
