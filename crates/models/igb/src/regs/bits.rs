//! Bits of the registers of a PF, with the section of the datasheet that describes them.

/// Device Control (§8.2.1).
pub(crate) mod ctrl {
    pub use intel::bits::ctrl::*;

    /// No new requests on the bus.
    pub const GIO_MASTER_DISABLE: u32 = 1 << 2;
}

/// Device Status (§8.2.2).
pub(crate) mod status {
    pub use intel::bits::status::*;

    /// The PHY was reset; cleared by writing 0.
    pub const PHYRA: u32 = 1 << 10;
    /// VFs that the SR-IOV capability has enabled.
    pub const NUM_VFS_SHIFT: u32 = 14;
    pub const IOV_MODE: u32 = 1 << 18;
    pub const GIO_MASTER_ENABLE: u32 = 1 << 19;
}

/// Extended Device Control (§8.2.3).
pub(crate) mod ctrl_ext {
    pub use intel::bits::ctrl_ext::*;

    /// Written: the PF has come out of reset, and its VFs may go on.
    pub const PFRSTD: u32 = 1 << 14;
    /// The speed is what CTRL says, whatever was detected.
    pub const SPD_BYPS: u32 = 1 << 15;
}

/// EEPROM/Flash Control (§8.4.1). The level of CS selects when it is low.
pub(crate) mod eecd {
    pub use intel::bits::eecd::*;

    /// What is loaded from it after a reset has been loaded.
    pub const AUTO_RD: u32 = 1 << 9;
    /// Addresses of 16 bits.
    pub const ADDR_BITS: u32 = 1 << 10;
    /// Words as a power of two, less 6.
    pub const SIZE_SHIFT: u32 = 11;
}

/// EEPROM Read (§8.4.2).
pub(crate) mod eerd {
    pub const START: u32 = 1;
    pub const DONE: u32 = 1 << 1;
    pub const ADDRESS: u32 = 0xfffc;
    pub const ADDRESS_SHIFT: u32 = 2;
    pub const DATA_SHIFT: u32 = 16;
}

pub(crate) use intel::bits::swsm;

/// Extended Interrupt Cause, and those with the same bits (§8.8.1 to §8.8.6).
pub(crate) mod eicr {
    pub const VECTORS: u32 = (1 << crate::regs::VECTORS) - 1;
    pub const TCP_TIMER: u32 = 1 << 30;
    pub const OTHER: u32 = 1 << 31;
    pub const ALL: u32 = VECTORS | TCP_TIMER | OTHER;
}

/// Interrupt Cause, and those with the same bits (§8.8.7 to §8.8.11).
pub(crate) mod icr {
    pub use intel::bits::cause::{LSC, MDAC, RXDMT0, RXO, RXT0 as RXDW, TXDW};

    /// A VF has sent a message, read one, or was reset.
    pub const VMMB: u32 = 1 << 8;
    /// A VF has sent what it may not.
    pub const DOUTSYNC: u32 = 1 << 28;
    /// All causes, as the drivers' self-test sets them.
    pub const ALL: u32 = 0x77d4_fbfd;
    /// An interrupt is asserted: not a cause, and not to be masked.
    pub const INTA: u32 = 1 << 31;
}

/// Extended Interrupt Throttle (§8.8.12).
pub(crate) mod eitr {
    /// The interval, in microseconds.
    pub const INTERVAL: u32 = 0x7ffc;
    pub const INTERVAL_SHIFT: u32 = 2;
    /// Immediate interrupts cost credits.
    pub const LLI_EN: u32 = 1 << 15;
    /// Credits that the vector has for immediate interrupts.
    pub const CREDITS_SHIFT: u32 = 16;
    pub const CREDITS: u32 = 0x1f;
    /// Written: the counters stay as they are.
    pub const CNT_INGR: u32 = 1 << 31;
}

/// An entry of IVAR or IVAR_MISC (§8.8.13, §8.8.14).
pub(crate) mod ivar {
    pub const VECTOR: u8 = 0x1f;
    /// The vector, where a VF has the entry.
    pub const VF_VECTOR: u8 = 3;
    /// The entry counts.
    pub const VALID: u8 = 1 << 7;
}

/// General Purpose Interrupt Enable (§8.8.15).
pub(crate) mod gpie {
    pub const NSICR: u32 = 1;
    pub const MULTIPLE: u32 = 1 << 4;
    /// The interval from one credit for immediate interrupts to the next, in units of 4 µs.
    pub const LL_INTERVAL_SHIFT: u32 = 7;
    pub const LL_INTERVAL: u32 = 0x1f;
    pub const EIAME: u32 = 1 << 30;
}

