//! Where a model is and how it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{Compat, ConfiguredModel};
use crate::{RuntimeError, Secret};

/// Where a model is and how it is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenAiConfig {
    /// Who serves it: a name for people and transcripts.
    pub provider: String,
    /// What `/chat/completions` is appended to, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as a bearer token; none for a server without accounts. Never shown.
    pub api_key: Option<Secret>,
    /// The model's id at the provider.
    pub model: String,
    /// Tokens of prompt and reply together.
    pub context_window: Option<u64>,
    /// The longest reply, in tokens: a request asks for no longer one.
    pub max_output_tokens: Option<u64>,
    /// How long a reply may take in all, retries included.
    pub timeout: Duration,
    /// How long nothing at all may come in, before the first byte as well. Signs of life of a server count.
    pub idle_timeout: Duration,
    /// How often a provider that is busy or down is asked again.
    pub max_retries: u32,
    /// The first pause before it is asked again; each further one is twice as long.
    pub backoff: Duration,
    /// Sent with each request.
    pub headers: BTreeMap<String, Secret>,
    /// How the server differs from OpenAI's.
    pub compat: Compat,
}

impl std::fmt::Debug for OpenAiConfig {
    /// Without what may be secret in the address: its account and its query.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.base_url.split('?').next().unwrap_or_default();
        let address = match address.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host)),
            None => address.to_owned(),
        };
        f.debug_struct("OpenAiConfig")
            .field("provider", &self.provider)
            .field("base_url", &address)
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl OpenAiConfig {
    /// The defaults: no key, ten minutes in all, three minutes of silence, four retries.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> OpenAiConfig {
        OpenAiConfig {
            provider: "openai".to_owned(),
            base_url: base_url.into(),
            api_key: None,
            model: model.into(),
            context_window: None,
            max_output_tokens: None,
            timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(180),
            max_retries: 4,
            backoff: Duration::from_millis(500),
            headers: BTreeMap::new(),
            compat: Compat::default(),
        }
    }

    /// Takes the key from a variable of the environment.
    ///
    /// # Errors
    /// [`RuntimeError::Model`] when the variable is not set or empty.
    pub fn key_from_env(mut self, variable: &str) -> Result<OpenAiConfig, RuntimeError> {
        let key = std::env::var(variable).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let missing = || self.wrong(format!("the environment variable {variable} holds no key; set it"));
        self.api_key = Some(Secret::new(key.ok_or_else(missing)?));
        Ok(self)
    }

    pub(super) fn wrong(&self, reason: String) -> RuntimeError {
        RuntimeError::Model { model: format!("{}/{}", self.provider, self.model), reason }
    }
}

impl From<&ConfiguredModel> for OpenAiConfig {
    fn from(found: &ConfiguredModel) -> OpenAiConfig {
        let defaults = OpenAiConfig::new(&found.base_url, &found.info.id);
        OpenAiConfig {
            provider: found.info.provider.clone(),
            api_key: found.api_key.clone(),
            context_window: found.info.context_window,
            max_output_tokens: found.info.max_output_tokens,
            timeout: found.timeout.unwrap_or(defaults.timeout),
            idle_timeout: found.idle_timeout.unwrap_or(defaults.idle_timeout),
            max_retries: found.max_retries.unwrap_or(defaults.max_retries),
            headers: found.headers.clone(),
            compat: found.compat,
            ..defaults
        }
    }
}
