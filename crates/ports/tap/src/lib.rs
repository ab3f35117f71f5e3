//! The TAP port: frames to and from the host's kernel.
//!
//! A frame goes out with one `writev` straight from the sender's buffers. With `vnet_hdr` (`struct
//! virtio_net_hdr` before every frame) checksums and TCP segmentation pass through undone in both
//! directions, so that 64 KiB of TCP are one system call.
//!
//! `unsafe` is here for the TUN ioctls and for a `writev` of guest memory, which no Rust reference
//! may point to; all of it is in `sys`.
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod error;
mod hdr;
mod inlet;
mod sink;
#[allow(unsafe_code)]
mod sys;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frame::Counted;
use port::{Port, Tally};

pub use error::TapError;

/// Where the TAP comes from.
#[derive(Debug)]
pub enum Source {
    /// An interface of this name: attached if it is there, made if we may.
    Name(String),
    /// A descriptor somebody else has set up (`IFF_TAP | IFF_NO_PI`, with or without
    /// `IFF_VNET_HDR`); a macvtap device works as well. A missing `IFF_NO_PI` cannot be noticed:
    /// `TUNGETIFF` reports `IFF_NOFILTER` in the same bit.
    Fd(OwnedFd),
}

/// Counters of one TAP queue, by index.
mod count {
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
}

/// What the two directions of one queue share.
struct Queue {
    fd: OwnedFd,
    /// Bytes of `virtio_net_hdr` before each frame; 0 without.
    hdr_len: usize,
    /// The interface has been deleted; no need to ask the kernel again.
    gone: AtomicBool,
    tally: Tally<14>,
}

/// Opens a TAP as a port with a single queue.
///
/// # Errors
/// A [`TapError`] that names the cause and the cure.
pub fn open(source: Source) -> Result<Port, TapError> {
    let (fd, ifreq) = match source {
        Source::Name(name) => {
            let fd = open_queue(&name)?;
            let got = sys::get_if(&fd).map_err(|e| TapError::system("TUNGETIFF", e))?;
            (fd, got)
        }
        Source::Fd(fd) => {
            let got = sys::get_if(&fd).map_err(TapError::not_a_tap)?;
            sys::set_nonblocking(&fd).map_err(|e| TapError::system("O_NONBLOCK", e))?;
            (fd, got)
        }
    };
    let (name, flags) = ifreq;
    if flags & libc::IFF_TAP == 0 {
        return Err(TapError::NotEthernet { name });
    }
    let hdr_len = if flags & libc::IFF_VNET_HDR != 0 {
        negotiate(&fd).map_err(|e| TapError::system("TUNSETVNETHDRSZ", e))?
    } else {
        0
    };
    let queue = Arc::new(Queue {
        fd,
        hdr_len,
        gone: AtomicBool::new(false),
        tally: Tally::new(count::NAMES),
    });
    Ok(Port {
        name: format!("tap:{name}"),
        sink: Arc::new(sink::TapSink::new(Arc::clone(&queue))),
        inlet: Some(Box::new(inlet::TapInlet::new(Arc::clone(&queue)))),
        counters: queue,
    })
}

/// Attaches to the TAP `name`, which is made if we may, for a program that reads and writes frames itself. Returns the
/// descriptor, which does not block, and the length of the `virtio_net_hdr` before each frame. The kernel hands
/// over unfinished checksums and segments.
///
/// # Errors
/// As [`open`].
pub fn attach(name: &str) -> Result<(OwnedFd, usize), TapError> {
    let fd = open_queue(name)?;
    let header = negotiate(&fd).map_err(|e| TapError::system("TUNSETVNETHDRSZ", e))?;
    Ok((fd, header))
}

/// Attaches one queue to the interface `name`.
fn open_queue(name: &str) -> Result<OwnedFd, TapError> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/', '%']) {
        return Err(TapError::BadName { name: name.into() });
    }
    let fd = sys::open_tun().map_err(TapError::device)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    sys::set_if(&fd, name, flags).map_err(|e| TapError::attach(name, e))?;
    Ok(fd)
}

/// Agrees on the header: little endian, the long form of virtio 1 (12 bytes) if the kernel has it.
/// Asks the kernel for unfinished frames, as far as it has them.
fn negotiate(fd: &OwnedFd) -> std::io::Result<usize> {
    // Old kernels lack this one; then the header is in host order, which is the same on every
    // machine we run on.
    let _ = sys::set_vnet_le(fd);
    if sys::set_vnet_hdr_size(fd, hdr::LONG).is_err() {
        sys::set_vnet_hdr_size(fd, hdr::SHORT)?;
    }
    let len = sys::get_vnet_hdr_size(fd)?;
    let most = sys::TUN_F_CSUM | sys::TUN_F_TSO4 | sys::TUN_F_TSO6;
    if sys::set_offload(fd, most | sys::TUN_F_TSO_ECN).is_err() {
        // Finished frames only is what such a kernel sends anyway.
        let _ = sys::set_offload(fd, most);
    }
    Ok(len)
}

impl Counted for Queue {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.tally.counters(visit);
    }
}
