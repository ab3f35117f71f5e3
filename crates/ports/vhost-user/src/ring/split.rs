//! The driver's end of a split ring (virtio 1.4 §2.7).

use std::sync::atomic::{Ordering, fence};

use guest_mem::View;

use super::layout::{
    BUFFER, Broken, DESC, ENTRIES, NEXT, Places, QUIET, SIZE, Used, WRITE, load, store,
};

/// A ring. All of its state is here; of what is shared only the used ring and what the device wants is read.
pub struct Split {
    places: Places,
    event_idx: bool,
    /// Descriptors of the chain with this head that the device has; 0: it has none.
    given: Vec<u16>,
    /// The next one in a chain that the device has.
    next: Vec<u16>,
    /// Chains that the device has.
    chains: u16,
    /// Chains made available, and how many of them the device sees.
    available: u16,
    shown: u16,
    /// Used entries that were taken.
    seen: u16,
    /// The device's index as last read.
    used: u16,
    /// The device is told not to call.
    quiet: bool,
}

impl Split {
    /// A ring in zeroed memory.
    pub fn new(places: Places, event_idx: bool) -> Self {
        Self {
            places,
            event_idx,
            given: vec![0; SIZE.into()],
            next: vec![0; SIZE.into()],
            chains: 0,
            available: 0,
            shown: 0,
            seen: 0,
            used: 0,
            quiet: false,
        }
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
        for (n, &buffer) in buffers.iter().enumerate() {
            let following = buffers.get(n + 1);
            let (len, flags) = match following {
                Some(_) => (BUFFER as u32, write | NEXT),
                None => (last, write),
            };
            let next = following.copied().unwrap_or(0);
            self.next[usize::from(buffer)] = next;
            let mut desc = [0; DESC as usize];
            desc[..8].copy_from_slice(&self.places.buffer(buffer).to_le_bytes());
            desc[8..12].copy_from_slice(&len.to_le_bytes());
            desc[12..14].copy_from_slice(&flags.to_le_bytes());
            desc[14..].copy_from_slice(&next.to_le_bytes());
            view.write(self.places.descriptors() + DESC * u64::from(buffer), &desc)?;
        }
        self.given[usize::from(head)] = buffers.len() as u16;
        let slot = u64::from(self.available % SIZE);
        view.write(self.places.driver() + 4 + 2 * slot, &head.to_le_bytes())?;
        self.available = self.available.wrapping_add(1);
        self.chains += 1;
        Ok(())
    }

