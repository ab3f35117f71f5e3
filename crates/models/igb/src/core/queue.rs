//! A pair of queues: what is kept of each, and the registers that are about it.

use std::sync::atomic::AtomicU64;

use lease::BoundedLock;
use parking_lot::Mutex;
use regs::Place;

use crate::core::context::Context;

/// Bits of a tail.
pub(crate) const TAIL: u32 = 0xffff;

/// Queues whose registers are on the pages that a guest may map, the first ones: of a VF, all it has.
pub(crate) const QUEUES_OF_PAGE: u32 = 4;

/// One queue in each direction. Their locks are never held together.
///
/// In this order: what runs of frames touch is in two cache lines.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    /// Where its tails are kept.
    pub tx_tail: Place,
    pub rx_tail: Place,
    pub counts: QueueCounts,
    /// Held while frames are copied: with it nothing writes into the ring's buffers any more. Senders wait for it only so
    /// long.
    pub rx: BoundedLock<RxState>,
    pub tx: Mutex<TxState>,
}

/// What the statistics registers of a queue show (§8.18, PQGPRC and those behind it). They only
/// grow.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct QueueCounts {
    pub rx_packets: AtomicU64,
    pub rx_octets: AtomicU64,
    pub rx_multicast: AtomicU64,
    /// Frames dropped for want of a descriptor (SRRCTL.DROP_EN).
    pub rx_dropped: AtomicU64,
    pub tx_packets: AtomicU64,
    pub tx_octets: AtomicU64,
}

/// What the transmit side of a queue remembers from call to call: the two contexts of the queue, and how far
/// it is.
pub(crate) type TxState = intel::tx::Position<[Context; 2]>;

/// What is carried from descriptor to descriptor.
pub(crate) type TxMemory = intel::tx::Memory<[Context; 2]>;

/// What the receive side of a queue remembers from call to call: nothing but its registers.
#[derive(Debug, Default)]
pub(crate) struct RxState;
