//! How long an engine may take for each member.
//!
//! Decision: every call has an end. The defaults are far above what a healthy engine needs, because who misses one is set
//! aside for the life of the process; `plugins.entries.<id>.timeoutsMs` changes them one by one.

use std::collections::BTreeMap;
use std::time::Duration;

/// Members, how long each may take, and what the number comes from. What `docs/supervision.md` shows.
pub const DEFAULT_DEADLINES: [(&str, Duration); 11] = [
    // Opening the library included. An engine that opens a large store of its own does it here.
    ("create", Duration::from_secs(10)),
    // May import a whole history.
    ("bootstrap", Duration::from_secs(60)),
    ("maintain", Duration::from_secs(60)),
    // One message.
    ("ingest", Duration::from_secs(5)),
    ("ingest_batch", Duration::from_secs(30)),
    // A person waits for it.
    ("assemble", Duration::from_secs(10)),
    ("after_turn", Duration::from_secs(60)),
    // May ask a model for a summary; OpenClaw's safety timeout (contract §7.9).
    ("compact", Duration::from_secs(180)),
    // Asked before every turn, answered from memory.
    ("list_tools", Duration::from_secs(5)),
    // The model waits for it; may search a store, or ask a model.
    ("call_tool", Duration::from_secs(60)),
    // A shutdown has to end within five seconds.
    ("dispose", Duration::from_secs(3)),
];

/// For a member that is not in the list.
const OTHERWISE: Duration = Duration::from_secs(10);

/// The deadlines of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deadlines {
    changed: BTreeMap<String, Duration>,
}

impl Deadlines {
    /// The defaults, with these changed.
    ///
    /// # Errors
    /// The name that is no member, with the ones that are; a member that is given no time at all.
    pub fn with(changed: impl IntoIterator<Item = (String, Duration)>) -> Result<Deadlines, String> {
        let changed: BTreeMap<String, Duration> = changed.into_iter().collect();
        if let Some((name, _)) = changed.iter().find(|(_, limit)| limit.is_zero()) {
            return Err(format!("{name} is given 0 ms, in which nothing can be done; expected at least 1"));
        }
        let known = |name: &String| DEFAULT_DEADLINES.iter().any(|(member, _)| member == name);
        match changed.keys().find(|name| !known(name)) {
            Some(name) => {
                let members = DEFAULT_DEADLINES.map(|(member, _)| member).join(", ");
                Err(format!("{name:?} is no member with a timeout; expected one of {members}"))
            }
            None => Ok(Deadlines { changed }),
        }
    }

    /// What differs from the defaults, in milliseconds: part of an engine's configuration, by which it is quarantined.
    pub(crate) fn changes(&self) -> BTreeMap<&str, u128> {
        let default = Deadlines::default();
        let differs = |(member, limit): &(&String, &Duration)| default.of(member) != **limit;
        self.changed.iter().filter(differs).map(|(member, limit)| (member.as_str(), limit.as_millis())).collect()
    }

    /// How long `member` may take.
    pub fn of(&self, member: &str) -> Duration {
        let default = || DEFAULT_DEADLINES.iter().find(|(name, _)| *name == member).map(|(_, limit)| *limit);
        self.changed.get(member).copied().or_else(default).unwrap_or(OTHERWISE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_is_changed_and_the_others_stay() {
        let deadlines = Deadlines::with([("assemble".to_owned(), Duration::from_millis(200))]).expect("deadlines");
        assert_eq!(deadlines.of("assemble"), Duration::from_millis(200));
        assert_eq!(deadlines.of("compact"), Duration::from_secs(180));
    }

    #[test]
    fn a_misspelt_member_is_refused() {
        let error = Deadlines::with([("asemble".to_owned(), Duration::from_secs(1))]).expect_err("refused");
        let none = Deadlines::with([("assemble".to_owned(), Duration::ZERO)]).expect_err("refused");
        assert!(none.starts_with("assemble is given 0 ms"), "{none}");
        assert!(error.starts_with("\"asemble\" is no member with a timeout; expected one of create, "), "{error}");
    }
}
