//! Version 1.

use serde::{Deserialize, Serialize};
use snapshot::State;

pub use snapshot::Kind;

/// What the container calls it.
pub const KIND: Kind = Kind::new("r8169");

/// How far back the past is kept: no moderation looks further, and deadlines are met at once when they are over.
pub(crate) const PAST: i64 = 1_000_000_000;

/// Where a command of the EEPROM has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waiting for the start bit.
    Idle,
    /// Taking opcode and address.
    Command {
        /// Bits taken.
        bits: u8,
        /// The bits.
        value: u16,
    },
    /// Sending a word.
    Read {
        /// Which.
        at: u8,
        /// Bits to go.
        left: u8,
    },
    /// Nothing more until it is selected anew.
    Spent,
}

/// The wires of the EEPROM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eeprom {
    /// Chip select.
    pub cs: bool,
    /// Clock.
    pub sk: bool,
    /// What it shows.
    pub data_out: bool,
    /// The command.
    pub phase: Phase,
}

/// The PHY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phy {
    /// Its pages, one after the other.
    pub registers: Vec<u16>,
    /// Which is selected.
    pub page: u16,
    /// The cable is in.
    pub cable: bool,
    /// Auto-negotiation is complete.
    pub negotiated: bool,
}

/// How interrupts reach the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// INTx.
    Line,
    /// MSI.
    Msi,
    /// MSI-X.
    Msix,
}

/// Frames that wait for IntrMitigate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How many.
    pub frames: u32,
    /// Until when.
    pub until: Option<i64>,
}

/// What moderation has measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adaptive {
    /// From line to acknowledgement.
    pub cost: u64,
    /// Since when it is raised.
    pub raised: Option<i64>,
    /// When interrupts are paid for.
    pub paid: i64,
    /// Since when a report waits.
    pub waiting: Option<i64>,
    /// Descriptors sent.
    pub sent: u32,
    /// Too many to wait.
    pub urgent: bool,
    /// Buffers filled.
    pub received: u32,
    /// Too many to wait.
    pub crowded: bool,
}

/// What is behind OCP and ERI: places whose contents are not 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ocp {
    /// The MAC's.
    pub mac: Vec<(u16, u32)>,
    /// The PHY's.
    pub phy: Vec<(u16, u32)>,
    /// ERI's.
    pub eri: Vec<(u16, u32)>,
}

/// What PMCSR shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// The function is in D3.
    pub d3: bool,
    /// PME is enabled.
    pub pme_enabled: bool,
    /// PME is asserted.
    pub pme_status: bool,
}

/// The interrupt logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// ISR.
    pub isr: u16,
    /// IMR.
    pub imr: u16,
    /// How they reach the guest.
    pub way: Way,
    /// Frames received.
    pub rx: Held,
    /// Frames sent.
    pub tx: Held,
    /// When it was signalled last.
    pub last: Option<i64>,
    /// Held back until then.
    pub throttled: Option<i64>,
    /// Nanoseconds since TCTR was 0.
    pub elapsed: u64,
    /// When auto-negotiation ends.
    pub link: Option<i64>,
    /// Speed of the link, or of the last one.
    pub mbits: u16,
    /// What moderation has measured.
    pub adaptive: Adaptive,
}

/// The NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// Which chip it is.
    pub xid: u16,
    /// Every word of the register table, in its order.
    pub registers: Vec<u32>,
    /// The statistics.
    pub statistics: [u64; 8],
    /// Registers of the PCIe PHY.
    pub ephy: Vec<u16>,
    /// The EEPROM.
    pub eeprom: Eeprom,
    /// The PHY.
    pub phy: Phy,
    /// What only an 8168H has.
    pub ocp: Option<Ocp>,
    /// The power state.
    pub power: Power,
    /// The next descriptor of each ring.
    pub tx_next: u32,
    /// That of the receive ring.
    pub rx_next: u32,
    /// A command of DTCCR waits.
    pub command: bool,
    /// The link stands.
    pub link_up: bool,
    /// The bus lets it reach memory.
    pub awake: bool,
    /// There is something to send, or was when it was last looked.
    pub tx_work: bool,
    /// Interrupts.
    pub interrupts: Interrupts,
}

impl State for V1 {
    const KIND: Kind = KIND;
    const VERSION: u32 = 1;
}