    /// See [`Ring::publish`](super::Ring::publish).
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let (old, new) = (self.shown, self.available);
        if old == new {
            return Ok(false);
        }
        self.shown = new;
        self.set_driver(view, Ordering::Release)?;
        // The device writes what it wants, then looks at our index; we the other way round.
        fence(Ordering::SeqCst);
        if self.event_idx {
            let at = self.places.device() + 4 + 8 * ENTRIES;
            let event = load(view, at)? as u16;
            let passed = new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
            return Ok(passed);
        }
        Ok(load(view, self.places.device())? & QUIET == 0)
    }

    /// Our flags and index, which are one word.
    fn set_driver(&self, view: &View<'_>, order: Ordering) -> Result<(), Broken> {
        let quiet = u32::from(self.quiet) * QUIET;
        store(
            view,
            self.places.driver(),
            quiet | u32::from(self.shown) << 16,
            order,
        )
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let used = (load(view, self.places.device())? >> 16) as u16;
        if used.wrapping_sub(self.seen) > self.chains {
            return Err(Broken);
        }
        self.used = used;
        Ok(())
    }

    /// See [`Ring::take`](super::Ring::take).
    pub fn take(&mut self, view: &View<'_>) -> Result<Option<Used>, Broken> {
        if self.used == self.seen {
            self.look(view)?;
            if self.used == self.seen {
                return Ok(None);
            }
        }
        let slot = u64::from(self.seen % SIZE);
        let mut element = [0; 8];
        view.read(self.places.device() + 4 + 8 * slot, &mut element)?;
        let [a, b, c, d, len @ ..] = element;
        let id = u16::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| Broken)?;
        // It is given back once.
        let given = self.given.get_mut(usize::from(id)).map(std::mem::take);
        let buffers = given.filter(|buffers| *buffers > 0).ok_or(Broken)?;
        self.seen = self.seen.wrapping_add(1);
        self.chains -= 1;
        Ok(Some(Used {
            head: id,
            buffers,
            len: u32::from_le_bytes(len),
        }))
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
        if self.event_idx {
            let at = self.places.driver() + 4 + 2 * ENTRIES;
            store(view, at, self.seen.into(), Ordering::Relaxed)?;
        } else if std::mem::take(&mut self.quiet) {
            self.set_driver(view, Ordering::Relaxed)?;
        }
        fence(Ordering::SeqCst);
        self.look(view)?;
        Ok(self.used != self.seen)
    }

    /// See [`Ring::no_call`](super::Ring::no_call).
    pub fn no_call(&mut self, view: &View<'_>) -> Result<(), Broken> {
        // With event indices the one that was left behind says so.
        if !self.event_idx && !std::mem::replace(&mut self.quiet, true) {
            self.set_driver(view, Ordering::Relaxed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use guest_mem::Memory;
    use proptest::prelude::*;

    use super::super::layout::LEN;
    use super::*;

    const AT: u64 = 0x1000;

    fn memory() -> Memory {
        let memory = Memory::new();
        memory.map_anon(AT, LEN).expect("mapped");
        memory
    }

    fn put(memory: &Memory, at: u64, bytes: &[u8]) {
        memory.view().write(at, bytes).expect("mapped");
    }

    /// The device uses a chain.
    fn use_chain(memory: &Memory, ring: &Split, index: u16, id: u32, len: u32) {
        let element = [id.to_le_bytes(), len.to_le_bytes()].concat();
        put(
            memory,
            ring.places.device() + 4 + 8 * u64::from(index % SIZE),
            &element,
        );
        put(
            memory,
            ring.places.device() + 2,
            &index.wrapping_add(1).to_le_bytes(),
        );
    }

    #[test]
    fn chains_come_back_whole_and_in_any_order() {
        let (memory, mut ring) = (memory(), Split::new(Places(AT), true));
        let view = memory.view();
        ring.offer(&view, &[7, 3, 9], 100, false).expect("good");
        ring.offer(&view, &[1], 5, false).expect("good");
        assert_eq!(ring.take(&view), Ok(None));
        assert_eq!(ring.publish(&view), Ok(true), "index 0 has passed");
        assert_eq!(ring.chains(), 2);
        use_chain(&memory, &ring, 0, 1, 0);
        use_chain(&memory, &ring, 1, 7, 0);
        let mut back = Vec::new();
        while let Some(used) = ring.take(&view).expect("good") {
            ring.chain(used, |buffer| back.push(buffer));
        }
        assert_eq!(back, [1, 7, 3, 9]);
        assert_eq!(ring.chains(), 0);
    }

    #[test]
    fn what_a_device_cannot_have_used_breaks_the_ring() {
        for lie in [
            |memory: &Memory, ring: &Split| use_chain(memory, ring, 0, 8, 0),
            |memory: &Memory, ring: &Split| use_chain(memory, ring, 0, 70_000, 0),
            |memory: &Memory, ring: &Split| use_chain(memory, ring, 0, 1024, 0),
            |memory: &Memory, ring: &Split| use_chain(memory, ring, 1, 7, 0),
        ] {
            let (memory, mut ring) = (memory(), Split::new(Places(AT), false));
            let view = memory.view();
            ring.offer(&view, &[7], 5, true).expect("good");
            lie(&memory, &ring);
            assert_eq!(ring.take(&view), Err(Broken));
        }
        // A chain is given back once.
        let (memory, mut ring) = (memory(), Split::new(Places(AT), false));
        let view = memory.view();
        ring.offer(&view, &[7], 5, true).expect("good");
        ring.offer(&view, &[8], 5, true).expect("good");
        use_chain(&memory, &ring, 0, 7, 0);
        use_chain(&memory, &ring, 1, 7, 0);
        ring.take(&view).expect("good").expect("used");
        assert_eq!(ring.take(&view), Err(Broken));
    }

    #[test]
    fn each_side_says_when_it_wants_to_hear() {
        for event_idx in [false, true] {
            let (memory, mut ring) = (memory(), Split::new(Places(AT), event_idx));
            let view = memory.view();
            let wants = |ring: &Split, wants: bool| {
                // A flag, or an index that is far away.
                put(
                    &memory,
                    ring.places.device(),
                    &u16::from(!wants).to_le_bytes(),
                );
                let event = if wants {
                    ring.shown
                } else {
                    ring.shown.wrapping_sub(9)
                };
                put(
                    &memory,
                    ring.places.device() + 4 + 8 * ENTRIES,
                    &event.to_le_bytes(),
                );
            };
            for n in 0..4 {
                let wanted = n % 2 == 0;
                wants(&ring, wanted);
                ring.offer(&view, &[n], 1, true).expect("good");
                assert_eq!(ring.publish(&view), Ok(wanted), "{event_idx} {n}");
                assert_eq!(ring.publish(&view), Ok(false), "nothing new");
            }
            ring.no_call(&view).expect("good");
            assert_eq!(ring.want_call(&view), Ok(false));
            use_chain(&memory, &ring, 0, 0, 1);
            assert_eq!(ring.want_call(&view), Ok(true));
            let mut said = [0; 2];
            view.read(ring.places.driver() + 4 + 2 * ENTRIES, &mut said)
                .expect("mapped");
            view.read(ring.places.driver(), &mut said).expect("mapped");
            assert_eq!(said, [0, 0], "calls are wanted");
            ring.no_call(&view).expect("good");
            view.read(ring.places.driver(), &mut said).expect("mapped");
            assert_eq!(said, [u8::from(!event_idx), 0]);
        }
    }

    proptest! {
        /// Whatever the device writes, chains come back at most once, and only what it was given.
        #[test]
        fn no_device_makes_a_buffer_come_back_twice(
            elements in prop::collection::vec((0..12u32, any::<u32>()), 1..20), index in any::<u16>(),
        ) {
            let (memory, mut ring) = (memory(), Split::new(Places(AT), true));
            let view = memory.view();
            for buffers in [[0, 1], [2, 3], [4, 5]] {
                ring.offer(&view, &buffers, 1, true).expect("good");
            }
            for (n, (id, len)) in (0..).zip(&elements) {
                use_chain(&memory, &ring, n, *id, *len);
            }
            put(&memory, ring.places.device() + 2, &(index % 5).to_le_bytes());
            let mut back = Vec::new();
            while let Ok(Some(used)) = ring.take(&view) {
                ring.chain(used, |buffer| back.push(buffer));
            }
            let mut once = back.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), back.len());
            prop_assert!(back.iter().all(|buffer| *buffer < 6));
        }
    }
}
