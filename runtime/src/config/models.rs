//! `models.providers` and `agents.defaults.model`: which model answers, where it is and what opens it.
//!
//! Decision: OpenClaw's keys, of which only `api: "openai-completions"` is spoken here. A key stands in the environment
//! and the configuration names the variable; one written into the file works, too, and is warned about.
//!
//! Decision: nothing is looked up before a model is asked for. A configuration with five providers of which one is used
//! needs the key of that one.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::Config;
use crate::model::{DEFAULT_CONTEXT_WINDOW, Model, ModelInfo};
use crate::{RuntimeError, Secret};

/// The one protocol that is spoken.
pub const OPENAI_COMPLETIONS: &str = "openai-completions";

/// `models`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Models {
    /// By the name that stands before the `/` of a model's name.
    pub providers: BTreeMap<String, Provider>,
}

/// `models.providers.<name>`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Provider {
    /// What `/chat/completions` is appended to.
    pub base_url: Option<String>,
    /// What opens the account; none for a server without accounts.
    pub api_key: Option<ApiKey>,
    /// The protocol; [`OPENAI_COMPLETIONS`] when absent.
    pub api: Option<String>,
    /// Sent with each request; `${NAME}` in a value is the variable of the environment.
    pub headers: BTreeMap<String, Secret>,
    /// How long a reply may take in all, retries included.
    pub timeout_seconds: Option<u64>,
    /// How long nothing at all may come in.
    pub idle_timeout_seconds: Option<u64>,
    /// How often a provider that is busy or down is asked again.
    pub max_retries: Option<u32>,
    /// The models it serves. Empty: any, of unknown size.
    pub models: Vec<ProviderModel>,
}

/// One of `models.providers.<name>.models`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProviderModel {
    /// Its id at the provider.
    pub id: String,
    /// Tokens of prompt and reply together.
    pub context_window: Option<u64>,
    /// The longest reply, in tokens.
    pub max_tokens: Option<u64>,
    /// How its server differs.
    pub compat: Compat,
}

/// `compat` of a model: how its server differs from OpenAI's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Compat {
    /// Which field limits the reply; by the host's name when absent.
    pub max_tokens_field: Option<MaxTokensField>,
    /// `false`: the server refuses `stream_options`, and no usage is asked for.
    pub supports_usage_in_streaming: Option<bool>,
}

/// `maxTokensField`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// What most servers know.
    MaxTokens,
    /// What OpenAI's newer models ask for.
    MaxCompletionTokens,
}

/// `apiKey`: a text, in which `${NAME}` is a variable of the environment, or an object that names the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKey {
    /// The text as it stands in the file.
    Text(Secret),
    /// The name of the variable.
    Env(String),
}

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ApiKey, D::Error> {
        // Nothing of what was found is in the error: it may be half a key.
        let wrong = || D::Error::custom("expected apiKey as a text such as \"${NAME}\", or as { env: \"NAME\" }");
        let value = Value::deserialize(from).map_err(|_| wrong())?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        match &value {
            Value::String(key) => Ok(ApiKey::Text(Secret::new(key))),
            Value::Object(_) if text("source").is_some_and(|source| source != "env") => Err(wrong()),
            Value::Object(_) => text("env").or_else(|| text("id")).map(ApiKey::Env).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

/// `agents.defaults.model`: `"provider/model"`, or an object whose `primary` is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice(pub String);

impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ModelChoice, D::Error> {
        let value = Value::deserialize(from)?;
        let name = value.as_str().or_else(|| value.get("primary").and_then(Value::as_str));
        let wrong = || D::Error::custom("expected model as \"provider/model\", or as { primary: \"provider/model\" }");
        name.map(|name| ModelChoice(name.trim().to_owned())).ok_or_else(wrong)
    }
}

/// A model with all that is needed to ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredModel {
    /// What it is called and what it can take.
    pub info: ModelInfo,
    /// What `/chat/completions` is appended to.
    pub base_url: String,
    /// What opens the account.
    pub api_key: Option<Secret>,
    /// Sent with each request.
    pub headers: BTreeMap<String, Secret>,
    /// How long a reply may take; the client's own limit when absent.
    pub timeout: Option<Duration>,
    /// How long nothing may come in; the client's own limit when absent.
    pub idle_timeout: Option<Duration>,
    /// How often it is asked again; the client's own number when absent.
    pub max_retries: Option<u32>,
    /// How its server differs.
    pub compat: Compat,
}

impl ConfiguredModel {
    /// A client for it. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RuntimeError::Model`]: an address, a key or a header that cannot be used, or a build without a client.
    pub fn open(&self) -> Result<Arc<dyn Model>, RuntimeError> {
        #[cfg(feature = "openai")]
        return Ok(Arc::new(crate::model::openai::OpenAiModel::new(self.into())?));
        #[cfg(not(feature = "openai"))]
        Err(RuntimeError::Model {
            model: format!("{}/{}", self.info.provider, self.info.id),
            reason: "this build cannot ask models; build it with the feature \"openai\"".to_owned(),
        })
    }
}

impl Config {
    /// The model that answers: `asked`, as `provider/model` or as the id of a model that is listed; without it
    /// `agents.defaults.model`. `None` when neither names one.
    ///
    /// The environment is read here, for the variables that this provider names.
    ///
    /// # Errors
    /// [`RuntimeError::Model`] with the key of the configuration, or the variable, that is missing or wrong.
    pub fn model(&self, asked: Option<&str>) -> Result<Option<ConfiguredModel>, RuntimeError> {
        self.model_in(asked, &|name| std::env::var(name).ok())
    }

