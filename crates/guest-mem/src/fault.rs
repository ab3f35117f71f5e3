//! Why an access to guest memory failed.

/// An access that hardware would have aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DMA fault at {iova:#x}+{len:#x}: {kind:?}")]
pub struct Fault {
    /// First address of the access.
    pub iova: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What was wrong.
    pub kind: FaultKind,
}

/// What was wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped there (master abort).
    Unmapped,
    /// Mapped, but not for this direction.
    Protected,
    /// Mapped without a file descriptor: only the VMM can reach it.
    NoFd,
    /// The peer has truncated the file behind it, or the file system has no page for it.
    Truncated,
    /// The peer that was asked for it refused ([`Remote`](crate::remote::Remote)).
    Refused,
    /// The range passes the end of the address space.
    Wraps,
    /// The range spans more than [`MAX_RUNS`](crate::MAX_RUNS) regions.
    Scattered,
}
