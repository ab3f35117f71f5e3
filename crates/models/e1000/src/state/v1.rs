//! Version 1. Released versions never change: another field takes version 2 and a
//! conversion from this one.

pub use intel::saved::{Count, Phy, Words};
use serde::{Deserialize, Serialize};

use snapshot::Kind;

/// What the container calls it.
pub const KIND: Kind = Kind::new("e1000");

/// The whole NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// PCI device id of the variant that was saved.
    pub device: u16,
    /// Every stored register, in the order of their offsets.
    pub registers: Vec<Words>,
    /// Statistics by the offset of their (low) register, those that are not 0.
    pub statistics: Vec<Count>,
    /// 64-bit statistics whose low half was read and whose high half was not, as they were then.
    pub latched: Vec<Count>,
    /// The packet buffer, without pages that are all zeros.
    pub packet_buffer: Vec<Page>,
    /// IOADDR.
    pub io_address: u32,
    /// STATUS.LU.
    pub link_up: bool,
    /// The PHY loops frames back.
    pub phy_loopback: bool,
    /// PCI COMMAND bit 2.
    pub bus_master: bool,
    /// The function is in D3.
    pub d3: bool,
    /// Work for the transmitter was noted and not done.
    pub tx_work: bool,
    /// Work for the receiver was noted and not done.
    pub rx_work: bool,
    /// The EEPROM.
    pub eeprom: Eeprom,
    /// The PHY.
    pub phy: Phy,
    /// The transmitter.
    pub transmitter: Transmitter,
    /// The receiver.
    pub receiver: Receiver,
    /// Flow control.
    pub flow: Flow,
    /// The interrupt logic.
    pub interrupts: Interrupts,
}

impl snapshot::State for V1 {
    const KIND: Kind = KIND;
    const VERSION: u32 = 1;
}

/// A page of 1 KiB of the packet buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Which.
    pub index: u32,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// Contents and wire of the EEPROM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eeprom {
    /// The memory.
    pub words: Vec<u16>,
    /// Level of SK.
    pub sk: bool,
    /// Level of CS.
    pub cs: bool,
    /// Level of DO.
    pub data_out: bool,
    /// Writing is enabled.
    pub writable: bool,
    /// How far a command has come.
    pub phase: Phase,
}

/// How far a microwire command has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Before the start bit.
    Idle,
    /// In opcode and address.
    Command {
        /// Bits taken.
        bits: u8,
        /// What they say.
        value: u16,
    },
    /// Sending a word.
    Read {
        /// Which.
        at: u8,
        /// Bits to go.
        left: u8,
    },
    /// Taking a word.
    Data {
        /// Bits taken.
        bits: u8,
        /// What they say.
        value: u16,
        /// Where it goes.
        target: Target,
    },
    /// Complete, until chip select falls.
    Commit {
        /// The word.
        value: u16,
        /// Where it goes.
        target: Target,
    },
    /// Done, until chip select falls.
    Spent,
}

/// Where a word goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// To this address.
    Word(u8),
    /// To all addresses.
    All,
}

/// The transmitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transmitter {
    /// The last context descriptor with TSE.
    pub segmenting: Context,
    /// The last context descriptor without.
    pub plain: Context,
    /// In a packet that was given up.
    pub skipping: bool,
    /// Frames of the packet at the head that have left.
    pub taken: u32,
    /// The last run ended before its work did.
    pub unfinished: bool,
}

/// A context descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the manual's names, §3.3.6
pub struct Context {
    pub ipcss: u8,
    pub ipcso: u8,
    pub ipcse: u16,
    pub tucss: u8,
    pub tucso: u8,
    pub tucse: u16,
    pub hdrlen: u8,
    pub mss: u16,
    pub paylen: u32,
    pub tcp: bool,
    pub ipv4: bool,
}

/// The receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// Words of 8 bytes that the packet FIFO has.
    pub fifo_size: u32,
    /// Where in it the oldest frame begins.
    pub fifo_head: u32,
    /// The frames that wait, oldest first. Their bytes are in the packet buffer.
    pub waiting: Vec<Waiting>,
}

/// A frame in the packet FIFO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Bytes, without FCS.
    pub len: u16,
    /// Its checksum is known to be right.
    pub csum_valid: bool,
}

/// Flow control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// When the silence ends that the partner asked for, relative to the moment of saving.
    pub until: Option<i64>,
    /// Pause frames still to be sent: 1 XOFF, 2 XON, 4 by software.
    pub owed: u8,
    /// The FIFO was at FCRTH and has not been at FCRTL since.
    pub high: bool,
    /// Nanoseconds per ten bits of the link as it was when it last changed.
    pub ten_bits: u32,
}

/// The interrupt logic. Times are relative to the moment of saving, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// ICR.
    pub causes: u32,
    /// IMS.
    pub mask: u32,
    /// MSI is enabled.
    pub msi: bool,
    /// When the line last went up.
    pub last: Option<i64>,
    /// When it may go up again, while something waits for that.
    pub throttled: Option<i64>,
    /// RDTR and RADV.
    pub receive: Delay,
    /// TIDV and TADV.
    pub transmit: Delay,
    /// When auto-negotiation ends.
    pub negotiation: Option<i64>,
    /// When the transmitter is to look for pause frames or their end.
    pub look: Option<i64>,
    /// What was measured of the guest, for adaptive moderation.
    pub adaptive: Adaptive,
}

/// A packet timer and the absolute timer that caps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// When the packet timer ends.
    pub packet: Option<i64>,
    /// When the absolute timer ends.
    pub absolute: Option<i64>,
}

/// What adaptive moderation knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adaptive {
    /// From line to ICR, smoothed; nanoseconds.
    pub cost: u64,
    /// When the line went up, until ICR is read.
    pub raised: Option<i64>,
    /// When the interrupts so far will have been paid for.
    pub paid: i64,
    /// Since when a report waits.
    pub waiting: Option<i64>,
    /// Descriptors that it stands for.
    pub sent: u32,
    /// It waits no longer.
    pub urgent: bool,
    /// Receive buffers filled since the driver last looked.
    pub received: u32,
    /// They are so many that the driver is told at once.
    pub crowded: bool,
}
