//! Where a packed ring has come to, noted where it survives this process: nothing in such a ring itself tells its used end
//! from what is left of earlier laps.
//!
//! Before used descriptors are written all of them are noted, then that they are to be. After a crash what was to be written is
//! written again, so that the driver sees all of a batch or none.

use guest_mem::{Memory, View};

use super::layout::{AT_DESC_NUM, AT_VERSION, HEAD, PACKED_STATE, VERSION};

/// The used index and what it was before, then their wrap counters: eight bytes that change together.
const AT_POSITION: u64 = 16;
/// Offsets within one descriptor's state: slots of its buffer, then id, flags and length.
const AT_NUM: u64 = 6;
const AT_ID: u64 = 16;

/// The bit of a place that is its wrap counter.
const WRAP: u16 = 1 << 15;
/// Bytes of a descriptor, and where in it what a device writes begins.
const DESC: u64 = 16;
const TAIL: u64 = 8;

/// The note of one packed ring. The front end can write to it at any time: nothing that is read here is believed beyond being
/// places in the ring.
#[derive(Clone, Debug)]
pub struct InflightPacked {
    memory: Memory,
    at: u64,
    size: u16,
}

/// A used descriptor as it was noted.
#[derive(Clone, Copy, Debug)]
struct Noted {
    slot: u16,
    tail: [u8; 8],
}

fn word(old: u16, new: u16) -> u64 {
    let wrap = |place: u16| u64::from(place >> 15);
    let index = |place: u16| u64::from(place & !WRAP);
    index(new) | index(old) << 16 | wrap(new) << 32 | wrap(old) << 40
}

fn places(word: u64) -> (u16, u16) {
    let place = |index: u64, wrap: u64| index as u16 & !WRAP | if wrap & 1 != 0 { WRAP } else { 0 };
    let new = place(word, word >> 32);
    (place(word >> 16, word >> 40), new)
}

impl InflightPacked {
    pub(super) fn new(memory: Memory, at: u64, size: u16) -> Self {
        Self { memory, at, size }
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // What a front end has taken away reads as nothing.
        let _ = self.memory.view().read_acquire(self.at + at, &mut bytes);
        bytes
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let _ = self.memory.view().write_release(self.at + at, bytes);
    }

    fn state(slot: u16) -> u64 {
        2 * HEAD + PACKED_STATE * u64::from(slot)
    }

    /// The ring goes on at this place, with its wrap counter in bit 15, and nothing is under way.
    pub fn begin(&self, used: u16) {
        self.write(AT_VERSION, &0u16.to_ne_bytes());
        self.write(AT_DESC_NUM, &self.size.to_ne_bytes());
        self.commit(used, used);
        self.write(AT_VERSION, &VERSION.to_ne_bytes());
    }

    /// It goes on where its front end says: it was stopped in order.
    pub fn forget(&self) {
        self.write(AT_VERSION, &0u16.to_ne_bytes());
    }

    /// A buffer of so many slots is to be used, by this descriptor in this slot. See [`InflightPacked::commit`].
    pub fn note(&self, slot: u16, (id, len, flags): (u16, u32, u16), slots: u16) {
        if slot >= self.size {
            return;
        }
        let state = Self::state(slot);
        self.write(state + AT_NUM, &slots.to_ne_bytes());
        let bytes = [
            &id.to_ne_bytes()[..],
            &flags.to_ne_bytes(),
            &len.to_ne_bytes(),
        ];
        self.write(state + AT_ID, &bytes.concat());
    }

    /// All that was noted from `old` up to `new` is about to be written to the ring. From `new` to `new`: it is.
    pub fn commit(&self, old: u16, new: u16) {
        self.write(AT_POSITION, &word(old, new).to_ne_bytes());
    }

    fn noted(&self, slot: u16) -> (Noted, u16) {
        let [a, b, c, d, e, f, g, h] = self.read(Self::state(slot) + AT_ID);
        // In the ring the length comes first, and little-endian.
        let id = u16::from_ne_bytes([a, b]).to_le_bytes();
        let flags = u16::from_ne_bytes([c, d]).to_le_bytes();
        let len = u32::from_ne_bytes([e, f, g, h]).to_le_bytes();
        let tail = [
            len[0], len[1], len[2], len[3], id[0], id[1], flags[0], flags[1],
        ];
        let slots = u16::from_ne_bytes(self.read(Self::state(slot) + AT_NUM));
        (Noted { slot, tail }, slots)
    }

