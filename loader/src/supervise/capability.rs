//! What a host can do, and whether that is enough for an engine. Fails closed: an engine that needs more is not run
//! (contract §1.7).

use std::collections::BTreeSet;

use context_engine_interface::record::EngineInfo;

/// The host completes with a model when an engine asks for it.
pub const RUNTIME_LLM_COMPLETE: &str = "runtime-llm-complete";

/// The host gives a thread on its backend one prompt per epoch, as [`Projection`](super::Projection) says.
pub const THREAD_BOOTSTRAP_PROJECTION: &str = "thread-bootstrap-projection";

/// A host, as engines' requirements see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProfile {
    /// What people call it.
    pub label: String,
    /// What it offers: `bootstrap`, `assemble-before-prompt`, `after-turn`, `maintain`, `compact`,
    /// [`RUNTIME_LLM_COMPLETE`], [`THREAD_BOOTSTRAP_PROJECTION`].
    pub capabilities: BTreeSet<String>,
}

impl Default for HostProfile {
    /// A host that calls every member and has no model to complete with.
    fn default() -> HostProfile {
        let all = ["bootstrap", "assemble-before-prompt", "after-turn", "maintain", "compact"];
        HostProfile { label: "this host".to_owned(), capabilities: all.map(str::to_owned).into() }
    }
}

impl HostProfile {
    /// A host that calls every member, by this name.
    pub fn new(label: impl Into<String>) -> HostProfile {
        HostProfile { label: label.into(), ..HostProfile::default() }
    }

    /// The same host, with a model that engines may complete with: its [`SessionServices`](super::SessionServices) answer
    /// `complete`.
    #[must_use]
    pub fn with_runtime_llm_complete(self) -> HostProfile {
        self.offering(RUNTIME_LLM_COMPLETE)
    }

    /// The same host, with threads on its backend: it heeds the [`Projection`](super::Projection) of a prompt.
    #[must_use]
    pub fn with_thread_bootstrap_projection(self) -> HostProfile {
        self.offering(THREAD_BOOTSTRAP_PROJECTION)
    }

    fn offering(mut self, capability: &str) -> HostProfile {
        self.capabilities.insert(capability.to_owned());
        self
    }

    /// Why `operation` (`agent-run`, `manual-compact`, `subagent-spawn`) cannot be run with this engine here, in the
    /// contract's words.
    pub fn lacks(&self, info: &EngineInfo, operation: &str) -> Option<String> {
        let requirement = info.host_requirements.iter().find(|requirement| requirement.operation == operation)?;
        let required = &requirement.required_capabilities;
        let missing: Vec<&str> =
            required.iter().map(String::as_str).filter(|name| !self.capabilities.contains(*name)).collect();
        if missing.is_empty() {
            return None;
        }
        let has: Vec<&str> = self.capabilities.iter().map(String::as_str).collect();
        let mut text = format!(
            "Context engine \"{}\" cannot run operation \"{operation}\" on {}. Missing host capabilities: {}. Required \
             capabilities: {}. Host capabilities: {}.",
            info.id,
            self.label,
            missing.join(", "),
            required.join(", "),
            if has.is_empty() { "(none)".to_owned() } else { has.join(", ") },
        );
        if let Some(message) = &requirement.unsupported_message {
            text.push(' ');
            text.push_str(message);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use context_engine_interface::record::HostRequirement;
    use context_engine_legacy::LegacyEngine;

    use super::*;

    fn engine(required: &[&str], message: Option<&str>) -> EngineInfo {
        let requirement = HostRequirement {
            operation: "agent-run".to_owned(),
            required_capabilities: required.iter().map(|name| (*name).to_owned()).collect(),
            unsupported_message: message.map(str::to_owned),
        };
        EngineInfo { id: "e".to_owned(), host_requirements: vec![requirement], ..LegacyEngine::info() }
    }

    #[test]
    fn what_is_missing_is_said_in_the_contracts_words() {
        let host = HostProfile { label: "box".to_owned(), capabilities: ["compact".to_owned()].into() };
        let lacks = host.lacks(&engine(&["compact", "maintain"], Some("Use another host.")), "agent-run");
        assert_eq!(
            lacks.as_deref(),
            Some(
                "Context engine \"e\" cannot run operation \"agent-run\" on box. Missing host capabilities: maintain. \
                 Required capabilities: compact, maintain. Host capabilities: compact. Use another host."
            )
        );
        let none = HostProfile { label: "box".to_owned(), capabilities: BTreeSet::new() };
        assert!(
            none.lacks(&engine(&["a"], None), "agent-run").expect("a lack").ends_with("Host capabilities: (none).")
        );
    }

    #[test]
    fn a_model_and_backend_threads_are_offered_by_hosts_that_have_them() {
        let needs = engine(&[RUNTIME_LLM_COMPLETE, THREAD_BOOTSTRAP_PROJECTION], None);
        let missing = |host: HostProfile| {
            let text = host.lacks(&needs, "agent-run");
            text.map(|text| text.split(". ").nth(1).unwrap_or_default().to_owned())
        };
        let host = HostProfile::new("box");
        let neither = "Missing host capabilities: runtime-llm-complete, thread-bootstrap-projection";
        assert_eq!(missing(host.clone()).as_deref(), Some(neither));
        let with_model = host.with_runtime_llm_complete();
        assert_eq!(
            missing(with_model.clone()).as_deref(),
            Some("Missing host capabilities: thread-bootstrap-projection")
        );
        assert_eq!(missing(with_model.with_thread_bootstrap_projection()), None);
    }

    #[test]
    fn nothing_required_or_another_operation_is_fine() {
        let host = HostProfile::default();
        assert_eq!(host.lacks(&engine(&[], None), "agent-run"), None);
        assert_eq!(host.lacks(&engine(&["maintain"], None), "agent-run"), None);
        assert_eq!(host.lacks(&engine(&["nothing-has-this"], None), "manual-compact"), None);
    }
}
