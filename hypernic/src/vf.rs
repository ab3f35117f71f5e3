//! `hypernic vf`: what an operator says to the virtual functions of a running daemon.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use control::{
    Changed, Done, State, Storm, Vf, VfChange, VfLeave, VfReset, VfRevive, VfSet, VfShow, Vfs,
};

use crate::client::{Place, Printed, Terms};
use crate::complete;
use crate::error::Error;
use crate::guard;
use program::LogFormat;

/// `hypernic vf`.
#[derive(Args, Debug)]
pub struct VfCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// What to do.
    #[command(subcommand)]
    pub what: VfVerb,
}

/// Subcommands of `hypernic vf`.
#[derive(Debug, Subcommand)]
pub enum VfVerb {
    /// Change the policy of a virtual function, in the words of `ip link set … vf`. Either everything
    /// changes or nothing does.
    #[command(after_help = WORDS)]
    Set {
        /// The function's NIC, such as p0vf3.
        #[arg(add = complete::vfs())]
        nic: String,
        /// For example: vlan 7 qos 2 max_tx_rate 100 spoofchk on.
        #[arg(required = true, value_name = "WORD VALUE")]
        words: Vec<String>,
        /// On what terms.
        #[command(flatten)]
        terms: Terms,
    },
    /// Restart a virtual function that was shut down.
    Revive {
        /// The function's NIC.
        #[arg(add = complete::vfs())]
        nic: String,
    },
    /// Tell the guest that you are about to remove a virtual function: its link goes down, and its frames are
    /// dropped.
    Leave {
        /// The function's NIC.
        #[arg(add = complete::vfs())]
        nic: String,
    },
    /// Reset a chip: tell its virtual functions, and restart them.
    Reset {
        /// The chip, such as p0.
        chip: String,
    },
    /// Show the policies of virtual functions, and what they were refused.
    Show {
        /// One of them; without a name, all.
        #[arg(add = complete::vfs())]
        nic: Option<String>,
    },
}

const WORDS: &str = "Words: mac ADDRESS; vlan N (0: none) [qos 0-7]; trust on|off; spoofchk on|off; state \
auto|enable|disable; max_tx_rate and min_tx_rate in Mbit/s (0: none); storm broadcast=N,multicast=N in frames a \
second (none: no limit); interrupts a second (0: any number).";

/// After `leave`, an operator unplugs.
const UNPLUG: &str = "The guest knows. Do not unplug the device from QEMU up to 11.1.3, which aborts then: shut the VM down \
instead (docs/known-client-faults.md).\n";

impl VfCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// Words that mean nothing, a daemon that is not there, or one that refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        let nothing = |_: &Done| String::new();
        Ok(match self.what {
            VfVerb::Set { nic, words, terms } => {
                let change = change(&words).map_err(Error::Usage)?;
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&VfSet {
                    nic,
                    change,
                    check,
                    persist,
                    if_generation,
                })?;
                printed.show(format, &reply, |_: &Changed| String::new())
            }
            VfVerb::Revive { nic } => {
                let reply = place.ask(&VfRevive {
                    nic,
                    ..VfRevive::default()
                })?;
                printed.show(format, &reply, nothing)
            }
            VfVerb::Leave { nic } => {
                let reply = place.ask(&VfLeave {
                    nic,
                    ..VfLeave::default()
                })?;
                printed.show(format, &reply, |_| UNPLUG.to_owned())
            }
            VfVerb::Reset { chip } => {
                let reply = place.ask(&VfReset {
                    chip,
                    ..VfReset::default()
                })?;
                printed.show(format, &reply, nothing)
            }
            VfVerb::Show { nic } => {
                let reply = place.ask(&VfShow { nic })?;
                printed.show(format, &reply, |vfs: &Vfs| table(&vfs.vfs))
            }
        })
    }
}

/// What words and values say.
pub(crate) fn change(words: &[String]) -> Result<VfChange, String> {
    let mut change = VfChange::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value; see hypernic vf set --help"))?;
        let on = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{word} {value}: write on or off")),
        };
        let bad = |_| format!("{word} {value}: write a whole number");
        let twice = match word.replace('-', "_").as_str() {
            "mac" => change.mac.replace(value.to_owned()).is_some(),
            "vlan" => change.vlan.replace(value.parse().map_err(bad)?).is_some(),
            "qos" => change.qos.replace(value.parse().map_err(bad)?).is_some(),
            "trust" => change.trust.replace(on()?).is_some(),
            "spoofchk" => change.spoofchk.replace(on()?).is_some(),
            "state" => change.state.replace(state(value)?).is_some(),
            "max_tx_rate" | "rate" => {
                let rate = value.parse().map_err(bad)?;
                change.max_tx_rate.replace(rate).is_some()
            }
            "min_tx_rate" => {
                let rate = value.parse().map_err(bad)?;
                change.min_tx_rate.replace(rate).is_some()
            }
            "storm" => change.storm.replace(storm(value)?).is_some(),
            "interrupts" => {
                let rate = value.parse().map_err(bad)?;
                change.interrupts.replace(rate).is_some()
            }
            _ => return Err(format!("hypernic vf set does not know {word}. {WORDS}")),
        };
        if twice {
            return Err(format!("{word} appears twice; write it once"));
        }
    }
    Ok(change)
}

