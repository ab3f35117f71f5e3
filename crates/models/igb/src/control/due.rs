//! What the registers say of VFs and the switch does not know yet.

/// What was written about VFs and is not in force yet.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Their rules may be others.
    pub(crate) changed: bool,
    /// They are to hear that their PF is there.
    pub(crate) ready: bool,
    /// How often rules were worked out in this turn.
    pub(crate) spent: u32,
}
