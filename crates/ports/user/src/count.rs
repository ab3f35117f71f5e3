//! Names and places of the counters.

pub const NAMES: [&str; 14] = [
    "frames_out",
    "bytes_out",
    "frames_in",
    "bytes_in",
    "syscalls",
    "user_in_full",
    "user_too_long",
    "user_cannot_take",
    "user_closed",
    "user_out_full",
    "user_sink_cannot_take",
    "user_guest_errors",
    "user_flow_refused",
    "user_nic_flow_refused",
];
pub const FRAMES_OUT: usize = 0;
pub const BYTES_OUT: usize = 1;
pub const FRAMES_IN: usize = 2;
pub const BYTES_IN: usize = 3;
/// Ours; libslirp's own are not seen.
pub const SYSCALLS: usize = 4;
/// From a guest: the queue is full while the guests take no frames of ours.
pub const IN_FULL: usize = 5;
/// From a guest: longer than the MTU.
pub const TOO_LONG: usize = 6;
/// From a guest: with work left to do.
pub const CANNOT_TAKE: usize = 7;
/// From a guest: after the port has been closed.
pub const CLOSED: usize = 8;
/// To a guest: more in one turn than the queue holds.
pub const OUT_FULL: usize = 9;
/// To a guest: not taken as it is.
pub const SINK_CANNOT_TAKE: usize = 10;
/// Not a drop: mistakes of guests that libslirp reported.
pub const GUEST_ERRORS: usize = 11;
/// From a guest: it would open a flow, and there are as many as there may be; or a fragment hides whether it would.
pub const FLOW_REFUSED: usize = 12;
/// From a guest: it would open a flow, and its NIC has as many as one may have.
pub const NIC_FLOW_REFUSED: usize = 13;