fn state(value: &str) -> Result<State, String> {
    State::of(value).ok_or_else(|| format!("state {value}: write auto, enable or disable"))
}

fn storm(value: &str) -> Result<Storm, String> {
    if value == "none" {
        return Ok(Storm::default());
    }
    let storm: guard::Storm = value.parse()?;
    if storm.0.unknown.is_some() {
        return Err(format!(
            "storm {value}: the switch of a chip knows all addresses; write broadcast=N or multicast=N"
        ));
    }
    Ok(Storm {
        broadcast: storm.0.broadcast,
        multicast: storm.0.multicast,
    })
}

/// Functions as people read them; the words are those of `hypernic vf set`.
fn table(vfs: &[Vf]) -> String {
    let mut text = String::new();
    for vf in vfs {
        let policy = &vf.policy;
        let on = |word: Option<bool>| if word == Some(true) { "on" } else { "off" };
        let _ = write!(
            text,
            "{} ({} VF {}): address {}",
            vf.nic, vf.chip, vf.index, vf.address
        );
        if let Some(vlan) = policy.vlan.filter(|vlan| *vlan != 0) {
            let _ = write!(text, ", vlan {vlan} qos {}", policy.qos.unwrap_or(0));
        }
        let _ = write!(
            text,
            ", trust {}, spoofchk {}, state {}",
            on(policy.trust),
            on(policy.spoofchk),
            policy.state.unwrap_or(State::Auto).word()
        );
        for (word, rate) in [
            ("max_tx_rate", policy.max_tx_rate),
            ("min_tx_rate", policy.min_tx_rate),
            ("interrupts", policy.interrupts),
        ] {
            if let Some(rate) = rate.filter(|rate| *rate != 0) {
                let _ = write!(text, ", {word} {rate}");
            }
        }
        let storm = policy.storm.clone().unwrap_or_default();
        for (word, most) in [
            ("broadcast", storm.broadcast),
            ("multicast", storm.multicast),
        ] {
            if let Some(most) = most {
                let _ = write!(text, ", storm {word}={most}");
            }
        }
        let _ = match (&vf.down, vf.ready) {
            (Some(down), _) => writeln!(text, "\n  {down}"),
            (None, true) => writeln!(text, ", ready"),
            (None, false) => writeln!(text, ", no driver"),
        };
        for refusal in &vf.refused {
            let _ = writeln!(
                text,
                "  {} s ago: it {}, {} times{}",
                refusal.seconds_ago,
                refusal.what,
                refusal.count,
                if refusal.shut_down {
                    "; it was shut down for this"
                } else {
                    ""
                }
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> Result<VfChange, String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        change(&words)
    }

    #[test]
    fn words_are_those_of_ip_link() {
        let all = said(
            "mac 02:00:00:00:00:07 vlan 7 qos 2 trust on spoofchk off state enable max_tx_rate 100 \
             min_tx_rate 10 storm broadcast=5 interrupts 8000",
        );
        let expected = VfChange {
            mac: Some("02:00:00:00:00:07".into()),
            vlan: Some(7),
            qos: Some(2),
            trust: Some(true),
            spoofchk: Some(false),
            state: Some(State::Enable),
            max_tx_rate: Some(100),
            min_tx_rate: Some(10),
            storm: Some(Storm {
                broadcast: Some(5),
                multicast: None,
            }),
            interrupts: Some(8000),
        };
        assert_eq!(all, Ok(expected));
        let none = said("storm none vlan 0 max-tx-rate 0").expect("words");
        assert_eq!(none.storm, Some(Storm::default()));
        assert_eq!((none.vlan, none.max_tx_rate), (Some(0), Some(0)));
    }

    #[test]
    fn what_means_nothing_is_named() {
        for (words, named) in [
            ("vlan", "vlan needs a value"),
            ("vlan x", "vlan x: write a whole number"),
            ("vlan 70000", "vlan 70000"),
            ("trust yes", "trust yes: write on or off"),
            ("state up", "write auto, enable or disable"),
            ("query_rss on", "does not know query_rss"),
            ("vlan 1 vlan 2", "appears twice"),
            ("storm unknown=3", "knows all addresses"),
            ("storm often", "bad storm limit"),
        ] {
            let refused = said(words).expect_err(words);
            assert!(refused.contains(named), "{refused}");
        }
    }
}
