//! Names and places of the counters.

pub const NAMES: [&str; 15] = [
    "frames_out",
    "bytes_out",
    "frames_in",
    "bytes_in",
    "syscalls",
    "stream_down",
    "stream_stalled",
    "stream_too_long",
    "stream_cannot_take",
    "stream_unsent_bytes",
    "stream_runt",
    "stream_bad_length",
    "stream_connects",
    "stream_disconnects",
    "stream_unsure_bytes",
];
/// Handed to the socket or its buffer here.
pub const FRAMES_OUT: usize = 0;
pub const BYTES_OUT: usize = 1;
pub const FRAMES_IN: usize = 2;
pub const BYTES_IN: usize = 3;
pub const SYSCALLS: usize = 4;
/// Out: no peer is connected.
pub const DOWN: usize = 5;
/// Out: the peer has not read for longer than we wait.
pub const STALLED: usize = 6;
/// Out: longer than the peer takes.
pub const TOO_LONG: usize = 7;
/// Out: with work left to do.
pub const CANNOT_TAKE: usize = 8;
/// Out: bytes that waited when the peer left.
pub const UNSENT: usize = 9;
/// In: shorter than an Ethernet header.
pub const RUNT: usize = 10;
/// In: a length beyond [`crate::MAX_FRAME`]; ends the connection.
pub const BAD_LENGTH: usize = 11;
/// Not drops: how often a peer came and went.
pub const CONNECTS: usize = 12;
pub const DISCONNECTS: usize = 13;
/// In: bytes of frames that a process before was passing on when it died.
pub const UNSURE: usize = 14;
