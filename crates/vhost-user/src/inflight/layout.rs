//! Where things are in a buffer of what is in flight.

/// The structures' version; 0 is a buffer that no back end has used.
pub(super) const VERSION: u16 = 1;

/// Offsets within one ring's part.
pub(super) const AT_VERSION: u64 = 8;
pub(super) const AT_DESC_NUM: u64 = 10;
pub(super) const AT_BATCH: u64 = 12;
pub(super) const AT_USED: u64 = 14;
pub(super) const HEAD: u64 = 16;
/// One descriptor's state, and offsets within it.
pub(super) const STATE: u64 = 16;
pub(super) const AT_INFLIGHT: u64 = 0;
pub(super) const AT_NEXT: u64 = 6;
pub(super) const AT_COUNTER: u64 = 8;

/// Parts are cache lines apart.
pub(super) const ALIGN: u64 = 64;

/// Bytes of one descriptor's state in a packed ring; the head before them has twice [`HEAD`].
pub(super) const PACKED_STATE: u64 = 32;

/// Bytes of one ring's part.
pub(super) fn part(queue_size: u16, packed: bool) -> u64 {
    let state = if packed { PACKED_STATE } else { STATE };
    (2 * HEAD + state * u64::from(queue_size)).next_multiple_of(ALIGN)
}

/// Bytes of a buffer for so many rings.
pub(crate) fn bytes(queues: u16, queue_size: u16, packed: bool) -> u64 {
    u64::from(queues) * part(queue_size, packed)
}
