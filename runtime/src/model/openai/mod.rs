//! A client of OpenAI's chat completions, and of the many servers that speak them.
//!
//! Decision: reqwest and sse-stream, and bodies read as plain JSON. async-openai was looked at first and does not fit: its
//! errors lose `Retry-After` and, for a 4xx whose body is no error object, the status; a server that answers a request for a stream
//! without streaming gives an empty reply; a key with a line break panics; what cannot be read is logged whole; its reader
//! (eventsource-stream) panics at a byte order mark. Types of its own would refuse what other servers leave out or add.
//!
//! Decision: what was passed on is never taken back. Until the first piece of text or thinking went to the host, a
//! provider that is busy or down is asked again; after it, the error carries what had come in.
//!
//! Decision: redirects are not followed. A key would go to a host nobody configured.

mod calls;
mod config;
mod failure;
mod reply;
mod request;
mod retry;
mod usage;
mod wire;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::{sleep, timeout};

pub use self::config::OpenAiConfig;
use self::failure::Failure;
use self::reply::Reply;
use self::wire::Wire;
use super::{BoxFuture, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelReply, ModelRequest};
use crate::config::MaxTokensField;
use crate::{RuntimeError, Secret};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(20);
/// How long a stream that has said it is over is read on, so that its connection can be used again.
const LINGER: Duration = Duration::from_millis(100);
/// Hosts that want [`MaxTokensField::MaxCompletionTokens`].
const NEW_LIMIT: [&str; 2] = ["api.openai.com", ".openai.azure.com"];

/// A model behind OpenAI's chat completions. Needs a Tokio runtime with time and I/O enabled.
#[derive(Debug)]
pub struct OpenAiModel {
    info: ModelInfo,
    config: OpenAiConfig,
    limit: MaxTokensField,
    url: Url,
    headers: HeaderMap,
    client: Client,
}

