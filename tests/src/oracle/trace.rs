//! What a machine let be seen while a script ran.

/// Registers read at each look, none of which a read changes.
pub(super) const WATCHED: [(u32, &str); 7] = [
    (0xc8, "ICS"),
    (0xd0, "IMS"),
    (0x2810, "RDH"),
    (0x2818, "RDT"),
    (0x3810, "TDH"),
    (0x3818, "TDT"),
    (0x8, "STATUS"),
];
/// Places in [`WATCHED`].
pub(super) const ICS: usize = 0;
pub(super) const IMS: usize = 1;
pub(super) const RDH: usize = 2;
pub(super) const TDH: usize = 4;

/// What was seen since the look before, and at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What the explicit reads gave, in order.
    pub reads: Vec<u64>,
    /// The level of INTx.
    pub line: bool,
    /// A few registers.
    pub watched: [u32; WATCHED.len()],
    /// The transmit ring's bytes.
    pub tx_ring: Vec<u8>,
    /// The receive ring's bytes.
    pub rx_ring: Vec<u8>,
    /// Frames sent.
    pub sent: Vec<Vec<u8>>,
}

/// What was there when the script had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// All registers of the sweep, in its order.
    pub registers: Vec<u32>,
    /// The memory scripts use.
    pub arena: Vec<u8>,
}

/// One run of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// One per look of the script, and one at its end.
    pub looks: Vec<Look>,
    /// What was left.
    pub end: End,
}
