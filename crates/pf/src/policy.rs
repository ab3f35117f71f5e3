//! What an operator lays down for a VF; the words of `ip link set … vf` where they exist.

use eswitch::Storm;
use thiserror::Error;
use wire::MacAddr;

/// A VLAN that the operator gives to a VF: put into all it sends, taken off what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortVlan {
    /// 1 to 4094.
    pub id: u16,
    /// Priority, 0 to 7.
    pub qos: u8,
}

/// The link state that a VF sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// As the port's is.
    #[default]
    Auto,
    /// Up, whatever the port's is: VFs reach each other without it.
    Enable,
    /// Down.
    Disable,
}

/// How much misbehaviour is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misdeeds {
    /// So many at once.
    pub most: u32,
    /// So many more each minute.
    pub per_minute: u32,
}

/// The policy of one VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its address after a reset.
    pub mac: MacAddr,
    /// The operator has chosen that address: an untrusted VF keeps it.
    pub mac_set: bool,
    /// The VLAN it is in.
    pub vlan: Option<PortVlan>,
    /// It may choose its address, and further ones, even where the operator chose one.
    pub trust: bool,
    /// What it sends has its own addresses and VLANs.
    pub spoof_check: bool,
    /// The link state that it sees.
    pub state: LinkState,
    /// Most it may send, in megabits a second; 0 for any amount.
    pub max_tx_rate: u32,
    /// What the others leave it of the port's rate, in megabits a second.
    pub min_tx_rate: u32,
    /// Most it may send to all or to groups.
    pub storm: Storm,
    /// Mailbox messages a second; what comes faster waits.
    pub mailbox_rate: u32,
    /// Mailbox messages at once.
    pub mailbox_burst: u32,
    /// Most interrupts a second.
    pub interrupts: Option<u32>,
    /// When it is shut down; `None` for never.
    pub misdeeds: Option<Misdeeds>,
    /// Frames not its own, or too many flooded ones, are misdeeds too, and not only dropped.
    pub strict: bool,
}

impl Policy {
    /// Spoof check, no trust, nothing limited but the mailbox: what Linux gives a VF, and a bound on
    /// what a VF can have the PF do.
    pub fn new(mac: MacAddr) -> Policy {
        Policy {
            mac,
            mac_set: false,
            vlan: None,
            trust: false,
            spoof_check: true,
            state: LinkState::Auto,
            max_tx_rate: 0,
            min_tx_rate: 0,
            storm: Storm::default(),
            mailbox_rate: 1000,
            mailbox_burst: 256,
            interrupts: None,
            misdeeds: Some(Misdeeds {
                most: 64,
                per_minute: 64,
            }),
            strict: false,
        }
    }

    /// Whether it can be, beside the others.
    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        if !self.mac.is_unicast() {
            return Err(PolicyError::Mac(self.mac));
        }
        if let Some(PortVlan { id, qos }) = self.vlan
            && (!(1..=4094).contains(&id) || qos > 7)
        {
            return Err(PolicyError::Vlan { id, qos });
        }
        let (min, max) = (self.min_tx_rate, self.max_tx_rate);
        if max != 0 && min > max {
            return Err(PolicyError::MinAboveMax { min, max });
        }
        Ok(())
    }
}

/// One change of a policy, as `ip link set … vf` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `mac LLADDR`; the VF keeps it.
    Mac(MacAddr),
    /// `vlan ID [qos Q]`; `None` for `vlan 0`.
    Vlan(Option<PortVlan>),
    /// `trust on|off`.
    Trust(bool),
    /// `spoofchk on|off`.
    SpoofCheck(bool),
    /// `state auto|enable|disable`.
    State(LinkState),
    /// `max_tx_rate N`, in megabits a second; 0 for any amount.
    MaxTxRate(u32),
    /// `min_tx_rate N`, in megabits a second.
    MinTxRate(u32),
    /// Most flooded frames.
    Storm(Storm),
    /// Most interrupts a second.
    Interrupts(Option<u32>),
}

impl Change {
    pub(crate) fn apply(self, policy: &mut Policy) {
        match self {
            Change::Mac(mac) => {
                policy.mac = mac;
                policy.mac_set = true;
            }
            Change::Vlan(vlan) => policy.vlan = vlan,
            Change::Trust(on) => policy.trust = on,
            Change::SpoofCheck(on) => policy.spoof_check = on,
            Change::State(state) => policy.state = state,
            Change::MaxTxRate(rate) => policy.max_tx_rate = rate,
            Change::MinTxRate(rate) => policy.min_tx_rate = rate,
            Change::Storm(storm) => policy.storm = storm,
            Change::Interrupts(rate) => policy.interrupts = rate,
        }
    }

    /// Whether the VF's driver has to start anew to live with it, as with igb.
    pub(crate) fn resets(self) -> bool {
        matches!(self, Change::Mac(_) | Change::Vlan(_))
    }
}

/// Why a policy cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// There is no such VF.
    #[error("there is no VF {0}")]
    NoVf(u32),
    /// There is one already.
    #[error("there is already a VF {0}")]
    Taken(u32),
    /// No address of a station.
    #[error("{0} is not a unicast address; its first byte must be even, and not all bytes zero")]
    Mac(MacAddr),
    /// Another VF has the address.
    #[error("VF {vf} already has the address {mac}; each VF needs its own")]
    MacTaken {
        /// The address.
        mac: MacAddr,
        /// The VF that has it.
        vf: u32,
    },
    /// No VLAN.
    #[error(
        "VLAN {id} with priority {qos} is out of range; VLANs are 1 to 4094, priorities 0 to 7"
    )]
    Vlan {
        /// The VLAN.
        id: u16,
        /// The priority.
        qos: u8,
    },
    /// The least is more than the most.
    #[error("min_tx_rate {min} is above max_tx_rate {max}; lower one or raise the other")]
    MinAboveMax {
        /// Megabits a second.
        min: u32,
        /// Megabits a second.
        max: u32,
    },
    /// More is promised than there is.
    #[error(
        "the VFs' min_tx_rate would add up to {sum} Mbit/s, but the port has {port}; lower one, \
         or raise the port's rate"
    )]
    Oversold {
        /// Megabits a second, all together.
        sum: u64,
        /// Megabits a second of the port.
        port: u64,
    },
    /// Nothing can be promised of an unknown speed.
    #[error("min_tx_rate is a part of port-rate: set port-rate")]
    NoPortRate,
}
