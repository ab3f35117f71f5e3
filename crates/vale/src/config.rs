//! What a switch and its ports are like, as their makers say and as they are shown.

use std::sync::Arc;
use std::time::Duration;

use eswitch::{Rate, Storm, VlanSet};
use thiserror::Error;
use wire::MacAddr;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;

/// What a switch is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Most addresses in the table.
    pub max_macs: usize,
    /// Addresses every port may have whatever the others do.
    pub guaranteed_macs: usize,
    /// Most ports; fewer if `max_macs` cannot guarantee each its addresses.
    pub max_ports: usize,
    /// How long an address is known after it was last seen (IEEE 802.1Q table 8-6: 300 s).
    pub ageing: Duration,
    /// Whether frames without room may be left with their sender rather than dropped.
    pub backpressure: bool,
    /// How long a port that takes nothing may hold up senders.
    pub stall_bound: Duration,
    /// Frames for groups that no bridge forwards (01-80-C2-00-00-0X: LACP, LLDP, 802.1X, STP) flood, so that guests can
    /// speak these protocols with each other and with the outside. Pause frames never do: they would stop neighbours.
    pub link_local: bool,
}

impl Default for SwitchConfig {
    /// 16384 addresses, 4 guaranteed to each of at most 1024 ports, 300 s, back-pressure for at
    /// most 20 ms, no link-local groups.
    fn default() -> Self {
        SwitchConfig {
            max_macs: 16384,
            guaranteed_macs: 4,
            max_ports: 1024,
            ageing: Duration::from_secs(300),
            backpressure: true,
            stall_bound: Duration::from_millis(20),
            link_local: false,
        }
    }
}

/// What a port is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Most addresses learned on it.
    pub max_macs: usize,
    /// Whether its frames may be left with it while their destination is full. Right for one
    /// guest's NIC, whose own traffic waits. Wrong for what brings frames for many guests, such as
    /// an uplink: one slow guest would hold up the others' frames too.
    pub waits: bool,
    /// The addresses that frames may come from here, and from no other port. None: whatever
    /// address is seen is learned, which a driver that changes its address (bonding) needs.
    pub only: Vec<MacAddr>,
    /// Stations that are here and nowhere else, as those of `only` are: always known, and no other port may send from them.
    /// They do not limit what may be sent from here; `only` does, also for them.
    pub fixed: Vec<MacAddr>,
    /// It leads out, to many, rather than to one guest.
    pub uplink: bool,
    /// It exchanges frames with uplinks only: all its frames go there, also those for a neighbour, and
    /// it receives from no other port. So a switch outside sees, and may refuse, all traffic between guests.
    pub private: bool,
    /// It leads to another switch of a full mesh: no frame that came in by such a port leaves by such a port (split horizon,
    /// RFC 4762 section 4.4), since each switch reaches every other one directly. So the mesh has no loop.
    pub mesh: bool,
    /// The VLANs it is a member of; frames of others neither enter nor leave here. `None`: all.
    pub vlans: Option<VlanSet>,
    /// Most that may enter here. What is more waits with its sender, if that waits.
    pub rate_in: Option<Rate>,
    /// Most that may leave here. For what is more the port is full.
    pub rate_out: Option<Rate>,
    /// Most flooded frames that may enter here.
    pub storm: Storm,
}

impl Default for PortConfig {
    /// 1024 addresses, none of them fixed, waits, no mesh, no guards.
    fn default() -> Self {
        PortConfig {
            max_macs: 1024,
            waits: true,
            only: Vec::new(),
            fixed: Vec::new(),
            uplink: false,
            private: false,
            mesh: false,
            vlans: None,
            rate_in: None,
            rate_out: None,
            storm: Storm::default(),
        }
    }
}

/// Why a port cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// There is one of that name.
    #[error("the switch already has a port named {0}; choose another name or detach that port")]
    NameTaken(String),
    /// There are as many as there may be.
    #[error("the switch has its maximum of {0} ports; raise max_ports (and max_macs)")]
    TooManyPorts(usize),
}

/// One port, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Addresses known on it.
    pub macs: usize,
    /// Its counters, always in the same order.
    pub counters: Vec<(&'static str, u64)>,
}

/// One known address, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacInfo {
    /// The address.
    pub mac: MacAddr,
    /// Its VLAN; 0 while the switch is one domain.
    pub vlan: u16,
    /// The port it was seen on.
    pub port: String,
    /// Since when it has not been seen.
    pub age: Duration,
}
