//! What a machine let be seen while a script ran.

/// What was seen since the look before, and at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What the explicit reads gave, in order.
    pub reads: Vec<u64>,
    /// The level of INTx.
    pub line: bool,
    /// Vectors that have sent a message, bit by bit.
    pub messages: u32,
    /// The registers the chip has for this.
    pub watched: Vec<u32>,
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
