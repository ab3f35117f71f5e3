//! A connection that goes on when this process has ended: what it is made of, and who keeps that.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Descriptors of a connection.
pub const PARTS: usize = 5;

/// What a connection is made of.
#[derive(Debug)]
pub struct Parts {
    /// The socket, our file, what wakes us, the peer's file, what wakes the peer.
    pub fds: [OwnedFd; PARTS],
    /// Bytes of our ring, and of the peer's.
    pub bytes: [u32; 2],
}

/// Who has the parts of a connection outlive the process.
pub trait Keeps: fmt::Debug + Send + Sync {
    /// A connection has begun. Its parts are as [`Parts`] has them, and stay open until it is over.
    fn begun(&self, fds: [BorrowedFd<'_>; PARTS], bytes: [u32; 2]);
    /// It is over, and its parts are about to be closed.
    fn over(&self);
    /// Whether the port is left to another process, which goes on with the connection: nothing of it is closed.
    fn leaves(&self) -> bool;
}
