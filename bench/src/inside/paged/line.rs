//! The memory that outlives a worker, as the daemon gives it to its servers, without a keeper: no process forks under valgrind that
//! shares its descriptors.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use keeper::exact::{Arrival, Held, Link, NOTES, READ};
use rustix::io::Errno;
use vfio_user::{Filled, Kept, Lifeline};

/// A connection's memory.
pub(super) struct Line(Link);

impl Line {
    /// New memory.
    ///
    /// # Panics
    /// None is left.
    pub fn new() -> Self {
        Self(Link::alone().expect("memory"))
    }

    /// The words of the model.
    pub fn words(&self) -> model::Kept {
        model::Kept::new(self.0.words(), Arc::new(()))
    }
}

impl Lifeline for Line {
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Filled, Errno> {
        Ok(match self.0.receive(socket)? {
            Arrival::Data => Filled::Data,
            Arrival::Empty => Filled::Empty,
            Arrival::Closed => Filled::Closed,
        })
    }

    fn arrival(&self) -> &[u8] {
        self.0.arrival()
    }

    fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.0.take_descriptors()
    }

    fn lacks_descriptors(&self) -> bool {
        self.0.lacks_descriptors()
    }

    fn heads(&self) -> &'static [AtomicU64] {
        self.0.heads()
    }

    fn rest(&self) -> &[u8] {
        self.0.rest()
    }

    fn has_room(&self, rest: usize, replies: usize) -> bool {
        rest <= READ && self.0.has_room(replies)
    }

    fn commit(&mut self, rest: &[u8], replies: &[u8], kept: Kept<'_>) -> bool {
        if !self.0.reply(replies) {
            return false;
        }
        let pieces = match kept {
            Kept::New(_, pieces) => pieces,
            Kept::Same | Kept::Nothing => [&[][..]; 2],
        };
        let held = match kept {
            Kept::Same => Held::Same,
            Kept::Nothing => Held::Nothing,
            Kept::New(files, _) => Held::New(files, &pieces),
        };
        self.0.commit(rest, [0; NOTES], held);
        true
    }

    fn give_up(&mut self) {
        self.0.commit(&[], [0; NOTES], Held::Nothing);
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        self.0.flush(socket)
    }

    fn backlog(&self) -> usize {
        self.0.backlog()
    }

    fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = self.0.unsent();
        self.0.forget_unsent();
        unsent
    }
}
