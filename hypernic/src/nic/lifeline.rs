//! A NIC's connection in memory that outlives its worker.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use keeper::exact::{Arrival, FILES, Held, Link, NOTES, READ, STATE};
use rustix::io::Errno;
use vfio_user::{Filled, Kept, Lifeline};

/// A link of the keeper's, as the server wants it, and its home.
pub(super) struct Line {
    pub link: Link,
    /// Keeps the memory this connection's.
    pub _home: Arc<keeper::Home>,
}

/// What was committed last: the client's files, the client, the device.
pub(super) struct Committed {
    pub numbers: Vec<RawFd>,
    pub client: Vec<u8>,
    pub device: Vec<u8>,
}

/// A connection's memory, and what in it a worker that died has left.
pub(crate) struct Found {
    pub(super) link: Link,
    pub(super) home: Arc<keeper::Home>,
    pub(super) left: Option<Committed>,
}

impl Found {
    /// The memory of the NIC of this name, if there is a keeper.
    ///
    /// # Errors
    /// No more can be kept, or opened.
    pub fn of(name: &str) -> io::Result<Option<Self>> {
        let line = keeper::line(name)?;
        Ok(line.map(|(link, home)| {
            let left = Committed::of(&link);
            Self { link, home, left }
        }))
    }

    /// The words of the model.
    pub fn words(&self) -> model::Kept {
        model::Kept::new(self.home.words(), Arc::clone(&self.home) as _)
    }
}

/// The model revision of the NIC of this name, if a worker that died has left it to this one.
pub(crate) fn revision_left(name: &str) -> Option<u16> {
    let left = keeper::look(name, Committed::of)??;
    snapshot::revision_of(Saved::of(&left.device)?.model)
}

/// A NIC as it is committed: whether its cable is in, when that was, what its chip has granted it, and the model's state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Saved<'a> {
    pub cable: bool,
    pub at: model::Nanos,
    pub granted: Option<&'a [u8]>,
    pub model: &'a [u8],
}

impl Saved<'_> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let granted = self.granted.unwrap_or_default();
        let mut bytes = vec![u8::from(self.cable), u8::from(self.granted.is_some())];
        bytes.extend(self.at.to_le_bytes());
        bytes.extend((granted.len() as u32).to_le_bytes());
        bytes.extend_from_slice(granted);
        bytes.extend_from_slice(self.model);
        bytes
    }

    pub fn of(bytes: &[u8]) -> Option<Saved<'_>> {
        let ([cable, is_granted], bytes) = bytes.split_first_chunk()?;
        let (at, bytes) = bytes.split_first_chunk()?;
        let (len, bytes) = bytes.split_first_chunk()?;
        let (granted, model) = bytes.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Saved {
            cable: *cable != 0,
            at: u64::from_le_bytes(*at),
            granted: (*is_granted != 0).then_some(granted),
            model,
        })
    }
}

/// What a NIC's chip knows of it and no other process does.
pub(crate) trait Granted: Send {
    /// That, as it is.
    fn granted(&self) -> Option<Vec<u8>>;
    /// The NIC is about to go on with which another process had granted this.
    fn resume(&self, granted: &[u8]);
    /// Whether another chip can be asked for it anew, and decides by its own policy: a VMM may bring along what it was then.
    fn is_asked_for(&self) -> bool {
        false
    }
    /// The address that it was granted, and the tag that its frames get. `None`: its chip does not say.
    fn station(&self) -> Option<([u8; 6], Option<u16>)> {
        None
    }
}

impl Committed {
    fn of(link: &Link) -> Option<Self> {
        let (numbers, bytes) = link.held()?;
        let (len, bytes) = bytes.split_first_chunk::<4>()?;
        let (client, device) = bytes.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Self {
            numbers,
            client: client.to_vec(),
            device: device.to_vec(),
        })
    }
}

impl Lifeline for Line {
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Filled, Errno> {
        Ok(match self.link.receive(socket)? {
            Arrival::Data => Filled::Data,
            Arrival::Empty => Filled::Empty,
            Arrival::Closed => Filled::Closed,
        })
    }

    fn arrival(&self) -> &[u8] {
        self.link.arrival()
    }

    fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.link.take_descriptors()
    }

    fn lacks_descriptors(&self) -> bool {
        self.link.lacks_descriptors()
    }

    fn heads(&self) -> &'static [AtomicU64] {
        self.link.heads()
    }

    fn rest(&self) -> &[u8] {
        self.link.rest()
    }

    fn has_room(&self, rest: usize, replies: usize) -> bool {
        rest <= READ && self.link.has_room(replies)
    }

    fn commit(&mut self, rest: &[u8], replies: &[u8], kept: Kept<'_>) -> bool {
        let link = &mut self.link;
        if rest.len() > READ {
            return false;
        }
        let (files, [client, device]) = match kept {
            Kept::Same | Kept::Nothing => (&[][..], [&[][..]; 2]),
            Kept::New(files, pieces) => (files, pieces),
        };
        let len = (client.len() as u32).to_le_bytes();
        if files.len() > FILES || len.len() + client.len() + device.len() > STATE {
            return false;
        }
        if !link.reply(replies) {
            return false;
        }
        let pieces = [&len[..], client, device];
        let held = match kept {
            Kept::Same => Held::Same,
            Kept::Nothing => Held::Nothing,
            Kept::New(..) => Held::New(files, &pieces),
        };
        link.commit(rest, [0; NOTES], held);
        true
    }

    fn give_up(&mut self) {
        self.link.commit(&[], [0; NOTES], Held::Nothing);
    }

    fn reset(&mut self) {
        self.link.reset();
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        self.link.flush(socket)
    }

    fn backlog(&self) -> usize {
        self.link.backlog()
    }

    fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = self.link.unsent();
        self.link.forget_unsent();
        unsent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_found_again() {
        for granted in [None, Some(&[][..]), Some(&[1, 2, 3][..])] {
            let saved = Saved {
                cable: true,
                at: 1 << 40,
                granted,
                model: &[4, 5],
            };
            let bytes = saved.to_bytes();
            assert_eq!(Saved::of(&bytes), Some(saved));
            // What is cut off is no state, or one without an end that its model refuses.
            let whole = bytes.len() - 2;
            assert!((0..whole).all(|len| Saved::of(&bytes[..len]).is_none()));
        }
    }
}
