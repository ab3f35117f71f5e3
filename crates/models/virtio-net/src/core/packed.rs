//! The packed ring (virtio 1.4 §2.8).

mod kept;
mod shown;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use guest_mem::View;

use crate::core::chain::{Chain, One, Part};
use crate::core::journal::Journal;
use crate::core::kept::KeptRing;
use crate::core::place::{Broken, Format, MAX_SIZE, Place, Position, Refused, passed};
use crate::core::words;

/// Bytes of a descriptor.
const DESC: u64 = 16;
/// Another descriptor follows.
const NEXT: u16 = 1;
/// The part is to be written; in a used descriptor: it was.
const WRITE: u16 = 2;
/// The part is a table of descriptors.
const INDIRECT: u16 = 4;
/// Equals the driver's wrap counter when the descriptor is available.
const AVAIL: u16 = 1 << 7;
/// Equals the device's wrap counter when it is used.
const USED: u16 = 1 << 15;

/// Values of an event structure's flags.
const CALL_ALWAYS: u16 = 0;
const CALL_NEVER: u16 = 1;
const CALL_AT: u16 = 2;

/// The bit of a [`Position`] that is the wrap counter.
const WRAP: u16 = 1 << 15;

/// A place in the ring, with its wrap counter in bit 15: as event structures and vhost-user have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(u16);

impl Cursor {
    fn index(self) -> u16 {
        self.0 & !WRAP
    }

    fn wrap(self) -> bool {
        self.0 & WRAP != 0
    }

    /// `slots` on, at most a ring.
    fn on(self, slots: u16, size: u16) -> Self {
        let index = self.index() + slots;
        if index < size {
            Cursor(index | self.0 & WRAP)
        } else {
            Cursor((index - size) | !self.0 & WRAP)
        }
    }

    /// `slots` back, at most a ring.
    fn back(self, slots: u16, size: u16) -> Self {
        match self.index().checked_sub(slots) {
            Some(index) => Cursor(index | self.0 & WRAP),
            None => Cursor((self.index() + size - slots) | !self.0 & WRAP),
        }
    }

    /// Slots from `old` to here, at most a ring.
    fn since(self, old: Cursor, size: u16) -> u16 {
        if self.wrap() == old.wrap() {
            self.index().saturating_sub(old.index())
        } else {
            (self.index() + size).saturating_sub(old.index()).min(size)
        }
    }
}

/// A buffer that is used and not shown yet.
#[derive(Clone, Copy, Debug)]
struct Used {
    id: u16,
    len: u32,
    slots: u16,
}

/// A packed ring. What it has written it never reads back; a descriptor is read once, and its id is a number to give back.
///
/// Buffers are used in the order in which they were taken.
#[derive(Debug)]
pub struct Packed {
    place: Place,
    format: Format,
    /// Taken next.
    next: Cursor,
    /// What the driver sees as used ends here.
    shown: Cursor,
    /// Slots up to `shown` for which it was not decided yet whether to call the driver, at most a ring.
    untold: u16,
    /// Slots behind `next` that were seen as available.
    known: u16,
    /// Slots from `shown` to `next`.
    held: u16,
    /// Slots of each buffer that was taken and is not shown: in a circle, for there are not more of them than slots.
    slots: Box<[u16]>,
    /// Places in it: of the next buffer to take, and of the first that is not shown.
    taken: u16,
    first: u16,
    /// What is used and not shown.
    used: Vec<Used>,
    /// Who is told before it is shown.
    journal: Option<Arc<dyn Journal>>,
    /// What outlives the process, and which of `used` are of one frame: the first of them, and how many.
    kept: Option<KeptRing>,
    frames: Vec<(usize, usize)>,
    quiet: bool,
    force: bool,
    read: u32,
}

