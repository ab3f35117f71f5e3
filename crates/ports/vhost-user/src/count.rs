//! Names and places of the counters.

pub const NAMES: [&str; 19] = [
    "frames_out",
    "bytes_out",
    "frames_in",
    "bytes_in",
    "vhost_down",
    "vhost_stalled",
    "vhost_too_long",
    "vhost_cannot_take",
    "vhost_unsent",
    "vhost_bad_header",
    "vhost_runt",
    "vhost_broken_ring",
    "vhost_refused",
    "vhost_connects",
    "vhost_disconnects",
    "vhost_kicks",
    "vhost_calls",
    "vhost_lost",
    "vhost_fewer_pairs",
];
/// Handed to the back end.
pub const FRAMES_OUT: usize = 0;
pub const BYTES_OUT: usize = 1;
pub const FRAMES_IN: usize = 2;
pub const BYTES_IN: usize = 3;
/// Out: no back end is connected.
pub const DOWN: usize = 4;
/// Out: the back end has taken nothing for longer than we wait.
pub const STALLED: usize = 5;
/// Out: longer than a ring of buffers.
pub const TOO_LONG: usize = 6;
/// Out: with work left to do that the back end does not do.
pub const CANNOT_TAKE: usize = 7;
/// Out: frames in the ring when the back end left.
pub const UNSENT: usize = 8;
/// In: a header that contradicts its frame.
pub const BAD_HEADER: usize = 9;
/// In: shorter than a header and an Ethernet header.
pub const RUNT: usize = 10;
/// In and out: what the back end wrote into a ring cannot be; ends the connection.
pub const BROKEN_RING: usize = 11;
/// A back end with which no session came about.
pub const REFUSED: usize = 12;
/// Not drops: how often a back end came and went.
pub const CONNECTS: usize = 13;
pub const DISCONNECTS: usize = 14;
/// Writes to the back end's eventfds, and its to ours.
pub const KICKS: usize = 15;
pub const CALLS: usize = 16;
/// In: frames that had found no room yet when the back end left.
pub const LOST: usize = 17;
/// Not drops: sessions with fewer pairs than wanted.
pub const FEWER_PAIRS: usize = 18;
