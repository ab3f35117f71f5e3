//! The driver's end of a packed ring (virtio 1.4 §2.8).
//!
//! Chains lie one behind the other in the order in which they were made available, and what is used is shown in the same
//! places; a wrap counter tells one lap from the next. So the device has what lies between two places of ours, and what
//! it writes anywhere else is not looked at.

use std::sync::atomic::{Ordering, fence};

use guest_mem::View;

use super::layout::{BUFFER, Broken, DESC, Format, NEXT, Places, SIZE, Used, WRITE, load, store};

/// Bits of a descriptor's flags, as they lie in the word of name and flags.
const AVAIL: u32 = 1 << (16 + 7);
const USED: u32 = 1 << (16 + 15);

/// What a side wants to hear: everything, nothing, or of one place.
const ALL: u32 = 0;
const NONE: u32 = 1;
const ONE: u32 = 2;

/// A place in the ring, and the lap.
#[derive(Clone, Copy)]
struct Cursor {
    slot: u16,
    wrap: bool,
}

impl Cursor {
    const START: Self = Self {
        slot: 0,
        wrap: true,
    };

    fn on(self, slots: u16) -> Self {
        let slot = self.slot + slots;
        if slot < SIZE {
            return Self { slot, ..self };
        }
        Self {
            slot: slot - SIZE,
            wrap: !self.wrap,
        }
    }

    /// What is available here.
    fn available(self) -> u32 {
        if self.wrap { AVAIL } else { USED }
    }

    /// What is used here.
    fn used(self) -> u32 {
        if self.wrap { AVAIL | USED } else { 0 }
    }

    /// As an event is told.
    fn event(self) -> u32 {
        u32::from(self.slot) | u32::from(self.wrap) << 15
    }
}

/// A run of chains in the order in which they were given, of which the device has named the last.
#[derive(Clone, Copy)]
struct Run {
    last: u16,
    len: u32,
}

/// A ring. All of its state is here; of what is shared only what may be used and what the device wants is read.
pub struct Packed {
    places: Places,
    event_idx: bool,
    in_order: bool,
    /// Descriptors of the chain with this head that the device has; 0: it has none.
    given: Vec<u16>,
    /// The next buffer in a chain that the device has.
    next: Vec<u16>,
    /// The head of the chain that begins in a slot.
    heads: Vec<u16>,
    /// When a head was given: in the turn that ends when all is shown that is available.
    turns: Vec<u64>,
    turn: u64,
    /// Chains that the device has, and how many of them it does not see yet.
    chains: u16,
    unseen: u16,
    /// The next chain goes here.
    available: Cursor,
    /// The first descriptor that the device does not see, and what will show it.
    hidden: Option<(u16, u32)>,
    /// Descriptors behind that.
    added: u16,
    /// The next used chain is found here.
    used: Cursor,
    run: Option<Run>,
    /// The device is told not to call.
    quiet: bool,
}

impl Packed {
    /// A ring in zeroed memory.
    pub fn new(places: Places, format: Format) -> Self {
        Self {
            places,
            event_idx: format.event_idx,
            in_order: format.in_order,
            given: vec![0; SIZE.into()],
            next: vec![0; SIZE.into()],
            heads: vec![0; SIZE.into()],
            turns: vec![0; SIZE.into()],
            turn: 0,
            chains: 0,
            unseen: 0,
            available: Cursor::START,
            hidden: None,
            added: 0,
            used: Cursor::START,
            run: None,
            quiet: false,
        }
    }

    fn descriptor(&self, slot: u16) -> u64 {
        self.places.descriptors() + DESC * u64::from(slot)
    }

    /// Chains that the device has.
    pub fn chains(&self) -> u16 {
        self.chains
    }

