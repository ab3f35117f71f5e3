//! What is in flight, noted where it survives this process (vhost-user specification, "Inflight I/O
//! tracking").
//!
//! Of a split ring, a device that completes in order needs none of it: what is in flight lies between the used and the
//! available index. One that does not asks an [`InflightRing`] after a crash what it had begun.

mod layout;
mod packed;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guest_mem::{Leftovers, MapError, Memory, Prot};
use peer::SharedMem;

use crate::codec::Inflight;

pub(crate) use layout::bytes;
use layout::{
    AT_BATCH, AT_COUNTER, AT_DESC_NUM, AT_INFLIGHT, AT_NEXT, AT_USED, AT_VERSION, HEAD, STATE,
    VERSION, part,
};
pub use packed::InflightPacked;

/// A new buffer, to be kept by the front end.
pub(crate) fn create(queues: u16, queue_size: u16, packed: bool) -> std::io::Result<SharedMem> {
    let file = SharedMem::new(
        "vhost-user-inflight",
        bytes(queues, queue_size, packed) as usize,
    )?;
    if !packed {
        for queue in 0..u64::from(queues) {
            let at = (queue * part(queue_size, false)) as usize;
            file.write(at + AT_VERSION as usize, &VERSION.to_ne_bytes());
            file.write(at + AT_DESC_NUM as usize, &queue_size.to_ne_bytes());
        }
    }
    Ok(file)
}

/// A buffer that the front end has given back.
pub(crate) struct InflightFile {
    memory: Memory,
    queues: u16,
    queue_size: u16,
}

impl InflightFile {
    /// Maps it into `memory`, which is empty.
    pub fn map(asked: &Inflight, fd: BorrowedFd<'_>, memory: Memory) -> Result<Self, MapError> {
        memory.map_fd(0, asked.size, fd, asked.offset, Prot::RW)?;
        Ok(Self {
            memory,
            queues: asked.queues,
            queue_size: asked.queue_size,
        })
    }

    /// The part of one ring, if it has one.
    pub fn ring(&self, queue: u16, size: u16) -> Option<InflightRing> {
        (queue < self.queues && size <= self.queue_size).then(|| InflightRing {
            memory: self.memory.clone(),
            at: u64::from(queue) * part(self.queue_size, false),
            size,
            counter: Arc::new(AtomicU64::new(0)),
        })
    }

    /// The same of a packed ring.
    pub fn packed(&self, queue: u16, size: u16) -> Option<InflightPacked> {
        let at = u64::from(queue) * part(self.queue_size, true);
        (queue < self.queues && size <= self.queue_size)
            .then(|| InflightPacked::new(self.memory.clone(), at, size))
    }

    pub fn unmap(&self) -> Leftovers {
        self.memory.unmap_all()
    }
}

/// What one split ring's device had begun and not completed. The front end can write to it at any
/// time: nothing that is read here is believed beyond being a number below the ring's size.
#[derive(Clone, Debug)]
pub struct InflightRing {
    memory: Memory,
    at: u64,
    size: u16,
    counter: Arc<AtomicU64>,
}

impl InflightRing {
    fn state(&self, head: u16, field: u64) -> u64 {
        self.at + HEAD + STATE * u64::from(head) + field
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // What a front end has taken away reads as nothing in flight.
        let _ = self.memory.view().read_acquire(at, &mut bytes);
        bytes
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let _ = self.memory.view().write_release(at, bytes);
    }

    fn read_u16(&self, at: u64) -> u16 {
        u16::from_ne_bytes(self.read(at))
    }

    /// The chain with this head is begun.
    pub fn begin(&self, head: u16) {
        if head < self.size {
            let counter = self.counter.fetch_add(1, Ordering::Relaxed);
            self.write(self.state(head, AT_COUNTER), &counter.to_ne_bytes());
            self.write(self.state(head, AT_INFLIGHT), &[1]);
        }
    }

    /// The chain with this head is in the used ring, whose index does not say so yet.
    pub fn put_used(&self, head: u16) {
        if head < self.size {
            let last: [u8; 2] = self.read(self.at + AT_BATCH);
            self.write(self.state(head, AT_NEXT), &last);
            self.write(self.at + AT_BATCH, &head.to_ne_bytes());
        }
    }

    /// The used index has become this, with these chains.
    pub fn publish(&self, heads: &[u16], used: u16) {
        for head in heads.iter().filter(|head| **head < self.size) {
            self.write(self.state(*head, AT_INFLIGHT), &[0]);
        }
        self.write(self.at + AT_USED, &used.to_ne_bytes());
    }