impl Packed {
    /// A ring at this place.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Packed, Refused> {
        let Place {
            size,
            desc,
            driver,
            device,
        } = place;
        if size == 0 || size > MAX_SIZE {
            return Err(Refused::Size);
        }
        let areas = [
            (desc, 16, DESC * u64::from(size)),
            (driver, 4, 4),
            (device, 4, 4),
        ];
        for (at, align, len) in areas {
            // A word is loaded with the eight bytes around it.
            if !at.is_multiple_of(align) || at.checked_add(len + 8).is_none() {
                return Err(Refused::Address);
            }
        }
        let [next, used, told] = [position.next, position.used, position.told].map(Cursor);
        // Nothing is held between two batches: both sides are at the same place.
        if next != used || next.index() >= size || told.index() >= size {
            return Err(Refused::Position);
        }
        Ok(Packed {
            place,
            format,
            next,
            shown: used,
            untold: used.since(told, size),
            known: 0,
            held: 0,
            slots: vec![0; size.into()].into(),
            taken: 0,
            first: 0,
            used: Vec::with_capacity(size.into()),
            journal: None,
            kept: None,
            frames: Vec::new(),
            // It may have been told so before.
            quiet: position.resumed,
            force: position.resumed,
            read: 0,
        })
    }

    /// Has someone told of used descriptors before they are written.
    pub fn set_journal(&mut self, journal: Arc<dyn Journal>) {
        self.journal = Some(journal);
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// How the driver uses it.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where both sides are.
    pub fn position(&self) -> Position {
        Position {
            next: self.next.0,
            used: self.next.back(self.held, self.place.size).0,
            told: self.shown.back(self.untold, self.place.size).0,
            resumed: true,
        }
    }

    /// The next slot is the first of the ring.
    #[inline]
    pub fn is_at_start(&self) -> bool {
        self.next.index() == 0
    }

    /// Slots that are known to be available.
    pub fn known(&self) -> u16 {
        self.known
    }

    /// The place in the circle that is `n` behind `place`, at most a ring.
    #[inline(always)]
    fn behind(&self, place: u16, n: u16) -> u16 {
        let (at, size) = (place + n, self.place.size);
        if at < size { at } else { at - size }
    }

    /// Notes that the next buffers have a slot each, at most as many as the ring.
    #[inline(always)]
    fn note_ones(&mut self, n: usize) {
        let first = usize::from(self.taken);
        let straight = n.min(self.slots.len() - first);
        self.slots[first..first + straight].fill(1);
        self.slots[..n - straight].fill(1);
        self.taken = self.behind(self.taken, n as u16);
    }

    /// Notes how many slots the next buffer has.
    #[inline(always)]
    fn note(&mut self, slots: u16) {
        self.slots[usize::from(self.taken)] = slots;
        self.taken = self.behind(self.taken, 1);
    }

    /// Length, id and flags of the descriptor at `at`: one load.
    fn tail(view: &View<'_>, at: u64) -> Result<(u32, u16, u16), Broken> {
        let mut bytes = [0; 8];
        view.read_acquire(at + 8, &mut bytes)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok((
            u32::from_le_bytes([a, b, c, d]),
            u16::from_le_bytes([e, f]),
            u16::from_le_bytes([g, h]),
        ))
    }

    fn address(view: &View<'_>, at: u64) -> Result<u64, Broken> {
        let mut bytes = [0; 8];
        view.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn at(&self, cursor: Cursor) -> u64 {
        self.place.desc + DESC * u64::from(cursor.index())
    }

    /// Whether a descriptor with these flags is available to one at this place.
    fn is_available(flags: u16, cursor: Cursor) -> bool {
        (flags & AVAIL != 0) == cursor.wrap() && (flags & USED != 0) != cursor.wrap()
    }

    /// See [`Ring::take`](super::ring::Ring::take).
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        self.take_as(view, chain, WRITE)
    }

    /// See [`Ring::take_to_read`](super::ring::Ring::take_to_read). DPDK's driver makes its tables of entries to write
    /// (`vring_desc_init_indirect_packed`), and leaves that of the header, and one more of the first packets, as they are.
    pub fn take_to_read(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        self.take_as(view, chain, 0)
    }

    /// An entry of a table is to be written if it has this flag.
    fn take_as(&mut self, view: &View<'_>, chain: &mut Chain, write: u16) -> Result<bool, Broken> {
        let size = self.place.size;
        let (mut len, mut id, mut flags) = Self::tail(view, self.at(self.next))?;
        if !Self::is_available(flags, self.next) {
            self.known = 0;
            return Ok(false);
        }
        chain.clear(0);
        let mut cursor = self.next;
        let mut slots = 0;
        loop {
            slots += 1;
            self.read += 1;
            // The driver has not more slots than the ring, and some of them are ours until they are shown as used.
            if slots > size {
                return Err(Broken::Loop);
            }
            if self.held + slots > size {
                return Err(Broken::AvailIndex);
            }
            let at = Self::address(view, self.at(cursor))?;
            if flags & INDIRECT != 0 {
                if !self.format.indirect {
                    return Err(Broken::NoIndirect);
                }
                if flags & NEXT != 0 || slots > 1 {
                    return Err(Broken::IndirectNext);
                }
                self.table(view, (at, len), write, chain)?;
                break;
            }
            chain.add(Part { at, len }, flags & WRITE != 0)?;
            if flags & NEXT == 0 {
                break;
            }
            cursor = cursor.on(1, size);
            (len, id, flags) = Self::tail(view, self.at(cursor))?;
        }
        chain.id = id;
        self.note(slots);
        self.held += slots;
        self.next = self.next.on(slots, size);
        self.known = self.known.saturating_sub(slots);
        Ok(true)
    }

    /// An indirect table: all of its entries, in order (§2.8.7).
    fn table(
        &mut self,
        view: &View<'_>,
        (table, len): (u64, u32),
        write: u16,
        chain: &mut Chain,
    ) -> Result<(), Broken> {
        let len = u64::from(len);
        let entries = len / DESC;
        if entries == 0
            || !len.is_multiple_of(DESC)
            || entries > u64::from(self.place.size)
            || table.checked_add(len).is_none()
        {
            return Err(Broken::IndirectLength);
        }
        for entry in 0..entries {
            let at = table + DESC * entry;
            let mut bytes = [0; DESC as usize];
            view.read(at, &mut bytes)?;
            self.read += 1;
            let [a, b, c, d, e, f, g, h, i, j, k, l, _, _, m, n] = bytes;
            let flags = u16::from_le_bytes([m, n]);
            if flags & INDIRECT != 0 {
                return Err(Broken::Nested);
            }
            let part = Part {
                at: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                len: u32::from_le_bytes([i, j, k, l]),
            };
            chain.add(part, flags & write != 0)?;
        }
        Ok(())
    }

    /// See [`Ring::take_ones`](super::ring::Ring::take_ones).
    #[inline]
    pub fn take_ones(
        &mut self,
        view: &View<'_>,
        write: bool,
        out: &mut [One],
    ) -> Result<(usize, bool), Broken> {
        let size = self.place.size;
        let straight = usize::from(size - self.next.index());
        // Some slots are ours until they are shown as used.
        let free = usize::from(size - self.held);
        let most = out.len().min(straight).min(free);
        let Some(slots) = view.read_run(self.at(self.next), DESC * most as u64) else {
            return Ok((0, true));
        };
        // One comparison says that a descriptor is available and of this kind.
        let kind = u64::from(if write { WRITE } else { 0 });
        let there = u64::from(if self.next.wrap() { AVAIL } else { USED });
        let available = |word: u64| word >> 48 & u64::from(AVAIL | USED) == there;
        let asked = |word: u64| {
            let told = u64::from(AVAIL | USED | NEXT | WRITE | INDIRECT);
            word >> 48 & told == there | kind
        };
        let (mut taken, mut more) = (0, false);
        for (one, [at, word]) in out.iter_mut().zip(slots.pairs_by_second()) {
            if !asked(word) {
                more = available(word);
                break;
            }
            (one.id, one.at, one.len) = ((word >> 32) as u16, at, word as u32);
            taken += 1;
        }
        if taken == 0 && !more && most > 0 {
            // The driver took back what was given back to it.
            self.known = 0;
        }
        self.note_ones(taken);
        self.read += taken as u32;
        self.held += taken as u16;
        self.next = self.next.on(taken as u16, size);
        self.known = self.known.saturating_sub(taken as u16);
        Ok((taken, more))
    }

    /// See [`Ring::give_back`](super::ring::Ring::give_back).
    pub fn give_back(&mut self, chains: u16) {
        for _ in 0..chains {
            self.taken = self.taken.checked_sub(1).unwrap_or(self.place.size - 1);
            let slots = self.slots[usize::from(self.taken)];
            self.held -= slots;
            self.known += slots;
            self.next = self.next.back(slots, self.place.size);
        }
    }

    /// See [`Ring::used`](super::ring::Ring::used).
    pub fn used(&mut self, id: u16, len: u32) {
        let at = self.behind(self.first, self.used.len() as u16);
        let slots = self.slots[usize::from(at)];
        self.used.push(Used { id, len, slots });
    }

    /// See [`Ring::used_ones`](super::ring::Ring::used_ones). They have a slot each.
    pub fn used_ones(&mut self, ones: &[One], len: u32) {
        let each = |one: &One| Used {
            id: one.id,
            len,
            slots: 1,
        };
        self.used.extend(ones.iter().map(each));
    }

    /// See [`Ring::unused`](super::ring::Ring::unused).
    pub fn unused(&mut self, chains: u16) {
        let left = self.used.len().saturating_sub(chains.into());
        self.used.truncate(left);
        self.frames.retain(|(at, _)| *at < left);
    }

    /// See [`Ring::owes_call`](super::ring::Ring::owes_call).
    pub fn owes_call(&self) -> bool {
        self.force
    }

    /// See [`Ring::decide`](super::ring::Ring::decide).
    pub fn decide(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let slots = std::mem::take(&mut self.untold);
        if std::mem::take(&mut self.force) {
            return Ok(true);
        }
        self.passes(view, slots)
    }

    /// See [`Ring::wants_call`](super::ring::Ring::wants_call).
    pub fn wants_call(&self, view: &View<'_>) -> Result<bool, Broken> {
        self.passes(view, self.untold)
    }

    fn passes(&self, view: &View<'_>, slots: u16) -> Result<bool, Broken> {
        let size = self.place.size;
        let cursor = self.shown;
        if slots == 0 {
            return Ok(false);
        }
        // The driver writes what it wants, then looks at our flags; we the other way round.
        fence(Ordering::SeqCst);
        let (off, flags) = words::pair(view, self.place.driver)?;
        Ok(match flags & 3 {
            CALL_NEVER => false,
            CALL_AT if self.format.event_idx => {
                let off = Cursor(off);
                let behind = if off.wrap() == cursor.wrap() { 0 } else { size };
                let event = off.index().wrapping_sub(behind);
                let new = cursor.index();
                passed(event, new, new.wrapping_sub(slots))
            }
            _ => true,
        })
    }

    /// See [`Ring::want_kick`](super::ring::Ring::want_kick).
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        // Behind what is known already.
        let cursor = self.next.on(self.known, self.place.size);
        if self.format.event_idx {
            words::store_pair(view, self.place.device, (cursor.0, CALL_AT))?;
        } else if self.quiet {
            words::store_pair(view, self.place.device, (0, CALL_ALWAYS))?;
        }
        self.quiet = false;
        fence(Ordering::SeqCst);
        if self.known >= self.place.size {
            return Ok(false);
        }
        let (_, _, flags) = Self::tail(view, self.at(cursor))?;
        Ok(Self::is_available(flags, cursor))
    }

    /// See [`Ring::no_kick`](super::ring::Ring::no_kick).
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        if !self.quiet {
            words::store_pair(view, self.place.device, (0, CALL_NEVER))?;
            self.quiet = true;
        }
        Ok(())
    }

    /// Descriptors read since the last call.
    pub fn take_read(&mut self) -> u32 {
        std::mem::take(&mut self.read)
    }
}

#[cfg(test)]
mod proofs;
