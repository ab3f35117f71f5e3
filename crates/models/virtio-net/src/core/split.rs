//! The split ring (virtio 1.4 §2.7).

use std::sync::atomic::{Ordering, fence};

use datapath::kept::Step;
use guest_mem::View;

use crate::core::chain::{Chain, One, Part};
use crate::core::kept::{KeptRing, Stand, Steps};
use crate::core::place::{Broken, Format, MAX_SIZE, Place, Position, Refused, passed};
use crate::core::words;

/// Most entries looked at together.
const AHEAD: usize = 64;
/// Bytes of a descriptor.
const DESC: u64 = 16;
/// Another descriptor follows.
const NEXT: u16 = 1;
/// The part is to be written.
const WRITE: u16 = 2;
/// The part is a table of descriptors.
const INDIRECT: u16 = 4;
/// The driver wants no call, or the device no notification.
const QUIET: u16 = 1;

/// A descriptor.
struct Desc {
    at: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// A split ring. It never reads back what it has written: its indices are its own.
#[derive(Debug)]
pub struct Split {
    place: Place,
    format: Format,
    position: Position,
    /// The driver's index as last seen.
    avail: u16,
    /// What the driver sees of `position.used`.
    shown: u16,
    /// Buffers in a row in which nothing was written, and for which there is no used element yet: where the first one's is,
    /// and by what the last is given back.
    run: Option<(u16, u16)>,
    /// The driver is told not to notify.
    quiet: bool,
    /// The next decision is to call.
    force: bool,
    /// What outlives the process.
    kept: Option<KeptRing>,
    read: u32,
}

impl Split {
    /// A ring at this place.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Split, Refused> {
        let Place {
            size,
            desc,
            driver,
            device,
        } = place;
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(Refused::Size);
        }
        let entries = u64::from(size);
        // Alignment and length of each area (§2.7).
        let areas = [
            (desc, 16, DESC * entries),
            (driver, 2, 6 + 2 * entries),
            (device, 4, 6 + 8 * entries),
        ];
        for (at, align, len) in areas {
            // A word is loaded with the eight bytes around it.
            if !at.is_multiple_of(align) || at.checked_add(len + 8).is_none() {
                return Err(Refused::Address);
            }
        }
        Ok(Split {
            place,
            format,
            position,
            avail: position.next,
            shown: position.used,
            run: None,
            // It may have been told so before.
            quiet: position.resumed,
            force: position.resumed,
            kept: None,
            read: 0,
        })
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
            resumed: true,
            ..self.position
        }
    }

    /// See [`Ring::keep`](super::ring::Ring::keep).
    pub fn keep(&mut self, kept: KeptRing) {
        self.kept = Some(kept);
    }

    /// See [`Ring::delivers`](super::ring::Ring::delivers).
    #[inline]
    pub fn delivers(&self) {
        if let Some(kept) = &self.kept {
            kept.put(Stand {
                end: self.position.next,
                ..Stand::default()
            });
        }
    }

    /// Where a ring at this place has come to: its index says it.
    pub fn found(view: &View<'_>, place: Place) -> Option<Position> {
        let used = words::load(view, place.device + 2).ok()?;
        Some(Position {
            next: used,
            used,
            told: used,
            resumed: true,
        })
    }

    /// Buffers from the next on up to the place `end`; 0: it is none that a ring has come to.
    pub fn until(&self, end: u16) -> u16 {
        let n = end.wrapping_sub(self.position.next);
        if n > self.place.size { 0 } else { n }
    }

    /// Buffers that are known to be available.
    pub fn known(&self) -> u16 {
        self.avail.wrapping_sub(self.position.next)
    }

    fn slot(&self, index: u16) -> u64 {
        u64::from(index & (self.place.size - 1))
    }

    /// Looks how far the driver is.
    fn look(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let avail = words::load(view, self.place.driver + 2)?;
        if avail.wrapping_sub(self.position.next) > self.place.size {
            return Err(Broken::AvailIndex);
        }
        self.avail = avail;
        Ok(())
    }

    /// See [`Ring::take`](super::ring::Ring::take).
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        if self.known() == 0 {
            self.look(view)?;
            if self.known() == 0 {
                return Ok(false);
            }
        }
        let at = self.place.driver + 4 + 2 * self.slot(self.position.next);
        let mut head = [0; 2];
        view.read(at, &mut head)?;
        self.walk(view, u16::from_le_bytes(head), chain)?;
        self.position.next = self.position.next.wrapping_add(1);
        Ok(true)
    }

    fn desc(&mut self, view: &View<'_>, table: u64, index: u16) -> Result<Desc, Broken> {
        let mut bytes = [0; DESC as usize];
        view.read(table + DESC * u64::from(index), &mut bytes)?;
        self.read += 1;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Ok(Desc {
            at: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            len: u32::from_le_bytes([i, j, k, l]),
            flags: u16::from_le_bytes([m, n]),
            next: u16::from_le_bytes([o, p]),
        })
    }

    fn walk(&mut self, view: &View<'_>, head: u16, chain: &mut Chain) -> Result<(), Broken> {
        chain.clear(head);
        let mut table = self.place.desc;
        let mut entries = u64::from(self.place.size);
        let mut left = entries;
        let mut index = head;
        let mut indirect = false;
        if u64::from(head) >= entries {
            return Err(Broken::Head);
        }
        loop {
            if left == 0 {
                return Err(Broken::Loop);
            }
            left -= 1;
            let desc = self.desc(view, table, index)?;
            if desc.flags & INDIRECT != 0 {
                if indirect {
                    return Err(Broken::Nested);
                }
                if !self.format.indirect {
                    return Err(Broken::NoIndirect);
                }
                if desc.flags & NEXT != 0 {
                    return Err(Broken::IndirectNext);
                }
                let len = u64::from(desc.len);
                entries = len / DESC;
                if entries == 0
                    || !len.is_multiple_of(DESC)
                    || entries > u64::from(self.place.size)
                    || desc.at.checked_add(len).is_none()
                {
                    return Err(Broken::IndirectLength);
                }
                (table, left, index, indirect) = (desc.at, entries, 0, true);
                continue;
            }
            let part = Part {
                at: desc.at,
                len: desc.len,
            };
            chain.add(part, desc.flags & WRITE != 0)?;
            if desc.flags & NEXT == 0 {
                return Ok(());
            }
            if u64::from(desc.next) >= entries {
                return Err(Broken::Next);
            }
            index = desc.next;
        }
    }

    /// See [`Ring::take_ones`](super::ring::Ring::take_ones).
    #[inline]
    pub fn take_ones(
        &mut self,
        view: &View<'_>,
        write: bool,
        out: &mut [One],
    ) -> Result<(usize, bool), Broken> {
        if self.known() < out.len() as u16 {
            self.look(view)?;
        }
        let slot = self.slot(self.position.next);
        let straight = u64::from(self.place.size) - slot;
        let most = out.len().min(self.known().into()).min(straight as usize);
        let mut heads = [[0; 2]; AHEAD];
        let most = most.min(AHEAD);
        let heads = &mut heads[..most];
        view.read(self.place.driver + 4 + 2 * slot, heads.as_flattened_mut())?;
        let entries = u64::from(self.place.size);
        let Some(table) = view.read_run(self.place.desc, DESC * entries) else {
            return Ok((0, most > 0));
        };
        let kind = if write { WRITE } else { 0 };
        let mut taken = 0;
        for (one, head) in out.iter_mut().zip(heads) {
            let head = u16::from_le_bytes(*head);
            let desc = table.sub(DESC as usize * usize::from(head), DESC as usize);
            let mut bytes = [[0; 8]; 2];
            if desc.copy_to(0, bytes.as_flattened_mut()) < DESC as usize {
                break;
            }
            let [at, word] = bytes.map(u64::from_le_bytes);
            let flags = (word >> 32) as u16;
            if flags & (NEXT | WRITE | INDIRECT) != kind {
                break;
            }
            (one.id, one.at, one.len) = (head, at, word as u32);
            taken += 1;
        }
        self.read += taken as u32;
        self.position.next = self.position.next.wrapping_add(taken as u16);
        Ok((taken, self.known() > 0))
    }

    /// See [`Ring::give_back`](super::ring::Ring::give_back).
    pub fn give_back(&mut self, chains: u16) {
        self.position.next = self.position.next.wrapping_sub(chains);
    }

    /// See [`Ring::used`](super::ring::Ring::used).
    pub fn used(&mut self, view: &View<'_>, id: u16, len: u32) -> Result<(), Broken> {
        let index = self.position.used;
        self.position.used = index.wrapping_add(1);
        if self.format.in_order && len == 0 {
            let first = self.run.map_or(index, |(first, _)| first);
            self.run = Some((first, id));
            return Ok(());
        }
        self.end_run(view)?;
        self.element(view, index, id, len)
    }

    /// See [`Ring::used_ones`](super::ring::Ring::used_ones).
    #[inline]
    pub fn used_ones(&mut self, view: &View<'_>, ones: &[One], len: u32) -> Result<(), Broken> {
        if self.format.in_order && len == 0 {
            if let Some(last) = ones.last() {
                let first = self.run.map_or(self.position.used, |(first, _)| first);
                self.run = Some((first, last.id));
                self.position.used = self.position.used.wrapping_add(ones.len() as u16);
            }
            return Ok(());
        }
        self.end_run(view)?;
        if let [one] = ones {
            let index = self.position.used;
            self.position.used = index.wrapping_add(1);
            return self.element(view, index, one.id, len);
        }
        let mut rest = ones;
        while !rest.is_empty() {
            let slot = self.slot(self.position.used);
            let straight = u64::from(self.place.size) - slot;
            let n = rest.len().min(straight as usize).min(AHEAD);
            let (now, later) = rest.split_at(n);
            let mut elements = [[0; 8]; AHEAD];
            for (element, one) in elements.iter_mut().zip(now) {
                let words = u64::from(one.id) | u64::from(len) << 32;
                *element = words.to_le_bytes();
            }
            let at = self.place.device + 4 + 8 * slot;
            view.write(at, elements[..n].as_flattened())?;
            self.position.used = self.position.used.wrapping_add(n as u16);
            rest = later;
        }
        Ok(())
    }

    fn element(&self, view: &View<'_>, index: u16, id: u16, len: u32) -> Result<(), Broken> {
        let at = self.place.device + 4 + 8 * self.slot(index);
        let element = u64::from(id) | u64::from(len) << 32;
        view.write(at, &element.to_le_bytes())?;
        Ok(())
    }

    /// One element for all buffers of a run: that of the last, where the first one's is (§2.7.9).
    fn end_run(&mut self, view: &View<'_>) -> Result<(), Broken> {
        match self.run.take() {
            Some((first, last)) => self.element(view, first, last, 0),
            None => Ok(()),
        }
    }

    /// See [`Ring::unused`](super::ring::Ring::unused).
    pub fn unused(&mut self, chains: u16) {
        self.position.used = self.position.used.wrapping_sub(chains);
    }

    /// See [`Ring::show`](super::ring::Ring::show).
    pub fn show(&mut self, view: &View<'_>) -> Result<u32, Broken> {
        self.end_run(view)?;
        let new = self.position.used;
        let shown = new.wrapping_sub(self.shown);
        if new != self.shown {
            if self.kept.is_some() {
                Steps::step();
            }
            words::store(view, self.place.device + 2, new)?;
            self.shown = new;
        }
        Ok(shown.into())
    }

    /// See [`Ring::owes_call`](super::ring::Ring::owes_call).
    pub fn owes_call(&self) -> bool {
        self.force
    }

    /// See [`Ring::decide`](super::ring::Ring::decide).
    pub fn decide(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let new = self.shown;
        let old = std::mem::replace(&mut self.position.told, new);
        if std::mem::take(&mut self.force) {
            return Ok(true);
        }
        self.passes(view, new, old)
    }

    /// See [`Ring::wants_call`](super::ring::Ring::wants_call).
    pub fn wants_call(&self, view: &View<'_>) -> Result<bool, Broken> {
        self.passes(view, self.shown, self.position.told)
    }

    fn passes(&self, view: &View<'_>, new: u16, old: u16) -> Result<bool, Broken> {
        if new == old {
            return Ok(false);
        }
        // The driver writes what it wants, then looks at our index; we the other way round.
        fence(Ordering::SeqCst);
        if self.format.event_idx {
            let at = self.place.driver + 4 + 2 * u64::from(self.place.size);
            let event = words::load(view, at)?;
            return Ok(passed(event, new, old));
        }
        Ok(words::load(view, self.place.driver)? & QUIET == 0)
    }

    /// See [`Ring::want_kick`](super::ring::Ring::want_kick).
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let known = self.avail;
        if self.format.event_idx {
            let at = self.place.device + 4 + 8 * u64::from(self.place.size);
            words::store(view, at, known)?;
        } else if self.quiet {
            words::store(view, self.place.device, 0)?;
            self.quiet = false;
        }
        fence(Ordering::SeqCst);
        self.look(view)?;
        Ok(self.avail != known)
    }

    /// See [`Ring::no_kick`](super::ring::Ring::no_kick).
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        // With event indices the one that was left behind says so.
        if !self.format.event_idx && !self.quiet {
            words::store(view, self.place.device, QUIET)?;
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
