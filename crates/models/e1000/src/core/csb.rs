//! What each side remembers of the Communication Status Block ([`datapath::csb`]).

use datapath::csb;
use model::Watch;

/// The transmitter.
#[derive(Debug, Default)]
pub(crate) struct TxCsb {
    pub(crate) rules: csb::TxCsb,
    /// Where the ring was left.
    pub(crate) head: u32,
    /// How the last round ended.
    pub(crate) watch: Watch,
}

impl TxCsb {
    pub(crate) fn reset(&mut self) {
        self.rules.reset();
        self.watch = Watch::Off;
    }
}

/// The receiver, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct RxCsb {
    pub(crate) rules: csb::RxCsb,
    /// Looks since the guest was asked to call.
    pub(crate) looks: u32,
}
