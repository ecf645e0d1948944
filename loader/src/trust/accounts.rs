//! Who is in a group: `/etc/passwd` and `/etc/group`.
//!
//! Decision: read as text. The C library's own look-ups may ask a directory server, load libraries and wait; a user or a
//! group that is not in the files is unknown here, and unknown is treated as somebody else.

use std::collections::BTreeSet;
use std::path::Path;

use crate::find::read_text;

/// The longest account file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The accounts of this machine, as far as its files tell.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads the machine's files; one that cannot be read knows nobody.
    pub(super) fn read() -> Accounts {
        let read = |path| read_text(Path::new(path), MAX_FILE).unwrap_or_default();
        Accounts { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Name of a user.
    pub(super) fn user(&self, uid: u32) -> Option<&str> {
        self.users().find(|user| user.uid == uid).map(|user| user.name)
    }

    /// The members of a group that are none of `known`, by name; `None` when the files do not have the group.
    pub(super) fn others_in_group(&self, gid: u32, known: &[u32]) -> Option<Vec<String>> {
        let listed = lines(&self.group).find(|line| line.get(2).and_then(|id| id.parse().ok()) == Some(gid))?;
        let listed = listed.get(3).into_iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
        let primary = self.users().filter(|user| user.gid == gid).map(|user| user.name);
        let is_known = |name: &str| self.users().any(|user| user.name == name && known.contains(&user.uid));
        let others: BTreeSet<&str> = listed.chain(primary).filter(|name| !is_known(name)).collect();
        Some(others.into_iter().map(str::to_owned).collect())
    }

    fn users(&self) -> impl Iterator<Item = User<'_>> {
        lines(&self.passwd).filter_map(|fields| {
            let number = |at: usize| fields.get(at)?.parse().ok();
            Some(User { name: fields[0], uid: number(2)?, gid: number(3)? })
        })
    }
}

struct User<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/:\nbroken\n\
                     eve:x:1002:1000::/:\n"
                .into(),
            group:
                "root:x:0:\nann:x:1000:\nbob:x:1001:\nalone:x:50:ann\nstaff:x:60:ann,bob,gone\nnobody:x:70:\nbad:x\n"
                    .into(),
        }
    }

    #[track_caller]
    fn others(gid: u32, expected: Option<&[&str]>) {
        let found = accounts().others_in_group(gid, &[0, 1000]);
        assert_eq!(found, expected.map(|names| names.iter().map(|&name| name.to_owned()).collect()));
    }

    #[test]
    fn a_group_of_one_has_no_others() {
        others(50, Some(&[]));
        others(0, Some(&[]));
        others(70, Some(&[]));
    }

    #[test]
    fn members_are_those_listed_and_those_whose_own_group_it_is() {
        others(60, Some(&["bob", "gone"]));
        others(1000, Some(&["eve"]));
        others(1001, Some(&["bob"]));
    }

    #[test]
    fn a_group_the_files_do_not_have_is_unknown() {
        others(4242, None);
        assert_eq!(Accounts::default().others_in_group(0, &[0]), None);
        assert_eq!(accounts().user(1001), Some("bob"));
    }
}
