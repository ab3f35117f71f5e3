//! Names and places of the counters.

/// The counters of a ring port, by name.
pub const NAMES: [&str; 18] = [
    "frames_in",
    "bytes_in",
    "frames_out",
    "bytes_out",
    "ring_down",
    "ring_too_long",
    "ring_too_short",
    "ring_bad_memory",
    "ring_sink_cannot_take",
    "ring_bad_record",
    "ring_bad_peer",
    "ring_lost_bytes",
    "ring_no_room",
    "ring_wakes",
    "ring_connects",
    "ring_disconnects",
    "ring_failed_greetings",
    "ring_refused_newcomers",
];
pub const FRAMES_IN: usize = 0;
pub const BYTES_IN: usize = 1;
/// In our ring, where the peer can take them.
pub const FRAMES_OUT: usize = 2;
pub const BYTES_OUT: usize = 3;
/// Out: no peer is connected.
pub const NOT_CONNECTED: usize = 4;
/// Out: longer than [`crate::MAX_FRAME`].
pub const TOO_LONG: usize = 5;
/// Out: shorter than an Ethernet header. A peer would take it for a lie.
pub const TOO_SHORT: usize = 6;
/// Out: not all of its bytes could be read.
pub const BAD_MEMORY: usize = 7;
/// In: it could not be finished for a sink that takes finished frames only.
pub const CANNOT_TAKE: usize = 8;
/// In: what the record says contradicts the frame.
pub const BAD_RECORD: usize = 9;
/// Connections ended because what the peer said or wrote cannot be.
pub const BAD_PEER: usize = 10;
/// Bytes of both rings that nobody took before the connection ended.
pub const LOST: usize = 11;
/// Deliveries that ended short.
pub const NO_ROOM: usize = 12;
/// Writes to the peer's eventfd.
pub const WAKES: usize = 13;
/// How often a peer came and went.
pub const CONNECTS: usize = 14;
pub const DISCONNECTS: usize = 15;
/// Peers that left or said nothing before they had greeted.
pub const FAILED_GREETINGS: usize = 16;
/// Those that called while another was connected.
pub const REFUSED: usize = 17;