/// Receive Control (§8.10.1).
pub(crate) mod rctl {
    pub use intel::bits::rctl::*;

    /// MO, behind its shift.
    pub const MO: u32 = 3;
}

/// Split and Replication Receive Control (§8.10.2).
pub(crate) mod srrctl {
    /// Bytes of a packet buffer, in KiB.
    pub const BSIZEPACKET: u32 = 0x7f;
    /// Bytes of a header buffer, in units of 64.
    pub const BSIZEHEADER_SHIFT: u32 = 8;
    pub const BSIZEHEADER: u32 = 0x3f;
    /// Descriptors left, in units of 16, at which an interrupt says so.
    pub const RDMTS_SHIFT: u32 = 20;
    pub const RDMTS: u32 = 0x1f;
    pub const DESCTYPE_SHIFT: u32 = 25;
    pub const DESCTYPE: u32 = 7;
    pub const DROP_EN: u32 = 1 << 31;
}

/// Packet Split Receive Type (§8.10.3): packets whose headers are split off.
pub(crate) mod psrtype {
    pub const IPV4: u32 = 1 << 1;
    pub const IPV4_TCP: u32 = 1 << 2;
    pub const IPV4_UDP: u32 = 1 << 3;
    pub const IPV6: u32 = 1 << 7;
    pub const IPV6_TCP: u32 = 1 << 8;
    pub const IPV6_UDP: u32 = 1 << 9;
}

/// RXDCTL and TXDCTL (§8.10.10, §8.12.14).
pub(crate) mod xdctl {
    /// The queue runs.
    pub const ENABLE: u32 = 1 << 25;
    /// Written back at once what waits for a threshold; clears itself.
    pub const SWFLSH: u32 = 1 << 26;
}

/// Receive Queue Drop Packet Count (§8.10.11).
pub(crate) mod rqdpc {
    pub const COUNT: u64 = 0xfff;
}

/// Receive Checksum Control (§8.10.14).
pub(crate) mod rxcsum {
    pub use intel::bits::rxcsum::*;

    pub const CRCOFL: u32 = 1 << 11;
    pub const IPPCSE: u32 = 1 << 12;
    pub const PCSD: u32 = 1 << 13;
}

/// Receive Long Packet Maximum Length (§8.10.15).
pub(crate) mod rlpml {
    pub const LENGTH: u32 = 0x3fff;
}

/// Receive Filter Control (§8.10.16).
pub(crate) mod rfctl {
    pub const IPV6_DIS: u32 = 1 << 10;
    pub const IPV6_XSUM_DIS: u32 = 1 << 11;
    /// Fragments are not split.
    pub const IPFRSP_DIS: u32 = 1 << 14;
    /// The SYN filter goes before the others.
    pub const SYNQFP: u32 = 1 << 19;
}

/// Receive Address High (§8.10.19).
pub(crate) mod rah {
    pub use intel::bits::rah::*;

    /// What is compared; 0: the destination.
    pub const ASEL: u32 = 3 << 16;
    pub const POOLS_SHIFT: u32 = 18;
    pub const POOLS: u32 = 0xff;
}

/// Multiple Receive Queues Command (§8.10.21).
pub(crate) mod mrqc {
    pub const MODE: u32 = 7;
    pub const RSS: u32 = 2;
    /// By pools.
    pub const POOLS: u32 = 3;
    /// By pools, and by RSS within them.
    pub const POOLS_RSS: u32 = 5;
    /// The queue of what nothing else assigns to one.
    pub const DEF_Q_SHIFT: u32 = 3;
    pub const DEF_Q: u32 = 7;
    pub const TCP4: u32 = 1 << 16;
    pub const IPV4: u32 = 1 << 17;
    pub const TCP6_EX: u32 = 1 << 18;
    pub const IPV6_EX: u32 = 1 << 19;
    pub const IPV6: u32 = 1 << 20;
    pub const TCP6: u32 = 1 << 21;
    pub const UDP4: u32 = 1 << 22;
    pub const UDP6: u32 = 1 << 23;
    pub const UDP6_EX: u32 = 1 << 24;
}

/// Redirection Table (§8.10.22): four entries a register.
pub(crate) mod reta {
    /// The bits of a hash that choose the entry.
    pub const INDEX: u32 = 0x7f;
    /// Entries of a register, and bits of each.
    pub const ENTRIES: u32 = 4;
    pub const BITS: u32 = 8;
    pub const QUEUE: u32 = 0xf;
    /// Which of a pool's two queues.
    pub const POOL_QUEUE: u32 = 1;
}

