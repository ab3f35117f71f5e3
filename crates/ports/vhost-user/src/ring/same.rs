//! Both kinds of rings before one back end: they deliver the same.

use guest_mem::{Memory, View};
use proptest::prelude::*;

use super::layout::{ENTRIES, NEXT, WRITE};
use super::*;

const AT: u64 = 0x1_0000;

/// A back end that obeys the rules, in the words of the specification.
struct Device {
    at: u64,
    format: Format,
    /// Chains that it has found and not used: name, slots, bytes.
    has: Vec<(u16, u16, u64)>,
    /// Where it looks next, and where it shows the next used chain; counted from the beginning, over all laps.
    next: u64,
    shown: u64,
}

/// What a test has the device do with a chain that it used.
type Use = (u16, u32);

fn half(view: &View<'_>, at: u64) -> u16 {
    let mut bytes = [0; 2];
    view.read(at, &mut bytes).expect("mapped");
    u16::from_le_bytes(bytes)
}

fn word(view: &View<'_>, at: u64) -> u32 {
    let mut bytes = [0; 4];
    view.read(at, &mut bytes).expect("mapped");
    u32::from_le_bytes(bytes)
}

impl Device {
    fn new(at: u64, format: Format) -> Self {
        let has = Vec::new();
        Self {
            at,
            format,
            has,
            next: 0,
            shown: 0,
        }
    }

    fn descriptor(&self, n: u64) -> u64 {
        self.at + 16 * (n % ENTRIES)
    }

    /// Flags of the lap that this place is in: available, and used.
    fn flags(n: u64) -> (u16, u16) {
        if (n / ENTRIES).is_multiple_of(2) {
            (1 << 7, 1 << 7 | 1 << 15)
        } else {
            (1 << 15, 0)
        }
    }

    /// Finds what was made available.
    fn find(&mut self, view: &View<'_>) {
        loop {
            let mut bytes = 0;
            if !self.format.packed {
                let driver = Places(self.at).driver();
                if half(view, driver + 2) == self.next as u16 {
                    return;
                }
                let id = half(view, driver + 4 + 2 * (self.next % ENTRIES));
                let (mut at, mut slots) = (id, 1);
                loop {
                    let desc = self.descriptor(at.into());
                    bytes += u64::from(word(view, desc + 8));
                    if half(view, desc + 12) & NEXT == 0 {
                        break;
                    }
                    at = half(view, desc + 14);
                    slots += 1;
                }
                self.has.push((id, slots, bytes));
                self.next += 1;
                continue;
            }
            let first = self.next;
            let lap = 1 << 7 | 1 << 15;
            if half(view, self.descriptor(first) + 14) & lap != Self::flags(first).0 {
                return;
            }
            loop {
                let desc = self.descriptor(self.next);
                let flags = half(view, desc + 14);
                assert_eq!(flags & lap, Self::flags(self.next).0);
                bytes += u64::from(word(view, desc + 8));
                self.next += 1;
                if flags & NEXT == 0 {
                    let slots = (self.next - first) as u16;
                    self.has.push((half(view, desc + 12), slots, bytes));
                    break;
                }
            }
        }
    }

    /// Uses chains that it has, and shows all of that at once. A run of which the last is named only, if that is allowed.
    fn uses(&mut self, view: &View<'_>, uses: &[Use], as_run: bool) -> Vec<(u16, u16, u32)> {
        let mut done = Vec::new();
        for (which, len) in uses {
            if self.has.is_empty() {
                break;
            }
            let which = if self.format.in_order {
                0
            } else {
                usize::from(*which) % self.has.len()
            };
            let (id, slots, bytes) = self.has.remove(which);
            done.push((id, slots, len % (bytes as u32 + 1)));
        }
        let as_run = as_run && self.format.in_order;
        let device = Places(self.at).device();
        let mut writes = Vec::new();
        let mut skipped = 0;
        let count = done.len();
        for (n, (id, slots, len)) in done.iter_mut().enumerate() {
            if as_run && n + 1 < count {
                *len = BUFFER as u32 * u32::from(*slots);
                skipped += u64::from(*slots);
                continue;
            }
            let element = [u32::from(*id).to_le_bytes(), len.to_le_bytes()];
            if self.format.packed {
                let desc = self.descriptor(self.shown);
                let flags = Self::flags(self.shown).1 | (u16::from(*len > 0) * WRITE);
                let bytes = [
                    &len.to_le_bytes()[..],
                    &id.to_le_bytes(),
                    &flags.to_le_bytes(),
                ];
                writes.push((desc + 8, bytes.concat()));
                self.shown += skipped + u64::from(*slots);
                skipped = 0;
            } else {
                let at = device + 4 + 8 * (self.shown % ENTRIES);
                writes.push((at, element.concat()));
                self.shown += 1;
            }
        }
        // The first shows the others.
        for (at, bytes) in writes.iter().rev() {
            view.write(*at, bytes).expect("mapped");
        }
        if !self.format.packed {
            let index = self.shown as u16;
            view.write(device + 2, &index.to_le_bytes())
                .expect("mapped");
        }
        done
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(Vec<u16>),
    Publish,
    Use(Vec<Use>, bool),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec(1..6_u16, 1..60).prop_map(Step::Offer),
        2 => Just(Step::Publish),
        3 => (prop::collection::vec(any::<Use>(), 1..60), any::<bool>())
            .prop_map(|(uses, as_run)| Step::Use(uses, as_run)),
        2 => Just(Step::Take),
    ]
}

