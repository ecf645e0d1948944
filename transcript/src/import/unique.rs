//! Names that are unique within a file or a session.

use std::collections::{HashMap, HashSet};

/// Hands out each name once. A name that is taken gets the next free number behind it: `a`, `a-2`, `a-3`.
#[derive(Debug, Default)]
pub(super) struct UniqueNames {
    taken: HashSet<String>,
    /// The number to try next for a name that came again, so that the thousandth `a` costs no thousand looks.
    next: HashMap<String, u64>,
}

impl UniqueNames {
    /// `wanted`, or what it is called instead.
    pub(super) fn claim(&mut self, wanted: &str) -> String {
        if self.taken.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        let n = self.next.entry(wanted.to_owned()).or_insert(2);
        loop {
            let name = format!("{wanted}-{n}");
            *n += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_the_next_free_number() {
        let mut names = UniqueNames::default();
        let given = ["a", "a", "a-3", "a", "b", "a-2"].map(|wanted| names.claim(wanted));
        assert_eq!(given, ["a", "a-2", "a-3", "a-4", "b", "a-2-2"]);
    }
}
