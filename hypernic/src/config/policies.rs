//! Policies of VFs that come and go while a host runs.

use pf::{LinkState, Policy};
use wire::MacAddr;

use super::beside::of_words;
use super::raw::{Fault, RawVf};
use super::types::{HostConfig, NicConfig};
use crate::spec::NicMac;

impl HostConfig {
    /// A VF of this host with another policy.
    ///
    /// # Errors
    /// There is none of that name, or a policy that cannot be: one line.
    pub fn vf_beside(&self, name: &str, policy: &control::VfConfig) -> Result<NicConfig, String> {
        let named = |nic: &NicConfig| nic.name == name;
        let nic = self.nics.iter().find(|nic| named(nic));
        let vf = nic.and_then(|nic| nic.vf.as_ref()).ok_or_else(no_vf)?;
        let mut words = self.chip_words(&vf.chip).ok_or_else(no_vf)?;
        let all = words.vf.get_or_insert_default();
        let at = all.iter().position(|one| one.index == vf.index);
        let is = at.map(|at| all.remove(at)).unwrap_or_default();
        all.push(control::VfConfig {
            index: vf.index,
            socket_path: is.socket_path,
            tenant: is.tenant,
            capture: is.capture,
            moderation: is.moderation,
            ..policy.clone()
        });
        let whole = self.without_chip(&vf.chip).chip_beside(&words)?;
        whole.nics.into_iter().find(named).ok_or_else(no_vf)
    }
}

impl NicConfig {
    /// The same VF with another policy; what else the words say means nothing.
    ///
    /// # Errors
    /// A policy that cannot be: one line.
    pub fn with_policy(&self, words: &control::VfConfig) -> Result<Self, String> {
        let raw: RawVf = of_words(words)?;
        let mut policy = self.usual_policy();
        raw.apply(&mut policy)
            .map_err(|Fault(_, message)| message)?;
        Ok(self.laid_down(policy))
    }

    /// The same VF for nobody: without a link until something is laid down for it.
    #[must_use]
    pub fn vacated(&self) -> Self {
        let policy = Policy {
            state: LinkState::Disable,
            ..self.usual_policy()
        };
        self.laid_down(policy)
    }

    fn usual_policy(&self) -> Policy {
        Policy::new(MacAddr(NicMac::from_name(&self.name).0))
    }

    fn laid_down(&self, policy: Policy) -> Self {
        let mut nic = self.clone();
        nic.mac = NicMac(policy.mac.0);
        if let Some(vf) = &mut nic.vf {
            vf.policy = policy;
        }
        nic
    }
}

fn no_vf() -> String {
    "there is no such virtual function".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: &str = "[[nic]]\nname = \"a\"\nsocket-path = \"/run/a\"\nmac = \"52:54:00:00:00:0a\"\nport = \"null\"\n";

    #[test]
    fn a_policy_comes_with_all_its_words_and_the_vf_keeps_its_own() {
        let policy = "mac = \"52:54:00:00:00:0b\"\nvlan = 7\nqos = 3\ntrust = true\nspoofchk = false\nstate = \"enable\"\n\
                      max-tx-rate = 100\nmin-tx-rate = 10\nstorm = \"broadcast=5,multicast=6\"\ninterrupts = 1000\n\
                      mailbox-rate = 40\nstrict = true\n";
        let chip = |name: &str, words: &str| {
            format!(
                "[[nic]]\nname = {name:?}\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"/run/{name}-{{}}\"\nport = \"null\"\nport-rate = 1000\n{words}"
            )
        };
        let parse = |text: &str| HostConfig::parse("h.toml".as_ref(), text).expect("good");
        let there = parse(&chip("p0", &format!("[[nic.vf]]\nindex = 0\n{policy}")));
        let words = there.nics[0].vf_words().expect("a VF");
        let own = "[[nic.vf]]\nindex = 1\nsocket-path = \"/run/own\"\nmoderation = \"fixed:8000\"\ntenant = \"t\"\n\
                   capture = \"/run/c\"\n";
        let here = parse(&chip("p1", own));
        let comes = here.vf_beside("p1vf1", &words).expect("can be");
        let expected = parse(&chip("p1", &format!("{own}{policy}")));
        assert_eq!(comes, expected.nics[1]);
        assert_eq!(here.nics[1].with_policy(&words), Ok(comes.clone()));
        assert_eq!(
            comes.vf_words(),
            Some(control::VfConfig {
                index: 1,
                ..words.clone()
            })
        );
        assert_eq!(
            comes.with_policy(&here.nics[1].vf_words().expect("a VF")),
            Ok(here.nics[1].clone())
        );
        let vacant = comes.vacated().vf_words().expect("a VF");
        let nothing = control::VfConfig {
            index: 1,
            state: Some("disable".into()),
            ..control::VfConfig::default()
        };
        assert_eq!(vacant, nothing);
        let lan = parse(LAN);
        for (host, vf, why) in [
            (&here, "p1vf2", "no such virtual function"),
            (&lan, "a", "no such virtual function"),
            (
                &parse(&(chip("p1", "") + LAN)),
                "p1vf1",
                "already has the MAC",
            ),
        ] {
            let mac = Some("52:54:00:00:00:0a".into());
            let words = control::VfConfig {
                mac,
                ..words.clone()
            };
            let said = host.vf_beside(vf, &words).expect_err(why);
            assert!(said.contains(why) && !said.contains('\n'), "{said}");
        }
    }
}
