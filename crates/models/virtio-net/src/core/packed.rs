//! The packed ring (virtio 1.4 §2.8). Buffers are used in the order in which they were taken.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use guest_mem::View;

use crate::core::chain::{Chain, Part};
use crate::core::place::{Broken, Format, Place, Position, Refused};
use crate::core::words;

/// Bytes of a descriptor.
const DESC: u64 = 16;
/// Another descriptor follows.
const NEXT: u16 = 1;
/// The part is to be written.
const WRITE: u16 = 2;
/// The part is a table of descriptors.
const INDIRECT: u16 = 4;
/// It is available, if this bit is the wrap counter and `USED` is not.
const AVAIL: u16 = 1 << 7;
/// It is used, if both bits are the wrap counter.
const USED: u16 = 1 << 15;
/// The wrap counter beside an offset.
const WRAP: u16 = 1 << 15;

/// Event structures: always, never, at the offset.
const ALWAYS: u16 = 0;
const NEVER: u16 = 1;
const AT: u16 = 2;

/// A descriptor.
struct Desc {
    at: u64,
    len: u32,
    id: u16,
    flags: u16,
}

/// A place in the ring, and the wrap counter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    at: u16,
    wrap: bool,
}

impl Cursor {
    fn of(value: u16) -> Self {
        Self {
            at: value & !WRAP,
            wrap: value & WRAP != 0,
        }
    }

    fn value(self) -> u16 {
        self.at | if self.wrap { WRAP } else { 0 }
    }

    /// `slots` further, at most once round.
    fn forward(self, slots: u16, size: u16) -> Self {
        let at = self.at + slots;
        match at.checked_sub(size) {
            Some(at) => Self {
                at,
                wrap: !self.wrap,
            },
            None => Self { at, ..self },
        }
    }

    fn back(self, slots: u16, size: u16) -> Self {
        match self.at.checked_sub(slots) {
            Some(at) => Self { at, ..self },
            None => Self {
                at: self.at + size - slots,
                wrap: !self.wrap,
            },
        }
    }
}

/// A buffer that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    id: u16,
    slots: u16,
}

/// A packed ring. Its indices are its own.
#[derive(Debug)]
pub struct Packed {
    place: Place,
    format: Format,
    next: Cursor,
    used: Cursor,
    /// Where `used` was when it was last decided whether to call the driver.
    told: Cursor,
    /// Descriptors from `next` on that are known to be available.
    known: u16,
    /// Descriptors taken and not shown as used.
    held: u16,
    /// Buffers taken and not used, in order.
    taken: VecDeque<Taken>,
    /// Buffers used and not shown, with the bytes written.
    hidden: Vec<(Taken, u32)>,
    /// What the driver was told last about notifications.
    event: Option<(u16, u16)>,
    force: bool,
    read: u32,
}

impl Packed {
    /// A ring at this place. One that has been used before calls its driver once.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Packed, Refused> {
        let size = place.size;
        let [next, used, told] = [position.next, position.used, position.told].map(Cursor::of);
        if !format.fits(size) || [next, used, told].iter().any(|c| c.at >= size) {
            return Err(Refused::Size);
        }
        let areas = [
            (place.desc, 16, DESC * u64::from(size)),
            (place.driver, 4, 4),
            (place.device, 4, 4),
        ];
        for (at, align, len) in areas {
            // A word is loaded with the eight bytes around it.
            if !at.is_multiple_of(align) || at.checked_add(len + 8).is_none() {
                return Err(Refused::Address);
            }
        }
        Ok(Packed {
            place,
            format,
            next,
            used,
            told,
            known: 0,
            held: 0,
            taken: VecDeque::with_capacity(size.into()),
            hidden: Vec::with_capacity(size.into()),
            event: None,
            force: position != Position::start(format),
            read: 0,
        })
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Where both sides are.
    pub fn position(&self) -> Position {
        Position {
            next: self.next.value(),
            used: self.used.value(),
            told: self.told.value(),
        }
    }

    /// All of it is known to be available.
    pub fn is_full(&self) -> bool {
        self.known >= self.place.size
    }

    fn slot(&self, cursor: Cursor) -> u64 {
        self.place.desc + DESC * u64::from(cursor.at)
    }

    /// Whether a descriptor is available there.
    fn available(&self, view: &View<'_>, cursor: Cursor) -> Result<bool, Broken> {
        let flags = words::load(view, self.slot(cursor) + 14)?;
        Ok((flags & AVAIL != 0) == cursor.wrap && (flags & USED != 0) != cursor.wrap)
    }

    fn desc(&mut self, view: &View<'_>, at: u64) -> Result<Desc, Broken> {
        let mut bytes = [0; DESC as usize];
        view.read(at, &mut bytes)?;
        self.read += 1;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Ok(Desc {
            at: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            len: u32::from_le_bytes([i, j, k, l]),
            id: u16::from_le_bytes([m, n]),
            flags: u16::from_le_bytes([o, p]),
        })
    }

