//! A pair of queues: what is kept of each, and the registers that are about it.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::core::context::Context;

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

/// What the transmit side of a queue remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct TxState {
    pub memory: TxMemory,
    /// Frames of the packet at the head that the sink has already taken.
    pub taken: usize,
}

/// What the walk along a ring carries from descriptor to descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TxMemory {
    /// The two contexts of the queue.
    pub contexts: [Context; 2],
    /// In a packet that was given up; its remaining descriptors are passed over.
    pub skipping: bool,
}

/// What the receive side of a queue remembers from call to call: nothing but its registers.
#[derive(Debug, Default)]
pub(crate) struct RxState;
