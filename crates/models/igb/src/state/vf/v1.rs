//! Version 1. Released versions never change: another field takes version 2 and a
//! conversion from this one.

use serde::{Deserialize, Serialize};
use snapshot::Kind;

pub use crate::state::v1::{Context, Words};

/// What the container calls it.
pub const KIND: Kind = Kind::new("82576vf");

/// The whole function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// Every register that keeps what is written, in the order of their offsets.
    pub registers: Vec<Words>,
    /// VFGPRC, VFGPTC, VFGORC, VFGOTC and VFMPRC, which wrap.
    pub statistics: [u32; 5],
    /// VTFRTIMER, in nanoseconds.
    pub timer: u64,
    /// The transmit queues.
    pub queues: Vec<Queue>,
    /// The one whose turn is next.
    pub turn: u32,
    /// The interrupt logic.
    pub interrupts: Interrupts,
    /// The mailbox.
    pub mailbox: Mailbox,
    /// What was granted. It informs the PF of the loading host, and grants nothing.
    pub granted: Granted,
}

impl snapshot::State for V1 {
    const KIND: snapshot::Kind = KIND;
    const VERSION: u32 = 1;
}

/// What a transmit queue remembers beside its registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its two contexts.
    pub contexts: [Context; 2],
    /// In a packet that was given up.
    pub skipping: bool,
    /// Frames of the packet at the head that have left.
    pub taken: u32,
}

/// The interrupt logic. Times are relative to the moment of saving, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// VTEICR.
    pub causes: u32,
    /// VTEIMS.
    pub mask: u32,
    /// When each vector spoke last.
    pub last: Vec<Option<i64>>,
}

/// The mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    /// VMBMEM.
    pub memory: [u32; 16],
    /// V2PMAILBOX, with nothing cleared by reading it.
    pub bits: u32,
    /// The PF has not been notified of a message.
    pub request: bool,
    /// Nor of one that was read.
    pub acknowledged: bool,
    /// Nor of a reset.
    pub reset: bool,
    /// The VF has not been notified of PFSTS or PFACK.
    pub interrupt: bool,
}

/// What was granted, as [`Grant`](crate::Grant) has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Granted {
    pub enabled: bool,
    pub link: bool,
    pub max_frame: u16,
    pub tag: Option<u16>,
    pub interrupt_gap: u64,
}
