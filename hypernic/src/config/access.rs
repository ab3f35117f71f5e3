//! Who may do what over the control socket.

use std::collections::BTreeSet;
use std::path::Path;

use control::Role;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A user of the control socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
}

/// Users and groups by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Members {
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
}

/// Who has which role, besides root and the daemon's own user, who are owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    monitor: Members,
    operate: Members,
    owner: Members,
}

impl Access {
    /// Gives a role to a user, or to `@` and a group.
    ///
    /// # Errors
    /// The host does not have them: one line.
    pub fn add(&mut self, role: Role, word: &str) -> Result<(), String> {
        let names = Names::read(USERS.as_ref(), GROUPS.as_ref());
        let members = match role {
            Role::Monitor => &mut self.monitor,
            Role::Operate => &mut self.operate,
            Role::Owner => &mut self.owner,
        };
        names.add(word, members)
    }

    /// Whether anybody else than root and the daemon's own user may use the socket.
    pub fn is_shared(&self) -> bool {
        *self != Self::default()
    }

    /// Those who have a role of their own, by numbers, as a file names them.
    pub fn words(&self, role: Role) -> Vec<String> {
        let members = match role {
            Role::Monitor => &self.monitor,
            Role::Operate => &self.operate,
            Role::Owner => &self.owner,
        };
        let users = members.uids.iter().map(u32::to_string);
        let groups = members.gids.iter().map(|gid| format!("@{gid}"));
        users.chain(groups).collect()
    }

    /// What a user may do in a daemon of user `own`; `None`: nothing.
    pub fn role(&self, peer: Peer, own: u32) -> Option<Role> {
        let is = |members: &Members| {
            members.uids.contains(&peer.uid) || members.gids.contains(&peer.gid)
        };
        if peer.uid == 0 || peer.uid == own || is(&self.owner) {
            Some(Role::Owner)
        } else if is(&self.operate) {
            Some(Role::Operate)
        } else {
            is(&self.monitor).then_some(Role::Monitor)
        }
    }
}

/// The number of a group of this host, by its name or number.
pub(super) fn group(word: &str) -> Option<u32> {
    Names::read(USERS.as_ref(), GROUPS.as_ref()).gid(word)
}

/// The host's users and groups.
#[derive(Default)]
struct Names {
    /// Name and number.
    users: Vec<(String, u32)>,
    /// Name, number and the names of members.
    groups: Vec<(String, u32, Vec<String>)>,
}

impl Names {
    fn read(users: &Path, groups: &Path) -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(&text(users), &text(groups))
    }

    fn of(users: &str, groups: &str) -> Self {
        let user = |line: &str| {
            let mut words = line.split(':');
            Some((words.next()?.to_owned(), words.nth(1)?.parse().ok()?))
        };
        let group = |line: &str| {
            let mut words = line.split(':');
            let (name, number) = (words.next()?.to_owned(), words.nth(1)?.parse().ok()?);
            let members = words.next().unwrap_or("").split(',');
            Some((name, number, members.map(str::to_owned).collect()))
        };
        Self {
            users: users.lines().filter_map(user).collect(),
            groups: groups.lines().filter_map(group).collect(),
        }
    }

    /// The number of a group, by its name or number.
    fn gid(&self, word: &str) -> Option<u32> {
        let named = self.groups.iter().find(|(name, ..)| name == word);
        named.map(|(_, gid, _)| *gid).or_else(|| word.parse().ok())
    }

    /// Adds a user, or `@` and a group with all its members.
    fn add(&self, word: &str, to: &mut Members) -> Result<(), String> {
        let bad = |what: &str| {
            format!("there is no {what} \"{word}\" on this host; write a user, or @ and a group")
        };
        let Some(group) = word.strip_prefix('@') else {
            let named = self.users.iter().find(|(name, _)| name == word);
            let number = named.map(|(_, uid)| *uid).or_else(|| word.parse().ok());
            to.uids.insert(number.ok_or_else(|| bad("user"))?);
            return Ok(());
        };
        let named = self.groups.iter().find(|(name, ..)| name == group);
        to.gids.insert(self.gid(group).ok_or_else(|| bad("group"))?);
        let members = named.map_or(&[][..], |(.., members)| members);
        let known = self.users.iter().filter(|(name, _)| members.contains(name));
        to.uids.extend(known.map(|(_, uid)| *uid));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/:/bin/sh\nown:x:90:90::/:\nalice:x:1000:1000::/:\nbob:x:1001:1001::/:\n\
                         scraper:x:110:110::/:\nbroken\n";
    const GROUPS: &str = "root:x:0:\nops:x:200:alice,ghost\nwatch:x:201:bob\n";

    fn access(monitor: &[&str], operate: &[&str], owner: &[&str]) -> Access {
        let names = Names::of(USERS, GROUPS);
        let members = |words: &[&str]| {
            let mut members = Members::default();
            for word in words {
                names.add(word, &mut members).expect(word);
            }
            members
        };
        Access {
            monitor: members(monitor),
            operate: members(operate),
            owner: members(owner),
        }
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        let names = Names::of("", "root:x:0:\nkvm:x:104:libvirt-qemu\nodd\n");
        assert_eq!(names.gid("kvm"), Some(104));
        assert_eq!(names.gid("odd"), None);
        assert_eq!(names.gid("4242"), Some(4242));
    }

    #[test]
    fn a_role_is_the_highest_that_user_or_group_have() {
        let access = access(&["scraper", "@watch", "@ops"], &["@ops", "4711"], &["@300"]);
        let role = |uid, gid| access.role(Peer { uid, gid }, 90);
        assert_eq!(role(0, 0), Some(Role::Owner));
        assert_eq!(role(90, 90), Some(Role::Owner), "the daemon's own user");
        assert_eq!(role(1000, 1000), Some(Role::Operate), "alice is in ops");
        assert_eq!(role(1001, 1001), Some(Role::Monitor), "bob is in watch");
        assert_eq!(role(110, 110), Some(Role::Monitor));
        assert_eq!(role(4711, 1), Some(Role::Operate), "by number");
        assert_eq!(role(5, 300), Some(Role::Owner), "by the number of a group");
        assert_eq!(role(5, 200), Some(Role::Operate), "by the user's own group");
        assert_eq!(role(5, 5), None);
        assert!(access.is_shared() && !Access::default().is_shared());
        assert_eq!(Access::default().role(Peer { uid: 5, gid: 0 }, 90), None);
    }

    #[test]
    fn nobody_is_meant_by_a_name_that_the_host_does_not_have() {
        let names = Names::of(USERS, GROUPS);
        for (word, named) in [
            ("carol", "no user \"carol\""),
            ("@carol", "no group \"@carol\""),
            ("@", "no group"),
            ("", "no user"),
        ] {
            let mut members = Members::default();
            let error = names.add(word, &mut members).expect_err(word);
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
            assert_eq!(members, Members::default());
        }
    }
}
