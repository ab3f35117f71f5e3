//! Names and places of the counters.

pub const NAMES: [&str; 18] = [
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
    "user_down",
    "user_deaths",
    "user_bad_message",
    "user_refused_calls",
];
pub const FRAMES_OUT: usize = 0;
pub const BYTES_OUT: usize = 1;
pub const FRAMES_IN: usize = 2;
pub const BYTES_IN: usize = 3;
/// Ours, on both sides; libslirp's own are not seen.
pub const SYSCALLS: usize = 4;
/// From a guest: the queue is full while the guests take no frames of ours, or for long.
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
/// From a guest: while the network's process is not there. Or it waited when that ended.
pub const DOWN: usize = 14;
/// Not a drop: how often the network's process died, or another could not be started.
pub const DEATHS: usize = 15;
/// Not a drop: messages of the network's process that are none; each ends it.
pub const BAD_MESSAGE: usize = 16;
/// Not a drop: system calls that the network's process may not make.
pub const REFUSED_CALLS: usize = 17;

/// What is counted by the network's process, which tells it with its messages.
pub const TOLD: [usize; 6] = [
    SYSCALLS,
    OUT_FULL,
    GUEST_ERRORS,
    FLOW_REFUSED,
    NIC_FLOW_REFUSED,
    REFUSED_CALLS,
];

/// The values of [`TOLD`], since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told(pub [u64; TOLD.len()]);

impl Told {
    /// Adds to the counter of this place, which is one of them.
    pub fn add(&mut self, place: usize, n: u64) {
        if let Some(value) = self.value(place) {
            *value = value.wrapping_add(n);
        }
    }

    /// Sets the counter of this place, which is one of them.
    pub fn set(&mut self, place: usize, n: u64) {
        if let Some(value) = self.value(place) {
            *value = n;
        }
    }

    fn value(&mut self, place: usize) -> Option<&mut u64> {
        let at = TOLD.iter().position(|told| *told == place)?;
        self.0.get_mut(at)
    }
}