impl OpenAiModel {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RuntimeError::Model`]: an address, a key or a header that cannot be used, or no certificates to check a host by.
    pub fn new(config: OpenAiConfig) -> Result<OpenAiModel, RuntimeError> {
        let url = endpoint(&config.base_url).map_err(|reason| config.wrong(reason))?;
        let headers = headers(&config).map_err(|reason| config.wrong(reason))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let at_home = is_loopback(&host);
        if config.api_key.is_some() && url.scheme() == "http" && !at_home {
            tracing::warn!(host, "the key is sent without encryption; use an https:// baseUrl");
        }
        let no_tls = |error| format!("TLS: {error}; install the system's certificates or set SSL_CERT_FILE to some");
        let tls = tls(url.scheme() == "https").map_err(|error| config.wrong(no_tls(error)))?;
        let client = Client::builder()
            .connect_timeout(CONNECT.min(config.idle_timeout))
            .redirect(redirect::Policy::none())
            .user_agent(concat!("context-engine/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls);
        // A proxy cannot reach a server on this machine.
        let client = if at_home { client.no_proxy() } else { client };
        let client = client.build().map_err(|error| config.wrong(failure::chain(&error)))?;
        let info = ModelInfo {
            provider: config.provider.clone(),
            id: config.model.clone(),
            family: None,
            context_window: config.context_window,
            max_output_tokens: config.max_output_tokens,
        };
        let new = NEW_LIMIT.iter().any(|known| host == *known || (known.starts_with('.') && host.ends_with(known)));
        let by_host = if new { MaxTokensField::MaxCompletionTokens } else { MaxTokensField::MaxTokens };
        let limit = config.compat.max_tokens_field.unwrap_or(by_host);
        Ok(OpenAiModel { info, limit, url, headers, client, config })
    }

    async fn ask(
        &self,
        request: &ModelRequest,
        events: &mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> Result<ModelReply, ModelError> {
        if tokio::runtime::Handle::try_current().is_err() {
            let text = "asked outside of a Tokio runtime; ask from within one, with time and I/O enabled";
            return Err(ModelError::new(ModelErrorKind::Failed, text));
        }
        let body = Bytes::from(request::body(&self.config, self.limit, request));
        let mut reply = Reply::new(&self.config.model, &request.tools);
        let outcome = timeout(self.config.timeout, self.attempts(&body, &mut reply, events)).await;
        let failure = match outcome {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(failure)) => failure,
            Err(_) => {
                let text = format!("no whole reply within {} s", self.config.timeout.as_secs_f64());
                Failure::last(ModelErrorKind::Timeout, text)
            }
        };
        Err(ModelError { kind: failure.kind, text: failure.text, partial: reply.partial() })
    }

    /// Asks, and asks again while it may help and nothing was passed on.
    async fn attempts(
        &self,
        body: &Bytes,
        reply: &mut Reply<'_>,
        events: &mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> Result<ModelReply, Failure> {
        let end = Instant::now() + self.config.timeout;
        for asked in 1_u32.. {
            let Err(failure) = self.exchange(body, reply, events).await else { return Ok(reply.finish(events)) };
            let mut failure = self.without_key(failure);
            if reply.was_seen() && failure.kind == ModelErrorKind::Unavailable {
                failure.kind = ModelErrorKind::Interrupted;
            }
            let again = failure.passing && !reply.was_seen() && asked <= self.config.max_retries;
            let pause = again.then(|| retry::pause(asked, self.config.backoff, failure.retry_after)).flatten();
            let Some(after) = pause.filter(|pause| Instant::now() + *pause < end) else { return Err(failure) };
            tracing::debug!(provider = self.config.provider, asked, ?after, reason = failure.text, "asked again");
            events(ModelEvent::Retry { attempt: asked, after, reason: &failure.text });
            sleep(after).await;
            reply.clear();
        }
        Err(Failure::last(ModelErrorKind::Failed, "asked too often"))
    }

    /// One request and its answer, taken up in `reply`.
    async fn exchange(
        &self,
        body: &Bytes,
        reply: &mut Reply<'_>,
        events: &mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> Result<(), Failure> {
        let idle = self.config.idle_timeout;
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body.clone());
        let response = match timeout(idle, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::of_connection(self.url.host_str().unwrap_or_default(), &error)),
            Err(_) => return Err(wire::Error::Idle(idle).into()),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let mut wire = Wire::new(response, idle);
        if !status.is_success() {
            let body = wire.start(failure::LONGEST_BODY).await;
            return Err(Failure::of_answer(status, &headers, &String::from_utf8_lossy(&body)));
        }
        // The first byte decides and not the content type: servers and proxies are wrong about it.
        match wire.first().await? {
            Some(b'{' | b'[') => {
                let body = wire.all().await?;
                reply.whole(&body, events)
            }
            Some(b'<') => {
                let text = "answered with a web page; baseUrl should be what stands before /chat/completions";
                Err(Failure::last(ModelErrorKind::Failed, text))
            }
            _ => self.stream(wire, reply, events).await,
        }
    }

    async fn stream(
        &self,
        wire: Wire,
        reply: &mut Reply<'_>,
        events: &mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> Result<(), Failure> {
        let mut stream = pin!(wire.events());
        while let Some(event) = stream.next().await {
            if reply.event(&event.map_err(wire::broken)?, events)? {
                _ = timeout(LINGER, stream.next()).await;
                break;
            }
        }
        reply.end()
    }

    /// A provider may tell a wrong key back, wherever it was sent.
    fn without_key(&self, mut failure: Failure) -> Failure {
        let secrets = self.config.api_key.iter().chain(self.config.headers.values()).map(Secret::expose);
        let in_query: Vec<String> = self.url.query_pairs().map(|(_, value)| value.into_owned()).collect();
        let in_url = in_query.iter().map(String::as_str).chain(self.url.query()).chain(self.url.password());
        let secrets: Vec<&str> = secrets.chain(in_url).collect();
        for secret in secrets.into_iter().filter(|secret| secret.len() >= 8) {
            failure.text = failure.text.replace(secret, "***");
        }
        failure
    }
}

impl Model for OpenAiModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(self.ask(request, events))
    }
}

/// Where requests go. A query of the base address stays: Azure's names the version of its interface.
fn endpoint(base_url: &str) -> Result<Url, String> {
    let expected = "expected something like https://api.openai.com/v1";
    let mut url = Url::parse(base_url.trim()).map_err(|error| format!("baseUrl: {error}; {expected}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("baseUrl: {:?} is neither http nor https; {expected}", url.scheme()));
    }
    if !url.path().trim_end_matches('/').ends_with("/chat/completions")
        && let Ok(mut path) = url.path_segments_mut()
    {
        path.pop_if_empty().extend(["chat", "completions"]);
    }
    Ok(url)
}

fn headers(config: &OpenAiConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (ACCEPT, HeaderValue::from_static("text/event-stream, application/json")),
    ]);
    let secret = |what: &str, text: &str| {
        let value = HeaderValue::from_str(text);
        let mut value = value.map_err(|_| format!("{what} holds a character that no HTTP header can carry"))?;
        value.set_sensitive(true);
        Ok::<_, String>(value)
    };
    if let Some(key) = &config.api_key {
        headers.insert(AUTHORIZATION, secret("apiKey", &format!("Bearer {}", key.expose()))?);
    }
    for (name, value) in &config.headers {
        let name_of = HeaderName::from_bytes(name.as_bytes());
        let name_of = name_of.map_err(|_| format!("headers: {name:?} is no name of an HTTP header"))?;
        headers.insert(name_of, secret(&format!("headers.{name}"), value.expose())?);
    }
    Ok(headers)
}

/// The system's certificates, looked for only where a host has to be checked: a container without any can still ask a
/// server in its own network.
fn tls(checked: bool) -> Result<ClientConfig, rustls::Error> {
    // Not the process's default: that is the application's to choose.
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = if checked {
        builder.with_platform_verifier()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_chat_completions_below_the_base() {
        for (base, expected) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            (" http://localhost:11434/v1/ ", "http://localhost:11434/v1/chat/completions"),
            ("http://h", "http://h/chat/completions"),
            ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
            (
                "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
                "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
            ),
        ] {
            assert_eq!(endpoint(base).expect(base).as_str(), expected);
        }
        for (base, expected) in
            [("localhost:8080/v1", "neither http nor https"), ("/v1", "baseUrl: "), ("", "baseUrl: ")]
        {
            let error = endpoint(base).expect_err(base);
            assert!(error.contains(expected) && error.contains("https://api.openai.com/v1"), "{error}");
        }
    }

    #[test]
    fn which_hosts_are_on_this_machine() {
        for (host, expected) in
            [("localhost", true), ("127.0.0.1", true), ("[::1]", true), ("api.openai.com", false), ("10.0.0.1", false)]
        {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_refused_and_not_shown() {
        let mut config = OpenAiConfig::new("https://api.example/v1", "m");
        config.api_key = Some(Secret::new("sk-first\nsk-second"));
        let error = OpenAiModel::new(config.clone()).expect_err("refused").to_string();
        assert_eq!(error, "model openai/m: apiKey holds a character that no HTTP header can carry");
        config.api_key = Some(Secret::new("sk-first"));
        config.headers.insert("X-Team".into(), Secret::new("sk-second"));
        let shown = format!("{:?} {:?}", config.clone(), OpenAiModel::new(config));
        assert!(!shown.contains("sk-"), "{shown}");
    }

    #[test]
    fn the_limit_of_a_reply_has_the_name_the_host_knows() {
        for (base, expected) in [
            ("https://api.openai.com/v1", MaxTokensField::MaxCompletionTokens),
            ("https://r.openai.azure.com/openai", MaxTokensField::MaxCompletionTokens),
            ("https://api.openai.com.example/v1", MaxTokensField::MaxTokens),
            ("http://localhost:1/v1", MaxTokensField::MaxTokens),
        ] {
            assert_eq!(OpenAiModel::new(OpenAiConfig::new(base, "m")).expect(base).limit, expected, "{base}");
        }
    }
}