    /// See [`Ring::offer`](super::Ring::offer).
    pub fn offer(
        &mut self,
        view: &View<'_>,
        buffers: &[u16],
        last: u32,
        written: bool,
    ) -> Result<(), Broken> {
        let Some(&head) = buffers.first() else {
            return Ok(());
        };
        let write = if written { WRITE } else { 0 };
        let first = self.available;
        let mut first_word = 0;
        for (n, &buffer) in buffers.iter().enumerate() {
            let following = buffers.get(n + 1);
            let (len, flags) = match following {
                Some(_) => (BUFFER as u32, write | NEXT),
                None => (last, write),
            };
            self.next[usize::from(buffer)] = following.copied().unwrap_or(0);
            let cursor = self.available;
            let at = self.descriptor(cursor.slot);
            let mut desc = [0; 12];
            desc[..8].copy_from_slice(&self.places.buffer(buffer).to_le_bytes());
            desc[8..].copy_from_slice(&len.to_le_bytes());
            view.write(at, &desc)?;
            let word = u32::from(head) | u32::from(flags) << 16 | cursor.available();
            if n == 0 {
                first_word = word;
            } else {
                store(view, at + 12, word, Ordering::Relaxed)?;
            }
            self.available = cursor.on(1);
        }
        // A chain is seen by its first descriptor, and all that is new by the first chain's.
        if self.hidden.is_none() {
            self.hidden = Some((first.slot, first_word));
        } else {
            let at = self.descriptor(first.slot) + 12;
            store(view, at, first_word, Ordering::Release)?;
        }
        self.heads[usize::from(first.slot)] = head;
        self.given[usize::from(head)] = buffers.len() as u16;
        self.turns[usize::from(head)] = self.turn;
        self.added += buffers.len() as u16;
        self.unseen += 1;
        self.chains += 1;
        Ok(())
    }

