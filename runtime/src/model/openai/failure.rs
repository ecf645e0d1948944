//! What kept an answer from coming, and whether asking again may help.

use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::{Map, Value};

use super::retry;
use crate::model::ModelErrorKind;
use crate::model::classify::{ProviderError, is_passing};

/// The most of an error's body that is read, in bytes.
pub(super) const LONGEST_BODY: usize = 64 << 10;
/// The most of a provider's words that is passed on, in characters.
const LONGEST_TEXT: usize = 800;

/// Why there is no reply.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ModelErrorKind,
    pub(super) text: String,
    /// Whether the same request may succeed a little later.
    pub(super) passing: bool,
    /// When, where the provider says so.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// One that asking again does not change.
    pub(super) fn last(kind: ModelErrorKind, text: impl Into<String>) -> Failure {
        Failure { kind, text: text.into(), passing: false, retry_after: None }
    }

    /// One that may pass.
    pub(super) fn passing(kind: ModelErrorKind, text: impl Into<String>) -> Failure {
        Failure { passing: true, ..Failure::last(kind, text) }
    }

    /// No answer at all.
    pub(super) fn of_connection(host: &str, error: &reqwest::Error) -> Failure {
        let text = format!("{host}: {}", chain(error));
        if error.is_builder() {
            return Failure::last(ModelErrorKind::Failed, text);
        }
        let refused = sources(error).any(|source| source.downcast_ref::<rustls::Error>().is_some());
        // A certificate is not better a second later.
        Failure { passing: !refused, ..Failure::last(ModelErrorKind::Unavailable, text) }
    }

    /// An answer that is none.
    pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap, body: &str) -> Failure {
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("somewhere else");
            let text = format!("HTTP {}: sent on to {to}; if that is right, set baseUrl to it", status.as_u16());
            return Failure::last(ModelErrorKind::Failed, text);
        }
        Said::of(body).failure(Some(status.as_u16()), retry::after(headers))
    }

    /// An error in the place of a piece of the reply.
    pub(super) fn of_event(body: &str) -> Failure {
        Said::of(body).failure(None, None)
    }
}

/// What an error's body says.
#[derive(Default)]
struct Said {
    status: Option<u16>,
    code: String,
    text: String,
    /// What the provider behind a router said.
    raw: String,
}

impl Said {
    fn of(body: &str) -> Said {
        let body = body.trim();
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Object(map)) => Said::of_object(&map),
            // Gemini's answers in this protocol.
            Ok(Value::Array(items)) => items.iter().find_map(Value::as_object).map(Said::of_object).unwrap_or_default(),
            Ok(Value::String(text)) => Said { text, ..Said::default() },
            _ if body.starts_with('<') => Said { text: title(body), ..Said::default() },
            _ => Said { text: body.to_owned(), ..Said::default() },
        }
    }

    /// `{"error": {…}}`, `{"error": "…"}`, or the members of an error at the top.
    fn of_object(map: &Map<String, Value>) -> Said {
        let error = match map.get("error") {
            Some(Value::Object(error)) => error,
            Some(Value::String(text)) if !map.contains_key("message") => {
                return Said { text: text.clone(), ..Said::default() };
            }
            _ => map,
        };
        let text = ["message", "detail", "msg"].iter().find_map(|name| error.get(*name)).or(map.get("message"));
        let mut codes = Vec::new();
        let inner = error.get("innererror").and_then(|inner| inner.get("code"));
        for code in ["code", "type", "status"].iter().filter_map(|name| error.get(*name)).chain(inner) {
            codes.extend(code.as_str().map(str::to_owned));
        }
        if let Some(tokens) = error.get("n_prompt_tokens").and_then(Value::as_u64) {
            codes.push(format!("n_prompt_tokens: {tokens}"));
        }
        let status = ["code", "status", "status_code"].iter().find_map(|name| error.get(*name)?.as_u64());
        let raw = error.get("metadata").and_then(|metadata| metadata.get("raw")).map(plain).unwrap_or_default();
        Said {
            status: status.and_then(|status| u16::try_from(status).ok()).filter(|status| (400..600).contains(status)),
            code: codes.join(" "),
            text: text.map(plain).unwrap_or_else(|| Value::Object(error.clone()).to_string()),
            raw,
        }
    }

    fn failure(self, http: Option<u16>, retry_after: Option<Duration>) -> Failure {
        let words = format!("{} {}", self.text, self.raw);
        let status = http.or(self.status);
        let error = ProviderError { status, code: &self.code, text: words.trim(), retry_after };
        let kind = error.kind();
        let retry_after = match kind {
            ModelErrorKind::RateLimited { retry_after } => retry_after,
            _ => retry_after,
        };
        let number = status.map(|status| format!("HTTP {status}: ")).unwrap_or_default();
        let said = if words.trim().is_empty() { "the provider says no more" } else { words.trim() };
        Failure { kind, text: format!("{number}{}", short(said)), passing: is_passing(kind), retry_after }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a web page is called.
fn title(page: &str) -> String {
    let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    title.map_or("a web page", |(title, _)| title.trim()).to_owned()
}

/// On one line, and not too long.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_TEXT) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// An error and what is behind it, without the address: its query may hold a key.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for source in sources(error) {
        let text = source.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
    }
    if texts.is_empty() { "the request failed".to_owned() } else { short(&texts.join(": ")) }
}

