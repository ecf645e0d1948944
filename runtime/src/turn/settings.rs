//! `runtimeSettings`, schema version 1, by the rules of contract §1.4.

use context_engine_interface::RuntimeSettings;
use context_engine_loader::LEGACY;

/// What a host knows when it calls an engine. Blank texts count as unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsFacts {
    /// `normal`, `fallback` or `degraded`, where the host says so itself.
    pub mode: Option<String>,
    /// What runs the turn.
    pub harness_id: Option<String>,
    /// What the harness runs on.
    pub runtime_id: Option<String>,
    /// The model that was asked for.
    pub requested_model: Option<String>,
    /// The model that answers.
    pub resolved_model: Option<String>,
    /// Who serves it.
    pub provider: Option<String>,
    /// Its family.
    pub family: Option<String>,
    /// The engine in the slot.
    pub selected_engine: Option<String>,
    /// `configured`, `default` or `unknown`, where the host says so itself.
    pub selection_source: Option<String>,
    /// Id of the surface that calls.
    pub host_id: Option<String>,
    /// What people call it.
    pub host_label: Option<String>,
    /// Tokens one prompt may have.
    pub prompt_token_budget: Option<u64>,
    /// Tokens a reply may have.
    pub max_output_tokens: Option<u64>,
    /// Why another model answers than the one asked for.
    pub fallback_reason: Option<String>,
    /// Why the run is less than it should be.
    pub degraded_reason: Option<String>,
}

impl SettingsFacts {
    /// The object as engines get it.
    pub fn settings(&self) -> RuntimeSettings {
        let mut settings = RuntimeSettings::new();
        let reason = |text: &Option<String>| known(text).map(|text| reason_code(&text).to_owned());
        let (requested, resolved) = (known(&self.requested_model), known(&self.resolved_model));
        let (fallback, degraded) = (reason(&self.fallback_reason), reason(&self.degraded_reason));
        let differs = requested.is_some() && resolved.is_some() && requested != resolved;
        let mode = match known(&self.mode) {
            Some(mode) => mode,
            None if degraded.is_some() => "degraded".to_owned(),
            None if fallback.is_some() || differs => "fallback".to_owned(),
            None => "normal".to_owned(),
        };
        let selected = known(&self.selected_engine);
        let source = known(&self.selection_source).unwrap_or_else(|| match selected.as_deref() {
            Some(LEGACY) => "default".to_owned(),
            Some(_) => "configured".to_owned(),
            None => "unknown".to_owned(),
        });
        settings.runtime.host = "context-engine".to_owned();
        settings.runtime.mode = mode;
        settings.runtime.harness_id = known(&self.harness_id);
        settings.runtime.runtime_id = known(&self.runtime_id);
        settings.model.requested = requested;
        settings.model.resolved = resolved;
        settings.model.provider = known(&self.provider);
        settings.model.family = known(&self.family);
        settings.context_engine_selection.selected_id = selected;
        settings.context_engine_selection.source = source;
        settings.execution_host.id = known(&self.host_id);
        settings.execution_host.label = known(&self.host_label);
        settings.limits.prompt_token_budget = self.prompt_token_budget;
        settings.limits.max_output_tokens = self.max_output_tokens;
        settings.diagnostics.fallback_reason = fallback;
        settings.diagnostics.degraded_reason = degraded;
        settings
    }
}

fn known(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The closed code of a reason: itself, or the first that its words point to.
fn reason_code(text: &str) -> &'static str {
    const CODES: [&str; 6] = [
        "provider_timeout",
        "provider_unavailable",
        "rate_limited",
        "context_overflow",
        "runtime_unavailable",
        "unknown",
    ];
    const WORDS: [(&[&str], &str); 5] = [
        (&["timeout"], "provider_timeout"),
        (&["rate", "limit", "429"], "rate_limited"),
        (&["overflow", "context", "pressure"], "context_overflow"),
        (&["runtime"], "runtime_unavailable"),
        (&["provider", "primary", "unavailable"], "provider_unavailable"),
    ];
    let lower = text.to_lowercase();
    let exact = CODES.into_iter().find(|code| *code == lower);
    let by_words = || WORDS.iter().find(|(words, _)| words.iter().any(|word| lower.contains(word)));
    exact.or_else(|| by_words().map(|(_, code)| *code)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(change: impl FnOnce(&mut SettingsFacts)) -> RuntimeSettings {
        let mut facts = SettingsFacts::default();
        change(&mut facts);
        facts.settings()
    }

    #[test]
    fn the_object_has_every_member_and_null_for_what_is_unknown() {
        let json = serde_json::to_value(SettingsFacts::default().settings()).expect("JSON");
        let expected = serde_json::json!({
            "schemaVersion": 1,
            "runtime": { "host": "context-engine", "mode": "normal", "harnessId": null, "runtimeId": null },
            "model": { "requested": null, "resolved": null, "provider": null, "family": null },
            "contextEngineSelection": { "selectedId": null, "source": "unknown" },
            "executionHost": { "id": null, "label": null },
            "limits": { "promptTokenBudget": null, "maxOutputTokens": null },
            "diagnostics": { "fallbackReason": null, "degradedReason": null },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn blank_texts_are_unknown() {
        let settings =
            facts(|f| (f.provider, f.harness_id, f.mode) = (Some("  ".into()), Some(String::new()), Some(" ".into())));
        assert_eq!((settings.model.provider, settings.runtime.harness_id), (None, None));
        assert_eq!(settings.runtime.mode, "normal");
    }

    #[test]
    fn the_mode_is_what_is_said_else_what_the_facts_say() {
        let mode = |change: fn(&mut SettingsFacts)| facts(change).runtime.mode;
        assert_eq!(mode(|f| f.degraded_reason = Some("context pressure".into())), "degraded");
        assert_eq!(mode(|f| f.fallback_reason = Some("429".into())), "fallback");
        assert_eq!(mode(|f| (f.requested_model, f.resolved_model) = (Some("a".into()), Some("b".into()))), "fallback");
        assert_eq!(mode(|f| (f.requested_model, f.resolved_model) = (Some("a".into()), None)), "normal");
        assert_eq!(mode(|f| (f.mode, f.degraded_reason) = (Some("normal".into()), Some("x".into()))), "normal");
    }

    #[test]
    fn the_source_follows_the_selection() {
        let source =
            |id: Option<&str>| facts(|f| f.selected_engine = id.map(str::to_owned)).context_engine_selection.source;
        assert_eq!([source(Some("mine")), source(Some("legacy")), source(None)], ["configured", "default", "unknown"]);
    }

    #[test]
    fn reasons_become_closed_codes() {
        let cases = [
            ("provider_unavailable", "provider_unavailable"),
            ("Request TIMEOUT after 60 s", "provider_timeout"),
            ("HTTP 429", "rate_limited"),
            ("usage limit", "rate_limited"),
            ("context pressure", "context_overflow"),
            ("runtime gone", "runtime_unavailable"),
            ("primary is down", "provider_unavailable"),
            ("who knows", "unknown"),
        ];
        for (text, code) in cases {
            assert_eq!(reason_code(text), code, "{text}");
        }
    }
}
