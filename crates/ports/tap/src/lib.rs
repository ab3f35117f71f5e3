//! The TAP port: frames to and from the host's kernel.
//!
//! A TAP may have several queues: frames go out by flow ([`Source::Queues`]), which tells the kernel
//! through which queue to send what comes back, and each queue is an inlet of its own.
//!
//! A frame goes out with one `writev` straight from the sender's buffers. With `vnet_hdr` (`struct
//! virtio_net_hdr` before every frame) checksums and TCP segmentation pass through undone in both
//! directions, so that 64 KiB of TCP are one system call.
//!
//! `unsafe` is here for the TUN ioctls and for a `writev` of guest memory, which no Rust reference
//! may point to; all of it is in `sys`.
#![deny(unsafe_code)]

mod count;
mod error;
mod inlet;
mod queue;
mod sink;
#[allow(unsafe_code)]
mod sys;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frame::Counted;
use port::answer::Answers;
use port::{Inlet, Port, Tally, vnet};

/// The names of what a TAP counts.
pub use count::NAMES as COUNTERS;
pub use error::TapError;
pub use queue::MAX_QUEUES;
use queue::Queue;

/// Where the TAP comes from.
#[derive(Debug)]
pub enum Source {
    /// An interface of this name: attached if it is there, made if we may.
    Name(String),
    /// The same with several queues (`IFF_MULTI_QUEUE`). One that is there must have been made so.
    Queues {
        /// The interface.
        name: String,
        /// How many, at most [`MAX_QUEUES`].
        queues: usize,
    },
    /// The queues of an interface, as [`attach_queues`] has opened them, in this process or an earlier one.
    Attached(Vec<OwnedFd>),
    /// A descriptor that the caller has set up (`IFF_TAP | IFF_NO_PI`, with or without
    /// `IFF_VNET_HDR`); a macvtap device works as well. A missing `IFF_NO_PI` cannot be noticed:
    /// `TUNGETIFF` reports `IFF_NOFILTER` in the same bit.
    Fd(OwnedFd),
    /// What stands in for a TAP with `struct virtio_net_hdr` where there are none: a socket that
    /// keeps the bounds of what is written (`SOCK_SEQPACKET`).
    StandIn(OwnedFd),
}

/// All queues of one TAP, counted together.
struct Queues(Vec<Arc<Queue>>);

/// Opens a TAP as a port.
///
/// # Errors
/// A [`TapError`] that names the cause and the cure.
pub fn open(source: Source) -> Result<Port, TapError> {
    let nonblocking =
        |fd: &OwnedFd| sys::set_nonblocking(fd).map_err(|e| TapError::system("O_NONBLOCK", e));
    let asked = |fd: &OwnedFd| sys::get_if(fd).map_err(|e| TapError::system("TUNGETIFF", e));
    let of = |fds: Vec<OwnedFd>| {
        let first = fds.first().ok_or(TapError::QueueCount { queues: 0 })?;
        let got = asked(first)?;
        Ok::<_, TapError>((fds, got))
    };
    let (fds, (name, flags)) = match source {
        Source::Name(name) => of(attach_queues(&name, None)?)?,
        Source::Queues { name, queues } => of(attach_queues(&name, Some(queues))?)?,
        Source::Attached(fds) => of(fds)?,
        Source::Fd(fd) => {
            let got = sys::get_if(&fd).map_err(TapError::not_a_tap)?;
            nonblocking(&fd)?;
            (vec![fd], got)
        }
        Source::StandIn(fd) => {
            nonblocking(&fd)?;
            return Ok(port("stand-in", vec![fd], Header::ALL));
        }
    };
    if flags & libc::IFF_TAP == 0 {
        return Err(TapError::NotEthernet { name });
    }
    let mut header = Header::NONE;
    if flags & libc::IFF_VNET_HDR != 0 {
        for fd in &fds {
            header = negotiate(fd).map_err(|e| TapError::system("TUNSETVNETHDRSZ", e))?;
        }
    }
    Ok(port(&name, fds, header))
}