    /// See [`Ring::publish`](super::Ring::publish).
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let Some((slot, word)) = self.hidden.take() else {
            return Ok(false);
        };
        store(view, self.descriptor(slot) + 12, word, Ordering::Release)?;
        let added = std::mem::take(&mut self.added);
        self.unseen = 0;
        self.turn += 1;
        // The device writes what it wants, then looks at the descriptor; we the other way round.
        fence(Ordering::SeqCst);
        let wanted = load(view, self.places.device())?;
        Ok(match wanted >> 16 & 3 {
            NONE => false,
            ONE if self.event_idx => self.passes(wanted as u16, added),
            _ => true,
        })
    }

    /// Whether the place of this event is one of the last `added`.
    fn passes(&self, event: u16, added: u16) -> bool {
        let new = self.available;
        let mut place = event & 0x7fff;
        if (event >> 15 == 1) != new.wrap {
            // It is of the lap before.
            place = place.wrapping_sub(SIZE);
        }
        new.slot.wrapping_sub(place).wrapping_sub(1) < added
    }

    /// Whether the device has used what is in the next place.
    fn look(&self, view: &View<'_>) -> Result<Option<u32>, Broken> {
        let cursor = self.used;
        let word = load(view, self.descriptor(cursor.slot) + 12)?;
        let state = word & (AVAIL | USED);
        if self.chains == self.unseen {
            // It has nothing. What lies here is of the lap before, or was never written.
            return if state == cursor.used() {
                Err(Broken)
            } else {
                Ok(None)
            };
        }
        if state == cursor.used() {
            return Ok(Some(word));
        }
        // Otherwise it is as we have left it.
        if state == cursor.available() {
            Ok(None)
        } else {
            Err(Broken)
        }
    }

    /// See [`Ring::take`](super::Ring::take).
    pub fn take(&mut self, view: &View<'_>) -> Result<Option<Used>, Broken> {
        if let Some(run) = self.run {
            return Ok(Some(self.take_of(run)));
        }
        let Some(word) = self.look(view)? else {
            return Ok(None);
        };
        let mut len = [0; 4];
        view.read(self.descriptor(self.used.slot) + 8, &mut len)?;
        let len = u32::from_le_bytes(len);
        let id = word as u16;
        // It is given back once, and not before it was seen.
        let given = self.given.get(usize::from(id)).is_some_and(|n| *n > 0);
        if !given || self.turns[usize::from(id)] == self.turn {
            return Err(Broken);
        }
        if self.in_order {
            return Ok(Some(self.take_of(Run { last: id, len })));
        }
        Ok(Some(self.take_back(id, len)))
    }

    /// The next chain of a run.
    fn take_of(&mut self, run: Run) -> Used {
        let head = self.heads[usize::from(self.used.slot)];
        let ends = head == run.last;
        self.run = (!ends).then_some(run);
        // Of those in between nothing is said: they are full.
        let len = if ends {
            run.len
        } else {
            BUFFER as u32 * u32::from(self.given[usize::from(head)])
        };
        self.take_back(head, len)
    }

    fn take_back(&mut self, head: u16, len: u32) -> Used {
        let buffers = std::mem::take(&mut self.given[usize::from(head)]);
        self.used = self.used.on(buffers);
        self.chains -= 1;
        Used { head, buffers, len }
    }

    /// See [`Ring::chain`](super::Ring::chain).
    pub fn chain(&self, used: Used, mut visit: impl FnMut(u16)) {
        let mut at = used.head;
        for _ in 0..used.buffers {
            visit(at);
            at = self.next[usize::from(at)];
        }
    }

    /// See [`Ring::want_call`](super::Ring::want_call).
    pub fn want_call(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        if self.run.is_some() {
            return Ok(true);
        }
        let wanted = if self.event_idx {
            ONE << 16 | self.used.event()
        } else {
            ALL << 16
        };
        self.quiet = false;
        store(view, self.places.driver(), wanted, Ordering::Relaxed)?;
        fence(Ordering::SeqCst);
        Ok(self.look(view)?.is_some())
    }

    /// See [`Ring::no_call`](super::Ring::no_call).
    pub fn no_call(&mut self, view: &View<'_>) -> Result<(), Broken> {
        if !std::mem::replace(&mut self.quiet, true) {
            store(view, self.places.driver(), NONE << 16, Ordering::Relaxed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use guest_mem::Memory;

    use super::super::layout::LEN;
    use super::*;

    const AT: u64 = 0x1000;

    fn memory() -> Memory {
        let memory = Memory::new();
        memory.map_anon(AT, LEN).expect("mapped");
        memory
    }

    fn ring(event_idx: bool, in_order: bool) -> Packed {
        let format = Format {
            event_idx,
            packed: true,
            in_order,
        };
        Packed::new(Places(AT), format)
    }

    /// The device writes a descriptor.
    fn put(view: &View<'_>, slot: u64, id: u16, len: u32, flags: u16) {
        let bytes = [
            &len.to_le_bytes()[..],
            &id.to_le_bytes(),
            &flags.to_le_bytes(),
        ];
        view.write(AT + DESC * slot + 8, &bytes.concat())
            .expect("mapped");
    }

    const USED_FIRST_LAP: u16 = 0x8080;

    #[test]
    fn nothing_is_seen_before_all_of_it_is_there() {
        let (memory, mut ring) = (memory(), ring(false, false));
        let view = memory.view();
        let flags = |slot: u64| load(&view, AT + DESC * slot + 12).expect("mapped") >> 16;
        ring.offer(&view, &[7, 3], 100, false).expect("good");
        ring.offer(&view, &[1], 5, true).expect("good");
        assert_eq!(flags(0), 0, "what shows the rest comes last");
        assert_eq!((flags(1), flags(2)), (0x80, 0x82));
        assert_eq!(ring.publish(&view), Ok(true));
        assert_eq!(flags(0), 0x81);
        assert_eq!(ring.publish(&view), Ok(false), "nothing new");
        assert_eq!(ring.chains(), 2);
    }

    #[test]
    fn what_a_device_cannot_have_used_breaks_the_ring() {
        // A name that there is not, one that it was not given, one that it does not see, and both wrong laps.
        for (id, flags) in [
            (1024, USED_FIRST_LAP),
            (8, USED_FIRST_LAP),
            (9, USED_FIRST_LAP),
            (7, 0),
            (7, 0x8000),
        ] {
            for in_order in [false, true] {
                let (memory, mut ring) = (memory(), ring(false, in_order));
                let view = memory.view();
                ring.offer(&view, &[7], 5, true).expect("good");
                ring.publish(&view).expect("good");
                ring.offer(&view, &[9], 5, true).expect("good");
                put(&view, 0, id, 0, flags);
                assert_eq!(ring.take(&view), Err(Broken), "{id} {flags:#x}");
            }
        }
        // A chain is given back once, and none when the device has nothing.
        let (memory, mut ring) = (memory(), ring(false, false));
        let view = memory.view();
        for buffer in [7, 8] {
            ring.offer(&view, &[buffer], 5, true).expect("good");
        }
        ring.publish(&view).expect("good");
        put(&view, 0, 7, 0, USED_FIRST_LAP);
        ring.take(&view).expect("good").expect("used");
        put(&view, 1, 7, 0, USED_FIRST_LAP);
        assert_eq!(ring.take(&view), Err(Broken));
        put(&view, 1, 8, 0, USED_FIRST_LAP);
        ring.take(&view).expect("good").expect("used");
        assert_eq!(ring.take(&view), Ok(None));
        put(&view, 2, 7, 0, USED_FIRST_LAP);
        assert_eq!(ring.take(&view), Err(Broken));
    }

    #[test]
    fn one_name_stands_for_all_before_it_where_the_order_is_kept() {
        let (memory, mut ring) = (memory(), ring(false, true));
        let view = memory.view();
        for buffers in [&[7, 3][..], &[1], &[5], &[6]] {
            ring.offer(&view, buffers, 100, true).expect("good");
        }
        ring.publish(&view).expect("good");
        put(&view, 0, 5, 44, USED_FIRST_LAP);
        let used = |head, buffers, len| Ok(Some(Used { head, buffers, len }));
        assert_eq!(ring.take(&view), used(7, 2, 4096));
        assert_eq!(ring.want_call(&view), Ok(true), "there are more");
        assert_eq!(ring.take(&view), used(1, 1, 2048));
        assert_eq!(ring.take(&view), used(5, 1, 44));
        assert_eq!(ring.take(&view), Ok(None));
        assert_eq!(ring.want_call(&view), Ok(false));
        put(&view, 4, 6, 0, USED_FIRST_LAP);
        assert_eq!(ring.take(&view), used(6, 1, 0));
    }

    #[test]
    fn each_side_says_when_it_wants_to_hear() {
        for event_idx in [false, true] {
            let (memory, mut ring) = (memory(), ring(event_idx, false));
            let view = memory.view();
            let device = ring.places.device();
            let driver = ring.places.driver();
            // All; nothing; of the first new place; of the one behind; of that of the lap before.
            let one = |wanted| if event_idx { wanted } else { true };
            for (n, (event, wanted)) in [
                (ALL << 16, true),
                (NONE << 16, false),
                (ONE << 16 | 0x8002, one(true)),
                (ONE << 16 | 0x8004, one(false)),
                (ONE << 16 | 4, one(false)),
            ]
            .into_iter()
            .enumerate()
            {
                store(&view, device, event, Ordering::Relaxed).expect("mapped");
                ring.offer(&view, &[n as u16], 1, true).expect("good");
                assert_eq!(ring.publish(&view), Ok(wanted), "{event_idx} {n}");
            }
            ring.no_call(&view).expect("good");
            assert_eq!(load(&view, driver), Ok(NONE << 16));
            assert_eq!(ring.want_call(&view), Ok(false));
            let expected = if event_idx { ONE << 16 | 0x8000 } else { 0 };
            assert_eq!(load(&view, driver), Ok(expected));
            put(&view, 0, 0, 1, USED_FIRST_LAP);
            assert_eq!(ring.want_call(&view), Ok(true));
        }
    }
}
