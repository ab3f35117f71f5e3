//! A pair of queues: what is kept of each, and the registers that are about it.

use std::sync::atomic::AtomicU64;

use intel::RingIds;
use parking_lot::Mutex;
use regs::Id;

use crate::rx::RxState;
use crate::tx::TxState;

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
    /// Receive Queue Drop Packet Count; a VF has none.
    pub rqdpc: Option<Id>,
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

/// Bits of RXDCTL and TXDCTL (§8.10.10, §8.12.14).
pub(crate) mod xdctl {
    /// The queue runs.
    pub const ENABLE: u32 = 1 << 25;
    /// Written back at once what waits for a threshold; clears itself.
    pub const SWFLSH: u32 = 1 << 26;
}

/// One queue in each direction. Their locks are never held together.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub tx: Mutex<TxState>,
    /// Held while frames are copied: whoever gets it knows that nobody writes into the ring's
    /// buffers any more.
    pub rx: Mutex<RxState>,
    pub counts: QueueCounts,
}

/// What the statistics registers of a queue show (§8.18, PQGPRC and those behind it). They only
/// grow.
#[derive(Debug, Default)]
pub(crate) struct QueueCounts {
    pub rx_packets: AtomicU64,
    pub rx_octets: AtomicU64,
    pub rx_multicast: AtomicU64,
    /// Frames dropped for want of a descriptor (SRRCTL.DROP_EN).
    pub rx_dropped: AtomicU64,
    pub tx_packets: AtomicU64,
    pub tx_octets: AtomicU64,
}