/// Attaches to the TAP `name`, which is made if we may, by one queue, or by so many of a TAP that has several. The descriptors
/// are for [`Source::Attached`].
///
/// # Errors
/// As [`open`].
pub fn attach_queues(name: &str, queues: Option<usize>) -> Result<Vec<OwnedFd>, TapError> {
    let Some(queues) = queues else {
        return Ok(vec![open_queue(name, None)?]);
    };
    if queues == 0 || queues > MAX_QUEUES {
        return Err(TapError::QueueCount { queues });
    }
    let first = open_queue(name, Some(queues))?;
    // The kernel may have chosen: what is attached to next is what there is now.
    let (name, _) = sys::get_if(&first).map_err(|e| TapError::system("TUNGETIFF", e))?;
    let mut fds = vec![first];
    for _ in 1..queues {
        fds.push(open_queue(&name, Some(queues))?);
    }
    Ok(fds)
}

/// The name of the interface that a descriptor is a queue of.
pub fn interface(fd: &OwnedFd) -> Option<String> {
    sys::get_if(fd).ok().map(|(name, _)| name)
}

/// Attaches to the TAP `name`, which is made if we may, for a program that reads and writes frames itself. Returns the
/// descriptor, which does not block, and the length of the `virtio_net_hdr` before each frame. The kernel hands
/// over unfinished checksums and segments.
///
/// # Errors
/// As [`open`].
pub fn attach(name: &str) -> Result<(OwnedFd, usize), TapError> {
    let fd = open_queue(name, None)?;
    let header = negotiate(&fd).map_err(|e| TapError::system("TUNSETVNETHDRSZ", e))?;
    Ok((fd, header.len))
}

fn port(name: &str, fds: Vec<OwnedFd>, header: Header) -> Port {
    let gone = Arc::new(AtomicBool::new(false));
    let queue = |fd| {
        Arc::new(Queue {
            fd,
            hdr_len: header.len,
            uso: header.uso,
            gone: Arc::clone(&gone),
            tally: Tally::new(count::NAMES),
            answers: Answers::new(),
        })
    };
    let queues: Vec<_> = fds.into_iter().map(queue).collect();
    let mut inlets = queues.iter().map(|q| inlet::TapInlet::new(Arc::clone(q)));
    let inlet = inlets.next().map(|first| {
        let others = inlets.collect();
        Box::new(first.with_others(others)) as Box<dyn Inlet>
    });
    Port {
        name: format!("tap:{name}"),
        sink: Arc::new(sink::TapSink::new(queues.clone())),
        inlet,
        counters: Arc::new(Queues(queues)),
    }
}

/// Attaches one queue to the interface `name`, which has `queues` of them.
fn open_queue(name: &str, queues: Option<usize>) -> Result<OwnedFd, TapError> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/', '%']) {
        return Err(TapError::BadName { name: name.into() });
    }
    let fd = sys::open_tun().map_err(TapError::device)?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if queues.is_some() {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    sys::set_if(&fd, name, flags).map_err(|e| TapError::attach(name, queues, e))?;
    Ok(fd)
}

/// What stands before each frame.
#[derive(Debug, Clone, Copy)]
struct Header {
    /// Bytes; 0 without.
    len: usize,
    /// It may say that a datagram is to be cut.
    uso: bool,
}

impl Header {
    const NONE: Self = Self { len: 0, uso: false };
    const ALL: Self = Self {
        len: vnet::LONG,
        uso: true,
    };
}

/// Agrees on the header: little endian, the long form of virtio 1 (12 bytes) if the kernel has it.
/// Asks the kernel for unfinished frames, as far as it has them.
fn negotiate(fd: &OwnedFd) -> std::io::Result<Header> {
    // Old kernels lack this one; then the header is in host order, which is the same on every
    // machine we run on.
    let _ = sys::set_vnet_le(fd);
    if sys::set_vnet_hdr_size(fd, vnet::LONG).is_err() {
        sys::set_vnet_hdr_size(fd, vnet::SHORT)?;
    }
    let len = sys::get_vnet_hdr_size(fd)?;
    let least = sys::TUN_F_CSUM | sys::TUN_F_TSO4 | sys::TUN_F_TSO6;
    let most = least | sys::TUN_F_TSO_ECN;
    let uso = sys::set_offload(fd, most | sys::TUN_F_USO).is_ok();
    if !uso && sys::set_offload(fd, most).is_err() {
        // Finished frames only is what such a kernel sends anyway.
        let _ = sys::set_offload(fd, least);
    }
    Ok(Header { len, uso })
}

impl Counted for Queues {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for (i, name) in count::NAMES.iter().enumerate() {
            visit(name, self.0.iter().map(|queue| queue.tally.get(i)).sum());
        }
    }
}