/// What is behind an error, itself left out. An I/O error hides what it carries from `source`.
fn sources(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let found = next?;
        let carried = found.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = carried.map(|inner| inner as &(dyn Error + 'static)).or_else(|| found.source());
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_in_every_shape() {
        let over = |observed| ModelErrorKind::Overflow { observed };
        for (status, body, kind, text) in [
            (
                400,
                r#"{"error":{"message":"too much","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                over(None),
                "HTTP 400: too much",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the context","type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}"#,
                over(Some(9412)),
                "HTTP 400: the request exceeds the context",
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"The input token count (7) exceeds the maximum number of tokens allowed (5).","status":"INVALID_ARGUMENT"}}]"#,
                over(Some(7)),
                "HTTP 400: The input token count (7) exceeds the maximum number of tokens allowed (5).",
            ),
            (
                400,
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt is too long: 9 tokens > 5 maximum"}}}"#,
                over(Some(9)),
                "HTTP 400: Provider returned error prompt is too long: 9 tokens > 5 maximum",
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 5 tokens.","type":"BadRequestError","code":400}"#,
                over(None),
                "HTTP 400: This model's maximum context length is 5 tokens.",
            ),
            (404, r#"{"error":"model \"x\" not found"}"#, ModelErrorKind::Failed, "HTTP 404: model \"x\" not found"),
            (422, r#"{"detail":[{"msg":"no"}]}"#, ModelErrorKind::Failed, "HTTP 422: [{\"msg\":\"no\"}]"),
            (
                502,
                "<html><head><title>502 Bad Gateway</title></head>",
                ModelErrorKind::Unavailable,
                "HTTP 502: 502 Bad Gateway",
            ),
            (400, "no\n  JSON", ModelErrorKind::Failed, "HTTP 400: no JSON"),
            (500, "", ModelErrorKind::Unavailable, "HTTP 500: the provider says no more"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = Failure::of_answer(status, &HeaderMap::new(), body);
            assert_eq!((failure.kind, failure.text.as_str()), (kind, text), "{body}");
        }
    }

    #[test]
    fn an_error_in_a_stream_brings_its_own_status() {
        for (body, kind) in [
            (r#"{"error":{"code":502,"message":"Provider disconnected"}}"#, ModelErrorKind::Unavailable),
            (r#"{"error":{"code":429,"message":"slow"}}"#, ModelErrorKind::RateLimited { retry_after: None }),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#, ModelErrorKind::Unavailable),
            (r#"{"error":{"code":7,"message":"odd"}}"#, ModelErrorKind::Failed),
        ] {
            assert_eq!(Failure::of_event(body).kind, kind, "{body}");
        }
    }

    #[test]
    fn words_without_end_are_cut() {
        let failure = Failure::of_answer(StatusCode::BAD_REQUEST, &HeaderMap::new(), &"ä".repeat(5_000));
        assert_eq!(failure.text.chars().count(), "HTTP 400: ".len() + LONGEST_TEXT + 1);
    }
}