/// Flexible Host Filter Table (§8.20.13): each row of eight bytes and their mask has four words.
pub(crate) mod fhft {
    /// Words of a filter.
    pub const FILTER: usize = 64;
    /// Bytes and words of a row, and which word of it has the mask.
    pub const BYTES: usize = 8;
    pub const ROW: usize = 4;
    pub const MASK: usize = 2;
    /// The word of a filter that has its length, and the length in it.
    pub const LENGTH_WORD: usize = 63;
    pub const LENGTH: u32 = 0xff;
}

/// Immediate Interrupt Receive (§8.11).
pub(crate) mod imir {
    pub const PORT: u32 = 0xffff;
    /// What matches interrupts at once.
    pub const IMMEDIATE: u32 = 1 << 16;
    pub const ANY_PORT: u32 = 1 << 17;
    pub const PRIORITY_SHIFT: u32 = 29;
}

/// Immediate Interrupt Receive Extended (§8.11).
pub(crate) mod imirext {
    /// Only shorter packets interrupt at once.
    pub const SIZE: u32 = 0xfff;
    pub const ANY_SIZE: u32 = 1 << 12;
    pub const FLAGS_SHIFT: u32 = 13;
    pub const FLAGS: u32 = 0x3f;
    pub const ANY_FLAGS: u32 = 1 << 19;
}

/// Immediate Interrupt Receive VLAN Priority (§8.11).
pub(crate) mod imirvp {
    pub const PRIORITY: u32 = 7;
    pub const ON: u32 = 1 << 3;
}

/// Five-Tuple Queue Filter (§8.11).
pub(crate) mod ftqf {
    pub const PROTOCOL: u32 = 0xff;
    pub const QUEUE_ENABLE: u32 = 1 << 8;
    /// The filter matches whatever the pool.
    pub const ANY_POOL: u32 = 1 << 15;
    pub const QUEUE_SHIFT: u32 = 16;
    pub const QUEUE: u32 = 0xf;
    /// What matches is a PTP message.
    pub const PTP: u32 = 1 << 27;
    pub const ANY_PROTOCOL: u32 = 1 << 28;
    pub const ANY_SOURCE: u32 = 1 << 29;
    pub const ANY_DESTINATION: u32 = 1 << 30;
    pub const ANY_SOURCE_PORT: u32 = 1 << 31;
}

/// SYN Packet Queue Filter (§8.11).
pub(crate) mod synqf {
    pub const ON: u32 = 1;
    pub const QUEUE_SHIFT: u32 = 1;
    pub const QUEUE: u32 = 0xf;
}

/// EtherType Queue Filter (§8.11).
pub(crate) mod etqf {
    pub const TYPE: u32 = 0xffff;
    pub const QUEUE_SHIFT: u32 = 16;
    pub const QUEUES: u32 = 7;
    /// The filter is on.
    pub const FILTER: u32 = 1 << 26;
    pub const IMMEDIATE: u32 = 1 << 29;
    /// What matches is a PTP message.
    pub const PTP: u32 = 1 << 30;
    pub const QUEUE: u32 = 1 << 31;
}

pub(crate) use intel::bits::tctl;

/// Transmit Descriptor Write-back Address Low (§8.12.15).
pub(crate) mod tdwbal {
    /// The head is written to memory, and no descriptor is.
    pub const HEAD_WB: u32 = 1;
    /// The low half of where: in words.
    pub const ADDRESS: u32 = !3;
}

/// VMDq Control (§8.14).
pub(crate) mod vt_ctl {
    pub const DEFAULT_SHIFT: u32 = 7;
    pub const DEFAULT: u32 = 7;
    pub const IGNORE_MAC: u32 = 1 << 28;
    pub const NO_DEFAULT: u32 = 1 << 29;
    pub const REPLICATE: u32 = 1 << 30;
}

/// VM Offload (§8.14), and for replicated frames RPLOLR.
pub(crate) mod vmolr {
    pub const RLPML: u32 = 0x3fff;
    pub const LPE: u32 = 1 << 16;
    pub const RSSE: u32 = 1 << 17;
    pub const AUPE: u32 = 1 << 24;
    pub const ROMPE: u32 = 1 << 25;
    pub const ROPE: u32 = 1 << 26;
    pub const BAM: u32 = 1 << 27;
    pub const MPME: u32 = 1 << 28;
    pub const STRVLAN: u32 = 1 << 30;
    pub const STRCRC: u32 = 1 << 31;
}

/// VM VLAN Insert (§8.14).
pub(crate) mod vmvir {
    /// What happens with tags: by descriptor, or one of the next two.
    pub const ACTION_SHIFT: u32 = 30;
    pub const ALWAYS: u32 = 1;
    pub const NEVER: u32 = 2;
}

