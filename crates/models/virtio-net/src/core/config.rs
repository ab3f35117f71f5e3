//! What can be chosen.

use datapath::Moderation;

use crate::regs::feature as f;

/// Most pairs of queues.
pub const MAX_PAIRS: u16 = 16;

/// How a device is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Station address.
    pub mac: [u8; 6],
    /// Largest packet that the driver may send, without Ethernet header; none is offered if `None`.
    pub mtu: Option<u16>,
    /// Pairs of queues, 1 to [`MAX_PAIRS`].
    pub pairs: u16,
    /// Entries of a receive and of a transmit ring, if the driver takes no fewer.
    pub ring: u16,
    /// The cable is in.
    pub link: bool,
    /// Report the hash of each frame's flow to drivers that want it.
    pub hash_report: bool,
    /// Stand in for another device with this address.
    pub standby: bool,
    /// When drivers that say nothing of it are called.
    pub moderation: Moderation,
    /// Features that are not offered.
    pub without: u64,
}

/// All features there are.
pub const FEATURES: u64 = f::CSUM
    | f::GUEST_CSUM
    | f::CTRL_GUEST_OFFLOADS
    | f::MAC
    | f::GUEST_TSO4
    | f::GUEST_TSO6
    | f::GUEST_ECN
    | f::HOST_TSO4
    | f::HOST_TSO6
    | f::HOST_ECN
    | f::GUEST_USO4
    | f::GUEST_USO6
    | f::HOST_USO
    | f::MRG_RXBUF
    | f::STATUS
    | f::CTRL_VQ
    | f::CTRL_RX
    | f::CTRL_VLAN
    | f::CTRL_RX_EXTRA
    | f::GUEST_ANNOUNCE
    | f::CTRL_MAC_ADDR
    | f::INDIRECT_DESC
    | f::EVENT_IDX
    | f::VERSION_1
    | f::ACCESS_PLATFORM
    | f::PACKED
    | f::IN_ORDER
    | f::NOTIFICATION_DATA
    | f::RING_RESET
    | f::DEVICE_STATS
    | f::NOTF_COAL
    | f::VQ_NOTF_COAL
    | f::SPEED_DUPLEX;

impl Config {
    /// The usual device with this address.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            mtu: None,
            pairs: 1,
            ring: 1024,
            link: true,
            hash_report: false,
            standby: false,
            moderation: Moderation::Guest,
            without: 0,
        }
    }

    /// What it offers.
    pub fn features(&self) -> u64 {
        let mtu = if self.mtu.is_some() { f::MTU } else { 0 };
        let mq = if self.pairs > 1 { f::MQ | f::RSS } else { 0 };
        let hash = if self.hash_report { f::HASH_REPORT } else { 0 };
        let standby = if self.standby { f::STANDBY } else { 0 };
        (FEATURES | mtu | mq | hash | standby) & !self.without
    }
}
