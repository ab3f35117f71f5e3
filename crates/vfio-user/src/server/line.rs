//! What a lifeline is: memory that outlives the process, with one connection.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

use crate::stream::Filled;

/// What a server is, as a lifeline keeps it.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// As it was.
    Same,
    /// Something that no other process could go on with.
    Nothing,
    /// It has these descriptors; the client is the first piece, the device the second.
    New(&'a [RawFd], [&'a [u8]; 2]),
}

/// Memory that outlives the process, with one connection.
pub trait Lifeline: Send {
    /// Receives once, without waiting. What has arrived before is committed.
    ///
    /// # Errors
    /// The socket is of no use any more.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Filled, Errno>;
    /// Bytes that came and are not committed.
    fn arrival(&self) -> &[u8];
    /// Their descriptors, once.
    fn take_descriptors(&mut self) -> Vec<OwnedFd>;
    /// Whether the kernel dropped descriptors of theirs (`MSG_CTRUNC`).
    fn lacks_descriptors(&self) -> bool;
    /// Words that are true as soon as they are stored, for the heads of rings that the client has in memory.
    fn heads(&self) -> &'static [AtomicU64];
    /// Committed bytes of messages that are not applied.
    fn rest(&self) -> &[u8];
    /// Whether there is room for so many bytes of such, and of replies.
    fn has_room(&self, rest: usize, replies: usize) -> bool;
    /// The arrival is applied, but for `rest`, and these are the replies: all of it, or nothing if the process dies before this
    /// is over. False, and nothing is done: there is no room for so much.
    fn commit(&mut self, rest: &[u8], replies: &[u8], kept: Kept<'_>) -> bool;
    /// As [`Self::commit`], and nobody could go on with it: who finds it closes the connection.
    fn give_up(&mut self);
    /// Forgets all of a connection: another one begins.
    fn reset(&mut self);
    /// Sends what is committed, as much as the socket takes. True when nothing is left.
    ///
    /// # Errors
    /// The socket is of no use any more.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno>;
    /// Bytes that are committed and not sent.
    fn backlog(&self) -> usize;
    /// Takes these bytes out: another sends them. Nobody could go on with the rest.
    fn take_unsent(&mut self) -> Vec<u8>;
}

/// Where the server stands with its lifeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stand {
    /// Nobody could go on.
    #[default]
    Loose,
    /// What was committed last can be gone on with.
    Fast,
}
