//! A port that goes on when this process has ended: what it is made of, and who keeps that.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a port is made of, as far as it was kept.
#[derive(Debug, Default)]
pub struct Parts {
    /// Where a connection stands.
    pub memory: Option<OwnedFd>,
    /// Where the peer calls. It is still bound to the path of the port.
    pub listener: Option<OwnedFd>,
    /// The connection.
    pub connection: Option<OwnedFd>,
    /// A process before has had the port open, whatever is left of it.
    pub had: bool,
}

/// Who has the parts of a port outlive the process.
pub trait Keeps: fmt::Debug + Send + Sync {
    /// The port is open. Both stay open until it is gone. `false`: they cannot be kept.
    fn opened(&self, memory: BorrowedFd<'_>, listener: Option<BorrowedFd<'_>>) -> bool;
    /// A connection has begun. It stays open until it is over.
    fn begun(&self, connection: BorrowedFd<'_>);
    /// It is over, and about to be closed.
    fn over(&self);
    /// The port is about to be closed for good.
    fn gone(&self);
    /// Whether the port is left to another process, which goes on with it: nothing of it is closed.
    fn leaves(&self) -> bool;
}