/// VLAN VM Filter (§8.14).
pub(crate) mod vlvf {
    pub const ID: u32 = 0xfff;
    pub const POOLS_SHIFT: u32 = 12;
    pub const POOLS: u32 = 0xff;
    /// Frames of the VLAN stay inside.
    pub const LOCAL: u32 = 1 << 20;
    pub const ON: u32 = 1 << 31;
}

/// VM Mirror Rule Control (§8.14): what is copied, and the pool that gets the copies.
pub(crate) mod vmrctl {
    pub const POOLS: u32 = 1;
    pub const UPLINK: u32 = 1 << 1;
    pub const DOWNLINK: u32 = 1 << 2;
    pub const VLANS: u32 = 1 << 3;
    pub const ANY: u32 = 0xf;
    pub const TO_SHIFT: u32 = 8;
}

/// DMA Tx Switch Control (§8.14).
pub(crate) mod dtxswc {
    /// Source addresses of a pool are checked (8 bits).
    pub const CHECK_MAC_SHIFT: u32 = 0;
    /// VLANs of a pool are checked (8 bits).
    pub const CHECK_VLAN_SHIFT: u32 = 8;
    /// Frames of a pool may come back to the pool itself (8 bits).
    pub const LOCAL_LOOPBACK_SHIFT: u32 = 16;
    /// Frames of a pool reach other pools.
    pub const LOOPBACK: u32 = 1 << 31;
}

/// Storm Control (§8.14): what is dropped in an interval after one with too much, or in one with too
/// much, of multicast and, two bits above, of broadcast; how long an interval is.
pub(crate) mod sccrl {
    pub const PREVIOUS: u32 = 1;
    pub const CURRENT: u32 = 1 << 1;
    pub const MULTICAST_SHIFT: u32 = 0;
    pub const BROADCAST_SHIFT: u32 = 2;
    pub const INTERVAL_SHIFT: u32 = 8;
    pub const INTERVAL: u32 = 0x3ff;
    /// The unit in nanoseconds at 1000 Mbit/s; ten times as long at a tenth of the speed.
    pub const UNIT: u64 = 100_000;
    /// BSCTRH, MSCTRH: blocks of 64 bytes.
    pub const BLOCKS: u32 = 0x7_ffff;
}

/// Tx Rate Limit (§8.15; driver `igb_set_vf_rate_limit`): whether there is a limit, and the link's
/// speed divided by it, with 14 bits behind the point.
pub(crate) mod rttbcnrc {
    pub const ON: u32 = 1 << 31;
    pub const FACTOR: u32 = 0x0fff_ffff;
    pub const POINT: u32 = 14;
}

/// Which queue RTTBCNRC is about (§8.15).
pub(crate) mod rttdqsel {
    pub const QUEUE: u32 = 0xf;
}

/// The time of IEEE 1588: TSYNCTXCTL, TSYNCRXCTL (§8.16).
pub(crate) mod tsync {
    pub const VALID: u32 = 1;
    /// TSYNCRXCTL: which messages are stamped.
    pub const TYPE_SHIFT: u32 = 1;
    pub const TYPE: u32 = 7;
    /// Messages of version 2 on layer 2, version 1 on layer 4, version 2 on both, and its event messages.
    pub const V2_L2: u32 = 0;
    pub const V1_L4: u32 = 1;
    pub const V2: u32 = 2;
    pub const V2_EVENTS: u32 = 5;
    pub const ENABLED: u32 = 1 << 4;
}

/// TSYNCRXCFG: the message type that is stamped, of version 1 and 2 (§8.16).
pub(crate) mod tsyncrxcfg {
    pub const V1: u32 = 0xff;
    pub const V2_SHIFT: u32 = 8;
    pub const V2: u32 = 0xf;
}

/// Time Adjustment High (§8.16).
pub(crate) mod timadjh {
    pub const AMOUNT: u32 = 0x7fff_ffff;
    pub const NEGATIVE: u32 = 1 << 31;
}

/// Free Running Timer (§8.16): microseconds within a millisecond, milliseconds within a second, seconds.
pub(crate) mod frtimer {
    pub const MILLIS_SHIFT: u32 = 10;
    pub const SECONDS_SHIFT: u32 = 20;
    pub const SECONDS: u64 = 0xfff;
}

/// Time Increment (§8.16).
pub(crate) mod timinca {
    pub const INCREMENT: u32 = 0xff_ffff;
    pub const PERIOD_SHIFT: u32 = 24;
}
