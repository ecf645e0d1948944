//! `models.providers` and `agents.defaults.model`: which model answers, where it is and what opens it.
//!
//! Decision: OpenClaw's keys, of which only `api: "openai-completions"` is spoken here. A key stands in the environment
//! and the configuration names the variable; one written into the file works, too, and is warned about.
//!
//! Decision: nothing is looked up before a model is asked for. A configuration with five providers of which one is used
//! needs the key of that one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::Config;
use crate::model::{DEFAULT_CONTEXT_WINDOW, ModelInfo};
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
        let mut found = settings.open(&place, id, env).map_err(wrong)?;
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
    fn open(&self, place: &str, id: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConfiguredModel, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
        models: { mode: 'merge', providers: {
            home: { baseUrl: 'http://localhost:8080/v1/', models: [{ id: 'small', contextWindow: 32768 }, { id: 'org/large' }] },
            openai: {
                baseUrl: '${BASE}/v1', apiKey: '${OPENAI_KEY}', api: 'openai-completions', headers: { 'X-Team': 'a-${TEAM}' },
                timeoutSeconds: 90, idleTimeoutSeconds: 20, maxRetries: 2, auth: 'api-key',
                models: [{ id: 'gpt', name: 'GPT', contextWindow: 128000, maxTokens: 16384, cost: { input: 1 },
                           compat: { maxTokensField: 'max_tokens', supportsUsageInStreaming: false, supportsStore: true } }],
            },
            any: { baseUrl: 'https://any.example/v1', apiKey: { env: 'ANY_KEY' } },
            ref: { baseUrl: 'https://any.example/v1', apiKey: { source: 'env', provider: 'default', id: 'ANY_KEY' } },
            literal: { baseUrl: 'https://any.example/v1', apiKey: 'sk-written-down' },
            unset: { baseUrl: 'https://any.example/v1', apiKey: '${NOT_SET}' },
            blank: { baseUrl: 'https://any.example/v1', apiKey: { env: 'BLANK' } },
            header: { baseUrl: 'https://any.example/v1', headers: { 'api-key': '${NOT_SET}' } },
            nowhere: { apiKey: '${ANY_KEY}' },
            claude: { baseUrl: 'https://any.example', api: 'anthropic-messages' },
            zero: { baseUrl: 'https://any.example', models: [{ id: 'm', contextWindow: 0 }] },
            twin: { baseUrl: 'https://any.example', models: [{ id: 'gpt' }] },
        } },
        agents: { defaults: { model: { primary: 'home/small', fallbacks: ['openai/gpt'] }, contextTokens: 100000 } },
    }"#;

    fn env(name: &str) -> Option<String> {
        let known = [
            ("BASE", "https://api.example"),
            ("OPENAI_KEY", "sk-1\n"),
            ("TEAM", "b"),
            ("ANY_KEY", "sk-2"),
            ("BLANK", " "),
        ];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn config() -> Config {
        json5::from_str(FULL).expect("a configuration")
    }

    #[test]
    fn a_model_is_found_by_its_name_or_by_its_listed_id() {
        let config = config();
        for (asked, provider, id, window, key) in [
            (None, "home", "small", Some(32_768), None),
            (Some("openai/gpt"), "openai", "gpt", Some(100_000), Some("sk-1")),
            (Some("org/large"), "home", "org/large", Some(100_000), None),
            (Some("home/org/large"), "home", "org/large", Some(100_000), None),
            (Some("any/whatever/it:is"), "any", "whatever/it:is", Some(100_000), Some("sk-2")),
            (Some("ref/x"), "ref", "x", Some(100_000), Some("sk-2")),
            (Some("literal/x"), "literal", "x", Some(100_000), Some("sk-written-down")),
        ] {
            let model = config.model_in(asked, &env).expect("no mistake").expect("a model");
            let found = (model.info.provider.as_str(), model.info.id.as_str(), model.info.context_window);
            assert_eq!(found, (provider, id, window), "{asked:?}");
            assert_eq!(model.api_key.as_ref().map(Secret::expose), key, "{asked:?}");
        }
        assert_eq!(Config::default().model(None).expect("nothing asked for"), None);
    }

    #[test]
    fn everything_a_provider_says_is_read() {
        let model = config().model_in(Some("openai/gpt"), &env).expect("no mistake").expect("a model");
        assert_eq!(model.base_url, "https://api.example/v1");
        assert_eq!(model.headers["X-Team"].expose(), "a-b");
        let seconds = Duration::from_secs;
        assert_eq!((model.timeout, model.idle_timeout), (Some(seconds(90)), Some(seconds(20))));
        assert_eq!((model.max_retries, model.info.max_output_tokens), (Some(2), Some(16_384)));
        let compat =
            Compat { max_tokens_field: Some(MaxTokensField::MaxTokens), supports_usage_in_streaming: Some(false) };
        assert_eq!(model.compat, compat);
    }

    #[test]
    fn what_is_missing_is_named() {
        let config = config();
        for (asked, expected) in [
            ("openai/gpt-9", "models.providers.openai.models has no \"gpt-9\"; it has gpt"),
            ("opnai/gpt", "models.providers has no \"opnai\"; it has any, blank, "),
            ("gpt", "openai and twin list it; name it as \"openai/gpt\""),
            ("gpt-9", "expected \"provider/model\", or an id that one of models.providers lists"),
            ("any/", "expected a model's id behind the /"),
            ("unset/x", "models.providers.unset.apiKey names the environment variable NOT_SET, which is not set"),
            ("header/x", "models.providers.header.headers.api-key names the environment variable NOT_SET"),
            ("blank/x", "models.providers.blank.apiKey is empty"),
            ("nowhere/x", "models.providers.nowhere.baseUrl is missing"),
            ("claude/x", "models.providers.claude.api: \"anthropic-messages\" is not spoken here"),
            ("zero/m", "models.providers.zero.models[0].contextWindow is 0"),
        ] {
            let error = config.model_in(Some(asked), &env).expect_err(asked).to_string();
            assert!(error.starts_with(&format!("model {asked}: ")) && error.contains(expected), "{error}");
        }
        let error = Config::default().model(Some("a/b")).expect_err("no providers").to_string();
        assert!(error.contains("models.providers is empty"), "{error}");
    }

    #[test]
    fn no_key_is_shown() {
        let shown = format!("{:?}", config().model_in(Some("literal/x"), &env));
        assert!(!shown.contains("sk-") && !format!("{:?}", config()).contains("sk-written"), "{shown}");
        for key in ["12345678", "['sk-list']", "{ source: 'file', id: 'sk-file' }", "{ key: 'sk-member' }"] {
            let text = format!("{{ models: {{ providers: {{ a: {{ apiKey: {key} }} }} }} }}");
            let error = json5::from_str::<Config>(&text).expect_err("refused").to_string();
            assert!(
                error.contains("{ env: \"NAME\" }") && !error.contains("sk-") && !error.contains("1234"),
                "{error}"
            );
        }
    }
}
