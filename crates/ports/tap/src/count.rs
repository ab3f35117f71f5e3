//! Names and places of the counters.

/// What is counted.
pub const NAMES: [&str; 14] = [
    "frames_out",
    "bytes_out",
    "frames_in",
    "bytes_in",
    "syscalls",
    "tap_gone",
    "tap_down",
    "tap_full",
    "tap_refused",
    "tap_bad_memory",
    "tap_cannot_take",
    "tap_bad_header",
    "tap_sink_cannot_take",
    "tap_copied",
];
pub const FRAMES_OUT: usize = 0;
pub const BYTES_OUT: usize = 1;
pub const FRAMES_IN: usize = 2;
pub const BYTES_IN: usize = 3;
pub const SYSCALLS: usize = 4;
/// Out: the interface is deleted.
pub const GONE: usize = 5;
/// Out: the interface is administratively down (EIO).
pub const DOWN: usize = 6;
/// Out: the kernel is short of memory or queue (EAGAIN, ENOBUFS, ENOMEM).
pub const FULL: usize = 7;
/// Out: the kernel does not accept this frame (too short, nonsense in the header).
pub const REFUSED: usize = 8;
/// Out: the sender's memory went away (EFAULT).
pub const BAD_MEMORY: usize = 9;
/// Out: asks for an offload that this TAP does not do.
pub const CANNOT_TAKE: usize = 10;
/// In: `virtio_net_hdr` that contradicts its frame, or a frame too short or too long.
pub const BAD_HEADER: usize = 11;
/// In: asks for an offload that the receiver does not do.
pub const SINK_CANNOT_TAKE: usize = 12;
/// Out, not a drop: more pieces than one `writev` takes, copied together first.
pub const COPIED: usize = 13;