/// What came back, as buffers and lengths.
fn play(steps: &[Step], format: Format) -> Vec<(Vec<u16>, u32)> {
    let memory = Memory::new();
    memory.map_anon(AT, LEN).expect("mapped");
    let view = memory.view();
    let mut ring = Ring::new(AT, format);
    let mut device = Device::new(AT, format);
    let mut free: Vec<u16> = (0..SIZE).rev().collect();
    let mut back = Vec::new();
    let mut expected = Vec::new();
    for step in steps {
        match step {
            Step::Offer(chains) => {
                for len in chains.iter().map(|len| usize::from(*len)) {
                    if free.len() < len {
                        break;
                    }
                    let chain = free.split_off(free.len() - len);
                    ring.offer(&view, &chain, 99, true).expect("good");
                }
            }
            Step::Publish => {
                ring.publish(&view).expect("good");
            }
            Step::Use(uses, as_run) => {
                device.find(&view);
                expected.extend(device.uses(&view, uses, *as_run));
            }
            Step::Take => {
                while let Some(used) = ring.take(&view).expect("an honest device") {
                    let mut buffers = Vec::new();
                    ring.chain(used, |buffer| buffers.push(buffer));
                    assert_eq!(
                        (used.head, used.buffers, used.len),
                        expected.remove(0),
                        "as the device used it"
                    );
                    free.extend(&buffers);
                    back.push((buffers, used.len));
                }
                assert!(expected.is_empty());
                assert!(!ring.want_call(&view).expect("good"));
            }
        }
    }
    back
}

proptest! {
    /// Over several laps, with chains of every length and uses in any order: what comes back is what the device used, and
    /// the same from a split ring and a packed one.
    #[test]
    fn split_and_packed_rings_deliver_the_same(
        steps in prop::collection::vec(step(), 1..120), event_idx: bool,
    ) {
        let split = Format { event_idx, ..Format::default() };
        let packed = Format { packed: true, ..split };
        prop_assert_eq!(play(&steps, split), play(&steps, packed));
        play(&steps, Format { in_order: true, ..packed });
    }

    /// Whatever the device writes into descriptors, chains come back at most once, and only what it was given and shown.
    #[test]
    fn no_device_of_a_packed_ring_makes_a_buffer_come_back_twice(
        writes in prop::collection::vec((0..9_u64, 0..10_u16, any::<u32>(), 0..4_u16), 1..30), in_order: bool,
    ) {
        let memory = Memory::new();
        memory.map_anon(AT, LEN).expect("mapped");
        let view = memory.view();
        let mut ring = Ring::new(AT, Format { packed: true, event_idx: true, in_order });
        for buffers in [[0, 1], [2, 3], [4, 5]] {
            ring.offer(&view, &buffers, 1, true).expect("good");
        }
        ring.publish(&view).expect("good");
        // The device does not see this one.
        ring.offer(&view, &[8], 1, true).expect("good");
        let mut back = Vec::new();
        for (slot, id, len, flags) in writes {
            let flags = (flags & 1) << 7 | (flags >> 1) << 15;
            let bytes = [&len.to_le_bytes()[..], &id.to_le_bytes(), &flags.to_le_bytes()].concat();
            view.write(AT + 16 * slot + 8, &bytes).expect("mapped");
            while let Ok(Some(used)) = ring.take(&view) {
                ring.chain(used, |buffer| back.push(buffer));
            }
        }
        let mut once = back.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), back.len());
        prop_assert!(back.iter().all(|buffer| *buffer < 6));
    }
}