    /// Writes what was to be written to the ring at `ring`, and gives where it goes on: its place with the wrap counter in
    /// bit 15. `None`: nothing, or nothing that can be, is noted. Call it before anything else.
    pub fn recover(&self, view: &View<'_>, ring: u64) -> Option<u16> {
        let version = u16::from_ne_bytes(self.read(AT_VERSION));
        let size = u16::from_ne_bytes(self.read(AT_DESC_NUM));
        if version != VERSION || size != self.size {
            return None;
        }
        let (old, new) = places(u64::from_ne_bytes(self.read(AT_POSITION)));
        if old & !WRAP >= size || new & !WRAP >= size {
            return None;
        }
        let mut all = Vec::new();
        let (mut place, mut left) = (old, size);
        while place != new {
            let (noted, slots) = self.noted(place & !WRAP);
            if slots == 0 || slots > left {
                return None;
            }
            left -= slots;
            all.push(noted);
            let index = (place & !WRAP) + slots;
            place = match index < size {
                true => index | place & WRAP,
                false => (index - size) | !place & WRAP,
            };
        }
        // The driver looks at them in order: behind the first it sees none before that.
        for Noted { slot, tail } in all.into_iter().rev() {
            let at = ring + DESC * u64::from(slot) + TAIL;
            view.write_release(at, &tail).ok()?;
        }
        self.begin(new);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use peer::SharedMem;
    use proptest::prelude::*;

    use super::super::{InflightFile, bytes, create};
    use super::*;
    use crate::codec::Inflight;

    const RING: u64 = 0x1000;
    const USED: [u16; 2] = [0, 1 << 7 | 1 << 15];

    fn file(queues: u16, size: u16) -> (SharedMem, InflightFile) {
        let shared = create(queues, size, true).expect("a memfd");
        let asked = Inflight {
            size: bytes(queues, size, true),
            offset: 0,
            queues,
            queue_size: size,
        };
        let mapped = InflightFile::map(&asked, shared.as_fd(), Memory::new()).expect("mapped");
        (shared, mapped)
    }

    fn guest() -> Memory {
        let memory = Memory::new();
        memory.map_anon(RING, 0x1000).expect("mapped");
        memory
    }

    /// What the driver sees in a slot: id, length, flags.
    fn seen(guest: &Memory, slot: u16) -> (u16, u32, u16) {
        let mut bytes = [0; 8];
        let at = RING + DESC * u64::from(slot) + TAIL;
        guest.view().read(at, &mut bytes).expect("mapped");
        let [a, b, c, d, e, f, g, h] = bytes;
        (
            u16::from_le_bytes([e, f]),
            u32::from_le_bytes([a, b, c, d]),
            u16::from_le_bytes([g, h]),
        )
    }

    #[test]
    fn a_buffer_that_no_back_end_has_used_says_nothing() {
        let (_shared, file) = file(2, 8);
        let guest = guest();
        let ring = file.packed(1, 8).expect("a part");
        assert!(file.packed(2, 8).is_none() && file.packed(0, 16).is_none());
        assert_eq!(ring.recover(&guest.view(), RING), None);
        ring.begin(WRAP | 3);
        assert_eq!(ring.recover(&guest.view(), RING), Some(WRAP | 3));
        // Another ring, and one of another size.
        let other = file.packed(0, 8).expect("a part");
        assert_eq!(other.recover(&guest.view(), RING), None);
        let short = file.packed(1, 4).expect("a part");
        assert_eq!(short.recover(&guest.view(), RING), None);
        ring.forget();
        assert_eq!(ring.recover(&guest.view(), RING), None);
        drop(file.unmap());
        ring.begin(1);
        assert_eq!(ring.recover(&guest.view(), RING), None);
    }

    proptest! {
        /// A crash at any point: the driver sees whole batches, each once, and the ring goes on behind them.
        #[test]
        fn a_crash_anywhere_shows_a_batch_or_none(
            batches in prop::collection::vec(prop::collection::vec(1u16..4, 1..4), 1..12), crash in 0usize..20,
        ) {
            const SIZE: u16 = 12;
            let (_shared, file) = file(1, SIZE);
            let guest = guest();
            let ring = file.packed(0, SIZE).expect("a part");
            let mut place = WRAP;
            ring.begin(place);
            let on = |place: u16, slots: u16| {
                let index = (place & !WRAP) + slots;
                if index < SIZE { index | place & WRAP } else { (index - SIZE) | !place & WRAP }
            };
            let (mut id, mut shown) = (0u16, Vec::new());
            let last = batches.len() - 1;
            for (n, batch) in batches.iter().enumerate() {
                let (mut new, mut used) = (place, Vec::new());
                for slots in batch {
                    id += 1;
                    let flags = USED[usize::from(new >> 15)];
                    used.push((new & !WRAP, (id, u32::from(id) * 3, flags)));
                    ring.note(new & !WRAP, (id, u32::from(id) * 3, flags), *slots);
                    new = on(new, *slots);
                }
                // Before it is committed, or behind so many writes.
                if n == last && crash == 0 {
                    break;
                }
                ring.commit(place, new);
                let all = if n == last { crash - 1 } else { usize::MAX };
                for (slot, (id, len, flags)) in used.iter().rev().take(all) {
                    let tail = [&len.to_le_bytes()[..], &id.to_le_bytes(), &flags.to_le_bytes()].concat();
                    let at = RING + DESC * u64::from(*slot) + TAIL;
                    guest.view().write(at, &tail).expect("mapped");
                }
                (place, shown) = (new, used);
                if n < last || crash > 4 {
                    ring.commit(new, new);
                }
            }
            let again = file.packed(0, SIZE).expect("a part");
            prop_assert_eq!(again.recover(&guest.view(), RING), Some(place));
            for (slot, said) in shown {
                prop_assert_eq!(seen(&guest, slot), said);
            }
            prop_assert_eq!(again.recover(&guest.view(), RING), Some(place), "once more");
        }

        /// The front end may have written anything there.
        #[test]
        fn any_bytes_are_read_within_bounds(junk in prop::collection::vec(any::<u8>(), 300), small: bool) {
            let (shared, file) = file(1, 8);
            shared.write(0, &junk[..shared.len().min(junk.len())]);
            shared.write(AT_VERSION as usize, &VERSION.to_ne_bytes());
            shared.write(AT_DESC_NUM as usize, &8u16.to_ne_bytes());
            if small {
                let few = junk[0] & 7;
                shared.write(AT_POSITION as usize, &[few, 0, few ^ 1, 0, junk[1] & 1, junk[2] & 1, 0, 0]);
            }
            let ring = file.packed(0, 8).expect("a part");
            let found = ring.recover(&guest().view(), RING);
            prop_assert!(found.is_none_or(|place| place & !WRAP < 8));
        }
    }
}