    fn model_in(
        &self,
        asked: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ConfiguredModel>, RuntimeError> {
        let defaults = &self.agents.defaults;
        let Some(name) = asked.map(str::trim).or(defaults.model.as_ref().map(|choice| choice.0.as_str())) else {
            return Ok(None);
        };
        let wrong = |reason: String| RuntimeError::Model { model: name.to_owned(), reason };
        let (provider, id) = self.find(name).map_err(wrong)?;
        let settings = &self.models.providers[provider];
        let place = format!("models.providers.{provider}");
        let mut found = settings.read(&place, id, env).map_err(wrong)?;
        if let Some(cap) = defaults.context_tokens {
            let window = found.info.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW);
            found.info.context_window = Some(window.min(cap.max(1)));
        }
        found.info.provider = provider.to_owned();
        Ok(Some(found))
    }

    /// The provider and the model's id at it. Ids may hold a `/` themselves.
    fn find<'a>(&'a self, name: &'a str) -> Result<(&'a str, &'a str), String> {
        let providers = &self.models.providers;
        if let Some((provider, id)) = name.split_once('/')
            && let Some((provider, _)) = providers.get_key_value(provider)
        {
            return if id.is_empty() {
                Err("expected a model's id behind the /".to_owned())
            } else {
                Ok((provider, id))
            };
        }
        let lists = |provider: &Provider| provider.models.iter().any(|model| model.id == name);
        let listed: Vec<&str> = providers.iter().filter(|(_, p)| lists(p)).map(|(name, _)| name.as_str()).collect();
        match (listed.as_slice(), name.split_once('/')) {
            ([provider], _) => Ok((*provider, name)),
            ([], _) if providers.is_empty() => {
                Err("models.providers is empty; name the provider's baseUrl there (docs/models.md)".to_owned())
            }
            ([], Some((provider, _))) => Err(format!(
                "models.providers has no {provider:?}; it has {}",
                providers.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
            ([], None) => Err("expected \"provider/model\", or an id that one of models.providers lists".to_owned()),
            (several, _) => Err(format!("{} list it; name it as \"{}/{name}\"", several.join(" and "), several[0])),
        }
    }
}

impl Provider {
    fn read(&self, place: &str, id: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConfiguredModel, String> {
        if let Some(api) = self.api.as_deref().filter(|api| *api != OPENAI_COMPLETIONS) {
            return Err(format!("{place}.api: {api:?} is not spoken here; \"{OPENAI_COMPLETIONS}\" is"));
        }
        let listed = self.models.iter().position(|model| model.id == id);
        if listed.is_none() && !self.models.is_empty() {
            let ids: Vec<&str> = self.models.iter().map(|model| model.id.as_str()).collect();
            return Err(format!("{place}.models has no {id:?}; it has {}", ids.join(", ")));
        }
        let model = listed.map(|at| &self.models[at]).cloned().unwrap_or_default();
        let entry = format!("{place}.models[{}]", listed.unwrap_or_default());
        let positive = |key: String, value: Option<u64>| match value {
            Some(0) => Err(format!("{key} is 0; leave it out for the default")),
            value => Ok(value),
        };
        let context_window = positive(format!("{entry}.contextWindow"), model.context_window)?;
        let max_output_tokens = positive(format!("{entry}.maxTokens"), model.max_tokens)?;
        let seconds =
            |name: &str, value| positive(format!("{place}.{name}"), value).map(|s| s.map(Duration::from_secs));
        let expand =
            |key: &str, text: &str| expand(text, env).map_err(|variable| missing(&format!("{place}.{key}"), &variable));

        let base_url = self.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let base_url = base_url.ok_or_else(|| {
            format!("{place}.baseUrl is missing: expected what stands before /chat/completions, such as \"https://api.openai.com/v1\"")
        })?;
        let headers = self.headers.iter();
        let headers = headers
            .map(|(name, value)| Ok((name.clone(), Secret::new(expand(&format!("headers.{name}"), value.expose())?))));
        Ok(ConfiguredModel {
            info: ModelInfo { id: id.to_owned(), context_window, max_output_tokens, ..ModelInfo::default() },
            base_url: expand("baseUrl", base_url)?,
            api_key: self.api_key.as_ref().map(|key| key.read(&format!("{place}.apiKey"), env)).transpose()?,
            headers: headers.collect::<Result<_, String>>()?,
            timeout: seconds("timeoutSeconds", self.timeout_seconds)?,
            idle_timeout: seconds("idleTimeoutSeconds", self.idle_timeout_seconds)?,
            max_retries: self.max_retries,
            compat: model.compat,
        })
    }
}

impl ApiKey {
    fn read(&self, place: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Secret, String> {
        let key = match self {
            ApiKey::Env(name) => env(name).ok_or_else(|| missing(place, name))?,
            ApiKey::Text(text) => {
                if !text.expose().contains("${") {
                    tracing::warn!(place, "a key stands in the configuration; better name a variable: \"${{NAME}}\"");
                }
                expand(text.expose(), env).map_err(|name| missing(place, &name))?
            }
        };
        // A line's end comes along when a key was read from a file into a variable.
        match key.trim() {
            "" => Err(format!("{place} is empty")),
            key => Ok(Secret::new(key)),
        }
    }
}

fn missing(place: &str, variable: &str) -> String {
    format!("{place} names the environment variable {variable}, which is not set")
}

/// The text with each `${NAME}` replaced; the name of the first variable that is not set otherwise.
fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&env(name).ok_or_else(|| name.to_owned())?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
