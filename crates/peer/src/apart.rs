//! Questions about a descriptor that a worker may not ask itself.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// What `ask` gives for this descriptor. In a confined process another thread asks, and this one waits: the question must
/// be one that the kernel answers without waiting for a peer.
pub fn asked<T: Send + 'static>(
    fd: BorrowedFd<'_>,
    ask: impl FnOnce(BorrowedFd<'_>) -> T + Send + 'static,
) -> T {
    let number = fd.as_raw_fd();
    threads::apart(move || {
        // SAFETY: the caller holds the descriptor, and waits here until this has returned.
        ask(unsafe { BorrowedFd::borrow_raw(number) })
    })
}
