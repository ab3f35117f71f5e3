//! The registers of queues, by which kind of function has them where.

use intel::RingIds;
use regs::Id;

/// Registers of queues in the table of a function. Each is an array with one element per queue.
///
/// In the 82576 a VF's queues are n and n+8 of the chip; in the VF's own window they are 0 and 1,
/// and so they are here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueIds {
    pub rdbal: Id,
    pub rdbah: Id,
    pub rdlen: Id,
    pub srrctl: Id,
    pub rdh: Id,
    pub rdt: Id,
    pub rxdctl: Id,
    /// DCA_RXCTRL.
    pub rxctl: Id,
    /// What is split from what; one for each pool, in a VF one for all.
    pub psrtype: Id,
    pub tdbal: Id,
    pub tdbah: Id,
    pub tdlen: Id,
    pub tdh: Id,
    pub tdt: Id,
    pub txdctl: Id,
    pub tdwbal: Id,
    pub tdwbah: Id,
    /// DCA_TXCTRL.
    pub txctl: Id,
    /// Of its vectors, not of queues.
    pub eitr: Id,
}

impl QueueIds {
    /// What places a receive ring.
    #[inline]
    pub(crate) fn rx_ring(&self) -> RingIds {
        RingIds {
            base_low: self.rdbal,
            base_high: self.rdbah,
            len: self.rdlen,
            head: self.rdh,
            tail: self.rdt,
        }
    }

    /// Whether a register says where in memory a queue reads and writes, and how far.
    pub(crate) fn says_where(&self, id: Id) -> bool {
        [
            self.rdbal,
            self.rdbah,
            self.rdlen,
            self.srrctl,
            self.rdh,
            self.rdt,
            self.tdbal,
            self.tdbah,
            self.tdlen,
            self.tdh,
            self.tdt,
            self.tdwbal,
            self.tdwbah,
        ]
        .contains(&id)
    }

    /// What places a transmit ring.
    #[inline]
    pub(crate) fn tx_ring(&self) -> RingIds {
        RingIds {
            base_low: self.tdbal,
            base_high: self.tdbah,
            len: self.tdlen,
            head: self.tdh,
            tail: self.tdt,
        }
    }
}