    /// See [`Ring::take`](super::ring::Ring::take).
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        if !self.available(view, self.next)? {
            return Ok(false);
        }
        let size = self.place.size;
        // What was taken and is not shown as used is not the driver's to give.
        let left = size - self.held;
        chain.clear(0);
        let mut at = self.next;
        let mut slots = 0;
        loop {
            if slots == left {
                return Err(Broken::Loop);
            }
            let desc = self.desc(view, self.slot(at))?;
            slots += 1;
            at = at.forward(1, size);
            chain.id = desc.id;
            if desc.flags & INDIRECT != 0 {
                self.table(view, &desc, chain)?;
                break;
            }
            add(chain, &desc)?;
            if desc.flags & NEXT == 0 {
                break;
            }
        }
        self.next = at;
        self.held += slots;
        self.known = self.known.saturating_sub(slots);
        self.taken.push_back(Taken {
            id: chain.id,
            slots,
        });
        Ok(true)
    }

    /// An indirect table: every entry is a part, whatever its flags say of a next one.
    fn table(&mut self, view: &View<'_>, table: &Desc, chain: &mut Chain) -> Result<(), Broken> {
        if !self.format.indirect {
            return Err(Broken::NoIndirect);
        }
        if table.flags & NEXT != 0 {
            return Err(Broken::IndirectNext);
        }
        let len = u64::from(table.len);
        let entries = len / DESC;
        if entries == 0
            || !len.is_multiple_of(DESC)
            || entries > u64::from(self.place.size)
            || table.at.checked_add(len).is_none()
        {
            return Err(Broken::IndirectLength);
        }
        for entry in 0..entries {
            let desc = self.desc(view, table.at + DESC * entry)?;
            if desc.flags & INDIRECT != 0 {
                return Err(Broken::Nested);
            }
            add(chain, &desc)?;
        }
        Ok(())
    }

    /// See [`Ring::give_back`](super::ring::Ring::give_back).
    pub fn give_back(&mut self, chains: u16) {
        for _ in 0..chains {
            if let Some(taken) = self.taken.pop_back() {
                self.next = self.next.back(taken.slots, self.place.size);
                self.known += taken.slots;
                self.held -= taken.slots;
            }
        }
    }

    /// See [`Ring::used`](super::ring::Ring::used).
    pub fn used(&mut self, id: u16, len: u32) {
        if let Some(taken) = self.taken.pop_front() {
            debug_assert_eq!(taken.id, id, "buffers are used in order");
            self.hidden.push((taken, len));
        }
    }

    /// See [`Ring::unused`](super::ring::Ring::unused).
    pub fn unused(&mut self, chains: u16) {
        for _ in 0..chains {
            if let Some((taken, _)) = self.hidden.pop() {
                self.taken.push_front(taken);
            }
        }
    }

    /// See [`Ring::publish`](super::ring::Ring::publish).
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let size = self.place.size;
        let mut first = None;
        for &(taken, len) in &self.hidden {
            let at = self.slot(self.used);
            let mut flags = if self.used.wrap { AVAIL | USED } else { 0 };
            if len > 0 {
                flags |= WRITE;
            }
            let word = u32::from(taken.id) | u32::from(flags) << 16;
            view.write(at + 8, &len.to_le_bytes())?;
            // The driver looks at one after the other: the first, which is shown last, shows all.
            if first.is_none() {
                first = Some((at + 12, word));
            } else {
                view.write(at + 12, &word.to_le_bytes())?;
            }
            self.used = self.used.forward(taken.slots, size);
        }
        self.held -= self
            .hidden
            .iter()
            .map(|(taken, _)| taken.slots)
            .sum::<u16>();
        self.hidden.clear();
        if let Some((at, word)) = first {
            view.write_release(at, &word.to_le_bytes())?;
        }
        let old = std::mem::replace(&mut self.told, self.used);
        if std::mem::take(&mut self.force) {
            return Ok(true);
        }
        if first.is_none() {
            return Ok(false);
        }
        // The driver writes what it wants, then looks at our flags; we the other way round.
        fence(Ordering::SeqCst);
        let event = words::load_double(view, self.place.driver)?;
        let (offset, flags) = (event as u16, (event >> 16) as u16 & 3);
        Ok(match flags {
            NEVER => false,
            AT if self.format.event_idx => self.passed(Cursor::of(offset), old),
            _ => true,
        })
    }

    /// Whether `used`, which came from `old`, has passed `event` (§2.8.10).
    fn passed(&self, event: Cursor, old: Cursor) -> bool {
        let lap = |cursor: Cursor| {
            let behind = if cursor.wrap == self.used.wrap {
                0
            } else {
                self.place.size
            };
            cursor.at.wrapping_sub(behind)
        };
        let new = self.used.at;
        new.wrapping_sub(lap(event)).wrapping_sub(1) < new.wrapping_sub(lap(old))
    }

    fn tell(&mut self, view: &View<'_>, offset: u16, flags: u16) -> Result<(), Broken> {
        if self.event != Some((offset, flags)) {
            let word = u32::from(offset) | u32::from(flags) << 16;
            view.write_release(self.place.device, &word.to_le_bytes())?;
            self.event = Some((offset, flags));
        }
        Ok(())
    }

    /// See [`Ring::want_kick`](super::ring::Ring::want_kick).
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let behind = self
            .next
            .forward(self.known.min(self.place.size), self.place.size);
        if self.format.event_idx {
            self.tell(view, behind.value(), AT)?;
        } else {
            self.tell(view, 0, ALWAYS)?;
        }
        fence(Ordering::SeqCst);
        self.available(view, behind)
    }

    /// See [`Ring::no_kick`](super::ring::Ring::no_kick).
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        self.tell(view, 0, NEVER)
    }

    /// Descriptors read since the last call.
    pub fn take_read(&mut self) -> u32 {
        std::mem::take(&mut self.read)
    }
}

/// Adds a part to a chain.
fn add(chain: &mut Chain, desc: &Desc) -> Result<(), Broken> {
    let write = desc.flags & WRITE != 0;
    if !write && chain.parts.len() > chain.to_read {
        return Err(Broken::Order);
    }
    chain.parts.push(Part {
        at: desc.at,
        len: desc.len,
    });
    chain.to_read += usize::from(!write);
    Ok(())
}