    /// What was begun and is not in the used ring, in the order in which it was begun; `used` is the
    /// used index in guest memory. Call it before anything else.
    pub fn recover(&self, used: u16) -> Vec<u16> {
        if self.read_u16(self.at + AT_VERSION) != VERSION {
            return Vec::new();
        }
        let batch = used.wrapping_sub(self.read_u16(self.at + AT_USED));
        if batch <= self.size {
            let mut head = self.read_u16(self.at + AT_BATCH);
            for _ in 0..batch {
                if head >= self.size {
                    break;
                }
                self.write(self.state(head, AT_INFLIGHT), &[0]);
                head = self.read_u16(self.state(head, AT_NEXT));
            }
        }
        self.write(self.at + AT_USED, &used.to_ne_bytes());
        let mut begun: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| self.read::<1>(self.state(*head, AT_INFLIGHT)) == [1])
            .map(|head| {
                let counter = u64::from_ne_bytes(self.read(self.state(head, AT_COUNTER)));
                (counter, head)
            })
            .collect();
        begun.sort_unstable();
        let next = begun
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        self.counter.store(next, Ordering::Relaxed);
        begun.into_iter().map(|(_, head)| head).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn file(queues: u16, size: u16) -> (SharedMem, InflightFile) {
        let shared = create(queues, size, false).expect("a memfd");
        let asked = Inflight {
            size: bytes(queues, size, false),
            offset: 0,
            queues,
            queue_size: size,
        };
        let mapped = InflightFile::map(&asked, shared.as_fd(), Memory::new()).expect("mapped");
        (shared, mapped)
    }

    #[test]
    fn what_was_begun_is_found_again_in_its_order() {
        let (_shared, file) = file(4, 8);
        assert!(file.ring(4, 8).is_none() && file.ring(0, 16).is_none());
        let (ring, other) = (
            file.ring(2, 8).expect("a part"),
            file.ring(3, 8).expect("a part"),
        );
        for head in [5, 1, 7, 9] {
            ring.begin(head);
        }
        other.begin(0);
        ring.put_used(1);
        ring.publish(&[1], 1);
        // A crash between the used index and its note.
        ring.put_used(5);
        let again = file.ring(2, 8).expect("a part");
        assert_eq!(again.recover(2), [7]);
        again.begin(2);
        assert_eq!(again.recover(2), [7, 2], "the counter goes on");
        assert_eq!(other.recover(0), [0]);
    }

    #[test]
    fn a_buffer_that_no_back_end_has_used_says_nothing() {
        let (shared, file) = file(1, 8);
        let ring = file.ring(0, 8).expect("a part");
        ring.begin(3);
        shared.write(AT_VERSION as usize, &[0, 0]);
        assert!(ring.recover(0).is_empty());
        drop(file.unmap());
        ring.begin(1);
        assert!(ring.recover(0).is_empty());
    }

    proptest! {
        /// The front end may have written anything there.
        #[test]
        fn any_bytes_are_read_within_bounds(
            junk in prop::collection::vec(any::<u8>(), 192), used in any::<u16>(),
        ) {
            let (shared, file) = file(1, 8);
            shared.write(0, &junk[..shared.len().min(junk.len())]);
            shared.write(AT_VERSION as usize, &VERSION.to_ne_bytes());
            let ring = file.ring(0, 8).expect("a part");
            let found = ring.recover(used);
            prop_assert!(found.len() <= 8 && found.iter().all(|head| *head < 8));
        }

        /// A crash at any point: exactly what is not in the used ring is found, in order.
        #[test]
        fn a_crash_anywhere_loses_and_repeats_nothing(
            chains in prop::collection::vec((1..4usize, any::<bool>()), 1..20), crash in 0..4u8,
        ) {
            let (_shared, file) = file(1, 16);
            let ring = file.ring(0, 16).expect("a part");
            let (mut open, mut used, mut next) = (Vec::new(), 0u16, 0u16);
            for (n, (batch, complete)) in chains.iter().enumerate() {
                if open.len() < 16 && !open.contains(&(next % 16)) {
                    ring.begin(next % 16);
                    open.push(next % 16);
                    next += 1;
                }
                if !complete {
                    continue;
                }
                // Out of order: the last ones first.
                let done: Vec<u16> = open.iter().rev().take(*batch).copied().collect();
                let last = n + 1 == chains.len();
                for head in &done {
                    ring.put_used(*head);
                }
                if last && crash == 1 {
                    break;
                }
                used = used.wrapping_add(done.len() as u16);
                open.retain(|head| !done.contains(head));
                if last && crash == 2 {
                    break;
                }
                ring.publish(&done, used);
            }
            let again = file.ring(0, 16).expect("a part");
            prop_assert_eq!(again.recover(used), open);
        }
    }
}
