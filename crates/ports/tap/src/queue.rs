//! One queue of a TAP.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use port::Tally;
use port::answer::{Answers, Prompt};

/// Most queues of one TAP. The kernel has 256 for all who attach; each costs us a thread.
pub const MAX_QUEUES: usize = 32;

/// What the two directions of one queue share.
pub(crate) struct Queue {
    pub(crate) fd: OwnedFd,
    /// Bytes of `virtio_net_hdr` before each frame; 0 without.
    pub(crate) hdr_len: usize,
    /// The kernel cuts datagrams (Linux 6.2).
    pub(crate) uso: bool,
    /// The interface has been deleted; no need to ask the kernel again.
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) tally: Tally<14>,
    /// The host's own stack answers while it is written to.
    pub(crate) answers: Answers,
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Prompt for Queue {
    fn answers(&self) -> &Answers {
        &self.answers
    }
}
