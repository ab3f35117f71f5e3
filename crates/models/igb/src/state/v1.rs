//! Version 1. Released versions never change: another field takes version 2 and a
//! conversion from this one.

pub use intel::saved::{Count, Phy, Words};
use serde::{Deserialize, Serialize};
use snapshot::Kind;

/// What the container calls it.
pub const KIND: Kind = Kind::new("82576");

/// The whole function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// PCI device id.
    pub device: u16,
    /// Every stored register, in the order of their offsets.
    pub registers: Vec<Words>,
    /// Statistics by the offset of their (low) register, those that are not 0.
    pub statistics: Vec<Count>,
    /// 64-bit statistics whose low half was read and whose high half was not, as they were then.
    pub latched: Vec<Count>,
    /// STATUS.LU.
    pub link_up: bool,
    /// Sent frames come straight back.
    pub loopback: bool,
    /// PCI allows it to master the bus.
    pub may_master: bool,
    /// STATUS.PHYRA.
    pub phy_was_reset: bool,
    /// The NVM.
    pub nvm: Nvm,
    /// The PHY.
    pub phy: Phy,
    /// The queues.
    pub queues: Vec<Queue>,
    /// The transmit queue whose turn is next.
    pub turn: u32,
    /// The interrupt logic.
    pub interrupts: Interrupts,
    /// The clock of IEEE 1588.
    pub clock: Clock,
    /// Flow control.
    pub flow: Flow,
    /// IOADDR.
    pub io: u32,
    /// It sleeps.
    pub d3: bool,
}

impl snapshot::State for V1 {
    const KIND: snapshot::Kind = KIND;
    const VERSION: u32 = 1;
}

/// The NVM, and the wires by which it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nvm {
    /// The memory.
    pub bytes: Vec<u8>,
    /// Level of SK.
    pub sk: bool,
    /// Chip select is low, which selects.
    pub selected: bool,
    /// Level of DO.
    pub data_out: bool,
    /// Writing is enabled.
    pub writable: bool,
    /// How far a command has come.
    pub phase: Phase,
    /// Bits of the byte under way.
    pub shift: u8,
    /// How many.
    pub bits: u8,
}

/// How far a command of the NVM has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// In its first byte.
    Command,
    /// In its address.
    Address {
        /// The command.
        command: u8,
        /// The address so far.
        at: u16,
        /// Bytes to come.
        left: u8,
    },
    /// Sending bytes.
    Read(u16),
    /// Sending the status.
    Status,
    /// Taking bytes.
    Write(u16),
    /// Done, until it is deselected.
    Spent,
}

/// What a queue remembers beside its registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its two contexts.
    pub contexts: [Context; 2],
    /// In a packet that was given up.
    pub skipping: bool,
    /// Frames of the packet at the head that have left.
    pub taken: u32,
    /// What is counted of it.
    pub counts: QueueCounts,
}

/// A context descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the datasheet's names, §7.2.2.2
pub struct Context {
    pub maclen: u8,
    pub iplen: u16,
    pub l4len: u8,
    pub mss: u16,
    pub vlan: u16,
    /// 0 UDP, 1 TCP, 2 SCTP.
    pub l4t: u8,
    pub ipv4: bool,
}

/// What is counted of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// RQDPC.
    pub dropped: u64,
    /// Since the last reset: packets and octets received, multicast among them, packets and octets
    /// sent.
    pub moved: [u64; 5],
}

/// The interrupt logic. Times are relative to the moment of saving, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// ICR.
    pub causes: u32,
    /// IMS.
    pub mask: u32,
    /// EICR.
    pub extended: u32,
    /// EIMS.
    pub extended_mask: u32,
    /// What of causes and mask has set its vector's bit already.
    pub reported: u32,
    /// Vectors whose message has been sent and not answered.
    pub sent: u32,
    /// When each vector spoke last.
    pub last: Vec<Option<i64>>,
    /// Credits of each vector for immediate interrupts.
    pub credits: Vec<u32>,
    /// When auto-negotiation ends.
    pub negotiation: Option<i64>,
    /// IAC.
    pub asserted: u64,
}

/// The clock of IEEE 1588.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// SYSTIM.
    pub time: u64,
    /// Nanoseconds since it last moved.
    pub since: u64,
    /// SYSTIMH as it was kept.
    pub high: u32,
    /// TXSTMP, until it is read.
    pub sent: Option<u64>,
    /// RXSTMP and what belongs to it, until it is read.
    pub received: Option<Stamp>,
    /// TIMADJL.
    pub adjust_low: u32,
}

/// Flow control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// When the silence ends that the partner asked for, in nanoseconds from the moment of saving.
    pub until: Option<i64>,
    /// A pause frame that software asked for has not left yet.
    pub owed: bool,
}

/// The time stamp of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// When it came.
    pub time: u64,
    /// Who sent it.
    pub source: [u8; 6],
    /// Its sequence number.
    pub sequence: u16,
}
