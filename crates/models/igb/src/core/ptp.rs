//! What is kept of the clock of IEEE 1588. [`crate::ptp`] runs it.

use model::Nanos;

/// The running clock, and what was stamped last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ptp {
    /// SYSTIM when `since` was.
    pub(crate) base: u64,
    pub(crate) since: Nanos,
    pub(crate) increment: u64,
    /// Ticks from one increment to the next; 0: it stands.
    pub(crate) period: u64,
    /// SYSTIMH as it was when SYSTIML was read.
    pub(crate) high: u32,
    pub(crate) sent: Option<u64>,
    pub(crate) received: Option<Stamp>,
    /// TIMADJL, until TIMADJH follows.
    pub(crate) adjust_low: u32,
}

/// What is kept of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) time: u64,
    /// Its source, as RXSATRL and the low half of RXSATRH show it.
    pub(crate) source: [u8; 6],
    pub(crate) sequence: u16,
}
