//! Which model is found, and what is said of one that is not.

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
    let known =
        [("BASE", "https://api.example"), ("OPENAI_KEY", "sk-1\n"), ("TEAM", "b"), ("ANY_KEY", "sk-2"), ("BLANK", " ")];
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
    let compat = Compat { max_tokens_field: Some(MaxTokensField::MaxTokens), supports_usage_in_streaming: Some(false) };
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
        assert!(error.contains("{ env: \"NAME\" }") && !error.contains("sk-") && !error.contains("1234"), "{error}");
    }
}

#[test]
fn the_examples_that_are_shown_can_be_used() {
    let docs = include_str!("../../../../docs/models.md");
    let shown = docs.split("```json5\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config: Config = json5::from_str(&format!("{{ {shown} }}")).expect("a configuration");
    let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-1".to_owned());
    let model = config.model_in(None, &key).expect("no mistake").expect("a model");
    assert_eq!((model.info.id.as_str(), model.info.context_window), ("gpt-4o", Some(64_000)));
    assert!(config.model_in(Some("home/any"), &key).is_ok());

    let template = include_str!("../../../../cli/config.template.json5");
    let models = template.split("  models: {\n").nth(1).and_then(|rest| rest.split("    providers: {},").next());
    let example = models.and_then(|models| models.split("// Example:\n").nth(1)).expect("an example");
    let example: String =
        example.lines().map(|line| format!("{}\n", line.trim_start().trim_start_matches("//   "))).collect();
    let config: Config = json5::from_str(&format!("{{ models: {{ {example} }} }}")).expect("a configuration");
    let all = |name: &str| Some(name.to_lowercase());
    let model = config.model_in(Some("openai/gpt-4o"), &all).expect("no mistake").expect("a model");
    let defaults = crate::model::openai::OpenAiConfig::new("", "");
    let said = crate::model::openai::OpenAiConfig::from(&model);
    assert_eq!((said.timeout, said.idle_timeout), (defaults.timeout, defaults.idle_timeout));
    assert_eq!((said.max_retries, model.headers["X-Team"].expose()), (defaults.max_retries, "team"));
}
