//! What a host can do, and whether that is enough for an engine. Fails closed: an engine that needs more is not run
//! (contract §1.7).

use std::collections::BTreeSet;

use context_engine_interface::record::EngineInfo;

/// A host, as engines' requirements see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProfile {
    /// What people call it.
    pub label: String,
    /// What it offers: `bootstrap`, `assemble-before-prompt`, `after-turn`, `maintain`, `compact`,
    /// `runtime-llm-complete`, `thread-bootstrap-projection`.
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
    fn nothing_required_or_another_operation_is_fine() {
        let host = HostProfile::default();
        assert_eq!(host.lacks(&engine(&[], None), "agent-run"), None);
        assert_eq!(host.lacks(&engine(&["maintain"], None), "agent-run"), None);
        assert_eq!(host.lacks(&engine(&["nothing-has-this"], None), "manual-compact"), None);
    }
}
